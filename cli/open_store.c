/* From the stores of a configuration to an open one. */
#include "cli/open_store.h"

#include "backends/routed/routed.h"
#include "cli/configured.h"
#include "common/mem.h"
#include "common/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define OPENED_AT_ONCE 8

struct opening {
    struct each each;
    const struct config *config;
    const struct mount_options *options;
    struct open_stores *to;
};

int store_settings(const struct settings *settings, struct op *op,
                   struct store_option **ret_list, struct store_config *ret_config)
{
    struct store_option *list = calloc(settings->n + 1, sizeof(*list));
    size_t n = 0;

    if (!list)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t i = 0; i < settings->n; i++) {
        const struct setting *s = &settings->items[i];

        if (settings_get(settings, s->name) == s->value)
            list[n++] = (struct store_option){.name = s->name, .value = s->value};
    }
    *ret_list = list;
    *ret_config = (struct store_config){.options = list, .n_options = n};
    return 0;
}

static int open_one(const struct config_store *from, const struct mount_options *options,
                    struct op *op, struct store **ret)
{
    auto_free struct store_option *list = NULL;
    struct store_config config;
    int err = store_settings(&from->settings, op, &list, &config);

    if (err)
        return err;
    config.connections = options->connections;
    return store_open(from->url, &config, op, ret);
}

static int open_nth(struct each *each, size_t i, struct op *op)
{
    struct opening *o = container_of(each, struct opening, each);
    const struct config_store *store = &o->config->stores[i];
    int err = open_one(store, o->options, op, &o->to->stores[i]);
    struct op why = *op;

    return err ? op_fail(op, err, "store \"%s\": %s", store->name, why.why) : 0;
}

static int open_several(struct opening *o, struct op *op)
{
    unsigned threads = o->each.n < OPENED_AT_ONCE ? (unsigned)o->each.n : OPENED_AT_ONCE;
    struct pool *pool = pool_new("runfs-open", threads);
    int err;

    if (!pool)
        return op_fail(op, -ENOMEM, "can't start threads");
    o->each.call = open_nth;
    o->each.at_once = threads;
    o->each.patience_ns = o->options->mount_timeout_ns;
    err = pool_each(pool, &o->each, op);
    pool_free(pool);
    return err;
}

static int open_each(const struct config *config, const struct mount_options *options,
                     struct op *op, struct open_stores *to)
{
    struct opening o = {.config = config, .options = options, .to = to};

    to->stores = calloc(config->n_stores, sizeof(*to->stores));
    to->names = calloc(config->n_stores, sizeof(*to->names));
    to->told = calloc(config->n_stores, sizeof(*to->told));
    if (!to->stores || !to->names || !to->told)
        return op_fail(op, -ENOMEM, "out of memory");
    to->n = o.each.n = config->n_stores;
    for (size_t i = 0; i < to->n; i++)
        to->names[i] = config->stores[i].name;
    if (to->n > 1)
        return open_several(&o, op);
    op->deadline_ns = clock_mono_ns() + options->mount_timeout_ns;
    return open_one(&config->stores[0], options, op, &to->stores[0]);
}

/* All stores are open; the routes need a store of their own unless they lead all to one. */
static int open_top(const struct config *config, struct op *op, struct open_stores *to)
{
    assert(to->stores && to->told);
    for (size_t i = 0; i < to->n; i++) {
        assert(to->stores[i]);
        to->told[i] = (struct cache_store){.name = to->names[i],
                                           .url = to->stores[i]->url,
                                           .endpoint = to->stores[i]->endpoint};
    }
    if (to->n > 1 || !routes_trivial(&config->routes))
        return routed_store_new(&config->routes, to->stores, to->names, to->n, op, &to->top);
    to->top = to->stores[0];
    return 0;
}

int open_stores(const struct config *config, const struct mount_options *options, struct op *op,
                struct open_stores *ret)
{
    struct open_stores opened = {0};
    int err = open_each(config, options, op, &opened);

    op->deadline_ns = clock_mono_ns() + options->mount_timeout_ns;
    if (!err)
        err = open_top(config, op, &opened);
    if (err) {
        open_stores_close(&opened);
        return err;
    }
    *ret = opened;
    return 0;
}

bool open_stores_is_one(const struct open_stores *s)
{
    return s->n == 1 && s->top == s->stores[0];
}

void open_stores_tell(const struct open_stores *s, const struct config *config,
                      struct cache_config *ret)
{
    if (configured_is_plain(config))
        return;
    ret->routes = &config->routes;
    ret->policies = config->policies.items;
    ret->n_policies = config->policies.n;
    ret->stores = s->told;
    ret->n_stores = s->n;
}

void open_stores_close(struct open_stores *s)
{
    if (s->top)
        store_close(s->top);
    else
        for (size_t i = 0; i < s->n; i++)
            store_close(s->stores[i]);
    free(s->stores);
    free(s->names);
    free(s->told);
    *s = (struct open_stores){0};
}
