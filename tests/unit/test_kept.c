/* fuse/kept.c: what is kept of writes that wait has a bound, and nobody takes all of it. */
#include "fuse/kept.h"
#include "tests/lib/suite.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)

/* How many writes of a MiB the user may have waiting. */
static unsigned fill(struct kept *k, uid_t uid)
{
    unsigned n = 0;

    while (n < 10000 && kept_take(k, uid, MIB, false))
        n++;
    return n;
}

START_TEST(writes_that_wait_have_a_bound)
{
    struct kept k;
    unsigned first, all = 0;

    kept_init(&k);
    first = fill(&k, 0);
    ck_assert_uint_eq(first, KEPT_MAX / MIB / 2);
    for (uid_t uid = 1; uid < KEPT_USERS; uid++)
        all += fill(&k, uid);
    ck_assert_uint_ge(all, KEPT_MAX / MIB / 4);
    ck_assert_uint_le(kept_bytes(&k), KEPT_MAX);
    for (unsigned i = 0; i < first; i++)
        kept_give(&k, 0, MIB);
    ck_assert_uint_gt(fill(&k, KEPT_USERS + 1), 0); /* shares with user 1 */
    kept_destroy(&k);
}
END_TEST

/* Who comes second has room, and so has who comes last. */
START_TEST(one_user_leaves_room_for_others)
{
    struct kept k;

    kept_init(&k);
    (void)fill(&k, 1000);
    ck_assert_uint_ge(fill(&k, 0), KEPT_MAX / MIB / 4);
    ck_assert_uint_ge(fill(&k, 1001), KEPT_MAX / MIB / 8);
    ck_assert(kept_take(&k, 1000, MIB, true));
    kept_destroy(&k);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kept");
    TCase *t = tcase_create("kept");

    tcase_add_test(t, writes_that_wait_have_a_bound);
    tcase_add_test(t, one_user_leaves_room_for_others);
    suite_add_tcase(s, t);
    return suite_run(s);
}
