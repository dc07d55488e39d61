/* What is wrong of the stores as a whole, once it is known where each lies: an object under two
 * paths, a store's state within a store. */
#include "common/mem.h"
#include "common/path.h"
#include "runs/config_impl.h"

struct roots {
    const struct config *c;
    const struct config_root *roots;
    struct config_problems *problems;
};

static bool same_server(const struct roots *r, unsigned a, unsigned b)
{
    return a == b || strcmp(r->roots[a].server, r->roots[b].server) == 0;
}

/* "(line 7)", or nothing for a route that no file has. */
static int tell_overlap(const struct roots *r, const struct route *first,
                        const struct route *second, const struct routes_overlap *o)
{
    const char *store = r->c->stores[first->store].name;

    if (first->at.line == 0)
        return config_problem_add(r->problems, second->at,
                                  "an object of \"%s\" such as %s would be %s and %s", store,
                                  o->object, o->a_path, o->b_path);
    return config_problem_add(r->problems, second->at,
                              "an object of \"%s\" such as %s would be %s and %s (line %u)",
                              store, o->object, o->a_path, o->b_path, first->at.line);
}

static int check_pair(const struct roots *r, const struct route *a, const struct route *b)
{
    struct routes_overlap overlap;
    int err;

    if (a->scratch || b->scratch || !same_server(r, a->store, b->store) ||
        !routes_overlap(&r->c->routes, a, r->roots[a->store].root, b, r->roots[b->store].root,
                        &overlap))
        return 0;
    err = tell_overlap(r, a, b, &overlap);
    routes_overlap_release(&overlap);
    return err;
}

static int check_overlaps(const struct roots *r)
{
    const struct routes *routes = &r->c->routes;
    int err = 0;

    for (size_t j = 1; j < routes->n; j++)
        for (size_t i = 0; i < j && !err; i++)
            err = check_pair(r, &routes->items[i], &routes->items[j]);
    return err;
}

#define REMEDY "put one of them elsewhere, or say state_prefix"

static int check_state(const struct roots *r, size_t i, size_t j)
{
    const struct config_root *keeper = &r->roots[i], *other = &r->roots[j];
    const struct config_store *its = &r->c->stores[i], *others = &r->c->stores[j];

    if (!keeper->state || strcmp(keeper->server, other->server) != 0)
        return 0;
    if (path_below(other->root, keeper->state))
        return config_problem_add(r->problems, its->url_at,
                                  "the state of \"%s\" would lie in \"%s\" (%s); " REMEDY,
                                  its->name, others->name, keeper->state);
    if (path_below(keeper->state, other->root))
        return config_problem_add(r->problems, others->url_at,
                                  "\"%s\" (%s) would lie in the state of \"%s\" (%s); " REMEDY,
                                  others->name, other->root, its->name, keeper->state);
    return 0;
}

static int check_states(const struct roots *r)
{
    int err = 0;

    for (size_t i = 0; i < r->c->n_stores; i++)
        for (size_t j = 0; j < r->c->n_stores && !err; j++)
            if (i != j)
                err = check_state(r, i, j);
    return err;
}

int config_check_roots(const struct config *c, const struct config_root *roots, struct op *op,
                       struct config_problems *problems)
{
    struct config_problems own = {0};
    struct roots r = {.c = c, .roots = roots, .problems = problems ? problems : &own};
    int err = check_overlaps(&r);

    if (!err)
        err = check_states(&r);
    if (err)
        err = op_fail(op, err, "%s: out of memory", c->origin);
    else if (r.problems->n > 0)
        err = config_problems_fail(r.problems, c->origin, op);
    config_problems_release(&own);
    return err;
}
