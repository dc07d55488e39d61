/* "routes" of a configuration. */
#include "common/mem.h"
#include "common/nearest.h"
#include "runs/config_impl.h"
#include "runs/policy_fields.h"

#define WHERE "a route"

static int unknown_policy(struct reading *r, struct text_place at, const char *name)
{
    const struct policies *p = &r->config->policies;
    auto_buf struct buf names = BUF_INIT(CONFIG_TEXT_MAX);
    struct nearest n;

    if (r->amiss & AMISS_POLICIES)
        return 0;
    nearest_init(&n, name);
    for (size_t i = 0; i < p->n; i++) {
        nearest_try(&n, p->items[i].name);
        if (buf_addf(&names, "%s%s", i ? ", " : "", p->items[i].name))
            return -ENOMEM;
    }
    if (n.best)
        return config_wrong(r, at, "route names the policy \"%s\", did you mean \"%s\"?", name,
                            n.best);
    return config_wrong(r, at, "route names the policy \"%s\"; there are %s", name, names.data);
}

static int find_names(struct reading *r, const struct json_node *store,
                      const struct json_node *policy, struct route_texts *texts)
{
    const char *store_name = NULL, *policy_name = "data";
    int err = store ? config_text(r, store, WHERE, &store_name) : 0;

    if (!err && policy)
        err = config_text(r, policy, WHERE, &policy_name);
    texts->store =
        store_name ? config_find_store(r->config, store_name, strlen(store_name)) : SIZE_MAX;
    texts->policy = policy_name ? policies_find(&r->config->policies, policy_name) : SIZE_MAX;
    if (!err && store_name && texts->store == SIZE_MAX)
        err = config_unknown_store(r, store->at, "route", store_name);
    if (!err && policy && policy_name && texts->policy == SIZE_MAX)
        err = unknown_policy(r, policy->at, policy_name);
    return err;
}

static int parse_template(struct reading *r, const char *text, enum template_side side,
                          struct text_place at, struct template *to, bool *ret)
{
    int err = template_parse(text, side, r->op, to);

    *ret = !err;
    return err == -EINVAL ? config_wrong(r, at, "%s", r->op->why) : err;
}

/* Takes over the templates. */
static int add_parsed(struct reading *r, const struct route_texts *texts, struct template *path,
                      struct template *key, bool *ret_added)
{
    struct config *c = r->config;
    unsigned store = texts->store == SIZE_MAX ? 0 : (unsigned)texts->store;
    unsigned policy = texts->policy == SIZE_MAX ? 0 : (unsigned)texts->policy;
    int err = routes_add(&c->routes, path, key, store, policy, texts->at, r->op);

    if (err == -EINVAL)
        return config_wrong(r, texts->key_at, "%s", r->op->why);
    if (err)
        return err;
    c->routes.items[c->routes.n - 1].scratch = c->policies.items[policy].upload == UPLOAD_NEVER;
    *ret_added = true;
    return 0;
}

/* A route whose store or policy is unknown is looked at as far as it goes. */
int config_add_route(struct reading *r, const struct route_texts *texts, bool *ret_added)
{
    struct template path = {0}, key = {0};
    bool path_ok = false, key_ok = false;
    int err = parse_template(r, texts->path, TEMPLATE_PATH, texts->path_at, &path, &path_ok);

    *ret_added = false;
    if (!err && (path_ok || texts->key != texts->path))
        err = parse_template(r, texts->key, TEMPLATE_KEY, texts->key_at, &key, &key_ok);
    if (!err && path_ok && key_ok)
        return add_parsed(r, texts, &path, &key, ret_added);
    if (path_ok)
        template_release(&path);
    if (key_ok)
        template_release(&key);
    return err;
}

void config_drop_route(struct routes *routes)
{
    struct route *last = &routes->items[--routes->n];

    template_release(&last->path);
    template_release(&last->key);
}

int config_never_matches(struct reading *r, struct text_place at, size_t covering)
{
    return config_wrong(r, at, "can never match: line %u takes every path of it",
                        r->config->routes.items[covering].at.line);
}

static int add_own(struct reading *r, const struct route_texts *texts)
{
    struct routes *routes = &r->config->routes;
    size_t covering;
    bool added;
    int err = config_add_route(r, texts, &added);

    if (err || !added)
        return err;
    covering = routes_covering(routes, routes->n - 1);
    return covering == SIZE_MAX ? 0 : config_never_matches(r, texts->at, covering);
}

static const char *const fields[] = {"path", "store", "key", "policy", NULL};

/* Whether a member that is not known is meant to be that one. */
static bool is_misspelt(const struct json_node *route, const char *field)
{
    for (size_t i = 0; i < route->n; i++) {
        const char *name = route->items[i].name,
                   *meant = config_meant(&route->items[i], fields);

        if (meant && strcmp(meant, field) == 0 && strcmp(name, field) != 0)
            return true;
    }
    return false;
}

/* `node` is that field. */
static int check_there(struct reading *r, const struct json_node *route,
                       const struct json_node *node, const char *field)
{
    return node || is_misspelt(route, field)
               ? 0
               : config_wrong(r, route->at, "a route needs a \"%s\"", field);
}

static int check_fields(struct reading *r, const struct json_node *route)
{
    int err = 0;

    for (size_t i = 0; !err && i < route->n; i++) {
        const struct json_node *member = &route->items[i];
        size_t k = 0;

        while (fields[k] && strcmp(fields[k], member->name) != 0)
            k++;
        if (!fields[k] && config_member(member))
            err = config_unknown(r, member, WHERE, fields);
    }
    return err;
}

static int read_templates(struct reading *r, const struct json_node *path,
                          const struct json_node *key, struct route_texts *texts)
{
    int err = path ? config_text(r, path, WHERE, &texts->path) : 0;

    texts->key = texts->path;
    if (path)
        texts->path_at = texts->key_at = path->at;
    if (!err && key) {
        err = config_text(r, key, WHERE, &texts->key);
        texts->key_at = key->at;
    }
    return err;
}

static int read_route(struct reading *r, const struct json_node *route)
{
    const struct json_node *path = json_node_get(route, "path");
    const struct json_node *store = json_node_get(route, "store");
    struct route_texts texts = {.at = route->at};
    bool ok;
    int err = config_expect(r, route, JSON_OBJECT, WHERE, &ok);

    if (err || !ok)
        return err;
    err = check_fields(r, route);
    if (!err)
        err = check_there(r, route, path, "path");
    if (!err && path)
        err = check_there(r, route, store, "store");
    if (!err)
        err = find_names(r, store, json_node_get(route, "policy"), &texts);
    if (!err)
        err = read_templates(r, path, json_node_get(route, "key"), &texts);
    return err || !texts.path || !texts.key ? err : add_own(r, &texts);
}

int config_read_routes(struct reading *r, const struct json_node *routes)
{
    bool ok;
    int err = config_expect(r, routes, JSON_ARRAY, "\"routes\"", &ok);

    if (!err && ok && routes->n > CONFIG_ROUTES_MAX)
        return config_wrong(r, routes->at, "more than %d routes", CONFIG_ROUTES_MAX);
    for (size_t i = 0; !err && ok && i < routes->n; i++)
        err = read_route(r, &routes->items[i]);
    return err;
}
