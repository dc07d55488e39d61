/* What the tests of deletion locks share: a cache over a store like S3, a tree in it, a process
 * that is another one, and locks. Include it once. */
#ifndef RUNFS_TESTS_LIB_LOCK_STORIES_H
#define RUNFS_TESTS_LIB_LOCK_STORIES_H

#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_uint removals, reads;
static atomic_bool slow; /* a removal takes its time */
static pid_t other;      /* a process that does nothing */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_READ)
        atomic_fetch_add(&reads, 1);
    if (c->kind == CALL_REMOVE) {
        atomic_fetch_add(&removals, 1);
        while (atomic_load(&slow))
            (void)usleep(1000);
    }
    return call_next(c);
}

static pid_t start_process(void)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    for (;;)
        (void)pause();
}

static void end_process(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void setup(void)
{
    atomic_store(&removals, 0);
    atomic_store(&reads, 0);
    atomic_store(&slow, false);
    other = start_process();
    driven_caller = getpid();
    driven_init_like_s3(&d, around);
    /* What is made is new, however long the machine takes. */
    d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
}

static void teardown(void)
{
    atomic_store(&slow, false);
    driven_release(&d);
    end_process(other);
}

static void put(const char *path, const char *text)
{
    driven_put(&d, path, text, strlen(text));
}

static void make_tree(void)
{
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/sub"), 0);
    put("d/a", "of a");
    put("d/sub/b", "of b");
    ck_assert_int_eq(driven_flush(&d), 0);
}

static inline void remove_tree(void)
{
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_int_eq(driven_unlink(&d, "d/sub/b"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "d/sub"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "d"), 0);
}

static int lock_for(const char *path, bool refuse, pid_t pid, int64_t wait_ns, struct op *op,
                    uint64_t *ret)
{
    op_init(op, wait_ns);
    return cache_deletion_lock(d.cache, path, refuse, pid, "a test", op, ret);
}

static uint64_t lock(const char *path, bool refuse, pid_t pid)
{
    struct op op;
    uint64_t id = 0;
    int r = lock_for(path, refuse, pid, 0, &op, &id);

    ck_assert_msg(r == 0, "%d %s", r, op.why);
    return id;
}

static void unlock(uint64_t id)
{
    cache_deletion_unlock(d.cache, id);
}

#endif
