/* A unit of which the machine lost a file when it went down: what the store was to get last,
 * the file that was closed last and a pointer beside, is kept with it. */
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
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool refusing; /* the store takes nothing */

static int64_t refuse(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && atomic_load(&refusing))
        return op_fail(c->op, -EACCES, "put %s: refused", c->key);
    return call_next(c);
}

static void begin(void)
{
    driven_init_folder(&d, refuse, 1 << 20);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_store(&d, "latest", "old", 3);
    driven_mount(&d);
    atomic_store(&refusing, true);
}

static void save(const char *path, bool synced)
{
    struct handle *h;

    ck_assert_int_eq(driven_open(&d, path, O_CREAT | O_TRUNC | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "text", 4, 0), 0);
    if (synced)
        ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

static void make_unit(void)
{
    ck_assert_int_eq(driven_mkdir(&d, "checkpoint-1"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "checkpoint-1/sub"), 0);
}

/* The boot id is the first line of its file. */
static void go_down(void)
{
    char path[128];

    driven_unmount(&d);
    (void)snprintf(path, sizeof(path), "%s/boot", d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
    atomic_store(&refusing, false);
}

static void come_back(unsigned kept)
{
    struct cache_stats s;

    driven_mount(&d);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, kept);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static bool is_kept(const char *path)
{
    struct stat st;
    char at[192];

    (void)snprintf(at, sizeof(at), "%s/kept/%s", d.dir, path);
    return stat(at, &st) == 0 && st.st_size == 4;
}

START_TEST(the_last_file_is_kept_with_a_lost_one)
{
    begin();
    make_unit();
    save("checkpoint-1/x", true);
    save("checkpoint-1/sub/y", false);
    save("checkpoint-1/z", true);
    go_down();
    come_back(2);
    driven_stores(&d, "checkpoint-1/x", "text");
    driven_stores(&d, "checkpoint-1/sub/y", NULL);
    driven_stores(&d, "checkpoint-1/z", NULL);
    ck_assert(is_kept("checkpoint-1/z"));
    driven_release(&d);
}
END_TEST

START_TEST(a_unit_that_lost_its_last_file_holds_nothing_back)
{
    begin();
    make_unit();
    save("checkpoint-1/x", true);
    save("checkpoint-1/sub/y", true);
    save("checkpoint-1/z", false);
    go_down();
    come_back(1);
    driven_stores(&d, "checkpoint-1/x", "text");
    driven_stores(&d, "checkpoint-1/sub/y", "text");
    driven_release(&d);
}
END_TEST

START_TEST(a_unit_that_was_synced_is_published)
{
    begin();
    make_unit();
    save("checkpoint-1/x", true);
    save("checkpoint-1/z", true);
    save("latest", true);
    go_down();
    come_back(0);
    driven_stores(&d, "checkpoint-1/z", "text");
    driven_stores(&d, "latest", "text");
    driven_release(&d);
}
END_TEST

/* Nobody resumes from a checkpoint that is not there. */
START_TEST(a_pointer_is_kept_with_a_lost_file)
{
    begin();
    make_unit();
    save("checkpoint-1/x", false);
    save("checkpoint-1/z", true);
    save("beside", true);
    save("latest", true);
    go_down();
    come_back(3);
    driven_stores(&d, "checkpoint-1/z", NULL);
    driven_stores(&d, "beside", "text");
    driven_stores(&d, "latest", "old");
    ck_assert(is_kept("latest"));
    driven_release(&d);
}
END_TEST

START_TEST(a_pointer_is_kept_with_a_lost_file_beside)
{
    begin();
    save("beside", false);
    save("latest", true);
    go_down();
    come_back(2);
    driven_stores(&d, "latest", "old");
    driven_release(&d);
}
END_TEST

START_TEST(a_pointer_of_before_goes)
{
    begin();
    make_unit();
    save("latest", true);
    save("checkpoint-1/x", false);
    go_down();
    come_back(1);
    driven_stores(&d, "latest", "text");
    driven_release(&d);
}
END_TEST

/* What is changed where the store has a version goes up file by file. */
START_TEST(an_edit_that_is_lost_holds_nothing_back)
{
    begin();
    atomic_store(&refusing, false);
    make_unit();
    save("checkpoint-1/x", false);
    save("checkpoint-1/z", false);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refusing, true);
    save("checkpoint-1/x", false);
    save("checkpoint-1/late", true);
    go_down();
    come_back(1);
    driven_stores(&d, "checkpoint-1/x", "text");
    driven_stores(&d, "checkpoint-1/late", "text");
    driven_release(&d);
}
END_TEST

static void die_there(const char *name)
{
    if (strcmp(name, "unit-held") == 0)
        (void)raise(SIGKILL);
}

/* The next mount can't tell any more why it was kept, and need not. */
START_TEST(a_kill_between_leaves_the_last_file_kept)
{
    int status;

    begin();
    make_unit();
    save("checkpoint-1/x", false);
    save("checkpoint-1/z", true);
    go_down();
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        crash_watch(die_there);
        driven_mount(&d);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert(is_kept("checkpoint-1/z") && !is_kept("checkpoint-1/x"));
    come_back(2);
    driven_stores(&d, "checkpoint-1/x", NULL);
    driven_stores(&d, "checkpoint-1/z", NULL);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_lost_units");
    TCase *t = tcase_create("cache_lost_units");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_last_file_is_kept_with_a_lost_one);
    tcase_add_test(t, a_unit_that_lost_its_last_file_holds_nothing_back);
    tcase_add_test(t, a_unit_that_was_synced_is_published);
    tcase_add_test(t, a_pointer_is_kept_with_a_lost_file);
    tcase_add_test(t, a_pointer_is_kept_with_a_lost_file_beside);
    tcase_add_test(t, a_pointer_of_before_goes);
    tcase_add_test(t, an_edit_that_is_lost_holds_nothing_back);
    tcase_add_test(t, a_kill_between_leaves_the_last_file_kept);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
