/* From a URL to an open store: the table of drivers, the layers around them, and URLs that can
 * be shown to people. */
#include "backends/drivers.h"
#include "backends/layers/layers.h"
#include "backends/store.h"
#include "common/buf.h"
#include "common/mem.h"

#include <assert.h>
#include <ctype.h>
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

/* A new kind of store is one line here. */
static const struct driver {
    const char *prefix; /* of the URL */
    const char *form;   /* for messages */
    driver_new new;
    const char *const *options; /* NULL-terminated */
} drivers[] = {
    {"mem:", "mem:NAME", mem_store_new, no_options},
    {"file:", "file:///path", local_store_new, no_options},
    {"s3://", "s3://BUCKET/PREFIX", s3_store_new, s3_store_options},
    {"/", "/path", local_store_new, no_options},
};

/* ---- options ---- */

#define OPTIONS_MAX 64

static const char *option_names[OPTIONS_MAX];

static void collect_option_names(void)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        for (size_t j = 0; drivers[i].options[j]; j++) {
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

const char *store_config_get(const struct store_config *config, const char *name)
{
    for (size_t i = 0; config && i < config->n_options; i++)
        if (strcmp(config->options[i].name, name) == 0)
            return config->options[i].value;
    return NULL;
}

static int check_options(const struct driver *d, const struct store_config *config,
                         struct op *op)
{
    for (size_t i = 0; config && i < config->n_options; i++) {
        const char *const *known = d->options;
        while (*known && strcmp(*known, config->options[i].name) != 0)
            known++;
        if (!*known)
            return op_fail(op, -EINVAL, "a store of the form %s has no option \"%s\"", d->form,
                           config->options[i].name);
    }
    return 0;
}

/* ---- URLs without secrets ---- */

static bool names_secret(const char *name, size_t len)
{
    static const char *const words[] = {"secret", "pass", "token", "sig", "key", "credential"};

    for (size_t i = 0; i + 3 <= len; i++)
        for (size_t j = 0; j < ARRAY_SIZE(words); j++)
            if (len - i >= strlen(words[j]) &&
                strncasecmp(name + i, words[j], strlen(words[j])) == 0)
                return true;
    return false;
}

/* Where the user info ends (its "@"), or NULL. A password may hold an unescaped "/": then what
 * follows the first ":" is not a port, and the last "@" before the query counts. */
static const char *user_info_end(const char *authority, const char *end)
{
    const char *slash = memchr(authority, '/', (size_t)(end - authority));
    const char *host_end = slash ? slash : end;
    const char *at = memrchr(authority, '@', (size_t)(host_end - authority));
    const char *colon = memchr(authority, ':', (size_t)(host_end - authority));

    if (at || !colon)
        return at;
    for (const char *p = colon + 1; p < host_end; p++)
        if (!isdigit((unsigned char)*p))
            return memrchr(authority, '@', (size_t)(end - authority));
    return NULL;
}

static int add_query(struct buf *b, const char *query)
{
    int r = 0;

    while (*query && !r) {
        size_t len = strcspn(query, "&#");
        const char *equals = memchr(query, '=', len);
        if (equals && names_secret(query, (size_t)(equals - query))) {
            r = buf_add(b, query, (size_t)(equals - query) + 1);
            if (!r)
                r = buf_adds(b, "***");
        } else {
            r = buf_add(b, query, len);
        }
        query += len;
        if (*query && !r)
            r = buf_addc(b, *query++);
    }
    return r;
}

char *store_url_redact(const char *url)
{
    auto_buf struct buf b = BUF_INIT(2 * strlen(url) + 16);
    const char *end = url + strcspn(url, "?#");
    const char *authority = strstr(url, "://");
    int r = 0;

    if (authority && authority < end) {
        const char *at = user_info_end(authority + 3, end);
        r = buf_add(&b, url, (size_t)(authority + 3 - url));
        url = at ? at + 1 : authority + 3;
        if (at && !r)
            r = buf_adds(&b, "***@");
    }
    if (!r)
        r = buf_add(&b, url, (size_t)(end - url));
    if (*end && !r)
        r = buf_addc(&b, *end++);
    if (!r)
        r = add_query(&b, end);
    return r ? NULL : buf_take(&b);
}

/* ---- opening ---- */

static int unknown_url(const char *url, struct op *op)
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

static const struct driver *find_driver(const char *url)
{
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
        if (strncmp(url, drivers[i].prefix, strlen(drivers[i].prefix)) == 0)
            return &drivers[i];
    return NULL;
}

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
    const struct driver *d = find_driver(url);
    struct store *s = NULL;

    if (!d || strlen(url) > URL_MAX)
        return unknown_url(url, op);
    int r = check_options(d, config, op);
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
