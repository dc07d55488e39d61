/* cache/: renames that the store makes by itself, of whatever has the name there by then. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold_renames;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_RENAME && atomic_load(&hold_renames))
        (void)usleep(1000);
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&hold_renames, false);
}

static void remove_there(const char *key)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

/* a and b are stored, and a is renamed to b; the store has not been asked yet. */
static void rename_is_on_its_way(void)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "a", "ours", 4);
    driven_put(&d, "b", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_renames, true);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    (void)usleep(100000);
}

/* Somebody removed what is to be renamed: what is under the new name there is older. */
START_TEST(what_the_new_name_had_is_not_what_was_renamed)
{
    rename_is_on_its_way();
    remove_there("a");
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_flush(&d), 0); /* what the first one found to be missing */
    driven_stores(&d, "b", "ours");
    ck_assert_int_eq(driven_stored(&d, "a", NULL, 0), -ENOENT);
    driven_mount_afresh(&d);
    driven_shows(&d, "b", "ours");
    driven_release(&d);
}
END_TEST

/* Somebody replaced it: theirs moves, and is not taken for what this cache has of it. */
START_TEST(what_was_put_under_the_old_name_is_not_ours)
{
    rename_is_on_its_way();
    driven_store(&d, "a", "theirs", 6);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "b", "theirs");
    driven_shows(&d, "b", "theirs");
    driven_release(&d);
}
END_TEST

/* A file passes through directories that the store does not have: it makes them, and they go by
 * the name that they got meanwhile. */
START_TEST(what_a_file_passed_through_moves_along)
{
    struct object obj;
    struct op op;

    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "file", "stored", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_renames, true);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    ck_assert_int_eq(driven_rename(&d, "file", "dir/sub/file"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/sub/file"), 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_stat(d.store->next, &op, "dir", &obj), -ENOENT);
    ck_assert_int_eq(store_stat(d.store->next, &op, "moved/sub", &obj), 0);
    object_release(&obj);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_native");
    TCase *t = tcase_create("cache_native");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, what_the_new_name_had_is_not_what_was_renamed);
    tcase_add_test(t, what_was_put_under_the_old_name_is_not_ours);
    tcase_add_test(t, what_a_file_passed_through_moves_along);
    suite_add_tcase(s, t);
    return suite_run(s);
}
