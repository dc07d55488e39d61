/* What left its name for another store: as long as that one lacks it, the object at the old key
 * is all that any store has of it. Its own removal waits, but what else comes to the key, or
 * removes it, does not wait for the other store, which may be away for long, or for something
 * that waits for this key: it makes the file durable here first. Then a power loss leaves the
 * next mount the content to publish. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/journal.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So often in a row it may be written while it is synced. */
#define SYNCS_MAX 3

/* One that left, and where it is now. */
struct moved {
    struct node *node; /* referenced */
    char *to;
    uint64_t seq; /* of the removal of its old name */
};

struct moved_files {
    struct moved *v;
    size_t n, cap;
};

struct gathering {
    struct cache *cache;
    struct moved_files *found;
    int error;
};

/* Adds what left the name, if it is in no store. Whether there is no memory to go on. */
static bool gather(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    struct gathering *g = arg;
    struct moved_files *m = g->found;

    if (!removal_is_of_only_copy_locked(g->cache, i))
        return false;
    struct node *n = removal_moved_file_locked(g->cache, i)->node;
    /* It is back: what goes there is it. A name whose place that is, and whose path is another
     * one, goes elsewhere. */
    if (node_name_lying_at_locked(g->cache, n, i->from))
        return false;
    char *to = node_path(n);
    if (!to || array_grow(m->v, m->cap, m->n + 1)) {
        free(to);
        g->error = -ENOMEM;
        return true;
    }
    node_ref_locked(n);
    m->v[m->n++] = (struct moved){n, to, i->seq};
    return false;
}

static int by_seq(const void *a, const void *b)
{
    const struct moved *one = a, *other = b;

    return one->seq < other->seq ? -1 : one->seq > other->seq;
}

static int gather_locked(struct cache *c, const char *path, bool below, uint64_t seq,
                         struct moved_files *m) REQUIRES(cache_mutex)
{
    struct gathering g = {c, m, 0};
    const struct row_ask ask = {
        .sets = ROWS_REMOVING, .path = path, .until = seq + 1, .is = gather, .arg = &g};

    if (!c->queue->moved)
        return 0;
    if (!row_at_locked(c, &ask) && below)
        (void)row_below_locked(c, &ask);
    if (m->n)
        qsort(m->v, m->n, sizeof(*m->v), by_seq);
    return g.error;
}

static void drop(struct cache *c, struct moved_files *m)
{
    cache_lock(c);
    for (size_t i = 0; i < m->n; i++) {
        node_unref_locked(c, m->v[i].node);
        free(m->v[i].to);
    }
    cache_unlock(c);
    free(m->v);
}

/* No mount publishes it as it is: its writer, or who has it mended, comes first. */
static bool is_unfit(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool ret = n->links && (n->file->short_write || file_is_half_locked(c, n));
    cache_unlock(c);
    return ret;
}

/* The row comes first, as for fsync(): without it the file would be taken for another one that
 * was made there. */
static int make_durable(struct cache *c, struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd < 0)
        return fd == -ESTALE ? 0 : fd; /* removed meanwhile: nobody wants it */
    int r = is_unfit(c, n) ? -EBUSY : journal_sync_intents(c->journal);
    int again = r == 0 ? 1 : 0;
    for (int i = 0; i < SYNCS_MAX && again == 1; i++)
        again = node_sync(c, n, fd);
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
    return r < 0 ? r : again == 1 ? -EBUSY : again;
}

/* The store has refused nothing, and has nobody else's version. */
static int of_disk(int err)
{
    return refusal_is_one(err) || err == -ESTALE ? -EIO : err;
}

static int not_durable(struct op *op, const char *path, const char *to, int err)
{
    if (err == -EBUSY)
        return op_fail(op, err,
                       "%s stays in its store as it is: it went to another one as %s, which is "
                       "in no store yet, and is being written or was cut off by a full disk: "
                       "close it, or write it anew",
                       path, to);
    return op_fail(op, of_disk(err),
                   "%s stays in its store as it is: it went to another one as %s, which is in "
                   "no store yet and can't be synced in the cache: %s",
                   path, to, strerror(-err));
}

int moved_make_durable(struct cache *c, struct op *op, const char *path, bool below,
                       uint64_t seq)
{
    struct moved_files m = {0};

    if (!c->config.routes)
        return 0;
    cache_lock(c);
    int r = gather_locked(c, path, below, seq, &m);
    cache_unlock(c);
    if (r < 0)
        (void)op_fail(op, r, "%s: there is no memory to look for what left it", path);
    for (size_t i = 0; i < m.n && r == 0; i++) {
        r = make_durable(c, m.v[i].node);
        if (r < 0)
            r = not_durable(op, path, m.v[i].to, r);
    }
    if (m.n) /* the disk's time is not the store's */
        op->deadline_ns = clock_mono_ns() + c->config.store_timeout_ns;
    drop(c, &m);
    return r;
}
