/* cache/queue/: where rows lead what the store has, and what a listing may show of it. */
#include "common/mem.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <string.h>

/* ---- paths ---- */

/* Forward: where what the store has at `from` is when all rows are done. */
static const struct {
    const char *rows, *from, *to;
} forward[] = {
    {"", "a", "a"},
    {"rename a b", "a", "b"},
    {"rename a b", "b", "b"},
    {"rename a b", "a/x", "a/x"},
    {"rename a b; rename b c", "a", "c"},
    {"rename b c; rename a b", "a", "b"},
    {"renamedir d e", "d", "e"},
    {"renamedir d e", "d/x/y", "e/x/y"},
    {"renamedir d e", "dx", "dx"},
    {"renamedir d e; rename e/x f", "d/x", "f"},
    {"rename d/x f; renamedir d e", "d/x", "f"},
    {"renamedir d e; renamedir e/a e/b", "d/a/x", "e/b/x"},
    {"renamedir d t; renamedir e d; renamedir t e", "d/x", "e/x"},
    {"renamedir d t; renamedir e d; renamedir t e", "e/x", "d/x"},
    {"unlink a; rename a b", "a", "b"},
};

START_TEST(rows_lead_forward)
{
    struct cache *c = owed_new(forward[_i].rows, "");
    auto_free char *to = intent_path_after(row_first(c), forward[_i].from);

    owed_free(c);
    ck_assert_str_eq(to, forward[_i].to);
}
END_TEST

/* The same of what stays: NULL where it is removed, or replaced, on its way. */
static const struct {
    const char *rows, *from, *to;
} lasting[] = {
    {"", "a", "a"},
    {"rename a b", "a", "b"},
    {"rename a b", "b", NULL},
    {"unlink a", "a", NULL},
    {"rename a b; unlink b", "a", NULL},
    {"rename a b; rename c b", "a", NULL},
    {"rename a b; unlink a", "a", "b"},
    {"renamedir d e; rename k e/f", "d/f", NULL},
    {"renamedir d e; rename k e/f", "d/g", "e/g"},
    {"rename f t; rename g f; rename t g", "g", "f"},
    {"rename f t; rename g f; rename t g", "f", "g"},
};

START_TEST(rows_take_what_does_not_last)
{
    struct cache *c = owed_new(lasting[_i].rows, "");
    auto_free char *to = intent_lasting_path(row_first(c), lasting[_i].from);

    owed_free(c);
    if (lasting[_i].to)
        ck_assert_str_eq(to, lasting[_i].to);
    else
        ck_assert_ptr_null(to);
}
END_TEST

/* Backward: where what is at `at` after the only row came from. */
static const struct {
    const char *row, *at, *from;
    enum intent_back back;
} backward[] = {
    {"rename a b", "b", "a", INTENT_CAME},
    {"rename a b", "a", "a", INTENT_LEFT},
    {"rename a b", "b/x", "b/x", INTENT_STAYS},
    {"rename a b", "a/x", "a/x", INTENT_STAYS},
    {"rename a b", "c", "c", INTENT_STAYS},
    {"renamedir d e", "e", "d", INTENT_CAME},
    {"renamedir d e", "e/x/y", "d/x/y", INTENT_CAME},
    {"renamedir d e", "d/x", "d/x", INTENT_LEFT},
    {"renamedir d e", "ex", "ex", INTENT_STAYS},
    {"renamedir d d2/e", "d2/e/x", "d/x", INTENT_CAME},
    {"unlink a", "a", "a", INTENT_STAYS},
};

START_TEST(rows_lead_backward)
{
    struct cache *c = owed_new(backward[_i].row, "");
    auto_free char *at = strdup(backward[_i].at);

    enum intent_back back = intent_backward(owed_row(c, 1), &at);
    owed_free(c);
    ck_assert_int_eq(back, backward[_i].back);
    ck_assert_str_eq(at, backward[_i].from);
}
END_TEST

/* ---- what a listing may show ---- */

/* Whether the store's object at `key`, or its directory at `key/`, shows as `path`. */
static const struct {
    const char *rows, *key, *path;
    bool shows;
} listings[] = {
    {"", "a", "a", true},
    {"unlink a", "a", "a", false},
    {"unlink a", "b", "b", true},
    {"unlink a", "a/x", "a/x", true},
    {"rmdir d", "d/", "d", false},
    /* What took its place, or has it at another node. */
    {"rmdir d", "d", "d", true},
    {"unlink a", "a/", "a", true},
    {"rmdir d; unlink d", "d", "d", false},
    {"unlink a; rmdir a", "a/", "a", false},
    {"rmdir b; rename a b", "a", "b", true},
    {"rename a b; rmdir b", "a", "b", true},
    {"unlink e; renamedir d e", "d/x/", "e/x", true},
    {"renamedir d e; unlink e/x", "d/x/", "e/x", true},
    {"renamedir d e; rmdir e/x", "d/x/", "e/x", false},
    {"rmdir d", "d/x", "d/x", true},
    {"rename a b", "a", "a", false},
    {"rename a b", "a", "b", true},
    {"rename a b", "b", "b", true}, /* what the row replaces there has this name until then */
    {"rename a b; unlink b", "a", "b", false},
    {"rename a b; unlink a", "a", "b", true},
    {"unlink a; rename a b", "a", "b", false},
    {"renamedir d e", "d/x", "d/x", false},
    {"renamedir d e", "d/x", "e/x", true},
    {"renamedir d e; unlink e/x", "d/x", "e/x", false},
    {"renamedir d e; unlink d/x", "d/x", "e/x", true},
    {"renamedir d t; renamedir e d; renamedir t e", "d/x", "e/x", true},
    {"renamedir d t; renamedir e d; renamedir t e", "d/x", "d/x", false},
    {"rename f t; renamedir d f; rename t d", "f", "d", true},
    {"rename f t; renamedir d f; rename t d", "d/x", "f/x", true},
};

START_TEST(listings_are_read_through_rows)
{
    struct cache *c = owed_new(listings[_i].rows, "");
    const char *key = listings[_i].key;
    bool is_dir = key[strlen(key) - 1] == '/';
    auto_free char *at = strndup(key, strlen(key) - is_dir);
    bool hides =
        tombstone_hides(c, place_of_path(at), is_dir, listings[_i].path, clock_mono_ns());

    owed_free(c);
    ck_assert_msg(hides != listings[_i].shows, "%s: %s as %s", listings[_i].rows,
                  listings[_i].key, listings[_i].path);
}
END_TEST

/* What is done hides what older listings show, and nothing of younger ones. */
START_TEST(a_row_that_is_done_hides_from_older_listings)
{
    struct cache *c = owed_new("unlink a; renamedir d e; unlink a; rename f g", "");
    int64_t before_ns = clock_mono_ns();

    intent_remove_locked(c, owed_row(c, 1));
    ck_assert(tombstone_pending(c, place_of_path("a"))); /* by the third */
    while (row_first(c))
        intent_remove_locked(c, row_first(c));
    int64_t after_ns = clock_mono_ns() + 1;
    ck_assert(!tombstone_pending(c, place_of_path("a")));
    ck_assert(tombstone_hides(c, place_of_path("a"), false, "a", before_ns) &&
              !tombstone_hides(c, place_of_path("a"), false, "a", after_ns));
    /* Which has a name of its own. */
    ck_assert(!tombstone_hides(c, place_of_path("a/x"), false, "a/x", before_ns));
    ck_assert(tombstone_hides(c, place_of_path("d"), true, "d", before_ns));
    ck_assert(tombstone_hides(c, place_of_path("d/x/y"), false, "d/x/y", before_ns));
    ck_assert(!tombstone_hides(c, place_of_path("d/x/y"), false, "d/x/y", after_ns));
    ck_assert(tombstone_hides(c, place_of_path("f"), false, "f", before_ns) &&
              !tombstone_hides(c, place_of_path("f/x"), false, "f/x", before_ns));
    ck_assert(!tombstone_hides(c, place_of_path("e/x"), false, "e/x", before_ns) &&
              !tombstone_hides(c, place_of_path("g"), false, "g", before_ns));
    /* Nor has it what took the place of the other kind. */
    ck_assert(!tombstone_hides(c, place_of_path("a"), true, "a", before_ns) &&
              !tombstone_hides(c, place_of_path("d"), false, "d", before_ns));
    owed_free(c);
}
END_TEST

/* ---- what concerns a name ---- */

/* Whether a row concerns something at or below `path`, by the names that it had then. */
static const struct {
    const char *rows, *path;
    bool below;
} concerned[] = {
    {"", "d", false},
    {"unlink d/x", "d", true},
    {"unlink dx", "d", false},
    {"unlink x", "", true},
    {"rename a d/a", "d", true},
    {"rename d/a a", "d", true},
    {"renamedir d e", "e", true},
    {"renamedir c d; renamedir d e; unlink x", "e", true},
    {"unlink d/x; renamedir d e", "e", true},
    {"unlink d/x; renamedir d e", "f", false},
    {"unlink d/s/x; renamedir d e", "e/s", true},
    {"unlink e/s/x; renamedir d e", "e/s", false},
};

START_TEST(rows_below_a_directory)
{
    struct cache *c = owed_new(concerned[_i].rows, "");
    bool below = intent_below(c, concerned[_i].path);

    owed_free(c);
    ck_assert_int_eq(below, concerned[_i].below);
}
END_TEST

static void add_version(struct cache *c, enum intent_kind kind, const char *etag)
    REQUIRES(cache_mutex)
{
    struct intent *i = intent_new(seq_next_locked(c), kind, "a", NULL, 0, etag);

    ck_assert_ptr_nonnull(i);
    intent_add_locked(c, i);
}

/* The versions of two removals of one name, and which of them the store is to have. */
static const struct {
    const char *first, *second, *means;
} versions[] = {
    {"v", NULL, "v"},        {INTENT_OURS, NULL, ""}, {INTENT_ANY, NULL, NULL},
    {"", NULL, NULL},        {"v", "w", "v"},         {"v", INTENT_OURS, "v"},
    {INTENT_OURS, "v", "v"}, /* what was put alone came to be that */
    {"v", INTENT_ANY, NULL},
};

START_TEST(the_oldest_removal_says_the_version)
{
    struct cache *c = owed_new("unlink b", "");

    add_version(c, INTENT_UNLINK, versions[_i].first);
    if (versions[_i].second)
        add_version(c, INTENT_UNLINK, versions[_i].second);
    const char *means = intent_removes_version(c, "a");
    if (versions[_i].means)
        ck_assert_str_eq(means, versions[_i].means);
    else
        ck_assert_ptr_null(means);
    add_version(c, INTENT_RMDIR, "v");
    ck_assert_ptr_null(intent_removes_version(c, "a"));
    ck_assert(removal_pending(c, "a") && !removal_pending(c, "b"));
    owed_free(c);
}
END_TEST

START_TEST(rows_stand_in_their_order)
{
    struct cache *c = owed_new("unlink a; unlink b; unlink c", "");
    struct intent *between = intent_new(SEQ_STEP + 7, INTENT_UNLINK, "x", NULL, 0, NULL),
                  *first = intent_new(5, INTENT_RENAME, "y", "z", 0, NULL), *i;
    const char *const order[] = {"y", "a", "x", "b", "c"};
    size_t n = 0;

    ck_assert(between && first);
    intent_add_locked(c, between);
    intent_add_locked(c, first);
    for (i = row_first(c); i; i = row_next(i))
        ck_assert_str_eq(i->from, order[n++]);
    ck_assert_uint_eq(n, ARRAY_SIZE(order));
    ck_assert_uint_eq(intents_newest_locked(c), 3 * SEQ_STEP);
    ck_assert(intents_before_locked(c, 6) && !intents_before_locked(c, 5));
    ck_assert_uint_eq(c->queue->renames, 1);
    intent_remove_locked(c, first);
    ck_assert_uint_eq(c->queue->renames, 0);
    owed_free(c);
}
END_TEST

Suite *moved_suite(void)
{
    Suite *s = suite_create("moved");
    TCase *t = tcase_create("moved");

    tcase_add_loop_test(t, rows_lead_forward, 0, ARRAY_SIZE(forward));
    tcase_add_loop_test(t, rows_take_what_does_not_last, 0, ARRAY_SIZE(lasting));
    tcase_add_loop_test(t, rows_lead_backward, 0, ARRAY_SIZE(backward));
    tcase_add_loop_test(t, listings_are_read_through_rows, 0, ARRAY_SIZE(listings));
    tcase_add_test(t, a_row_that_is_done_hides_from_older_listings);
    tcase_add_loop_test(t, rows_below_a_directory, 0, ARRAY_SIZE(concerned));
    tcase_add_loop_test(t, the_oldest_removal_says_the_version, 0, ARRAY_SIZE(versions));
    tcase_add_test(t, rows_stand_in_their_order);
    suite_add_tcase(s, t);
    return s;
}
