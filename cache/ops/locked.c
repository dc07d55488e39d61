/* The view of a deletion lock (docs/locks.md): what lies at the paths that it covers, and what
 * was removed or replaced there since. A path of the view is one or several of the tree, as the
 * lock followed what was moved; what is kept under one of them comes before what is there now.
 */
#include "cache/ops/ops_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Where in the tree the view's path is, of this path of the lock; heap. NULL: nowhere, or
 * without memory. */
static char *path_by(const struct locked_path *p, const char *rel)
{
    const char *rest = path_below(p->at, rel);

    return rest ? path_join(p->path, rest) : NULL;
}

/* The oldest that is kept there is what was locked. */
static struct node *kept_at_locked(struct cache *c, const struct deletion_lock *l,
                                   const char *rel) REQUIRES(cache_mutex)
{
    const struct kept_name *k;

    DL_FOREACH(c->ops->kept, k)
    {
        for (size_t i = 0; i < l->n_paths && k->seq > l->since_seq; i++) {
            const char *rest = path_below(l->paths[i].path, k->path);
            auto_free char *shown = rest ? path_join(l->paths[i].at, rest) : NULL;
            if (shown && strcmp(shown, rel) == 0)
                return k->node;
        }
    }
    return NULL;
}

/* What is there now, where the lock followed it last. */
static struct node *live_at_locked(struct cache *c, const struct deletion_lock *l,
                                   const char *rel) REQUIRES(cache_mutex)
{
    struct node *n = NULL;

    for (size_t i = l->n_paths; i-- > 0 && !n;) {
        auto_free char *path = path_by(&l->paths[i], rel);
        n = path ? tree_find(c, path, NULL) : NULL;
    }
    return n;
}

/* The live directory in which the view's path is a name, which the store may know alone; also
 * referenced by a lookup. NULL: there is none. */
static struct node *parent_at_locked(struct cache *c, const struct deletion_lock *l,
                                     const char *rel) REQUIRES(cache_mutex)
{
    for (size_t i = l->n_paths; i-- > 0;) {
        auto_free char *path = path_by(&l->paths[i], rel);
        auto_free char *parent = path && *path ? path_parent(path) : NULL;
        struct node *n = parent ? tree_find(c, parent, NULL) : NULL;
        if (n && n->dir && !n->is_root)
            n->nlookup++;
        if (n && n->dir)
            return n;
    }
    return NULL;
}

int cache_locked_node(struct cache *c, uint64_t id, const char *rel, struct waiter *w,
                      struct node **ret)
{
    struct node *parent = NULL;
    struct stat st;

    cache_lock(c);
    const struct deletion_lock *l = lock_find_locked(c, id);
    struct node *n = l ? kept_at_locked(c, l, rel) : NULL;
    if (l && !n && !(n = live_at_locked(c, l, rel)))
        parent = parent_at_locked(c, l, rel);
    if (n && !n->is_root)
        n->nlookup++;
    cache_unlock(c);
    *ret = n;
    if (n)
        return 0;
    if (!parent)
        return -ENOENT;
    int r = cache_lookup(c, parent, path_basename(rel), w, ret, &st);
    cache_forget(c, parent, 1);
    return r;
}

/* ---- what a directory of the view has ---- */

struct listing {
    struct cache *cache;
    cache_locked_visit visit;
    void *arg;
};

/* Names of what the lock has elsewhere in the tree than beside its siblings. */
static int visit_moved_locked(struct listing *l, const struct deletion_lock *lock,
                              const char *rel) REQUIRES(cache_mutex)
{
    int r = 0;

    for (size_t i = 1; i < lock->n_paths && r == 0; i++) {
        const char *name = path_below(rel, lock->paths[i].at);
        const struct node *n = name && *name && !strchr(name, '/')
                                   ? live_at_locked(l->cache, lock, lock->paths[i].at)
                                   : NULL;
        r = n ? l->visit(l->arg, name, n->mode) : 0;
    }
    return r;
}

static int visit_kept_locked(struct listing *l, const struct deletion_lock *lock,
                             const char *rel) REQUIRES(cache_mutex)
{
    const struct kept_name *k;
    int r = 0;

    DL_FOREACH(l->cache->ops->kept, k)
    {
        for (size_t i = 0; i < lock->n_paths && r == 0 && k->seq > lock->since_seq; i++) {
            const char *rest = path_below(lock->paths[i].path, k->path);
            auto_free char *shown = rest ? path_join(lock->paths[i].at, rest) : NULL;
            const char *name = shown ? path_below(rel, shown) : NULL;
            if (name && *name && !strchr(name, '/'))
                r = l->visit(l->arg, name, k->node->mode);
        }
    }
    return r;
}

static int visit_live(void *arg, const char *name, struct node *node, const struct stat *st,
                      uint64_t next)
{
    const struct listing *l = arg;
    bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;

    (void)node, (void)next;
    return dots ? 0 : l->visit(l->arg, name, st->st_mode);
}

/* The live directories that are this one of the view; each with a lookup. -ENOENT: it is no
 * directory of the view at all. */
static int find_dirs(struct listing *l, uint64_t id, const char *rel, struct node ***ret,
                     size_t *ret_n)
{
    struct cache *c = l->cache;
    size_t n = 0;

    cache_lock(c);
    const struct deletion_lock *lock = lock_find_locked(c, id);
    const struct node *kept = lock ? kept_at_locked(c, lock, rel) : NULL;
    struct node **v = lock ? calloc(lock->n_paths, sizeof(struct node *)) : NULL;
    for (size_t i = 0; v && i < lock->n_paths; i++) {
        auto_free char *path = path_by(&lock->paths[i], rel);
        struct node *dir = path ? tree_find(c, path, NULL) : NULL;
        if (!dir || !dir->dir)
            continue;
        if (!dir->is_root)
            dir->nlookup++;
        v[n++] = dir;
    }
    int r = !lock ? -ENOENT : !v ? -ENOMEM : n || (kept && kept->dir) ? 0 : -ENOENT;
    if (r == 0)
        r = visit_kept_locked(l, lock, rel);
    if (r == 0)
        r = visit_moved_locked(l, lock, rel);
    cache_unlock(c);
    *ret = v;
    *ret_n = n;
    return r;
}

static int visit_dir(struct listing *l, struct node *dir, struct waiter *w)
{
    struct dirhandle *d;
    int r = cache_opendir(l->cache, dir, w, &d);

    if (r != 0)
        return r == -ENOTDIR ? 0 : r;
    r = cache_readdir(l->cache, d, 0, false, w, visit_live, l);
    cache_releasedir(l->cache, d);
    return r;
}

int cache_locked_list(struct cache *c, uint64_t id, const char *rel, struct waiter *w,
                      cache_locked_visit visit, void *arg)
{
    struct listing l = {.cache = c, .visit = visit, .arg = arg};
    struct node **dirs;
    size_t n;
    int r = find_dirs(&l, id, rel, &dirs, &n);

    for (size_t i = 0; i < n; i++) {
        if (r == 0)
            r = visit_dir(&l, dirs[i], w);
        cache_forget(c, dirs[i], 1);
    }
    free(dirs);
    return r;
}
