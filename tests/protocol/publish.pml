/* One mount publishes a unit, others show it: notes, the order at S, the seal. */
#ifndef MOUNTS
#define MOUNTS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define P 0 /* publishes; the others show */
#define NOTES 2
#define OPEN 0
#define SEAL 1

mtype = { PUT_OPEN, PUT_REST, PUT_TAIL, PUT_SEAL, REMOVE_OPEN };

bit rest;
bit tail;
bit told; /* that the unit is whole: a commit, a close with durability=store */
bit ended;

inline land(m, op)
{
    if
    :: op == PUT_OPEN -> note[OPEN] = 1
    :: op == PUT_REST -> rest = 1
    :: op == PUT_TAIL -> tail = 1; assert(rest)
    :: op == PUT_SEAL -> note[SEAL] = 1
    :: op == REMOVE_OPEN -> note[OPEN] = 0
    fi
}
#define STOPS(m) (m == P)
#include "world.inc"

/* A seal counts while S has the tail that it names: the seal of a unit that other tools removed may be there still. */
#ifdef RULE_SEAL_NAMES_TAIL
#define SEALED (LISTED(SEAL) && tail)
#else
#define SEALED LISTED(SEAL)
#endif
#define HIDDEN (LISTED(OPEN) && !SEALED)

proctype publisher()
{
    {
#ifdef RULE_OPEN_BEFORE_COMMIT
        SEND(P, PUT_OPEN, note[OPEN] = 1, BEAT(P));
#ifdef RULE_OPEN_LISTED_BEFORE_COMMIT
        WAIT(P);
#endif
#endif
#ifndef RULE_TAIL_LAST
        SEND(P, PUT_TAIL, tail = 1; assert(rest), BEAT(P));
#endif
        SEND(P, PUT_REST, rest = 1, BEAT(P));
#ifndef RULE_OPEN_BEFORE_COMMIT
        SEND(P, PUT_OPEN, note[OPEN] = 1, BEAT(P));
#endif
#ifdef RULE_TAIL_LAST
        SEND(P, PUT_TAIL, tail = 1; assert(rest), BEAT(P));
#endif
#ifdef RULE_SEAL_BEFORE_OPEN_GOES
        SEND(P, PUT_SEAL, note[SEAL] = 1, BEAT(P));
        told = 1;
#endif
#ifdef RULE_FENCE
        late[P] == 0;
#endif
        SEND(P, REMOVE_OPEN, note[OPEN] = 0, BEAT(P));
#ifndef RULE_SEAL_BEFORE_OPEN_GOES
        SEND(P, PUT_SEAL, note[SEAL] = 1, BEAT(P));
        told = 1;
#endif
    } unless { dead[P] };
    ended = 1
}

/* Looks once, at any moment: two questions, and what it finds when it reads then. */
proctype reader()
{
#ifdef RULE_NOTES_AFTER_NAMES
    rest || tail;
    if
    :: HIDDEN -> skip
    :: !HIDDEN -> assert(rest && tail && note[SEAL])
    fi
#else
    if
    :: HIDDEN -> skip
    :: !HIDDEN ->
        rest || tail;
        assert(rest && tail && note[SEAL])
    fi
#endif
}

proctype judge()
{
    timeout;
    assert(ended && (dead[P] || !note[OPEN]));
    assert(!told || !HIDDEN)
}

init
{
    atomic {
        if
        :: note[SEAL] = 1
        :: note[SEAL] = 1; listed[SEAL] = 1
        :: skip
        fi;
        run publisher();
        run reader();
        begin_world();
        run judge()
    }
}
