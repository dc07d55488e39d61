/* The room's part of a cache: made, opened, counted, freed. */
#include "cache/tree/tree_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

struct tree_part {
    struct tree tree; /* first: it is freed as this */
    struct tree_own own;
};

int tree_new(struct cache *c, const struct node_hooks *hooks)
{
    struct tree_part *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->tree.own = &p->own;
    p->own.hooks = *hooks;
    c->tree = &p->tree;
    return 0;
}

static int make_root_locked(struct cache *c) REQUIRES(cache_mutex)
{
    struct node *root = node_new(c, S_IFDIR);

    if (!root)
        return -ENOMEM;
    c->tree->root = root;
    node_default_attrs(c, root);
    root->is_root = true;
    root->flags = NODE_ATTRS_KNOWN;
    root->ino = 1;
    root->dir->has_marker = true;
    dir_take_route(c, root->dir, "");
    root->mtime_ns = root->ctime_ns = root->atime_ns = c->tree->own->started_ns;
    return 0;
}

int tree_open(struct cache *c)
{
    struct tree_own *own = c->tree->own;

    if (inos_init(c) < 0)
        return -ENOMEM;
    own->started_ns = clock_real_ns();
    cache_lock(c);
    own->ids = ids_new();
    int r = own->ids ? make_root_locked(c) : -ENOMEM;
    cache_unlock(c);
    return r;
}

void tree_free(struct cache *c)
{
    if (!c->tree)
        return;
    cache_lock(c);
    ids_free(c->tree->own->ids);
    inos_forget_locked(c);
    free(c->tree->own->negatives);
    cache_unlock(c);
    free(c->tree->own->store_salts);
    free(c->tree);
    c->tree = NULL;
}

void tree_stats_locked(struct cache *c, struct cache_stats *ret)
{
    cache_assert_locked(c);
    ret->nodes = c->tree->nodes;
    ret->hidden_names = c->tree->hidden_names;
}
