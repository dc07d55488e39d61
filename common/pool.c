/* A pool of worker threads with one queue, first in first out. */
#include "common/pool.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* A leaf: nothing is called under it. */
extern struct lock_class pool_mutex;

struct pool {
    /* Constant. */
    char name[16];
    unsigned max; /* threads */
    bool grows;   /* has only as many as it needed so far */
    pthread_t *thread;

    struct mutex lock;
    pthread_cond_t work;
    pthread_cond_t idle;
    struct task *first GUARDED_BY(pool_mutex), *last GUARDED_BY(pool_mutex);
    size_t waiting GUARDED_BY(pool_mutex);
    unsigned n_threads GUARDED_BY(pool_mutex);
    bool batch GUARDED_BY(pool_mutex);
    unsigned running GUARDED_BY(pool_mutex);
    bool ending GUARDED_BY(pool_mutex); /* workers leave when the queue is empty */
};

MUTEX_KIND(pool, struct pool, lock);

static struct task *pool_pop_locked(struct pool *p) REQUIRES(pool_mutex)
{
    struct task *t = p->first;

    pool_assert_locked(p);
    if (!t)
        return NULL;
    p->first = t->next;
    if (!p->first)
        p->last = NULL;
    p->waiting--;
    p->running++;
    return t;
}

static void be_batch(pthread_t thread)
{
    const struct sched_param none = {0};

    (void)pthread_setschedparam(thread, SCHED_BATCH, &none);
}

static void *pool_worker(void *arg)
{
    struct pool *p = arg;

    (void)pthread_setname_np(pthread_self(), p->name);
    pool_lock(p);
    if (p->batch)
        be_batch(pthread_self());
    for (;;) {
        struct task *t = pool_pop_locked(p);
        if (!t && p->ending)
            break;
        if (!t) {
            pool_wait(p, &p->work);
            continue;
        }
        pool_unlock(p);
        t->run(t);
        pool_lock(p);
        p->running--;
        if (!p->first && !p->running)
            pthread_cond_broadcast(&p->idle);
    }
    pool_unlock(p);
    return NULL;
}

/* Signals are for the main thread: workers inherit a full mask. */
static int pool_start_locked(struct pool *p, unsigned threads) REQUIRES(pool_mutex)
{
    sigset_t all, old;
    int r = 0;

    pool_assert_locked(p);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    while (!r && p->n_threads < threads) {
        r = pthread_create(&p->thread[p->n_threads], NULL, pool_worker, p);
        if (!r)
            p->n_threads++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

/* `threads` of them at once. */
static struct pool *pool_make(const char *name, unsigned max, unsigned threads)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;

    assert(threads >= 1);
    mutex_init(&p->lock);
    cond_init(&p->work);
    cond_init(&p->idle);
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    p->max = max;
    p->grows = threads < max;
    p->thread = calloc(max, sizeof(*p->thread));
    pool_lock(p);
    bool started = p->thread && pool_start_locked(p, threads) == 0;
    pool_unlock(p);
    if (!started) {
        pool_free(p);
        return NULL;
    }
    return p;
}

struct pool *pool_new(const char *name, unsigned threads)
{
    return pool_make(name, threads, threads);
}

struct pool *pool_new_growing(const char *name, unsigned max)
{
    return pool_make(name, max, 1);
}

void pool_set_batch(struct pool *p)
{
    pool_lock(p);
    p->batch = true;
    for (unsigned i = 0; i < p->n_threads; i++)
        be_batch(p->thread[i]);
    pool_unlock(p);
}

/* A worker for what waits and finds none free. Without one more it waits for those that are
 * there. */
static void pool_grow_locked(struct pool *p) REQUIRES(pool_mutex)
{
    pool_assert_locked(p);
    if (p->grows && !p->ending && p->n_threads < p->max &&
        p->waiting > p->n_threads - p->running)
        (void)pool_start_locked(p, p->n_threads + 1);
}

static void pool_push_locked(struct pool *p, struct task *task) REQUIRES(pool_mutex)
{
    pool_assert_locked(p);
    task->next = NULL;
    if (p->last)
        p->last->next = task;
    else
        p->first = task;
    p->last = task;
    p->waiting++;
}

void pool_submit(struct pool *p, struct task *task)
{
    pool_lock(p);
    pool_push_locked(p, task);
    pool_grow_locked(p);
    pool_unlock(p);
    /* Not under the lock, which the woken would find taken. */
    pthread_cond_signal(&p->work);
}

void pool_submit_own(struct pool *p, struct task *task)
{
    pool_lock(p);
    pool_push_locked(p, task);
    pool_unlock(p);
}

void pool_submit_first(struct pool *p, struct task *task)
{
    pool_lock(p);
    task->next = p->first;
    p->first = task;
    if (!p->last)
        p->last = task;
    p->waiting++;
    pool_grow_locked(p);
    pool_unlock(p);
    pthread_cond_signal(&p->work);
}

size_t pool_waiting(struct pool *p)
{
    size_t n;

    pool_lock(p);
    n = p->waiting;
    pool_unlock(p);
    return n;
}

void pool_drain(struct pool *p)
{
    pool_lock(p);
    while (p->first || p->running)
        pool_wait(p, &p->idle);
    pool_unlock(p);
}

/* ---- calls that differ by a number ---- */

struct each_run {
    struct pool *pool;
    struct each *each;
    const struct op *op;
    atomic_size_t next; /* call to be made */
    pthread_cond_t done;
    unsigned running GUARDED_BY(pool_mutex); /* workers that are to end yet */
    int err GUARDED_BY(pool_mutex);          /* the first failure; 0 without one */
    struct op failed GUARDED_BY(pool_mutex); /* its op */
};

struct each_task {
    struct task task;
    struct each_run *run;
};

static void each_failed(struct each_run *run, int err, const struct op *op)
{
    atomic_store(&run->next, run->each->n);
    pool_lock(run->pool);
    if (!run->err) {
        run->err = err;
        run->failed = *op;
    }
    pool_unlock(run->pool);
}

static void each_work(struct task *task)
{
    struct each_run *run = container_of(task, struct each_task, task)->run;
    struct each *each = run->each;
    struct pool *p = run->pool;

    for (size_t i; (i = atomic_fetch_add(&run->next, 1)) < each->n;) {
        struct op op;

        op_init(&op, each->patience_ns);
        op.cancelled = run->op->cancelled;
        op.lease_end_ns = run->op->lease_end_ns;
        int err = each->call(each, i, &op);
        if (err < 0)
            each_failed(run, err, &op);
    }
    pool_lock(p);
    /* Under the lock: the waiter's `run` is gone soon after. */
    if (--run->running == 0)
        pthread_cond_signal(&run->done);
    pool_unlock(p);
}

int pool_each(struct pool *p, struct each *each, struct op *op)
{
    unsigned n = each->at_once < EACH_AT_ONCE_MAX ? each->at_once : EACH_AT_ONCE_MAX;
    struct each_run run = {.pool = p, .each = each, .op = op};
    struct each_task tasks[EACH_AT_ONCE_MAX];
    int err;

    assert(n >= 1);
    if (n > each->n)
        n = (unsigned)each->n;
    cond_init(&run.done);
    for (unsigned i = 0; i < n; i++)
        tasks[i] = (struct each_task){.task.run = each_work, .run = &run};
    pool_lock(p);
    run.running = n;
    pool_unlock(p);
    for (unsigned i = 0; i < n; i++)
        pool_submit(p, &tasks[i].task);
    pool_lock(p);
    while (run.running)
        pool_wait(p, &run.done);
    err = run.err;
    op->retry_after_ns = run.failed.retry_after_ns;
    if (err)
        (void)op_fail(op, err, "%s", run.failed.why);
    pool_unlock(p);
    (void)pthread_cond_destroy(&run.done);
    return err;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pool_lock(p);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    unsigned threads = p->n_threads; /* and no other starts */
    pool_unlock(p);
    for (unsigned i = 0; i < threads; i++)
        (void)pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    mutex_destroy(&p->lock);
    free(p->thread);
    free(p);
}
