/* A unit is removed by one mount and locked by others; a mount that shows it looks on. FINISHER: the third mount locks
 * nothing, and finishes the removal when the remover is gone. */
#ifdef FINISHER
#define MOUNTS 3
#define F 2
#endif
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
#define R 0 /* removes; the others lock */
#define NOTES MOUNTS
#define GONE 0
#define LOCK(m) (m)

mtype = { PUT_GONE, REMOVE_TAIL, REMOVE_REST, REMOVE_GONE, PUT_LOCK, REMOVE_LOCK };

bit tail = 1;
bit rest = 1;
bit held[MOUNTS]; /* the locker counts on its lock, unless its own clock says that the lease is lost */
bit ended[MOUNTS];

#define HELD(m) (held[m] && !lost[m] && !dead[m])
#define LIVING(m) (LISTED(LOCK(m)) && !over[m])
#if MOUNTS == 3 && !defined(FINISHER)
#define ANY_HELD (HELD(1) || HELD(2))
#define ANY_LIVING (LIVING(1) || LIVING(2))
#define ALL_ENDED (ended[0] && ended[1] && ended[2])
#else
#define ANY_HELD HELD(1)
#define ANY_LIVING LIVING(1)
#if MOUNTS == 3
#define ALL_ENDED (ended[0] && ended[1] && ended[2])
#else
#define ALL_ENDED (ended[0] && ended[1])
#endif
#endif

inline take_tail() { assert(!(tail && ANY_HELD)); tail = 0 }
inline take_rest() { assert(!(rest && ANY_HELD)); rest = 0; assert(!tail) }

inline land(m, op)
{
    if
    :: op == PUT_GONE -> note[GONE] = 1
    :: op == REMOVE_TAIL -> take_tail()
    :: op == REMOVE_REST -> take_rest()
    :: op == REMOVE_GONE -> note[GONE] = 0
    :: op == PUT_LOCK -> note[LOCK(m)] = 1
    :: op == REMOVE_LOCK -> note[LOCK(m)] = 0
    fi
}
#include "world.inc"

proctype remover()
{
    {
#ifdef RULE_GONE_THEN_LIST
        SEND(R, PUT_GONE, note[GONE] = 1, BEAT(R));
#endif
#ifdef RULE_WAIT_AFTER_GONE
        WAIT(R);
#endif
        !ANY_LIVING;
#ifndef RULE_GONE_THEN_LIST
        SEND(R, PUT_GONE, note[GONE] = 1, BEAT(R));
#endif
        /* It may be stopped between the look at its clock and the request: what harms nobody here. */
#ifdef RULE_TAIL_REMOVED_FIRST
        SEND(R, REMOVE_TAIL, skip, BEAT(R));
        take_tail();
#endif
        SEND(R, REMOVE_REST, skip, BEAT(R));
        take_rest();
#ifndef RULE_TAIL_REMOVED_FIRST
        SEND(R, REMOVE_TAIL, skip, BEAT(R));
        take_tail();
#endif
#ifdef RULE_FENCE
        late[R] == 0;
#endif
        SEND(R, REMOVE_GONE, note[GONE] = 0, BEAT(R))
    } unless { dead[R] };
    ended[R] = 1
}

/* What a lock whose lease was lost does before it counts again. */
#ifdef RULE_LOCK_AGAIN_AFTER_LOSS
#define LOCK_LOST(m) atomic { held[m] = 0; lost[m] = 0; over[m] = 0; goto put_lock }
#else
#define LOCK_LOST(m) BEAT(m)
#endif
#ifdef RULE_GONE_NEVER_LAPSES
#define REMOVED LISTED(GONE)
#else
#define REMOVED (LISTED(GONE) && !over[R])
#endif

proctype locker(byte m)
{
    {
        skip;
put_lock:
#ifdef RULE_LOCK_THEN_LIST
        SEND(m, PUT_LOCK, note[LOCK(m)] = 1, BEAT(m));
#ifdef RULE_LIST_AGAIN_WHEN_LATE
        WAIT(m);
#endif
        atomic {
            if
            :: REMOVED -> goto take_back
            :: else -> held[m] = 1
            fi
        };
#else
        if
        :: REMOVED -> goto take_back
        :: else -> skip
        fi;
        SEND(m, PUT_LOCK, note[LOCK(m)] = 1, BEAT(m));
        held[m] = 1;
#endif
        /* Its command is at work. */
        do
        :: lost[m] -> LOCK_LOST(m)
        :: !lost[m] -> break
        od;
take_back:
        held[m] = 0;
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        SEND(m, REMOVE_LOCK, note[LOCK(m)] = 0, BEAT(m))
    } unless { dead[m] };
    ended[m] = 1
}

#ifdef FINISHER
proctype finisher()
{
    {
        if
        :: LISTED(GONE) && over[R] ->
            WAIT(F);
#ifdef RULE_FINISHER_LISTS_LOCKS
            !ANY_LIVING;
#endif
            SEND(F, REMOVE_TAIL, take_tail(), BEAT(F));
            SEND(F, REMOVE_REST, take_rest(), BEAT(F));
            late[F] == 0;
            SEND(F, REMOVE_GONE, note[GONE] = 0, BEAT(F))
        :: ended[R] && late[R] == 0 && !note[GONE] -> skip
        fi
    } unless { dead[F] };
    ended[F] = 1
}
#endif

#if MOUNTS == 2
/* Looks once, at any moment, first for the names and then for the notes: it shows all of a unit, or nothing. */
proctype reader()
{
    rest || tail;
    if
    :: LISTED(GONE) -> skip
    :: atomic { !LISTED(GONE) -> assert(rest == tail) }
    fi
}
#endif

/* When nothing moves any more: each wait has ended, and no note is left of a mount that lives. */
proctype judge()
{
    timeout;
    assert(ALL_ENDED);
    assert(dead[R] || (!note[GONE] && !tail && !rest));
#ifdef FINISHER
    assert(dead[R] || dead[F] || !note[GONE]);
#endif
    assert(dead[1] || !note[LOCK(1)]);
#if MOUNTS == 3 && !defined(FINISHER)
    assert(dead[2] || !note[LOCK(2)])
#endif
}

init
{
    atomic {
        run remover();
        run locker(1);
#ifdef FINISHER
        run finisher();
#elif MOUNTS == 3
        run locker(2);
#else
        run reader();
#endif
        begin_world();
        run judge()
    }
}
