/* Truncation: of what is here, and of what is not here yet. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"

#include <errno.h>

/* Without an open writer, now or at once, nobody else would queue what was truncated, also when
 * that could not be noted. Whether it is queued by this. */
static bool queue_truncated_locked(struct cache *c, struct node *n, int r) REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    bool owed = r == 0 || (r < 0 && f->state == FILE_DIRTY && !debt_is_queued(&f->debt));

    if (!owed || f->write_handles || f->beginners || !n->links)
        return false;
    file_queue_locked(c, n);
    return true;
}

/* The content is not made anew after all: the disk may say so already. */
static void not_begun(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    cache_lock(c);
    file_end_anew_locked(f);
    bool noted = !f->beginners && (f->noted & STAMP_BEGUN);
    cache_unlock(c);
    if (noted)
        (void)node_save_stamp(c, n);
}

int file_truncate_anew(struct cache *c, struct node *n, int flags, struct waiter *w,
                       struct handle **ret)
{
    struct file *f = n->file;

    cache_lock(c);
    file_begin_anew_locked(f);
    cache_unlock(c);
    int r = file_truncate(c, n, 0, w);
    bool emptied = r == 0;
    if (r == 0)
        r = handle_open_file(c, n, flags, ret);
    if (r != 0)
        not_begun(c, n);
    cache_lock(c);
    if (r == 0)
        (*ret)->begins = true;
    if (r < 0) /* no close will do it */
        (void)queue_truncated_locked(c, n, emptied ? 0 : r);
    cache_unlock(c);
    return r;
}

/* ---- truncating ---- */

/* Claims a partial file for becoming complete and empty: nobody fetches meanwhile. */
static int claim_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(cache_mutex)
{
    if (f->fetches || !file_claim_locked(f))
        return waitq_park_locked(c, &f->range_waiters, w);
    return 0;
}

static int truncate_ready(struct cache *c, struct node *n, uint64_t size, bool *ret_partial,
                          struct waiter *w)
{
    int r = 0;

    cache_lock(c);
    struct file *f = n->file;
    *ret_partial = false;
    if (f->state == FILE_PARTIAL && size == 0) {
        r = claim_locked(c, f, w);
        *ret_partial = r == 0;
    } else {
        r = fetch_complete_locked(c, n, w);
    }
    cache_unlock(c);
    return r;
}

/* From then on it is a change from here, as a writer's: no listing takes the name away. */
static int begin_truncate(struct cache *c, struct node *n)
{
    ns_read(c);
    cache_lock(c);
    n->file->truncates++;
    int r = node_is_replaced_locked(n);
    cache_unlock(c);
    ns_done(c);
    return r;
}

int file_truncate(struct cache *c, struct node *n, uint64_t size, struct waiter *w)
{
    bool partial;

    if (c->config.read_only)
        return -EROFS;
    /* The descriptor first: what is in use is not evicted between the look and the change. */
    int fd = file_need_fd(c, n, FD_WRITE);
    if (fd < 0)
        return fd;
    int r = begin_truncate(c, n);
    if (r == 0)
        r = truncate_ready(c, n, size, &partial, w);
    if (r == 0)
        r = partial ? file_empty_partial(c, n, fd) : file_truncate_complete(c, n, fd, size);
    cache_lock(c);
    n->file->truncates--;
    file_put_fd_locked(c, n->file, FD_WRITE);
    bool closed = queue_truncated_locked(c, n, r);
    if (r != 0 && n->file->open_handles == 0)
        file_lru_add_locked(c, n->file);
    cache_unlock(c);
    int placed = file_note_truncated(c, n, closed);
    return r != 0 ? r : placed;
}

int file_empty_open(struct cache *c, struct handle *h, struct waiter *w)
{
    struct node *n = h->node;

    cache_lock(c);
    uint64_t writes = n->file->writes;
    cache_unlock(c);
    bool begins = handle_begin_anew(c, h);
    int r = file_truncate(c, n, 0, w);
    cache_lock(c);
    /* It may have been emptied all the same, by this or by another thread. */
    bool undone = r != 0 && begins && h->begins && n->file->writes == writes;
    if (undone)
        h->begins = false;
    cache_unlock(c);
    if (undone)
        not_begun(c, n);
    return r;
}
