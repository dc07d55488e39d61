/* Locks that know who holds them, in every build, and that clang's thread-safety analysis knows
 * (scripts/lint.sh locks). The order in which locks are taken is written once, beside what they
 * guard; for the cache's that is cache/core/locks.h. A lock that is named nowhere there is
 * a leaf: nothing else is taken under it.
 */
#ifndef RUNFS_COMMON_LOCK_H
#define RUNFS_COMMON_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__clang__)
/* The attributes stand behind the parameters of definitions, too: gcc never sees them. */
#pragma clang diagnostic ignored "-Wgcc-compat"
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif

/* Of types: its objects are locks. */
#define CAPABILITY(name) LOCK_ATTRIBUTE(capability(name))
/* Of functions: the caller holds the locks; for reading at least. */
#define REQUIRES(...)        LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) LOCK_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
/* Of functions: the caller holds none of the locks. */
#define EXCLUDES(...) LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/* The function takes them, or gives them back; RELEASE_GENERIC: either way they were taken. */
#define ACQUIRE(...)         LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...)  LOCK_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...)         LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...)  LOCK_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) LOCK_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
/* It aborts when the caller does not hold them: from the call on they count as held. */
#define ASSERT_CAPABILITY(...)        LOCK_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define ASSERT_SHARED_CAPABILITY(...) LOCK_ATTRIBUTE(assert_shared_capability(__VA_ARGS__))
/* What it returns is this lock. */
#define RETURN_CAPABILITY(x) LOCK_ATTRIBUTE(lock_returned(x))
/* It is not looked at; the reason stands beside it. */
#define NO_THREAD_SAFETY LOCK_ATTRIBUTE(no_thread_safety_analysis)
/* Of variables and fields: read under the lock, or written with it held (for writing). PT_:
 * what the pointer points to. In C a field can't name a lock beside it: that takes a
 * lock_class. Before an unnamed struct the mark holds for all fields in it; the compiler's
 * message names none then. */
#define GUARDED_BY(x)    LOCK_ATTRIBUTE(guarded_by(x))
#define PT_GUARDED_BY(x) LOCK_ATTRIBUTE(pt_guarded_by(x))

/* A name for all locks of one kind, of which a thread holds one at most. Such a name is only
 * declared, `extern struct lock_class cache_mutex;`: there is no object. Functions that take a
 * lock of the kind acquire the name. */
struct CAPABILITY("lock") lock_class {
    char no_object;
};

struct CAPABILITY("mutex") mutex {
    pthread_mutex_t m;
    atomic_ulong owner; /* pthread_self() of the holder, 0 when free */
};

void mutex_init(struct mutex *m);
void mutex_destroy(struct mutex *m);
void mutex_lock(struct mutex *m) ACQUIRE(m);
void mutex_unlock(struct mutex *m) RELEASE(m);
/* pthread_cond_wait() that keeps the owner right. */
void mutex_wait(struct mutex *m, pthread_cond_t *cond) REQUIRES(m);
/* The same until CLOCK_MONOTONIC `until_ns`; false when the time is over. The condition must
 * come from cond_init(). */
bool mutex_wait_until(struct mutex *m, pthread_cond_t *cond, long long until_ns) REQUIRES(m);
/* A condition that counts in CLOCK_MONOTONIC. */
void cond_init(pthread_cond_t *cond);
/* Aborts when the caller does not hold the mutex. */
void mutex_assert_held(struct mutex *m) ASSERT_CAPABILITY(m);

/* The mutex `member` of a `type` under the name KIND_mutex, a lock_class by which the fields
 * beside it are guarded: KIND_lock(), KIND_unlock(), KIND_wait(), KIND_wait_until() and
 * KIND_assert_locked(). The analysis is told here, and nowhere else, that both are one lock. */
#define MUTEX_KIND(kind, type, member)                                                         \
    MUTEX_FUNCTION(void) kind##_lock(__typeof__(type) *x) ACQUIRE(kind##_mutex)                \
    {                                                                                          \
        mutex_lock(&x->member);                                                                \
    }                                                                                          \
    MUTEX_FUNCTION(void) kind##_unlock(__typeof__(type) *x) RELEASE(kind##_mutex)              \
    {                                                                                          \
        mutex_unlock(&x->member);                                                              \
    }                                                                                          \
    MUTEX_FUNCTION(void)                                                                       \
    kind##_wait(__typeof__(type) *x, pthread_cond_t *cond) REQUIRES(kind##_mutex)              \
    {                                                                                          \
        mutex_wait(&x->member, cond);                                                          \
    }                                                                                          \
    MUTEX_FUNCTION(bool)                                                                       \
    kind##_wait_until(__typeof__(type) *x, pthread_cond_t *cond, long long until_ns)           \
        REQUIRES(kind##_mutex)                                                                 \
    {                                                                                          \
        return mutex_wait_until(&x->member, cond, until_ns);                                   \
    }                                                                                          \
    MUTEX_FUNCTION(void)                                                                       \
    kind##_assert_locked(__typeof__(type) *x) ASSERT_CAPABILITY(kind##_mutex)                  \
    {                                                                                          \
        mutex_assert_held(&x->member);                                                         \
    }                                                                                          \
    struct lock_class
#define MUTEX_FUNCTION(type) static inline __attribute__((unused)) NO_THREAD_SAFETY type

/* A lock of many readers or one writer; a writer that waits goes before further readers. A
 * thread reads under one of them at a time, and never twice. */
struct CAPABILITY("rwlock") rwlock {
    pthread_rwlock_t l;
    atomic_ulong writer; /* pthread_self() of who holds it for writing, 0 when nobody does */
};

void rwlock_init(struct rwlock *l);
void rwlock_destroy(struct rwlock *l);
void rwlock_read(struct rwlock *l) ACQUIRE_SHARED(l);
void rwlock_write(struct rwlock *l) ACQUIRE(l);
/* Aborts when the caller holds it neither way. */
void rwlock_unlock(struct rwlock *l) RELEASE_GENERIC(l);
/* Aborts when the caller does not hold it at all. */
void rwlock_assert_held(struct rwlock *l) ASSERT_SHARED_CAPABILITY(l);
/* Aborts when the caller does not hold it for writing. */
void rwlock_assert_held_for_writing(struct rwlock *l) ASSERT_CAPABILITY(l);

#endif
