/* What a cache directory keeps of how its stores are reached. */
#include "cli/kept_config.h"

#include "backends/where.h"
#include "cache/mirror/door.h"
#include "cli/configured.h"
#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS_NAME "store.json"
#define CONFIG_NAME  "config.json"

/* ---- keeping ---- */

static json_t *settings_json(const struct settings *store)
{
    json_t *j = json_object();

    for (size_t i = 0; j && i < store->n; i++)
        (void)json_object_set_new(j, store->items[i].name, control_text(store->items[i].value));
    return j;
}

static int save(int dir_fd, const char *name, const char *text, struct op *op)
{
    int r = text ? door_write_text(dir_fd, name, text) : -ENOMEM;

    return r < 0 ? op_fail(op, r, "cannot write %s of the cache: %s", name, door_why(r)) : 0;
}

static int save_options(int dir_fd, const struct config *config, struct op *op)
{
    auto_json json_t *j = settings_json(&config->stores[0].settings);
    auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;

    return save(dir_fd, OPTIONS_NAME, text, op);
}

int kept_config_save(int dir_fd, const struct config *config, struct op *op)
{
    auto_free char *text = NULL;
    int err = config->n_stores == 1 ? save_options(dir_fd, config, op) : 0;

    if (err)
        return err;
    if (!configured_is_plain(config)) {
        text = config_expand(config, false);
        return save(dir_fd, CONFIG_NAME, text, op);
    }
    if (unlinkat(dir_fd, CONFIG_NAME, 0) < 0 && errno != ENOENT)
        return op_fail(op, -errno, "cannot remove " CONFIG_NAME " of the cache: %s",
                       strerror(errno));
    return 0;
}

/* ---- reading back ---- */

static int parse_options(const char *text, struct settings *ret)
{
    auto_json json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *name;
    json_t *value;
    int err = json_is_object(j) ? 0 : -EINVAL;

    json_object_foreach(j, name, value)
    {
        if (!err)
            err = json_is_string(value) ? settings_add(ret, name, json_string_value(value))
                                        : -EINVAL;
    }
    return err;
}

/* None kept is no error. */
static int load_options(int dir_fd, struct op *op, struct settings *ret)
{
    auto_free char *text = NULL;
    int r = door_read_text(dir_fd, OPTIONS_NAME, &text);

    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = parse_options(text, ret);
    return r < 0 ? op_fail(op, r, OPTIONS_NAME " of the cache can't be read: %s", door_why(r))
                 : 0;
}

static int load_one(int dir_fd, const struct identity *identity, struct op *op,
                    struct config *ret)
{
    struct settings settings = {0};
    int err = load_options(dir_fd, op, &settings);

    if (!err)
        err = config_of_url(identity->stores[0].url, &settings, NULL, op, ret);
    settings_release(&settings);
    return err;
}

/* 0 with *ret_found unset: none was kept. */
static int load_whole(int dir_fd, const char *dir, struct op *op, bool *ret_found,
                      struct config *ret)
{
    auto_free char *text = NULL;
    auto_free char *origin = NULL;
    int r = door_read_text(dir_fd, CONFIG_NAME, &text);

    *ret_found = r == 0;
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return op_fail(op, r, CONFIG_NAME " of the cache %s can't be read: %s", dir,
                       door_why(r));
    if (asprintf(&origin, "%s/" CONFIG_NAME, dir) < 0) {
        origin = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    return config_parse(text, strlen(text), origin, op, NULL, ret);
}

static struct config_store *find_store(struct config *config, const char *name)
{
    if (!name)
        return &config->stores[0];
    for (size_t i = 0; i < config->n_stores; i++)
        if (strcmp(config->stores[i].name, name) == 0)
            return &config->stores[i];
    return NULL;
}

/* A profile or the environment may lead elsewhere by now; the identity says where it was. */
static int use_place(struct config_store *store, const struct identity_store *was,
                     struct op *op)
{
    char *url = strdup(was->url);
    int err = url ? 0 : -ENOMEM;

    for (size_t i = 0; i < was->settings.n && !err; i++)
        err = settings_add(&store->settings, was->settings.items[i].name,
                           was->settings.items[i].value);
    if (err) {
        free(url);
        return op_fail(op, err, "out of memory");
    }
    free(store->url);
    store->url = url;
    return 0;
}

static bool has_routes_of(const struct config *config, const struct identity *identity)
{
    auto_free char *routes = NULL;

    if (!identity->routes)
        return routes_trivial(&config->routes);
    routes = identity_routes(config);
    return routes && strcmp(routes, identity->routes) == 0;
}

static int check_routes(const struct config *config, const struct identity *identity,
                        const char *dir, struct op *op)
{
    if (config->n_stores == identity->n && has_routes_of(config, identity))
        return 0;
    return op_fail(op, -EINVAL,
                   CONFIG_NAME " of the cache %s has other stores or routes than the cache: "
                               "mount it with the configuration that it had",
                   dir);
}

static int use_identity(struct config *config, const struct identity *identity, const char *dir,
                        struct op *op)
{
    int err = check_routes(config, identity, dir, op);

    for (size_t i = 0; i < identity->n && !err; i++) {
        struct config_store *store = find_store(config, identity->stores[i].name);

        err = store
                  ? use_place(store, &identity->stores[i], op)
                  : op_fail(op, -EINVAL, CONFIG_NAME " of the cache %s lacks the store \"%s\"",
                            dir, identity->stores[i].name);
    }
    return err;
}

int kept_config_stay(const struct identity *identity, struct op *op, struct config *config)
{
    int err = 0;

    for (size_t i = 0; i < identity->n && !err; i++) {
        const struct identity_store *was = &identity->stores[i];
        struct config_store *store = find_store(config, was->name);
        const char *none = store_no_endpoint(was->url);

        if (store && none && !settings_get(&was->settings, "endpoint"))
            err = settings_add(&store->settings, "endpoint", none);
    }
    return err ? op_fail(op, err, "out of memory") : 0;
}

int kept_config_load(int dir_fd, const char *dir, const struct identity *identity,
                     struct op *op, struct config *ret)
{
    struct config config = {0};
    bool found;
    int err = load_whole(dir_fd, dir, op, &found, &config);

    if (!err && !found && !identity->routes)
        err = load_one(dir_fd, identity, op, &config);
    else if (!err && !found)
        err = op_fail(op, -ENOENT,
                      "the cache %s lacks " CONFIG_NAME ": mount it with the configuration "
                      "that it had",
                      dir);
    if (err)
        return err;
    err = use_identity(&config, identity, dir, op);
    if (err) {
        config_release(&config);
        return err;
    }
    *ret = config;
    return 0;
}
