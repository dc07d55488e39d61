/* "stores" of a configuration: their URLs, completed, and their settings. */
#include "common/mem.h"
#include "runs/config_impl.h"

#include <stdio.h>

size_t config_find_store(const struct config *c, const char *name, size_t len)
{
    for (size_t i = 0; i < c->n_stores; i++)
        if (strlen(c->stores[i].name) == len && memcmp(c->stores[i].name, name, len) == 0)
            return i;
    return SIZE_MAX;
}

static void store_release(struct config_store *store)
{
    free(store->name);
    free(store->url);
    settings_release(&store->settings);
}

void config_stores_release(struct config *c)
{
    for (size_t i = 0; i < c->n_stores; i++)
        store_release(&c->stores[i]);
    free(c->stores);
}

int config_unknown_store(struct reading *r, struct text_place at, const char *who,
                         const char *name)
{
    auto_buf struct buf names = BUF_INIT(CONFIG_TEXT_MAX);

    if (r->amiss & AMISS_STORES)
        return 0;
    for (size_t i = 0; i < r->config->n_stores; i++)
        if (buf_addf(&names, "%s%s", i ? ", " : "", r->config->stores[i].name))
            return -ENOMEM;
    return config_wrong(r, at, "%s names the store \"%s\"; \"stores\" has %s", who, name,
                        names.data ? names.data : "none");
}

int config_store_setting(struct reading *r, struct config_store *store, const char *name,
                         const char *value, struct text_place at)
{
    if (url_has_secret(value))
        return config_wrong(r, at,
                            "\"%s\" of a store: credentials don't belong in a URL; take them "
                            "from the environment or a profile",
                            name);
    return settings_get(&store->settings, name) ? 0
                                                : settings_add(&store->settings, name, value);
}

static int read_setting(struct reading *r, struct config_store *store,
                        const struct json_node *member)
{
    auto_free char *value = NULL;
    int err;

    if (config_name_secret(member->name))
        return config_wrong(r, member->name_at,
                            "\"%s\" of a store: secrets don't belong in a configuration; take "
                            "them from the environment or a profile",
                            member->name);
    err = config_scalar(r, member, "a store", false, &value);
    if (err || !value)
        return err;
    return config_store_setting(r, store, member->name, value, member->at);
}

static int read_url(struct reading *r, struct config_store *store,
                    const struct json_node *member)
{
    const char *url, *why = NULL;
    int err = config_text(r, member, "a store", &url);

    store->url_at = member->at;
    if (err || !url)
        return err;
    if (url_has_secret(url))
        return config_wrong(r, member->at,
                            "credentials don't belong in a URL; take them from the environment "
                            "or a profile");
    err = url_resolve(&r->base, url, settings_get(&store->settings, "host"), &store->url, &why);
    if (err == -EINVAL && (r->amiss & AMISS_FS) && url_scheme_len(url) == 0)
        return 0;
    return err == -EINVAL ? config_wrong(r, member->at, "%s", why) : err;
}

/* A relative name is beside the configuration. */
static int read_tracker(struct reading *r, struct config_store *store,
                        const struct json_node *member)
{
    const char *slash = strrchr(r->origin, '/'), *file;
    auto_free char *path = NULL;
    int err = config_text(r, member, "a store", &file);

    store->url_at = member->at;
    if (err || !file)
        return err;
    if (asprintf(&path, "%.*s%s", *file == '/' || !slash ? 0 : (int)(slash + 1 - r->origin),
                 r->origin, file) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return config_read_tracker(r, store, path);
}

static bool is_place(const struct json_node *member)
{
    return strcmp(member->name, "url") == 0 || strcmp(member->name, "torchx_config") == 0;
}

static int read_place(struct reading *r, struct config_store *store,
                      const struct json_node *node)
{
    const struct json_node *url = json_node_get(node, "url");
    const struct json_node *tracker = json_node_get(node, "torchx_config");

    store->url_at = node->at;
    if (url && tracker)
        return config_wrong(r, tracker->name_at,
                            "a store has a \"url\" or a \"torchx_config\", not both");
    if (url)
        return read_url(r, store, url);
    if (tracker)
        return read_tracker(r, store, tracker);
    return config_wrong(r, node->at, "store \"%s\" needs a \"url\" or a \"torchx_config\"",
                        store->name);
}

static int read_store(struct reading *r, const struct json_node *node)
{
    struct config *c = r->config;
    struct config_store *store;
    bool ok;
    int err = config_name_ok(r, node, "store", &ok);

    if (!ok)
        r->amiss |= AMISS_STORES;
    if (err || !ok)
        return err;
    if (c->n_stores == CONFIG_STORES_MAX)
        r->amiss |= AMISS_STORES;
    if (c->n_stores == CONFIG_STORES_MAX)
        return config_wrong(r, node->name_at, "more than %d stores", CONFIG_STORES_MAX);
    if (array_grow(c->stores, c->cap_stores, c->n_stores + 1))
        return -ENOMEM;
    store = &c->stores[c->n_stores];
    *store = (struct config_store){.name = strdup(node->name), .at = node->name_at};
    if (!store->name)
        return -ENOMEM;
    c->n_stores++;
    err = config_expect(r, node, JSON_OBJECT, "a store", &ok);
    for (size_t i = 0; !err && ok && i < node->n; i++)
        if (config_member(&node->items[i]) && !is_place(&node->items[i]))
            err = read_setting(r, store, &node->items[i]);
    return err || !ok ? err : read_place(r, store, node);
}

int config_read_stores(struct reading *r, const struct json_node *stores)
{
    bool ok;
    int err = config_expect(r, stores, JSON_OBJECT, "\"stores\"", &ok);

    if (!ok || stores->n == 0)
        r->amiss |= AMISS_STORES;
    if (!err && ok && stores->n == 0)
        return config_wrong(r, stores->at, "\"stores\" has no store");
    for (size_t i = 0; !err && ok && i < stores->n; i++)
        if (config_member(&stores->items[i]))
            err = read_store(r, &stores->items[i]);
    return err;
}

/* ---- stores without a path ---- */

bool config_store_used(const struct config *c, size_t store)
{
    for (size_t i = 0; i < c->routes.n; i++)
        if (!c->routes.items[i].scratch && c->routes.items[i].store == store)
            return true;
    return false;
}

/* Scratch is in no store: its routes may name any. */
static void move_routes(struct config *c, size_t from, size_t to)
{
    for (size_t i = 0; i < c->routes.n; i++)
        if (c->routes.items[i].store == from)
            c->routes.items[i].store = (unsigned)to;
}

void config_drop_unused(struct config *c)
{
    size_t kept = 0;
    bool any = false;

    for (size_t i = 0; i < c->n_stores; i++)
        any = any || config_store_used(c, i);
    for (size_t i = 0; i < c->n_stores; i++) {
        bool used = config_store_used(c, i) || (!any && i == 0);

        move_routes(c, i, used ? kept : 0);
        if (!used) {
            store_release(&c->stores[i]);
            continue;
        }
        if (kept != i)
            c->stores[kept] = c->stores[i];
        kept++;
    }
    c->n_stores = kept;
}
