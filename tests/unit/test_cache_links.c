/* cache/: a file with more names than its stamp can tell of, in processes that are killed at
 * each step of its way to the store. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES 60

static const char *nth_name(int i)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "dir/a-name-that-takes-some-room-%04d", i);
    return name;
}

/* What was answered before the process died. */
struct progress {
    atomic_int links;   /* names made */
    atomic_bool stored; /* all of them are in the store */
    atomic_bool second; /* the second content is closed */
    atomic_bool gone;   /* name 1 is removed */
    atomic_bool moved;  /* name 2 is number NAMES now */
};

static void work(struct driven *d, struct progress *p)
{
    char first[64];

    driven_mount(d);
    (void)driven_mkdir(d, "dir");
    (void)snprintf(first, sizeof(first), "%s", nth_name(0));
    driven_put(d, first, "one", 3);
    for (int i = 1; i < NAMES; i++) {
        ck_assert_int_eq(driven_link(d, first, nth_name(i)), 0);
        atomic_store(&p->links, i);
    }
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&p->stored, true);
    driven_put(d, nth_name(NAMES / 2), "two", 3);
    atomic_store(&p->second, true);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_unlink(d, nth_name(1)), 0);
    atomic_store(&p->gone, true);
    (void)snprintf(first, sizeof(first), "%s", nth_name(2));
    ck_assert_int_eq(driven_rename(d, first, nth_name(NAMES)), 0);
    atomic_store(&p->moved, true);
    ck_assert_int_eq(driven_flush(d), 0);
    _exit(0);
}

/* Whether the name is there as it must be, or may be while a call about it was not answered. */
static void check_name(struct driven *d, const struct progress *p, int i, bool must, bool may)
{
    char buf[8] = "";
    ssize_t n = driven_read(d, nth_name(i), buf, sizeof(buf) - 1);

    if (n == -ENOENT) {
        ck_assert_msg(!must, "%s is missing", nth_name(i));
        return;
    }
    ck_assert_msg(must || may, "%s is there", nth_name(i));
    bool two = strcmp(buf, "two") == 0;
    bool one = strcmp(buf, "one") == 0 || (!*buf && atomic_load(&p->stored)); /* O_TRUNC */
    ck_assert_msg(two || (one && !atomic_load(&p->second)), "%s: \"%s\"", nth_name(i), buf);
}

static void check_names(struct driven *d, const struct progress *p)
{
    int links = atomic_load(&p->links);
    bool gone = atomic_load(&p->gone), moved = atomic_load(&p->moved);
    /* A call is running as soon as the one before it was answered. */
    bool removing = atomic_load(&p->second), moving = gone;

    if (links == 0)
        return;
    for (int i = 0; i <= NAMES; i++) {
        bool made = i <= links, may = i <= links + 1;
        if (i == 1)
            check_name(d, p, i, made && !removing, may && !gone);
        else if (i == 2)
            check_name(d, p, i, made && !moving, may && !moved);
        else if (i == NAMES)
            check_name(d, p, i, moved, moving);
        else
            check_name(d, p, i, made, may);
    }
}

/* Whether the child was killed; else it ended well. */
static bool was_killed(pid_t pid, const char *at)
{
    int status = 0;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: status %x", at,
                  status);
    return true;
}

static bool killed_at(struct driven *d, struct progress *p, const char *at)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        crash_arm(at);
        work(d, p);
    }
    return was_killed(pid, at);
}

static const char *const points[] = {
    "create-stamped", "link-made:3",        "link-made:50",   "upload-committed:1",
    "upload-keys:1",  "upload-stamped:1",   "upload-keys:30", "upload-stamped:30",
    "upload-keys:60", "upload-stamped:60",  "upload-keys:61", "upload-stamped:61",
    "upload-keys:90", "upload-stamped:100", "open-stamped:1", "close-stamped:2",
    "unlink-row",     "unlink-mirror",      "rename-row",     "rename-mirror",
    "never",
};

START_TEST(killed_with_many_names)
{
    struct progress *p =
        mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct driven d;

    ck_assert_ptr_ne(p, MAP_FAILED);
    driven_init_folder(&d, NULL, 1 << 20);
    bool killed = killed_at(&d, p, points[_i]);
#ifndef NDEBUG
    ck_assert(killed || strcmp(points[_i], "never") == 0);
#endif
    for (int round = 0; round < 3; round++) {
        if (round < 2)
            driven_mount(&d);
        else
            driven_mount_afresh(&d);
        check_names(&d, p);
        ck_assert_int_eq(driven_flush(&d), 0);
        check_names(&d, p);
        driven_unmount(&d);
    }
    (void)killed;
    driven_release(&d);
    (void)munmap(p, sizeof(*p));
}
END_TEST

static atomic_bool moves_nothing; /* the store */

static int64_t around_moves(struct layer *l, struct call *c)
{
    (void)l;
    return c->kind == CALL_RENAME && atomic_load(&moves_nothing)
               ? op_fail(c->op, -EIO, "rename %s: refused", c->key)
               : call_next(c);
}

/* `f/a` is in the store, still as `d/a`, and gets a second name there. */
static _Noreturn void link_to_its_place(struct driven *d)
{
    driven_mount(d);
    atomic_store(&moves_nothing, true);
    crash_arm("link-made");
    if (driven_rename(d, "d", "f") != 0 || driven_mkdir(d, "d") != 0 ||
        driven_link(d, "f/a", "d/a") != 0)
        _exit(1);
    _exit(0);
}

/* What the store has there is of the first name. */
START_TEST(killed_with_a_name_at_the_place_of_the_other)
{
    struct driven d;
    struct stat st;

    driven_init_folder(&d, around_moves, 1 << 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/a", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        link_to_its_place(&d);
    (void)was_killed(pid, "link-made");
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    atomic_store(&moves_nothing, true);
    driven_mount(&d);
    (void)driven_stat(&d, "d/a", &st); /* from now on the store is not asked for it */
    atomic_store(&moves_nothing, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f/a", "1");
    driven_stores(&d, "d/a", driven_stat(&d, "d/a", &st) == 0 ? "1" : NULL);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_links");
    TCase *t = tcase_create("cache_links");

    tcase_set_timeout(t, 120);
    tcase_add_some_test(t, killed_with_many_names, 0, ARRAY_SIZE(points), SOME_POINTS);
    tcase_add_test(t, killed_with_a_name_at_the_place_of_the_other);
    suite_add_tcase(s, t);
    return suite_run(s);
}
