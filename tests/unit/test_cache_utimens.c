/* cache/: times that a user sets, which must neither hide a change of content nor make one. */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "cache/mirror/stamp.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OLD_NS (1000 * NS_PER_SEC)

static struct driven d;

/* ---- a call that comes in between ---- */

static struct {
    pthread_t thread;
    atomic_bool claimed, begun, done;
    int result;
    struct handle *handle;
} between;

static void *set_time(void *arg)
{
    (void)arg;
    between.result = driven_utimens(&d, "f", OLD_NS);
    atomic_store(&between.done, true);
    return NULL;
}

static void *open_to_write(void *arg)
{
    (void)arg;
    between.result = driven_open(&d, "f", O_RDWR, &between.handle);
    atomic_store(&between.done, true);
    return NULL;
}

/* Begins the call, once, and lets it come as far as it can: to its end, or to where it waits
 * for the caller. */
static void come_between(void *(*call)(void *))
{
    if (atomic_exchange(&between.claimed, true))
        return;
    ck_assert_int_eq(pthread_create(&between.thread, NULL, call, NULL), 0);
    atomic_store(&between.begun, true);
    for (int i = 0; i < 200 && !atomic_load(&between.done); i++)
        (void)usleep(1000);
}

static void setup(void)
{
    memset(&between, 0, sizeof(between));
}

static void join_between(void)
{
    DRIVEN_WAIT(atomic_load(&between.begun));
    ck_assert_int_eq(pthread_join(between.thread, NULL), 0);
    ck_assert_int_eq(between.result, 0);
}

#ifdef NDEBUG
#define STEPS_SEEN 0 /* the cache tells no steps */
#else
#define STEPS_SEEN 1
#endif

/* ---- times ---- */

/* As touch(1) does with a file of which nothing is here yet: it opens it for writing. */
START_TEST(a_new_time_of_a_partial_file_is_no_change_of_content)
{
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, NULL);
    driven_store(&d, "f", "data", 4);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", OLD_NS), 0);
    if (_i == 1)
        ck_assert_int_eq(driven_write(&d, h, "D", 1, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", _i == 1 ? "Data" : "data");
    driven_shows(&d, "f", _i == 1 ? "Data" : "data");
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    if (_i == 0)
        ck_assert_int_eq(st.st_mtim.tv_sec, OLD_NS / NS_PER_SEC);
    driven_release(&d);
}
END_TEST

static void at_completion(const char *name)
{
    if (strcmp(name, "complete-data") == 0)
        come_between(set_time);
}

static int64_t mirror_mtime_s(const char *name)
{
    char path[128];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d.dir, name);
    ck_assert_int_eq(stat(path, &st), 0);
    return st.st_mtim.tv_sec;
}

/* A download ends by giving the mirror file the time of its version. */
START_TEST(the_end_of_a_download_keeps_a_new_time)
{
    struct stat st;

    driven_init(&d, NULL);
    driven_store(&d, "f", "data", 4);
    driven_mount(&d);
    crash_watch(at_completion);
    driven_shows(&d, "f", "data");
    join_between();
    crash_watch(NULL);
    ck_assert_int_eq(mirror_mtime_s("f"), OLD_NS / NS_PER_SEC);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_sec, OLD_NS / NS_PER_SEC);
    driven_stores(&d, "f", "data");
    driven_release(&d);
}
END_TEST

/* ---- the mark of writers ---- */

static atomic_bool watching;

/* An upload that is over writes the stamp without the mark, and somebody opens the file. */
int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    struct stamp_attrs a;
    char text[STAMP_MAX + 1];

    if (strcmp(name, STAMP_ATTRS) == 0 && size <= STAMP_MAX && atomic_load(&watching)) {
        memcpy(text, value, size);
        text[size] = '\0';
        if (stamp_parse_attrs(text, &a) == 0 && !(a.flags & STAMP_WRITING))
            come_between(open_to_write);
    }
    return (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

START_TEST(an_open_is_not_answered_before_its_mark_is_written)
{
    struct stamp_attrs a;

    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "data", 4);
    atomic_store(&watching, true);
    ck_assert_int_eq(driven_flush(&d), 0);
    join_between();
    atomic_store(&watching, false);
    ck_assert_int_eq(stamp_read_attrs(driven_fd(&d, between.handle), &a), 0);
    ck_assert(a.flags & STAMP_WRITING);
    ck_assert_int_eq(driven_close(&d, between.handle), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_utimens");
    TCase *t = tcase_create("cache_utimens");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, a_new_time_of_a_partial_file_is_no_change_of_content, 0, 2);
    tcase_add_loop_test(t, the_end_of_a_download_keeps_a_new_time, 0, STEPS_SEEN);
    tcase_add_test(t, an_open_is_not_answered_before_its_mark_is_written);
    suite_add_tcase(s, t);
    return suite_run(s);
}
