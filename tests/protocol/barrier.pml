/* The delete barrier over two mounts: P publishes a new unit, and R removes the one before it, as a program does that
 * has closed the files of the new one (behind a barrier of its own). S has a whole unit at every moment. */
#define MOUNTS 2
#ifndef LOSSES
#define LOSSES 2
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define P 0
#define R 1
#define NOTES 3
#define OPEN 0 /* of the new unit */
#define SEAL 1
#define GONE 2 /* of the old one */

mtype = { PUT_OPEN, PUT_REST, PUT_TAIL, PUT_SEAL, REMOVE_OPEN, PUT_GONE, REMOVE_OLD, REMOVE_GONE };

bit old = 1; /* the unit before; whole or not there */
bit rest;
bit tail;
bit closed; /* the program's closes are answered */
bit waits;  /* the removal waits for a later unit */
bit ended[2];

inline remove_old() { old = 0; assert(rest && tail) }

inline land(m, op)
{
    if
    :: op == PUT_OPEN -> note[OPEN] = 1
    :: op == PUT_REST -> rest = 1
    :: op == PUT_TAIL -> tail = 1
    :: op == PUT_SEAL -> note[SEAL] = 1
    :: op == REMOVE_OPEN -> note[OPEN] = 0
    :: op == PUT_GONE -> note[GONE] = 1
    :: op == REMOVE_OLD -> remove_old()
    :: op == REMOVE_GONE -> note[GONE] = 0
    fi
}
#include "world.inc"

proctype publisher()
{
    {
#ifdef RULE_OPEN_BEFORE_CLOSE_ANSWERED
        SEND(P, PUT_OPEN, note[OPEN] = 1, BEAT(P));
        closed = 1;
#else
        closed = 1;
        SEND(P, PUT_OPEN, note[OPEN] = 1, BEAT(P));
#endif
        SEND(P, PUT_REST, rest = 1, BEAT(P));
        SEND(P, PUT_TAIL, tail = 1, BEAT(P));
        SEND(P, PUT_SEAL, note[SEAL] = 1, BEAT(P));
#ifdef RULE_FENCE
        late[P] == 0;
#endif
        SEND(P, REMOVE_OPEN, note[OPEN] = 0, BEAT(P))
    } unless { dead[P] };
    ended[P] = 1
}

#define IS_OPEN (LISTED(OPEN) && !(LISTED(SEAL) && tail))

proctype remover()
{
    {
        closed;
#ifdef RULE_LIST_AGAIN_WHEN_LATE
        WAIT(R);
#endif
#ifdef RULE_BARRIER_READS_NOTES
        if
        :: !IS_OPEN -> skip
#ifdef RULE_NEWEST_WHOLE_WAITS
        :: IS_OPEN && over[P] -> waits = 1; goto stop
#else
        :: IS_OPEN && over[P] -> skip
#endif
        fi;
#endif
        SEND(R, PUT_GONE, note[GONE] = 1, BEAT(R));
        SEND(R, REMOVE_OLD, remove_old(), BEAT(R));
#ifdef RULE_FENCE
        late[R] == 0;
#endif
        SEND(R, REMOVE_GONE, note[GONE] = 0, BEAT(R));
stop:
        skip
    } unless { dead[R] };
    ended[R] = 1
}

proctype judge()
{
    timeout;
    assert(dead[P] || (ended[P] && !note[OPEN]));
    assert(!closed || ended[R]);
    assert(dead[R] || waits || !closed || (!old && !note[GONE]))
}

init
{
    atomic {
        run publisher();
        run remover();
        begin_world();
        run judge()
    }
}
