/* cache/types/place.c: places at the store, and whose they are. */
#include "cache/types/place.h"
#include "common/mem.h"
#include "tests/unit/types/suites.h"

#include <string.h>

START_TEST(a_path_has_its_place_when_nothing_is_pending)
{
    const char *path = "runs/1/state";
    struct place at = place_of_path(path);

    ck_assert_str_eq(at.key, "runs/1/state");
    ck_assert_str_eq(place_path(at), path);
    ck_assert(place_known(at));
    ck_assert(place_known(place_of_path(""))); /* the root's */
    ck_assert(!place_known(NO_PLACE));
    ck_assert(!place_known(place_of_path(NULL)));
    ck_assert(place_same(at, place_of_path("runs/1/state")));
    ck_assert(!place_same(at, place_of_path("runs/1")));
}
END_TEST

static const struct {
    const char *at, *from, *to, *moved; /* NULL: it does not move */
} moves[] = {
    {"a", "a", "b", "b"},      {"a/f", "a", "b", "b/f"},     {"ab", "a", "b", NULL},
    {"a", "a/f", "b", NULL},   {"a/d/f", "a/d", "d", "d/f"}, {"f", "", "d", "d/f"},
    {"d/e/f", "d/e", "", "f"}, {"c", "a", "b", NULL},
};

START_TEST(what_lies_below_a_place_moves_with_it)
{
    struct place at = place_of_path(moves[_i].at), from = place_of_path(moves[_i].from);
    auto_place struct place moved = place_moved(at, from, place_of_path(moves[_i].to));

    if (moves[_i].moved)
        ck_assert_str_eq(moved.key, moves[_i].moved);
    else
        ck_assert(!place_known(moved));
    ck_assert_int_eq(place_known(moved), place_below(from, at) != NULL);
}
END_TEST

START_TEST(an_owned_place_is_handed_on)
{
    auto_place struct place dir = place_dup(place_of_path("runs"));
    auto_place struct place file = place_join(dir, "1");
    auto_place struct place taken = place_take(&file);

    ck_assert_str_eq(dir.key, "runs");
    ck_assert_str_eq(taken.key, "runs/1");
    ck_assert(!place_known(file));
    ck_assert_str_eq(place_below(dir, taken), "1");
    place_free(&taken);
    ck_assert(!place_known(taken));
}
END_TEST

Suite *place_suite(void)
{
    Suite *s = suite_create("place");
    TCase *t = tcase_create("place");

    tcase_add_test(t, a_path_has_its_place_when_nothing_is_pending);
    tcase_add_loop_test(t, what_lies_below_a_place_moves_with_it, 0, ARRAY_SIZE(moves));
    tcase_add_test(t, an_owned_place_is_handed_on);
    suite_add_tcase(s, t);
    return s;
}
