/* cache/types/debt.c: what is owed stands in the order of closes, and its failures are counted.
 */
#include "cache/types/debt.h"
#include "common/mem.h"
#include "tests/unit/types/suites.h"

#include <stdlib.h>
#include <string.h>

#define MANY 200

static struct debt all[MANY];
static struct debts queue;

static void begin(void)
{
    memset(all, 0, sizeof(all));
    queue = (struct debts){0};
}

static void end(void)
{
    for (size_t i = 0; i < MANY; i++) {
        debt_leave(&all[i]);
        debt_release(&all[i]);
    }
}

/* Both ways say the same, and the count. */
static void check_queue(void)
{
    const struct debt *before = NULL;

    for (const struct debt *d = queue.first; d; before = d, d = d->next) {
        ck_assert_ptr_eq(d->prev, before);
        ck_assert_ptr_eq(d->in, &queue);
        ck_assert(!before || !d->seq || (before->seq && before->seq <= d->seq));
    }
    ck_assert_ptr_eq(queue.last, before);
}

/* Those without a place come last, in the order in which they came. */
START_TEST(each_has_its_place)
{
    const uint64_t places[] = {0, 3, 0, 1, 2, 2, 9}, order[] = {3, 4, 5, 1, 6, 0, 2};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        debt_set_place(&all[i], places[i]);
        debts_add(&queue, &all[i]);
    }
    for (const struct debt *d = queue.first; d; d = d->next)
        ck_assert_int_eq(d - all, (int)order[n++]);
    ck_assert_uint_eq(n, ARRAY_SIZE(order));
    check_queue();
}
END_TEST

START_TEST(they_come_and_go)
{
    srand(_i + 1);
    for (int step = 0; step < 2000; step++) {
        struct debt *d = &all[rand() % MANY];
        bool queued = debt_is_queued(d);
        debt_leave(d);
        debt_leave(d); /* of no queue: nothing */
        ck_assert(!debt_is_queued(d));
        debt_set_place(d, (uint64_t)(rand() % 50));
        if (!queued)
            debts_add(&queue, d);
        check_queue();
    }
}
END_TEST

/* Also the one that would be next, or the last; what comes behind is met, too. */
START_TEST(a_walk_goes_on_when_others_leave)
{
    const struct debt *const met[] = {&all[0], &all[2], &all[5], &all[6]};
    size_t n = 0;

    for (size_t i = 0; i < 6; i++)
        debts_add(&queue, &all[i]);
    for (const struct debt *d = debts_first(&queue); d; d = debts_next(&queue)) {
        ck_assert_uint_lt(n, ARRAY_SIZE(met));
        ck_assert_ptr_eq(d, met[n]);
        if (n == 0)
            debt_leave(&all[1]);
        if (n == 1) {
            debt_leave(&all[2]);
            debt_leave(&all[4]);
            debt_leave(&all[3]);
            debts_add(&queue, &all[6]);
        }
        n++;
    }
    ck_assert_uint_eq(n, ARRAY_SIZE(met));
    ck_assert_ptr_null(debts_next(&queue));
}
END_TEST

START_TEST(its_time_comes)
{
    int64_t next = 100;

    ck_assert(debt_is_due(&all[0], 5, &next));
    debt_set_due(&all[0], 20);
    ck_assert(!debt_is_due(&all[0], 5, &next) && next == 20);
    debt_set_due(&all[1], 30);
    ck_assert(!debt_is_due(&all[1], 5, &next) && next == 20);
    ck_assert(debt_is_due(&all[0], 20, &next));
}
END_TEST

START_TEST(failures_are_counted_until_one_gets_on)
{
    struct debt *d = &all[0];

    debt_failed(d, 10, -5, "first", 7);
    debt_failed(d, 20, -28, "second", 9);
    ck_assert(d->attempts == 2 && d->failing_ns == 10 && d->failed_ns == 20 && d->due_ns == 29);
    ck_assert_int_eq(d->error, -28);
    ck_assert_str_eq(d->why, "second");
    debt_got_on(d); /* what it is held back for stays */
    ck_assert(d->attempts == 0 && d->failing_ns == 0 && d->error == -28 && d->why);
    debt_failed(d, 30, -5, "third", 0);
    ck_assert(d->attempts == 1 && d->failing_ns == 30);
    debt_set_refused(d, 30);
    debt_forgive(d);
    ck_assert(d->attempts == 0 && !d->error && !d->why && !d->failing_ns && !d->refused_ns);
    debt_failed(d, 40, -5, "fourth", 0);
    debt_let_go(d); /* what held it back is over, not how the attempts went */
    ck_assert(!d->error && !d->why && d->attempts == 1 && d->failing_ns == 40);
    debt_forgive(d);
    debt_hold_back(d, -28, "a full disk");
    ck_assert(d->attempts == 0 && d->error == -28 && !d->failing_ns);
}
END_TEST

/* In steps of 10, for 35 at most; and anew for the next reader. */
START_TEST(it_waits_for_readers_but_not_for_ever)
{
    struct debt *d = &all[0];
    int64_t next = 1000;

    ck_assert(!debt_waits_for_readers(d, false, 100, 10, 35, &next) && next == 1000);
    ck_assert(debt_waits_for_readers(d, true, 100, 10, 35, &next));
    ck_assert(next == 110 && d->due_ns == 110);
    ck_assert(debt_waits_for_readers(d, true, 134, 10, 35, &next));
    ck_assert(!debt_waits_for_readers(d, true, 135, 10, 35, &next));
    ck_assert(!debt_waits_for_readers(d, true, 500, 10, 35, &next));
    ck_assert(!debt_waits_for_readers(d, false, 600, 10, 35, &next));
    ck_assert(debt_waits_for_readers(d, true, 700, 10, 35, &next));
    ck_assert_uint_eq(d->attempts, 0); /* none of it failed */
    debt_forgive(d);                   /* what comes next waits for its own */
    ck_assert(debt_waits_for_readers(d, true, 800, 10, 35, &next));
}
END_TEST

Suite *debt_suite(void)
{
    Suite *s = suite_create("debt");
    TCase *t = tcase_create("debt");

    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, each_has_its_place);
    tcase_add_loop_test(t, they_come_and_go, 0, 5);
    tcase_add_test(t, a_walk_goes_on_when_others_leave);
    tcase_add_test(t, its_time_comes);
    tcase_add_test(t, failures_are_counted_until_one_gets_on);
    tcase_add_test(t, it_waits_for_readers_but_not_for_ever);
    suite_add_tcase(s, t);
    return s;
}
