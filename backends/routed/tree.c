/* All that is below a directory of the mount: route by route, level by level down to the root
 * of the route's rest, whose subtree is one listing. Of a level only the names are kept that
 * are to be asked for, until they were; all levels together have a limit, since a server can
 * name directories without end. */
#include "backends/routed/routed_impl.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct walking {
    struct routed *r;
    struct op *op;
    const char *prefix;
    const struct route *route; /* whose paths are walked now */
    int64_t patience_ns;       /* with each answer */
    uint64_t kept_bytes;       /* of the names of all levels */
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

/* What the source has there, if anything. */
static int list(struct walking *w, const struct source_of *s, unsigned flags, store_visit visit,
                void *arg)
{
    struct op_notes notes = {0}, *theirs = w->op->notes;

    move_deadline(w);
    w->op->notes = &notes;
    int err = store_list(s->leaf->store, w->op, s->s.key, flags, visit, arg);
    w->op->notes = theirs;
    w->hidden_by_leaves += notes.hidden_names;
    return err == -ENOENT ? 0 : err;
}

static int walk_subtree(struct walking *w, const struct source_of *s, const char *dir)
{
    struct subtree t = {w, dir, !s->s.key[0]};
    int err = strcmp(dir, w->prefix) != 0 ? visit_own(w, s, dir) : 0;

    return err ? err : list(w, s, LIST_RECURSIVE, visit_below, &t);
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

static int walk_to(struct walking *w, const char *path, enum routes_as as)
{
    return as == ROUTES_DIRECTORY ? walk(w, path) : visit_object(w, path);
}

/* ---- a level ---- */

/* Kept names: how each is walked to, the name, and a NUL. */
#define KEPT_DIRECTORY 'd'
#define KEPT_OBJECT    'o'

struct level {
    struct walking *walking;
    const struct source_of *source;
    const char *dir;
    struct buf kept;
};

static int keep_name(struct level *l, const char *name, enum routes_as as)
{
    struct walking *w = l->walking;

    int err = buf_addc(&l->kept, as == ROUTES_DIRECTORY ? KEPT_DIRECTORY : KEPT_OBJECT);
    if (!err)
        err = buf_add(&l->kept, name, strlen(name) + 1);
    if (err == -EFBIG)
        return op_fail(w->op, err,
                       "list %.200s: the names of the directories that store \"%.60s\" has "
                       "there, on the way to %.60s, take more than %" PRIu64 " MiB: look "
                       "whether they belong there",
                       w->prefix, l->source->leaf->name, w->route->path.text,
                       w->r->names_max >> 20);
    return err ? no_memory(w) : 0;
}

/* What can be visited is; where the store has to be asked again, the listing ends first. */
static int take_name(void *arg, const char *stored, const struct object *obj)
{
    struct level *l = arg;
    struct walking *w = l->walking;
    struct child child = {0};
    int taken = source_takes(w->r, l->source, l->dir, stored, obj->is_prefix, &child);
    auto_free char *name = child.name;

    if (taken <= 0)
        return taken < 0 ? no_memory(w) : 0;
    move_deadline(w);
    if (child.as == ROUTES_DIRECTORY || child.doubted)
        return keep_name(l, name, child.as);
    auto_free char *path = path_join(l->dir, name);
    return path ? w->visit(w->arg, path_below(w->prefix, path), obj) : no_memory(w);
}

static int walk_kept(struct level *l)
{
    int err = 0;

    for (size_t at = 0; at < l->kept.len && !err; at += strlen(l->kept.data + at) + 1) {
        const char *name = l->kept.data + at;
        auto_free char *path = path_join(l->dir, name + 1);
        if (!path)
            return no_memory(l->walking);
        err = walk_to(l->walking, path,
                      *name == KEPT_DIRECTORY ? ROUTES_DIRECTORY : ROUTES_OBJECT);
    }
    return err;
}

static int walk_listing(struct walking *w, const struct source_of *s, const char *dir)
{
    struct level l = {w, s, dir, BUF_INIT(w->r->names_max - w->kept_bytes)};

    int err = list(w, s, 0, take_name, &l);
    w->kept_bytes += l.kept.len;
    if (!err)
        err = walk_kept(&l);
    w->kept_bytes -= l.kept.len;
    buf_release(&l.kept);
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
    return walk_to(w, path, s->s.as);
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
    tell_hidden(r, op, w.hidden_by_leaves, 0);
    return err;
}
