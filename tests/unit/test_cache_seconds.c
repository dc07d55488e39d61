/* cache/: a mirror on a filesystem that keeps times of whole seconds, as ext4 with inodes of
 * 128 bytes does. fstat() is ours, and tells no more of a time than that. */
#include "cache/cache.h"
#include "cache/mirror/stamp.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ODD_NS (1000 * NS_PER_SEC + 123456789)

static struct driven d;

int fstat(int fd, struct stat *st)
{
    long r = syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);

    if (r == 0)
        st->st_atim.tv_nsec = st->st_mtim.tv_nsec = st->st_ctim.tv_nsec = 0;
    return (int)r;
}

/* Changes come within one second: at its beginning, by the disk's clock as well. */
static void await_second(void)
{
    int64_t second_ns = (clock_real_ns() / NS_PER_SEC + 1) * NS_PER_SEC;

    while (clock_real_ns() < second_ns + 20 * NS_PER_MS)
        (void)usleep(1000);
}

static uint64_t uploads(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.uploaded_files;
}

/* As the kernel writes in passthrough; else the daemon does it. */
static void write_as_opened(struct handle *h, const char *text)
{
    size_t len = strlen(text);

    if (handle_passthrough(h))
        ck_assert_int_eq(pwrite(driven_fd(&d, h), text, len, 0), (ssize_t)len);
    else
        ck_assert_int_eq(driven_write(&d, h, text, len, 0), 0);
}

START_TEST(a_change_within_the_second_of_an_upload_is_seen)
{
    struct handle *h = NULL;

    driven_init(&d, NULL);
    d.config.passthrough = true;
    driven_mount(&d);
    await_second();
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(50000); /* more than the clock's own tick */
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    write_as_opened(h, "two");
    if (_i == 1) { /* uploaded while it is open */
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_stores(&d, "f", "two");
        write_as_opened(h, "six");
    }
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", _i == 1 ? "six" : "two");
    driven_release(&d);
}
END_TEST

/* The name that the store has it under owed nothing when it got another one; the second time
 * that is while it is open. */
START_TEST(a_change_within_the_second_reaches_an_older_name)
{
    struct handle *h = NULL;

    driven_init(&d, NULL);
    driven_mount(&d);
    await_second();
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(50000); /* more than the clock's own tick */
    if (_i == 1)
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    if (_i == 0)
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "two", 3, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", "two");
    driven_stores(&d, "f", "two");
    driven_release(&d);
}
END_TEST

/* The store knows the time better than the mirror can keep it. */
START_TEST(what_was_only_read_is_clean)
{
    const struct attrs a = {.has = ATTR_MTIME, .mtime_ns = ODD_NS};
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, NULL);
    driven_store_with(&d, "f", "data", 4, &a);
    driven_mount(&d);
    driven_shows(&d, "f", "data");
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_nsec, 123456789);
    driven_unmount(&d);
    driven_mount(&d);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(uploads(), 0);
    driven_release(&d);
}
END_TEST

START_TEST(a_new_time_is_no_change_of_content)
{
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", ODD_NS), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_nsec, 123456789);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    driven_mount(&d);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(uploads(), 0);
    driven_release(&d);
}
END_TEST

/* ---- a writer under an upload ---- */

static atomic_bool armed;
static struct handle *writer;

/* The upload of an open file has read half of it when all of it changes. */
ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
    if (len != 6 || !atomic_exchange(&armed, false))
        return syscall(SYS_pread64, fd, buf, len, off);
    ssize_t n = syscall(SYS_pread64, fd, buf, (size_t)3, off);
    ck_assert_int_eq(n, 3);
    write_as_opened(writer, "NEWNEW");
    n = syscall(SYS_pread64, fd, (char *)buf + 3, (size_t)3, off + 3);
    return n < 0 ? n : n + 3;
}

static atomic_bool torn;

static int64_t see_torn(struct layer *l, struct call *c)
{
    char text[6] = "";

    (void)l;
    if (c->kind == CALL_PUT && c->src->size == 6 && c->src->pread(c->src, text, 6, 0) == 6 &&
        memcmp(text, "oldold", 6) != 0 && memcmp(text, "NEWNEW", 6) != 0)
        atomic_store(&torn, true);
    return call_next(c);
}

START_TEST(a_flush_sends_nothing_torn_of_an_open_file)
{
    driven_init(&d, see_torn);
    d.config.passthrough = true;
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_CREAT | O_APPEND, &writer), 0);
    await_second();
    write_as_opened(writer, "oldold");
    atomic_store(&armed, true);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!atomic_load(&armed));
    ck_assert(!atomic_load(&torn));
    ck_assert_int_eq(driven_close(&d, writer), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "NEWNEW");
    driven_release(&d);
}
END_TEST

/* ---- what is synced ---- */

START_TEST(a_write_within_the_second_of_an_fsync_is_not_synced)
{
    struct stamp_attrs a;
    struct handle *h = NULL;

    driven_init(&d, NULL);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_CREAT, &h), 0);
    await_second();
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(stamp_read_attrs(driven_fd(&d, h), &a), 0);
    ck_assert(a.flags & STAMP_SYNCED);
    ck_assert_int_eq(driven_write(&d, h, "two", 3, 0), 0);
    ck_assert_int_eq(stamp_read_attrs(driven_fd(&d, h), &a), 0);
    ck_assert(!(a.flags & STAMP_SYNCED));
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(stamp_read_attrs(driven_fd(&d, h), &a), 0);
    ck_assert(a.flags & STAMP_SYNCED);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_seconds");
    TCase *t = tcase_create("cache_seconds");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_change_within_the_second_of_an_upload_is_seen, 0, 2);
    tcase_add_loop_test(t, a_change_within_the_second_reaches_an_older_name, 0, 2);
    tcase_add_test(t, what_was_only_read_is_clean);
    tcase_add_test(t, a_new_time_is_no_change_of_content);
    tcase_add_test(t, a_flush_sends_nothing_torn_of_an_open_file);
    tcase_add_test(t, a_write_within_the_second_of_an_fsync_is_not_synced);
    suite_add_tcase(s, t);
    return suite_run(s);
}
