/* Bounds the memory of requests that wait. A write that finds no room in the cache, or waits
 * for the rest of its file, is copied out of the request's buffer: the kernel has handed it
 * over, and can't take it back. All users together have one bound, and each user may take half
 * of what the others leave. */
#ifndef RUNFS_FUSE_KEPT_H
#define RUNFS_FUSE_KEPT_H

#include "common/lock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KEPT_MAX   (UINT64_C(512) << 20)
#define KEPT_USERS 64 /* users whose numbers are equal modulo this share one bound */

/* A leaf. */
extern struct lock_class kept_mutex;

struct kept {
    struct mutex lock;
    uint64_t bytes GUARDED_BY(kept_mutex), of[KEPT_USERS] GUARDED_BY(kept_mutex);
    bool logged GUARDED_BY(kept_mutex); /* the log says that the bound was reached */
};

void kept_init(struct kept *k);
void kept_destroy(struct kept *k);
/* Counts so many bytes more for the user; false when the bound does not allow them. `must`:
 * they are counted in any case. So it is with the pages of a mapping, which the kernel bounds
 * by itself and would lose. */
bool kept_take(struct kept *k, uid_t uid, uint64_t bytes, bool must);
void kept_give(struct kept *k, uid_t uid, uint64_t bytes);
uint64_t kept_bytes(struct kept *k);

#endif
