/* What a mount of several stores shows of units that others have not finished: their notes lie
 * in the state of the store that has the unit, under its key there. */
#include "cache/notes/notes.h"
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define THEIRS  "00000000000000c1"
#define SESSION "00000000000000aa"

static const struct routed_row rows[] = {
    {.path = "a/**", .key = "k/**", .leaf = 0, .policy = 1},
    {.path = "b/**", .key = "b/**", .leaf = 1, .policy = 1},
    {.path = "runs/{run}/logs/**", .key = "l/{run}/**", .leaf = 2, .policy = 2},
    {.path = "runs/{run}/**", .key = "r/{run}/**", .leaf = 0, .policy = 1},
    {.path = "**", .leaf = 1},
};

static struct routed_world w;

static void setup(void)
{
    struct policy *p = &w.policies[1];

    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    p->unit = (char *)(uintptr_t) "names";
    p->unit_names = (char *)(uintptr_t) "c-#";
    w.d.config.list_timeout_ns = w.d.config.attr_timeout_ns = 3600 * NS_PER_SEC;
}

static void teardown(void)
{
    routed_release(&w);
}

static void note(unsigned leaf, const char *dir, const char *name)
{
    auto_free char *unit = note_unit_key(dir, name);
    auto_free char *note = unit ? note_key(unit, NOTE_OPEN, THEIRS, SESSION) : NULL;
    char key[512];

    ck_assert_ptr_nonnull(note);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", note);
    routed_store(&w, leaf, key, "{}");
}

static bool shown(const char *path)
{
    struct stat st;
    int r = driven_stat(&w.d, path, &st);

    ck_assert_msg(r == 0 || r == -ENOENT, "%s: %d", path, r);
    return r == 0;
}

START_TEST(notes_lie_with_the_unit)
{
    routed_store(&w, 0, "k/r/c-1/x", "1");
    routed_store(&w, 0, "k/r/c-2/x", "1");
    routed_store(&w, 1, "b/r/c-1/x", "1");
    routed_store(&w, 1, "b/r/c-2/x", "1");
    note(0, "k/r", "c-1");
    note(0, "b/r", "c-2");
    note(1, "b/r", "c-1");
    note(1, "k/r", "c-2");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "a/r"), 1);
    ck_assert_int_eq(driven_list(&w.d, "b/r"), 1);
    ck_assert(!shown("a/r/c-1") && shown("a/r/c-2/x"));
    ck_assert(!shown("b/r/c-1/x") && shown("b/r/c-2"));
}
END_TEST

/* A policy without units asks nothing, whatever is noted. */
START_TEST(who_has_no_units_asks_for_none)
{
    routed_store(&w, 1, "x/c-1/sub/y", "1");
    note(1, "x", "c-1");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "x"), 1);
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_list(&w.d, "x/c-1"), 1);
    ck_assert_uint_eq(routed_requests(&w), before + 1);
    ck_assert_int_eq(driven_list(&w.d, "x/c-1/sub"), 1);
}
END_TEST

/* What one store does not tell of its units is no matter of another. */
START_TEST(a_store_answers_for_its_own_units)
{
    struct stat st;

    routed_store(&w, 0, "k/r/c-1/x", "1");
    routed_store(&w, 1, "b/r/c-1/x", "1");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "a"), 1);
    atomic_store(&w.leaves[0].down, true);
    ck_assert_int_lt(driven_stat(&w.d, "a/r/c-1/x", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "b/r/c-1/x", &st), 0);
    atomic_store(&w.leaves[0].down, false);
    DRIVEN_WAIT(driven_stat(&w.d, "a/r/c-1/x", &st) == 0);
}
END_TEST

/* The run may be a unit of the store that is down, and its logs are found all the same. */
START_TEST(a_store_that_is_down_hides_nothing_of_others)
{
    struct stat st;

    w.d.config.ask_timeout_ns = w.d.config.store_timeout_ns = 5 * NS_PER_SEC;
    w.d.config.list_timeout_ns = w.d.config.attr_timeout_ns = 1;
    routed_store(&w, 0, "r/one/x", "1");
    routed_store(&w, 2, "l/one/log", "1");
    routed_store(&w, 2, "l/one/sub/log", "1");
    driven_mount(&w.d);
    if (_i) /* it was seen before */
        ck_assert_int_eq(driven_list(&w.d, "runs/one/logs"), 2);
    atomic_store(&w.leaves[0].down, true);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/logs/log", &st), 0);
    ck_assert_int_eq(driven_list(&w.d, "runs/one/logs"), 2);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/logs/sub/log", &st), 0);
    /* Here it would be half of a unit that is shown. */
    ck_assert_int_lt(driven_stat(&w.d, "runs/one/y", &st), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_hidden_routes");
    TCase *t = tcase_create("units that others have not finished");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, notes_lie_with_the_unit);
    tcase_add_test(t, who_has_no_units_asks_for_none);
    tcase_add_test(t, a_store_answers_for_its_own_units);
    tcase_add_loop_test(t, a_store_that_is_down_hides_nothing_of_others, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
