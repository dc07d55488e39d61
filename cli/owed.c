/* What an unmounted cache owes its stores. */
#include "cli/owed.h"

#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "cli/kept_config.h"
#include "common/mem.h"

struct owed {
    struct config config; /* all zero where nothing is known of routes */
    int (*visit)(void *arg, const struct cache_pending *p);
    void *arg;
};

/* What can't be read here is told by who opens the stores: then everything counts. */
static void read_routes(const char *dir, struct config *ret)
{
    auto_close int dir_fd = -1;
    auto_free char *text = NULL;
    struct identity identity;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (door_open(dir, DOOR_CACHE, &op, &dir_fd, NULL) ||
        door_read_text(dir_fd, "identity", &text) || identity_parse(text, &op, &identity))
        return;
    if (!identity.routes || kept_config_load(dir_fd, dir, &identity, &op, ret))
        *ret = (struct config){0};
    identity_release(&identity);
}

static bool is_scratch(const struct routes *routes, const char *path)
{
    const struct route *route;

    return routes->n && routes_kind(routes, path, ROUTES_OBJECT, &route) == ROUTES_MAPPED &&
           route->scratch;
}

static int visit_owed(void *arg, const struct cache_pending *p)
{
    const struct owed *o = arg;

    return is_scratch(&o->config.routes, p->path) ? 0 : o->visit(o->arg, p);
}

int owed_each(const char *dir, struct op *op,
              int (*visit)(void *arg, const struct cache_pending *p), void *arg)
{
    struct owed o = {.visit = visit, .arg = arg};

    read_routes(dir, &o.config);
    int r = recover_list(dir, op, visit_owed, &o);
    config_release(&o.config);
    return r;
}
