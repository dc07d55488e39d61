/* What changes objects and directories, each in the leaf of its path. */
#include "backends/routed/routed_impl.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

/* ---- objects ---- */

int routed_put(struct store *s, struct op *op, const char *path, const char *etag,
               struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    auto_target struct target t = {0};

    int err = target_to_change(routed_of(s), op, "put", path, ROUTES_OBJECT, &t);
    if (err < 0)
        return err;
    return store_put(t.leaf->store, op, t.key, etag, src, attrs, ret_obj);
}

/* The requester's account of sessions is in paths and in tokens that it can resume. */
struct path_sessions {
    struct store_sessions base;
    struct store_sessions *theirs;
    const struct leaf *leaf;
    const char *path;
};

static int session_begun(struct store_sessions *s, const char *key, const char *token)
{
    struct path_sessions *p = container_of(s, struct path_sessions, base);
    auto_free char *own = token ? token_of(p->leaf, token) : NULL;

    (void)key;
    if (token && !own)
        return -ENOMEM;
    return p->theirs->begun(p->theirs, p->path, own);
}

static void session_ended(struct store_sessions *s)
{
    struct path_sessions *p = container_of(s, struct path_sessions, base);

    p->theirs->ended(p->theirs);
}

/* The notes that the leaf gets instead of the op's; `p` and `ret` are the caller's memory. */
static void notes_of_path(struct path_sessions *p, struct op *op, const struct target *t,
                          const char *path, struct op_notes *ret)
{
    *p = (struct path_sessions){
        {session_begun, session_ended}, op->notes ? op->notes->sessions : NULL, t->leaf, path};
    *ret = (struct op_notes){.sessions = p->theirs ? &p->base : NULL};
}

static int across(struct op *op, const char *what, const char *from, const char *to)
{
    return op_fail(op, -EXDEV, "%s %.120s to %.120s: they are in two stores", what, from, to);
}

int routed_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                const char *to, const char *to_etag, const struct attrs *attrs,
                struct object *ret_obj)
{
    struct routed *r = routed_of(s);
    auto_target struct target source = {0}, t = {0};
    struct op_notes notes, *theirs = op->notes;
    struct path_sessions sessions;

    int err = target_find(r, op, from, ROUTES_OBJECT, &source);
    if (!err)
        err = target_to_change(r, op, "copy to", to, ROUTES_OBJECT, &t);
    if (err)
        return err;
    if (source.kind != ROUTES_MAPPED)
        return no_route(op, -ENOENT, "copy", from);
    if (source.leaf != t.leaf)
        return across(op, "copy", from, to);
    notes_of_path(&sessions, op, &t, to, &notes);
    op->notes = &notes;
    err = store_copy(t.leaf->store, op, source.key, from_etag, t.key, to_etag, attrs, ret_obj);
    op->notes = theirs;
    return err;
}

/* ---- directories of a key that are none of the mount ---- */

/* Components of the route's key that stand before the one with the name of the object itself: 1
 * of "in/{a}/model.pt" for "m/{a}.pt". SIZE_MAX: none has it, or it is no route to objects. */
static size_t shared_components(const struct route *route)
{
    const struct template *path = &route->path, *key = &route->key;
    const char *name = path->rest ? NULL : path->components[path->n - 1].capture;

    for (size_t i = 0; name && i < key->n; i++)
        if (key->components[i].capture && strcmp(key->components[i].capture, name) == 0)
            return i;
    return SIZE_MAX;
}

/* Cuts the last component; how many are left. */
static size_t cut_component(char *key)
{
    key[path_parent_len(key)] = '\0';
    return depth_of(key);
}

/* Whether a path of the mount names the directory, which has `depth` components, by the key of
 * another route of the store. */
static bool is_named_by_another(const struct routed *r, const struct target *gone,
                                const char *key, size_t depth)
{
    for (size_t i = 0; i < r->routes->n; i++) {
        const struct route *other = &r->routes->items[i];
        if (other != gone->route && !other->scratch && &r->leaves[other->store] == gone->leaf &&
            template_leads_through(&other->key, key) && depth <= shared_components(other))
            return true;
    }
    return false;
}

/* Where directories are real, an upload made those that only this object needed. No path leads
 * to them, so nobody could remove them later. They are empty when the object was the last one;
 * that one is left costs a question in listings and nothing else, so a failure is not told. */
static void drop_own_directories(const struct routed *r, const struct op *op,
                                 const struct target *gone)
{
    auto_free char *key = strdup(gone->key);
    size_t shared = gone->route ? shared_components(gone->route) : SIZE_MAX, depth;
    struct store *store = gone->leaf->store;

    if (!key || shared == SIZE_MAX || !store_can(store, key, STORE_DIRS))
        return;
    while ((depth = cut_component(key)) > shared && !is_named_by_another(r, gone, key, depth)) {
        struct op own = *op;
        own.notes = NULL;
        if (store_rmdir(store, &own, key) < 0)
            return;
    }
}

/* ---- removal, which takes keys of several leaves at once ---- */

struct group {
    const char **keys, **etags;
    size_t *at; /* where the key stands among the caller's */
    int *errs;
    size_t n;
    struct leaf *leaf;
    int r;
    struct op op;
};

struct removing {
    struct crowd crowd; /* a call a group */
    const struct routed *routed;
    struct group *groups;
    struct target *targets;
    size_t n; /* keys */
    bool conditional;
};

static void removing_release(struct removing *m)
{
    for (size_t i = 0; m->targets && i < m->n; i++)
        target_done(&m->targets[i]);
    for (size_t i = 0; m->groups && i < m->crowd.n; i++) {
        free(m->groups[i].keys);
        free(m->groups[i].etags);
        free(m->groups[i].at);
        free(m->groups[i].errs);
    }
    free(m->targets);
    free(m->groups);
}

static int group_new(struct group *g, struct leaf *leaf, size_t n)
{
    *g = (struct group){.keys = calloc(n, sizeof(*g->keys)),
                        .etags = calloc(n, sizeof(*g->etags)),
                        .at = calloc(n, sizeof(*g->at)),
                        .errs = calloc(n, sizeof(*g->errs)),
                        .leaf = leaf};
    return g->keys && g->etags && g->at && g->errs ? 0 : -ENOMEM;
}

static struct group *group_of(struct removing *m, struct leaf *leaf)
{
    size_t i = 0;

    while (i < m->crowd.n && m->groups[i].leaf != leaf)
        i++;
    if (i < m->crowd.n)
        return &m->groups[i];
    m->crowd.n++; /* half-built ones are freed, too */
    return group_new(&m->groups[i], leaf, m->n) < 0 ? NULL : &m->groups[i];
}

static struct leaf *leaf_of_group(struct crowd *crowd, size_t i)
{
    return container_of(crowd, struct removing, crowd)->groups[i].leaf;
}

static void remove_group(struct crowd *crowd, size_t i, struct op *op)
{
    struct removing *m = container_of(crowd, struct removing, crowd);
    struct group *g = &m->groups[i];
    enum { UNTOLD = 1 };

    for (size_t j = 0; j < g->n; j++)
        g->errs[j] = UNTOLD;
    g->op = *op;
    g->r = store_remove(g->leaf->store, &g->op, g->keys, m->conditional ? g->etags : NULL, g->n,
                        g->errs);
    for (size_t j = 0; j < g->n; j++)
        if (g->errs[j] == UNTOLD)
            g->errs[j] = g->r;
    for (size_t j = 0; j < g->n; j++)
        if (g->errs[j] == 0)
            drop_own_directories(m->routed, op, &m->targets[g->at[j]]);
}

/* What no route leads to is not there. */
static int group_keys(struct routed *r, struct removing *m, struct op *op,
                      const char *const *paths, const char *const *etags)
{
    for (size_t i = 0; i < m->n; i++) {
        struct target *t = &m->targets[i];
        int err = target_find(r, op, paths[i], ROUTES_OBJECT, t);
        if (err < 0)
            return err;
        if (t->kind != ROUTES_MAPPED)
            continue;
        struct group *g = group_of(m, t->leaf);
        if (!g)
            return op_fail(op, -ENOMEM, "remove %.200s: no memory", paths[i]);
        g->keys[g->n] = t->key;
        g->etags[g->n] = etags ? etags[i] : NULL;
        g->at[g->n++] = i;
    }
    return 0;
}

/* The first failure in the order of the groups; op->why is its. */
static int told_by_groups(const struct removing *m, struct op *op, int *errs)
{
    int first = 0;

    for (size_t i = 0; errs && i < m->n; i++)
        errs[i] = 0;
    for (size_t i = 0; i < m->crowd.n; i++) {
        const struct group *g = &m->groups[i];
        for (size_t j = 0; errs && j < g->n; j++)
            errs[g->at[j]] = g->errs[j];
        op->left_behind = op->left_behind || g->op.left_behind;
        if (g->r >= 0 || first)
            continue;
        op->retry_after_ns = g->op.retry_after_ns;
        first = op_fail(op, g->r, "%s", g->op.why);
    }
    return first;
}

int routed_remove(struct store *s, struct op *op, const char *const *paths,
                  const char *const *etags, size_t n, int *errs)
{
    struct routed *r = routed_of(s);
    struct removing m = {.crowd.run = remove_group,
                         .crowd.leaf = leaf_of_group,
                         .routed = r,
                         .groups = calloc(r->n, sizeof(*m.groups)),
                         .targets = calloc(n, sizeof(*m.targets)),
                         .n = n,
                         .conditional = etags != NULL};

    int err = m.groups && m.targets
                  ? group_keys(r, &m, op, paths, etags)
                  : op_fail(op, -ENOMEM, "remove %.200s: no memory", paths[0]);
    if (!err) {
        if (m.crowd.n)
            crowd_run(&m.crowd, op);
        err = told_by_groups(&m, op, errs);
    }
    removing_release(&m);
    return err;
}

/* ---- rename ---- */

/* One key is behind the path, whether it is an object or a directory, and nothing else is
 * there.
 */
static int find_alone(struct routed *r, struct op *op, const char *path, struct target *ret)
{
    auto_target struct target object = {0}, dir = {0};

    int err = target_to_change(r, op, "rename", path, ROUTES_OBJECT, &object);
    if (err < 0 && err != -EPERM)
        return err;
    int dir_err = target_find(r, op, path, ROUTES_DIRECTORY, &dir);
    if (dir_err < 0)
        return dir_err;
    if (dir.kind == ROUTES_NOWHERE) {
        SWAP(*ret, object);
        return err;
    }
    if (routes_fixed(r->routes, path))
        return op_fail(op, -EBUSY, "rename %.200s: a route makes this directory", path);
    if (dir.kind != ROUTES_MAPPED || (!err && object.route != dir.route) ||
        !is_alone(r, dir.route, path))
        return op_fail(op, -EOPNOTSUPP, "rename %.200s: several routes lead there", path);
    SWAP(*ret, dir);
    return 0;
}

/* An object needs no more than its own route where it goes: a directory of that name would be
 * made of several, or an object of it be in another store. */
static int find_for_object(struct routed *r, struct op *op, const struct target *source,
                           const char *to, struct target *ret)
{
    struct object obj = {0};

    int err = store_stat(source->leaf->store, op, source->key, &obj);
    bool dir = !err && obj.is_prefix;
    object_release(&obj);
    if (dir)
        return op_fail(op, -EOPNOTSUPP, "rename %.200s: several routes lead there", to);
    return err ? err : target_to_change(r, op, "rename", to, ROUTES_OBJECT, ret);
}

int routed_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    struct routed *r = routed_of(s);
    auto_target struct target source = {0}, t = {0};

    int err = find_alone(r, op, from, &source);
    if (!err)
        err = find_alone(r, op, to, &t);
    if (err == -EOPNOTSUPP && source.leaf)
        err = find_for_object(r, op, &source, to, &t);
    if (err)
        return err;
    if (source.leaf != t.leaf)
        return across(op, "rename", from, to);
    err = store_rename(t.leaf->store, op, source.key, t.key);
    if (!err || err == -ENOENT) /* or of a rename that had happened */
        drop_own_directories(r, op, &source);
    return err;
}

/* ---- directories ---- */

static int not_stored(struct op *op, const char *what, const char *path)
{
    return op_fail(op, -EPERM,
                   "%s %.200s: the directory is on the way of routes, and no store keeps it",
                   what, path);
}

int routed_mkdir(struct store *s, struct op *op, const char *path, const struct attrs *attrs,
                 struct object *ret_obj)
{
    auto_target struct target t = {0};

    int err = target_to_change(routed_of(s), op, "mkdir", path, ROUTES_DIRECTORY, &t);
    if (err < 0)
        return err;
    if (t.kind == ROUTES_FIXED)
        return op_fail(op, -EEXIST, "mkdir %.200s: a route makes this directory", path);
    if (t.kind != ROUTES_MAPPED)
        return not_stored(op, "mkdir", path);
    return store_mkdir(t.leaf->store, op, t.key, attrs, ret_obj);
}

struct removed_dir {
    struct leaf *leaf;
    char *key; /* heap */
};

struct rmdirs {
    struct routed *r;
    struct removed_dir *v; /* heap */
    size_t n, cap;
    size_t roots; /* the first of them: those of routes_each_root() */
};

static void rmdirs_release(struct rmdirs *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->v[i].key);
    free(d->v);
}

static int add_rmdir(struct rmdirs *d, struct leaf *leaf, const char *key, size_t len)
{
    auto_free char *copy = strndup(key, len);

    if (!copy || array_grow(d->v, d->cap, d->n + 1) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].leaf == leaf && strcmp(d->v[i].key, copy) == 0)
            return 0;
    d->v[d->n++] = (struct removed_dir){leaf, take_ptr(copy)};
    return 0;
}

static int add_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    struct rmdirs *d = arg;

    if (as == ROUTES_OBJECT || !key[0] || key_is_reserved(key))
        return 0;
    return add_rmdir(d, &d->r->leaves[store], key, strlen(key));
}

static bool is_below_a_root(const struct rmdirs *d, const struct leaf *leaf, const char *key)
{
    for (size_t i = 0; i < d->roots; i++) {
        const char *below = d->v[i].leaf == leaf ? path_below(d->v[i].key, key) : NULL;
        if (below && below[0])
            return true;
    }
    return false;
}

/* What the key has between the directory's own part and its children. */
static int add_between(struct rmdirs *d, const struct source_of *s)
{
    auto_free char *key = strdup(s->s.key);
    int err = key ? 0 : -ENOMEM;

    if (key && s->s.name)
        key[path_parent_len(key)] = '\0';
    while (!err && is_below_a_root(d, s->leaf, key)) {
        err = add_rmdir(d, s->leaf, key, strlen(key));
        key[path_parent_len(key)] = '\0';
    }
    return err;
}

static int find_rmdirs(struct rmdirs *d, const char *path)
{
    auto_sources struct sources sources = {0};

    int err = routes_each_root(d->r->routes, path, add_root, d);
    d->roots = d->n;
    if (!err)
        err = sources_find(d->r, path, &sources);
    for (size_t i = 0; i < sources.n && !err; i++)
        err = add_between(d, &sources.v[i]);
    return err;
}

static int deepest_first(const void *a, const void *b)
{
    size_t l = strlen(((const struct removed_dir *)a)->key);
    size_t r = strlen(((const struct removed_dir *)b)->key);

    return l < r ? 1 : l > r ? -1 : 0;
}

static int rmdir_all(struct routed *r, struct op *op, const char *path)
{
    struct rmdirs d = {.r = r};
    int err = find_rmdirs(&d, path);

    if (err < 0)
        err = op_fail(op, err, "rmdir %.200s: %s", path, strerror(-err));
    if (!err && d.n)
        qsort(d.v, d.n, sizeof(*d.v), deepest_first);
    for (size_t i = 0; i < d.n && !err; i++)
        err = store_rmdir(d.v[i].leaf->store, op, d.v[i].key);
    rmdirs_release(&d);
    return err;
}

/* As at one store, the marker of a directory that is not empty goes, and what is in it stands
 * for it: who comes to the name would else take its attributes from there. A folder's directory
 * stays. */
static int rmdir_marker(struct op *op, const struct target *t, const char *path)
{
    if (t->kind == ROUTES_MAPPED && !store_can(t->leaf->store, t->key, STORE_DIRS))
        return store_rmdir(t->leaf->store, op, t->key);
    return op_fail(op, -ENOTEMPTY, "rmdir %.200s: it is not empty", path);
}

int routed_rmdir(struct store *s, struct op *op, const char *path)
{
    struct routed *r = routed_of(s);
    auto_target struct target t = {0};

    int err = target_find(r, op, path, ROUTES_DIRECTORY, &t);
    if (err < 0 || t.kind == ROUTES_NOWHERE)
        return err;
    if (routes_fixed(r->routes, path))
        return op_fail(op, -EBUSY, "rmdir %.200s: a route makes this directory", path);
    if (t.kind == ROUTES_MAPPED && !t.key[0])
        return op_fail(op, -EBUSY, "rmdir %.200s: it is the root of a store", path);
    if (t.kind == ROUTES_MAPPED && is_alone(r, t.route, path))
        return rmdir_all(r, op, path);
    err = store_list(s, op, path, 0, stop_at_first, NULL);
    if (err == 1)
        return rmdir_marker(op, &t, path);
    return err < 0 && err != -ENOENT ? err : rmdir_all(r, op, path);
}

/* ---- attributes ---- */

/* Where the object and the directory may be two things it is asked which is there. */
static int find_with_attributes(struct routed *r, struct op *op, const char *path,
                                struct target *ret, bool *ret_dir)
{
    auto_target struct target dir = {0};
    struct object obj;

    *ret_dir = false;
    int err = path[0] ? target_find(r, op, path, ROUTES_OBJECT, ret) : 0;
    if (!err)
        err = target_find(r, op, path, ROUTES_DIRECTORY, &dir);
    if (err < 0)
        return err;
    if (ret->kind == ROUTES_MAPPED &&
        (dir.kind == ROUTES_NOWHERE ||
         (dir.route == ret->route && is_alone(r, dir.route, path))))
        return 0;
    err = routed_stat(&r->base, op, path, &obj);
    if (err < 0)
        return err;
    object_release(&obj);
    if (!obj.is_prefix)
        return 0;
    *ret_dir = true;
    SWAP(*ret, dir);
    return 0;
}

int routed_set_attributes(struct store *s, struct op *op, const char *path, const char *etag,
                          const struct attrs *attrs, struct object *ret_obj)
{
    auto_target struct target t = {0};
    struct op_notes notes, *theirs = op->notes;
    struct path_sessions sessions;
    bool dir;

    int err = find_with_attributes(routed_of(s), op, path, &t, &dir);
    if (err)
        return err;
    if (t.kind != ROUTES_MAPPED)
        return not_stored(op, "setattr", path);
    notes_of_path(&sessions, op, &t, path, &notes);
    op->notes = &notes;
    err = store_set_attributes(t.leaf->store, op, t.key, etag, attrs, ret_obj);
    /* Other stores make it exist, and the one of its own key has nothing of it yet. */
    if (err == -ENOENT && dir && !etag)
        err = store_mkdir(t.leaf->store, op, t.key, attrs, ret_obj);
    op->notes = theirs;
    return err;
}
