/* How many of the stories of a test are told that repeats one for each kind of store, each
 * state, each step at which something fails or dies. Under TSan a story takes ten times as
 * long, and most of them let the same threads meet in the same order as the one before did: the
 * gate tells every n-th there. By night (check.sh --nightly), and in all other builds, each is
 * told.
 *
 * Each n stands here. Those that look alike have no common divisor with how many kinds, states
 * and orders there are, so that each of these has its turn. */
#ifndef RUNFS_TESTS_LIB_SOME_H
#define RUNFS_TESTS_LIB_SOME_H

#include <check.h>
#include <stdbool.h>

enum {
    SOME_KINDS = 3,     /* of store: seven or eight; of change: 13 or 20 */
    SOME_STATES = 7,    /* and orders and stores: 12, 18, 27 or 30 */
    SOME_POINTS = 5,    /* and states at which a daemon dies: 21 or 42 */
    SOME_STEPS = 3,     /* of a change, one of which fails; two errors take turns */
    SOME_SEQUENCES = 3, /* each of another seed */
    SOME_SAVES = 7,     /* steps of a save, killed at one of them */
    SOME_STORIES = 11   /* the same of a longer story */
};

/* Whether it is TSan; a test of this changes it. */
extern bool some_is_slow;

/* Whether check.sh --nightly runs. */
bool by_night(void);
/* `nth`, or 1 where each story is told. */
unsigned every(unsigned nth);
/* The step by which to go through `all` places to come to about `gate` of them, under TSan to
 * `tsan`; by night to each, under TSan to twice as many. At least 1. */
unsigned step_through(unsigned all, unsigned gate, unsigned tsan);

/* Which of [from, to) are told: one at least; the program's next loop goes on counting. */
struct some {
    int at, to;
    unsigned step;
};
struct some some_begin(int from, int to, unsigned nth);

/* tcase_add_loop_test() of every nth. */
#define tcase_add_some_test(tcase, test, begin, end, nth)                                      \
    for (struct some told_ = some_begin(begin, end, nth); told_.at < told_.to;                 \
         told_.at += (int)told_.step)                                                          \
    tcase_add_loop_test(tcase, test, told_.at, told_.at + 1)

/* Prints how many were told, where not all were. */
void some_print(void);

#endif
