/* Reading a configuration: its sections, in the order in which one refers to another. */
#include "runs/config.h"

#include "common/mem.h"
#include "runs/config_impl.h"
#include "runs/policy_fields.h"
#include "runs/read_file.h"

#define SECTIONS 9

static const char *const sections[SECTIONS + 1] = {
    "default_fs", "default_store", "stores", "routes",  "layout",
    "policies",   "latest",        "cache",  "options", NULL,
};

/* What is not judged any more when one of them is written in another way. */
static const enum amiss without[SECTIONS] = {
    AMISS_FS, AMISS_TREE, AMISS_STORES, AMISS_TREE, AMISS_TREE, AMISS_POLICIES,
};

/* ---- names and texts ---- */

static int add_option(struct reading *r, const struct json_node *member, const char *section,
                      const char *name)
{
    struct config *c = r->config;
    auto_free char *value = NULL;
    int err = config_scalar(r, member, section, true, &value);

    if (err || !value)
        return err;
    if (array_grow(c->options, c->cap_options, c->n_options + 1))
        return -ENOMEM;
    c->options[c->n_options] = (struct config_option){.name = strdup(name), .at = member->at};
    if (!c->options[c->n_options].name)
        return -ENOMEM;
    c->options[c->n_options++].value = take_ptr(value);
    return 0;
}

static int read_cache(struct reading *r, const struct json_node *cache)
{
    static const char *const known[] = {"dir", "size", "reserve", NULL};
    static const char *const options[] = {"cache_dir", "cache_size", "cache_reserve"};
    bool ok;
    int err = config_expect(r, cache, JSON_OBJECT, "\"cache\"", &ok);

    for (size_t i = 0; !err && ok && i < cache->n; i++) {
        const struct json_node *member = &cache->items[i];
        size_t k = 0;

        if (!config_member(member))
            continue;
        while (known[k] && strcmp(known[k], member->name) != 0)
            k++;
        err = known[k] ? add_option(r, member, "\"cache\"", options[k])
                       : config_unknown(r, member, "\"cache\"", known);
    }
    return err;
}

static int read_options(struct reading *r, const struct json_node *options)
{
    bool ok;
    int err = config_expect(r, options, JSON_OBJECT, "\"options\"", &ok);

    for (size_t i = 0; !err && ok && i < options->n; i++)
        if (config_member(&options->items[i]))
            err = add_option(r, &options->items[i], "\"options\"", options->items[i].name);
    return err;
}

/* ---- stores and what lies in them ---- */

static int read_default_fs(struct reading *r, const struct json_node *node)
{
    const char *fs, *why;
    int err = config_text(r, node, "the configuration", &fs);

    r->amiss |= AMISS_FS;
    if (err || !fs)
        return err;
    if (url_has_secret(fs))
        return config_wrong(r, node->at,
                            "credentials don't belong in a URL; take them from the environment "
                            "or a profile");
    err = url_base_set(&r->base, fs, &why);
    if (!err)
        r->amiss &= ~(unsigned)AMISS_FS;
    return err == -EINVAL ? config_wrong(r, node->at, "%s", why) : err;
}

static int read_default_store(struct reading *r, const struct json_node *node, size_t *ret)
{
    const char *name;
    int err = config_text(r, node, "the configuration", &name);

    if (err || !name)
        return err;
    *ret = config_find_store(r->config, name, strlen(name));
    return *ret == SIZE_MAX ? config_unknown_store(r, node->at, "\"default_store\"", name) : 0;
}

static int add_rest(struct reading *r, size_t store, struct text_place at, bool *ret_added)
{
    struct route_texts rest = {.path = "**",
                               .key = "**",
                               .path_at = at,
                               .key_at = at,
                               .store = store,
                               .policy = policies_find(&r->config->policies, "data"),
                               .at = at};

    return config_add_route(r, &rest, ret_added);
}

/* `own`: so many routes are the file's own. A default store that gave the layout its place may
 * be done with that. */
static int add_default(struct reading *r, const struct json_node *node, size_t store,
                       size_t own, bool in_layout)
{
    struct routes *routes = &r->config->routes;
    size_t covering;
    bool added;
    int err = add_rest(r, store, node->at, &added);

    if (err || !added)
        return err;
    covering = routes_covering(routes, routes->n - 1);
    if (covering == SIZE_MAX)
        return 0;
    config_drop_route(routes);
    return in_layout && covering >= own ? 0 : config_never_matches(r, node->at, covering);
}

static int add_only(struct reading *r, const struct json_node *stores)
{
    bool added;

    if (r->amiss & AMISS_TREE)
        return 0;
    if (r->config->n_stores > 1)
        return config_wrong(r, stores->at,
                            "several stores, and nothing says what lies in which: add "
                            "\"routes\", a \"layout\" or a \"default_store\"");
    return r->config->n_stores == 1 ? add_rest(r, 0, (struct text_place){0}, &added) : 0;
}

static int read_tree(struct reading *r, const struct json_node *stores)
{
    const struct json_node *routes = json_node_get(r->root, "routes");
    const struct json_node *layout = json_node_get(r->root, "layout");
    const struct json_node *fallback = json_node_get(r->root, "default_store");
    size_t default_store = SIZE_MAX, own;
    bool in_layout = false;
    int err = fallback ? read_default_store(r, fallback, &default_store) : 0;

    if (!err && routes)
        err = config_read_routes(r, routes);
    own = r->config->routes.n;
    /* An unknown default store is told once: the layout takes any. */
    if (!err && layout)
        err = config_read_layout(
            r, layout, fallback && default_store == SIZE_MAX ? 0 : default_store, &in_layout);
    if (!err && default_store != SIZE_MAX)
        err = add_default(r, fallback, default_store, own, in_layout);
    bool empty = !routes || (routes->type == JSON_ARRAY && routes->n == 0);
    if (!err && !layout && !fallback && empty)
        err = add_only(r, stores);
    return err;
}

/* Without stores a file says options only. */
static int refuse_tree(struct reading *r)
{
    static const char *const needy[] = {"default_store", "routes", "layout"};
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_SIZE(needy) && !(r->amiss & AMISS_STORES); i++) {
        const struct json_node *node = json_node_get(r->root, needy[i]);

        if (node && (node->type != JSON_ARRAY || node->n > 0))
            err = config_wrong(r, node->name_at, "\"%s\" needs \"stores\"", needy[i]);
    }
    return err;
}

/* ---- the whole ---- */

static int check_members(struct reading *r, const struct json_node *node)
{
    int err = 0;

    for (size_t i = 0; !err && i < node->n; i++) {
        const struct json_node *item = &node->items[i];

        if (item->again)
            err = config_wrong(r, item->name_at, "\"%s\" is there twice, first in line %u",
                               item->name, json_node_get(node, item->name)->name_at.line);
        if (!err)
            err = check_members(r, item);
    }
    return err;
}

static int unknown_section(struct reading *r, const struct json_node *section)
{
    const char *meant = config_meant(section, sections);

    for (size_t k = 0; meant && k < SECTIONS; k++)
        if (meant == sections[k] && !json_node_get(r->root, meant))
            r->amiss |= without[k];
    return config_unknown(r, section, "the configuration", sections);
}

static int check_sections(struct reading *r)
{
    int err = 0;

    for (size_t i = 0; !err && i < r->root->n; i++) {
        const struct json_node *section = &r->root->items[i];
        size_t k = 0;

        while (sections[k] && strcmp(sections[k], section->name) != 0)
            k++;
        if (!sections[k] && config_member(section))
            err = unknown_section(r, section);
        else if (sections[k] && strcmp(section->name, "latest") == 0)
            err = config_wrong(r, section->name_at, "\"latest\" is not built yet");
    }
    return err;
}

static int read_sections(struct reading *r)
{
    const struct json_node *fs = json_node_get(r->root, "default_fs");
    const struct json_node *stores = json_node_get(r->root, "stores");
    const struct json_node *cache = json_node_get(r->root, "cache");
    const struct json_node *options = json_node_get(r->root, "options");
    int err = fs ? read_default_fs(r, fs) : 0;

    if (!err && stores)
        err = config_read_stores(r, stores);
    if (!err)
        err = config_read_policies(r, json_node_get(r->root, "policies"));
    if (!err)
        err = stores ? read_tree(r, stores) : refuse_tree(r);
    if (!err && cache)
        err = read_cache(r, cache);
    if (!err && options)
        err = read_options(r, options);
    return err;
}

static int read_root(struct reading *r)
{
    bool ok;
    int err = config_expect(r, r->root, JSON_OBJECT, "a configuration", &ok);

    if (err || !ok)
        return err;
    err = check_members(r, r->root);
    if (!err)
        err = check_sections(r);
    return err ? err : read_sections(r);
}

static int read_text(struct reading *r, const char *text, size_t len)
{
    struct json_node root;
    struct text_place at;
    const char *why;
    int err = json_places_parse(text, len, &root, &at, &why);

    if (err == -EINVAL)
        return config_wrong(r, at, "%s", why);
    if (err)
        return err;
    r->root = &root;
    err = read_root(r);
    url_base_release(&r->base);
    json_node_release(&root);
    return err;
}

int config_parse(const char *text, size_t len, const char *origin, struct op *op,
                 struct config_problems *problems, struct config *ret)
{
    struct config_problems own = {0};
    struct config config = {.origin = strdup(origin)};
    struct reading r = {
        .origin = origin, .op = op, .config = &config, .problems = problems ? problems : &own};
    int err = config.origin ? read_text(&r, text, len) : -ENOMEM;

    if (err)
        err = op_fail(op, err, "%s: out of memory", origin);
    else if (r.problems->n > 0)
        err = config_problems_fail(r.problems, origin, op);
    config_problems_release(&own);
    if (err) {
        config_release(&config);
        return err;
    }
    config_drop_policies(&config);
    op->why[0] = '\0';
    *ret = config;
    return 0;
}

int config_load(const char *path, struct op *op, struct config_problems *problems,
                struct config *ret)
{
    auto_buf struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    const char *why;
    int err = read_small_file(path, CONFIG_TEXT_MAX, &text, NULL, &why);

    if (!err)
        return config_parse(text.data ? text.data : "", text.len, path, op, problems, ret);
    if (problems && config_problem_add(problems, (struct text_place){0}, "%s", why))
        return op_fail(op, -ENOMEM, "%s: out of memory", path);
    return op_fail(op, err, "%s: %s", path, why);
}

/* ---- one URL ---- */

static int add_url_store(struct config *c, const char *url, const struct settings *settings)
{
    struct config_store *store;
    int err = 0;

    if (array_grow(c->stores, c->cap_stores, 1))
        return -ENOMEM;
    store = c->stores;
    *store = (struct config_store){.name = strdup("store"), .url = strdup(url)};
    c->n_stores = 1;
    if (!store->name || !store->url)
        return -ENOMEM;
    for (size_t i = 0; settings && !err && i < settings->n; i++)
        err = settings_add(&store->settings, settings->items[i].name, settings->items[i].value);
    return err;
}

int config_of_url(const char *url, const struct settings *settings, const char *layout,
                  struct op *op, struct config *ret)
{
    struct config_problems problems = {0};
    struct config config = {.origin = strdup("")};
    struct reading r = {.origin = "", .op = op, .config = &config, .problems = &problems};
    int err = config.origin ? add_url_store(&config, url, settings) : -ENOMEM;

    if (!err && url_has_secret(url))
        err = op_fail(op, -EINVAL,
                      "credentials don't belong in a URL; take them from the environment or a "
                      "profile");
    if (!err)
        err = config_read_policies(&r, NULL);
    if (!err)
        err = config_layout_of_url(&r, layout ? layout : "plain");
    if (err == -ENOMEM)
        err = op_fail(op, err, "out of memory");
    config_problems_release(&problems);
    if (err) {
        config_release(&config);
        return err;
    }
    config_drop_policies(&config);
    *ret = config;
    return 0;
}

void config_release(struct config *c)
{
    config_stores_release(c);
    for (size_t i = 0; i < c->n_options; i++) {
        free(c->options[i].name);
        free(c->options[i].value);
    }
    free(c->options);
    free(c->origin);
    free(c->layout);
    policies_release(&c->policies);
    routes_release(&c->routes);
    *c = (struct config){0};
}
