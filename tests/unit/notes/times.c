/* When a lease of ours is held, and when one of theirs has ended. */
#include "cache/notes/notes_impl.h"
#include "tests/unit/notes/suites.h"

#define S    NS_PER_SEC
#define TTL  (60 * S)
#define LATE (10 * S)

/* ---- ours ---- */

static void must_hold(const struct lease_times *t, int64_t from_ns, int64_t end_ns)
{
    ck_assert(lease_times_hold(t, from_ns));
    ck_assert(lease_times_hold(t, end_ns - 1));
    ck_assert(!lease_times_hold(t, end_ns));
}

START_TEST(it_is_held_from_where_the_rewrite_began)
{
    struct lease_times t = {.ttl_ns = TTL};

    lease_times_begin(&t, 100 * S);
    ck_assert_int_eq(t.next_ns, 100 * S);
    ck_assert(!lease_times_hold(&t, 100 * S));
    ck_assert(lease_times_beaten(&t, 100 * S, 115 * S));
    ck_assert_uint_eq(t.term, 1);
    ck_assert_int_eq(t.next_ns, 120 * S);
    must_hold(&t, 115 * S, 160 * S); /* not 175 */
    ck_assert(!lease_times_beaten(&t, 120 * S, 121 * S));
    ck_assert_uint_eq(t.term, 1);
    must_hold(&t, 121 * S, 180 * S);
}
END_TEST

START_TEST(a_rewrite_after_the_end_begins_a_term)
{
    struct lease_times t = {.ttl_ns = TTL};

    lease_times_begin(&t, 0);
    ck_assert(lease_times_beaten(&t, 0, 1 * S));
    /* It began in time, and its answer came when the lease was lost. */
    ck_assert(lease_times_beaten(&t, 50 * S, 60 * S));
    ck_assert_uint_eq(t.term, 2);
    must_hold(&t, 60 * S, 110 * S);
    /* The answer took longer than what it gave. */
    ck_assert(!lease_times_beaten(&t, 120 * S, 180 * S));
    ck_assert_uint_eq(t.term, 2);
    ck_assert(!lease_times_hold(&t, 180 * S));
    ck_assert_int_le(t.next_ns, 180 * S);
    ck_assert(lease_times_beaten(&t, 180 * S, 181 * S));
    ck_assert_uint_eq(t.term, 3);
}
END_TEST

START_TEST(a_rewrite_that_hangs_leaves_time_for_another)
{
    struct lease_times t = {.ttl_ns = TTL};

    lease_times_begin(&t, 0);
    ck_assert_int_eq(lease_times_patience(&t, 0), TTL / 2);
    (void)lease_times_beaten(&t, 0, 0);
    ck_assert_int_eq(lease_times_patience(&t, 20 * S), 20 * S);
    lease_times_failed(&t, 40 * S);
    ck_assert_int_gt(t.next_ns, 40 * S);
    ck_assert_int_lt(t.next_ns, 60 * S);
    /* Never beyond the end, and all of what is left in the end. */
    for (int64_t now = 20 * S; now < 60 * S; now += S / 2)
        ck_assert_int_le(lease_times_patience(&t, now), 60 * S - now);
    ck_assert_int_eq(lease_times_patience(&t, 56 * S), 4 * S);
    ck_assert_int_eq(lease_times_patience(&t, 60 * S), TTL / 2); /* lost: as at first */
}
END_TEST

START_TEST(a_need_takes_up_what_is_still_held)
{
    struct lease_times t = {.ttl_ns = TTL};

    lease_times_begin(&t, 0);
    (void)lease_times_beaten(&t, 0, 0);
    lease_times_begin(&t, 59 * S);
    ck_assert(lease_times_hold(&t, 59 * S));
    ck_assert_int_le(t.next_ns, 59 * S);
    lease_times_begin(&t, 60 * S);
    ck_assert(!t.beaten);
    ck_assert_int_eq(t.next_ns, 60 * S);
    ck_assert(lease_times_beaten(&t, 60 * S, 61 * S));
    ck_assert_uint_eq(t.term, 2);
}
END_TEST

/* ---- theirs ---- */

/* A look that takes a second. */
static void look(struct other_times *t, const char *version, int64_t ttl_ns, int64_t at_ns)
{
    other_times_told(t, version, ttl_ns, TTL, at_ns - S, at_ns);
}

/* Looks each 20 s, up to a time. */
static int64_t look_until(struct other_times *t, const char *version, int64_t ttl_ns,
                          int64_t from_ns, int64_t end_ns)
{
    for (; from_ns <= end_ns; from_ns += 20 * S)
        look(t, version, ttl_ns, from_ns);
    return from_ns - 20 * S;
}

START_TEST(one_that_does_not_change_has_ended)
{
    struct other_times t = {0};

    ck_assert_int_eq(other_times_state(&t, LATE, 0), OTHER_UNKNOWN);
    look(&t, "a", TTL, 100 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 100 * S), OTHER_LIVES);
    (void)look_until(&t, "a", TTL, 120 * S, 160 * S);
    /* ttl + late_window + 5 s behind the first answer, by what the last question was asked. */
    look(&t, "a", TTL, 176 * S - 1);
    ck_assert_int_eq(other_times_state(&t, LATE, 176 * S), OTHER_LIVES);
    look(&t, "a", TTL, 176 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 176 * S), OTHER_ENDED);
    /* What nobody looks at any more is not known to be so. */
    ck_assert_int_eq(other_times_state(&t, LATE, 196 * S), OTHER_ENDED);
    ck_assert_int_eq(other_times_state(&t, LATE, 196 * S + 1), OTHER_UNKNOWN);
}
END_TEST

START_TEST(another_version_begins_anew)
{
    struct other_times t = {0};
    int64_t at;

    at = look_until(&t, "a", TTL, 0, 60 * S);
    look(&t, "b", TTL, at + 10 * S);
    at = look_until(&t, "b", TTL, at + 20 * S, 140 * S);
    ck_assert_int_eq(at, 140 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, at), OTHER_LIVES);
    look(&t, "b", TTL, 146 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 146 * S), OTHER_ENDED);
    look(&t, "c", TTL, 147 * S); /* it was thought to have ended, and is back */
    ck_assert_int_eq(other_times_state(&t, LATE, 147 * S), OTHER_LIVES);
}
END_TEST

START_TEST(a_gap_of_looks_begins_anew)
{
    struct other_times t = {0};

    (void)look_until(&t, "a", TTL, 0, 60 * S);
    look(&t, "a", TTL, 80 * S + 1);
    ck_assert_int_eq(t.since_ns, 80 * S + 1);
    look(&t, "a", TTL, 100 * S + 1);
    ck_assert_int_eq(t.since_ns, 80 * S + 1);
}
END_TEST

START_TEST(its_own_ttl_counts)
{
    struct other_times t = {0};

    (void)look_until(&t, "a", 600 * S, 0, 600 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 600 * S), OTHER_LIVES);
    (void)look_until(&t, "a", 600 * S, 620 * S, 640 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 640 * S), OTHER_ENDED);
    t = (struct other_times){0};
    look(&t, "a", INT64_MAX, 0);
    look(&t, "a", INT64_MAX, INT64_MAX / 2); /* no sum of times overflows */
    ck_assert_int_eq(other_times_state(&t, LATE, INT64_MAX / 2), OTHER_LIVES);
}
END_TEST

START_TEST(one_that_is_missing_counts_as_a_version)
{
    struct other_times t = {0};

    (void)look_until(&t, "absent", 0, 0, 60 * S);
    ck_assert_int_eq(t.ttl_ns, TTL); /* this cache's, as it tells none */
    look(&t, "absent", 0, 76 * S);
    ck_assert_int_eq(other_times_state(&t, LATE, 76 * S), OTHER_ENDED);
    t = (struct other_times){0};
    look(&t, "a", 600 * S, 0);
    look(&t, "absent", 0, S);
    ck_assert_int_eq(t.ttl_ns, 600 * S); /* the last that it told */
    ck_assert_int_eq(t.since_ns, S);
}
END_TEST

Suite *times_suite(void)
{
    Suite *s = suite_create("times");
    TCase *t = tcase_create("times");

    tcase_add_test(t, it_is_held_from_where_the_rewrite_began);
    tcase_add_test(t, a_rewrite_after_the_end_begins_a_term);
    tcase_add_test(t, a_rewrite_that_hangs_leaves_time_for_another);
    tcase_add_test(t, a_need_takes_up_what_is_still_held);
    tcase_add_test(t, one_that_does_not_change_has_ended);
    tcase_add_test(t, another_version_begins_anew);
    tcase_add_test(t, a_gap_of_looks_begins_anew);
    tcase_add_test(t, its_own_ttl_counts);
    tcase_add_test(t, one_that_is_missing_counts_as_a_version);
    suite_add_tcase(s, t);
    return s;
}
