/* cache/: a name that the store refuses for good, as MinIO does with keys that are no UTF-8,
 * beside others that it takes. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/refused_name.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MANY 12 /* deletes that go in one request */

static const int errors[] = {EACCES, EINVAL, ENAMETOOLONG};

/* It is told by name; deletes elsewhere don't wait for it, those beside it do. */
START_TEST(deletes_elsewhere_go_on)
{
    atomic_store(&store.with, errors[_i]);
    driven_put(&d, BAD, "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(!is_stored("other/old"));
    ck_assert(is_told());
    DRIVEN_WAIT(strcmp(driven_state(&d, BAD), "failed") == 0); /* it is tried now and then */
    ck_assert_int_lt(driven_flush(&d), 0);
    await_refusals(2);
    ck_assert(is_stored("dir/old"));
    driven_shows(&d, BAD, "new");
    /* The server was changed. */
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* an attempt may be on its way that was refused */
    driven_stores(&d, BAD, "new");
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* Who ends a mount or recovers a cache has no other chance for what no upload is due for. */
START_TEST(a_flush_brings_all_that_goes)
{
    char name[32];

    atomic_store(&store.with, errors[_i]);
    driven_unmount(&d);
    d.config.settle_ns = 60 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, BAD, "new", 3);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), i % 2 ? "dir/f%d" : "dir/f%d.tmp", i);
        driven_put(&d, name, "new", 3);
    }
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    ck_assert_int_eq(driven_flush(&d), -errors[_i]);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), i % 2 ? "dir/f%d" : "dir/f%d.tmp", i);
        driven_stores(&d, name, "new");
    }
    driven_shows(&d, BAD, "new");
}
END_TEST

/* Until the store is seen to take another name nobody knows whose fault it is. */
START_TEST(refused_keys_refuse_no_name)
{
    atomic_store(&store.all, true);
    driven_put(&d, BAD, "new", 3);
    driven_put(&d, "dir/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    await_refusals(4);
    ck_assert(is_stored("other/old"));
    ck_assert(!is_told());
    atomic_store(&store.all, false);
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* the same */
    driven_stores(&d, "dir/new", "new");
    driven_stores(&d, BAD, "new");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* A folder may be closed to us for a moment while what is beside it is not: that is no word
 * about any name in it. */
START_TEST(what_is_beside_a_folder_says_nothing_of_it)
{
    teardown();
    driven_init_folder(&d, around, UINT64_C(16) << 20);
    d.config.retry_ns = 100 * NS_PER_MS;
    fill();
    atomic_store(&store.all, true);
    atomic_store(&store.takes_own, true);
    ck_assert(store_can(d.store, STORE_STATE_DIR, STORE_STATE));
    driven_put(&d, BAD, "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    await_refusals(4);
    ck_assert(!is_told());
    ck_assert(is_stored("other/old"));
    ck_assert_uint_eq(atomic_load(&store.own), 0);
    atomic_store(&store.all, false);
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, BAD, "new");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* Where keys are judged by the store it is asked with one of our own. */
START_TEST(a_probe_tells_that_the_name_is_refused)
{
    atomic_store(&store.all, true);
    atomic_store(&store.takes_own, true);
    driven_put(&d, BAD, "new", 3);
    DRIVEN_WAIT(is_told());
    ck_assert_uint_ge(atomic_load(&store.own), 1);
}
END_TEST

/* ---- what ends it ---- */

static void known_or_not(bool known)
{
    driven_put(&d, BAD, "new", 3);
    if (known)
        DRIVEN_WAIT(is_told());
    else
        await_refusals(1);
}

START_TEST(its_removal_ends_it)
{
    known_or_not(_i);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The refusal says nothing of what was put there before. */
START_TEST(what_was_taken_before_is_removed)
{
    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 2;
    driven_mount(&d);
    atomic_store(&store.with, 0);
    atomic_store(&store.lost, true);
    driven_put(&d, BAD, "new", 3);
    DRIVEN_WAIT(is_told());
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    atomic_store(&store.with, 0);
    (void)driven_flush(&d); /* may tell of a removal that was refused just before */
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_stored(BAD));
}
END_TEST

START_TEST(another_name_ends_it)
{
    known_or_not(_i);
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/good", "new");
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The old name's version is all that the store has of it, as long as the new one is refused. */
START_TEST(what_moved_there_stays_under_its_old_name)
{
    driven_put(&d, "other/gone", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.settle_ns = 30 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "other/old", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "other/old", BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/gone"), 0);
    ck_assert_int_lt(driven_flush(&d), 0);
    DRIVEN_WAIT(!is_stored("other/gone"));
    ck_assert(is_stored("other/old"));
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/good", "new");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* An empty directory, too: nothing of it is at the store, to be moved or removed there. */
START_TEST(another_name_of_a_directory_ends_it)
{
    ck_assert_int_eq(driven_mkdir(&d, BAD), 0);
    await_refusals(1);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    else
        ck_assert_int_eq(driven_rmdir(&d, BAD), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    unsigned refusals = atomic_load(&store.refused);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&store.refused), refusals);
    ck_assert_int_eq(driven_stores_dir(&d, "dir/good"), _i);
}
END_TEST

/* A new mount learns of it anew. */
START_TEST(a_new_mount_is_not_held_up)
{
    known_or_not(true);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    atomic_store(&store.all, true);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    driven_unmount(&d);
    atomic_store(&store.all, false);
    driven_mount(&d);
    DRIVEN_WAIT(!is_stored("other/old"));
    ck_assert(is_stored("dir/old"));
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The other name of a hard link goes up. */
START_TEST(its_other_name_is_stored)
{
    driven_put(&d, BAD, "new", 3);
    ck_assert_int_eq(driven_link(&d, BAD, "dir/good"), 0);
    DRIVEN_WAIT(is_stored("dir/good"));
    driven_stores(&d, "dir/good", "new");
}
END_TEST

/* ---- deletes that are refused ---- */

/* One among many in a request: the others go, and what is refused shows again. */
START_TEST(a_refused_delete_holds_no_other)
{
    char path[32];

    atomic_store(&store.with, 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        driven_put(&d, path, "x", 1);
    }
    driven_put(&d, BAD, "bad", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.with, errors[_i]);
    atomic_store(&store.all, true); /* all of them wait, and go together */
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        ck_assert_int_eq(driven_unlink(&d, path), 0);
    }
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    driven_unmount(&d);
    atomic_store(&store.all, false);
    driven_mount(&d);
    DRIVEN_WAIT(stats().pending_ops == 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        ck_assert(!is_stored(path));
    }
    ck_assert(is_stored(BAD));
    ck_assert_ptr_nonnull(strstr(stats().last_error_text, "stays in the store"));
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 2);
}
END_TEST

/* Keys that may remove nothing are no refusal of names: what was removed is not shown again. */
START_TEST(deletes_that_are_all_refused_are_kept)
{
    struct stat st;

    atomic_store(&store.all, true);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_lt(driven_flush(&d), 0);
    ck_assert(is_stored("dir/old") && is_stored("other/old"));
    ck_assert_int_eq(driven_stat(&d, "dir/old", &st), -ENOENT);
    atomic_store(&store.all, false);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* the same */
    ck_assert(!is_stored("dir/old") && !is_stored("other/old"));
}
END_TEST

/* The name is made again while the store refuses its removal once more: mostly that is the last
 * time, since the other one is carried out. */
static atomic_bool made_again;
static bool by_another; /* node, first */

static void make_again(const char *point)
{
    if (strcmp(point, "delete-done") != 0 || refused_removals < 2 ||
        atomic_exchange(&made_again, true))
        return;
    atomic_store(&store.with, 0);
    if (by_another)
        driven_store(&d, BAD, "theirs", 6);
    driven_put(&d, BAD, "new", 3);
}

START_TEST(a_name_made_again_replaces_what_stays)
{
    struct stat st;

    atomic_store(&store.with, 0);
    driven_store(&d, BAD, "theirs", 6); /* no version that this cache put */
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, BAD, &st), 0);
    atomic_store(&store.with, EACCES);
    atomic_store(&store.answers, true);
    atomic_store(&made_again, false);
    by_another = false;
    crash_watch(make_again);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    DRIVEN_WAIT(atomic_load(&made_again) && stats().pending_ops == 0);
    crash_watch(NULL);
    if (_i) { /* a kill: what it replaces is noted */
        driven_unmount(&d);
        driven_mount(&d);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, BAD, "new");
    ck_assert_uint_eq(stats().kept_files, 0);
}
END_TEST

/* The removal was of nothing but what this cache had put there: that is replaced, also after a
 * kill. */
START_TEST(a_name_made_again_replaces_nobodys_version)
{
    atomic_store(&store.with, 0);
    atomic_store(&store.lost, true);
    driven_put(&d, BAD, "lost", 4);
    DRIVEN_WAIT(atomic_load(&store.with) && stats().last_error_text[0]);
    if (_i == 1) {
        driven_unmount(&d);
        driven_mount(&d);
    }
    atomic_store(&store.answers, true);
    atomic_store(&made_again, false);
    by_another = _i == 0;
    crash_watch(make_again);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    DRIVEN_WAIT(atomic_load(&made_again) && stats().pending_ops == 0);
    crash_watch(NULL);
    (void)driven_flush(&d);
    DRIVEN_WAIT(stats().dirty_files == 0);
    driven_stores(&d, BAD, by_another ? "theirs" : "new");
    ck_assert_uint_eq(stats().kept_files, by_another);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_refused");
    TCase *t = tcase_create("cache_refused");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, deletes_elsewhere_go_on, 0, (int)ARRAY_SIZE(errors));
    tcase_add_loop_test(t, a_flush_brings_all_that_goes, 0, (int)ARRAY_SIZE(errors));
    tcase_add_test(t, refused_keys_refuse_no_name);
    tcase_add_test(t, what_is_beside_a_folder_says_nothing_of_it);
    tcase_add_test(t, a_probe_tells_that_the_name_is_refused);
    tcase_add_loop_test(t, its_removal_ends_it, 0, 2);
    tcase_add_test(t, what_was_taken_before_is_removed);
    tcase_add_loop_test(t, another_name_ends_it, 0, 2);
    tcase_add_test(t, what_moved_there_stays_under_its_old_name);
    tcase_add_loop_test(t, another_name_of_a_directory_ends_it, 0, 2);
    tcase_add_test(t, a_new_mount_is_not_held_up);
    tcase_add_test(t, its_other_name_is_stored);
    tcase_add_loop_test(t, a_refused_delete_holds_no_other, 0, (int)ARRAY_SIZE(errors));
    tcase_add_test(t, deletes_that_are_all_refused_are_kept);
    tcase_add_loop_test(t, a_name_made_again_replaces_what_stays, 0, 2);
    tcase_add_loop_test(t, a_name_made_again_replaces_nobodys_version, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
