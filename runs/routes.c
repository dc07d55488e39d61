/* The table of routes: how it is made, and what a path is in it. */
#include "runs/routes.h"

#include "common/mem.h"
#include "runs/match.h"

#include <errno.h>
#include <string.h>

/* ---- the table ---- */

static int check_captures(const struct template *in, const char *in_name,
                          const struct template *other, const char *other_name, struct op *op)
{
    for (size_t i = 0; i < in->n; i++) {
        const char *capture = in->components[i].capture;

        if (capture && match_capture(other, capture) == other->n)
            return op_fail(op, -EINVAL, "\"%s\" has {%.80s}, \"%s\" has not", in_name, capture,
                           other_name);
    }
    return 0;
}

/* A capture that the path has later comes later in the key too. */
static int check_order(const struct template *path, const struct template *key, struct op *op)
{
    const char *last = NULL;

    for (size_t i = 0; i < key->n; i++) {
        const char *capture = key->components[i].capture;

        if (!capture)
            continue;
        if (last && match_capture(path, last) > match_capture(path, capture))
            return op_fail(op, -EINVAL, "\"key\" has {%.80s} before {%.80s}", last, capture);
        last = capture;
    }
    return 0;
}

static int check_pair(const struct template *path, const struct template *key, struct op *op)
{
    int r;

    if (path->rest != key->rest)
        return op_fail(op, -EINVAL, "\"%s\" ends in \"**\", \"%s\" does not",
                       path->rest ? "path" : "key", path->rest ? "key" : "path");
    r = check_captures(path, "path", key, "key", op);
    if (r == 0)
        r = check_captures(key, "key", path, "path", op);
    return r < 0 ? r : check_order(path, key, op);
}

int routes_add(struct routes *r, struct template *path, struct template *key, unsigned store,
               unsigned policy, struct text_place at, struct op *op)
{
    struct route route = {
        .path = *path, .key = *key, .store = store, .policy = policy, .at = at};
    int err = check_pair(path, key, op);

    *path = *key = (struct template){.text = NULL};
    if (err == 0)
        err = array_grow(r->items, r->cap, r->n + 1);
    if (err == 0) {
        r->items[r->n++] = route;
        return 0;
    }
    template_release(&route.path);
    template_release(&route.key);
    return err;
}

void routes_release(struct routes *r)
{
    for (size_t i = 0; i < r->n; i++) {
        template_release(&r->items[i].path);
        template_release(&r->items[i].key);
    }
    free(r->items);
    *r = (struct routes){.items = NULL};
}

bool routes_trivial(const struct routes *r)
{
    return r->n == 1 && !r->items[0].scratch && r->items[0].path.rest &&
           r->items[0].path.n == 0 && r->items[0].key.n == 0;
}

/* ---- what a path is ---- */

struct found {
    enum routes_kind kind;
    const struct route *route;
    struct key_text key;
};

static int find_object(const struct routes *r, const char *path, struct found *ret)
{
    const struct route *route = *path ? routes_owner(r, path, ROUTES_OBJECT) : NULL;
    struct match m;
    int err;

    ret->kind = ROUTES_NOWHERE;
    if (!route)
        return 0;
    (void)match_begin(&route->path, path, &m);
    err = match_key(route, &m, route->key.n, m.below, &ret->key);
    if (err < 0)
        return err;
    ret->kind = ROUTES_MAPPED;
    ret->route = route;
    return 0;
}

/* What one route makes of a directory. The more a route makes of it, the greater is the kind. A
 * route that the directory's name can't be written for leads nowhere. */
static int of_route(const struct route *route, const char *path, struct found *f)
{
    struct match m;
    size_t bound;
    int err;

    f->kind = ROUTES_NOWHERE;
    if (!match_begin(&route->path, path, &m))
        return 0;
    if (match_takes(&route->path, &m, ROUTES_DIRECTORY)) {
        err = match_key(route, &m, route->key.n, m.below, &f->key);
        f->kind = err < 0 ? ROUTES_NOWHERE : ROUTES_MAPPED;
        return err;
    }
    if (!match_on_the_way(&route->path, &m))
        return 0;
    bound = match_bound(route, &m);
    err = match_key(route, &m, bound, "", &f->key);
    if (err == 0)
        f->kind = bound ? ROUTES_IMPLIED : ROUTES_FIXED;
    return err;
}

/* The first route that takes a directory has all below it, whether its name can be written or
 * not; those before it may lead through. */
static int find_directory(const struct routes *r, const char *path, struct found *ret)
{
    enum routes_kind on_the_way = *path ? ROUTES_NOWHERE : ROUTES_FIXED;
    int first_err = 0;

    for (size_t i = 0; i < r->n; i++) {
        int err = of_route(&r->items[i], path, ret);

        if (ret->kind == ROUTES_MAPPED) {
            ret->route = &r->items[i];
            return 0;
        }
        if (ret->kind == ROUTES_FIXED || on_the_way == ROUTES_NOWHERE)
            on_the_way = ret->kind;
        if (first_err == 0)
            first_err = err;
        if (template_takes(&r->items[i].path, path, ROUTES_DIRECTORY))
            break;
    }
    ret->kind = on_the_way;
    return on_the_way == ROUTES_NOWHERE ? first_err : 0;
}

static int find(const struct routes *r, const char *path, enum routes_as as, struct found *ret)
{
    ret->route = NULL;
    return as == ROUTES_OBJECT ? find_object(r, path, ret) : find_directory(r, path, ret);
}

int routes_find(const struct routes *r, const char *path, enum routes_as as,
                struct routes_hit *ret)
{
    struct found f;
    char *key = NULL;
    int err = find(r, path, as, &f);

    if (err < 0)
        return err;
    if (f.kind == ROUTES_MAPPED) {
        key = strdup(f.key.at);
        if (!key)
            return -ENOMEM;
    }
    *ret = (struct routes_hit){.kind = f.kind, .route = f.route, .key = key};
    return 0;
}

void routes_hit_release(struct routes_hit *hit)
{
    free(hit->key);
    *hit = (struct routes_hit){.kind = ROUTES_NOWHERE};
}

enum routes_kind routes_kind(const struct routes *r, const char *path, enum routes_as as,
                             const struct route **ret_route)
{
    struct found f;
    enum routes_kind kind = find(r, path, as, &f) < 0 ? ROUTES_NOWHERE : f.kind;

    *ret_route = kind == ROUTES_MAPPED ? f.route : NULL;
    return kind;
}

enum routes_kind routes_key(const struct routes *r, const char *path, enum routes_as as,
                            const struct route **ret_route, char *key)
{
    struct found f;
    enum routes_kind kind = find(r, path, as, &f) < 0 ? ROUTES_NOWHERE : f.kind;

    *ret_route = kind == ROUTES_MAPPED ? f.route : NULL;
    if (*ret_route)
        memcpy(key, f.key.at, strlen(f.key.at) + 1);
    return kind;
}

bool routes_key_reserved(const struct route *route, const char *key)
{
    return !route->scratch && path_below(PATH_RESERVED, key);
}

bool routes_fixed(const struct routes *r, const char *path)
{
    bool over = false;

    for (size_t i = 0; i < r->n && !over; i++) {
        const struct template *t = &r->items[i].path;
        struct match m;

        if (match_begin(t, path, &m) && match_on_the_way(t, &m) &&
            match_bound(&r->items[i], &m) == 0)
            return true;
        over = template_takes(t, path, ROUTES_DIRECTORY);
    }
    return !*path;
}

bool routes_lead_through(const struct routes *r, const char *path)
{
    struct found f;

    for (size_t i = 0; i < r->n; i++) {
        const struct route *route = &r->items[i];

        if (template_takes(&route->path, path, ROUTES_DIRECTORY))
            return false;
        if (!route->scratch && of_route(route, path, &f) == 0 && f.kind != ROUTES_NOWHERE)
            return true;
    }
    return false;
}

bool routes_shadowed(const struct routes *r, const struct route *route, const char *path,
                     enum routes_as as)
{
    const struct route *owner = routes_owner(r, path, as);

    return owner && owner < route;
}
