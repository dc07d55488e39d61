/* A store over stores in memory for tests, each leaf with counters and failures on demand;
 * short words for calls. */
#ifndef RUNFS_TESTS_LIB_ROUTED_WORLD_H
#define RUNFS_TESTS_LIB_ROUTED_WORLD_H

#include "backends/drivers.h"
#include "backends/layers/fault.h"
#include "backends/layers/layers.h"
#include "common/mem.h"
#include "tests/lib/routed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE (60 * NS_PER_SEC)
#define LEAVES   4

struct world {
    struct routes routes;
    struct store *leaf[LEAVES];  /* stats > fault > mem */
    struct store *fault[LEAVES]; /* in it */
    struct store *s;
    struct op_notes notes;
    struct op op;
};

/* Names on the way to others. */
static const struct test_route implied[] = {
    {"r/{a}/x/{b}/**", "{a}/k/{b}/**", 0}, {"r/{a}/y/**", "{a}/**", 1}, {NULL, NULL, 0}};

/* Runs in four stores, as the layout "runs" has them. */
static const struct test_route runs[] = {{"runs/{run}/checkpoint/**", "{run}/**", 0},
                                         {"runs/{run}/logs/**", "l/{run}/**", 1},
                                         {"runs/{run}/metadata/**", "{run:b32}/**", 2},
                                         {"runs/{run}/**", "runs/{run}/**", 3},
                                         {"**", "**", 3},
                                         {NULL, NULL, 0}};

static inline void world_open(struct world *w, const struct test_route *routes, size_t n,
                              const char *url)
{
    *w = (struct world){0};
    test_routes(&w->routes, routes);
    op_init(&w->op, PATIENCE);
    w->op.notes = &w->notes;
    for (size_t i = 0; i < n; i++) {
        struct store *mem = NULL;
        ck_assert_int_eq(mem_store_new(url, NULL, &w->op, &mem), 0);
        w->fault[i] = layer_fault_new(mem);
        ck_assert_ptr_nonnull(w->fault[i]);
        w->leaf[i] = layer_stats_new(w->fault[i]);
        ck_assert_ptr_nonnull(w->leaf[i]);
    }
    w->s = test_routed(&w->routes, w->leaf, n);
}

static inline void world_close(struct world *w)
{
    store_close(w->s);
    routes_release(&w->routes);
}

#define ok(w, expression)                                                                      \
    do {                                                                                       \
        int ok_r_ = (int)(expression);                                                         \
        ck_assert_msg(ok_r_ == 0, "%s: %d %s", #expression, ok_r_, (w)->op.why);               \
    } while (0)

#define fails(w, error, expression)                                                            \
    do {                                                                                       \
        int fails_r_ = (int)(expression);                                                      \
        ck_assert_msg(fails_r_ == -(error), "%s: %d, not -%s; %s", #expression, fails_r_,      \
                      #error, (w)->op.why);                                                    \
        ck_assert_msg((w)->op.why[0], "%s: no reason given", #expression);                     \
    } while (0)

static inline int put_in(struct world *w, struct store *s, const char *key)
{
    struct mem_source src;

    mem_source_init(&src, "text", 4);
    return store_put(s, &w->op, key, NULL, &src.base, NULL, NULL);
}

static inline int put(struct world *w, const char *path)
{
    return put_in(w, w->s, path);
}

/* Of somebody who knows nothing of routes. */
static inline void leaf_has(struct world *w, size_t leaf, const char *key)
{
    ok(w, put_in(w, w->leaf[leaf], key));
}

static inline bool is_in_leaf(struct world *w, size_t leaf, const char *key)
{
    struct object obj;

    int r = store_stat(w->leaf[leaf], &w->op, key, &obj);
    ck_assert(r == 0 || r == -ENOENT);
    if (r == 0)
        object_release(&obj);
    return r == 0;
}

/* 'o' an object, 'd' a directory, '-' nothing. */
static inline char kind_of(struct world *w, const char *path)
{
    struct object obj;

    int r = store_stat(w->s, &w->op, path, &obj);
    ck_assert_msg(r == 0 || r == -ENOENT, "stat %s: %d %s", path, r, w->op.why);
    if (r < 0)
        return '-';
    object_release(&obj);
    return obj.is_prefix ? 'd' : 'o';
}

/* ---- listings as texts ---- */

struct names {
    char *v[64];
    size_t n;
};

static inline int add_name(void *arg, const char *name, const struct object *obj)
{
    struct names *l = arg;

    ck_assert_uint_lt(l->n, ARRAY_SIZE(l->v));
    ck_assert_int_ge(asprintf(&l->v[l->n++], "%s%s", name, obj->is_prefix ? "/" : ""), 0);
    return 0;
}

static inline int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in order, directories with "/" at the end, joined by spaces. */
static inline void assert_names(struct world *w, const char *dir, unsigned flags,
                                const char *expected)
{
    struct names l = {.n = 0};
    char text[2048] = "";

    ok(w, store_list(w->s, &w->op, dir, flags, add_name, &l));
    qsort(l.v, l.n, sizeof(l.v[0]), by_text);
    for (size_t i = 0; i < l.n; i++) {
        strcat(text, i ? " " : "");
        strcat(text, l.v[i]);
        free(l.v[i]);
    }
    ck_assert_str_eq(text, expected);
}

static inline int visit_none(void *arg, const char *name, const struct object *obj)
{
    (void)arg, (void)name, (void)obj;
    return 0;
}

static inline struct store_stats counts(struct world *w, size_t leaf)
{
    struct store_stats stats;

    store_get_stats(w->leaf[leaf], &stats);
    return stats;
}

static inline uint64_t requests(struct world *w)
{
    struct store_stats stats;

    store_get_stats(w->s, &stats);
    return stats.requests;
}

static inline void make_runs(struct world *w)
{
    world_open(w, runs, LEAVES, "mem:");
    ok(w, put(w, "runs/one/checkpoint/1.pt"));
    ok(w, put(w, "runs/one/logs/a/events"));
    ok(w, put(w, "runs/one/metadata/m.json"));
    ok(w, put(w, "runs/one/notes.txt"));
    ok(w, put(w, "runs/two/logs/events"));
    ok(w, put(w, "runs/three/checkpoint/2.pt"));
    ok(w, put(w, "runs/list.txt"));
    ok(w, put(w, "set/train.csv"));
}

#endif
