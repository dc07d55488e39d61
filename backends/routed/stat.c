/* Whether a path is there, as what, and the content behind it. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

struct existing {
    struct routed *r;
    struct asks asks;
    bool own;                 /* asks for the own objects of directories */
    const struct target *but; /* was asked already */
};

static int add_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    struct existing *e = arg;
    struct leaf *leaf = &e->r->leaves[store];
    size_t at;

    if (key_is_reserved(key) || (e->own && as == ROUTES_OBJECT) ||
        (e->but->kind == ROUTES_MAPPED && e->but->leaf == leaf &&
         strcmp(e->but->key, key) == 0))
        return 0;
    return asks_add(&e->asks,
                    as == ROUTES_OBJECT ? ASK_OBJECT
                    : e->own            ? ASK_OWN
                                        : ASK_DIRECTORY,
                    leaf, key, &at);
}

/* Of a directory that routes lead through: 1 and what is told of it when a leaf has one of its
 * keys, `but` this one. */
static int exists_somewhere(struct routed *r, struct op *op, const char *path, bool own,
                            const struct target *but, struct object *ret_obj)
{
    struct existing e = {r, {0}, own, but};
    int found = 0;

    int err = routes_each_root(r->routes, path, add_root, &e);
    if (err == -ENOMEM)
        err = op_fail(op, err, "stat %.200s: no memory", path);
    else /* a name that is written in no store leads to none */
        err = asks_run(&e.asks, op, op->hasty && !own ? ASKS_FOUND : ASKS_ALL);
    for (size_t i = 0; i < e.asks.n && !found; i++) {
        const struct ask *a = &e.asks.v[i];
        if (!a->done || a->r < 0)
            continue;
        *ret_obj = implied_object(&a->obj);
        ret_obj->has_marker = own;
        found = 1;
    }
    asks_release(&e.asks);
    return found ? 1 : err;
}

static int not_there(struct op *op, const char *path)
{
    return op_fail(op, -ENOENT, "stat %.200s: not there", path);
}

/* What may be there, of the own key and of all that make a directory exist. */
static int look_asks(struct existing *e, struct op *op, const char *path)
{
    size_t at;

    int err = asks_add(&e->asks, ASK_EITHER, e->but->leaf, e->but->key, &at);
    if (!err)
        err = routes_each_root(e->r->routes, path, add_root, e);
    if (err == -ENOMEM)
        return op_fail(op, err, "stat %.200s: no memory", path);
    return asks_run(&e->asks, op, ASKS_FOUND);
}

/* As stat_mapped(), for who is content with what one store has: another one that does not
 * answer hides neither its directory nor its object. */
static int look_mapped(struct routed *r, struct op *op, const char *path,
                       const struct target *t, struct object *ret_obj)
{
    struct existing e = {.r = r, .but = t};
    const struct ask *found = NULL;

    int err = look_asks(&e, op, path);
    for (size_t i = 0; i < e.asks.n; i++) {
        const struct ask *a = &e.asks.v[i];
        bool there = a->done && a->r == 0;
        if (there && (!found || (found->kind == ASK_EITHER && !found->obj.is_prefix)))
            found = a;
    }
    if (found && found->kind == ASK_EITHER) {
        *ret_obj = found->obj;
        e.asks.v[0].obj = (struct object){0}; /* taken */
    } else if (found) {
        *ret_obj = implied_object(&found->obj);
        ret_obj->attrs_known = e.asks.v[0].done && e.asks.v[0].r == -ENOENT;
    }
    asks_release(&e.asks);
    return found ? 0 : err ? err : not_there(op, path);
}

/* One key for both, which one question settles but for directories that other leaves have. */
static int stat_mapped(struct routed *r, struct op *op, const char *path,
                       const struct target *t, struct object *ret_obj)
{
    bool fixed = routes_fixed(r->routes, path);
    struct object dir, obj;

    if (op->hasty && !fixed)
        return look_mapped(r, op, path, t, ret_obj);
    int err = store_stat(t->leaf->store, op, t->key, &obj);
    if (!err && obj.is_prefix)
        *ret_obj = obj;
    bool failed = err < 0 && err != -ENOENT && !op->hasty;
    if (failed || (!err && obj.is_prefix))
        return err;
    int found = fixed ? 1 : exists_somewhere(r, op, path, false, t, &dir);
    if (fixed)
        dir = implied_object(NULL);
    if (!err && found == 0) {
        *ret_obj = obj;
        return 0;
    }
    if (!err)
        object_release(&obj);
    if (found > 0)
        *ret_obj = dir;
    if (found > 0 && op->notes)
        op->notes->elsewhere = true;
    return found > 0 ? 0 : found < 0 ? found : not_there(op, path);
}

static int stat_directory(struct routed *r, struct op *op, const char *path,
                          const struct target *dir, struct object *ret_obj)
{
    int err = -ENOENT;

    if (dir->kind == ROUTES_NOWHERE)
        return no_route(op, -ENOENT, "stat", path);
    if (dir->kind == ROUTES_MAPPED)
        err = stat_mapped(r, op, path, dir, ret_obj);
    if (!err && !ret_obj->is_prefix) {
        object_release(ret_obj);
        return not_there(op, path);
    }
    if (dir->kind == ROUTES_MAPPED)
        return err;
    if (dir->kind == ROUTES_FIXED) {
        *ret_obj = implied_object(NULL);
        return 0;
    }
    int found = exists_somewhere(r, op, path, false, dir, ret_obj);
    return found > 0 ? 0 : found < 0 ? found : not_there(op, path);
}

/* The object and the directory are two things, and the directory is shown. */
static int stat_apart(struct routed *r, struct op *op, const char *path,
                      const struct target *object, const struct target *dir,
                      struct object *ret_obj)
{
    int err = stat_directory(r, op, path, dir, ret_obj);

    if (err != -ENOENT || object->kind != ROUTES_MAPPED || !object->leaf)
        return err;
    err = store_stat(object->leaf->store, op, object->key, ret_obj);
    if (err < 0 || !ret_obj->is_prefix)
        return err;
    object_release(ret_obj);
    return not_there(op, path);
}

static bool are_one(const struct target *object, const struct target *dir)
{
    return object->kind == ROUTES_MAPPED && dir->kind == ROUTES_MAPPED &&
           object->leaf == dir->leaf && strcmp(object->key, dir->key) == 0;
}

int routed_stat(struct store *s, struct op *op, const char *path, struct object *ret_obj)
{
    struct routed *r = routed_of(s);
    auto_target struct target object = {0}, dir = {0};

    int err = path[0] ? target_find(r, op, path, ROUTES_OBJECT, &object) : 0;
    if (!err)
        err = target_find(r, op, path, ROUTES_DIRECTORY, &dir);
    if (err < 0)
        return err;
    if (object.leaf && !object.route)
        return store_stat(object.leaf->store, op, object.key, ret_obj);
    /* The root is a directory only. */
    bool one = path[0] ? are_one(&object, &dir) : dir.kind == ROUTES_MAPPED;
    return one ? stat_mapped(r, op, path, &dir, ret_obj)
               : stat_apart(r, op, path, &object, &dir, ret_obj);
}

int routed_stat_dir(struct store *s, struct op *op, const char *path, struct object *ret_obj)
{
    struct routed *r = routed_of(s);
    auto_target struct target dir = {0};

    int err = target_find(r, op, path, ROUTES_DIRECTORY, &dir);
    if (err < 0)
        return err;
    if (dir.kind == ROUTES_MAPPED)
        return store_stat_dir(dir.leaf->store, op, dir.key, ret_obj);
    int found =
        dir.kind == ROUTES_IMPLIED ? exists_somewhere(r, op, path, true, &dir, ret_obj) : 0;
    if (found < 0)
        return found;
    return found ? 0 : op_fail(op, -ENOENT, "stat %.200s: no object of its own", path);
}

ssize_t routed_read(struct store *s, struct op *op, const char *path, const char *etag,
                    struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    struct routed *r = routed_of(s);
    auto_target struct target t = {0};

    int err = target_find(r, op, path, ROUTES_OBJECT, &t);
    if (err < 0)
        return err;
    if (t.kind != ROUTES_MAPPED)
        return no_route(op, -ENOENT, "read", path);
    return store_read(t.leaf->store, op, t.key, etag, sink, len, off, ret_obj);
}
