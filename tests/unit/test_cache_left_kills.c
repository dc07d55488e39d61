/* A daemon over a folder is killed at each step of a story, and then at each step of the mount
 * that finds the rest of it. Nobody else is there: nothing of what was put, moved or removed
 * counts as another node's, and all of it comes to the folder. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool away; /* nothing reaches the folder */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_STAT && c->kind != CALL_LIST && c->kind != CALL_READ &&
        atomic_load(&away))
        return op_fail(c->op, -EHOSTUNREACH, "%s %s: away", call_name(c->kind), c->key);
    return call_next(c);
}

/* What the processes share. */
static struct shared {
    atomic_uint passed;   /* steps so far */
    unsigned kill_at;     /* 0: none */
    atomic_uint answered; /* parts of the story */
    atomic_bool ended;
} * shared;

static void die_or_pass(const char *name)
{
    (void)name;
    if (atomic_fetch_add(&shared->passed, 1) + 1 == shared->kill_at)
        (void)raise(SIGKILL);
}

/* ---- the story ---- */

static void put(const char *path, const char *text)
{
    driven_put(&d, path, text, strlen(text));
}

enum does { PUTS, RENAMES, UNLINKS, CHMODS, FLUSHES };

static const struct scene {
    enum does does;
    const char *path, *to; /* or the text */
    const char *f, *g, *h; /* what the names have then; NULL: they are free */
} story[] = {
    {PUTS, "d/f", "two", "two", "beside", NULL},
    {FLUSHES, NULL, NULL, "two", "beside", NULL},
    {PUTS, "d/f", "three", "three", "beside", NULL},
    {PUTS, "d/f", "four", "four", "beside", NULL},
    {RENAMES, "d/f", "d/g", NULL, "four", NULL},
    {PUTS, "d/f", "new", "new", "four", NULL},
    {FLUSHES, NULL, NULL, "new", "four", NULL},
    {RENAMES, "d/f", "d/h", NULL, "four", "new"},
    {PUTS, "d/h", "newer", NULL, "four", "newer"},
    {CHMODS, "d/g", NULL, NULL, "four", "newer"},
    {RENAMES, "d/g", "d/f", "four", NULL, "newer"},
    {UNLINKS, "d/h", NULL, "four", NULL, NULL},
    {PUTS, "d/h", "last", "four", NULL, "last"},
    {FLUSHES, NULL, NULL, "four", NULL, "last"},
};

#define SCENES ARRAY_SIZE(story)

static void play(const struct scene *p)
{
    int r = 0;

    switch (p->does) {
    case PUTS:
        put(p->path, p->to);
        break;
    case RENAMES:
        r = driven_rename(&d, p->path, p->to);
        break;
    case UNLINKS:
        r = driven_unlink(&d, p->path);
        break;
    case CHMODS:
        r = driven_chmod(&d, p->path, 0600);
        break;
    case FLUSHES:
        r = driven_flush(&d);
        break;
    }
    ck_assert_int_eq(r, 0);
}

static void tell(void)
{
    driven_mount(&d);
    for (size_t i = 0; i < SCENES; i++) {
        play(&story[i]);
        atomic_fetch_add(&shared->answered, 1);
    }
    atomic_store(&shared->ended, true);
}

/* The folder gets none of it. */
static void tell_while_away(void)
{
    atomic_store(&away, true);
    driven_mount(&d);
    for (size_t i = 0; i < SCENES; i++)
        if (story[i].does != FLUSHES)
            play(&story[i]);
    atomic_store(&shared->answered, SCENES);
    (void)raise(SIGKILL);
}

static void find(void)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&shared->ended, true);
}

/* ---- after a kill ---- */

static bool has(const char *key, const char *wanted)
{
    char text[16];
    ssize_t n = driven_stored(&d, key, text, sizeof(text));

    return wanted ? n == (ssize_t)strlen(wanted) && memcmp(text, wanted, (size_t)n) == 0
                  : n == -ENOENT;
}

static bool is_after(size_t parts)
{
    static const struct scene begin = {.f = "one", .g = "beside"};
    const struct scene *p = parts ? &story[parts - 1] : &begin;

    return has("d/f", p->f) && has("d/g", p->g) && has("d/h", p->h);
}

/* What the next mount finds is written once more before it is sent. */
static void all_is_replaced(void)
{
    const unsigned n = atomic_load(&shared->answered);
    const bool puts = n < SCENES && story[n].does == PUTS;
    struct cache_stats s;

    atomic_store(&away, true);
    driven_mount(&d);
    put("d/f", "after");
    put("d/g", "after");
    put("d/h", "after");
    atomic_store(&away, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    cache_get_stats(d.cache, &s);
    ck_assert_msg(s.kept_files <= puts, "step %u, part %u: something is kept", shared->kill_at,
                  n);
    driven_stores(&d, "d/f", "after");
    driven_stores(&d, "d/g", "after");
    driven_stores(&d, "d/h", "after");
}

/* Of the part that was not answered all is done, or nothing. A file that was just being made
 * anew is kept, as of any killed writer. */
static void all_is_ours(const char *when)
{
    const unsigned n = atomic_load(&shared->answered);
    const bool puts = n < SCENES && story[n].does == PUTS;
    struct cache_stats s;

    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    cache_get_stats(d.cache, &s);
    ck_assert_msg(s.last_error == 0, "%s, step %u: %s", when, shared->kill_at,
                  s.last_error_text);
    ck_assert_msg(s.kept_files <= puts, "%s, step %u, part %u: something is kept", when,
                  shared->kill_at, n);
    if (s.kept_files) /* what was closed before went with it, if it was not sent */
        return;
    ck_assert_msg(is_after(n) || (n < SCENES && is_after(n + 1)),
                  "%s, step %u: not as after part %u", when, shared->kill_at, n);
}

/* Runs it in a process that dies at step `kill_at`. Whether it died. */
static bool killed(void (*run)(void), unsigned kill_at)
{
    int status;

    atomic_store(&shared->passed, 0);
    atomic_store(&shared->ended, false);
    shared->kill_at = kill_at;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        crash_watch(die_or_pass);
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    ck_assert_int_eq(status, 0);
    ck_assert(atomic_load(&shared->ended));
    return false;
}

static void start(void)
{
    atomic_store(&away, false);
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    put("d/f", "one");
    put("d/g", "beside");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    atomic_store(&shared->answered, 0);
}

static void setup(void)
{
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
}

START_TEST(a_story_is_killed_at_each_step)
{
    bool dies = true;
    unsigned step;

    for (step = 1; dies; step += every(SOME_STORIES)) {
        start();
        dies = killed(tell, step);
        if (_i)
            all_is_replaced();
        else
            all_is_ours("killed");
        driven_release(&d);
    }
    (void)printf("%u steps\n", step - 1 - every(SOME_STORIES));
    ck_assert_uint_gt(step, 60);
}
END_TEST

/* The first process has sent nothing, and the second dies at each step. */
START_TEST(what_is_found_is_killed_at_each_step)
{
    bool dies = true;
    unsigned step;

    for (step = 1; dies; step += every(SOME_STORIES)) {
        start();
        ck_assert(killed(tell_while_away, 0));
        dies = killed(find, step);
        all_is_ours("killed twice");
        driven_release(&d);
    }
    (void)printf("%u steps\n", step - 1 - every(SOME_STORIES));
    ck_assert_uint_gt(step, 10);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache/left_kills");
    TCase *t = tcase_create("kills");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_story_is_killed_at_each_step, 0, 2);
    tcase_add_test(t, what_is_found_is_killed_at_each_step);
    suite_add_tcase(s, t);
    return suite_run(s);
}
