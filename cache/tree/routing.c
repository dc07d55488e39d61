/* Where the routes lead a path: to a store, on the way to one, into no store, or nowhere. Their
 * table is constant, so nothing here takes a lock. */
#include "cache/tree/tree_impl.h"

#include "common/buf.h"
#include "common/mem.h"
#include "runs/policy.h"
#include "runs/routes.h"

#include <errno.h>

const struct route *path_route(struct cache *c, const char *path, bool dir)
{
    const struct route *route = NULL;
    enum routes_as as = dir ? ROUTES_DIRECTORY : ROUTES_OBJECT;

    if (!c->config.routes || routes_kind(c->config.routes, path, as, &route) != ROUTES_MAPPED)
        return NULL;
    return route;
}

const struct policy *path_policy(struct cache *c, const char *path, bool dir)
{
    const struct route *route = path_route(c, path, dir);

    return route && route->policy < c->config.n_policies ? &c->config.policies[route->policy]
                                                         : NULL;
}

struct cache_routed path_routed(struct cache *c, const char *path, bool dir)
{
    const struct cache_config *config = &c->config;
    const struct route *route = path_route(c, path, dir);
    struct cache_routed ret = {0};

    if (!route)
        return ret;
    ret.route = route->path.text;
    if (route->policy < config->n_policies)
        ret.policy = config->policies[route->policy].name;
    if (!route->scratch && route->store < config->n_stores)
        ret.store = config->stores[route->store].name;
    return ret;
}

unsigned path_volume(struct cache *c, const char *path, bool dir)
{
    const struct route *route = path_route(c, path, dir);

    return route && !route->scratch && route->store < c->config.n_stores ? route->store + 1 : 0;
}

unsigned node_volume(const struct node *n)
{
    return n->links ? n->links->volume : 0;
}

struct sharers {
    unsigned store;
    bool others;
};

static int note_sharer(void *arg, const struct routes_source *source)
{
    struct sharers *s = arg;

    s->others = s->others || (!source->route->scratch && source->route->store != s->store);
    return 0;
}

unsigned dir_lone_volume(struct cache *c, const char *path)
{
    unsigned volume = path_volume(c, path, true);
    struct sharers s = {.store = volume - 1};

    if (!volume || routes_each_source(c->config.routes, path, note_sharer, &s) < 0)
        return 0;
    return s.others ? 0 : volume;
}

bool volumes_meet(unsigned a, unsigned b)
{
    return !a || !b || a == b;
}

unsigned volumes_count(const struct cache *c)
{
    return c->config.routes ? (unsigned)c->config.n_stores + 1 : 1;
}

const char *volume_url(const struct cache *c, unsigned volume)
{
    return volume && volume <= c->config.n_stores ? c->config.stores[volume - 1].url
                                                  : c->store->url;
}

static void add_route(struct store_set *set, const struct route *route)
{
    if (route && !route->scratch)
        store_set_add(set, route->store);
}

static int add_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    (void)key, (void)as;
    store_set_add(arg, store);
    return 0;
}

static int add_source(void *arg, const struct routes_source *source)
{
    if (!source->always)
        add_route(arg, source->route);
    return 0;
}

/* Without memory some are left out, and the question waits with others. */
struct store_set stores_asked(struct cache *c, struct place at, enum question question)
{
    const struct routes *r = c->config.routes;
    const struct route *object = NULL, *dir = NULL;
    enum routes_kind kind = ROUTES_NOWHERE;
    struct store_set set = {{0}};

    if (!r || !place_known(at))
        return set;
    const char *path = place_path(at);
    if (question == QUESTION_LIST) {
        (void)routes_each_source(r, path, add_source, &set);
        return set;
    }
    if (question != QUESTION_STAT_DIR)
        (void)routes_kind(r, path, ROUTES_OBJECT, &object);
    if (question != QUESTION_READ)
        kind = routes_kind(r, path, ROUTES_DIRECTORY, &dir);
    add_route(&set, object);
    add_route(&set, dir);
    if (question == QUESTION_STAT || kind == ROUTES_IMPLIED)
        (void)routes_each_root(r, path, add_root, &set);
    return set;
}

static size_t count_components(const char *path)
{
    size_t n = *path != '\0';

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Whether the first `n` components bind no capture. */
static bool is_literal(const struct template *t, size_t n)
{
    for (size_t i = 0; i < n && i < t->n; i++)
        if (t->components[i].capture)
            return false;
    return true;
}

/* Whether the directory is the root of a route that needs no store to exist: a store's own root
 * stands behind it, or none does. */
static bool is_fixed_root(const struct route *route, const char *path)
{
    bool root = route->path.rest && count_components(path) == route->path.n &&
                is_literal(&route->path, route->path.n);

    return root && (route->scratch || route->key.n == 0);
}

enum dir_kind path_dir_kind(struct cache *c, const char *path)
{
    const struct route *route = NULL;

    if (!c->config.routes)
        return DIR_STORED;
    switch (routes_kind(c->config.routes, path, ROUTES_DIRECTORY, &route)) {
    case ROUTES_FIXED:
    case ROUTES_IMPLIED:
        return DIR_IMPLIED;
    case ROUTES_MAPPED:
        if (route->scratch)
            return routes_lead_through(c->config.routes, path) ? DIR_IMPLIED : DIR_SCRATCH;
        return is_fixed_root(route, path) ? DIR_IMPLIED : DIR_STORED;
    case ROUTES_NOWHERE:
        break;
    }
    return DIR_STORED;
}

bool path_is_fixed(struct cache *c, const char *path)
{
    const struct route *route = path_route(c, path, true);

    return c->config.routes &&
           ((route && is_fixed_root(route, path)) || routes_fixed(c->config.routes, path));
}

void dir_take_route(struct cache *c, struct dir *d, const char *path)
{
    d->kind = (uint8_t)path_dir_kind(c, path);
    d->fixed = path_is_fixed(c, path);
}

static bool leads_to_a_store(const struct routes *r, const char *path, enum routes_as as)
{
    const struct route *route;
    enum routes_kind kind = routes_kind(r, path, as, &route);

    if (!route || !route->scratch)
        return kind != ROUTES_NOWHERE;
    return as == ROUTES_DIRECTORY && routes_lead_through(r, path);
}

bool path_is_in_no_store(struct cache *c, const char *path)
{
    const struct routes *r = c->config.routes;

    return r && !leads_to_a_store(r, path, ROUTES_OBJECT) &&
           !leads_to_a_store(r, path, ROUTES_DIRECTORY);
}

static int differs(void *arg, const struct routes_source *source)
{
    unsigned *store = arg;

    if (source->always)
        return 0;
    if (*store && *store != source->route->store + 1)
        return 1;
    *store = source->route->store + 1;
    return 0;
}

bool path_is_joint(struct cache *c, const char *path)
{
    unsigned store = 0;

    return c->config.routes && c->config.n_stores > 1 &&
           routes_each_source(c->config.routes, path, differs, &store) == 1;
}

static int is_second(void *arg, unsigned store, const char *key, enum routes_as as)
{
    unsigned *n = arg;

    (void)store, (void)key, (void)as;
    return ++*n > 1;
}

bool path_may_lack_key(struct cache *c, const char *path)
{
    unsigned n = 0;

    return c->config.routes && (routes_fixed(c->config.routes, path) ||
                                routes_each_root(c->config.routes, path, is_second, &n) != 0);
}

bool path_is_scratch(struct cache *c, const char *path)
{
    const struct route *route = path_route(c, path, false);

    return route && route->scratch;
}

bool routes_have_scratch(struct cache *c)
{
    const struct routes *r = c->config.routes;

    for (size_t i = 0; r && i < r->n; i++)
        if (r->items[i].scratch)
            return true;
    return false;
}

void node_mark_scratch_locked(struct cache *c, struct node *n, const char *path)
{
    cache_assert_locked(c);
    if (n->dir)
        return;
    n->flags &= ~(unsigned)NODE_SCRATCH;
    if (*path && path_is_scratch(c, path))
        n->flags |= NODE_SCRATCH;
}

bool node_is_scratch(const struct node *n)
{
    return n->links && n->links->scratch;
}

bool dir_dress_locked(struct node *dir)
{
    if (!dir->dir->bare || dir->dir->kind != DIR_IMPLIED)
        return false;
    dir->dir->bare = false;
    if (dir->links)
        entry_may_exist_locked(dir->links);
    return true;
}

bool dir_is_local(const struct dir *d)
{
    return d->bare || d->kind == DIR_SCRATCH;
}

/* The route's components up to the first capture, as far as each is a fixed directory. */
static int make_fixed_of_locked(struct cache *c, const struct route *route)
    REQUIRES(cache_ns, cache_mutex)
{
    auto_buf struct buf path = BUF_INIT(STORE_KEY_MAX);

    for (size_t i = 0; i < route->path.n && is_literal(&route->path, i + 1); i++) {
        if (buf_addf(&path, "%s%s", i ? "/" : "", route->path.components[i].before) < 0)
            return -ENOMEM;
        if (!path_is_fixed(c, path.data))
            return 0;
        struct node *n = tree_make_dirs_locked(c, path.data);
        if (!n)
            return -ENOMEM;
        if (n->dir->kind != DIR_STORED)
            n->flags |= NODE_ATTRS_KNOWN;
        n->dir->local_only = n->dir->kind == DIR_SCRATCH;
    }
    return 0;
}

int fixed_dirs_make_locked(struct cache *c)
{
    const struct routes *r = c->config.routes;
    int err = 0;

    ns_assert_written(c);
    cache_assert_locked(c);
    for (size_t i = 0; r && i < r->n && err == 0; i++)
        err = make_fixed_of_locked(c, &r->items[i]);
    return err;
}
