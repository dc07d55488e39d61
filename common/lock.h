/* Mutexes that know their owner (in debug builds) and carry clang's thread-safety annotations
 * on functions. Lock order, outermost first: namespace > tree > pool queue; see cache/node.h.
 */
#ifndef RUNFS_COMMON_LOCK_H
#define RUNFS_COMMON_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__clang__)
#define CAPABILITY(name) __attribute__((capability(name)))
#define REQUIRES(...)    __attribute__((requires_capability(__VA_ARGS__)))
#define ACQUIRE(...)     __attribute__((acquire_capability(__VA_ARGS__)))
#define RELEASE(...)     __attribute__((release_capability(__VA_ARGS__)))
#define EXCLUDES(...)    __attribute__((locks_excluded(__VA_ARGS__)))
#define NO_THREAD_SAFETY __attribute__((no_thread_safety_analysis))
#else
#define CAPABILITY(name)
#define REQUIRES(...)
#define ACQUIRE(...)
#define RELEASE(...)
#define EXCLUDES(...)
#define NO_THREAD_SAFETY
#endif

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
void mutex_assert_held(struct mutex *m);

#endif
