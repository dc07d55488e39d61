/* A unit is removed, and its name is made again: R removes the old one, Y makes the new one, and finishes what R began
 * if R is gone. A third mount has published the old one; its last request may still be on its way. */
#define MOUNTS 3
#ifndef LOSSES
#define LOSSES 2
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define R 0
#define Y 1
#define OLD 2 /* the old publisher; it does nothing any more */
#define NOTES 3
#define GONE 0
#define TAKE 1
#define OPEN 2 /* Y's */

mtype = { PUT_GONE, REMOVE_TAIL, REMOVE_REST, REMOVE_GONE, PUT_OLD_REST, PUT_OPEN, PUT_TAKE, REMOVE_TAKE, PUT_REST, PUT_TAIL,
    REMOVE_OPEN };

#define NONE 0
#define FIRST 1  /* version of the old unit */
#define SECOND 2 /* of the new one */
byte rest = FIRST;
byte tail = FIRST;
bit told; /* that the new unit is whole */
bit ended[2];
bit taken_back; /* R found another unit than the one it was to remove */

inline take_tail() { assert(tail != SECOND); tail = NONE }
inline take_rest() { assert(rest != SECOND); rest = NONE }

inline land(m, op)
{
    if
    :: op == PUT_GONE -> note[GONE] = 1
    :: op == REMOVE_TAIL -> take_tail()
    :: op == REMOVE_REST -> take_rest()
    :: op == REMOVE_GONE -> note[GONE] = 0
    :: op == PUT_OLD_REST -> rest = FIRST
    :: op == PUT_OPEN -> note[OPEN] = 1
    :: op == PUT_TAKE -> note[TAKE] = 1
    :: op == REMOVE_TAKE -> note[TAKE] = 0
    :: op == PUT_REST -> rest = SECOND
    :: op == PUT_TAIL -> tail = SECOND
    :: op == REMOVE_OPEN -> note[OPEN] = 0
    fi
}
#define STOPS(m) (m != OLD)
#include "world.inc"

#ifdef STOP_INSIDE
/* It is stopped between the look at its clock and the request, for as long as you like. */
#define REMOVE(op, effect, BACK) SEND(R, op, skip, BACK); effect
#else
#define REMOVE(op, effect, BACK) SEND(R, op, effect, BACK)
#endif

/* What R does before it sends anything with a lease that had been lost. */
#ifdef RULE_NOTES_READ_AFTER_LOSS
#define R_LOST { BEAT(R); goto read_notes }
#else
#define R_LOST BEAT(R)
#endif

proctype remover()
{
    {
        skip;
begin:
#ifdef RULE_FENCE
        late[R] == 0;
#endif
#ifdef RULE_NOTES_READ_AFTER_LOSS
        !(LISTED(TAKE) && !over[Y]); /* a request before may have got there, and be finished by another */
        SEND(R, PUT_GONE, note[GONE] = 1, { BEAT(R); goto begin });
#else
        SEND(R, PUT_GONE, note[GONE] = 1, BEAT(R));
#endif
#ifdef RULE_WAIT_AFTER_GONE
        WAIT(R);
#endif
#ifdef RULE_ROW_NAMES_VERSION
        if
        :: tail != FIRST -> taken_back = 1; goto remove_gone
        :: tail == FIRST -> skip
        fi;
#endif
#ifndef RULE_GONE_GOES_LAST
        SEND(R, REMOVE_GONE, note[GONE] = 0, BEAT(R));
#endif
remove:
        REMOVE(REMOVE_TAIL, take_tail(), R_LOST);
        REMOVE(REMOVE_REST, take_rest(), R_LOST);
remove_gone:
#ifdef RULE_FENCE
        late[R] == 0;
#endif
        SEND(R, REMOVE_GONE, note[GONE] = 0, R_LOST);
        goto stop;
read_notes:
#ifdef RULE_FENCE
        late[R] == 0;
#endif
        if
        :: !note[GONE] -> goto stop
        :: note[GONE] && !(LISTED(TAKE) && !over[Y]) ->
            if
            :: taken_back -> goto remove_gone
            :: !taken_back -> goto remove
            fi
        fi;
stop:
        skip
    } unless { dead[R] };
    ended[R] = 1
}

#ifdef RULE_LEASE_ENDED_BEFORE_TAKE
#define R_ENDED over[R]
#else
#define R_ENDED true
#endif

#ifdef RULE_NOTES_READ_AFTER_LOSS
#define Y_LOST { BEAT(Y); goto withdraw }
#else
#define Y_LOST BEAT(Y)
#endif

proctype maker()
{
    {
        /* Else it would be an edit. Who removed it may be anybody. */
        (rest == NONE && tail == NONE) || LISTED(GONE);
        SEND(Y, PUT_OPEN, note[OPEN] = 1, BEAT(Y));
#ifdef RULE_GONE_BLOCKS_COMMITS
look:
        if
        :: !LISTED(GONE) -> goto commit
        :: LISTED(GONE) && R_ENDED -> skip
        fi;
#ifdef RULE_TAKE_THEN_LOOK
#ifdef RULE_FENCE
        late[Y] == 0;
#endif
        SEND(Y, PUT_TAKE, note[TAKE] = 1, BEAT(Y));
        WAIT(Y);
        if
        :: !note[GONE] || !R_ENDED -> goto withdraw
        :: note[GONE] && R_ENDED -> skip
        fi;
#endif
        SEND(Y, REMOVE_TAIL, take_tail(), Y_LOST);
        SEND(Y, REMOVE_REST, take_rest(), Y_LOST);
#ifdef RULE_FENCE
        late[Y] == 0;
#endif
        SEND(Y, REMOVE_GONE, note[GONE] = 0, Y_LOST);
withdraw:
#ifdef RULE_FENCE
        late[Y] == 0;
#endif
        SEND(Y, REMOVE_TAKE, note[TAKE] = 0, BEAT(Y));
        goto look;
commit:
#endif
        SEND(Y, PUT_REST, rest = SECOND, BEAT(Y));
        SEND(Y, PUT_TAIL, tail = SECOND, BEAT(Y));
        told = 1;
#ifdef RULE_FENCE
        late[Y] == 0;
#endif
        SEND(Y, REMOVE_OPEN, note[OPEN] = 0, BEAT(Y))
    } unless { dead[Y] };
    ended[Y] = 1
}

/* Somebody else removes the same unit by the same rules, before R has told of its removal. */
proctype other_remover()
{
end:
    atomic { !note[GONE] && tail == FIRST && late[OLD] == 0 -> tail = NONE; rest = NONE }
}

proctype judge()
{
    timeout;
    assert(dead[R] || dead[Y] || (ended[R] && ended[Y]));
    assert(dead[R] || dead[Y] || (!note[GONE] && !note[TAKE] && !note[OPEN]));
    assert(!told || (rest == SECOND && tail == SECOND));
    assert(dead[R] || taken_back || (rest != FIRST && tail != FIRST))
}

init
{
    atomic {
        if
        :: late[OLD] = PUT_OLD_REST
        :: skip
        fi;
        run remover();
        run maker();
        run other_remover();
        begin_world();
        run judge()
    }
}
