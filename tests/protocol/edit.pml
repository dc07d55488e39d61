/* A unit is removed by R while E replaces or adds an object in it: an edit, which has no note. */
#define MOUNTS 2
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LATES
#define LATES 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define R 0
#define E 1
#define NOTES 1
#define GONE 0

mtype = { PUT_GONE, REMOVE_TAIL, REMOVE_REST, REMOVE_GONE, PUT_EDIT };

bit tail = 1;
bit rest = 1;
bit edited; /* an object of the unit that the row of its removal does not name */
bit kept;   /* what was to be edited is no more: the content is put aside */
bit ended[2];

inline take_rest()
{
    rest = 0;
#ifdef RULE_REMOVES_WHAT_STANDS
    edited = 0;
#endif
    assert(!tail)
}

inline land(m, op)
{
    if
    :: op == PUT_GONE -> note[GONE] = 1
    :: op == REMOVE_TAIL -> tail = 0
    :: op == REMOVE_REST -> take_rest()
    :: op == REMOVE_GONE -> note[GONE] = 0
    :: op == PUT_EDIT -> edited = 1
    fi
}
#include "world.inc"

#ifdef RULE_EDIT_LOOKS_FOR_GONE
#define GOES LISTED(GONE)
#else
#define GOES false
#endif
#ifdef RULE_EDIT_LOOKS_FOR_TAIL
#define WENT (!tail)
#else
#define WENT false
#endif

proctype remover()
{
    {
        SEND(R, PUT_GONE, note[GONE] = 1, BEAT(R));
#ifdef RULE_WAIT_AFTER_GONE
        WAIT(R);
#endif
#ifdef RULE_WAIT_AGAIN_WHEN_LATE
        WAIT_FOR_REQUESTS(R); /* of those who had not seen it */
#endif
        SEND(R, REMOVE_TAIL, tail = 0, BEAT(R));
        SEND(R, REMOVE_REST, take_rest(), BEAT(R));
#ifdef RULE_FENCE
        late[R] == 0;
#endif
        SEND(R, REMOVE_GONE, note[GONE] = 0, BEAT(R))
    } unless { dead[R] };
    ended[R] = 1
}

/* It looks before each attempt; what it then sends takes effect within late_window, or never. */
proctype editor()
{
    {
        do
        :: atomic { !lost[E] && late[E] == 0 && lates > 0 && !GOES && !WENT -> lates--; late[E] = PUT_EDIT };
            late[E] == 0;
            if
            :: edited -> break
            :: !edited -> skip
            fi
        :: GOES || WENT -> kept = 1; break
        :: lost[E] -> BEAT(E)
        :: lates == 0 -> break
        od
    } unless { dead[E] };
    ended[E] = 1
}

proctype judge()
{
    timeout;
    assert(dead[R] || (ended[R] && ended[E] && !note[GONE]));
    assert(dead[R] || (!tail && !rest && !edited))
}

init
{
    atomic {
        run remover();
        run editor();
        begin_world();
        run judge()
    }
}
