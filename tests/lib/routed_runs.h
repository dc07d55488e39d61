/* A mount of runs over three stores, of each kind of store in turn: what test_cache_routes.c
 * and test_cache_routes_moves.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_ROUTED_RUNS_H
#define RUNFS_TESTS_LIB_ROUTED_RUNS_H

#include "tests/lib/routed_cache.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct routed_row rows[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/logs/**", .key = "{run}/**", .leaf = 1},
    {.path = "meta/{run}/**", .key = "{run:b32}/**", .leaf = 2},
    {.path = "all/**", .key = "**", .leaf = 2},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

/* Where a directory is a key of one store, and has another below it. */
static const struct routed_row layout[] = {
    {.path = "runs/{run}/checkpoint/**", .leaf = 0},
    {.path = "runs/{run}/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

#define LAYOUT_ROWS (sizeof(layout) / sizeof(*layout))

/* 200 bytes: a name, and none when it is encoded. */
#define LONG_NAME                                                                              \
    "12345678901234567890123456789012345678901234567890"                                       \
    "12345678901234567890123456789012345678901234567890"                                       \
    "12345678901234567890123456789012345678901234567890"                                       \
    "12345678901234567890123456789012345678901234567890"

static struct routed_world w;
static enum routed_kind kind;

static void setup(void)
{
    routed_init(&w, rows, ROWS, kind);
    driven_mount(&w.d);
}

static void teardown(void)
{
    routed_release(&w);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

/* A run with a file in each of its stores. */
static void make_run(const char *run)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "runs/%s", run);
    ck_assert_int_eq(driven_mkdir(&w.d, path), 0);
    (void)snprintf(path, sizeof(path), "runs/%s/checkpoint", run);
    ck_assert_int_eq(driven_mkdir(&w.d, path), 0);
    (void)strcat(path, "/model");
    put(path, "weights");
    (void)snprintf(path, sizeof(path), "runs/%s/logs", run);
    ck_assert_int_eq(driven_mkdir(&w.d, path), 0);
    (void)strcat(path, "/out");
    put(path, "lines");
}

static void use_mem(void)
{
    kind = ROUTED_MEM;
}

static void use_s3(void)
{
    kind = ROUTED_S3;
}

static void use_folders(void)
{
    kind = ROUTED_FOLDERS;
}

/* The suite's cases by kind of store. */
static void add_kinds(Suite *s, TCase *(*routes_of)(const char *name, void (*use)(void)))
{
    suite_add_tcase(s, routes_of("mem", use_mem));
    suite_add_tcase(s, routes_of("like S3", use_s3));
    suite_add_tcase(s, routes_of("folders", use_folders));
}

#endif
