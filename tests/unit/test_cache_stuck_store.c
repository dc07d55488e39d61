/* cache/: one of several stores does not answer. What others are owed goes on. */
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE (UINT64_C(3) << 20)
#define FILES 20

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0},
    {.path = "b/**", .leaf = 1},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct routed_world w;

static void put_large(const char *path)
{
    char *data = calloc(1, LARGE);

    ck_assert_ptr_nonnull(data);
    driven_put(&w.d, path, data, LARGE);
    free(data);
}

static void setup(void)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.d.config.upload_jobs = 2;
    w.d.config.part_size = 1 << 20;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    driven_put(&w.d, "a/old", "old", 3);
    driven_put(&w.d, "b/old", "old", 3);
    driven_put(&w.d, "b/gone", "old", 3);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].stuck, true);
}

static void teardown(void)
{
    atomic_store(&w.leaves[0].stuck, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_release(&w);
}

START_TEST(files_go_to_the_other_store)
{
    char path[32];

    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "a/%d", i);
        driven_put(&w.d, path, "x", 1);
    }
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "b/%d", i);
        driven_put(&w.d, path, "x", 1);
    }
    DRIVEN_WAIT(routed_has(&w, 1, "b/19") && routed_has(&w, 1, "b/0"));
    ck_assert(!routed_has(&w, 0, "a/0"));
}
END_TEST

START_TEST(large_files_go_to_the_other_store)
{
    put_large("a/one");
    put_large("a/two");
    put_large("b/one");
    DRIVEN_WAIT(routed_has(&w, 1, "b/one"));
}
END_TEST

START_TEST(directories_go_to_the_other_store)
{
    char path[32];

    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "a/dir%d", i);
        ck_assert_int_eq(driven_mkdir(&w.d, path), 0);
    }
    ck_assert_int_eq(driven_mkdir(&w.d, "b/dir"), 0);
    DRIVEN_WAIT(routed_has(&w, 1, "b/dir"));
}
END_TEST

START_TEST(renames_and_removals_go_to_the_other_store)
{
    ck_assert_int_eq(driven_rename(&w.d, "a/old", "a/new"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "a/new"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "b/old", "b/new"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "b/gone"), 0);
    DRIVEN_WAIT(routed_has(&w, 1, "b/new") && !routed_has(&w, 1, "b/old") &&
                !routed_has(&w, 1, "b/gone"));
    ck_assert(routed_has(&w, 0, "a/old"));
}
END_TEST

/* ---- directories in which the store has a part ---- */

static const struct routed_row runs[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/logs/**", .key = "{run}/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

/* Without the last row nothing maps the directories on the way. */
static void mount_runs(size_t rows_used)
{
    routed_init(&w, runs, rows_used, ROUTED_S3);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a") == -ENOENT ? driven_mkdir(&w.d, "runs") : 0,
                     0);
    (void)driven_mkdir(&w.d, "runs/a");
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/logs"), 0);
    driven_put(&w.d, "runs/a/checkpoint/f", "model", 5);
    driven_put(&w.d, "runs/a/logs/f", "log", 3);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
}

static void release_runs(void)
{
    for (unsigned i = 0; i < ROUTED_LEAVES; i++) {
        atomic_store(&w.leaves[i].hung, false);
        atomic_store(&w.leaves[i].down, false);
        atomic_store(&w.leaves[i].refused_key, NULL);
    }
    DRIVEN_WAIT(driven_flush(&w.d) == 0); /* one may end by a refusal that was under way */
    routed_release(&w);
}

/* Nothing of it was seen by this mount. */
static void uses_the_checkpoint(void)
{
    struct stat st;

    driven_shows(&w.d, "runs/a/checkpoint/f", "model");
    ck_assert_int_eq(driven_stat(&w.d, "runs/a", &st), 0);
    driven_put(&w.d, "runs/a/checkpoint/g", "more", 4);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint/dir"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/checkpoint/g", "runs/a/checkpoint/h"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/a/checkpoint/f"), 0);
    DRIVEN_WAIT(routed_has(&w, 0, "a/h") && routed_has(&w, 0, "a/dir") &&
                !routed_has(&w, 0, "a/f"));
    ck_assert_int_eq(driven_list(&w.d, "runs/a/checkpoint"), 2);
}

/* _i: which does not answer, and whether that is at once. */
START_TEST(lookups_find_what_the_others_have)
{
    bool data = _i & 2;

    mount_runs(data ? 3 : 2);
    w.d.config.ask_timeout_ns = 600 * NS_PER_SEC;
    driven_mount_afresh(&w.d);
    struct routed_leaf_store *leaf = &w.leaves[data ? 2 : 1];
    atomic_store(_i & 1 ? &leaf->down : &leaf->hung, true);
    uses_the_checkpoint();
    release_runs();
}
END_TEST

START_TEST(listings_are_never_shorter)
{
    struct stat st;

    mount_runs(2);
    w.d.config.ask_timeout_ns = NS_PER_SEC;
    driven_mount_afresh(&w.d);
    atomic_store(_i ? &w.leaves[1].down : &w.leaves[1].hung, true);
    int err = _i ? -EHOSTUNREACH : -ETIMEDOUT;
    driven_shows(&w.d, "runs/a/checkpoint/f", "model");
    ck_assert_int_eq(driven_list(&w.d, "runs"), err);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), err);
    ck_assert_int_eq(driven_stat(&w.d, "runs/unknown", &st), err);
    atomic_store(&w.leaves[1].down, false);
    atomic_store(&w.leaves[1].hung, false);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 2);
    ck_assert_int_eq(driven_stat(&w.d, "runs/unknown", &st), -ENOENT);
    release_runs();
}
END_TEST

/* Whether the store was asked for it anew. */
static bool is_listed(const char *path, int names, const struct routed_leaf_store *leaf)
{
    unsigned before = atomic_load(&leaf->requests);
    int n = driven_list(&w.d, path);

    ck_assert_msg(n == names, "%s: %d names, not %d", path, n, names);
    return atomic_load(&leaf->requests) > before;
}

/* Which store does not answer, whether that is at once, and how many routes there are: the last
 * one maps the directories on the way. */
static const struct {
    unsigned leaf;
    bool down;
    size_t rows;
} outages[] = {{0, true, 2}, {1, true, 2}, {1, false, 2},
               {0, true, 3}, {2, true, 3}, {2, false, 3}};

START_TEST(what_was_listed_before_is_shown_whole)
{
    struct routed_leaf_store *leaf = &w.leaves[outages[_i].leaf];
    struct stat st;

    mount_runs(outages[_i].rows);
    w.d.config.list_timeout_ns = 1; /* which is rounded up */
    driven_mount_afresh(&w.d);
    (void)is_listed("runs", 1, leaf);
    (void)is_listed("runs/a", 2, leaf);
    atomic_store(outages[_i].down ? &leaf->down : &leaf->hung, true);
    DRIVEN_WAIT(is_listed("runs", 1, leaf));
    DRIVEN_WAIT(is_listed("runs/a", 2, leaf));
    ck_assert_int_eq(driven_stat(&w.d, "runs/a/checkpoint", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "runs/a/logs", &st), 0);
    release_runs();
}
END_TEST

START_TEST(a_run_begins_where_the_others_were_seen)
{
    mount_runs(2);
    w.d.config.ask_timeout_ns = NS_PER_SEC;
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    atomic_store(&w.leaves[1].down, true);
    (void)usleep(300000); /* the listing is old, or not: neither is an error */
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b/checkpoint"), 0);
    driven_put(&w.d, "runs/b/checkpoint/f", "x", 1);
    DRIVEN_WAIT(routed_has(&w, 0, "b/f"));
    release_runs();
}
END_TEST

/* ---- the cache's limit ---- */

/* For as long as an upload may take. */
static void *answer_later(void *arg)
{
    struct routed_leaf_store *leaf = arg;

    (void)usleep(500000);
    atomic_store(&leaf->stuck, false);
    return NULL;
}

static bool upload_failed(const char *path)
{
    return strcmp(driven_state(&w.d, path), "failed") == 0;
}

/* Until the upload has failed for longer than the cache looks on. */
static void fails_for_long(const char *path)
{
    DRIVEN_WAIT(upload_failed(path));
    (void)usleep(1500000);
}

/* The first store has taken nothing for some time, and the other one had nothing to take. */
static void mount_with_one_that_takes_nothing(void)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.d.config.size_bytes = LARGE / 2;
    w.d.config.grace_ns = NS_PER_SEC;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].no_puts, true);
    driven_put(&w.d, "a/x", "x", 1);
    fails_for_long("a/x");
    atomic_store(&w.leaves[1].stuck, true);
}

/* In the full cache, of which the store takes its part after a while. */
static void make_and_release(const char *path, struct routed_leaf_store *leaf, int wanted)
{
    struct handle *h = NULL;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, answer_later, leaf), 0);
    int r = driven_open(&w.d, path, O_CREAT | O_WRONLY, &h);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(r, wanted);
    if (h)
        ck_assert_int_eq(driven_close(&w.d, h), 0);
    atomic_store(&w.leaves[0].no_puts, false);
    release_runs();
}

/* _i: the store of what fills the cache. */
START_TEST(a_writer_waits_for_a_store_that_takes_what_it_gets)
{
    mount_with_one_that_takes_nothing();
    put_large(_i ? "b/full" : "a/full");
    make_and_release(_i ? "b/next" : "a/next", &w.leaves[1], _i ? 0 : -ENOSPC);
}
END_TEST

START_TEST(a_writer_waits_for_what_left_a_store_that_takes_nothing)
{
    mount_with_one_that_takes_nothing();
    put_large("a/full");
    fails_for_long("a/full");
    ck_assert_int_eq(driven_rename(&w.d, "a/full", "b/full"), 0);
    make_and_release("b/next", &w.leaves[1], 0);
}
END_TEST

/* What failed there has gone elsewhere, or nowhere, and the store works again. */
START_TEST(a_writer_waits_for_a_store_that_failed_once)
{
    mount_with_one_that_takes_nothing();
    atomic_store(&w.leaves[1].stuck, false);
    if (_i)
        ck_assert_int_eq(driven_rename(&w.d, "a/x", "b/x"), 0);
    else
        ck_assert_int_eq(driven_unlink(&w.d, "a/x"), 0);
    atomic_store(&w.leaves[0].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].stuck, true);
    put_large("a/full");
    make_and_release("a/next", &w.leaves[0], 0);
}
END_TEST

/* It is tried again for ever; the store takes all else. */
START_TEST(a_writer_waits_for_a_store_that_refuses_a_name)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.d.config.size_bytes = LARGE / 2;
    w.d.config.grace_ns = NS_PER_SEC;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].refused_key, "a/x");
    driven_put(&w.d, "a/x", "x", 1);
    fails_for_long("a/x");
    atomic_store(&w.leaves[0].stuck, true);
    put_large("a/full");
    make_and_release("a/next", &w.leaves[0], 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_stuck_store");
    TCase *t = tcase_create("stuck");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, files_go_to_the_other_store);
    tcase_add_test(t, large_files_go_to_the_other_store);
    tcase_add_test(t, directories_go_to_the_other_store);
    tcase_add_test(t, renames_and_removals_go_to_the_other_store);
    suite_add_tcase(s, t);
    t = tcase_create("joint");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, lookups_find_what_the_others_have, 0, 4);
    tcase_add_loop_test(t, listings_are_never_shorter, 0, 2);
    tcase_add_loop_test(t, what_was_listed_before_is_shown_whole, 0, ARRAY_SIZE(outages));
    tcase_add_test(t, a_run_begins_where_the_others_were_seen);
    suite_add_tcase(s, t);
    t = tcase_create("room");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_writer_waits_for_a_store_that_takes_what_it_gets, 0, 2);
    tcase_add_test(t, a_writer_waits_for_what_left_a_store_that_takes_nothing);
    tcase_add_loop_test(t, a_writer_waits_for_a_store_that_failed_once, 0, 2);
    tcase_add_test(t, a_writer_waits_for_a_store_that_refuses_a_name);
    suite_add_tcase(s, t);
    return suite_run(s);
}
