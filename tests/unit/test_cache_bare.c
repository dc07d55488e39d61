/* cache/: directories on the way to what is stored have no key of their own. One that was made
 * here stays here, for nobody, until the stores have something below it. */
#include "cache/offline.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct routed_row rows[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/{part}/logs/**", .key = "{run}/{part}/**", .leaf = 1},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct routed_world w;

static enum routed_kind kind;

static void setup(void)
{
    routed_init(&w, rows, ROWS, kind);
    w.d.config.list_timeout_ns = 0; /* each look lists anew, but for 200 ms */
    driven_mount(&w.d);
}

static void teardown(void)
{
    routed_release(&w);
}

static void remount(void)
{
    driven_unmount(&w.d);
    driven_mount(&w.d);
}

static uint64_t pending(void)
{
    struct cache_stats s;

    cache_get_stats(w.d.cache, &s);
    return s.pending_ops;
}

static bool exists(const char *path)
{
    struct stat st;
    int r = driven_stat(&w.d, path, &st);

    ck_assert(r == 0 || r == -ENOENT);
    return r == 0;
}

/* The listings that were made are believed no more. */
static void later(void)
{
    (void)usleep(250 * 1000);
}

START_TEST(a_bare_directory_stays_and_owes_nothing)
{
    struct stat st;

    int64_t listed_ns = clock_mono_ns();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 0);
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    /* Of a listing that is old by now it asks anew, and proves nothing. */
    bool in_time = clock_mono_ns() - listed_ns < 200 * NS_PER_MS;
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/part"), 0);
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0700), 0);
    ck_assert_int_eq(driven_setxattr(&w.d, "runs/a", "user.x", "1", 1, 0), 0);
    ck_assert_uint_eq(pending(), 0);
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "local");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    if (in_time)
        ck_assert_uint_eq(routed_requests(&w), before);
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1); /* the stores list none */
    remount();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert_int_eq(driven_stat(&w.d, "runs/a", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "local");
    ck_assert(exists("runs/a/part"));
    driven_mount_afresh(&w.d);
    ck_assert(!exists("runs/a")); /* no other node sees it */
}
END_TEST

START_TEST(a_bare_directory_goes_without_a_request)
{
    ck_assert(!exists("runs/a") && !exists("runs/b")); /* the kernel looks, too */
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/b"), 0);
    ck_assert(exists("runs/b") && !exists("runs/a"));
    ck_assert_uint_eq(pending(), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/b"), 0);
    ck_assert_uint_eq(pending(), 0);
    ck_assert(!exists("runs/b"));
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, true); /* nothing is owed */
    ck_assert_int_eq(driven_flush(&w.d), 0);
}
END_TEST

START_TEST(a_bare_directory_becomes_one_of_the_stores)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "runs/a"), "clean") == 0);
    driven_mount_afresh(&w.d);
    ck_assert(exists("runs/a/checkpoint"));
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), -ENOTEMPTY);
}
END_TEST

START_TEST(another_node_fills_a_bare_directory)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    routed_store(&w, 1, "a/part/out", "lines");
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 1);
    driven_shows(&w.d, "runs/a/part/logs/out", "lines");
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "clean");
    remount();
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "clean");
}
END_TEST

/* As on any filesystem. */
START_TEST(a_directory_outlives_what_was_in_it)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    driven_put(&w.d, "runs/a/checkpoint/model", "weights", 7);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    if (_i)
        driven_mount_afresh(&w.d); /* the listing knows it */
    ck_assert_int_eq(driven_unlink(&w.d, "runs/a/checkpoint/model"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/model", NULL);
    later();
    ck_assert(exists("runs/a"));
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "local");
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    remount();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 0);
}
END_TEST

static const struct routed_row mapped[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "**", .leaf = 2},
};

/* The store of its own key has nothing of it. _i: a listing tells of it, or a lookup. */
START_TEST(a_directory_outlives_what_another_store_had_of_it)
{
    routed_release(&w);
    routed_init(&w, mapped, sizeof(mapped) / sizeof(*mapped), kind);
    w.d.config.list_timeout_ns = 200 * NS_PER_MS;
    driven_mount(&w.d);
    routed_store(&w, 0, "a/x", "1");
    if (_i)
        ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert(exists("runs/a"));
    ck_assert_int_eq(driven_unlink(&w.d, "runs/a/checkpoint/x"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    later();
    ck_assert(exists("runs/a"));
    ck_assert(routed_has(&w, 2, "runs/a"));
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/new"), 0);
}
END_TEST

/* What another node emptied goes, as ever. */
START_TEST(a_directory_of_the_stores_goes_with_them)
{
    const char *const keys[] = {"a/model"};
    struct op op;

    routed_store(&w, 0, "a/model", "weights");
    driven_shows(&w.d, "runs/a/checkpoint/model", "weights");
    op_init(&op, 60 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(w.leaves[0].layer->base.next, &op, keys, NULL, 1, NULL), 0);
    (void)store_rmdir(w.leaves[0].layer->base.next, &op, "a"); /* a folder is left */
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 0);
}
END_TEST

static unsigned mode_of(const char *path)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(&w.d, path, &st), 0);
    ck_assert(S_ISDIR(st.st_mode));
    return st.st_mode & 07777;
}

static const struct routed_row with_root[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/{part}/logs/**", .key = "{run}/{part}/**", .leaf = 1},
    {.path = "all/**", .key = "**", .leaf = 2},
};

/* What stands for it at a store has a mode that is none of its own. _i: the mount's mode. */
START_TEST(directories_of_no_key_show_the_mode_that_the_mount_gives)
{
    static const uint32_t modes[] = {0777, 0750, 0705};
    const struct attrs theirs = {.has = ATTR_MODE, .mode = S_IFDIR | 0700};
    char folder[80];
    struct op op;

    routed_release(&w);
    routed_init(&w, with_root, 3, kind);
    w.d.config.list_timeout_ns = 0;
    routed_store(&w, 0, "a/model", "weights");
    routed_store(&w, 1, "b/part/out", "lines");
    op_init(&op, 60 * NS_PER_SEC);
    if (kind == ROUTED_FOLDERS) {
        (void)snprintf(folder, sizeof(folder), "%s/a", w.leaves[0].folder);
        ck_assert_int_eq(chmod(folder, 0700), 0);
        ck_assert_int_eq(chmod(w.leaves[2].folder, 0700), 0);
    } else {
        ck_assert_int_eq(store_mkdir(w.leaves[0].layer->base.next, &op, "a", &theirs, NULL), 0);
    }
    w.d.config.dir_mode = modes[_i];
    driven_mount(&w.d);
    ck_assert_uint_eq(mode_of(""), modes[_i]);
    ck_assert_int_eq(driven_list(&w.d, ""), 2);
    ck_assert_uint_eq(mode_of("runs"), modes[_i]);   /* static */
    ck_assert_uint_eq(mode_of("all"), modes[_i]);    /* a store's root */
    ck_assert_uint_eq(mode_of("runs/a"), modes[_i]); /* implied: a lookup finds it */
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
    ck_assert_uint_eq(mode_of("runs/b"), modes[_i]); /* a listing does */
    ck_assert_uint_eq(mode_of("runs/b/part"), modes[_i]);
    ck_assert_uint_eq(mode_of("runs/a/checkpoint"), 0700); /* its own */
    later();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
    ck_assert_uint_eq(mode_of("runs/a"), modes[_i]);
    remount();
    ck_assert_uint_eq(mode_of("runs"), modes[_i]);
    ck_assert_uint_eq(mode_of("runs/a"), modes[_i]);
}
END_TEST

/* With another table of routes nothing of it is left, and nothing is in the way. */
START_TEST(another_mount_takes_the_cache_over)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    driven_unmount(&w.d);
    free(w.d.store->url);
    w.d.store->url = strdup("another");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 0);
}
END_TEST

static int take_none(void *arg, const struct cache_pending *p)
{
    (void)arg;
    (void)p;
    return 0;
}

/* Who looks into the cache without its routes takes a directory that lost its last name for one
 * that the store may have to be told of. */
START_TEST(a_look_without_routes_leaves_no_debt)
{
    struct op op;

    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, true);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    driven_unmount(&w.d);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_list(w.d.dir, &op, take_none, NULL), 0);
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, false);
    driven_mount(&w.d);
    ck_assert_str_eq(driven_state(&w.d, "runs/a"), "local");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    free(w.d.store->url);
    w.d.store->url = strdup("another");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 0);
}
END_TEST

static TCase *bare_of(const char *name, void (*use)(void))
{
    TCase *t = tcase_create(name);

    tcase_add_unchecked_fixture(t, use, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_bare_directory_stays_and_owes_nothing);
    tcase_add_test(t, a_bare_directory_goes_without_a_request);
    tcase_add_test(t, a_bare_directory_becomes_one_of_the_stores);
    tcase_add_test(t, another_node_fills_a_bare_directory);
    tcase_add_loop_test(t, a_directory_outlives_what_was_in_it, 0, 2);
    tcase_add_loop_test(t, a_directory_outlives_what_another_store_had_of_it, 0, 2);
    tcase_add_test(t, a_directory_of_the_stores_goes_with_them);
    tcase_add_loop_test(t, directories_of_no_key_show_the_mode_that_the_mount_gives, 0, 3);
    tcase_add_test(t, another_mount_takes_the_cache_over);
    tcase_add_test(t, a_look_without_routes_leaves_no_debt);
    return t;
}

static void use_s3(void)
{
    kind = ROUTED_S3;
}

static void use_folders(void)
{
    kind = ROUTED_FOLDERS;
}

int main(void)
{
    Suite *s = suite_create("cache_bare");

    suite_add_tcase(s, bare_of("like S3", use_s3));
    suite_add_tcase(s, bare_of("folders", use_folders));
    return suite_run(s);
}
