/* What makes a directory exist, and from where its names come. */
#include "common/mem.h"
#include "runs/match.h"
#include "runs/routes.h"

#include <errno.h>
#include <string.h>

/* ---- roots ---- */

struct root {
    unsigned store;
    enum routes_as as;
    char *key; /* heap */
};

/* The roots that were visited. */
struct roots {
    struct root *items;
    size_t n, cap;
    int (*visit)(void *arg, unsigned store, const char *key, enum routes_as as);
    void *arg;
};

static bool visited(const struct roots *roots, unsigned store, const char *key,
                    enum routes_as as)
{
    for (size_t i = 0; i < roots->n; i++) {
        const struct root *root = &roots->items[i];

        if (root->store == store && root->as == as && strcmp(root->key, key) == 0)
            return true;
    }
    return false;
}

static int visit_root(struct roots *roots, const struct route *route, const char *key,
                      enum routes_as as)
{
    struct root root = {.store = route->store, .as = as};

    if (route->scratch || visited(roots, root.store, key, as))
        return 0;
    if (array_grow(roots->items, roots->cap, roots->n + 1) < 0)
        return -ENOMEM;
    root.key = strdup(key);
    if (!root.key)
        return -ENOMEM;
    roots->items[roots->n++] = root;
    return roots->visit(roots->arg, root.store, root.key, as);
}

/* A part of a key that is not its end is a directory. */
static enum routes_as part_as(const struct route *route, size_t n)
{
    return n < route->key.n || route->key.rest ? ROUTES_DIRECTORY : ROUTES_OBJECT;
}

/* Whether the path is the root of the route, and named by its last capture: then a listing
 * shows it by the directory of that name in the store. */
static bool is_listed_root(const struct route *route, const struct match *m)
{
    const struct template *t = &route->path;

    return m->n == t->n && t->n && !*m->below && t->rest && t->components[t->n - 1].capture;
}

/* A route that the path can't be written for leads nowhere. */
static int root_of_route(struct roots *roots, const struct route *route, const char *path)
{
    struct match m;
    struct key_text key;
    size_t bound;

    if (!match_begin(&route->path, path, &m) ||
        (!match_on_the_way(&route->path, &m) && !is_listed_root(route, &m)))
        return 0;
    bound = match_bound(route, &m);
    if (bound == 0 || match_key(route, &m, bound, "", &key) < 0)
        return 0;
    return visit_root(roots, route, key.at, part_as(route, bound));
}

static int each_root(struct roots *roots, const struct routes *r, const char *path)
{
    struct routes_hit hit;
    int err = routes_find(r, path, ROUTES_DIRECTORY, &hit);

    if (err < 0)
        return err;
    if (hit.kind == ROUTES_MAPPED)
        err = visit_root(roots, hit.route, hit.key, ROUTES_DIRECTORY);
    routes_hit_release(&hit);
    for (size_t i = 0; err == 0 && i < r->n; i++) {
        err = root_of_route(roots, &r->items[i], path);
        if (template_takes(&r->items[i].path, path, ROUTES_DIRECTORY))
            break;
    }
    return err;
}

int routes_each_root(const struct routes *r, const char *path,
                     int (*visit)(void *arg, unsigned store, const char *key,
                                  enum routes_as as),
                     void *arg)
{
    struct roots roots = {.visit = visit, .arg = arg};
    int err = each_root(&roots, r, path);

    for (size_t i = 0; i < roots.n; i++)
        free(roots.items[i].key);
    free(roots.items);
    return err;
}

/* ---- sources ---- */

struct walk {
    int (*visit)(void *arg, const struct routes_source *source);
    void *arg;
    struct key_text key;
};

static int visit_source(struct walk *w, struct routes_source *source, size_t n,
                        const struct match *m, const char *below)
{
    if (match_key(source->route, m, n, below, &w->key) < 0)
        return 0;
    source->key = w->key.at;
    return w->visit(w->arg, source);
}

/* All that is in a directory of the store. */
static int visit_mapped(struct walk *w, struct routes_source *source, const struct match *m)
{
    source->objects = source->directories = true;
    return visit_source(w, source, source->route->key.n, m, m->below);
}

static void count(struct routes_source *source, enum routes_as as)
{
    source->objects = as == ROUTES_OBJECT;
    source->directories = as == ROUTES_DIRECTORY;
}

/* The next component is one name. It is there when the key is that makes it exist: its own one
 * if the path ends there, else what of it is known. A store's root is there always. */
static int visit_literal(struct walk *w, struct routes_source *source, const struct match *m,
                         bool last)
{
    const struct route *route = source->route;
    size_t n = last ? route->key.n : match_bound(route, m);

    source->name = route->path.components[m->n].before;
    source->always = n == 0;
    count(source, part_as(route, n));
    return visit_source(w, source, n, m, "");
}

/* The next component is a capture: the names are in the directory of the store that holds the
 * key's component with that capture. */
static int visit_capture(struct walk *w, struct routes_source *source, const struct match *m)
{
    const struct route *route = source->route;
    size_t n = match_capture(&route->key, route->path.components[m->n].capture);

    source->component = &route->key.components[n];
    count(source, part_as(route, n + 1));
    return visit_source(w, source, n, m, "");
}

/* Whether the next name is a directory that exists always. */
static bool leads_always(const struct route *route, const struct match *m)
{
    return m->n + 1 < route->path.n && !route->path.components[m->n].capture &&
           match_bound(route, m) == 0;
}

static int source_of_route(struct walk *w, const struct route *route, const char *path)
{
    struct routes_source source = {.route = route};
    struct match m;
    bool last;

    if (!match_begin(&route->path, path, &m) || (route->scratch && !leads_always(route, &m)))
        return 0;
    for (const char *at = path; *at; at++)
        source.depth += at == path || *at == '/';
    if (match_takes(&route->path, &m, ROUTES_DIRECTORY))
        return visit_mapped(w, &source, &m);
    if (!match_on_the_way(&route->path, &m))
        return 0;
    last = m.n + 1 == route->path.n;
    source.as = last && !route->path.rest ? ROUTES_OBJECT : ROUTES_DIRECTORY;
    return route->path.components[m.n].capture ? visit_capture(w, &source, &m)
                                               : visit_literal(w, &source, &m, last);
}

int routes_each_source(const struct routes *r, const char *path,
                       int (*visit)(void *arg, const struct routes_source *source), void *arg)
{
    struct walk w = {.visit = visit, .arg = arg};
    struct routes_hit hit;
    int err = routes_find(r, path, ROUTES_DIRECTORY, &hit);

    if (err < 0)
        return err;
    routes_hit_release(&hit);
    for (size_t i = 0; err == 0 && i < r->n; i++) {
        err = source_of_route(&w, &r->items[i], path);
        if (template_takes(&r->items[i].path, path, ROUTES_DIRECTORY))
            break;
    }
    return err;
}

int routes_source_name(const struct routes_source *source, const char *stored,
                       struct buf *shown)
{
    size_t len = strlen(stored), at, n;
    const struct component *c = source->component;

    if (!path_name_ok(stored, len) || (c && !component_takes(c, stored, len, &at, &n)))
        return -ENOENT;
    if (!c)
        return buf_add(shown, stored, len);
    return match_name(source->route, source->depth, c->codec, stored + at, n, shown);
}
