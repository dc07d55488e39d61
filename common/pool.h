/* A pool of worker threads with one queue, first in first out. */
#ifndef RUNFS_COMMON_POOL_H
#define RUNFS_COMMON_POOL_H

#include "common/op.h"

#include <stddef.h>

struct pool;

/* One unit of work, embedded in the caller's struct. `run` is called once by a worker, holding
 * no lock; it may free the task's memory and submit more. */
struct task {
    void (*run)(struct task *task);
    struct task *next; /* the pool's, while queued */
};

/* Starts `threads` (>= 1) workers, named `name` (15 characters at most). NULL without memory or
 * threads. All signals are blocked in the workers. */
struct pool *pool_new(const char *name, unsigned threads);
/* Like pool_new(), but one worker starts, and another up to `max` whenever a task finds none
 * free: for work that may need many threads and mostly needs few. */
struct pool *pool_new_growing(const char *name, unsigned max);
/* From now on a worker that has something to do waits until the turn of a running thread is
 * over, instead of preempting it; it gets as much of the processors as any other. For work that
 * nobody waits for. */
void pool_set_batch(struct pool *pool);
/* Any thread. The task stays the caller's memory and must live until run() began. */
void pool_submit(struct pool *pool, struct task *task);
/* For a worker of this very pool that is about to return from run(): no other is woken, the
 * worker itself goes on with what waits. */
void pool_submit_own(struct pool *pool, struct task *task);
/* Like pool_submit(), but ahead of what waits. */
void pool_submit_first(struct pool *pool, struct task *task);
/* Tasks that wait, not counting those that run. */
size_t pool_waiting(struct pool *pool);
/* Blocks until the queue is empty and every worker is idle. */
void pool_drain(struct pool *pool);

/* Calls that differ by a number only, such as those of the parts of one upload. Embedded in the
 * caller's struct. */
struct each {
    /* Any worker, with an op of this call alone. 0, or a negative errno with op->why. */
    int (*call)(struct each *each, size_t i, struct op *op);
    size_t n;            /* the calls are 0 to n - 1, and begin in this order */
    unsigned at_once;    /* >= 1; more than EACH_AT_ONCE_MAX count as so many */
    int64_t patience_ns; /* what each call has from its start */
};

#define EACH_AT_ONCE_MAX 64

/* Blocks until all calls were made. op->cancelled ends each of them, too. After a failure no
 * other call begins: the result is the first failure, and op->why its reason. Not for a worker
 * of this pool, which would wait for itself. */
int pool_each(struct pool *pool, struct each *each, struct op *op);
/* Runs what is queued, then ends the workers. Accepts NULL. */
void pool_free(struct pool *pool);

#endif
