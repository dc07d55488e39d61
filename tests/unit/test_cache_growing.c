/* cache/: an open file that somebody writes while it goes up. What it was when it was looked at
 * goes up when it only grew; what was written anew below never goes up mixed. pread() is ours,
 * so that a write can come while a small file is copied, and so are fsync() and fstat(), so
 * that one comes while it is looked at. */
#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PART  (UINT64_C(1) << 20)
#define LARGE (18 * PART) /* more than is copied into memory */
#define SMALL (5 * PART)
#define LINE  "a line of the log\n"

enum meddling { NO_MEDDLING, GROW, REWRITE };

static struct {
    struct driven driven;
    struct handle *handle;
    bool passthrough;
    atomic_int how;      /* enum meddling */
    atomic_int rewrites; /* how many are left */
    atomic_uint parts, commits;
    uint64_t size;                        /* of the file */
    atomic_bool looked_at, flushed_again; /* what follows is to happen, once */
    int fd;                               /* of the file, past the daemon */
    pthread_t flusher;
    ssize_t *seen; /* by it */
} the;
static _Thread_local bool just_synced;

/* As the program would: through the daemon, or past it. */
static void write_at(const void *data, size_t len, uint64_t off)
{
    if (the.passthrough)
        ck_assert_int_eq(pwrite(driven_fd(&the.driven, the.handle), data, len, (off_t)off),
                         (ssize_t)len);
    else
        ck_assert_int_eq(driven_write(&the.driven, the.handle, data, len, off), 0);
    if (the.size < off + len)
        the.size = off + len;
}

static void meddle(void)
{
    static int how_often = 1 << 20;
    int how = atomic_load(&the.how);

    how_often++;
    if (how == GROW)
        write_at(LINE, sizeof(LINE) - 1, the.size);
    else if (how == REWRITE && atomic_fetch_sub(&the.rewrites, 1) > 0)
        write_at(&how_often, sizeof(how_often), 0);
}

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
    ssize_t n = syscall(SYS_pread64, fd, buf, len, off);

    if (n == (ssize_t)SMALL && the.size >= SMALL)
        meddle();
    return n;
}

int fsync(int fd)
{
    just_synced = true;
    return (int)syscall(SYS_fsync, fd);
}

/* An upload of an open file syncs it, and looks at it. */
int fstat(int fd, struct stat *ret)
{
    int r = (int)syscall(SYS_newfstatat, fd, "", ret, AT_EMPTY_PATH);

    if (just_synced && S_ISREG(ret->st_mode) && atomic_exchange(&the.looked_at, false)) {
        ck_assert_int_eq(pwrite(the.fd, LINE, sizeof(LINE) - 1, (off_t)the.size),
                         sizeof(LINE) - 1);
        the.size += sizeof(LINE) - 1;
    }
    just_synced = false;
    return r;
}

/* How much of the file the store has when it returns with 0; else -1. */
static void *flush_again(void *arg)
{
    auto_free char *stored = malloc(LARGE);
    int r = driven_flush(&the.driven);

    *(ssize_t *)arg = r == 0 ? driven_stored(&the.driven, "x.log", stored, LARGE) : -1;
    return NULL;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && atomic_exchange(&the.flushed_again, false)) {
        (void)pthread_create(&the.flusher, NULL, flush_again, the.seen);
        (void)usleep(300000); /* it has begun by then; if not yet, the test proves less */
    }
    if (c->kind == CALL_PART && atomic_fetch_add(&the.parts, 1) % (LARGE / PART) == 2)
        meddle();
    if (c->kind == CALL_COMMIT || c->kind == CALL_PUT)
        atomic_fetch_add(&the.commits, 1);
    return call_next(c);
}

/* A file of `size` bytes that stays open. */
static void begin(uint64_t size, bool passthrough, enum durability durability)
{
    auto_free char *data = malloc(size);

    atomic_store(&the.how, NO_MEDDLING);
    atomic_store(&the.parts, 0);
    atomic_store(&the.commits, 0);
    the.size = 0;
    the.passthrough = passthrough;
    driven_init(&the.driven, around);
    the.driven.config.durability = durability;
    the.driven.config.passthrough = passthrough;
    the.driven.config.part_size = PART;
    the.driven.config.upload_jobs = 1;
    driven_mount(&the.driven);
    ck_assert_int_eq(driven_open(&the.driven, "f", O_RDWR | O_CREAT | O_APPEND, &the.handle),
                     0);
    ck_assert(handle_passthrough(the.handle) == passthrough);
    for (uint64_t i = 0; i < size; i++)
        data[i] = (char)(i / PART + i);
    write_at(data, size, 0);
}

static void end(void)
{
    driven_release(&the.driven);
}

/* The store has the first `least` bytes of the file, or more of them. */
static void check_stores_prefix(uint64_t least)
{
    auto_free char *stored = malloc(the.size + 1), *ours = malloc(the.size + 1);
    ssize_t n = driven_stored(&the.driven, "f", stored, the.size + 1);

    ck_assert_int_ge(n, (ssize_t)least);
    ck_assert_int_eq(
        syscall(SYS_pread64, driven_fd(&the.driven, the.handle), ours, (size_t)n, 0), n);
    ck_assert_int_eq(memcmp(stored, ours, (size_t)n), 0);
}

static void close_file(void)
{
    atomic_store(&the.how, NO_MEDDLING);
    ck_assert_int_eq(driven_close(&the.driven, the.handle), 0);
    ck_assert_int_eq(driven_flush(&the.driven), 0);
}

/* fsync() returns once what was written before it is in the store, though more comes. */
START_TEST(fsync_of_a_file_that_grows)
{
    uint64_t size = _i / 2 ? LARGE : SMALL;

    begin(size, _i % 2, DURABILITY_STORE);
    atomic_store(&the.how, GROW);
    ck_assert_int_eq(driven_fsync(&the.driven, the.handle), 0);
    ck_assert_uint_gt(the.size, size);
    check_stores_prefix(size);
    ck_assert_uint_eq(atomic_load(&the.commits), 1);
    ck_assert_uint_eq(atomic_load(&the.parts), _i / 2 ? LARGE / PART : 0);
    close_file();
    end();
}
END_TEST

/* So does a flush, as the mount's end makes it; what came since goes up with the close. */
START_TEST(flush_of_a_file_that_grows)
{
    begin(LARGE, _i, DURABILITY_CACHE);
    atomic_store(&the.how, GROW);
    ck_assert_int_eq(driven_flush(&the.driven), 0);
    check_stores_prefix(LARGE);
    ck_assert_str_eq(driven_state(&the.driven, "f"), "dirty");
    atomic_store(&the.how, NO_MEDDLING);
    ck_assert_int_eq(driven_close(&the.driven, the.handle), 0);
    ck_assert_int_eq(driven_flush(&the.driven), 0);
    ck_assert_int_eq(driven_open(&the.driven, "f", O_RDONLY, &the.handle), 0);
    check_stores_prefix(the.size);
    ck_assert_int_eq(driven_close(&the.driven, the.handle), 0);
    end();
}
END_TEST

/* What went up while it was open goes up no more with the close, nor for a new time: without
 * passthrough the daemon knows that nobody wrote in between. */
START_TEST(what_nobody_changed_since)
{
    begin(SMALL, false, DURABILITY_CACHE);
    ck_assert_int_eq(driven_flush(&the.driven), 0);
    if (_i)
        ck_assert_int_eq(driven_utimens(&the.driven, "f", 1000 * NS_PER_SEC), 0);
    close_file();
    ck_assert_uint_eq(atomic_load(&the.commits), 1);
    end();
}
END_TEST

/* What is written anew below, after those bytes were sent, is not mixed with the rest. */
START_TEST(a_rewrite_while_it_goes_up)
{
    begin(_i ? LARGE : SMALL, !_i, DURABILITY_STORE);
    atomic_store(&the.rewrites, 1);
    atomic_store(&the.how, REWRITE);
    ck_assert_int_eq(driven_fsync(&the.driven, the.handle), 0);
    check_stores_prefix(the.size);
    ck_assert_uint_eq(atomic_load(&the.commits), 1);
    close_file();
    end();
}
END_TEST

/* A file that is never the same for as long as it takes to send it is told, and not sent for
 * ever. */
START_TEST(a_file_that_is_rewritten_all_the_time)
{
    begin(LARGE, true, DURABILITY_STORE);
    atomic_store(&the.rewrites, 1000);
    atomic_store(&the.how, REWRITE);
    ck_assert_int_eq(driven_fsync(&the.driven, the.handle), -EBUSY);
    ck_assert_str_eq(driven_state(&the.driven, "f"), "failed");
    ck_assert_uint_eq(atomic_load(&the.commits), 0);
    ck_assert_uint_le(atomic_load(&the.parts), 4 * LARGE / PART);
    atomic_store(&the.how, NO_MEDDLING);
    ck_assert_int_eq(driven_fsync(&the.driven, the.handle), 0);
    check_stores_prefix(the.size);
    close_file();
    end();
}
END_TEST

/* Who asks for what was written just after an upload had looked waits for the next. */
START_TEST(a_write_just_after_the_look_is_not_taken_for_sent)
{
    ssize_t stored = 0;

    begin(SMALL, true, DURABILITY_CACHE);
    close_file();
    ck_assert_int_eq(driven_rename(&the.driven, "f", "x.log"), 0);
    ck_assert_int_eq(driven_open(&the.driven, "x.log", O_RDWR | O_TRUNC, &the.handle), 0);
    the.size = 0;
    write_at(LINE, sizeof(LINE) - 1, 0); /* half, but for a log */
    the.fd = driven_fd(&the.driven, the.handle);
    the.seen = &stored;
    atomic_store(&the.looked_at, true);
    atomic_store(&the.flushed_again, true);
    ck_assert_int_eq(driven_flush(&the.driven), 0);
    ck_assert(!atomic_load(&the.looked_at) && !atomic_load(&the.flushed_again));
    ck_assert_int_eq(pthread_join(the.flusher, NULL), 0);
    ck_assert_int_eq(stored, (ssize_t)the.size);
    ck_assert_int_eq(driven_close(&the.driven, the.handle), 0);
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_growing");
    TCase *t = tcase_create("cache_growing");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, fsync_of_a_file_that_grows, 0, 4);
    tcase_add_loop_test(t, flush_of_a_file_that_grows, 0, 2);
    tcase_add_loop_test(t, what_nobody_changed_since, 0, 2);
    tcase_add_loop_test(t, a_rewrite_while_it_goes_up, 0, 2);
    tcase_add_test(t, a_file_that_is_rewritten_all_the_time);
    tcase_add_test(t, a_write_just_after_the_look_is_not_taken_for_sent);
    suite_add_tcase(s, t);
    return suite_run(s);
}
