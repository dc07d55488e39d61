/* Publish units, killed at each step: the store never has the file that was closed last without
 * the rest, nor a pointer without the units that were before it; and the next mount brings all
 * that was closed. The steps are those that the cache passes, whatever they are called. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;

/* What the processes share. */
static struct shared {
    atomic_uint passed; /* steps so far */
    unsigned kill_at;   /* 0: none */
    atomic_uint closed; /* files whose close was answered */
    atomic_bool ended;  /* the story did all it had to */
} * shared;

static void die_or_pass(const char *name)
{
    (void)name;
    if (atomic_fetch_add(&shared->passed, 1) + 1 == shared->kill_at)
        (void)raise(SIGKILL);
}

/* ---- stories ---- */

/* A file of the story, in the order of closes, by the name that it has in the end. */
struct told {
    const char *made, *path;
};

static const struct told in_place[] = {
    {"checkpoint-1/x", "checkpoint-1/x"},
    {"checkpoint-1/sub/y", "checkpoint-1/sub/y"},
    {"checkpoint-1/z", "checkpoint-1/z"},
    {"checkpoint-1/_SUCCESS", "checkpoint-1/_SUCCESS"},
    {NULL, NULL},
};
static const struct told renamed[] = {
    {"tmp-1/z", "checkpoint-1/z"},
    {"tmp-1/sub/y", "checkpoint-1/sub/y"},
    {"tmp-1/b", "checkpoint-1/b"},
    {"tmp-1/a", "checkpoint-1/a"},
    {NULL, NULL},
};
static const struct told pointed[] = {
    {"checkpoint-1/x", "checkpoint-1/x"},
    {"checkpoint-1/sub/y", "checkpoint-1/sub/y"},
    {"beside", "beside"},
    {"latest.tmp", "latest"},
    {NULL, NULL},
};

static const struct story {
    const struct told *files;
    const char *from, *to; /* renamed in the end; or NULL */
    const char *tails[2];  /* names that come after all that was closed before them */
} stories[] = {
    {in_place, NULL, NULL, {"checkpoint-1/_SUCCESS", NULL}},
    {renamed, "tmp-1", "checkpoint-1", {"checkpoint-1/a", NULL}},
    {pointed, "latest.tmp", "latest", {"latest", NULL}},
};

static const struct story *story;

static void make_dirs(const char *path)
{
    char dir[64];

    (void)snprintf(dir, sizeof(dir), "%s", path);
    for (char *end = strchr(dir, '/'); end; end = strchr(end + 1, '/')) {
        *end = '\0';
        int r = driven_mkdir(&d, dir);
        ck_assert(r == 0 || r == -EEXIST);
        *end = '/';
    }
}

static bool all_is_stored(void)
{
    char text[64];

    for (const struct told *f = story->files; f->path; f++)
        if (driven_stored(&d, f->path, text, sizeof(text)) != (ssize_t)strlen(f->path))
            return false;
    return true;
}

static void tell(void)
{
    for (const struct told *f = story->files; f->path; f++) {
        make_dirs(f->made);
        driven_put(&d, f->made, f->path, strlen(f->path));
        atomic_fetch_add(&shared->closed, 1);
    }
    if (story->from)
        ck_assert_int_eq(driven_rename(&d, story->from, story->to), 0);
    DRIVEN_WAIT(all_is_stored());
    atomic_store(&shared->ended, true);
}

/* The same with a mount that finds it owed: the first one sends nothing. */
static void tell_found(void)
{
    driven_mount(&d);
    if (!all_is_stored())
        (void)driven_flush(&d);
    atomic_store(&shared->ended, all_is_stored());
}

/* ---- after a kill ---- */

static bool is_stored(const char *path)
{
    char text[64];
    ssize_t n = driven_stored(&d, path, text, sizeof(text));

    ck_assert_msg(n < 0 || ((size_t)n == strlen(path) && memcmp(text, path, (size_t)n) == 0),
                  "%s is torn", path);
    return n >= 0;
}

static int count_one(void *arg, const char *name, const struct object *obj)
{
    (void)name;
    *(unsigned *)arg += !obj->is_prefix;
    return 0;
}

/* How many notes of units the store has. */
static unsigned notes(void)
{
    unsigned n = 0;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    int r = store_list(d.store, &op, STORE_STATE_DIR "/units", LIST_RECURSIVE, count_one, &n);
    ck_assert(r == 0 || r == -ENOENT);
    return n;
}

/* A unit of which the store has a part is hidden from other mounts. */
static void no_half_is_shown(void)
{
    unsigned all = 0, there = 0;

    for (const struct told *f = story->files; f->path; f++) {
        bool of_unit = strncmp(f->path, "checkpoint-1/", strlen("checkpoint-1/")) == 0;
        all += of_unit;
        there += of_unit && is_stored(f->path);
    }
    ck_assert_msg(there == 0 || there == all || notes() == 1,
                  "step %u: %u of %u files are shown", shared->kill_at, there, all);
}

static void nothing_is_half(void)
{
    no_half_is_shown();
    for (const char *const *tail = story->tails; *tail; tail++) {
        if (!is_stored(*tail))
            continue;
        for (const struct told *f = story->files; strcmp(f->path, *tail) != 0; f++)
            ck_assert_msg(is_stored(f->path), "step %u: %s is stored without %s",
                          shared->kill_at, *tail, f->path);
    }
}

/* Under the name that it was made with, or the one that it has in the end. */
static void what_was_closed_comes(void)
{
    unsigned n = 0;

    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_msg(notes() == 0, "step %u: a note stays", shared->kill_at);
    for (const struct told *f = story->files; n < atomic_load(&shared->closed); f++, n++) {
        char text[64];
        bool there = is_stored(f->path) ||
                     driven_stored(&d, f->made, text, sizeof(text)) == (ssize_t)strlen(f->path);
        ck_assert_msg(there, "step %u: %s is lost", shared->kill_at, f->path);
    }
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

static void mount_and_tell(void)
{
    driven_mount(&d);
    tell();
}

static atomic_bool away;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && atomic_load(&away))
        return op_fail(c->op, -EIO, "no uploads now");
    return call_next(c);
}

static void start(void)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    atomic_store(&shared->closed, 0);
}

static void setup(void)
{
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
}

START_TEST(a_save_is_killed_at_each_step)
{
    bool dies = true;
    unsigned step;

    story = &stories[_i];
    for (step = 1; dies; step += every(SOME_SAVES)) {
        start();
        dies = killed(mount_and_tell, step);
        nothing_is_half();
        what_was_closed_comes();
        driven_release(&d);
    }
    (void)printf("%u steps\n", step - 1 - every(SOME_SAVES));
    ck_assert_uint_gt(step, 20);
}
END_TEST

/* All of it is owed when the mount begins. */
static void make_owed(void)
{
    driven_mount(&d);
    for (const struct told *f = story->files; f->path; f++) {
        make_dirs(f->made);
        driven_put(&d, f->made, f->path, strlen(f->path));
        atomic_fetch_add(&shared->closed, 1);
    }
    if (story->from)
        ck_assert_int_eq(driven_rename(&d, story->from, story->to), 0);
    driven_unmount(&d);
}

START_TEST(a_recovery_is_killed_at_each_step)
{
    bool dies = true;
    unsigned step;

    story = &stories[_i];
    for (step = 1; dies; step += every(SOME_SAVES)) {
        start();
        atomic_store(&away, true);
        make_owed();
        nothing_is_half();
        atomic_store(&away, false);
        dies = killed(tell_found, step);
        nothing_is_half();
        what_was_closed_comes();
        driven_release(&d);
    }
    (void)printf("%u steps\n", step - 1 - every(SOME_SAVES));
    ck_assert_uint_gt(step, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_unit_kills");
    TCase *t = tcase_create("cache_unit_kills");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_save_is_killed_at_each_step, 0, ARRAY_SIZE(stories));
    tcase_add_loop_test(t, a_recovery_is_killed_at_each_step, 0, ARRAY_SIZE(stories));
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
