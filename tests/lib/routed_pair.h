/* Two folders of a mount that lead to stores of their own, the rest to a third one: what
 * test_cache_hostile_routes.c and test_cache_left_store.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_ROUTED_PAIR_H
#define RUNFS_TESTS_LIB_ROUTED_PAIR_H

#include "tests/lib/routed_cache.h"

#include <check.h>
#include <string.h>

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0, .policy = 1},
    {.path = "b/**", .leaf = 1, .policy = 2},
    {.path = "**", .leaf = 2},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct routed_world w;

static void setup(void)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
}

static void teardown(void)
{
    routed_release(&w);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

#endif
