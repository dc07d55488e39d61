/* cache/ and common/log_queue.h: a log that can't be written, as on a disk that hangs, holds up
 * nobody who only wants a lock; and what was logged meanwhile comes in its order. */
#include "cache/cache.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a log that blocks: a pipe in place of stderr that nobody reads ---- */

static struct {
    int kept;    /* stderr as it was */
    int ends[2]; /* of the pipe */
    pthread_t reader;
    char *text; /* what came, after the filling */
    size_t size;
} blocked;

/* As a log line and its write fill a pipe: nothing more fits. */
static void fill(int fd)
{
    const char dots[PIPE_BUF] = "";
    int flags = fcntl(fd, F_GETFL);

    ck_assert_int_eq(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
    for (size_t len = sizeof(dots); len > 0; len /= 2)
        while (write(fd, dots, len) > 0)
            ;
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_eq(fcntl(fd, F_SETFL, flags), 0);
}

static void block_log(void)
{
    ck_assert_int_eq(pipe2(blocked.ends, O_CLOEXEC), 0);
    blocked.kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    ck_assert_int_ge(blocked.kept, 0);
    ck_assert_int_ge(dup2(blocked.ends[1], STDERR_FILENO), 0);
    (void)close(blocked.ends[1]);
    fill(STDERR_FILENO);
}

static void *read_all(void *arg)
{
    FILE *to = arg;
    char buf[4096];
    ssize_t n;

    while ((n = read(blocked.ends[0], buf, sizeof(buf))) > 0)
        for (ssize_t i = 0; i < n; i++)
            if (buf[i])
                (void)fputc(buf[i], to);
    (void)fclose(to);
    return NULL;
}

static void unblock_log(void)
{
    FILE *to = open_memstream(&blocked.text, &blocked.size);

    ck_assert_ptr_nonnull(to);
    ck_assert_int_eq(pthread_create(&blocked.reader, NULL, read_all, to), 0);
}

/* No more lines come. */
static void end_log(void)
{
    ck_assert_int_ge(dup2(blocked.kept, STDERR_FILENO), 0);
    (void)close(blocked.kept);
    ck_assert_int_eq(pthread_join(blocked.reader, NULL), 0);
    (void)close(blocked.ends[0]);
}

/* ---- the cache goes on ---- */

static struct driven d;

/* Removals fail; another node is quicker with "f"; and "g" can't be put. */
static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_REMOVE)
        return op_fail(c->op, -EIO, "remove: refused");
    if (c->kind == CALL_PUT && strcmp(c->key, "g") == 0)
        return op_fail(c->op, -EIO, "put g: refused");
    if (c->kind == CALL_PUT && strcmp(c->key, "f") == 0)
        driven_store(&d, "f", "theirs", 6);
    return call_next(c);
}

static bool is_kept(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.kept_files == 1;
}

static int find_failed_removal(void *arg, const struct cache_pending *p)
{
    *(bool *)arg |= strcmp(p->kind, "unlink") == 0 && p->error;
    return 0;
}

static bool removal_failed(void)
{
    bool found = false;

    (void)cache_each_pending(d.cache, find_failed_removal, &found);
    return found;
}

static unsigned lines_with(const char *what)
{
    unsigned n = 0;

    for (const char *at = blocked.text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

START_TEST(who_wants_a_lock_waits_for_no_line_of_the_log)
{
    struct stat st;

    driven_init(&d, around);
    d.config.settle_ns = 0;
    driven_mount(&d);
    driven_store(&d, "old", "old", 3);
    block_log();
    driven_put(&d, "f", "ours", 4); /* told under the namespace lock */
    DRIVEN_WAIT(is_kept());
    ck_assert_int_eq(driven_unlink(&d, "old"), 0); /* under the lock */
    DRIVEN_WAIT(removal_failed());
    driven_put(&d, "g", "ours", 4); /* under both */
    DRIVEN_WAIT(strcmp(driven_state(&d, "g"), "failed") == 0);
    ck_assert_int_eq(driven_rename(&d, "g", "h"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_stat(&d, "h", &st), 0);
    driven_shows(&d, "f", "theirs");
    unblock_log();
    driven_release(&d);
    end_log();
    ck_assert_uint_eq(lines_with("theirs stays"), 1);
    ck_assert_uint_ge(lines_with("delete failed"), 1);
    ck_assert_uint_ge(lines_with("upload failed"), 1);
    ck_assert(strstr(blocked.text, "theirs stays") < strstr(blocked.text, "delete failed"));
    free(blocked.text);
}
END_TEST

/* ---- the queue ---- */

#define LINES 400 /* more than it holds */

/* Each line has the next number, but for those that a line says are missing. */
static unsigned count_lines(unsigned *ret_left_out)
{
    char *rest = blocked.text, *line;
    unsigned next = 0, n = 0;

    *ret_left_out = 0;
    while ((line = strsep(&rest, "\n")) && *line) {
        unsigned left_out;
        const char *at = strstr(line, "warn ");
        ck_assert_ptr_nonnull(at);
        if (strstr(at, "left out")) {
            ck_assert_int_eq(sscanf(at, "warn %u", &left_out), 1);
            *ret_left_out += left_out;
            next += left_out;
            continue;
        }
        unsigned number = UINT32_MAX;
        ck_assert_int_eq(sscanf(at, "warn line %u", &number), 1);
        ck_assert_uint_eq(number, next);
        next++;
        n++;
    }
    return n;
}

START_TEST(lines_come_in_order_and_what_is_missing_is_told)
{
    struct log_queue q;
    struct pool *pool = pool_new("test-log", 2);
    unsigned left_out;

    ck_assert_ptr_nonnull(pool);
    log_queue_init(&q);
    log_queue_start(&q, pool);
    block_log();
    for (unsigned i = 0; i < LINES; i++) {
        errno = ENOENT;
        log_later(&q, LOG_LEVEL_WARN, "line %u", i);
        ck_assert_int_eq(errno, ENOENT);
    }
    unblock_log();
    pool_drain(pool);
    log_later(&q, LOG_LEVEL_WARN, "line %u", LINES);
    log_later(&q, LOG_LEVEL_DEBUG, "nobody wants it");
    pool_free(pool);
    log_queue_stop(&q);
    log_later(&q, LOG_LEVEL_WARN, "line %u", LINES + 1);
    end_log();
    unsigned n = count_lines(&left_out);
    ck_assert_uint_eq(n + left_out, LINES + 2);
    /* One can have been on its way when the others came. */
    ck_assert_uint_ge(n, LOG_QUEUE_MAX + 2);
    ck_assert_uint_le(n, LOG_QUEUE_MAX + 3);
    log_queue_release(&q);
    free(blocked.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_log");
    TCase *t = tcase_create("cache_log");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, who_wants_a_lock_waits_for_no_line_of_the_log);
    tcase_add_test(t, lines_come_in_order_and_what_is_missing_is_told);
    suite_add_tcase(s, t);
    return suite_run(s);
}
