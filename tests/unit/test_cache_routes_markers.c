/* cache/: markers and removals of several stores in one tree. In one store a marker is not put
 * beside the removal of something below it; another store's removal is none of its business. */
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdatomic.h>
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

static atomic_uint puts_run, removals_run, removals;
static atomic_bool was_beside; /* the put of a marker beside a removal */

static void slow(unsigned leaf, const struct call *c)
{
    if (leaf != SHARED_LEAF ||
        (c->kind != CALL_MKDIR && c->kind != CALL_REMOVE && c->kind != CALL_RMDIR))
        return;
    atomic_uint *run = c->kind == CALL_MKDIR ? &puts_run : &removals_run;
    atomic_fetch_add(run, 1);
    atomic_fetch_add(&removals, c->kind != CALL_MKDIR);
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
    atomic_store(&removals, 0);
    atomic_store(&w.watch, slow);
    if (_i == 0) {
        ck_assert_int_eq(driven_chmod(&w.d, "runs/a", 0700), 0);
        DRIVEN_WAIT(atomic_load(&puts_run) == 1);
        ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/sub"), 0);
    } else {
        ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/sub"), 0);
        DRIVEN_WAIT(atomic_load(&removals_run) == 1);
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

int main(void)
{
    Suite *s = suite_create("cache_routes_markers");
    TCase *t = tcase_create("cache_routes_markers");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_marker_does_not_come_while_a_directory_of_several_stores_goes, 0,
                        2);
    tcase_add_test(t, a_marker_does_not_wait_for_another_store);
    suite_add_tcase(s, t);
    return suite_run(s);
}
