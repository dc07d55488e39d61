/* What the files of content/ share. */
#ifndef RUNFS_CACHE_CONTENT_CONTENT_IMPL_H
#define RUNFS_CACHE_CONTENT_CONTENT_IMPL_H

#include "cache/content/content.h"

/* The descriptors on mirror files. Those of open files that nobody uses just now are a cache:
 * the one used least recently is closed when there are too many, and opened again by the next
 * who needs it. */
struct fd_cache {
    GUARDED_BY(cache_mutex) struct {
        unsigned limit; /* constant; the others are the daemon's own */
        unsigned open;  /* of all files; beyond the limit only while each is in use */
        unsigned kept;  /* of those: in use for as long as a program has the file open */
        struct mirror_fd *idle; /* least recently used first */
        uint64_t refused;       /* opens, as all were kept */
        bool full;              /* the log has told so */
    };
};

/* What the mirror files' part of a cache keeps for itself. */
struct contents_own {
    GUARDED_BY(cache_mutex) struct {
        uint64_t next_id; /* names in incoming/ and orphans/ */
        uint64_t mirror_files;
        struct fd_cache fds;
        size_t cap_stale_readers;
    };
};

/* ---- damage.c ---- */
/* Whether the kernel tells that pages of the file could not be written, which it does once.
 * Asked of a range far behind the end, so that nothing is waited for. */
bool fd_lost_pages(int fd);

/* ---- fds.c ---- */
/* How many users the file's two descriptors have at this moment. */
unsigned file_fd_users(const struct file *f) REQUIRES(cache_mutex);
/* Closes both, and removes the mirror file if it is an orphan, by a chore. */
void file_drop_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);

/* ---- file.c ---- */
/* Takes the lock under which the node's stamps are written. Several nodes share one lock:
 * nobody holds two. */
void stamp_lock(struct cache *c, const struct node *n) ACQUIRE(cache_stamp)
    EXCLUDES(cache_mutex);
/* Gives it back. */
void stamp_unlock(struct cache *c, const struct node *n) RELEASE(cache_stamp);

/* ---- stamps.c ---- */
/* The one of the cache's stamp locks that is the node's; it never changes. */
struct mutex *stamp_lock_of(struct cache *c, const struct node *n);

#endif
