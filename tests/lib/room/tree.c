/* The tree of a cache that is made by hand. */
#include "cache/tree/tree.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/room/room_impl.h"

static void no_hook(struct cache *c, struct node *n)
{
    (void)c;
    (void)n;
}

static void remove_below_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (e->node->dir)
            remove_below_locked(c, e->node);
        e->node->nlookup = 0;
        entry_remove_locked(c, e);
    }
}

void room_clear_tree(struct cache *c)
{
    struct node *root = c->tree->root;

    if (!root)
        return;
    ns_write(c);
    cache_lock(c);
    detached_free_locked(c);
    remove_below_locked(c, root);
    c->tree->root = NULL;
    root->is_root = false;
    node_collect_locked(c, root);
    cache_unlock(c);
    ns_done(c);
}

static void free_tree(struct cache *c)
{
    room_clear_tree(c);
    tree_free(c);
}

void room_tree(struct cache *c)
{
    static const struct node_hooks none = {.nameless = no_hook, .end = no_hook};

    ck_assert_int_eq(tree_new(c, &none), 0);
    ck_assert_int_eq(tree_open(c), 0);
    room_ends_with(c, free_tree);
}

struct node *room_dir_locked(struct cache *c, const char *path)
{
    struct node *n = tree_make_dirs_locked(c, path);

    ck_assert_msg(n != NULL, "%s", path);
    return n;
}

struct node *room_file_locked(struct cache *c, const char *path)
{
    auto_free char *parent = path_parent(path);
    struct node *dir = room_dir_locked(c, parent), *n = node_new(c, S_IFREG | 0644);

    ck_assert_ptr_nonnull(n);
    n->ino = ino_of_found_locked(c, place_of_path(path), false);
    ck_assert_ptr_nonnull(entry_add_locked(c, dir, path_basename(path), n));
    return n;
}
