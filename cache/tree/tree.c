/* The tree in memory: nodes, their names, and how both come and go. */
#include "cache/tree/tree_impl.h"

#include "cache/tree/children.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- nodes ---- */

struct node *node_new(struct cache *c, uint32_t mode)
{
    struct node *n = calloc(1, sizeof(*n));

    cache_assert_locked(c);
    if (!n)
        return NULL;
    n->mode = mode;
    n->nlink = S_ISDIR(mode) ? 2 : 1;
    if (S_ISDIR(mode)) {
        n->dir = calloc(1, sizeof(*n->dir));
        if (!n->dir) {
            free(n);
            return NULL;
        }
        n->dir->node = n;
        n->dir->found_ns = clock_mono_ns();
        n->dir->debt.kind = DEBT_DIR;
        n->dir->index.debt.kind = DEBT_INDEX;
        waitq_init(&n->dir->waiters);
        c->tree->own->dir_ids += c->tree->own->dir_ids == UINT32_MAX ? 2 : 1; /* 0 is none */
        n->dir->id = c->tree->own->dir_ids;
    }
    if (ids_add(c->tree->own->ids, n) < 0) {
        free(n->dir);
        free(n);
        return NULL;
    }
    c->tree->nodes++;
    return n;
}

void node_ref_locked(struct node *n)
{
    n->refs++;
}

void node_unref_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    assert(n->refs > 0);
    n->refs--;
    node_collect_locked(c, n);
}

static void detached_add_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct detached *d = NULL;

    HASH_FIND_PTR(c->tree->own->detached, &n, d);
    if (d || !(d = calloc(1, sizeof(*d))))
        return; /* without memory detached_free_locked() misses it, at the end */
    d->node = n;
    HASH_ADD_PTR(c->tree->own->detached, node, d);
    if (TABLE_LACKS(hh, d))
        free(d);
}

static void detached_remove_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct detached *d = NULL;

    HASH_FIND_PTR(c->tree->own->detached, &n, d);
    if (!d)
        return;
    HASH_DEL(c->tree->own->detached, d);
    free(d);
}

void detached_free_locked(struct cache *c)
{
    cache_assert_locked(c);
    while (c->tree->own->detached) {
        struct node *n = c->tree->own->detached->node;
        detached_remove_locked(c, n);
        n->nlookup = 0;
        node_collect_locked(c, n);
    }
}

void node_collect_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    if (n->refs || n->nlookup || n->links || n->is_root)
        return;
    assert(!n->dir || children_count(n->dir->children) == 0); /* they went before its name */
    detached_remove_locked(c, n);
    c->tree->own->hooks.end(c, n);
    if (n->dir) {
        c->tree->hidden_names -= n->dir->hidden_names;
        debt_release(&n->dir->debt);
        debt_release(&n->dir->index.debt);
        etag_clear(&n->dir->put_etag);
        free(n->dir);
    }
    free(n->target);
    free(n->xattrs);
    c->tree->nodes--;
    ids_remove(c->tree->own->ids, n);
    free(n);
}

/* ---- entries ---- */

struct entry *entry_find(struct node *dir, const char *name)
{
    return dir->dir ? children_find(dir->dir->children, name) : NULL;
}

static void link_entry(struct entry *e, struct children **room) REQUIRES(cache_ns, cache_mutex)
{
    children_add(&e->parent->dir->children, room, e);
    e->parent->dir->files += !e->node->dir;
    e->next_link = e->node->links;
    e->node->links = e;
}

static void unlink_entry(struct entry *e) REQUIRES(cache_ns, cache_mutex)
{
    struct entry **at = &e->node->links;

    children_remove(&e->parent->dir->children, e);
    e->parent->dir->files -= !e->node->dir;
    while (*at != e)
        at = &(*at)->next_link;
    *at = e->next_link;
}

void entry_take_route_locked(struct cache *c, struct entry *e, const char *path)
{
    struct dir *d = e->node->dir;

    cache_assert_locked(c);
    if (!c->config.routes)
        return;
    e->volume = (uint16_t)path_volume(c, path, d != NULL);
    if (d)
        dir_take_route(c, d, path);
    e->scratch = d ? d->kind == DIR_SCRATCH : path_is_scratch(c, path);
}

void seat_release(struct seat *s)
{
    free(take_ptr(s->entry));
    free(take_ptr(s->room));
    free(take_ptr(s->path));
}

static struct entry *entry_new(struct node *dir, const char *name, struct node *n)
{
    size_t len = strlen(name);
    struct entry *e = calloc(1, offsetof(struct entry, name) + len + 1);

    if (!e)
        return NULL;
    memcpy(e->name, name, len + 1);
    e->hash = children_hash(name);
    e->parent = dir;
    e->node = n;
    return e;
}

int seat_take_locked(struct cache *c, struct node *dir, const char *name, struct node *n,
                     struct seat *ret)
{
    bool routed = c->config.routes && !(dir->flags & NODE_REMOVED);

    ns_assert_written(c);
    cache_assert_locked(c);
    *ret = (struct seat){.entry = entry_new(dir, name, n)};
    ret->path = ret->entry && routed ? entry_path(ret->entry) : NULL;
    if (ret->entry && (ret->path || !routed) &&
        children_room(dir->dir->children, &ret->room) == 0)
        return 0;
    seat_release(ret);
    return -ENOMEM;
}

/* What the routes make of the name is the same for all that comes here with a directory, which
 * is moved only to where the same routes lead on. */
struct entry *seat_enter_locked(struct cache *c, struct seat *s)
{
    struct entry *e = take_ptr(s->entry);

    ns_assert_written(c);
    cache_assert_locked(c);
    if (s->path)
        entry_take_route_locked(c, e, s->path);
    link_entry(e, &s->room);
    seat_release(s);
    return e;
}

struct entry *entry_add_locked(struct cache *c, struct node *dir, const char *name,
                               struct node *n)
{
    struct seat s;

    return seat_take_locked(c, dir, name, n, &s) == 0 ? seat_enter_locked(c, &s) : NULL;
}

void entry_remove_locked(struct cache *c, struct entry *e)
{
    struct node *n = e->node;

    ns_assert_written(c);
    cache_assert_locked(c);
    unlink_entry(e);
    if (!n->links && n->dir)
        n->flags |= NODE_REMOVED;
    if (!n->links && n->nlookup)
        detached_add_locked(c, n);
    if (!n->links)
        c->tree->own->hooks.nameless(c, n);
    entry_ends_locked(e);
    place_free(&e->source);
    free(e);
    node_collect_locked(c, n);
}

struct entry *entry_move_locked(struct cache *c, struct entry *old, struct seat *s)
{
    struct entry *e = seat_enter_locked(c, s);

    entry_taken_along_locked(e, old);
    e->source = place_take(&old->source);
    unlink_entry(old);
    free(old);
    return e;
}
