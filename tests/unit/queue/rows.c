/* cache/queue/rows.c: rows are found by their name, and as renames, in their order; and what is
 * asked for each of many removals looks at few others. */
#include "tests/lib/room.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of the rows that take something from there. */
static const char *of_name(struct cache *c, const char *name) REQUIRES(cache_mutex)
{
    static char text[64];
    size_t n = 0;

    text[0] = '\0';
    for (const struct intent *i = row_of_name_locked(c, name); i; i = row_of_name_next(i))
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", n ? " " : "",
                              (unsigned)(i->seq / SEQ_STEP));
    return text;
}

/* The renames that are newer, the newest first. */
static const char *renames(struct cache *c, uint64_t after) REQUIRES(cache_mutex)
{
    static char text[64];
    size_t n = 0;

    text[0] = '\0';
    for (const struct intent *i = rename_last_locked(c); i && i->seq > after * SEQ_STEP;
         i = rename_before_locked(c, i))
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", n ? " " : "",
                              (unsigned)(i->seq / SEQ_STEP));
    return text;
}

START_TEST(rows_are_found_by_their_name)
{
    struct cache *c =
        owed_new("unlink a; rename b c; unlink a; unlink b; rmdir a; unlink d", "");

    ck_assert_str_eq(of_name(c, "a"), "1 3 5");
    ck_assert_str_eq(of_name(c, "b"), "2 4");
    ck_assert_str_eq(of_name(c, "c"), ""); /* nothing is taken from there */
    intent_remove_locked(c, owed_row(c, 1));
    ck_assert_str_eq(of_name(c, "a"), "3 5");
    intent_remove_locked(c, owed_row(c, 4)); /* the rmdir */
    ck_assert_str_eq(of_name(c, "a"), "3");
    intent_remove_locked(c, owed_row(c, 2));
    ck_assert_str_eq(of_name(c, "a"), "");
    ck_assert_str_eq(of_name(c, "b"), "2 4");
    ck_assert_str_eq(of_name(c, "d"), "6");
    owed_free(c);
}
END_TEST

/* The removals that a directory's rename turns into keep its place. */
START_TEST(one_that_comes_late_has_its_place)
{
    struct cache *c = owed_new("unlink a; unlink x; unlink a", "");
    const uint64_t late[] = {2, 0, 4}; /* between, before and behind them */

    for (size_t k = 0; k < ARRAY_SIZE(late); k++) {
        struct intent *i = intent_new(late[k] * SEQ_STEP + 1, INTENT_UNLINK, "a", NULL, 0, "v");
        ck_assert_ptr_nonnull(i);
        intent_add_locked(c, i);
    }
    ck_assert_str_eq(of_name(c, "a"), "0 1 2 3 4");
    owed_free(c);
}
END_TEST

START_TEST(renames_are_found_in_their_order)
{
    struct cache *c = owed_new("rename a b; unlink x; rename c d; renamedir e f", "");

    ck_assert_str_eq(renames(c, 0), "4 3 1");
    ck_assert_str_eq(renames(c, 1), "4 3");
    ck_assert_str_eq(renames(c, 2), "4 3");
    ck_assert_str_eq(renames(c, 4), "");
    intent_becomes_removal_locked(c, owed_row(c, 3), strdup("v"));
    ck_assert_str_eq(renames(c, 0), "4 1");
    ck_assert_str_eq(of_name(c, "c"), "3"); /* its old name is to go */
    ck_assert(!owed_row(c, 3)->to && owed_row(c, 3)->kind == INTENT_UNLINK);
    intent_remove_locked(c, owed_row(c, 1));
    ck_assert_str_eq(renames(c, 0), "4");
    ck_assert_uint_eq(c->queue->renames, 1);
    owed_free(c);
}
END_TEST

#ifndef NDEBUG
/* Each of `n` names was removed twice, while the store was away, beside a rename. */
static unsigned long long looked_for(unsigned n)
{
    struct cache *c = owed_new("rename old new", "");
    struct intent *i;
    char name[32];

    for (unsigned k = 0; k < 2 * n; k++) {
        (void)snprintf(name, sizeof(name), "d/%u", k % n);
        i = intent_new(seq_next_locked(c), INTENT_UNLINK, name, NULL, 0,
                       k < n ? "v" : INTENT_OURS);
        ck_assert_ptr_nonnull(i);
        intent_add_locked(c, i);
    }
    struct barrier b;
    int64_t next_ns = INT64_MAX;
    barrier_init_locked(c, &b);
    unsigned long long before = atomic_load(&rows_looked_at);
    for (i = row_first(c); i; i = row_next(i)) {
        bool second = !intent_is_rename(i) && i->seq > (n + 1) * SEQ_STEP;
        (void)intent_is_urgent(c, i);
        ck_assert_int_eq(order_of_row_locked(c, i, &b, owed_world(""), &next_ns),
                         second ? ORDER_WAIT : ORDER_GO);
        ck_assert(!removal_pending(c, i->from));
        ck_assert(intent_is_rename(i) == !intent_removes_version(c, i->from));
    }
    unsigned long long looked = atomic_load(&rows_looked_at) - before;
    barrier_release(&b);
    owed_free(c);
    return looked;
}

/* And a few more, since each search takes a few steps more. */
START_TEST(ten_times_the_removals_take_ten_times_the_looks)
{
    unsigned long long few = looked_for(100), many = looked_for(1000), most = looked_for(10000);

    ck_assert_msg(many < 20 * few && most < 20 * many, "%llu, %llu, %llu", few, many, most);
}
END_TEST
#endif

Suite *rows_suite(void)
{
    Suite *s = suite_create("rows");
    TCase *t = tcase_create("rows");

    tcase_add_test(t, rows_are_found_by_their_name);
    tcase_add_test(t, one_that_comes_late_has_its_place);
    tcase_add_test(t, renames_are_found_in_their_order);
#ifndef NDEBUG /* others count no looks */
    tcase_add_test(t, ten_times_the_removals_take_ten_times_the_looks);
#endif
    suite_add_tcase(s, t);
    return s;
}
