/* Identities as JSON with sorted keys. */
#include "cli/identity.h"

#include "backends/routed/routed.h"
#include "cli/control_io.h"
#include "common/buf.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define DIFFERENCE_MAX 1024

/* ---- making ---- */

char *identity_make(const char *url, const char *endpoint)
{
    auto_json json_t *j = json_pack("{s:o, s:s}", "url", control_text(url), "layout", "plain");

    if (!j || (endpoint && json_object_set_new(j, "endpoint", control_text(endpoint))))
        return NULL;
    return json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
}

static json_t *store_json(const struct config_store *store, const struct store *opened)
{
    const char *user = settings_get(&store->settings, "user");
    json_t *j = json_pack("{s:o}", "url", control_text(opened->url));

    if (j && opened->endpoint)
        (void)json_object_set_new(j, "endpoint", control_text(opened->endpoint));
    if (j && user)
        (void)json_object_set_new(j, "user", control_text(user));
    return j;
}

static json_t *stores_json(const struct config *config, const struct open_stores *stores)
{
    json_t *all = json_object();

    for (size_t i = 0; all && i < config->n_stores; i++) {
        json_t *one = store_json(&config->stores[i], stores->stores[i]);

        if (json_object_set_new(all, config->stores[i].name, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static json_t *route_json(const struct config *config, const struct route *r)
{
    if (r->scratch)
        return json_pack("{s:o, s:b}", "path", control_text(r->path.text), "scratch", 1);
    return json_pack("{s:o, s:o, s:s}", "path", control_text(r->path.text), "key",
                     control_text(r->key.text), "store", config->stores[r->store].name);
}

static json_t *routes_json(const struct config *config)
{
    json_t *all = json_array();

    for (size_t i = 0; all && i < config->routes.n; i++) {
        if (json_array_append_new(all, route_json(config, &config->routes.items[i]))) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

char *identity_routes(const struct config *config)
{
    auto_json json_t *j = routes_json(config);

    return j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

char *identity_of(const struct config *config, const struct open_stores *stores)
{
    auto_json json_t *j = NULL;

    if (open_stores_is_one(stores))
        return identity_make(stores->top->url, stores->top->endpoint);
    j = json_pack("{s:o, s:o}", "stores", stores_json(config, stores), "routes",
                  routes_json(config));
    return j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

/* ---- reading back ---- */

/* A store that has all says of what form its tree is beside its options. */
static int add_texts(const json_t *j, struct settings *to)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)j, key, value)
    {
        if (strcmp(key, "url") == 0 || strcmp(key, "layout") == 0)
            continue;
        if (!json_is_string(value) || settings_add(to, key, json_string_value(value)))
            return -EINVAL;
    }
    return 0;
}

static int add_store(struct identity *to, const char *name, const json_t *j)
{
    const char *url = json_string_value(json_object_get(j, "url"));
    struct identity_store *store = &to->stores[to->n++];

    if (!url)
        return -EINVAL;
    store->name = name ? strdup(name) : NULL;
    store->url = strdup(url);
    if ((name && !store->name) || !store->url)
        return -ENOMEM;
    return add_texts(j, &store->settings);
}

static char *title_of(const struct identity *identity)
{
    auto_free const char **names = calloc(identity->n + 1, sizeof(*names));

    if (!names || identity->n < 2)
        return identity->n == 1 ? strdup(identity->stores[0].url) : NULL;
    for (size_t i = 0; i < identity->n; i++)
        names[i] = identity->stores[i].name;
    return routed_title(names, identity->n);
}

static int parse_several(const json_t *j, const json_t *stores, struct identity *to)
{
    const json_t *routes = json_object_get(j, "routes");
    const char *name;
    json_t *store;
    int err = 0;

    to->stores = calloc(json_object_size(stores) + 1, sizeof(*to->stores));
    to->routes =
        json_is_array(routes) ? json_dumps(routes, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!to->stores || !to->routes)
        return -EINVAL;
    json_object_foreach((json_t *)stores, name, store)
    {
        if (!err)
            err = add_store(to, name, store);
    }
    to->title = err ? NULL : title_of(to);
    return to->title ? 0 : -EINVAL;
}

static int parse_json(const json_t *j, struct identity *to)
{
    const json_t *stores = json_object_get(j, "stores");
    int err;

    if (json_is_object(stores))
        return parse_several(j, stores, to);
    to->stores = calloc(1, sizeof(*to->stores));
    if (!to->stores)
        return -ENOMEM;
    err = add_store(to, NULL, j);
    to->title = err ? NULL : strdup(to->stores[0].url);
    return to->title ? 0 : -EINVAL;
}

void identity_release(struct identity *identity)
{
    for (size_t i = 0; i < identity->n; i++) {
        free(identity->stores[i].name);
        free(identity->stores[i].url);
        settings_release(&identity->stores[i].settings);
    }
    free(identity->stores);
    free(identity->routes);
    free(identity->title);
    *identity = (struct identity){0};
}

int identity_parse(const char *text, struct op *op, struct identity *ret)
{
    auto_json json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    struct identity identity = {0};

    if (parse_json(j, &identity)) {
        identity_release(&identity);
        return op_fail(op, -EINVAL, "the cache directory's identity can't be read");
    }
    *ret = identity;
    return 0;
}

/* ---- the first difference ---- */

static const struct identity_store *find_store(const struct identity *in, const char *name)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->stores[i].name, name) == 0)
            return &in->stores[i];
    return NULL;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static const char *or_none(const char *text)
{
    return text ? text : "none";
}

/* What is told, of a cache and of `who`, who has other stores or routes. */
struct telling {
    struct buf *to;
    const char *who;
};

/* "" when they are one store. */
static int tell_store(const struct telling *t, const struct identity_store *cache,
                      const struct identity_store *other)
{
    static const char *const names[] = {"endpoint", "user"};
    const char *quote = cache->name ? "\"" : "", *name = cache->name ? cache->name : "a store";

    if (strcmp(cache->url, other->url) != 0)
        return buf_addf(t->to, "the cache is of %s%s%s at %s, %s has %s", quote, name, quote,
                        cache->url, t->who, other->url);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *a = settings_get(&cache->settings, names[i]);
        const char *b = settings_get(&other->settings, names[i]);

        if (!is_same_text(a, b))
            return buf_addf(t->to, "the cache is of %s%s%s with %s %s, %s has %s", quote, name,
                            quote, names[i], or_none(a), t->who, or_none(b));
    }
    return 0;
}

static int tell_stores(const struct telling *t, const struct identity *cache,
                       const struct identity *other)
{
    int err = 0;

    for (size_t i = 0; i < cache->n && !err && !t->to->len; i++) {
        const struct identity_store *one = &cache->stores[i];
        const struct identity_store *same = find_store(other, one->name);

        err = same ? tell_store(t, one, same)
                   : buf_addf(t->to, "the cache is of \"%s\" at %s, too, which %s has not",
                              one->name, one->url, t->who);
    }
    for (size_t i = 0; i < other->n && !err && !t->to->len; i++)
        if (!find_store(cache, other->stores[i].name))
            err = buf_addf(t->to, "%s has \"%s\" at %s, too, of which the cache is not", t->who,
                           other->stores[i].name, other->stores[i].url);
    return err;
}

static const char *field(const json_t *route, const char *name)
{
    const char *text = json_string_value(json_object_get(route, name));

    return text ? text : "";
}

static int add_route(struct buf *to, const json_t *route)
{
    if (!route)
        return buf_adds(to, "none");
    if (json_is_true(json_object_get(route, "scratch")))
        return buf_addf(to, "%s in no store", field(route, "path"));
    return buf_addf(to, "%s to %s of \"%s\"", field(route, "path"), field(route, "key"),
                    field(route, "store"));
}

static int tell_routes(const struct telling *t, const struct identity *cache,
                       const struct identity *other)
{
    auto_json json_t *a = json_loads(cache->routes, 0, NULL);
    auto_json json_t *b = json_loads(other->routes, 0, NULL);
    size_t i = 0;
    int err;

    while (i < json_array_size(a) && json_equal(json_array_get(a, i), json_array_get(b, i)))
        i++;
    err = buf_addf(t->to, "route %zu of the cache is ", i + 1);
    if (!err)
        err = add_route(t->to, json_array_get(a, i));
    if (!err)
        err = buf_addf(t->to, ", that of %s ", t->who);
    return err ? err : add_route(t->to, json_array_get(b, i));
}

static int tell_difference(const struct telling *t, const struct identity *cache,
                           const struct identity *other)
{
    int err;

    if (!cache->routes != !other->routes)
        return buf_addf(t->to, "the cache is of %s %s routes, %s has %s %s", cache->title,
                        cache->routes ? "with" : "without", t->who, other->title,
                        other->routes ? "with some" : "without");
    assert(cache->stores && other->stores);
    if (!cache->routes)
        return tell_store(t, &cache->stores[0], &other->stores[0]);
    err = tell_stores(t, cache, other);
    return err || t->to->len ? err : tell_routes(t, cache, other);
}

char *identity_difference(const char *of_cache, const char *of_other, const char *who)
{
    auto_buf struct buf text = BUF_INIT(DIFFERENCE_MAX);
    const struct telling telling = {.to = &text, .who = who};
    struct identity cache = {0}, other = {0};
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = identity_parse(of_cache, &op, &cache);
    if (!err)
        err = identity_parse(of_other, &op, &other);
    if (!err)
        err = tell_difference(&telling, &cache, &other);
    identity_release(&cache);
    identity_release(&other);
    return err ? NULL : buf_take(&text);
}

/* ---- where a cache lies ---- */

char *identity_cache_home(void)
{
    const char *home = getenv("XDG_CACHE_HOME");
    char *path = NULL;

    if (geteuid() == 0)
        return strdup("/var/cache/runfs");
    if (home && *home == '/') {
        if (asprintf(&path, "%s/runfs", home) < 0)
            return NULL;
        return path;
    }
    home = getenv("HOME");
    if (!home || *home != '/' || asprintf(&path, "%s/.cache/runfs", home) < 0)
        return NULL;
    return path;
}

char *identity_default_dir(const char *identity, const char *mountpoint)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    auto_free char *home = identity_cache_home();
    auto_free char *text = NULL;
    char *dir = NULL, hex[2 * 12 + 1];
    unsigned len;

    if (!home || asprintf(&text, "%s\n%s", identity, mountpoint) < 0) {
        text = NULL;
        return NULL;
    }
    if (!EVP_Digest(text, strlen(text), hash, &len, EVP_sha256(), NULL))
        return NULL;
    for (size_t i = 0; i < 12; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    if (asprintf(&dir, "%s/%s", home, hex) < 0)
        return NULL;
    return dir;
}

char *identity_former_dir(const char *url, const char *endpoint, const char *mountpoint)
{
    auto_free char *identity = endpoint ? identity_make(url, NULL) : NULL;

    return identity ? identity_default_dir(identity, mountpoint) : NULL;
}
