/* An open file, as the frontend asks about it: its descriptor, passthrough, page cache. */
#include "cache/ops/ops_impl.h"

#include "cache/types/readahead.h"

#include <errno.h>

enum file_fd handle_fd_of(const struct handle *h)
{
    return h->writable ? FD_WRITE : FD_READ;
}

struct node *handle_node(struct handle *h)
{
    return h->node;
}

static int get_fd(struct cache *c, struct handle *h, enum file_fd which, struct handle_fd *ret)
{
    int fd = file_get_fd(c, h->node, which);

    if (fd < 0)
        return fd;
    *ret = (struct handle_fd){.fd = fd, .writable = which == FD_WRITE, .node = h->node};
    cache_lock(c);
    node_ref_locked(h->node); /* it may be used until after the answer, and the release */
    cache_unlock(c);
    return 0;
}

int handle_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret)
{
    return get_fd(c, h, handle_fd_of(h), ret);
}

int handle_backing_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret)
{
    return get_fd(c, h, FD_READ, ret);
}

void handle_fd_put(struct cache *c, struct handle_fd *fd)
{
    cache_lock(c);
    file_put_fd_locked(c, fd->node->file, fd->writable ? FD_WRITE : FD_READ);
    node_unref_locked(c, fd->node);
    cache_unlock(c);
}

bool handle_passthrough(struct handle *h)
{
    return atomic_load(&h->node->file->passthrough);
}

int *handle_backing_slot(struct handle *h)
{
    return &h->node->file->backing_slot;
}

int cache_no_passthrough(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;
    int r = 0;

    cache_lock(c);
    if (f->open_handles > 1 && f->passthrough)
        r = -EBUSY;
    else
        f->passthrough = false;
    if (r == 0)
        handle_unkeep_fd_locked(c, h);
    cache_unlock(c);
    return r;
}

bool handle_keep_cache(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;

    cache_lock(c);
    /* Opens through the daemon see every write, so the kernel's pages are right as long as the
     * content did not change behind them; a passthrough write leaves them stale. */
    bool keep = f->kept_generation == f->generation && !f->passthrough;
    cache_unlock(c);
    return keep;
}

/* Smaller ones are fetched as a whole. */
#define DIRECT_MIN (UINT64_C(1) << 20)

bool handle_reads_direct(struct cache *c, struct handle *h)
{
    struct node *n = h->node;

    cache_lock(c);
    bool direct = !h->writable && n->file->state == FILE_PARTIAL && n->size >= DIRECT_MIN;
    cache_unlock(c);
    return direct;
}

/* ---- reading ---- */

int cache_prepare_read(struct cache *c, struct handle *h, uint64_t off, size_t len,
                       struct waiter *w)
{
    struct node *n = h->node;
    int r = 0;

    cache_lock(c);
    struct file *f = n->file;
    if (f->state == FILE_PARTIAL) {
        uint64_t end = off + len < n->size ? off + len : n->size;
        uint64_t ahead = readahead_of(&f->streams, off, len);
        r = off < end ? fetch_need_locked(c, n, off, end, ahead, w) : 0;
    }
    cache_unlock(c);
    return r;
}
