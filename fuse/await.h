/* The extended attribute user.runfs.wait: a read of it is answered when the store has the path.
 * Whoever may read the path may wait so. It is read and not set, since the kernel keeps a file
 * or a directory locked while an attribute of it is set.
 *
 * Each wait has a thread of its own and takes no FUSE worker. Any signal that the caller
 * handles ends the wait with EINTR: nothing is lost with it. */
#ifndef RUNFS_FUSE_AWAIT_H
#define RUNFS_FUSE_AWAIT_H

#include "common/lock.h"
#include "fuse/lowlevel.h"

#include <stdbool.h>

struct fs;
struct awaiting;

#define AWAIT_XATTR "user.runfs.wait"

/* A leaf. */
extern struct lock_class await_mutex;

struct await_list {
    struct mutex lock;
    pthread_cond_t changed;
    struct awaiting *head GUARDED_BY(await_mutex);
    unsigned count GUARDED_BY(await_mutex);
    bool stopping GUARDED_BY(await_mutex);
};

void await_init(struct await_list *list);
void await_destroy(struct await_list *list);
unsigned await_count(struct await_list *list);
/* Answers with the value once the store has the path. EAGAIN when too many wait, of this user
 * or of all; otherwise as cache_await(). */
void await_start(struct fs *fs, fuse_req_t req, fuse_ino_t ino, size_t size);
/* Ends all with EINTR, and waits for their threads. No new one may come meanwhile. */
void await_stop(struct await_list *list);

#endif
