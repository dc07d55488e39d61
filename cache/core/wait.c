/* Parked requests and their waking: a waiter sits in one queue until something happens, moves
 * to the wake list under the lock, and is woken by a thread that holds none. Also the functions
 * that take the locks, and the beginning of each request to the store. */
#include "cache/core/core.h"

#include "cache/types/range.h"
#include "common/lock.h"

#include <errno.h>

/* Files that are closed one after the other come due one after the other: one pass looks at all
 * that come due within this time. */
#define PASS_NS (4 * NS_PER_MS)

/* A pass for attempts that failed comes so many times later as the last one took, and no later
 * than this. */
#define LATE_SHARE   16
#define LATE_MOST_NS (200 * NS_PER_MS)

/* The lock gets its name here, so clang does not check these three. */
NO_THREAD_SAFETY void ns_read(struct cache *c)
{
    rwlock_read(&c->ns);
}

NO_THREAD_SAFETY void ns_write(struct cache *c)
{
    rwlock_write(&c->ns);
}

NO_THREAD_SAFETY void ns_done(struct cache *c)
{
    rwlock_unlock(&c->ns);
}

void ns_assert_held(struct cache *c)
{
    rwlock_assert_held(&c->ns);
}

void ns_assert_written(struct cache *c)
{
    rwlock_assert_held_for_writing(&c->ns);
}

void cache_op_within(struct cache *c, struct op *op, int64_t timeout_ns)
{
    op_init(op, timeout_ns);
    op->cancelled = &c->cancelled;
}

void cache_op(struct cache *c, struct op *op)
{
    cache_op_within(c, op, c->config.store_timeout_ns);
}

void waitq_init(struct waitq *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

int waitq_park_locked(struct cache *c, struct waitq *q, struct waiter *w)
{
    cache_assert_locked(c);
    if (c->stopping)
        return -EINTR;
    w->next = NULL;
    w->queue = q;
    w->off = w->end = 0;
    *q->tail = w;
    q->tail = &w->next;
    return CACHE_PARKED;
}

void waitq_wake_locked(struct cache *c, struct waitq *q, int err)
{
    cache_assert_locked(c);
    if (!q->head)
        return;
    for (struct waiter *w = q->head; w; w = w->next) {
        w->queue = NULL;
        w->err = err;
    }
    *c->wake_tail = q->head;
    c->wake_tail = q->tail;
    waitq_init(q);
    (void)pthread_cond_broadcast(&c->wake);
}

void waitq_wake_arrived_locked(struct cache *c, struct waitq *q, const struct ranges *present)
{
    struct waitq arrived;

    cache_assert_locked(c);
    waitq_init(&arrived);
    for (struct waiter **at = &q->head; *at;) {
        struct waiter *w = *at;
        if (w->end && !ranges_has(present, w->off, w->end)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        if (q->tail == &w->next)
            q->tail = at;
        w->next = NULL;
        *arrived.tail = w;
        arrived.tail = &w->next;
    }
    waitq_wake_locked(c, &arrived, 0);
}

bool cache_cancel(struct cache *c, struct waiter *w)
{
    bool found = false;

    cache_lock(c);
    struct waitq *q = w->queue;
    if (q) {
        struct waiter **at = &q->head;
        while (*at && *at != w)
            at = &(*at)->next;
        found = *at == w;
        if (found) {
            *at = w->next;
            if (q->tail == &w->next)
                q->tail = at;
            w->queue = NULL;
        }
    }
    cache_unlock(c);
    return found;
}

static void *waker_main(void *arg)
{
    struct cache *c = arg;

    cache_lock(c);
    for (;;) {
        struct waiter *w = c->wake_list;
        if (!w) {
            if (c->stopping && c->n_wakers == 0)
                break;
            cache_wait(c, &c->wake);
            continue;
        }
        c->wake_list = w->next;
        if (!c->wake_list)
            c->wake_tail = &c->wake_list;
        int err = w->err;
        cache_unlock(c);
        w->wake(w, err);
        cache_lock(c);
    }
    cache_unlock(c);
    return NULL;
}

int wait_start(struct cache *c)
{
    for (; c->n_wakers < WAKERS; c->n_wakers++) {
        int r = pthread_create(&c->wakers[c->n_wakers], NULL, waker_main, c);
        if (r)
            return -r;
    }
    return 0;
}

void wait_stop(struct cache *c)
{
    cache_lock(c);
    unsigned n = c->n_wakers;
    c->n_wakers = 0;
    (void)pthread_cond_broadcast(&c->wake);
    cache_unlock(c);
    while (n > 0)
        (void)pthread_join(c->wakers[--n], NULL);
}

static void pass_by_locked(struct cache *c, int64_t at_ns) REQUIRES(cache_mutex)
{
    if (c->pass_ns <= at_ns)
        return; /* it is awake by then: waking a thread costs more than most of its passes */
    c->pass_ns = at_ns;
    (void)pthread_cond_signal(&c->kick);
}

void scheduler_kick_locked(struct cache *c)
{
    cache_assert_locked(c);
    pass_by_locked(c, 0);
}

void scheduler_kick_at_locked(struct cache *c, int64_t due_ns)
{
    cache_assert_locked(c);
    pass_by_locked(c, (due_ns / PASS_NS + 1) * PASS_NS);
}

void scheduler_kick_late_locked(struct cache *c)
{
    int64_t took_ns = c->pass_took_ns;
    int64_t late_ns = took_ns < LATE_MOST_NS / LATE_SHARE ? took_ns * LATE_SHARE : LATE_MOST_NS;

    cache_assert_locked(c);
    scheduler_kick_at_locked(c, clock_mono_ns() + (late_ns > PASS_NS ? late_ns : PASS_NS));
}

void progress_tell_locked(struct cache *c)
{
    cache_assert_locked(c);
    (void)pthread_cond_broadcast(&c->progress);
    waitq_wake_locked(c, &c->flush_waiters, 0);
    waitq_wake_locked(c, &c->space_waiters, 0);
}

void progress_locked(struct cache *c)
{
    cache_assert_locked(c);
    progress_tell_locked(c);
    scheduler_kick_locked(c);
}

void progress_failed_locked(struct cache *c)
{
    cache_assert_locked(c);
    progress_tell_locked(c);
    scheduler_kick_late_locked(c);
}
