/* Routes beside each other: which of them lead on below a directory, whether they are the same
 * below another one and can write its name, and whether a route takes all that another takes.
 */
#include "runs/match.h"
#include "runs/routes.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* ---- what is below two directories ---- */

/* A route that leads to or through a directory. */
struct below {
    const struct route *route;
    struct match m;
    size_t bound; /* components of the key before those that are open below the directory */
};

/* The next route at or behind *i that has something below the directory, and moves *i behind
 * it; behind the one that takes the directory there is none. */
static bool next_below(const struct routes *r, const char *path, size_t *i, struct below *ret)
{
    while (*i < r->n) {
        ret->route = &r->items[(*i)++];
        if (!match_begin(&ret->route->path, path, &ret->m))
            continue;
        if (match_takes(&ret->route->path, &ret->m, ROUTES_DIRECTORY)) {
            ret->bound = ret->route->key.n;
            *i = r->n;
            return true;
        }
        if (match_on_the_way(&ret->route->path, &ret->m)) {
            ret->bound = match_bound(ret->route, &ret->m);
            return true;
        }
    }
    return false;
}

/* Captures are compared by their order, which is that of the path: both name them freely. */
static bool components_same(const struct template *a, size_t a_at, const struct template *b,
                            size_t b_at)
{
    if (a->rest != b->rest || a->n - a_at != b->n - b_at)
        return false;
    for (; a_at < a->n; a_at++, b_at++) {
        const struct component *x = &a->components[a_at], *y = &b->components[b_at];

        if (strcmp(x->before, y->before) != 0 || strcmp(x->after, y->after) != 0 ||
            !x->capture != !y->capture || x->codec != y->codec)
            return false;
    }
    return true;
}

static bool same_route_below(const struct below *a, const struct below *b)
{
    if (a->route->scratch != b->route->scratch ||
        (!a->route->scratch && a->route->store != b->route->store))
        return false;
    return components_same(&a->route->path, a->m.n, &b->route->path, b->m.n) &&
           components_same(&a->route->key, a->bound, &b->route->key, b->bound);
}

bool routes_same_below(const struct routes *r, const char *from, const char *to)
{
    size_t i = 0, k = 0, n = 0;

    for (;; n++) {
        struct below a, b;
        bool in_a = next_below(r, from, &i, &a), in_b = next_below(r, to, &k, &b);

        if (!in_a || !in_b)
            return in_a == in_b && n > 0;
        if (!same_route_below(&a, &b))
            return false;
    }
}

int routes_writable_below(const struct routes *r, const char *path)
{
    struct key_text key;
    struct below b;
    size_t i = 0;
    int err = 0;

    while (err == 0 && next_below(r, path, &i, &b)) {
        err = match_key(b.route, &b.m, b.bound, b.m.below, &key);
        if (err == 0 && routes_key_reserved(b.route, key.at))
            err = -EPERM;
    }
    return err;
}

/* ---- what a route takes ---- */

/* Whether every name that `c` takes is taken by `other`. */
static bool component_covered(const struct component *c, const struct component *other)
{
    size_t before = strlen(other->before), after = strlen(other->after), at, n;

    if (!c->capture)
        return component_takes(other, c->before, strlen(c->before), &at, &n);
    return other->capture && strlen(c->before) >= before && strlen(c->after) >= after &&
           strncmp(c->before, other->before, before) == 0 &&
           strcmp(c->after + strlen(c->after) - after, other->after) == 0;
}

static bool template_covered(const struct template *t, const struct template *other)
{
    if (other->rest ? other->n + !t->rest > t->n : t->rest || t->n != other->n)
        return false;
    for (size_t i = 0; i < other->n; i++)
        if (!component_covered(&t->components[i], &other->components[i]))
            return false;
    return true;
}

size_t routes_covering(const struct routes *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (template_covered(&r->items[i].path, &r->items[k].path))
            return k;
    return SIZE_MAX;
}
