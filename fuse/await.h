/* The extended attribute user.runfs.wait, whose value comes when the store has the path: for
 * whoever may read it. Not one that is set: the kernel keeps the file, or the directory, locked
 * while it is set.
 *
 * Each waits in a thread of its own, and no worker for it. Any signal that the caller handles
 * ends it with EINTR: it takes nothing with it. */
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
/* Answers with the value once the store has it. EAGAIN when too many wait, of this user or of
 * all; else as cache_await(). */
void await_start(struct fs *fs, fuse_req_t req, fuse_ino_t ino, size_t size);
/* Ends all with EINTR, and waits for their threads. No new one may come meanwhile. */
void await_stop(struct await_list *list);

#endif
