/* cache/: a rename is pending, and under its old name lies something older that a removal
 * before it is yet to take away. That is not what was renamed. */
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_bool away; /* the store, for renames and uploads */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    bool moves = c->kind == CALL_COPY || c->kind == CALL_RENAME;

    if ((moves || c->kind == CALL_PUT) && atomic_load(&away))
        return op_fail(c->op, -EHOSTUNREACH, "no answer");
    return call_next(c);
}

static void put(const char *path, const char *text)
{
    driven_put(&d, path, text, strlen(text));
}

/* What the store has in the directory "a" is on its way to "e", and goes from there only when
 * `last` is stored. c/z came to its name, went on to a/y, and was replaced there by `last`. */
static const char *const moves[][2] = {
    {"a", "e"}, {"c", "a"}, {"a/z", "a/y"}, {"last", "a/y"}, {"a", "t"},
};

/* What the store has in "a" is copied on and on, and replaced in the end by what was closed
 * after the first of the moves. */
static const char *const on_and_on[][2] = {
    {"a", "e"}, {"e", "k"}, {"k/x", "k/z"}, {"late", "k/z"}, {"k", "l"},
};

#define MOVES (int)ARRAY_SIZE(moves)

/* From the move `first` on. The daemon is killed before a move, or after the last. */
static void move_all(const char *const (*each)[2], int first, int killed_before)
{
    for (int i = first; i <= MOVES; i++) {
        if (i == killed_before) {
            driven_unmount(&d);
            driven_mount(&d);
        }
        if (i < MOVES)
            ck_assert_int_eq(driven_rename(&d, each[i][0], each[i][1]), 0);
    }
}

/* `late`: the store has a file of this name, too. */
static void begin(bool late)
{
    atomic_store(&away, false);
    driven_init_like_s3(&d, around);
    d.config.retry_ns = d.config.late_ns = 10 * NS_PER_MS;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "c"), 0);
    put("a/x", "other");
    put("a/z", "old");
    put("c/z", "new");
    if (late)
        put("late", "stored");
    put("c/y", "replaced");
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&away, true);
    put("last", "last");
}

/* Two removals: the first takes away what the store has, the second would what it never got. */
static void begin_removed_twice(void)
{
    begin(false);
    driven_unmount(&d); /* what an earlier mount put is not known for this cache's own */
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "a/z"), 0);
    put("a/z", "second");
    DRIVEN_WAIT(strcmp(driven_state(&d, "a/z"), "failed") == 0);
    ck_assert_int_eq(driven_unlink(&d, "a/z"), 0);
    ck_assert_int_eq(driven_unlink(&d, "a/x"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "a"), 0);
}

static bool is_stored(const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    int r = store_stat(d.store, &op, key, &obj);
    object_release(&obj);
    return r == 0;
}

static void check_gone(void)
{
    static const char *const gone[] = {"a", "a/y", "a/z", "c", "c/y", "c/z", "last", "t/z"};

    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        ck_assert_msg(!is_stored(gone[i]), "%s", gone[i]);
}

START_TEST(what_is_to_go_does_not_come_back_under_another_name)
{
    begin(false);
    move_all(moves, 0, _i);
    atomic_store(&away, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "e/z", "old");
    driven_stores(&d, "t/y", "last");
    check_gone();
    driven_release(&d);
}
END_TEST

START_TEST(any_removal_before_tells_what_is_to_go)
{
    begin_removed_twice();
    move_all(moves, 1, _i);
    atomic_store(&away, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "t/y", "last");
    check_gone();
    driven_release(&d);
}
END_TEST

/* No other node has put it there, though it bears the number of none of this one. */
START_TEST(a_copy_that_is_in_the_way_is_nobody_elses)
{
    static const char *const on_its_way[] = {"a", "e", "k", "a/x", "e/x", "k/x", "l/x", "late"};

    begin(_i > MOVES + 1);
    ck_assert_int_eq(driven_rename(&d, on_and_on[0][0], on_and_on[0][1]), 0);
    put("late", "late");
    move_all(on_and_on, 1, 1 + _i % (MOVES + 1));
    atomic_store(&away, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "l/z", "late");
    for (size_t i = 0; i < ARRAY_SIZE(on_its_way); i++)
        ck_assert_msg(!is_stored(on_its_way[i]), "%s", on_its_way[i]);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_stale_source");
    TCase *t = tcase_create("cache_stale_source");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_is_to_go_does_not_come_back_under_another_name, 0,
                        MOVES + 2); /* the last is not killed at all */
    tcase_add_loop_test(t, any_removal_before_tells_what_is_to_go, 1, MOVES + 2);
    tcase_add_loop_test(t, a_copy_that_is_in_the_way_is_nobody_elses, 1, 2 * (MOVES + 1));
    suite_add_tcase(s, t);
    return suite_run(s);
}
