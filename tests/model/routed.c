/* Routes of a sequence over several stores, and what they refuse: a name that no route takes is
 * EPERM, a directory that a route makes is EBUSY, and what would go from one store to another
 * is EXDEV, but for a file with one name of which all is here. */
#include "tests/model/model.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLES     5
#define ROWS       5
#define FIXED_MODE 0755

/* The folders of the model are d, e, g and h, its files 1 to 5. */
static const struct row {
    const char *path, *key;
    unsigned store;
    bool scratch;
} tables[TABLES][ROWS] = {
    /* Runs of several parts, in a tree that one store has. */
    {{.path = "d/{x}/e/**", .key = "{x}/**", .store = 1},
     {.path = "d/{x}/g/**", .key = "{x:hex}/**", .store = 2},
     {.path = "**", .store = 0}},
    /* Parts below any folder, and files of their own routes. */
    {{.path = "g/**", .key = "of-g/**", .store = 0},
     {.path = "{x}/1", .key = "ones/{x}.one", .store = 0},
     {.path = "{x}/h/**", .key = "{x}/parts/**", .store = 1},
     {.path = "**", .store = 2}},
    /* Names that no route takes, directories that only lead on. */
    {{.path = "d/{x}/**", .key = "{x}/**", .store = 0},
     {.path = "e/{x}/h/**", .key = "e/{x}/**", .store = 1},
     {.path = "e/{x}/1", .key = "{x}/one", .store = 2},
     {.path = "h/{x}/h/**", .key = "h/{x}/**", .store = 1}},
    /* Parts that are in no store. */
    {{.path = "h/**", .scratch = true},
     {.path = "{x}/g/**", .scratch = true},
     {.path = "d/**", .key = "**", .store = 1},
     {.path = "**", .store = 0}},
    /* Parts that are in stores, below one that is in none. */
    {{.path = "d/e/**", .key = "of-e/**", .store = 1},
     {.path = "d/g/{x}/**", .key = "g/{x:hex}/**", .store = 2},
     {.path = "d/1", .key = "one", .store = 2},
     {.path = "d/**", .scratch = true},
     {.path = "**", .store = 0}},
};

const char *const routed_names[ROUTED_STORES] = {"-a", "-b", "-c"};

/* ---- tables ---- */

static void add(struct routes *r, const struct row *row)
{
    struct template path, key;
    struct op op;

    op_init(&op, NS_PER_SEC);
    if (template_parse(row->path, TEMPLATE_PATH, &op, &path) < 0 ||
        template_parse(row->key ? row->key : row->path, TEMPLATE_KEY, &op, &key) < 0 ||
        routes_add(r, &path, &key, row->store, 0, (struct text_place){0}, &op) < 0)
        abort();
    r->items[r->n - 1].scratch = row->scratch;
}

static void must_not_overlap(const struct routes *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct route *a = &r->items[i], *b = &r->items[k];
            struct routes_overlap o;
            if (!a->scratch && !b->scratch && a->store == b->store &&
                routes_overlap(r, a, "", b, "", &o))
                abort();
        }
}

const struct routes *routed_table(uint64_t seed)
{
    static struct routes made[TABLES];
    struct routes *r = &made[seed % TABLES];
    const struct row *rows = tables[seed % TABLES];

    if (r->n)
        return r;
    for (size_t i = 0; i < ROWS && rows[i].path; i++)
        add(r, &rows[i]);
    must_not_overlap(r);
    return r;
}

/* ---- what a path is ---- */

static const struct route *route_of(const char *path, bool dir)
{
    const struct route *route;

    (void)routes_kind(stores.routes, path, dir ? ROUTES_DIRECTORY : ROUTES_OBJECT, &route);
    return route;
}

static bool is_scratch(const char *path, bool dir)
{
    const struct route *route = stores.routes ? route_of(path, dir) : NULL;

    return route && route->scratch;
}

static size_t depth_of(const char *path)
{
    size_t n = *path != '\0';

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Whether the directory is there whatever the stores have: on the way to a route, or the root
 * of a store. */
static bool is_fixed(const char *path)
{
    const struct route *route = route_of(path, true);

    if (route && route->path.rest && depth_of(path) == route->path.n &&
        !strchr(route->path.text, '{') && (route->scratch || route->key.n == 0))
        return true;
    return routes_fixed(stores.routes, path);
}

bool routed_is_local(const char *path)
{
    return stores.routes && (!route_of(path, true) || is_fixed(path));
}

bool routed_is_bare(const struct tree *t, const char *path)
{
    if (!routed_is_local(path) || is_fixed(path))
        return false;
    for (size_t i = 0; i < t->n; i++) {
        const char *below = path_below(path, t->v[i].path);
        bool dir = t->v[i].inode->kind == KIND_DIR;
        if (below && *below && route_of(t->v[i].path, dir))
            return false;
    }
    return true;
}

void routed_begin(struct tree *t)
{
    for (size_t i = 0; stores.routes && i < stores.routes->n; i++) {
        const struct template *path = &stores.routes->items[i].path;
        char at[PATH_MAX_MODEL] = "";
        for (size_t k = 0; k < path->n && !path->components[k].capture; k++) {
            size_t len = strlen(at);
            (void)snprintf(at + len, sizeof(at) - len, "%s%s", k ? "/" : "",
                           path->components[k].before);
            if (is_fixed(at) && !tree_at(t, at))
                (void)tree_add(t, at, KIND_DIR, FIXED_MODE, NULL, 0);
        }
    }
}

bool routed_outlives(struct name *name)
{
    bool dir = name->inode->kind == KIND_DIR;

    name->inode->here = false;
    if (!is_scratch(name->path, dir))
        return true;
    if (!dir || !is_fixed(name->path))
        return false;
    if (!routes_lead_through(stores.routes, name->path))
        name->inode->mode = FIXED_MODE; /* another one was made */
    return true;
}

/* ---- steps along them ---- */

enum op_kind routed_op(struct rng *rng)
{
    static const enum op_kind kinds[] = {OP_RENAME, OP_RENAME,   OP_RENAME,
                                         OP_RENAME, OP_EXCHANGE, OP_OPEN};

    return kinds[rng_below(rng, ARRAY_SIZE(kinds))];
}

bool routed_path(struct tree *t, struct rng *rng, bool dir, char letter, char *path)
{
    static const char folders[] = "degh";
    const struct route *route =
        &stores.routes->items[rng_below(rng, (unsigned)stores.routes->n)];
    const struct template *way = &route->path;
    size_t len = 0, n = way->n - (dir && !way->rest); /* the last one is an object */

    *path = '\0';
    for (size_t i = 0; i < n; i++) {
        const struct component *c = &way->components[i];
        const char any[2] = {folders[rng_below(rng, 4)]};
        bool object = i + 1 == way->n && !way->rest;
        (void)snprintf(path + len, PATH_MAX_MODEL - len, "%s%s", len ? "/" : "",
                       c->capture ? any : c->before);
        const struct name *there = tree_at(t, path);
        if (object || (dir && !there))
            return true;
        if (!there || there->inode->kind != KIND_DIR) {
            path[len] = '\0';
            break;
        }
        len = strlen(path);
    }
    (void)snprintf(path + len, PATH_MAX_MODEL - len, "%s%c", len ? "/" : "", letter);
    return true;
}

/* ---- what they refuse ---- */

static bool same_store(const char *a, const char *b)
{
    const struct route *ra = route_of(a, false), *rb = route_of(b, false);

    if (!ra || !rb)
        return false;
    return ra->scratch || rb->scratch ? ra->scratch && rb->scratch : ra->store == rb->store;
}

static bool stays(const struct inode *i, const char *from, const char *to)
{
    return i->kind == KIND_DIR ? routes_same_below(stores.routes, from, to)
                               : same_store(from, to);
}

static int new_name(const char *path, bool dir)
{
    const struct route *route;
    enum routes_as as = dir ? ROUTES_DIRECTORY : ROUTES_OBJECT;

    return routes_kind(stores.routes, path, as, &route) == ROUTES_NOWHERE ? -EPERM : 0;
}

/* A directory that changes places with another thing passes by a name beside it. */
static bool passes(const struct inode *i, const char *path)
{
    auto_free char *parent = path_parent(path);
    char beside[PATH_MAX_MODEL * 2];

    if (!parent)
        abort();
    (void)snprintf(beside, sizeof(beside), "%s%s" PATH_RESERVED "-x", parent,
                   *parent ? "/" : "");
    return stays(i, path, beside);
}

static int exchange(const struct inode *a, const struct inode *b, const struct step *s)
{
    if (is_fixed(s->to) || (a->kind == KIND_DIR && is_fixed(s->path)))
        return -EBUSY;
    if (!stays(a, s->path, s->to) || !stays(b, s->to, s->path))
        return -EXDEV;
    if (a->kind != KIND_DIR && b->kind != KIND_DIR)
        return 0;
    return passes(a, s->path) && passes(b, s->to) ? 0 : -EXDEV;
}

static size_t count_names(const struct tree *t, const struct inode *inode)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->v[i].inode == inode;
    return n;
}

static int move(const struct tree *t, const struct inode *inode, struct step *s)
{
    bool dir = inode->kind == KIND_DIR;
    int r = is_fixed(s->to) || (dir && is_fixed(s->path)) ? -EBUSY : new_name(s->to, dir);

    if (r < 0 || stays(inode, s->path, s->to))
        return r;
    s->crosses = inode->kind == KIND_FILE && count_names(t, inode) == 1 &&
                 !is_scratch(s->path, false) && !is_scratch(s->to, false);
    return s->crosses ? 0 : -EXDEV;
}

bool routed_step(struct tree *before, struct step *s, struct rng *rng, bool frozen)
{
    const struct name *name = tree_at(before, s->path), *to = tree_at(before, s->to);

    if (!stores.routes)
        return true;
    if (s->kind == OP_OPEN && (s->flags & O_CREAT))
        s->refused = new_name(s->path, false);
    else if (s->kind == OP_SYMLINK || s->kind == OP_MKDIR)
        s->refused = new_name(s->path, s->kind == OP_MKDIR);
    else if (s->kind == OP_RMDIR)
        s->refused = is_fixed(s->path) ? -EBUSY : 0;
    else if (s->kind == OP_LINK && new_name(s->to, false) < 0)
        s->refused = -EPERM;
    else if (s->kind == OP_LINK)
        s->refused = same_store(s->path, s->to) ? 0 : -EXDEV;
    else if (s->kind == OP_EXCHANGE)
        s->refused = exchange(name->inode, to->inode, s);
    else if (s->kind == OP_RENAME)
        s->refused = move(before, name->inode, s);
    /* What is refused changes nothing: seldom is enough. */
    if (s->refused && rng_below(rng, 4))
        return false;
    /* What is not here as a whole would have to be read first. */
    return !(s->crosses && frozen && !name->inode->here);
}
