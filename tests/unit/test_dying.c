/* Which callers count as dying, from the texts that /proc gives of them. */
#include "fuse/dying.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIT(sig) (1ULL << ((sig)-1))

static const struct {
    unsigned long long own, shared, blocked, ignored, caught;
    int tracer;
    char state;
    bool dying;
} cases[] = {
    {0, 0, 0, 0, 0, 0, 'S', false},
    {BIT(SIGKILL), 0, 0, 0, 0, 0, 'S', true},
    {0, BIT(SIGKILL), 0, 0, 0, 0, 'D', true},
    {0, BIT(SIGKILL), 0, 0, 0, 99, 'D', true}, /* a debugger can't stop SIGKILL */
    {BIT(SIGTERM), 0, 0, 0, 0, 0, 'S', true},
    {0, BIT(SIGTERM), 0, 0, BIT(SIGTERM), 0, 'S', false},
    {0, BIT(SIGTERM), BIT(SIGTERM), 0, 0, 0, 'S', false},
    {0, BIT(SIGHUP), 0, BIT(SIGHUP), 0, 0, 'S', false},
    {0, BIT(SIGTERM), 0, 0, 0, 99, 'S', false}, /* a debugger may swallow it */
    {0, BIT(SIGQUIT), 0, 0, 0, 0, 'S', true},
    {0, BIT(64), 0, 0, 0, 0, 'S', true},
    {0, BIT(SIGCHLD) | BIT(SIGWINCH) | BIT(SIGURG) | BIT(SIGCONT), 0, 0, 0, 0, 'S', false},
    {0, BIT(SIGSTOP) | BIT(SIGTSTP), 0, 0, 0, 0, 'S', false},
    {0, BIT(SIGALRM) | BIT(SIGTERM), 0, 0, BIT(SIGALRM), 0, 'S', true},
    {0, 0, 0, 0, 0, 0, 'Z', true},
};

START_TEST(status_of_a_case)
{
    char text[600];

    (void)snprintf(text, sizeof(text),
                   "Name:\tSigPnd: x\nUmask:\t0022\nState:\t%c (whatever)\nTracerPid:\t%d\n"
                   "SigQ:\t0/1\nSigPnd:\t%016llx\nShdPnd:\t%016llx\nSigBlk:\t%016llx\n"
                   "SigIgn:\t%016llx\nSigCgt:\t%016llx\nCapInh:\t0000000000000000\n",
                   cases[_i].state, cases[_i].tracer, cases[_i].own, cases[_i].shared,
                   cases[_i].blocked, cases[_i].ignored, cases[_i].caught);
    ck_assert_msg(status_says_dying(text) == cases[_i].dying, "case %d", _i);
}
END_TEST

START_TEST(stat_of_an_exiting_thread)
{
    ck_assert(!stat_says_exiting("12 (a) S 1 12 12 0 -1 4194560 1 2 3"));
    ck_assert(stat_says_exiting("12 (a) D 1 12 12 0 -1 4194564 1 2 3"));
    ck_assert(stat_says_exiting("12 (a) S 1 (b)) D 1 12 12 0 -1 4 1 2 3"));
    ck_assert(!stat_says_exiting("12 (a"));
    ck_assert(!stat_says_exiting(""));
}
END_TEST

START_TEST(live_processes)
{
    int pipe_fds[2];
    char byte;

    ck_assert(!caller_is_dying(getpid()));
    ck_assert(!caller_is_dying(0));
    ck_assert_int_eq(pipe(pipe_fds), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)close(pipe_fds[1]);
        (void)!read(pipe_fds[0], &byte, 1); /* until the parent closes its end */
        _exit(0);
    }
    ck_assert(!caller_is_dying(child));
    ck_assert(!caller_inherited(getpid(), getpid()));
    ck_assert(!caller_inherited(0, child));
    ck_assert(caller_inherited(getpid(), child));
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    ck_assert(caller_is_dying(child)); /* a zombie */
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(caller_is_dying(child)); /* gone */
    ck_assert(!caller_inherited(child, getpid()));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dying");
    TCase *tcase = tcase_create("dying");

    tcase_add_loop_test(tcase, status_of_a_case, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(tcase, stat_of_an_exiting_thread);
    tcase_add_test(tcase, live_processes);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
