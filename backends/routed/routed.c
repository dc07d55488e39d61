/* The routed store itself: what holds at a key, what it counts, how it is opened and closed. */
#include "backends/routed/routed_impl.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What a mount is named has 4,095 bytes at most, and in some places each of them is escaped. */
#define TITLE_MAX 1024
#define ROOTS_MAX (256u << 10)

struct routed *routed_of(struct store *s)
{
    return container_of(s, struct routed, base);
}

/* ---- facts ---- */

static void least_facts(struct store_facts *to, const struct store_facts *f)
{
    to->caps &= f->caps;
    if (to->part_min < f->part_min)
        to->part_min = f->part_min;
    if (to->part_max > f->part_max)
        to->part_max = f->part_max;
    if (to->part_size > f->part_size)
        to->part_size = f->part_size;
    if (to->parts_max > f->parts_max)
        to->parts_max = f->parts_max;
    if (to->put_max > f->put_max)
        to->put_max = f->put_max;
    if (to->key_max > f->key_max)
        to->key_max = f->key_max;
    /* Each leaf judges the sizes that it tells itself; 0 is no limit. */
    if (!f->size_max || (to->size_max && to->size_max < f->size_max))
        to->size_max = f->size_max;
}

/* A part that fits all stores may not be: then each of them has to be looked at. */
static void agree_on_parts(struct store_facts *f)
{
    if (f->part_min > f->part_max) {
        f->caps &= ~(unsigned)STORE_PARTS;
        f->part_min = f->part_max;
    }
    if (f->part_size < f->part_min)
        f->part_size = f->part_min;
}

/* Of a key in the state of one leaf, which is longer here. */
static void facts_of_state(const struct routed *r, const char *path, struct store_facts *ret)
{
    const char *rest = NULL;
    const struct leaf *leaf = find_state(r, path, &rest);

    if (!leaf)
        return;
    store_facts(leaf->store, STORE_STATE_DIR, ret);
    ret->volume = (unsigned)(leaf - r->leaves) + 1;
    ret->key_max += (unsigned)(strlen("/@") + strlen(leaf->name));
    if (ret->key_max >= STORE_KEY_MAX)
        ret->key_max = STORE_KEY_MAX - 1;
}

static void routed_facts(struct store *s, const char *path, bool itself,
                         struct store_facts *ret)
{
    const struct routed *r = routed_of(s);
    const struct route *object = NULL, *dir = NULL;

    *ret = r->all;
    if (key_is_reserved(path))
        facts_of_state(r, path, ret);
    if (!path[0] || key_is_reserved(path))
        return;
    if (!itself)
        (void)routes_kind(r->routes, path, ROUTES_OBJECT, &object);
    enum routes_kind kind = routes_kind(r->routes, path, ROUTES_DIRECTORY, &dir);
    const struct route *route = object ? object : dir;
    if (!route || route->scratch)
        return;
    *ret = r->each[route - r->routes->items];
    if (kind == ROUTES_NOWHERE)
        return;
    if (route != dir || !is_alone(r, dir, path)) {
        ret->caps &= ~(unsigned)STORE_RENAME;
        ret->size_max = r->all.size_max; /* of what it lists */
        if (ret->key_max > r->all.key_max)
            ret->key_max = r->all.key_max; /* of what it takes along */
    }
    if (dir && dir != route && !dir->scratch) {
        const struct store_facts *other = &r->each[dir - r->routes->items];
        ret->caps &= other->caps;
        if (ret->key_max > other->key_max)
            ret->key_max = other->key_max;
    }
}

/* How many bytes a codec adds to a name at most, since what it writes has 255 at most. */
static size_t codec_growth(enum codec c)
{
    switch (c) {
    case CODEC_B32: /* 5 bytes become 8, the last ones, too */
        return 97;
    case CODEC_HEX:
        return 128;
    case CODEC_PCT:
        return 170;
    case CODEC_NONE:
    case CODEC_N:
        break;
    }
    return 0;
}

/* Bytes of a template beside what it leaves open; `ret_growth` those that codecs may add. */
static size_t fixed_bytes(const struct template *t, size_t *ret_growth)
{
    size_t bytes = t->n ? t->n - 1 + t->rest : 0;

    *ret_growth = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct component *c = &t->components[i];
        bytes += (c->before ? strlen(c->before) : 0) + (c->after ? strlen(c->after) : 0);
        *ret_growth += codec_growth(c->codec);
    }
    return bytes;
}

/* The longest path that surely has a key which is not too long. */
static unsigned path_max(const struct route *route, unsigned key_max)
{
    size_t growth, none;
    size_t path = fixed_bytes(&route->path, &none), key = fixed_bytes(&route->key, &growth);
    size_t max = key_max + path;

    max = max > key + growth ? max - key - growth : 0;
    return max < STORE_KEY_MAX ? (unsigned)max : STORE_KEY_MAX - 1;
}

static void facts_of_route(const struct routed *r, const struct route *route,
                           struct store_facts *ret)
{
    const unsigned never = STORE_STATE | STORE_ORDER;

    store_facts(r->leaves[route->store].store, "", ret);
    ret->caps &= ~never;
    ret->volume = route->store + 1;
    ret->key_max = path_max(route, ret->key_max);
}

static int facts_init(struct routed *r)
{
    const struct routes *routes = r->routes;
    bool one = false;

    r->each = calloc(routes->n + 1, sizeof(*r->each));
    if (!r->each)
        return -ENOMEM;
    for (size_t i = 0; i < routes->n; i++) {
        if (routes->items[i].scratch)
            continue;
        facts_of_route(r, &routes->items[i], &r->each[i]);
        if (r->all.put_max)
            least_facts(&r->all, &r->each[i]);
        else
            r->all = r->each[i];
        one = routes->n == 1 && routes->items[i].path.n == 0;
    }
    if (!r->all.put_max) /* no route has a store: names have a limit all the same */
        r->all.key_max = STORE_KEY_MAX - 1;
    if (!one)
        r->all.caps &= ~(unsigned)STORE_RENAME;
    r->all.volume = 0;
    agree_on_parts(&r->all);
    return 0;
}

/* ---- what it counts ---- */

static void add_stats(struct store_stats *to, const struct store_stats *s)
{
    to->requests += s->requests;
    to->failures += s->failures;
    to->retries += s->retries;
    to->reads += s->reads;
    to->puts += s->puts;
    to->parts += s->parts;
    to->lists += s->lists;
    to->stats += s->stats;
    to->removes += s->removes;
    to->copies += s->copies;
    to->bytes_read += s->bytes_read;
    to->bytes_written += s->bytes_written;
    to->hidden_names += s->hidden_names;
    if (s->stall.ns > to->stall.ns)
        to->stall = s->stall;
}

static void routed_add_stats(struct store *s, struct store_stats *ret)
{
    struct routed *r = routed_of(s);

    for (size_t i = 0; i < r->n; i++) {
        struct store_stats one;
        store_get_stats(r->leaves[i].store, &one);
        add_stats(ret, &one);
    }
}

/* ---- opening and closing ---- */

/* Without the leaves, which are the caller's until all is made. */
static void routed_free(struct routed *r)
{
    for (size_t i = 0; r->leaves && i < r->n; i++)
        free(r->leaves[i].name);
    free(r->leaves);
    free(r->each);
    free(r->base.url);
    free(r->base.advice);
    free(r->base.root_id);
    free(r);
}

static void routed_close(struct store *s)
{
    struct routed *r = routed_of(s);

    for (size_t i = 0; i < r->n; i++)
        store_close(r->leaves[i].store);
    routed_free(r);
}

static const struct store_ops routed_ops = {
    .name = "routed",
    .stat = routed_stat,
    .stat_dir = routed_stat_dir,
    .list = routed_list,
    .read = routed_read,
    .put = routed_put,
    .upload_begin = routed_upload_begin,
    .upload_part = routed_upload_part,
    .upload_commit = routed_upload_commit,
    .upload_abort = routed_upload_abort,
    .upload_detach = routed_upload_detach,
    .upload_token = routed_upload_token,
    .upload_resume = routed_upload_resume,
    .upload_has = routed_upload_has,
    .copy = routed_copy,
    .rename = routed_rename,
    .remove = routed_remove,
    .mkdir = routed_mkdir,
    .rmdir = routed_rmdir,
    .set_attributes = routed_set_attributes,
    .facts = routed_facts,
    .state_of = routed_state_of,
    .add_stats = routed_add_stats,
    .close = routed_close,
};

/* Each line of a leaf's advice with the name of the leaf before it. */
static int add_advice(struct buf *all, const struct leaf *leaf)
{
    const char *line = leaf->store->advice;
    int err = 0;

    while (line && *line && !err) {
        int len = (int)strcspn(line, "\n");
        err = buf_addf(all, "%s%s: %.*s", all->len ? "\n" : "", leaf->name, len, line);
        line += len + (line[len] == '\n');
    }
    return err;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Room for how many more names there are. */
#define MORE_MAX 32

static char *join_names(const char *const *names, size_t n)
{
    auto_buf struct buf title = BUF_INIT(TITLE_MAX);
    size_t i = 0;

    int err = buf_adds(&title, "runfs:");
    for (; i < n && !err && title.len + 1 + strlen(names[i]) <= TITLE_MAX - MORE_MAX; i++)
        err = buf_addf(&title, "%s%s", i ? "+" : "", names[i]);
    if (!err && i < n)
        err = buf_addf(&title, "%s%zu-more", i ? "+" : "", n - i);
    return err ? NULL : buf_take(&title);
}

char *routed_title(const char *const *names, size_t n)
{
    auto_free const char **sorted = calloc(n, sizeof(*sorted));

    if (!sorted)
        return NULL;
    memcpy(sorted, names, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_name);
    return join_names(sorted, n);
}

/* One leaf alone is known by its own URL. */
static int name_it(struct routed *r, const char *const *names)
{
    r->base.url = r->n == 1 ? strdup(r->leaves[0].store->url) : routed_title(names, r->n);
    return r->base.url ? 0 : -ENOMEM;
}

static int add_root(struct buf *all, const struct leaf *leaf)
{
    return leaf->store->root_id ? buf_addf(all, "%s%s %s", all->len ? "\n" : "",
                                           leaf->store->root_id, leaf->name)
                                : 0;
}

static int describe(struct routed *r, const char *const *names)
{
    auto_buf struct buf advice = BUF_INIT(SIZE_MAX); /* drivers bound theirs */
    auto_buf struct buf roots = BUF_INIT(ROOTS_MAX);
    int err = name_it(r, names);

    for (size_t i = 0; i < r->n && !err; i++) {
        err = add_advice(&advice, &r->leaves[i]);
        if (!err)
            err = add_root(&roots, &r->leaves[i]);
    }
    if (err)
        return err;
    if (advice.len)
        r->base.advice = buf_take(&advice);
    if (roots.len)
        r->base.root_id = buf_take(&roots);
    return 0;
}

static int leaves_init(struct routed *r, struct store *const *stores, const char *const *names,
                       size_t n)
{
    r->leaves = calloc(n, sizeof(*r->leaves));
    if (!r->leaves)
        return -ENOMEM;
    r->n = n;
    r->ops = routed_ops;
    for (size_t i = 0; i < n; i++) {
        r->leaves[i] = (struct leaf){.store = stores[i], .name = strdup(names[i])};
        if (!r->leaves[i].name)
            return -ENOMEM;
        if (stores[i]->ops->upload_sweep)
            r->ops.upload_sweep = routed_upload_sweep;
    }
    return 0;
}

int routed_store_new(const struct routes *routes, struct store *const *stores,
                     const char *const *names, size_t n, struct op *op, struct store **ret)
{
    struct routed *r = calloc(1, sizeof(*r));
    if (!r)
        return op_fail(op, -ENOMEM, "no memory to open the stores as one");

    r->routes = routes;
    r->names_max = ROUTED_NAMES_MAX;
    int err = leaves_init(r, stores, names, n);
    if (!err)
        err = describe(r, names);
    if (!err)
        err = facts_init(r);
    if (err < 0) {
        routed_free(r);
        return op_fail(op, err, "no memory to open the stores as one");
    }
    r->base.ops = &r->ops;
    r->base.facts = r->all;
    *ret = &r->base;
    return 0;
}

/* ---- for who shows the stores ---- */

static const struct routed *seen(const struct store *s)
{
    return s->ops->close == routed_close ? container_of(s, const struct routed, base) : NULL;
}

size_t routed_count(const struct store *s)
{
    const struct routed *r = seen(s);

    return r ? r->n : 0;
}

const char *routed_name(const struct store *s, size_t i)
{
    return seen(s)->leaves[i].name;
}

struct store *routed_leaf(const struct store *s, size_t i)
{
    return seen(s)->leaves[i].store;
}

char *routed_state_key(const struct store *s, size_t i, const char *rest)
{
    const struct routed *r = seen(s);
    char *key;

    return asprintf(&key, "%s/%s%s%s%s", STORE_STATE_DIR, r ? "@" : "",
                    r ? r->leaves[i].name : "", r ? "/" : "", rest) < 0
               ? NULL
               : key;
}

size_t routed_index(const struct store *s, const char *path)
{
    const struct routed *r = seen(s);
    const struct route *route = NULL;

    if (routes_kind(r->routes, path, ROUTES_OBJECT, &route) != ROUTES_MAPPED)
        (void)routes_kind(r->routes, path, ROUTES_DIRECTORY, &route);
    return route && !route->scratch ? route->store : r->n;
}
