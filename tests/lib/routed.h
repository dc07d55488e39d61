/* Stores of several stores for tests: their routes as texts, the leaves named "a", "b", ... */
#ifndef RUNFS_TESTS_LIB_ROUTED_H
#define RUNFS_TESTS_LIB_ROUTED_H

#include "backends/routed/routed.h"

#include <check.h>
#include <limits.h>

#define TEST_LEAVES_MAX 4
#define TEST_SCRATCH    UINT_MAX

struct test_route {
    const char *path, *key; /* path NULL: the end of a list */
    unsigned store;         /* or TEST_SCRATCH */
};

static inline void test_template(const char *text, enum template_side side,
                                 struct template *ret)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(template_parse(text, side, &op, ret) == 0, "%s: %s", text, op.why);
}

/* Into *ret, which is released with routes_release(). */
static inline void test_routes(struct routes *ret, const struct test_route *list)
{
    struct template path, key;
    struct op op;

    *ret = (struct routes){0};
    op_init(&op, OP_FOREVER);
    for (; list->path; list++) {
        test_template(list->path, TEMPLATE_PATH, &path);
        test_template(list->key, TEMPLATE_KEY, &key);
        int r = routes_add(ret, &path, &key, list->store, 0, (struct text_place){0}, &op);
        ck_assert_msg(r == 0, "%s: %s", list->path, op.why);
        ret->items[ret->n - 1].scratch = list->store == TEST_SCRATCH;
    }
}

/* Takes over the leaves. */
static inline struct store *test_routed(const struct routes *routes, struct store **leaves,
                                        size_t n)
{
    static const char *const names[TEST_LEAVES_MAX] = {"a", "b", "c", "d"};
    struct store *s = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(routed_store_new(routes, leaves, names, n, &op, &s) == 0, "%s", op.why);
    return s;
}

#endif
