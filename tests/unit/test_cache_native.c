/* cache/: renames that the store makes by itself, of whatever has the name there by then. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold_renames, fail_renames, fail_removals, hold_puts;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_RENAME && atomic_load(&hold_renames))
        (void)usleep(1000);
    while (c->kind == CALL_PUT && atomic_load(&hold_puts))
        (void)usleep(1000);
    if (c->kind == CALL_RENAME && atomic_load(&fail_renames))
        return op_fail(c->op, -EHOSTUNREACH, "no answer");
    if ((c->kind == CALL_REMOVE || c->kind == CALL_RMDIR) && atomic_load(&fail_removals))
        return op_fail(c->op, -EHOSTUNREACH, "no answer");
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&hold_renames, false);
    atomic_store(&fail_renames, false);
    atomic_store(&fail_removals, false);
    atomic_store(&hold_puts, false);
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

/* ---- directories that the store has because of what passed through them ---- */

static bool is_there(const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    int r = store_stat(d.store->next, &op, key, &obj);
    object_release(&obj);
    ck_assert(r == 0 || r == -ENOENT);
    return r == 0;
}

/* "file" is stored; directories made from now on are not sent by themselves. */
static void only_files_go(enum durability durability)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.durability = durability;
    d.config.settle_ns = 3600 * NS_PER_SEC;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "file", "stored", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* The file passes through "dir/sub", which the store has through that only, or will have. */
static void pass_through(bool wait)
{
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    ck_assert_int_eq(driven_rename(&d, "file", "dir/sub/file"), 0);
    if (wait)
        DRIVEN_WAIT(is_there("dir/sub/file"));
    ck_assert_int_eq(driven_unlink(&d, "dir/sub/file"), 0);
    if (wait)
        DRIVEN_WAIT(!is_there("dir/sub/file"));
}

/* They go by the name that they got meanwhile. */
START_TEST(what_a_file_will_pass_through_moves_along)
{
    only_files_go(DURABILITY_CACHE);
    atomic_store(&hold_renames, true);
    pass_through(false);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir"));
    ck_assert(is_there("moved/sub"));
    driven_release(&d);
}
END_TEST

START_TEST(what_a_file_passed_through_moves_along)
{
    only_files_go(DURABILITY_CACHE);
    pass_through(true);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(is_there("moved/sub"));
    ck_assert_int_eq(driven_rename(&d, "moved", "again"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir"));
    ck_assert(!is_there("moved"));
    ck_assert(is_there("again/sub"));
    driven_release(&d);
}
END_TEST

/* The store had the directory only as the file was in it, and has it again by the rename. */
START_TEST(what_moved_along_moves_again)
{
    only_files_go(DURABILITY_CACHE);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_rename(&d, "file", "dir/file"), 0);
    DRIVEN_WAIT(is_there("dir/file"));
    ck_assert_int_eq(driven_unlink(&d, "dir/file"), 0);
    DRIVEN_WAIT(!is_there("dir/file"));
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(is_there("moved"));
    ck_assert_int_eq(driven_rename(&d, "moved", "again"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir"));
    ck_assert(!is_there("moved"));
    ck_assert(is_there("again"));
    driven_release(&d);
}
END_TEST

START_TEST(what_a_file_passed_through_is_removed)
{
    only_files_go(DURABILITY_CACHE);
    pass_through(true);
    ck_assert_int_eq(driven_rmdir(&d, "dir/sub"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir"));
    driven_put(&d, "dir", "a file", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir", "a file");
    driven_release(&d);
}
END_TEST

/* Below a directory whose rename is pending. */
START_TEST(what_a_file_passed_through_is_removed_from_where_it_moves)
{
    only_files_go(DURABILITY_CACHE);
    pass_through(true);
    atomic_store(&hold_renames, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "moved/sub"), 0);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir"));
    ck_assert(!is_there("moved/sub"));
    ck_assert(is_there("moved"));
    driven_release(&d);
}
END_TEST

/* An upload makes them too. */
START_TEST(what_an_upload_made_is_removed)
{
    struct handle *h = NULL;

    only_files_go(DURABILITY_STORE);
    ck_assert_int_eq(driven_mkdir(&d, "dir.tmp"), 0);
    ck_assert_int_eq(driven_open(&d, "dir.tmp/f", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    DRIVEN_WAIT(is_there("dir.tmp/f"));
    ck_assert_int_eq(driven_unlink(&d, "dir.tmp/f"), 0);
    DRIVEN_WAIT(!is_there("dir.tmp/f"));
    ck_assert_int_eq(driven_rmdir(&d, "dir.tmp"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_there("dir.tmp"));
    driven_release(&d);
}
END_TEST

/* A file gets the name of what is still to be made, and the other way around. */
START_TEST(what_a_file_will_pass_through_is_exchanged)
{
    only_files_go(DURABILITY_CACHE);
    driven_put(&d, "other", "theirs", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_renames, true);
    pass_through(false);
    ck_assert_int_eq(driven_exchange(&d, "dir", "other"), 0);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir", "theirs");
    ck_assert(is_there("other/sub"));
    driven_release(&d);
}
END_TEST

/* The store has the old content under "file"; its renames wait. */
static void rename_into_a_new_directory(void)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "file", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_renames, true);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_rename(&d, "file", "dir/name"), 0);
}

static void has_only_the_new_name(void)
{
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/name", "new");
    ck_assert(!is_there("dir/name"));
    driven_release(&d);
}

/* What a directory's rename brings to a name, and a later row removes from there, is not what
 * the name has by now. */
START_TEST(what_is_removed_after_the_rename_is_not_left_behind)
{
    rename_into_a_new_directory();
    driven_put(&d, "dir/name", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_rename(&d, "moved/name", "away"), 0);
    ck_assert_int_eq(driven_rename(&d, "away", "moved/name"), 0);
    has_only_the_new_name();
}
END_TEST

/* The same, with a new file in its place. */
START_TEST(what_is_replaced_after_the_rename_is_not_left_behind)
{
    rename_into_a_new_directory();
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_unlink(&d, "moved/name"), 0);
    driven_put(&d, "moved/name", "new", 3);
    has_only_the_new_name();
}
END_TEST

/* The mirror has a directory that this cache did not make, as a file came through it. The mount
 * was killed when that file had left it: the directory owes the store nothing, whoever looked
 * at the cache meanwhile. */
START_TEST(a_directory_of_somebody_else_keeps_its_mode)
{
    struct cache *looked_at = NULL;
    const struct attrs private = {.has = ATTR_MODE, .mode = S_IFDIR | 0700};
    struct object obj = {0};
    struct op op;

    driven_init_folder(&d, around, 1 << 20);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "theirs", &private, NULL), 0);
    driven_mount(&d);
    driven_put(&d, "file", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&fail_renames, true);
    ck_assert_int_eq(driven_rename(&d, "file", "theirs/file"), 0);
    ck_assert_int_eq(driven_rename(&d, "theirs/file", "back"), 0);
    driven_unmount(&d);
    if (_i) {
        op_init(&op, 20 * NS_PER_SEC);
        ck_assert_int_eq(cache_open_offline(d.config.dir, &op, &looked_at), 0);
        cache_free(looked_at);
    }
    atomic_store(&fail_renames, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "back", "1");
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_stat(d.store->next, &op, "theirs", &obj), 0);
    ck_assert_uint_eq(obj.attrs.mode & 07777, 0700);
    object_release(&obj);
    driven_release(&d);
}
END_TEST

/* A directory is removed here and made again, and the process dies in between: the one that the
 * store still has does not stand for it. */
START_TEST(a_directory_that_was_not_made_again_is_gone)
{
    struct stat st;
    int status = 0;

    driven_init_folder(&d, around, 1 << 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    driven_put(&d, "e/4", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&fail_removals, true);
    ck_assert_int_eq(driven_unlink(&d, "e/4"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "e"), 0);
    driven_unmount(&d);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        crash_arm("mkdir-made");
        (void)driven_mkdir(&d, "e");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "e", &st), -ENOENT);
    if (_i)
        ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    atomic_store(&fail_removals, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stat(&d, "e", &st), _i ? 0 : -ENOENT);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "e", &st), _i ? 0 : -ENOENT);
    driven_release(&d);
}
END_TEST

/* Its removal comes when something was put into the one that was made anew, and does nothing
 * therefore: the directory goes with what moves it. */
START_TEST(a_directory_made_anew_and_moved_leaves_nothing)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "h"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "h/d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "c"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_puts, true);
    driven_put(&d, "last", "x", 1); /* removals wait for it */
    ck_assert_int_eq(driven_rmdir(&d, "h/d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "h/d"), 0);
    ck_assert_int_eq(driven_rename(&d, "c", "h/d/g"), 0);
    DRIVEN_WAIT(is_there("h/d/g"));
    ck_assert_int_eq(driven_rename(&d, "h", "k"), 0);
    DRIVEN_WAIT(is_there("k/d/g"));
    atomic_store(&hold_puts, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(is_there("k/d/g") && is_there("last"));
    ck_assert(!is_there("h") && !is_there("c"));
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
    tcase_add_test(t, what_a_file_will_pass_through_moves_along);
    tcase_add_test(t, what_a_file_passed_through_moves_along);
    tcase_add_test(t, what_moved_along_moves_again);
    tcase_add_test(t, what_a_file_passed_through_is_removed);
    tcase_add_test(t, what_a_file_passed_through_is_removed_from_where_it_moves);
    tcase_add_test(t, what_an_upload_made_is_removed);
    tcase_add_test(t, what_a_file_will_pass_through_is_exchanged);
    tcase_add_test(t, what_is_removed_after_the_rename_is_not_left_behind);
    tcase_add_test(t, what_is_replaced_after_the_rename_is_not_left_behind);
    tcase_add_loop_test(t, a_directory_of_somebody_else_keeps_its_mode, 0, 2);
    tcase_add_loop_test(t, a_directory_that_was_not_made_again_is_gone, 0, 2);
    tcase_add_test(t, a_directory_made_anew_and_moved_leaves_nothing);
    suite_add_tcase(s, t);
    return suite_run(s);
}
