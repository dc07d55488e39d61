/* What every room of the cache knows: the cache itself, who waits and who is woken, what
 * failed. Its locks are in locks.h. */
#ifndef RUNFS_CACHE_CORE_CORE_H
#define RUNFS_CACHE_CORE_CORE_H

#include "backends/store.h"
#include "cache/cache.h"
#include "cache/core/locks.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/types/range.h"
#include "common/lock.h"
#include "common/log_queue.h"
#include "common/pool.h"

#include <stdatomic.h>

struct waitq {
    GUARDED_BY(cache_mutex) struct {
        struct waiter *head, **tail;
    };
};

/* The last failure of its kind, for the status. */
struct failure {
    GUARDED_BY(cache_mutex) struct {
        int err; /* negative errno; 0: there was none */
        char *text;
    };
};

#define WAKERS 4 /* threads that answer parked requests */

#define STAMP_LOCKS 16

struct cache {
    struct cache_config config; /* constant; strings are copies */
    struct store *store;
    struct mirror mirror;
    struct journal *journal;
    struct log_queue log; /* lines from under ns or lock; locked by itself, innermost */

    struct rwlock ns;
    struct mutex stamp_locks[STAMP_LOCKS]; /* before `lock`; at most one is held */
    struct mutex lock;
    pthread_cond_t progress; /* flush_waiters for threads that block */
    pthread_cond_t wake;
    pthread_t wakers[WAKERS];
    unsigned n_wakers;
    struct workers *fetchers, *askers; /* workers.h */
    struct pool *uploaders, *chores, *notifier;
    struct pool **parts;   /* of what goes to each store, by its number in the entries */
    pthread_cond_t kick;   /* the scheduler has something to look at before pass_ns */
    atomic_bool cancelled; /* ends every store call */

    /* The rooms' own parts; constant. Who includes no header of a room does not see into it. */
    struct tree *tree;
    struct contents *content;
    struct queue *queue;
    struct listings *listing;
    struct transfers *transfer;
    struct opened *ops;

    GUARDED_BY(cache_mutex) struct {
        struct waitq space_waiters;
        struct waitq flush_waiters; /* woken when anything reached the store */
        bool stopping;
        struct failure write_failure, read_failure;
        struct waiter *wake_list, **wake_tail; /* taken off their queues, to be woken */
        int64_t pass_ns; /* CLOCK_MONOTONIC; when the scheduler looks next, at the latest */
        int64_t pass_took_ns; /* how long it last looked */
    };
};

/* cache_lock(), cache_unlock(), cache_wait(), cache_wait_until(), cache_assert_locked(). */
MUTEX_KIND(cache, struct cache, lock);

/* ---- room.c ---- */
/* Locks, conditions and queues of a cache that is zeroed otherwise; before any other room's. */
void core_init(struct cache *c) EXCLUDES(cache_mutex);
/* The same, and the failures' words; after all others: no thread is there any more. */
void core_release(struct cache *c) EXCLUDES(cache_mutex);

/* ---- failure.c ---- */
/* Keeps `err` and a copy of `why` as the last failure of this kind. */
void failure_note_locked(struct cache *c, struct failure *f, int err, const char *why)
    REQUIRES(cache_mutex);
/* Logs that a question or a download failed, and keeps it for the status. A call that was ended
 * by a cancel is no failure. */
void read_failed(struct cache *c, const char *what, int err, const char *why)
    EXCLUDES(cache_mutex);
/* How long to wait after the n-th failure in a row, with jitter, in ns. */
int64_t retry_delay_ns(const struct cache *c, unsigned attempts);

/* ---- wait.c ---- */
/* Starts the wakers. 0 or a negative errno; wait_stop() ends those that started. */
int wait_start(struct cache *c);
/* The cache is stopping: ends the wakers once they have answered everybody. */
void wait_stop(struct cache *c) EXCLUDES(cache_mutex);
/* Makes an empty queue. */
void waitq_init(struct waitq *q) REQUIRES(cache_mutex);
/* Parks; always returns CACHE_PARKED, or -EINTR when the cache is stopping. */
int waitq_park_locked(struct cache *c, struct waitq *q, struct waiter *w) REQUIRES(cache_mutex);
/* Has everybody in the queue answered with `err`, by a waker that holds no lock. */
void waitq_wake_locked(struct cache *c, struct waitq *q, int err) REQUIRES(cache_mutex);
/* Wakes waiters whose bytes are all present, or that wait for anything. */
void waitq_wake_arrived_locked(struct cache *c, struct waitq *q, const struct ranges *present)
    REQUIRES(cache_mutex);
/* The scheduler looks at once. */
void scheduler_kick_locked(struct cache *c) REQUIRES(cache_mutex);
/* The scheduler looks when something is due at `due_ns`, or a few milliseconds later, together
 * with what else is due by then. */
void scheduler_kick_at_locked(struct cache *c, int64_t due_ns) REQUIRES(cache_mutex);
/* The scheduler looks a while later, the longer the longer a look takes: for an attempt that
 * failed. Where nothing comes to the store its failures have all that is owed looked at, which
 * is to take a small part of a processor however much it is. */
void scheduler_kick_late_locked(struct cache *c) REQUIRES(cache_mutex);
/* Begins a request to the store. It ends in time, or with the mount. */
void cache_op(struct cache *c, struct op *op);
/* cache_op() with another time than that of the store. */
void cache_op_within(struct cache *c, struct op *op, int64_t timeout_ns);
/* Tells a state change to the file's waiters, flushers and the scheduler. */
void progress_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same when an attempt has failed. */
void progress_failed_locked(struct cache *c) REQUIRES(cache_mutex);
/* progress_locked() without the scheduler. */
void progress_tell_locked(struct cache *c) REQUIRES(cache_mutex);

#endif
