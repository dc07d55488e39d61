/* The configuration file: from JSON to names and texts. */
#include "cli/single_config.h"

#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>

#define CONFIG_MAX (1024 * 1024)

#define ROUTES_HINT                                                                            \
    "this version accepts exactly one route, {\"path\": \"**\", \"store\": NAME}"

struct parse {
    const char *origin;
    struct op *op;
    struct single_config *config;
};

static void json_cleanup(json_t **j)
{
    json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

/* A JSON scalar as the text that `-o name=value` would carry; lists of texts are joined by ":".
 */
static int scalar_text(const json_t *value, struct buf *text)
{
    const json_t *item;
    size_t i;

    switch (json_typeof(value)) {
    case JSON_STRING:
        if (strlen(json_string_value(value)) != json_string_length(value))
            return -EINVAL;
        return buf_adds(text, json_string_value(value));
    case JSON_INTEGER:
        return buf_addf(text, "%lld", (long long)json_integer_value(value));
    case JSON_TRUE:
        return buf_adds(text, "true");
    case JSON_FALSE:
        return buf_adds(text, "false");
    case JSON_ARRAY:
        json_array_foreach(value, i, item)
        {
            int err;

            if (!json_is_string(item) || strchr(json_string_value(item), ':'))
                return -EINVAL;
            err = buf_addf(text, "%s%s", i ? ":" : "", json_string_value(item));
            if (err)
                return err;
        }
        return 0;
    default:
        return -EINVAL;
    }
}

static int add_setting(struct parse *p, struct settings *to, const char *section,
                       const char *json_name, const char *name, const json_t *value)
{
    auto_buf struct buf text = BUF_INIT(CONFIG_MAX);
    int err = scalar_text(value, &text);

    if (err == -ENOMEM)
        return op_fail(p->op, err, "%s: out of memory", p->origin);
    if (err)
        return op_fail(p->op, -EINVAL,
                       "%s: \"%s\" in \"%s\" must be a text, an integer, a boolean or a list "
                       "of texts without \":\"",
                       p->origin, json_name, section);
    err = settings_add(to, name, text.data ? text.data : "");
    return err ? op_fail(p->op, err, "%s: out of memory", p->origin) : 0;
}

static int parse_store(struct parse *p, const char *name, json_t *store)
{
    const json_t *url;
    const char *key;
    json_t *value;

    if (!json_is_object(store))
        return op_fail(p->op, -EINVAL, "%s: store \"%s\" must be an object", p->origin, name);
    url = json_object_get(store, "url");
    if (!json_is_string(url) || json_string_length(url) == 0)
        return op_fail(p->op, -EINVAL, "%s: store \"%s\" needs a \"url\"", p->origin, name);
    p->config->store_name = strdup(name);
    p->config->url = strdup(json_string_value(url));
    if (!p->config->store_name || !p->config->url)
        return op_fail(p->op, -ENOMEM, "%s: out of memory", p->origin);
    json_object_foreach(store, key, value)
    {
        int err;

        if (strcmp(key, "url") == 0)
            continue;
        err = add_setting(p, &p->config->store, name, key, key, value);
        if (err)
            return err;
    }
    return 0;
}

static int parse_stores(struct parse *p, json_t *stores)
{
    void *first;

    if (!json_is_object(stores))
        return op_fail(p->op, -EINVAL, "%s: \"stores\" must be an object", p->origin);
    if (json_object_size(stores) != 1)
        return op_fail(p->op, -EINVAL, "%s: \"stores\" has %zu stores, this version takes one",
                       p->origin, json_object_size(stores));
    first = json_object_iter(stores);
    return parse_store(p, json_object_iter_key(first), json_object_iter_value(first));
}

/* One field of the one route. */
static int parse_route_field(struct parse *p, const char *key, const json_t *value)
{
    const char *text = json_string_value(value);
    const char *store = p->config->store_name;

    if (!text)
        return op_fail(p->op, -EINVAL, "%s: \"%s\" of a route must be a text", p->origin, key);
    if (strcmp(key, "path") == 0 || strcmp(key, "key") == 0) {
        if (strcmp(text, "**") == 0)
            return 0;
        return op_fail(p->op, -EINVAL, "%s: route with \"%s\": \"%s\": " ROUTES_HINT, p->origin,
                       key, text);
    }
    if (strcmp(key, "store") == 0) {
        if (store && strcmp(text, store) == 0)
            return 0;
        return op_fail(p->op, -EINVAL,
                       "%s: a route names the store \"%s\", which is not in "
                       "\"stores\"",
                       p->origin, text);
    }
    return op_fail(p->op, -EINVAL, "%s: a route has \"%s\": " ROUTES_HINT, p->origin, key);
}

static int parse_routes(struct parse *p, json_t *routes)
{
    json_t *route = json_array_get(routes, 0);
    const char *key;
    json_t *value;

    if (!json_is_array(routes) || json_array_size(routes) != 1 || !json_is_object(route))
        return op_fail(p->op, -EINVAL, "%s: \"routes\": " ROUTES_HINT, p->origin);
    if (!json_object_get(route, "path") || !json_object_get(route, "store"))
        return op_fail(p->op, -EINVAL, "%s: a route lacks \"path\" or \"store\": " ROUTES_HINT,
                       p->origin);
    json_object_foreach(route, key, value)
    {
        int err = parse_route_field(p, key, value);

        if (err)
            return err;
    }
    return 0;
}

static int parse_cache(struct parse *p, json_t *cache)
{
    static const char *const names[][2] = {
        {"dir", "cache_dir"}, {"size", "cache_size"}, {"reserve", "cache_reserve"}};
    const char *key;
    json_t *value;

    if (!json_is_object(cache))
        return op_fail(p->op, -EINVAL, "%s: \"cache\" must be an object", p->origin);
    json_object_foreach(cache, key, value)
    {
        const char *name = NULL;
        int err;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (strcmp(key, names[i][0]) == 0)
                name = names[i][1];
        if (!name)
            return op_fail(p->op, -EINVAL,
                           "%s: unknown \"%s\" in \"cache\", known are dir, size and reserve",
                           p->origin, key);
        err = add_setting(p, &p->config->options, "cache", key, name, value);
        if (err)
            return err;
    }
    return 0;
}

static int parse_options(struct parse *p, json_t *options)
{
    const char *key;
    json_t *value;

    if (!json_is_object(options))
        return op_fail(p->op, -EINVAL, "%s: \"options\" must be an object", p->origin);
    json_object_foreach(options, key, value)
    {
        int err = add_setting(p, &p->config->options, "options", key, key, value);

        if (err)
            return err;
    }
    return 0;
}

static int parse_root(struct parse *p, json_t *root)
{
    /* In this order: a route refers to a store. */
    static const struct {
        const char *name;
        int (*parse)(struct parse *p, json_t *value);
    } sections[] = {{"stores", parse_stores},
                    {"routes", parse_routes},
                    {"cache", parse_cache},
                    {"options", parse_options}};
    const char *key;
    json_t *value;

    if (!json_is_object(root))
        return op_fail(p->op, -EINVAL, "%s: a configuration is a JSON object", p->origin);
    json_object_foreach(root, key, value)
    {
        size_t i = 0;

        while (i < ARRAY_SIZE(sections) && strcmp(key, sections[i].name) != 0)
            i++;
        if (i == ARRAY_SIZE(sections))
            return op_fail(p->op, -EINVAL,
                           "%s: unknown section \"%s\", known are stores, routes, cache and "
                           "options",
                           p->origin, key);
    }
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        json_t *section = json_object_get(root, sections[i].name);
        int err = section ? sections[i].parse(p, section) : 0;

        if (err)
            return err;
    }
    return 0;
}

/* Whole content of a small file. */
static int read_file(const char *path, struct op *op, struct buf *to)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char chunk[4096];
    ssize_t n;

    if (fd < 0) {
        int err = -errno;
        return op_fail(op, err, "%s: %s", path, strerror(-err));
    }
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        int err = buf_add(to, chunk, (size_t)n);

        if (err)
            return op_fail(op, err, "%s: larger than a configuration may be (1 MiB)", path);
    }
    if (n < 0) {
        int err = -errno;
        return op_fail(op, err, "%s: %s", path, strerror(-err));
    }
    return 0;
}

int single_config_parse(const char *text, size_t len, const char *origin, struct op *op,
                        struct single_config *ret)
{
    struct single_config config = {0};
    struct parse p = {.origin = origin, .op = op, .config = &config};
    json_error_t where;
    auto_json json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    int err;

    if (!root)
        return op_fail(op, -EINVAL, "%s: line %d column %d: %s", origin, where.line,
                       where.column, where.text);
    err = parse_root(&p, root);
    if (err) {
        single_config_release(&config);
        return err;
    }
    *ret = config;
    return 0;
}

int single_config_load(const char *path, struct op *op, struct single_config *ret)
{
    auto_buf struct buf text = BUF_INIT(CONFIG_MAX);
    int err = read_file(path, op, &text);

    if (err)
        return err;
    return single_config_parse(text.data ? text.data : "", text.len, path, op, ret);
}

void single_config_release(struct single_config *c)
{
    free(c->store_name);
    free(c->url);
    settings_release(&c->store);
    settings_release(&c->options);
    *c = (struct single_config){0};
}
