/* The view of a deletion lock (docs/locks.md): what it covers, and what was removed or replaced
 * of that since. A path of the view is one or several of the tree, as the lock followed what
 * was moved. What the view shows when it goes is shown there for as long as it is kept.
 */
#include "cache/ops/ops_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- what a path of the view is ---- */

/* Where in the tree the view's path is, by what is shown there; heap. NULL: nowhere, or without
 * memory. */
static char *path_by(const struct locked_path *p, const char *rel)
{
    const char *rest = path_below(p->at, rel);

    return rest ? path_join(p->path, rest) : NULL;
}

/* Those that show something at the path come in this order: what was moved by itself, then what
 * went with a directory. Counted from 0; NULL: no more. */
static const struct locked_path *nth_shown_locked(const struct deletion_lock *l,
                                                  const char *rel, size_t n)
    REQUIRES(cache_mutex)
{
    const struct locked_path *best = NULL;

    for (size_t skip = 0, len = SIZE_MAX, at = l->n_shown; skip <= n; skip++) {
        best = NULL;
        size_t best_len = 0;
        for (size_t i = 0; i < l->n_shown; i++) {
            size_t own = strlen(l->shown[i].at);
            bool later = own < len || (own == len && i < at);
            if (later && path_below(l->shown[i].at, rel) && (!best || own >= best_len)) {
                best = &l->shown[i];
                best_len = own;
            }
        }
        if (!best)
            return NULL;
        len = best_len;
        at = (size_t)(best - l->shown);
    }
    return best;
}

static char *view_key(uint64_t id, const char *rel)
{
    char *key;

    return asprintf(&key, "%" PRIu64 "/%s", id, rel) < 0 ? NULL : key;
}

static struct node *kept_at_locked(struct cache *c, const struct deletion_lock *l,
                                   const char *rel) REQUIRES(cache_mutex)
{
    auto_free char *key = c->ops->kept_views ? view_key(l->id, rel) : NULL;
    struct kept_view *v = NULL;

    if (key)
        HASH_FIND_STR(c->ops->kept_views, key, v);
    return v ? v->node : NULL;
}

/* What is there now, where the lock followed it. */
static struct node *live_at_locked(struct cache *c, const struct deletion_lock *l,
                                   const char *rel) REQUIRES(cache_mutex)
{
    const struct locked_path *p;
    struct node *n = NULL;

    for (size_t i = 0; !n && (p = nth_shown_locked(l, rel, i)); i++) {
        auto_free char *path = path_by(p, rel);
        n = path ? tree_find(c, path, NULL) : NULL;
    }
    return n;
}

static struct node *looked_up(struct node *n) REQUIRES(cache_mutex)
{
    if (n && !n->is_root)
        n->nlookup++;
    return n;
}

/* What the n-th that shows something there leads to: *ret, looked up; or *ret_parent, looked
 * up, the directory in which the store may know the name *ret_name (heap). -ENOENT: there is no
 * n-th.
 */
static int look(struct cache *c, uint64_t id, const char *rel, size_t n, struct node **ret,
                struct node **ret_parent, char **ret_name)
{
    int r = 0;

    cache_lock(c);
    const struct deletion_lock *l = lock_find_locked(c, id);
    const struct locked_path *p = l ? nth_shown_locked(l, rel, n) : NULL;
    auto_free char *path = p ? path_by(p, rel) : NULL;
    auto_free char *above = path && *path ? path_parent(path) : NULL;
    struct node *kept = l && n == 0 ? kept_at_locked(c, l, rel) : NULL;
    struct node *parent = NULL;

    if (kept)
        *ret = looked_up(kept);
    else if (!path)
        r = p ? -ENOMEM : -ENOENT;
    else if (!(*ret = looked_up(tree_find(c, path, NULL))) && above)
        parent = tree_find(c, above, NULL);
    if (parent && parent->dir) {
        *ret_name = strdup(path_basename(path));
        *ret_parent = *ret_name ? looked_up(parent) : NULL;
        r = *ret_name ? 0 : -ENOMEM;
    }
    cache_unlock(c);
    return r;
}

int cache_locked_node(struct cache *c, uint64_t id, const char *rel, struct waiter *w,
                      struct node **ret)
{
    struct stat st;
    int r = 0;

    *ret = NULL;
    for (size_t i = 0; !*ret && (r == 0 || r == -ENOENT); i++) {
        struct node *parent = NULL;
        auto_free char *name = NULL;
        r = look(c, id, rel, i, ret, &parent, &name);
        if (r < 0)
            return r;
        if (!parent)
            continue;
        r = cache_lookup(c, parent, name, w, ret, &st);
        cache_forget(c, parent, 1);
    }
    return *ret ? 0 : r;
}

/* ---- what is kept ---- */

static bool view_shows_locked(struct cache *c, const struct deletion_lock *l, const char *rel,
                              const struct node *n) REQUIRES(cache_mutex)
{
    return !kept_at_locked(c, l, rel) && live_at_locked(c, l, rel) == n;
}

static int add_view(struct kept_name *k, const struct deletion_lock *l, const char *rel)
    REQUIRES(cache_mutex)
{
    auto_free char *key = view_key(l->id, rel);
    struct kept_view *v = key ? calloc(1, sizeof(*v) + strlen(key) + 1) : NULL;

    if (!v)
        return -ENOMEM;
    v->node = k->node;
    v->id = l->id;
    memcpy(v->key, key, strlen(key) + 1);
    v->rel = v->key + strcspn(key, "/") + 1;
    v->next = k->views;
    k->views = v;
    return 0;
}

int kept_views_find_locked(struct cache *c, struct kept_name *k, const char *path)
{
    const struct deletion_lock *l;
    int r = 0;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        for (size_t i = 0; i < l->n_shown && r == 0 && !l->refuse; i++) {
            const char *rest = path_below(l->shown[i].path, path);
            auto_free char *rel = rest ? path_join(l->shown[i].at, rest) : NULL;
            if (rest && !rel)
                r = -ENOMEM;
            else if (rel && view_shows_locked(c, l, rel, k->node))
                r = add_view(k, l, rel);
        }
    }
    return r;
}

void kept_views_begin_locked(struct cache *c, const struct kept_name *k)
{
    struct kept_view *v, *other;

    cache_assert_locked(c);
    for (v = k->views; v; v = v->next) {
        HASH_FIND_STR(c->ops->kept_views, v->key, other);
        if (!other)
            HASH_ADD_STR(c->ops->kept_views, key, v);
    }
}

void kept_views_end_locked(struct cache *c, const struct kept_name *k)
{
    struct kept_view *v, *had;

    cache_assert_locked(c);
    for (v = k->views; v; v = v->next) {
        HASH_FIND_STR(c->ops->kept_views, v->key, had);
        if (had == v)
            HASH_DEL(c->ops->kept_views, v);
    }
}

/* ---- what a directory of the view has ---- */

struct listing {
    struct cache *cache;
    cache_locked_visit visit;
    void *arg;
};

/* The name in the directory of the view, if it is one directly in it. */
static const char *name_in(const char *dir, const char *rel)
{
    const char *name = path_below(dir, rel);

    return name && *name && !strchr(name, '/') ? name : NULL;
}

/* Names of what the lock has elsewhere in the tree than beside its siblings. */
static int visit_moved_locked(struct listing *l, const struct deletion_lock *lock,
                              const char *rel) REQUIRES(cache_mutex)
{
    int r = 0;

    for (size_t i = 1; i < lock->n_shown && r == 0; i++) {
        const char *name = name_in(rel, lock->shown[i].at);
        const struct node *n = name ? live_at_locked(l->cache, lock, lock->shown[i].at) : NULL;
        r = n ? l->visit(l->arg, name, n->mode) : 0;
    }
    return r;
}

static int visit_kept_locked(struct listing *l, const struct deletion_lock *lock,
                             const char *rel) REQUIRES(cache_mutex)
{
    const struct kept_view *v;
    int r = 0;

    for (v = l->cache->ops->kept_views; v && r == 0; v = v->hh.next) {
        const char *name = v->id == lock->id ? name_in(rel, v->rel) : NULL;
        r = name ? l->visit(l->arg, name, v->node->mode) : 0;
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
    struct node **v = lock ? calloc(lock->n_shown, sizeof(struct node *)) : NULL;
    for (size_t i = 0; v && i < lock->n_shown; i++) {
        auto_free char *path = path_by(&lock->shown[i], rel);
        struct node *dir = path ? tree_find(c, path, NULL) : NULL;
        if (!dir || !dir->dir)
            continue;
        v[n++] = looked_up(dir);
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
