/* Several mounts write parts of one unit. One of them, D, has the program's own last file: its tail. */
#ifndef MOUNTS
#define MOUNTS 2
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define NOTES (3 * MOUNTS)
#define OPEN(m) (m)
#define LAST(m) (MOUNTS + m)
#define SEAL(m) (2 * MOUNTS + m)

mtype = { PUT_OPEN, PUT_REST, PUT_LAST, PUT_TAIL, PUT_SEAL, REMOVE_LAST, REMOVE_OPEN };

bit rest[MOUNTS];
bit tail[MOUNTS];
bit closed[MOUNTS];   /* the program's closes are answered; what follows is its last file, behind a barrier of its own */
bit declared[MOUNTS]; /* somebody said that the part is whole; else it is assumed */
bit ended[MOUNTS];
byte D;

#if MOUNTS == 3
#define ALL(what) (what[0] && what[1] && what[2])
#define ANY(what) (what[0] || what[1] || what[2])
#define FOR_OTHERS(what, m) ((m == 0 || what(0, m)) && (m == 1 || what(1, m)) && (m == 2 || what(2, m)))
#define PRESENT (HAS(0) + HAS(1) + HAS(2))
#else
#define ALL(what) (what[0] && what[1])
#define ANY(what) (what[0] || what[1])
#define FOR_OTHERS(what, m) ((m == 0 || what(0, m)) && (m == 1 || what(1, m)))
#define PRESENT (HAS(0) + HAS(1))
#endif
#define HAS(m) (LISTED(OPEN(m)) || LISTED(SEAL(m)))

inline put_tail(m)
{
    tail[m] = 1;
    assert(m != D || (ALL(rest) && ALL(tail)))
}

inline land(m, op)
{
    if
    :: op == PUT_OPEN -> note[OPEN(m)] = 1
    :: op == PUT_REST -> rest[m] = 1
    :: op == PUT_LAST -> note[LAST(m)] = 1
    :: op == PUT_TAIL -> put_tail(m)
    :: op == PUT_SEAL -> note[SEAL(m)] = 1
    :: op == REMOVE_LAST -> note[LAST(m)] = 0
    :: op == REMOVE_OPEN -> note[OPEN(m)] = 0
    fi
}
#include "world.inc"

/* Whether the tail of j comes before that of m where both have put `last`. */
#ifdef RULE_LAST_LOWEST_ID
#ifdef RULE_LAST_OF_PROGRAM
#define BEFORE(j, m) (j != D && (m == D || j < m))
#else
#define BEFORE(j, m) (j < m)
#endif
#else
#define BEFORE(j, m) true
#endif

/* Whether m need not wait for j any more. */
#define PASSED(j, m)                                                                                                     \
    (LISTED(SEAL(j)) || (!LISTED(OPEN(j)) && !LISTED(LAST(j))) || (LISTED(LAST(j)) && !BEFORE(j, m)))

#ifdef EXPECT
#ifdef RULE_EXPECT_COUNTS
#define ALL_KNOWN (PRESENT == MOUNTS)
#else
#define ALL_KNOWN true
#endif
#define PROGRAM_BARRIER true
#else
#define ALL_KNOWN true
#define PROGRAM_BARRIER ALL(closed)
#endif

proctype mount(byte m)
{
    {
#ifdef RULE_OPEN_BEFORE_CLOSE_ANSWERED
        SEND_ALIVE(m, PUT_OPEN, note[OPEN(m)] = 1);
        closed[m] = 1;
#else
        closed[m] = 1;
        SEND_ALIVE(m, PUT_OPEN, note[OPEN(m)] = 1);
#endif
        SEND_ALIVE(m, PUT_REST, rest[m] = 1);
        m != D || PROGRAM_BARRIER;
        if
        :: declared[m] ->
            SEND_ALIVE(m, PUT_LAST, note[LAST(m)] = 1);
#ifndef RULE_OPEN_STAYS_BESIDE_LAST
            SEND_ALIVE(m, REMOVE_OPEN, note[OPEN(m)] = 0);
#endif
#ifdef RULE_LIST_AGAIN_WHEN_LATE
            WAIT(m);
#endif
            ALL_KNOWN && FOR_OTHERS(PASSED, m)
        :: !declared[m] -> skip
        fi;
        SEND_ALIVE(m, PUT_TAIL, put_tail(m));
        SEND_ALIVE(m, PUT_SEAL, note[SEAL(m)] = 1);
#ifdef RULE_FENCE
        late[m] == 0;
#endif
        if
        :: declared[m] ->
            SEND_ALIVE(m, REMOVE_LAST, note[LAST(m)] = 0)
        :: !declared[m] -> skip
        fi;
        SEND_ALIVE(m, REMOVE_OPEN, note[OPEN(m)] = 0)
    } unless { dead[m] };
    ended[m] = 1
}

proctype judge()
{
    timeout;
    assert(ANY(dead) || ALL(ended));
    assert(ANY(dead) || (!note[OPEN(0)] && !note[OPEN(1)] && !note[LAST(0)] && !note[LAST(1)]))
}

init
{
    atomic {
        if
        :: D = 0
        :: D = 1
#if MOUNTS == 3
        :: D = 2
#endif
        fi;
        declared[D] = 1;
        do
        :: i < MOUNTS -> declared[i] = 1; run mount(i); i++
        :: i < MOUNTS -> run mount(i); i++
        :: else -> break
        od;
        i = 0;
        begin_world();
        run judge()
    }
}
