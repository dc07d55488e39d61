/* How many stories the tests tell under TSan in the gate, and elsewhere (tests/lib/some.h). */
#include "tests/lib/some.h"

#include "tests/lib/suite.h"

#include <stdlib.h>

static void in_the_gate(bool slow)
{
    some_is_slow = slow;
    ck_assert_int_eq(unsetenv("RUNFS_NIGHTLY"), 0);
}

static void at_night(bool slow)
{
    some_is_slow = slow;
    ck_assert_int_eq(setenv("RUNFS_NIGHTLY", "1", 1), 0);
}

/* How many of [from, to) are told, and each once; marked in `told`. */
static int tell(int from, int to, unsigned nth, bool *told)
{
    struct some s;
    int n = 0;

    for (s = some_begin(from, to, nth); s.at < s.to; s.at += (int)s.step) {
        ck_assert_int_ge(s.at, from);
        told[s.at] = true;
        n++;
    }
    return n;
}

START_TEST(the_gate_tells_every_nth_under_tsan)
{
    in_the_gate(true);
    ck_assert_uint_eq(every(7), 7);
    in_the_gate(false);
    ck_assert_uint_eq(every(7), 1);
    at_night(true);
    ck_assert_uint_eq(every(7), 1);
}
END_TEST

/* However short a loop is, and wherever the count stands, something is told of it. */
START_TEST(no_loop_is_left_out)
{
    bool told[40];

    in_the_gate(true);
    ck_assert_int_eq(tell(0, 0, SOME_KINDS, told), 0);
    for (unsigned nth = 1; nth < 12; nth++)
        for (int n = 1; n < 40; n++) {
            int some = tell(0, n, nth, told), least = n / (int)nth;
            ck_assert_int_ge(some, least > 0 ? least : 1);
            ck_assert_int_le(some, least + 1);
        }
}
END_TEST

/* Tests of the same kinds don't tell of the same ones. */
START_TEST(each_kind_has_its_turn)
{
    bool told[11] = {false};

    in_the_gate(true);
    for (int i = 0; i < SOME_KINDS; i++)
        (void)tell(3, 11, SOME_KINDS, told);
    for (int i = 3; i < 11; i++)
        ck_assert_msg(told[i], "%d has no turn", i);
}
END_TEST

START_TEST(all_are_told_by_night_and_elsewhere)
{
    bool told[40];

    for (int n = 1; n < 40; n++) {
        at_night(true);
        ck_assert_int_eq(tell(0, n, SOME_KINDS, told), n);
        in_the_gate(false);
        ck_assert_int_eq(tell(0, n, SOME_KINDS, told), n);
    }
}
END_TEST

START_TEST(places_are_come_to)
{
    in_the_gate(true);
    ck_assert_uint_eq(step_through(400, 40, 4), 100);
    ck_assert_uint_eq(step_through(3, 40, 4), 1);
    ck_assert_uint_eq(step_through(0, 40, 4), 1);
    in_the_gate(false);
    ck_assert_uint_eq(step_through(400, 40, 4), 10);
    at_night(false);
    ck_assert_uint_eq(step_through(400, 40, 4), 1);
    at_night(true);
    ck_assert_uint_eq(step_through(400, 40, 4), 50);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("some");
    TCase *t = tcase_create("some");

    tcase_add_test(t, the_gate_tells_every_nth_under_tsan);
    tcase_add_test(t, no_loop_is_left_out);
    tcase_add_test(t, each_kind_has_its_turn);
    tcase_add_test(t, all_are_told_by_night_and_elsewhere);
    tcase_add_test(t, places_are_come_to);
    suite_add_tcase(s, t);
    return suite_run(s);
}
