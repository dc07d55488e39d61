/* From a URL to an open store: the table of drivers, and the layers around them. */
#include "backends/drivers.h"
#include "backends/layers/layers.h"
#include "backends/store.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/nearest.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_DEFAULT 32
#define URL_MAX             8192
/* A mount tells within this time that a store can't be reached, however patient its requests
 * are later. */
#define OPEN_PATIENCE_NS (10 * NS_PER_SEC)

static const char *const no_options[] = {NULL};

static const char *const mem_forms[] = {NULL};
static const char *const file_forms[] = {"file", NULL};
static const char *const s3_forms[] = {"s3", "s3a", NULL};

/* A new kind of store is one line here. */
static const struct driver drivers[] = {
    {"mem:", "mem:NAME", mem_store_new, no_options, mem_where, "mem:", mem_forms, mem_key_of,
     NULL, NULL},
    {"file:", "file:///path", local_store_new, local_store_options, local_where, "file",
     file_forms, local_key_of, NULL, local_trial_new},
    {"s3://", "s3://BUCKET/PREFIX", s3_store_new, s3_store_options, s3_where, "s3 ", s3_forms,
     s3_key_of, S3_NO_ENDPOINT, NULL},
    {"/", "/path", local_store_new, local_store_options, local_where, "file", file_forms,
     local_key_of, NULL, local_trial_new},
};

/* ---- options ---- */

#define OPTIONS_MAX 64

static const char *option_names[OPTIONS_MAX];

/* Several kinds of stores may have one of that name. */
static bool is_collected(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(option_names[i], name) == 0)
            return true;
    return false;
}

static void collect_option_names(void)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        for (size_t j = 0; drivers[i].options[j]; j++) {
            if (is_collected(drivers[i].options[j], n))
                continue;
            assert(n < OPTIONS_MAX - 1);
            option_names[n++] = drivers[i].options[j];
        }
    }
}

const char *const *store_option_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, collect_option_names);
    return option_names;
}

int driver_check_options(const struct driver *d, const struct store_config *config,
                         struct op *op)
{
    for (size_t i = 0; config && i < config->n_options; i++) {
        const char *const *known = d->options;
        struct nearest n;

        nearest_init(&n, config->options[i].name);
        for (; *known && strcmp(*known, config->options[i].name) != 0; known++)
            nearest_try(&n, *known);
        if (!*known)
            return op_fail(op, -EINVAL, "a store of the form %s has no option \"%.60s\"%s%s%s",
                           d->form, config->options[i].name, n.best ? ", did you mean \"" : "",
                           n.best ? n.best : "", n.best ? "\"?" : "");
    }
    return 0;
}

/* ---- drivers ---- */

int driver_unknown_url(const char *url, struct op *op)
{
    auto_buf struct buf forms = BUF_INIT(512);
    auto_free char *shown = store_url_redact(url);

    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        int r = buf_addf(&forms, "%s%s", i ? ", " : "", drivers[i].form);
        if (r < 0)
            return r;
    }
    return op_fail(op, -EINVAL,
                   "the store URL \"%.100s\" has no known form; expected one of %s",
                   shown ? shown : "", forms.data);
}

const struct driver *driver_find(const char *url)
{
    for (size_t i = 0; i < ARRAY_SIZE(drivers) && strlen(url) <= URL_MAX; i++)
        if (strncmp(url, drivers[i].prefix, strlen(drivers[i].prefix)) == 0)
            return &drivers[i];
    return NULL;
}

const struct driver *driver_of(const struct store_where *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
        if (strncmp(w->server, drivers[i].server, strlen(drivers[i].server)) == 0)
            return &drivers[i];
    return NULL;
}

/* ---- opening ---- */

/* Puts a layer on *top, which is NULL afterwards when that failed. */
static void put_on_top(struct store **top, struct store *layer)
{
    if (!layer)
        store_close(*top);
    *top = layer;
}

static struct store *add_layers(struct store *s, const struct store_config *config)
{
    unsigned connections = config ? config->connections : 0;
    struct backoff_policy policy = backoff_default;

    policy.stalled_ns = config ? config->stalled_ns : 0;
    put_on_top(&s, layer_stats_new(s));
    if (s)
        put_on_top(&s, layer_limit_new(s, connections ? connections : CONNECTIONS_DEFAULT));
    if (s)
        put_on_top(&s, layer_retry_new(s, &policy));
    if (s)
        put_on_top(&s, layer_trace_new(s));
    return s;
}

static int reach_out(struct store *s, struct op *op)
{
    struct op probe = *op;
    struct object root;
    int64_t latest = clock_mono_ns() + OPEN_PATIENCE_NS;

    if (probe.deadline_ns > latest)
        probe.deadline_ns = latest;
    int r = store_stat(s, &probe, "", &root);
    if (r < 0)
        return op_fail(op, r, "%s", probe.why);
    object_release(&root);
    return 0;
}

int store_open(const char *url, const struct store_config *config, struct op *op,
               struct store **ret)
{
    const struct driver *d = driver_find(url);
    struct store *s = NULL;

    if (!d)
        return driver_unknown_url(url, op);
    int r = driver_check_options(d, config, op);
    if (!r)
        r = d->new (url, config, op, &s);
    if (r < 0)
        return r;
    s = add_layers(s, config);
    if (!s)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    r = reach_out(s, op);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

bool store_has_trial(const char *url)
{
    const struct driver *d = driver_find(url);

    return d && d->trial;
}

int store_open_trial(const char *url, const struct store_config *config, struct op *op,
                     struct store **ret)
{
    const struct driver *d = driver_find(url);

    if (!d)
        return driver_unknown_url(url, op);
    if (!d->trial)
        return op_fail(op, -EOPNOTSUPP, "it has no place for state");
    return d->trial(url, config, op, ret);
}
