/* From a path of the mount to a key of a leaf, and which routes have a part in a directory. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void target_done(struct target *t)
{
    free(t->key);
    *t = (struct target){0};
}

bool key_is_reserved(const char *key)
{
    return path_below(STORE_STATE_DIR, key) != NULL;
}

int no_route(struct op *op, int err, const char *what, const char *path)
{
    return op_fail(op, err, "%s %.200s: no route leads to %.60s", what, path, path);
}

/* A directory of scratch is for the stores what the routes before make of it. */
static enum routes_kind kind_of_scratch(const struct routes *routes, const char *path,
                                        enum routes_as as)
{
    if (as == ROUTES_OBJECT || !routes_lead_through(routes, path))
        return ROUTES_NOWHERE;
    return routes_fixed(routes, path) ? ROUTES_FIXED : ROUTES_IMPLIED;
}

struct leaf *find_state(const struct routed *r, const char *path, const char **ret_rest)
{
    const char *own = path_below(STORE_STATE_DIR, path);
    size_t len = own && own[0] == '@' ? strcspn(own + 1, "/") : 0;

    for (size_t i = 0; len && i < r->n; i++) {
        struct leaf *leaf = &r->leaves[i];
        if (strlen(leaf->name) != len || memcmp(leaf->name, own + 1, len) != 0)
            continue;
        *ret_rest = own + 1 + len;
        return store_can(leaf->store, STORE_STATE_DIR, STORE_STATE) ? leaf : NULL;
    }
    return NULL;
}

/* As an object only: the directories of it are no matter of routes. */
static int find_own(struct routed *r, const char *path, enum routes_as as, struct target *ret)
{
    const char *rest = NULL;
    struct leaf *leaf = as == ROUTES_OBJECT ? find_state(r, path, &rest) : NULL;
    char *key;

    if (!leaf)
        return 0;
    if (asprintf(&key, "%s%s", STORE_STATE_DIR, rest) < 0)
        return -ENOMEM;
    *ret = (struct target){.kind = ROUTES_MAPPED, .leaf = leaf, .key = key};
    return 0;
}

static int find(struct routed *r, const char *path, enum routes_as as, struct target *ret)
{
    struct routes_hit hit;

    *ret = (struct target){.kind = ROUTES_NOWHERE};
    if (key_is_reserved(path))
        return find_own(r, path, as, ret);
    int err = routes_find(r->routes, path, as, &hit);
    if (err < 0)
        return err;
    if (hit.kind != ROUTES_MAPPED) {
        ret->kind = hit.kind;
    } else if (hit.route->scratch) {
        ret->kind = kind_of_scratch(r->routes, path, as);
    } else if (!key_is_reserved(hit.key)) {
        *ret = (struct target){.kind = ROUTES_MAPPED,
                               .route = hit.route,
                               .leaf = &r->leaves[hit.route->store],
                               .key = take_ptr(hit.key)};
    }
    routes_hit_release(&hit);
    return 0;
}

int target_find(struct routed *r, struct op *op, const char *path, enum routes_as as,
                struct target *ret)
{
    int err = find(r, path, as, ret);

    if (err == -ENOMEM)
        return op_fail(op, err, "no memory to look for %.200s", path);
    return 0;
}

int routed_state_of(struct store *s, struct op *op, const char *path, bool dir,
                    char **ret_state, char **ret_key)
{
    struct routed *r = routed_of(s);
    auto_target struct target t = {0};
    auto_free char *own = NULL;
    auto_free char *key = NULL;
    char *state;

    int err = target_find(r, op, path, dir ? ROUTES_DIRECTORY : ROUTES_OBJECT, &t);
    if (err < 0)
        return err;
    if (t.kind != ROUTES_MAPPED || !t.route)
        return no_route(op, -EOPNOTSUPP, "notes of", path);
    err = store_state_of(t.leaf->store, op, t.key, dir, &own, &key);
    if (err < 0)
        return err;
    if (asprintf(&state, "%s/@%s%s", STORE_STATE_DIR, t.leaf->name,
                 own + strlen(STORE_STATE_DIR)) < 0)
        return op_fail(op, -ENOMEM, "out of memory");
    *ret_state = state;
    *ret_key = take_ptr(key);
    return 0;
}

/* What can't be a name in the store. */
static int misspelled(struct op *op, int err, const char *what, const char *path)
{
    if (err == -EILSEQ)
        return op_fail(op, err, "%s %.200s: the route's store keeps names in UTF-8 only", what,
                       path);
    if (err == -ENAMETOOLONG)
        return op_fail(op, err, "%s %.200s: its key in the store would be too long", what,
                       path);
    return op_fail(op, err, "%s %.200s: no name in the store is shown as this one: %s", what,
                   path, strerror(-err));
}

int target_to_change(struct routed *r, struct op *op, const char *what, const char *path,
                     enum routes_as as, struct target *ret)
{
    int err = find(r, path, as, ret);

    if (err < 0)
        return misspelled(op, err, what, path);
    if (ret->kind == ROUTES_NOWHERE)
        return no_route(op, -EPERM, what, path);
    return 0;
}

bool is_mapped_by(const struct route *route, size_t depth)
{
    return route->path.rest && depth >= route->path.n;
}

bool template_leads_through(const struct template *t, const char *path)
{
    size_t i = 0, at, len;

    while (*path && i < t->n) {
        size_t name = strcspn(path, "/");
        if (!component_takes(&t->components[i], path, name, &at, &len))
            return false;
        path += name + (path[name] == '/');
        i++;
    }
    return *path ? t->rest : i < t->n || t->rest;
}

bool route_leads_through(const struct route *route, const char *path)
{
    return template_leads_through(&route->path, path);
}

size_t depth_of(const char *path)
{
    size_t n = path[0] != '\0';

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* The root of `{run}/xx` with the key `{run}/data/xx`: its parent lists {run} for it. */
static bool is_listed_by_another(const struct route *route, const char *path)
{
    const struct template *p = &route->path, *k = &route->key;

    return p->n && depth_of(path) == p->n && p->components[p->n - 1].capture &&
           !k->components[k->n - 1].capture;
}

bool is_alone(const struct routed *r, const struct route *route, const char *path)
{
    /* All that later routes have there is shadowed by this one. */
    for (const struct route *other = r->routes->items; other < route; other++)
        if (route_leads_through(other, path))
            return false;
    return !is_listed_by_another(route, path);
}
