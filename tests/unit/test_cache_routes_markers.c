/* cache/: markers and removals of several stores in one tree. In one store a marker is not put
 * beside the removal of something below it; another store's removal is none of its business. */
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_LEAF 1
#define DEEP        "runs/a/sub/deep/f"

/* A directory of the second store has one of the first in it: both are asked to remove it. */
static const struct routed_row shared[] = {
    {.path = "runs/{run}/sub/deep/**", .leaf = 0},
    {.path = "runs/{run}/**", .leaf = SHARED_LEAF},
    {.path = "**", .leaf = 2},
};

static struct routed_world w;

static void start(void)
{
    routed_init(&w, shared, sizeof(shared) / sizeof(*shared), ROUTED_S3);
    w.d.config.late_ns = w.d.config.settle_ns = 0;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/sub"), 0);
}

static atomic_uint puts_run, removals_run, puts_begun, removals;
static atomic_bool was_beside; /* the put of a marker beside a removal */

static void slow(unsigned leaf, const struct call *c)
{
    if (leaf != SHARED_LEAF ||
        (c->kind != CALL_MKDIR && c->kind != CALL_REMOVE && c->kind != CALL_RMDIR))
        return;
    atomic_uint *run = c->kind == CALL_MKDIR ? &puts_run : &removals_run;
    atomic_fetch_add(run, 1);
    atomic_fetch_add(c->kind == CALL_MKDIR ? &puts_begun : &removals, 1);
    (void)usleep(200 * 1000);
    if (atomic_load(&puts_run) && atomic_load(&removals_run))
        atomic_store(&was_beside, true);
    atomic_fetch_sub(run, 1);
}

/* Whichever begins first. */
START_TEST(a_marker_does_not_come_while_a_directory_of_several_stores_goes)
{
    start();
    driven_put(&w.d, "runs/a/f", "text", 4);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0750), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&was_beside, false);
    atomic_store(&puts_begun, 0);
    atomic_store(&removals, 0);
    atomic_store(&w.watch, slow);
    if (_i == 0) {
        ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0700), 0);
        DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
        ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/sub"), 0);
    } else {
        ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/sub"), 0);
        DRIVEN_WAIT(atomic_load(&removals) > 0);
        ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0700), 0);
    }
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.watch, NULL);
    ck_assert_uint_gt(atomic_load(&removals), 0);
    ck_assert(!atomic_load(&was_beside));
    routed_release(&w);
}
END_TEST

static atomic_uint markers;
static atomic_bool asked, held;

/* The other store's removals get no answer. */
static void hold(unsigned leaf, const struct call *c)
{
    atomic_fetch_add(&markers, leaf == SHARED_LEAF && c->kind == CALL_MKDIR);
    if (leaf != 0 || c->kind != CALL_REMOVE)
        return;
    atomic_store(&asked, true);
    while (atomic_load(&held))
        (void)usleep(1000);
}

/* A store that gets no answer to a removal does not keep the marker above it from its own. */
START_TEST(a_marker_does_not_wait_for_another_store)
{
    start();
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/sub/deep"), 0);
    driven_put(&w.d, DEEP, "text", 4);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&markers, 0);
    atomic_store(&asked, false);
    atomic_store(&held, true);
    atomic_store(&w.watch, hold);
    ck_assert_int_eq(driven_unlink(&w.d, DEEP), 0);
    DRIVEN_WAIT(atomic_load(&asked));
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0700), 0);
    DRIVEN_WAIT(atomic_load(&markers) > 0);
    ck_assert(routed_has(&w, 0, DEEP));
    atomic_store(&held, false);
    atomic_store(&w.watch, NULL);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(!routed_has(&w, 0, DEEP));
    routed_release(&w);
}
END_TEST

/* ---- a directory that takes the name of one with other attributes ---- */

/* A run's own marker and its logs are in two stores. */
static const struct routed_row runs[] = {
    {.path = "runs/{run}/logs/**", .leaf = 0},
    {.path = "**", .leaf = 1},
};

static const enum routed_kind kinds[] = {ROUTED_MEM, ROUTED_S3, ROUTED_FOLDERS, ROUTED_MIXED};

#define KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))

static mode_t mode_of(const char *path)
{
    struct stat st;

    ck_assert_msg(driven_stat(&w.d, path, &st) == 0, "%s is not there", path);
    return st.st_mode & 07777;
}

/* A stored run of other attributes, and one that has none of its own, all of it stored. */
static void two_runs(enum routed_kind kind, int64_t settle_ns)
{
    routed_init(&w, runs, sizeof(runs) / sizeof(*runs), kind);
    w.d.config.settle_ns = settle_ns;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/u"), 0);
    ck_assert_int_eq(driven_chmod(&w.d, "runs/u", 0700), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/u/logs"), 0);
    driven_put(&w.d, "runs/u/logs/old", "lines", 5);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/y.d"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
}

/* What is removed of the old run waits for the file that was closed before, and the store of
 * the logs has some of them below the name as the other run comes to it. */
static void a_stored_one_comes(void)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/u/logs/s2"), 0);
    driven_put(&w.d, "runs/u/logs/s2/f", "text", 4);
    ck_assert_int_eq(driven_rename(&w.d, "runs/u", "runs/A"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/u"), 0);
}

/* Its content is in the store before the removal of the old run is carried out. */
static void a_new_one_comes(void)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/n"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/n/logs"), 0);
    driven_put(&w.d, "runs/n/logs/new", "text", 4);
    ck_assert_int_eq(driven_rename(&w.d, "runs/u", "runs/A"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/n", "runs/u"), 0);
}

static void u_goes(void)
{
    driven_put(&w.d, "runs/a/f", "text", 4);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/u/logs/old"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/u/logs"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/u"), 0);
}

static void a_stored_one_comes_when_it_is_gone(void)
{
    u_goes();
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/u"), 0);
}

static void a_new_one_comes_when_it_is_gone(void)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/n"), 0);
    driven_put(&w.d, "runs/n/f", "text", 4);
    u_goes();
    ck_assert_int_eq(driven_rename(&w.d, "runs/n", "runs/u"), 0);
}

/* In the order of their numbers, each with each kind of store. */
static void (*const comes[])(void) = {a_stored_one_comes, a_new_one_comes,
                                      a_stored_one_comes_when_it_is_gone,
                                      a_new_one_comes_when_it_is_gone};

#define COMES ((int)(sizeof(comes) / sizeof(*comes)))

static void modes_are_right(int i)
{
    ck_assert_int_eq(mode_of("runs/u"), 0755);
    if (comes[i / KINDS] == a_stored_one_comes || comes[i / KINDS] == a_new_one_comes)
        ck_assert_int_eq(mode_of("runs/A"), 0700);
}

START_TEST(a_run_that_takes_anothers_name_does_not_get_its_attributes)
{
    two_runs(kinds[_i % KINDS], 300 * NS_PER_MS);
    comes[_i / KINDS]();
    modes_are_right(_i);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    modes_are_right(_i);
    driven_mount_afresh(&w.d);
    modes_are_right(_i);
    routed_release(&w);
}
END_TEST

/* The daemon is killed when the stores have taken so many of its changes. */
START_TEST(nor_after_a_kill_at_any_step)
{
    struct cache_stats s;
    int step = 0;

    for (bool done = false; !done; step++) {
        two_runs(kinds[_i % KINDS], 20 * NS_PER_MS);
        atomic_store(&w.fuse, step);
        comes[_i / KINDS]();
        DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.pending_ops + s.dirty_files == 0) ||
                    atomic_load(&w.fuse) == 0);
        done = atomic_load(&w.fuse) > 0;
        driven_unmount(&w.d);
        atomic_store(&w.fuse, -1);
        driven_mount(&w.d);
        modes_are_right(_i);
        ck_assert_int_eq(driven_flush(&w.d), 0);
        driven_mount_afresh(&w.d);
        modes_are_right(_i);
        routed_release(&w);
    }
    ck_assert_int_gt(step, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_routes_markers");
    TCase *t = tcase_create("cache_routes_markers");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_marker_does_not_come_while_a_directory_of_several_stores_goes, 0,
                        2);
    tcase_add_test(t, a_marker_does_not_wait_for_another_store);
    tcase_add_loop_test(t, a_run_that_takes_anothers_name_does_not_get_its_attributes, 0,
                        COMES * KINDS);
    tcase_add_loop_test(t, nor_after_a_kill_at_any_step, 0, COMES * KINDS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
