/* Deletion locks and what programs remove (docs/locks.md): who may, and what is kept of it, for
 * as long as a lock that hides the removal is there. A name is looked at before the tree is
 * held still, since a file is opened for that; whether it is the same one is seen when it goes.
 */
#include "cache/ops/ops_impl.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <utlist.h>

/* ---- what is kept ---- */

static void kept_free(struct cache *c, struct kept_name *k) EXCLUDES(cache_ns, cache_mutex)
{
    if (!k)
        return;
    if (k->handle)
        cache_release(c, k->handle);
    cache_lock(c);
    if (k->node)
        node_unref_locked(c, k->node);
    cache_unlock(c);
    while (k->views) {
        struct kept_view *v = k->views;
        k->views = v->next;
        free(v);
    }
    free(k->path);
    free(k);
}

void deletion_sweep(struct cache *c)
{
    struct kept_name *k, *next, *unneeded = NULL;

    cache_lock(c);
    DL_FOREACH_SAFE(c->ops->kept, k, next)
    {
        if (lock_hides_locked(c, k->path, k->seq))
            continue;
        kept_views_end_locked(c, k);
        DL_DELETE(c->ops->kept, k);
        DL_APPEND(unneeded, k);
    }
    cache_unlock(c);
    DL_FOREACH_SAFE(unneeded, k, next)
    {
        kept_free(c, k);
    }
}

/* ---- a name that goes ---- */

static struct kept_name *kept_new_locked(struct node *n, const char *path) REQUIRES(cache_mutex)
{
    struct kept_name *k = calloc(1, sizeof(*k));

    if (!k || !(k->path = strdup(path))) {
        free(k);
        return NULL;
    }
    k->node = n;
    node_ref_locked(n);
    return k;
}

static int open_kept(struct cache *c, struct kept_name *k, struct waiter *w)
{
    cache_lock(c);
    bool content = S_ISREG(k->node->mode) || !node_attrs_known(k->node);
    content = content && !k->node->dir;
    cache_unlock(c);
    int r = content ? cache_open(c, k->node, O_RDONLY, w, &k->handle) : 0;
    /* Of what is no regular file nothing but the node is kept. */
    return r == -EINVAL ? 0 : r;
}

int leaving_ready(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                  struct leaving *l)
{
    *l = (struct leaving){.kept = NULL};
    cache_lock(c);
    bool refuse = c->queue->n_refusing > 0;
    struct entry *e = c->queue->locks ? entry_find(parent, name) : NULL;
    auto_free char *path = e ? entry_path(e) : NULL;
    int r = e && !path ? -ENOMEM : 0;
    if (path && lock_hides_locked(c, path, UINT64_MAX)) {
        l->kept = kept_new_locked(e->node, path);
        r = l->kept ? 0 : -ENOMEM;
    }
    cache_unlock(c);
    if (r == 0 && refuse)
        process_line(w ? w->pid : 0, &l->who);
    if (r == 0 && l->kept)
        r = open_kept(c, l->kept, w);
    return r;
}

int leaving_admit_locked(struct cache *c, const struct leaving *l, const char *path, bool above)
{
    cache_assert_locked(c);
    if (!c->queue->n_refusing)
        return 0;
    return lock_refusing_locked(c, path, above, &l->who) ? -EBUSY : 0;
}

int leaving_keeps_locked(struct cache *c, const struct leaving *l, const struct entry *e,
                         const char *path)
{
    cache_assert_locked(c);
    if (!c->queue->locks || !lock_hides_locked(c, path, UINT64_MAX))
        return 0;
    if (!l->kept || l->kept->node != e->node || strcmp(l->kept->path, path) != 0)
        return -EAGAIN;
    return kept_views_find_locked(c, l->kept, path);
}

void leaving_gone(struct cache *c, struct leaving *l)
{
    if (!l->kept)
        return;
    cache_lock(c);
    l->kept->seq = seq_next_locked(c);
    kept_views_begin_locked(c, l->kept);
    DL_APPEND(c->ops->kept, l->kept);
    cache_unlock(c);
    l->kept = NULL;
}

void leaving_release(struct cache *c, struct leaving *l)
{
    kept_free(c, take_ptr(l->kept));
}

void deletion_moved(struct cache *c, const struct lock_move *moves, size_t n)
{
    ns_assert_written(c);
    cache_lock(c);
    int r = c->queue->locks ? lock_follow_locked(c, moves, n) : 0;
    cache_unlock(c);
    if (r < 0)
        log_later(&c->log, LOG_LEVEL_WARN,
                  "%s was moved to %s: there is no memory to keep it locked there", moves->from,
                  moves->to);
}
