/* cache/: what a mount that was killed, or a machine that went down, leaves of a partial file:
 * nothing of its content is owed, and what was answered besides stays. */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (4 << 20)

static struct driven d;
static atomic_bool refusing; /* the store takes no change */
static char *content;

static int64_t refuse(struct layer *l, struct call *c)
{
    bool asks = c->kind == CALL_STAT || c->kind == CALL_LIST || c->kind == CALL_READ;

    (void)l;
    if (!asks && atomic_load(&refusing))
        return op_fail(c->op, -EACCES, "%s: refused", c->key ? c->key : "a change");
    return call_next(c);
}

/* A store with `big` and `gone`, which outlives the process. */
static void with_big(void)
{
    content = calloc(1, SIZE);
    ck_assert_ptr_nonnull(content);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (char)(i % 251);
    driven_init_folder(&d, refuse, 1 << 20);
    d.config.settle_ns = 0;
    driven_store(&d, "big", content, SIZE);
    driven_store(&d, "gone", "one", 3);
    atomic_store(&refusing, true);
}

/* In a process of its own, which is killed at the end of it if not before. */
static void killed_in(void (*scene)(void))
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        scene();
        (void)raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The boot id is the first line of its file. */
static void another_boot(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(&d, name, &st), 0);
    return st.st_mode & 07777;
}

/* The mount shows the store's content, and nothing was set aside. */
static void big_is_whole(void)
{
    auto_free char *text = calloc(1, SIZE);
    struct cache_stats s;
    struct stat st;

    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 0);
    ck_assert_int_eq(driven_stat(&d, "big", &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);
    ck_assert_int_eq(driven_read(&d, "big", text, SIZE), SIZE);
    ck_assert_mem_eq(text, content, SIZE);
}

static void gone_is_gone(void)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(&d, "gone", &st), -ENOENT);
}

/* All that was answered comes to the store. */
static void ends_well(mode_t mode)
{
    big_is_whole();
    gone_is_gone();
    ck_assert_uint_eq(mode_of("big"), mode);
    atomic_store(&refusing, false);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_mount_afresh(&d);
    big_is_whole();
    gone_is_gone();
    ck_assert_uint_eq(mode_of("big"), mode);
    driven_release(&d);
    free(content);
}

/* ---- the machine goes down ---- */

static void read_some(void)
{
    char buf[16];

    ck_assert_int_eq(driven_read(&d, "big", buf, sizeof(buf)), sizeof(buf));
}

static void open_to_write(void)
{
    struct handle *h;

    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    read_some();
    ck_assert_int_eq(driven_open(&d, "big", O_RDWR, &h), 0);
}

static void set_mode_and_open(void)
{
    ck_assert_int_eq(driven_chmod(&d, "big", 0600), 0);
    open_to_write();
}

/* Who opens it to write may never write: it has holes, and a writer's mark. */
START_TEST(open_to_write_when_the_machine_goes_down)
{
    with_big();
    killed_in(_i ? set_mode_and_open : open_to_write);
    another_boot();
    driven_mount(&d);
    ends_well(_i ? 0600 : 0644);
}
END_TEST

#ifndef NDEBUG

/* ---- the daemon is killed ---- */

static const char *last;

static void die_there(const char *name)
{
    if (strcmp(name, last) == 0)
        (void)raise(SIGKILL);
}

static void set_mode(void)
{
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    ck_assert_int_eq(driven_chmod(&d, "big", 0600), 0);
    read_some();
    crash_watch(die_there);
}

static void set_mode_and_truncate(void)
{
    set_mode();
    (void)driven_truncate(&d, "big", 0);
    abort();
}

static void set_mode_and_make_anew(void)
{
    struct handle *h;

    set_mode();
    (void)driven_open(&d, "big", O_RDWR | O_TRUNC, &h);
    abort();
}

/* Only the mode was answered. */
START_TEST(killed_while_a_file_with_a_new_mode_is_emptied)
{
    last = _i & 4 ? "truncate-stamped" : "truncate-emptied";
    with_big();
    killed_in(_i & 1 ? set_mode_and_make_anew : set_mode_and_truncate);
    if (_i & 2)
        another_boot();
    driven_mount(&d);
    ends_well(0600);
}
END_TEST

#endif

int main(void)
{
    Suite *s = suite_create("cache_partial");
    TCase *t = tcase_create("cache_partial");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, open_to_write_when_the_machine_goes_down, 0, 2);
#ifndef NDEBUG
    tcase_add_loop_test(t, killed_while_a_file_with_a_new_mode_is_emptied, 0, 8);
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
