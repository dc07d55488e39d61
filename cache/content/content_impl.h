/* What the files of content/ share. */
#ifndef RUNFS_CACHE_CONTENT_CONTENT_IMPL_H
#define RUNFS_CACHE_CONTENT_CONTENT_IMPL_H

#include "cache/content/content.h"

/* ---- damage.c ---- */
/* Whether the kernel tells that pages of the file could not be written, which it does once.
 * Asked of a range far behind the end, so that nothing is waited for. */
bool fd_lost_pages(int fd);

/* ---- fds.c ---- */
unsigned file_fd_users(const struct file *f) REQUIRES(cache_mutex);
/* Closes both, and removes the mirror file if it is an orphan, by a chore. */
void file_drop_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);

/* ---- file.c ---- */
void stamp_lock(struct cache *c, const struct node *n) ACQUIRE(cache_stamp)
    EXCLUDES(cache_mutex);
void stamp_unlock(struct cache *c, const struct node *n) RELEASE(cache_stamp);

/* ---- look.c ---- */
int64_t stat_mtime_ns(const struct stat *st);

/* ---- stamps.c ---- */
struct mutex *stamp_lock_of(struct cache *c, const struct node *n);

#endif
