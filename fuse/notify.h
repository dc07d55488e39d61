/* Telling the kernel that what it caches is no longer true. The calls may block in the kernel
 * (it can hold a directory's lock, or a page's, while it waits for an answer of ours), so a
 * queue with a thread of its own makes them. Nodes and entries have a queue each: a page lock
 * must not hold up a directory. */
#ifndef RUNFS_FUSE_NOTIFY_H
#define RUNFS_FUSE_NOTIFY_H

#include "common/lock.h"
#include "fuse/lowlevel.h"

struct notice;

/* A leaf: the kernel is told without it. */
extern struct lock_class notify_mutex;

struct notify_queue {
    struct fuse_session *session; /* constant from notify_start() on */
    pthread_t thread;             /* of the thread that starts and joins it */

    struct mutex lock;
    pthread_cond_t changed;
    struct notice *index GUARDED_BY(notify_mutex); /* what waits, to tell a thing once */
    struct notice *head GUARDED_BY(notify_mutex), **tail GUARDED_BY(notify_mutex);
    uint64_t waiting GUARDED_BY(notify_mutex);
    uint64_t sent GUARDED_BY(notify_mutex), lost GUARDED_BY(notify_mutex);
    bool running GUARDED_BY(notify_mutex); /* accepts; the thread exists */
    bool stopping GUARDED_BY(notify_mutex);
};

void notify_init(struct notify_queue *q);
void notify_destroy(struct notify_queue *q);
/* 0 or a negative errno. */
int notify_start(struct notify_queue *q, struct fuse_session *session, const char *thread_name);
/* Accepts no more, and drops what waits. The thread may still be in the kernel. */
void notify_close(struct notify_queue *q);
/* After the connection was aborted: waits for the thread. */
void notify_join(struct notify_queue *q);

/* Queues a notice: of the attributes and pages of `ino` when `name` is NULL, else of the entry
 * of that name in it. Never blocks. When too many wait the notice is dropped and counted: the
 * kernel's timeouts end what it believes. */
void notify_add(struct notify_queue *q, fuse_ino_t ino, const char *name);

/* Adds what was sent and dropped since the start. */
void notify_count(struct notify_queue *q, uint64_t *sent, uint64_t *lost);

#endif
