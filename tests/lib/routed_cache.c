/* A driven cache over several stores. */
#include "tests/lib/routed_cache.h"

#include "backends/drivers.h"
#include "backends/routed/routed.h"
#include "common/lock.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct routed_world *world;

static bool changes(enum call_kind kind)
{
    return kind == CALL_PUT || kind == CALL_PART || kind == CALL_COMMIT || kind == CALL_COPY ||
           kind == CALL_RENAME || kind == CALL_REMOVE || kind == CALL_MKDIR ||
           kind == CALL_RMDIR || kind == CALL_SETATTR;
}

static int64_t around(struct layer *l, struct call *c)
{
    struct routed_leaf_store *leaf = world->leaves;

    while (leaf->layer != l)
        leaf++;
    atomic_fetch_add(&leaf->requests, 1);
    if (atomic_load(&leaf->down) || atomic_load(&world->fuse) == 0)
        return op_fail(c->op, -EHOSTUNREACH, "the store is down");
    bool puts = c->kind == CALL_PUT || c->kind == CALL_PART || c->kind == CALL_COMMIT;
    if (puts && atomic_load(&leaf->full))
        return op_fail(c->op, -ENOSPC, "the store is full");
    if (puts && atomic_load(&leaf->no_puts))
        return op_fail(c->op, -EHOSTUNREACH, "the store takes nothing");
    bool moves = c->kind == CALL_COPY || c->kind == CALL_RENAME;
    if (moves && atomic_load(&leaf->no_moves))
        return op_fail(c->op, -EHOSTUNREACH, "the store moves nothing");
    if (c->kind == CALL_REMOVE && atomic_load(&leaf->refuses))
        return op_fail(c->op, atomic_load(&leaf->refuses), "the store refuses");
    if (c->kind == CALL_RMDIR) {
        atomic_fetch_add(&leaf->rmdirs, 1);
        if (atomic_load(&leaf->rmdirs_held) > 1)
            atomic_fetch_sub(&leaf->rmdirs_held, 1);
        else
            while (atomic_load(&leaf->rmdirs_held))
                (void)usleep(1000);
    }
    const char *refused = atomic_load(&leaf->refused_key);
    if (c->kind == CALL_PUT && refused && strcmp(refused, c->key) == 0)
        return op_fail(c->op, -EACCES, "the store refuses the name");
    if (c->kind == CALL_PUT && !c->etag)
        atomic_fetch_add(&leaf->plain_puts, 1);
    if (c->kind == CALL_PUT && c->etag && atomic_load(&leaf->no_conditions))
        return op_fail(c->op, -EOPNOTSUPP, "no conditions");
    bool asks = c->kind == CALL_STAT || c->kind == CALL_LIST;
    if (asks && atomic_load(&leaf->silent))
        atomic_fetch_add(&leaf->kept_waiting, 1);
    while ((c->kind == CALL_READ && atomic_load(&leaf->no_reads)) ||
           (asks && atomic_load(&leaf->silent))) {
        int r = op_check(c->op);
        if (r < 0)
            return r;
        (void)usleep(1000);
    }
    if (changes(c->kind) && atomic_load(&world->fuse) > 0)
        atomic_fetch_sub(&world->fuse, 1);
    while (atomic_load(&leaf->hung) || (changes(c->kind) && atomic_load(&leaf->stuck))) {
        int r = op_check(c->op);
        if (r < 0)
            return r;
        (void)usleep(1000);
    }
    routed_watch watch = changes(c->kind) ? atomic_load(&world->watch) : NULL;
    if (watch)
        watch((unsigned)(leaf - world->leaves), c);
    return call_next(c);
}

static struct store *open_folder(struct routed_leaf_store *leaf)
{
    struct store *local = NULL;
    struct op op;

    temp_dir_make(leaf->folder, sizeof(leaf->folder));
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(local_store_new(leaf->folder, NULL, &op, &local), 0);
    return local;
}

static struct store *open_mem(bool like_s3)
{
    static unsigned count;
    struct store *mem = NULL;
    char url[32];
    struct op op;

    (void)snprintf(url, sizeof(url), "mem:routed%u%s", ++count, like_s3 ? "?s3" : "");
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(mem_store_new(url, NULL, &op, &mem), 0);
    return mem;
}

static struct store *open_leaf(struct routed_leaf_store *leaf, enum routed_kind kind)
{
    struct layer *l = calloc(1, sizeof(*l));
    bool folder = kind == ROUTED_FOLDERS || (kind == ROUTED_MIXED && leaf == world->leaves);
    struct store *s = folder ? open_folder(leaf) : open_mem(kind != ROUTED_MEM);

    ck_assert_ptr_nonnull(l);
    ck_assert_int_eq(layer_init(l, s, around), 0);
    leaf->layer = l;
    return &l->base;
}

static void add_route(struct routed_world *w, const struct routed_row *row)
{
    struct template path, key;
    struct op op;

    op_init(&op, NS_PER_SEC);
    int r = template_parse(row->path, TEMPLATE_PATH, &op, &path);
    ck_assert_msg(r == 0, "%s: %s", row->path, op.why);
    r = template_parse(row->key ? row->key : row->path, TEMPLATE_KEY, &op, &key);
    ck_assert_msg(r == 0, "%s: %s", row->path, op.why);
    r = routes_add(&w->routes, &path, &key, row->leaf, row->policy, (struct text_place){0},
                   &op);
    ck_assert_msg(r == 0, "%s: %s", row->path, op.why);
    w->routes.items[w->routes.n - 1].scratch = row->scratch;
}

static void init_policies(struct routed_world *w)
{
    static char name[] = "plain";

    for (size_t i = 0; i < 4; i++)
        w->policies[i] = (struct policy){.name = name,
                                         .interval_ns = POLICY_UNSET,
                                         .settle_ns = POLICY_UNSET,
                                         .durability = POLICY_UNSET};
}

void routed_init(struct routed_world *w, const struct routed_row *rows, size_t n,
                 enum routed_kind kind)
{
    static const char *const names[ROUTED_LEAVES] = {"a", "b", "c"};
    static const char *const urls[ROUTED_LEAVES] = {"mem:a", "mem:b", "mem:c"};
    struct store *leaves[ROUTED_LEAVES], *store;
    struct op op;

    memset(w, 0, sizeof(*w));
    world = w;
    atomic_store(&w->fuse, -1);
    for (size_t i = 0; i < n; i++)
        add_route(w, &rows[i]);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++) {
        leaves[i] = open_leaf(&w->leaves[i], kind);
        w->names[i] = (struct cache_store){.name = names[i], .url = urls[i]};
    }
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(routed_store_new(&w->routes, leaves, names, ROUTED_LEAVES, &op, &store),
                     0);
    driven_init_over(&w->d, store, NULL);
    init_policies(w);
    w->d.config.routes = &w->routes;
    w->d.config.policies = w->policies;
    w->d.config.n_policies = 4;
    w->d.config.stores = w->names;
    w->d.config.n_stores = ROUTED_LEAVES;
    w->d.config.retry_ns = 10 * NS_PER_MS;
    w->d.config.late_ns = 0;
}

void routed_release(struct routed_world *w)
{
    driven_release(&w->d);
    for (size_t i = 0; i < ROUTED_LEAVES; i++) {
        char *folder = w->leaves[i].folder;
        if (!*folder)
            continue;
        temp_dir_remove(folder);
        (void)strcat(folder, ".runfs"); /* its state */
        temp_dir_remove(folder);
    }
    routes_release(&w->routes);
}

unsigned routed_requests(struct routed_world *w)
{
    unsigned n = 0;

    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        n += atomic_load(&w->leaves[i].requests);
    return n;
}

bool routed_has(struct routed_world *w, unsigned leaf, const char *key)
{
    struct object obj;
    struct op op;

    op_init(&op, NS_PER_SEC);
    int r = store_stat(w->leaves[leaf].layer->base.next, &op, key, &obj);
    if (r == 0)
        object_release(&obj);
    return r == 0;
}

void routed_stores(struct routed_world *w, unsigned leaf, const char *key, const char *wanted)
{
    char text[64];
    struct mem_sink sink;
    struct op op;

    op_init(&op, NS_PER_SEC);
    mem_sink_init(&sink, text, sizeof(text), 0);
    ssize_t n = store_read(w->leaves[leaf].layer->base.next, &op, key, NULL, &sink.base,
                           sizeof(text), 0, NULL);
    if (wanted)
        ck_assert_msg(n == (ssize_t)strlen(wanted) && memcmp(text, wanted, (size_t)n) == 0,
                      "store %u has %s: %zd \"%.*s\", not \"%s\"", leaf, key, n,
                      n > 0 ? (int)n : 0, text, wanted);
    else
        ck_assert_msg(n == -ENOENT, "store %u has %s: %zd, not ENOENT", leaf, key, n);
}

void routed_store(struct routed_world *w, unsigned leaf, const char *key, const char *text)
{
    struct mem_source src;
    struct op op;

    op_init(&op, NS_PER_SEC);
    mem_source_init(&src, text, strlen(text));
    ck_assert_int_eq(
        store_put(w->leaves[leaf].layer->base.next, &op, key, NULL, &src.base, NULL, NULL), 0);
}
