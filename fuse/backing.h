/* Backing ids: what the kernel calls the mirror file of a passthrough inode. All passthrough
 * opens of an inode that live at the same time must name the same id, so it is counted here and
 * given back with the last of them. */
#ifndef RUNFS_FUSE_BACKING_H
#define RUNFS_FUSE_BACKING_H

#include "cache/cache.h"
#include "common/lock.h"
#include "fuse/lowlevel.h"

struct backing;

/* Guards what handle_backing_slot() points to, too. Above the cache's locks, and held while the
 * mirror file is opened and the kernel is told: two that open an inode at once must get one id.
 */
extern struct lock_class backings_mutex;

struct backings {
    struct mutex lock;
    /* slots[0] is not used: a node's slot 0 means none */
    struct backing *slots GUARDED_BY(backings_mutex) PT_GUARDED_BY(backings_mutex);
    size_t cap GUARDED_BY(backings_mutex); /* of slots */
    unsigned free_head GUARDED_BY(backings_mutex);
};

void backings_init(struct backings *b);
void backings_release(struct backings *b);

/* Whether the kernel takes backing files: registers `fd` and gives it back. 0 or its errno. */
int backing_probe(struct fuse_session *session, int fd);

/* Registers the handle's file with the kernel if `fresh`, or counts one more open of it.
 * *ret_slot is given back with backing_put(). 0, or an errno: the kernel's
 * (-EOPNOTSUPP without support in the library, and for one that would be the first unless
 * `fresh`), or of what was lacking here. */
int backing_get(struct backings *b, struct fuse_session *session, struct cache *cache,
                struct handle *h, bool fresh, unsigned *ret_slot, int *ret_id);
/* `session` may already be unmounted; before cache_release() of the handle. */
void backing_put(struct backings *b, struct fuse_session *session, struct handle *h,
                 unsigned slot);

#endif
