/* Locks that know who holds them. The owner is kept in every build: it is one relaxed store,
 * and a lock mistake found in production is found. The functions that take and give back are
 * not looked at by the thread-safety analysis: they are what it starts from. */
#include "common/lock.h"
#include "common/log.h"
#include "common/op.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* The log has a lock, too. */
static _Noreturn void lock_die(const char *what, int err)
{
    static atomic_flag dies = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&dies))
        log_error("runfs ends by a mistake of its own: %s (%d); the cache keeps what was not "
                  "uploaded, mount it again",
                  what, err);
    abort();
}

static unsigned long owner_of(struct mutex *m)
{
    return atomic_load_explicit(&m->owner, memory_order_relaxed);
}

static void set_owner(struct mutex *m, unsigned long owner)
{
    atomic_store_explicit(&m->owner, owner, memory_order_relaxed);
}

void mutex_init(struct mutex *m)
{
    int r = pthread_mutex_init(&m->m, NULL);

    if (r)
        lock_die("pthread_mutex_init", r);
    atomic_init(&m->owner, 0);
}

void mutex_destroy(struct mutex *m)
{
    int r;

    if (owner_of(m))
        lock_die("a mutex is destroyed while it is held", 0);
    r = pthread_mutex_destroy(&m->m);
    if (r)
        lock_die("pthread_mutex_destroy", r);
}

NO_THREAD_SAFETY void mutex_lock(struct mutex *m)
{
    int r;

    if (owner_of(m) == (unsigned long)pthread_self())
        lock_die("a mutex is locked twice by one thread", 0);
    r = pthread_mutex_lock(&m->m);
    if (r)
        lock_die("pthread_mutex_lock", r);
    set_owner(m, (unsigned long)pthread_self());
}

NO_THREAD_SAFETY void mutex_unlock(struct mutex *m)
{
    int r;

    mutex_assert_held(m);
    set_owner(m, 0);
    r = pthread_mutex_unlock(&m->m);
    if (r)
        lock_die("pthread_mutex_unlock", r);
}

void mutex_wait(struct mutex *m, pthread_cond_t *cond)
{
    int r;

    mutex_assert_held(m);
    set_owner(m, 0);
    r = pthread_cond_wait(cond, &m->m);
    if (r)
        lock_die("pthread_cond_wait", r);
    set_owner(m, (unsigned long)pthread_self());
}

bool mutex_wait_until(struct mutex *m, pthread_cond_t *cond, long long until_ns)
{
    struct timespec ts;
    int r;

    if (until_ns >= OP_FOREVER) {
        mutex_wait(m, cond);
        return true;
    }
    mutex_assert_held(m);
    if (until_ns < 0)
        until_ns = 0;
    ts = (struct timespec){.tv_sec = until_ns / NS_PER_SEC, .tv_nsec = until_ns % NS_PER_SEC};
    set_owner(m, 0);
    r = pthread_cond_timedwait(cond, &m->m, &ts);
    if (r && r != ETIMEDOUT)
        lock_die("pthread_cond_timedwait", r);
    set_owner(m, (unsigned long)pthread_self());
    return r == 0;
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int r;

    r = pthread_condattr_init(&attr);
    if (!r)
        r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!r)
        r = pthread_cond_init(cond, &attr);
    if (r)
        lock_die("pthread_cond_init", r);
    (void)pthread_condattr_destroy(&attr);
}

void mutex_assert_held(struct mutex *m)
{
    if (owner_of(m) != (unsigned long)pthread_self())
        lock_die("a mutex is not held by the thread that needs it", 0);
}

/* ---- readers and a writer ---- */

/* The one under which this thread reads. */
static _Thread_local const struct rwlock *reading;

static bool writes(struct rwlock *l)
{
    return atomic_load_explicit(&l->writer, memory_order_relaxed) ==
           (unsigned long)pthread_self();
}

void rwlock_init(struct rwlock *l)
{
    pthread_rwlockattr_t attr;
    int r;

    r = pthread_rwlockattr_init(&attr);
    if (!r)
        r = pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    if (!r)
        r = pthread_rwlock_init(&l->l, &attr);
    if (r)
        lock_die("pthread_rwlock_init", r);
    (void)pthread_rwlockattr_destroy(&attr);
    atomic_init(&l->writer, 0);
}

void rwlock_destroy(struct rwlock *l)
{
    int r;

    r = pthread_rwlock_destroy(&l->l);
    if (r)
        lock_die("pthread_rwlock_destroy", r);
}

NO_THREAD_SAFETY void rwlock_read(struct rwlock *l)
{
    int r;

    if (reading || writes(l))
        lock_die("a rwlock is locked twice by one thread", 0);
    r = pthread_rwlock_rdlock(&l->l);
    if (r)
        lock_die("pthread_rwlock_rdlock", r);
    reading = l;
}

NO_THREAD_SAFETY void rwlock_write(struct rwlock *l)
{
    int r;

    if (reading == l || writes(l))
        lock_die("a rwlock is locked twice by one thread", 0);
    r = pthread_rwlock_wrlock(&l->l);
    if (r)
        lock_die("pthread_rwlock_wrlock", r);
    atomic_store_explicit(&l->writer, (unsigned long)pthread_self(), memory_order_relaxed);
}

NO_THREAD_SAFETY void rwlock_unlock(struct rwlock *l)
{
    int r;

    rwlock_assert_held(l);
    if (reading == l)
        reading = NULL;
    else
        atomic_store_explicit(&l->writer, 0, memory_order_relaxed);
    r = pthread_rwlock_unlock(&l->l);
    if (r)
        lock_die("pthread_rwlock_unlock", r);
}

void rwlock_assert_held(struct rwlock *l)
{
    if (reading != l && !writes(l))
        lock_die("a rwlock is not held by the thread that needs it", 0);
}

void rwlock_assert_held_for_writing(struct rwlock *l)
{
    if (!writes(l))
        lock_die("a rwlock is not held for writing by the thread that needs it", 0);
}
