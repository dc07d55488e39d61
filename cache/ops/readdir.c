/* Open directories: a snapshot of the names, shown from a cookie on. */
#include "cache/ops/ops_impl.h"

#include "cache/tree/children.h"
#include "common/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

/* ---- reading directories ---- */

struct shown {
    char *name;
    struct node *node; /* referenced */
};

struct dirhandle {
    struct node *dir; /* referenced */
    struct shown *v;
    size_t n;
    bool read; /* something was read: offset 0 means rewinddir() */
};

static void drop_snapshot_locked(struct cache *c, struct dirhandle *d) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->v[i].name);
        node_unref_locked(c, d->v[i].node);
    }
    free(d->v);
    d->v = NULL;
    d->n = 0;
}

static int add_shown_locked(struct dirhandle *d, const char *name, struct node *n)
    REQUIRES(cache_mutex)
{
    d->v[d->n].name = strdup(name);
    if (!d->v[d->n].name)
        return -ENOMEM;
    d->v[d->n].node = n;
    node_ref_locked(n);
    d->n++;
    return 0;
}

static size_t count_locks_locked(struct cache *c) REQUIRES(cache_mutex)
{
    const struct deletion_lock *l;
    size_t n = 0;

    locks_reap_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        n++;
    }
    return n;
}

static int take_snapshot_locked(struct cache *c, struct dirhandle *d) REQUIRES(cache_mutex)
{
    const struct deletion_lock *l;
    struct entry *e;
    size_t at;
    size_t n = children_count(d->dir->dir->children) + count_locks_locked(c);
    int r = 0;

    drop_snapshot_locked(c, d);
    d->v = calloc(n ? n : 1, sizeof(*d->v));
    if (!d->v)
        return -ENOMEM;
    CHILDREN_FOREACH(d->dir->dir->children, e, at)
    {
        r = add_shown_locked(d, e->name, e->node);
        if (r < 0)
            return r;
    }
    DL_FOREACH(c->queue->locks, l)
    {
        if (r == 0 && l->node && l->dir == d->dir)
            r = add_shown_locked(d, l->name, l->node);
    }
    return r;
}

/* An empty object may be a symlink or a fifo: only its attributes tell. */
static int types_need_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;
    struct node *first = NULL;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        struct node *n = e->node;
        if (n->dir || n->size > 0 || !attrs_missing(c, n))
            continue;
        int r = attrs_ask_locked(c, n, false);
        if (r < 0)
            return r;
        first = first ? first : n;
    }
    return first ? attrs_wait_locked(c, first, w) : 0;
}

static int listing_need_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex)
{
    int r = dir_need_locked(c, dir, true, w);

    return r == 0 ? types_need_locked(c, dir, w) : r;
}

int cache_opendir(struct cache *c, struct node *dir, struct waiter *w, struct dirhandle **ret)
{
    if (!dir->dir)
        return -ENOTDIR;
    struct dirhandle *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    cache_lock(c);
    int r = dir->flags & NODE_REMOVED ? 0 : listing_need_locked(c, dir, w);
    if (r == 0) {
        d->dir = dir;
        r = take_snapshot_locked(c, d);
    }
    if (r == 0) {
        node_ref_locked(dir);
        *ret = d;
    } else {
        drop_snapshot_locked(c, d);
        free(d);
    }
    cache_unlock(c);
    return r;
}

static int show(struct cache *c, struct dirhandle *d, size_t i, bool plus, cache_visit visit,
                void *arg) REQUIRES(cache_mutex)
{
    struct node *parent = d->dir->links ? d->dir->links->parent : d->dir;
    struct node *n = i == 0 ? d->dir : i == 1 ? parent : d->v[i - 2].node;
    const char *name = i == 0 ? "." : i == 1 ? ".." : d->v[i - 2].name;
    bool known = plus && i >= 2 && n->links && !attrs_missing(c, n);
    struct stat st;

    node_stat(n, &st);
    int r = visit(arg, name, known ? n : NULL, &st, i + 1);
    if (r == 0 && known)
        n->nlookup++;
    return r;
}

/* The kernel goes on with attributes only when those of the names before were wanted. */
static void show_ahead_locked(struct cache *c, struct dirhandle *d, size_t off)
    REQUIRES(cache_mutex)
{
    for (size_t i = off > 2 ? off - 2 : 0, n = 0; i < d->n && n < STAT_AHEAD; i++, n++)
        if (attrs_missing(c, d->v[i].node) && !listing_tells_locked(c, d->v[i].node))
            (void)attrs_ask_locked(c, d->v[i].node, true);
}

int cache_readdir(struct cache *c, struct dirhandle *d, uint64_t off, bool plus,
                  struct waiter *w, cache_visit visit, void *arg)
{
    int r = 0;

    cache_lock(c);
    if (off == 0 && d->read && !(d->dir->flags & NODE_REMOVED)) {
        r = listing_need_locked(c, d->dir, w);
        if (r == 0)
            r = take_snapshot_locked(c, d);
    }
    if (r == 0) {
        d->read = true;
        for (uint64_t i = off; i < d->n + 2 && r == 0; i++)
            r = show(c, d, (size_t)i, plus, visit, arg);
        if (plus && off > 0)
            show_ahead_locked(c, d, (size_t)off);
        r = 0;
    }
    cache_unlock(c);
    return r;
}

void cache_releasedir(struct cache *c, struct dirhandle *d)
{
    cache_lock(c);
    drop_snapshot_locked(c, d);
    node_unref_locked(c, d->dir);
    cache_unlock(c);
    free(d);
}
