/* Lines for the log from where locks are held. The log is a file on the cache's own disk: a
 * line that is written at once would hold up all who want the lock for as long as the disk
 * does. A worker of a pool writes them instead, one after the other, in their order. */
#ifndef RUNFS_COMMON_LOG_QUEUE_H
#define RUNFS_COMMON_LOG_QUEUE_H

#include "common/lock.h"
#include "common/log.h"
#include "common/pool.h"

#include <stdint.h>

/* How many lines wait at most. Of those that find no room, or no memory, a line says how many
 * they were. */
#define LOG_QUEUE_MAX 256

/* A leaf, below whatever the caller of log_later() holds. */
extern struct lock_class log_queue_mutex;

struct log_queue {
    struct mutex lock;
    struct pool *pool GUARDED_BY(log_queue_mutex); /* NULL: lines are written at once */
    struct queued_line *head GUARDED_BY(log_queue_mutex);
    struct queued_line **tail GUARDED_BY(log_queue_mutex);
    unsigned n GUARDED_BY(log_queue_mutex);
    uint64_t left_out GUARDED_BY(log_queue_mutex); /* since the last one that is queued */
    bool writing GUARDED_BY(log_queue_mutex);      /* a worker is to write, or writes */
    struct task task;                              /* the pool's while `writing` */
};

/* Lines are written at once: no other thread is there. */
void log_queue_init(struct log_queue *q);
/* From now on workers of the pool write them, before what waits there. */
void log_queue_start(struct log_queue *q, struct pool *pool);
/* The pool has run all it had, and is gone; may be called without a start. */
void log_queue_stop(struct log_queue *q);
void log_queue_release(struct log_queue *q);
/* As log_line(), with the time of the call. Any thread, whatever it holds. */
void log_later(struct log_queue *q, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
