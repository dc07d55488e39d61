/* Paths: from a name to the root and back, and walks over the tree in memory. */
#include "cache/tree/tree_impl.h"

#include "cache/tree/children.h"
#include "common/mem.h"
#include "common/path.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- paths ---- */

/* Joins the names below that of `until`, or below the root, down to that of `e`. */
static char *build_path(const struct entry *e, const struct entry *until)
{
    size_t len = 0;

    for (const struct entry *at = e; at != until; at = at->parent->links) {
        len += strlen(at->name) + 1;
        if (!at->parent->links && !at->parent->is_root)
            return NULL; /* below a removed directory */
    }
    char *path = malloc(len + 1);
    if (!path)
        return NULL;
    char *p = path + len;
    *p = '\0';
    for (const struct entry *at = e; at != until; at = at->parent->links) {
        size_t n = strlen(at->name);
        p -= n;
        memcpy(p, at->name, n);
        *--p = '/';
    }
    memmove(path, path + 1, len);
    return path;
}

char *entry_path(const struct entry *e)
{
    return build_path(e, NULL);
}

struct place entry_place(struct entry *e)
{
    for (struct entry *at = e; at; at = at->parent->links) {
        if (!place_known(at->source))
            continue;
        auto_free char *below = build_path(e, at);
        return below ? place_join(at->source, below) : NO_PLACE;
    }
    return place_own_path(entry_path(e));
}

struct place entry_take_place_locked(struct entry *e, struct place *before)
{
    struct place now = place_known(e->source) ? place_take(&e->source) : entry_place(e);

    return place_known(now) ? now : place_take(before);
}

char *node_path(struct node *n)
{
    if (n->is_root)
        return strdup("");
    return n->links ? entry_path(n->links) : NULL;
}

struct place node_place(struct node *n)
{
    if (n->is_root)
        return place_own_path(node_path(n));
    return n->links ? entry_place(n->links) : NO_PLACE;
}

struct entry *node_name_at(struct node *n, struct place at)
{
    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_place struct place now = entry_place(e);
        if (place_known(now) && place_same(now, at))
            return e;
    }
    return NULL;
}

bool name_shares_place(const struct entry *e, const struct node *n, struct place at)
{
    for (struct entry *other = n->links; other; other = other->next_link) {
        auto_place struct place now = other != e ? entry_place(other) : NO_PLACE;
        if (place_known(now) && place_same(now, at))
            return true;
    }
    return false;
}

char *child_path(struct node *dir, const char *name)
{
    auto_free char *path = node_path(dir);

    return path ? path_join(path, name) : NULL;
}

struct place child_place(struct node *dir, const char *name)
{
    auto_place struct place at = node_place(dir);

    return place_known(at) ? place_join(at, name) : NO_PLACE;
}

bool node_is_below(struct node *n, struct node *dir)
{
    while (n != dir) {
        if (!n->links)
            return false;
        n = n->links->parent;
    }
    return true;
}

/* This takes no memory: a lack of it must not look like a name that does not exist. */
struct node *tree_find(struct cache *c, const char *path, struct entry **ret_entry)
{
    struct node *n = c->tree->root;
    struct entry *e = NULL;
    char name[NAME_MAX + 1];

    if (ret_entry)
        *ret_entry = NULL;
    for (size_t len; *path; path += len) {
        len = strcspn(path, "/");
        if (len == 0) {
            len = 1;
            continue;
        }
        if (len > NAME_MAX)
            return NULL;
        memcpy(name, path, len);
        name[len] = '\0';
        e = entry_find(n, name);
        if (!e)
            return NULL;
        n = e->node;
    }
    if (ret_entry)
        *ret_entry = e;
    return n;
}

bool node_is_named_below(struct cache *c, struct node *n, const char *path)
{
    struct entry *at, *e;
    struct node *top = tree_find(c, path, &at);

    for (e = top ? n->links : NULL; e; e = e->next_link)
        if (e == at || node_is_below(e->parent, top))
            return true;
    return false;
}

struct node *tree_make_dirs_locked(struct cache *c, const char *path)
{
    struct node *n = c->tree->root;
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;

    ns_assert_written(c);
    cache_assert_locked(c);
    while (copy && (name = strsep(&rest, "/"))) {
        if (*name == '\0')
            continue;
        struct entry *e = entry_find(n, name);
        if (e && !e->node->dir)
            return NULL;
        if (!e) {
            struct node *child = node_new(c, S_IFDIR);
            if (!child)
                return NULL;
            node_default_attrs(c, child);
            child->mtime_ns = child->ctime_ns = child->atime_ns = c->tree->own->started_ns;
            e = entry_add_locked(c, n, name, child);
            if (!e) {
                node_collect_locked(c, child);
                return NULL;
            }
            auto_free char *at = entry_path(e);
            child->ino = at ? ino_of_found_locked(c, place_of_path(at), true) : 0;
            child->flags |= NODE_DEFAULT_INO;
        }
        n = e->node;
    }
    return copy ? n : NULL;
}

int tree_each(struct node *n, int (*visit)(void *arg, struct node *n), void *arg)
{
    struct entry *e;
    size_t at;
    int r = visit(arg, n);

    if (r != 0 || !n->dir)
        return r;
    CHILDREN_FOREACH(n->dir->children, e, at)
    {
        r = tree_each(e->node, visit, arg);
        if (r != 0)
            return r;
    }
    return 0;
}

char *cache_path(struct cache *c, struct node *node)
{
    cache_lock(c);
    char *path = node_path(node);
    cache_unlock(c);
    return path;
}

struct node *cache_root(struct cache *c)
{
    return c->tree->root;
}
