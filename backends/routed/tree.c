/* All that is below a directory of the mount: route by route, level by level down to the root
 * of the route's rest, whose subtree is one listing. A leaf's directory is asked once, however
 * many routes read it. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

struct walking {
    struct routed *r;
    struct op *op;
    const char *prefix;
    const struct route *route; /* whose paths are walked now */
    int64_t patience_ns;       /* with each answer */
    struct asks asks;
    uint64_t hidden_by_leaves;
    store_visit visit;
    void *arg;
};

static int no_memory(struct walking *w)
{
    return op_fail(w->op, -ENOMEM, "list %.200s: no memory for its names", w->prefix);
}

/* A walk asks as often as there are directories on the way, however many those are: each
 * answer, and each name of a long one, gives the stores as much time again as the caller did. A
 * name that is not shown gives none, since nobody counts those: a store can name them without
 * end. */
static void move_deadline(struct walking *w)
{
    if (w->op->deadline_ns != OP_FOREVER)
        w->op->deadline_ns = clock_mono_ns() + w->patience_ns;
}

/* ---- the subtree of a mapped directory ---- */

struct subtree {
    struct walking *walking;
    const char *dir; /* path in the mount */
    bool at_root;    /* of the leaf, where its own state may be seen */
};

static int visit_below(void *arg, const char *name, const struct object *obj)
{
    struct subtree *t = arg;
    struct walking *w = t->walking;
    auto_free char *path = path_join(t->dir, name);

    if (!path)
        return no_memory(w);
    if (t->at_root && key_is_reserved(name))
        return 0;
    if (strlen(path) >= STORE_KEY_MAX ||
        routes_shadowed(w->r->routes, w->route, path,
                        obj->is_prefix ? ROUTES_DIRECTORY : ROUTES_OBJECT))
        return 0;
    move_deadline(w);
    return w->visit(w->arg, path_below(w->prefix, path), obj);
}

/* What its parent's listing did not tell: whether it has an object of its own. */
static int visit_own(struct walking *w, const struct source_of *s, const char *dir)
{
    struct object obj;

    move_deadline(w);
    int err = store_stat_dir(s->leaf->store, w->op, s->s.key, &obj);
    if (err < 0)
        return err == -ENOENT ? 0 : err;
    err = w->visit(w->arg, path_below(w->prefix, dir), &obj);
    object_release(&obj);
    return err;
}

static int walk_subtree(struct walking *w, const struct source_of *s, const char *dir)
{
    struct subtree t = {w, dir, !s->s.key[0]};
    struct op_notes notes = {0}, *theirs = w->op->notes;
    int err = 0;

    if (strcmp(dir, w->prefix) != 0)
        err = visit_own(w, s, dir);
    if (err)
        return err;
    move_deadline(w);
    w->op->notes = &notes;
    err = store_list(s->leaf->store, w->op, s->s.key, LIST_RECURSIVE, visit_below, &t);
    w->op->notes = theirs;
    w->hidden_by_leaves += notes.hidden_names;
    return err == -ENOENT ? 0 : err;
}

/* ---- the way there ---- */

static int walk(struct walking *w, const char *dir);

/* The object of the path's own key. */
static int visit_object(struct walking *w, const char *path)
{
    auto_target struct target t = {0};
    struct object obj;

    int err = target_find(w->r, w->op, path, ROUTES_OBJECT, &t);
    if (err < 0 || t.kind != ROUTES_MAPPED)
        return err;
    move_deadline(w);
    err = store_stat(t.leaf->store, w->op, t.key, &obj);
    if (err < 0)
        return err == -ENOENT ? 0 : err;
    if (!obj.is_prefix)
        err = w->visit(w->arg, path_below(w->prefix, path), &obj);
    object_release(&obj);
    return err;
}

static int walk_name(struct walking *w, const struct source_of *s, const char *dir,
                     const char *stored, const struct object *obj)
{
    struct child child = {0};
    int err = source_takes(w->r, s, dir, stored, obj->is_prefix, &child);
    auto_free char *name = child.name;
    auto_free char *path = err > 0 ? path_join(dir, name) : NULL;

    if (err <= 0)
        return err < 0 ? no_memory(w) : 0;
    if (!path)
        return no_memory(w);
    if (child.as == ROUTES_DIRECTORY)
        return walk(w, path);
    return child.doubted ? visit_object(w, path)
                         : w->visit(w->arg, path_below(w->prefix, path), obj);
}

static int walk_listing(struct walking *w, const struct source_of *s, const char *dir)
{
    size_t at;

    if (asks_add(&w->asks, ASK_LIST, s->leaf, s->s.key, &at) < 0)
        return no_memory(w);
    move_deadline(w);
    int err = asks_run(&w->asks, w->op, ASKS_FAILED);
    /* By index: more questions move the list of them. */
    for (size_t i = 0; !err && i < w->asks.v[at].n; i++) {
        const struct listed *item = &w->asks.v[at].item[i];
        err = walk_name(w, s, dir, item->name, &item->obj);
    }
    return err;
}

/* A directory is walked into without being asked for: what is below it tells enough. */
static int walk_named(struct walking *w, const struct source_of *s, const char *dir)
{
    auto_free char *path = path_join(dir, s->s.name);

    if (!path)
        return no_memory(w);
    if (routes_shadowed(w->r->routes, w->route, path, s->s.as))
        return 0;
    return s->s.as == ROUTES_DIRECTORY ? walk(w, path) : visit_object(w, path);
}

static int walk_source(struct walking *w, const struct source_of *s, const char *dir)
{
    if (s->s.name)
        return walk_named(w, s, dir);
    return is_mapped_by(s->s.route, s->s.depth) ? walk_subtree(w, s, dir)
                                                : walk_listing(w, s, dir);
}

/* What the route has below the directory. */
static int walk(struct walking *w, const char *dir)
{
    auto_sources struct sources sources = {0};

    int err = sources_find(w->r, dir, &sources);
    if (err < 0)
        return err == -ENOMEM ? no_memory(w) : 0;
    for (size_t i = 0; i < sources.n && !err; i++)
        if (sources.v[i].s.route == w->route)
            err = walk_source(w, &sources.v[i], dir);
    return err;
}

int routed_list_tree(struct routed *r, struct op *op, const char *prefix, store_visit visit,
                     void *arg)
{
    struct walking w = {.r = r,
                        .op = op,
                        .prefix = prefix,
                        .patience_ns = op_left_ns(op),
                        .visit = visit,
                        .arg = arg};
    auto_sources struct sources sources = {0};

    int err = sources_find(r, prefix, &sources);
    if (err < 0)
        return err == -ENOMEM ? no_memory(&w) : no_route(op, -ENOENT, "list", prefix);
    for (size_t i = 0; i < sources.n && !err; i++) {
        w.route = sources.v[i].s.route;
        err = walk_source(&w, &sources.v[i], prefix);
    }
    for (size_t i = 0; i < w.asks.n; i++)
        w.hidden_by_leaves += w.asks.v[i].hidden;
    asks_release(&w.asks);
    tell_hidden(r, op, w.hidden_by_leaves, 0);
    return err;
}
