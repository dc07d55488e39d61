/* cache/: names of a directory that is not listed, or not any more, and what another node has
 * there. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "tests/lib/at_point.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct driven d;

/* ---- a name that another node takes, too ---- */

/* A version of ours lost against another node's: what the directory has is asked for again. */
static void another_has_it(void)
{
    driven_store(&d, "f", "theirs", 6);
    cache_lock(d.cache);
    name_is_the_stores_locked(d.cache, "lost");
    cache_unlock(d.cache);
}

START_TEST(unlisted_before_a_name_is_taken)
{
    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    if (_i)
        driven_put(&d, "mine", "ours", 4);
    ck_assert_int_eq(driven_list(&d, ""), _i ? 1 : 0);
    at(_i ? "rename-ready" : "make-ready", another_has_it);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "mine", "f"), 0);
    else
        driven_put(&d, "f", "ours", 4);
    ck_assert(atomic_load(&done));
    crash_watch(NULL);
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    driven_stores(&d, "f", "theirs");
    driven_release(&d);
}
END_TEST

/* More than a look at one page of them shows: its names are asked for one by one. */
#define MANY 1001

static void theirs_comes(void)
{
    driven_store(&d, "x/f", "theirs", 6);
}

START_TEST(unlisted_name_of_many_is_taken)
{
    char path[32];
    struct stat st;

    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    d.config.list_timeout_ns = 0;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "x/%04d", i);
        driven_store(&d, path, "many", 4);
    }
    driven_mount(&d);
    if (_i)
        driven_put(&d, "mine", "ours", 4);
    ck_assert_int_eq(driven_stat(&d, "x/f", &st), -ENOENT);
    (void)usleep(300000); /* longer than that is believed */
    at(_i ? "rename-ready" : "make-ready", theirs_comes);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "mine", "x/f"), 0);
    else
        driven_put(&d, "x/f", "ours", 4);
    ck_assert(atomic_load(&done));
    crash_watch(NULL);
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    driven_stores(&d, "x/f", "theirs");
    driven_release(&d);
}
END_TEST

/* ---- a directory whose names are not known any more, or not yet ---- */

static uint64_t count_nodes(void)
{
    struct cache_stats stats;

    cache_get_stats(d.cache, &stats);
    return stats.nodes;
}

static void limit_names(uint64_t bytes)
{
    cache_lock(d.cache);
    d.cache->config.list_memory_bytes = bytes;
    cache_unlock(d.cache);
}

static void forget_names(void)
{
    uint64_t before = count_nodes();

    limit_names(1);
    DRIVEN_WAIT(count_nodes() < before);
    limit_names(1 << 30);
}

/* The kernel knows the name from before: another node has removed the directory meanwhile. */
static void make_it_anew(void)
{
    driven_store(&d, "dir/f", "theirs", 6);
    DRIVEN_WAIT(driven_list(&d, "") == 2);
}

static void mount_beside_theirs(bool forgotten)
{
    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 0;
    d.config.list_timeout_ns = forgotten ? 3600 * NS_PER_SEC : 0;
    driven_mount(&d);
    if (forgotten)
        driven_store(&d, "dir/f", "theirs", 6);
    ck_assert_int_eq(driven_mkdir(&d, "mine"), 0);
    ck_assert_int_eq(driven_list(&d, ""), forgotten ? 2 : 1);
}

static void their_file_stays(void)
{
    ck_assert(atomic_load(&done));
    crash_watch(NULL);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_shows(&d, "dir/f", "theirs");
    driven_release(&d);
}

START_TEST(unlisted_before_it_is_removed)
{
    mount_beside_theirs(_i);
    at("rmdir-ready", _i ? forget_names : make_it_anew);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), -ENOTEMPTY);
    their_file_stays();
}
END_TEST

START_TEST(unlisted_before_it_is_replaced)
{
    mount_beside_theirs(_i);
    at("rename-ready", _i ? forget_names : make_it_anew);
    ck_assert_int_eq(driven_rename(&d, "mine", "dir"), -ENOTEMPTY);
    their_file_stays();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_unlisted");
    TCase *t = tcase_create("unlisted");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, unlisted_before_a_name_is_taken, 0, 2);
    tcase_add_loop_test(t, unlisted_name_of_many_is_taken, 0, 2);
    tcase_add_loop_test(t, unlisted_before_it_is_removed, 0, 2);
    tcase_add_loop_test(t, unlisted_before_it_is_replaced, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
