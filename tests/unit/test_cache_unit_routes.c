/* Units of a mount with routes: their notes and seals lie in the state of the store that the
 * route leads to. */
#include "backends/store.h"
#include "common/mem.h"
#include "runs/note.h"
#include "runs/policy_fields.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>

static struct routed_world w;

static const struct routed_row rows[] = {
    {.path = "runs/{run}/**", .key = "{run}/**", .leaf = 0, .policy = 1},
    {.path = "exports/{name}/**", .key = "e/{name}/**", .leaf = 1, .policy = 2},
};

/* Of each store: what was put there of that. */
static atomic_uint opens[ROUTED_LEAVES], seals[ROUTED_LEAVES], removed[ROUTED_LEAVES];

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

static void watch(unsigned leaf, const struct call *c)
{
    const char *units = STORE_STATE_DIR "/" NOTES_DIR, *whole = STORE_STATE_DIR "/" SEALS_DIR;

    if (c->kind == CALL_PUT && begins(c->key, units))
        atomic_fetch_add(&opens[leaf], 1);
    if (c->kind == CALL_PUT && begins(c->key, whole))
        atomic_fetch_add(&seals[leaf], 1);
    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++)
        if (begins(c->keys[i], units))
            atomic_fetch_add(&removed[leaf], 1);
}

static void setup(void)
{
    for (int i = 0; i < ROUTED_LEAVES; i++) {
        atomic_store(&opens[i], 0);
        atomic_store(&seals[i], 0);
        atomic_store(&removed[i], 0);
    }
    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    w.policies[1] = *policy_preset("data");
    w.policies[2] = *policy_preset("data");
    w.policies[2].unit = "root";
    w.d.config.settle_ns = 0;
    atomic_store(&w.watch, watch);
    driven_mount(&w.d);
}

static void teardown(void)
{
    routed_release(&w);
}

static void made(const char *dir)
{
    ck_assert_int_eq(driven_mkdir(&w.d, dir), 0);
}

START_TEST(notes_lie_in_the_store_of_the_route)
{
    made("runs/a");
    made("runs/a/checkpoint-1");
    driven_put(&w.d, "runs/a/checkpoint-1/x", "x", 1);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/checkpoint-1/x", "x");
    ck_assert_uint_eq(atomic_load(&opens[0]), 1);
    ck_assert_uint_eq(atomic_load(&seals[0]), 1);
    ck_assert_uint_eq(atomic_load(&removed[0]), 1);
    ck_assert_uint_eq(atomic_load(&opens[1]), 0);
}
END_TEST

START_TEST(the_root_of_a_route_has_a_note)
{
    made("exports/m");
    driven_put(&w.d, "exports/m/x", "x", 1);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 1, "e/m/x", "x");
    ck_assert_uint_eq(atomic_load(&opens[1]), 1);
    ck_assert_uint_eq(atomic_load(&seals[1]), 1);
    ck_assert_uint_eq(atomic_load(&removed[1]), 1);
    ck_assert_uint_eq(atomic_load(&opens[0]), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_unit_routes");
    TCase *t = tcase_create("cache_unit_routes");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, notes_lie_in_the_store_of_the_route);
    tcase_add_test(t, the_root_of_a_route_has_a_note);
    suite_add_tcase(s, t);
    return suite_run(s);
}
