/* cache/: a new directory comes with its first name, at a folder and, where it has a marker, at
 * a store like S3. Before that a program that reads the store would take it for a checkpoint
 * that has nothing in it. */
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_bool held;    /* puts below "new" wait */
static atomic_int begun;    /* of them */
static atomic_bool refused; /* they fail */
static atomic_int
    too_early; /* directories "new" that the store was told of before a name in it */

static bool is_below_new(const char *key)
{
    return strncmp(key, "new", 3) == 0;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_MKDIR && is_below_new(c->key) && atomic_load(&held))
        atomic_fetch_add(&too_early, 1);
    if (c->kind != CALL_PUT || !is_below_new(c->key))
        return call_next(c);
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&held))
        (void)usleep(1000);
    return atomic_load(&refused) ? op_fail(c->op, -EIO, "put: refused") : call_next(c);
}

enum kind { FOLDER, LIKE_S3, KINDS };

static void begin(enum kind kind)
{
    atomic_store(&held, true);
    atomic_store(&begun, 0);
    atomic_store(&refused, false);
    atomic_store(&too_early, 0);
    if (kind == FOLDER)
        driven_init_folder(&d, around, 1 << 20);
    else
        driven_init_like_s3(&d, around);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
}

static void teardown(void)
{
    atomic_store(&held, false);
    driven_release(&d);
}

/* With a mode that a store like S3 needs a marker for. */
static void make(const char *dir)
{
    ck_assert_int_eq(driven_mkdir(&d, dir), 0);
    ck_assert_int_eq(driven_chmod(&d, dir, 0700), 0);
}

/* A directory that was made later, and whatever else goes by itself, is there. */
static void all_that_goes_is_gone(void)
{
    static const char *const later[] = {"later-1", "later-2", "later-3"};

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(driven_mkdir(&d, later[i]), 0);
        DRIVEN_WAIT(driven_stores_dir(&d, later[i]));
    }
}

/* Under a staging name it goes nowhere, so that it is never empty when it may go. */
static void rename_into_place(void)
{
    ck_assert_int_eq(driven_rename(&d, "_checkpoint", "new"), 0);
}

START_TEST(a_directory_comes_with_its_first_name)
{
    begin((enum kind)_i);
    make("_checkpoint");
    driven_put(&d, "_checkpoint/model", "model", 5);
    rename_into_place();
    DRIVEN_WAIT(atomic_load(&begun) == 1);
    all_that_goes_is_gone();
    ck_assert(!driven_stores_dir(&d, "new"));
    atomic_store(&held, false);
    DRIVEN_WAIT(driven_stores_dir(&d, "new"));
    driven_stores(&d, "new/model", "model");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(atomic_load(&too_early), 0);
}
END_TEST

START_TEST(so_do_those_above_it)
{
    begin((enum kind)_i);
    make("_checkpoint");
    make("_checkpoint/shards");
    driven_put(&d, "_checkpoint/shards/1", "1", 1);
    rename_into_place();
    DRIVEN_WAIT(atomic_load(&begun) == 1);
    all_that_goes_is_gone();
    ck_assert(!driven_stores_dir(&d, "new"));
    atomic_store(&held, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/shards/1", "1");
    ck_assert_int_eq(atomic_load(&too_early), 0);
}
END_TEST

START_TEST(it_comes_without_a_name_that_is_refused)
{
    begin((enum kind)_i);
    atomic_store(&refused, true);
    atomic_store(&held, false);
    make("_checkpoint");
    driven_put(&d, "_checkpoint/model", "model", 5);
    rename_into_place();
    DRIVEN_WAIT(driven_stores_dir(&d, "new"));
    ck_assert_int_gt(atomic_load(&begun), 0);
    atomic_store(&refused, false);
    ck_assert_int_eq(driven_flush(&d), 0);
}
END_TEST

/* Nor does it wait for one that is gone. */
START_TEST(it_comes_when_its_first_name_goes)
{
    begin((enum kind)_i);
    driven_unmount(&d);
    d.config.settle_ns = NS_PER_SEC;
    driven_mount(&d);
    make("new");
    driven_put(&d, "new/model", "model", 5);
    ck_assert_int_eq(driven_unlink(&d, "new/model"), 0);
    DRIVEN_WAIT(driven_stores_dir(&d, "new"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_first_name");
    TCase *t = tcase_create("first_name");

    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, a_directory_comes_with_its_first_name, 0, KINDS);
    tcase_add_loop_test(t, so_do_those_above_it, 0, KINDS);
    tcase_add_loop_test(t, it_comes_without_a_name_that_is_refused, 0, KINDS);
    tcase_add_loop_test(t, it_comes_when_its_first_name_goes, 0, KINDS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
