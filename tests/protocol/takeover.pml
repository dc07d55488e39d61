/* A publisher stops or dies, and others make the same name: they clean up what is not theirs and publish.
 * X had begun; the others, of which the first has the tail, take over. */
#ifndef MOUNTS
#define MOUNTS 2
#endif
#ifndef LOSSES
#define LOSSES 2
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define X 0
#define NOTES (2 * MOUNTS)
#define OPEN(m) (m)
#define TAKE(m) (MOUNTS + m) /* that of X is never put */

mtype = { PUT_OPEN, PUT_REST, PUT_TAIL, PUT_SEAL, REMOVE_OPEN, PUT_TAKE, REMOVE_TAKE, REMOVE_TAIL, REMOVE_REST,
    REMOVE_OPEN_OF_X };

#define NONE 3
bit rest[MOUNTS];
byte tail = NONE; /* whose */
bit seal[MOUNTS];
bit told[MOUNTS];
bit ended[MOUNTS];
bit kept; /* X found its unit taken over */

/* As S shows it to everybody: a tail has all of its own beside it, and nothing of another. */
inline whole_or_hidden()
{
    assert(tail != X || rest[X]);
    assert(tail != 1 || (rest[1] && !rest[X]))
}
inline put_rest(m) { rest[m] = 1; whole_or_hidden() }
inline put_tail(m) { tail = m; whole_or_hidden() }
inline remove_foreign_tail()
{
    if
    :: tail == X -> tail = NONE
    :: else -> skip
    fi
}
/* What is there is not known by whose it is, but by being none of one's own. */
inline remove_foreign_rest(m)
{
    rest[X] = 0;
#if MOUNTS == 3
    assert(!rest[3 - m]);
#endif
    whole_or_hidden()
}

inline land(m, op)
{
    if
    :: op == PUT_OPEN -> note[OPEN(m)] = 1
    :: op == PUT_REST -> put_rest(m)
    :: op == PUT_TAIL -> put_tail(m)
    :: op == PUT_SEAL -> seal[m] = 1
    :: op == REMOVE_OPEN -> note[OPEN(m)] = 0
    :: op == PUT_TAKE -> note[TAKE(m)] = 1
    :: op == REMOVE_TAKE -> note[TAKE(m)] = 0
    :: op == REMOVE_TAIL -> remove_foreign_tail()
    :: op == REMOVE_REST -> remove_foreign_rest(m)
    :: op == REMOVE_OPEN_OF_X -> note[OPEN(X)] = 0
    fi
}
#include "world.inc"

#if MOUNTS == 3
#define OTHER(m) (3 - m)
#define TAKES(m) (LISTED(TAKE(m)) && !over[m])
#define TAKEN (TAKES(1) || TAKES(2))
#define ALL_ENDED (ended[0] && ended[1] && ended[2])
#define ANY_DEAD (dead[0] || dead[1] || dead[2])
#define NO_NOTES (!note[OPEN(0)] && !note[OPEN(1)] && !note[OPEN(2)] && !note[TAKE(1)] && !note[TAKE(2)])
#else
#define TAKES(m) (LISTED(TAKE(m)) && !over[m])
#define TAKEN TAKES(1)
#define ALL_ENDED (ended[0] && ended[1])
#define ANY_DEAD (dead[0] || dead[1])
#define NO_NOTES (!note[OPEN(0)] && !note[OPEN(1)] && !note[TAKE(1)])
#endif

/* What X does before it sends anything with a lease that had been lost. */
#ifdef RULE_NOTES_READ_AFTER_LOSS
#define X_LOST { BEAT(X); goto read_notes }
#else
#define X_LOST BEAT(X)
#endif

/* Its note is there since before. */
proctype publisher()
{
    {
        skip;
publish:
        SEND(X, PUT_REST, put_rest(X), X_LOST);
#ifdef STOP_INSIDE
        /* It is stopped between the look at its clock and the request, for as long as you like. */
        SEND(X, PUT_TAIL, skip, X_LOST);
        put_tail(X);
#else
        SEND(X, PUT_TAIL, put_tail(X), X_LOST);
#endif
        SEND(X, PUT_SEAL, seal[X] = 1, X_LOST);
        told[X] = 1;
        SEND(X, REMOVE_OPEN, note[OPEN(X)] = 0, X_LOST);
        goto stop;
read_notes:
#ifdef RULE_FENCE
        late[X] == 0;
#endif
        if
        :: !note[OPEN(X)] && tail == X && seal[X] -> told[X] = 1
        :: !note[OPEN(X)] && (tail != X || !seal[X]) -> kept = 1
        :: note[OPEN(X)] && !TAKEN -> goto publish /* all of it, as something may have been removed */
        fi;
stop:
        skip
    } unless { dead[X] };
    ended[X] = 1
}

#ifdef RULE_LEASE_ENDED_BEFORE_TAKE
#define X_ENDED over[X]
#else
#define X_ENDED true
#endif
#if MOUNTS == 3
#define OTHER_TAKES(m) TAKES(OTHER(m))
#else
#define OTHER_TAKES(m) false
#endif
#ifdef RULE_NOTES_READ_AFTER_LOSS
#define TAKER_LOST(m) { BEAT(m); goto withdraw }
#else
#define TAKER_LOST(m) BEAT(m)
#endif

proctype taker(byte m)
{
    {
        SEND(m, PUT_OPEN, note[OPEN(m)] = 1, BEAT(m));
wait_for_the_old:
        if
        :: !LISTED(OPEN(X)) -> goto clean
        :: tail == X && seal[X] -> goto give_up
        :: LISTED(OPEN(X)) && X_ENDED && !OTHER_TAKES(m) -> skip
        fi;
#ifdef RULE_TAKE_THEN_LOOK
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        SEND(m, PUT_TAKE, note[TAKE(m)] = 1, BEAT(m));
        WAIT(m);
#if MOUNTS == 3 && defined(RULE_ONE_TAKER)
        /* The one of the lower id waits for the other, who withdraws. */
        if
        :: OTHER_TAKES(m) && m > OTHER(m) -> goto withdraw
        :: OTHER_TAKES(m) && m < OTHER(m) -> !OTHER_TAKES(m)
        :: !OTHER_TAKES(m) -> skip
        fi;
#endif
        /* By name: a listing may be late, or have come past this one before the other note went. */
        if
        :: !note[OPEN(X)] || !X_ENDED -> goto withdraw
        :: note[OPEN(X)] && X_ENDED -> skip
        fi;
#ifdef RULE_SEALED_IS_NOT_TAKEN
        if
        :: tail == X && seal[X] -> goto withdraw
        :: tail != X || !seal[X] -> skip
        fi;
#endif
#endif
#ifdef RULE_FOREIGN_TAIL_FIRST
        SEND(m, REMOVE_TAIL, remove_foreign_tail(), TAKER_LOST(m));
#endif
#ifdef RULE_FOREIGN_REMOVED
        SEND(m, REMOVE_REST, remove_foreign_rest(m), TAKER_LOST(m));
#endif
#ifdef RULE_OLD_NOTE_BEFORE_TAKE
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        SEND(m, REMOVE_OPEN_OF_X, note[OPEN(X)] = 0, TAKER_LOST(m));
#endif
withdraw:
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        SEND(m, REMOVE_TAKE, note[TAKE(m)] = 0, BEAT(m));
#ifndef RULE_OLD_NOTE_BEFORE_TAKE
        SEND(m, REMOVE_OPEN_OF_X, note[OPEN(X)] = 0, BEAT(m));
#endif
        goto wait_for_the_old;
clean:
        if
        :: tail == X -> goto give_up /* it lived, and the unit is its own */
        :: tail != X -> skip
        fi;
        SEND(m, PUT_REST, put_rest(m), BEAT(m));
        if
        :: m == 1 -> SEND(m, PUT_TAIL, put_tail(m), BEAT(m))
        :: m != 1 -> skip
        fi;
        SEND(m, PUT_SEAL, seal[m] = 1, BEAT(m));
        told[m] = 1;
give_up:
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        SEND(m, REMOVE_OPEN, note[OPEN(m)] = 0, BEAT(m))
    } unless { dead[m] };
    ended[m] = 1
}

#if MOUNTS == 2
/* Looks once, at any moment, first for the names and then for the notes. */
#define HIDES(m) (LISTED(OPEN(m)) && !(seal[m] && tail == m))
#define HIDDEN (HIDES(0) || HIDES(1))
proctype reader()
{
    rest[X] || rest[1] || tail != NONE;
    if
    :: HIDDEN -> skip
    :: atomic { !HIDDEN -> assert(tail != NONE && rest[tail] && !rest[1 - tail]) }
    fi
}
#endif

proctype judge()
{
    timeout;
    assert(ANY_DEAD || (ALL_ENDED && NO_NOTES));
    assert(!told[1] || (tail == 1 && rest[1] && !rest[X]));
    assert(!told[X] || (tail == X && rest[X] && !kept))
}

init
{
    atomic {
        note[OPEN(X)] = 1;
        listed[OPEN(X)] = 1;
        run publisher();
        run taker(1);
#if MOUNTS == 3
        run taker(2);
#endif
#if MOUNTS == 2
        run reader();
#endif
        begin_world();
        run judge()
    }
}
