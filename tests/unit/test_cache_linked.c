/* cache/: several names of one file that are objects of their own at the store, and what
 * another node does to one of them. */
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
#include <sys/stat.h>
#include <unistd.h>

static struct driven d;
static _Atomic(const char *) refused; /* puts of this key fail, or NULL */

static int64_t around(struct layer *l, struct call *c)
{
    const char *key = atomic_load(&refused);

    (void)l;
    return c->kind == CALL_PUT && key && strcmp(c->key, key) == 0
               ? op_fail(c->op, -EIO, "put %s: refused", key)
               : call_next(c);
}

/* dir/h1 and dir/h2 are one file, in the store and clean. */
static void setup(void)
{
    atomic_store(&refused, NULL);
    driven_init_like_s3(&d, around);
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 200 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/h1", "ours", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_link(&d, "dir/h1", "dir/h2"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void teardown(void)
{
    driven_release(&d);
}

static void remove_there(const char *key)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

static void append(const char *path, const char *text)
{
    struct handle *h = NULL;
    struct stat st;

    ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    ck_assert_int_eq(driven_open(&d, path, O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, text, strlen(text), (uint64_t)st.st_size), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

static bool shows(const char *path, const char *wanted)
{
    char text[64] = "";

    return driven_read(&d, path, text, sizeof(text) - 1) >= 0 && strcmp(text, wanted) == 0;
}

/* Whether the mirror has the name. */
static int in_mirror(const char *name)
{
    char path[160];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/mirror/dir/%s", d.dir, name);
    return lstat(path, &st) == 0;
}

static uint64_t used_bytes(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.used_bytes;
}

static const char *const names[] = {"h1", "h2"};

static const char *name_of(int i)
{
    static char path[2][16];

    (void)snprintf(path[i], sizeof(path[i]), "dir/%s", names[i]);
    return path[i];
}

/* ---- another node replaces one of them ---- */

/* The one that they replaced is a file of its own from then on, whether it was asked for by a
 * listing or because it was opened. */
static void replaced(int which, bool by_open)
{
    const char *theirs = name_of(which), *ours = name_of(1 - which);
    struct stat a, b;

    if (by_open) {
        driven_unmount(&d);
        d.config.list_timeout_ns = 3600 * NS_PER_SEC;
        driven_mount(&d);
        ck_assert_int_eq(driven_list(&d, "dir"), 2);
    }
    driven_store(&d, theirs, "theirs", 6);
    DRIVEN_WAIT(shows(theirs, "theirs"));
    driven_shows(&d, ours, "ours");
    ck_assert_int_eq(driven_stat(&d, theirs, &a), 0);
    ck_assert_int_eq(driven_stat(&d, ours, &b), 0);
    ck_assert_uint_ne(a.st_ino, b.st_ino);
    ck_assert_uint_eq(a.st_nlink, 1);
    ck_assert_uint_eq(b.st_nlink, 1);
    append(ours, " and more");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, theirs, "theirs");
    driven_stores(&d, ours, "ours and more");
    append(theirs, ", changed");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, theirs, "theirs, changed");
    driven_stores(&d, ours, "ours and more");
}

START_TEST(a_name_that_they_replaced_leaves)
{
    replaced(_i, false);
}
END_TEST

START_TEST(a_name_that_they_replaced_leaves_at_an_open)
{
    replaced(_i, true);
}
END_TEST

/* It stays so with a new mount. */
START_TEST(it_is_still_another_file_after_a_mount)
{
    struct stat a, b;

    driven_store(&d, name_of(_i), "theirs", 6);
    DRIVEN_WAIT(shows(name_of(_i), "theirs"));
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, name_of(_i), "theirs");
    driven_shows(&d, name_of(1 - _i), "ours");
    ck_assert_int_eq(driven_stat(&d, name_of(_i), &a), 0);
    ck_assert_int_eq(driven_stat(&d, name_of(1 - _i), &b), 0);
    ck_assert_uint_ne(a.st_ino, b.st_ino);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, name_of(_i), "theirs");
    driven_stores(&d, name_of(1 - _i), "ours");
}
END_TEST

/* A link changes no content: nothing is uploaded again under the first name, and a mount that
 * did not see theirs does not replace it. */
START_TEST(a_mount_finds_that_it_was_replaced)
{
    driven_unmount(&d);
    driven_store(&d, name_of(_i), "theirs", 6);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, name_of(_i), "theirs");
    DRIVEN_WAIT(shows(name_of(_i), "theirs"));
    driven_shows(&d, name_of(1 - _i), "ours");
}
END_TEST

/* Who has it open reads what it was. */
START_TEST(a_reader_keeps_what_it_opened)
{
    struct handle *h = NULL;
    char text[8] = "";

    ck_assert_int_eq(driven_open(&d, name_of(_i), O_RDONLY, &h), 0);
    driven_store(&d, name_of(_i), "theirs", 6);
    DRIVEN_WAIT(shows(name_of(_i), "theirs"));
    ck_assert_int_eq(driven_pread(&d, h, text, sizeof(text), 0), 4);
    ck_assert_str_eq(text, "ours");
    driven_shows(&d, name_of(1 - _i), "ours");
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_shows(&d, name_of(1 - _i), "ours");
}
END_TEST

/* What was written here before theirs was seen replaces nothing of theirs. */
START_TEST(a_change_that_crosses_theirs_is_told)
{
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 2);
    driven_shows(&d, name_of(1 - _i), "ours");
    driven_store(&d, name_of(_i), "theirs", 6);
    append(name_of(1 - _i), " and more");
    (void)driven_flush(&d); /* tells of it, a moment before it is set aside */
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, name_of(_i), "theirs");
    driven_stores(&d, name_of(1 - _i), "ours and more");
    ck_assert_int_eq(access(d.dir, F_OK), 0);
}
END_TEST

/* What was kept of it does not change with what is written under the other name, and their
 * version is no hard link of that. */
START_TEST(what_is_kept_of_one_name_stays)
{
    char path[128], text[32] = "";
    struct stat a, b;

    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 2);
    driven_shows(&d, name_of(1 - _i), "ours");
    driven_store(&d, name_of(_i), "theirs", 6);
    append(name_of(1 - _i), " and more");
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    (void)snprintf(path, sizeof(path), "%s/kept/%s", d.dir, name_of(_i));
    DRIVEN_WAIT(access(path, F_OK) == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, name_of(1 - _i)), "clean") == 0);
    driven_put(&d, name_of(1 - _i), "newer", 5);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(read(fd, text, sizeof(text)), 13);
    (void)close(fd);
    ck_assert_str_eq(text, "ours and more");
    DRIVEN_WAIT(shows(name_of(_i), "theirs"));
    ck_assert_int_eq(driven_stat(&d, name_of(_i), &a), 0);
    ck_assert_int_eq(driven_stat(&d, name_of(1 - _i), &b), 0);
    ck_assert_uint_ne(a.st_ino, b.st_ino);
    driven_shows(&d, name_of(1 - _i), "newer");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, name_of(_i), "theirs");
    driven_stores(&d, name_of(1 - _i), "newer");
}
END_TEST

/* The store refuses one name: the other goes up, and what was to be replaced under the first is
 * known to the next mount, too. */
START_TEST(a_change_that_goes_up_by_half)
{
    const char *late = name_of(_i % 2), *early = name_of(1 - _i % 2);
    bool replaced = _i / 2;
    char text[16] = "";

    atomic_store(&refused, late);
    driven_put(&d, "dir/h1", "changed", 7);
    DRIVEN_WAIT(driven_stored(&d, early, text, sizeof(text)) == 7);
    driven_stores(&d, late, "ours");
    driven_unmount(&d);
    atomic_store(&refused, NULL);
    if (replaced)
        driven_store(&d, late, "theirs", 6);
    driven_mount(&d);
    (void)driven_flush(&d); /* tells of a conflict, a moment before it is set aside */
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, late, replaced ? "theirs" : "changed");
    driven_stores(&d, early, "changed");
}
END_TEST

/* ---- another node removes one of them ---- */

START_TEST(a_name_that_they_removed_goes_alone)
{
    struct stat st;

    remove_there(name_of(_i));
    DRIVEN_WAIT(driven_stat(&d, name_of(_i), &st) == -ENOENT);
    ck_assert_int_eq(in_mirror(names[_i]), 0);
    ck_assert_int_eq(in_mirror(names[1 - _i]), 1);
    driven_shows(&d, name_of(1 - _i), "ours");
    ck_assert_int_eq(driven_stat(&d, name_of(1 - _i), &st), 0);
    ck_assert_uint_eq(st.st_nlink, 1);
    append(name_of(1 - _i), " and more");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, name_of(_i), NULL);
    driven_stores(&d, name_of(1 - _i), "ours and more");
}
END_TEST

/* Nothing is left of it in the mirror, nor in the account of its space. */
START_TEST(its_directory_can_be_removed)
{
    remove_there(name_of(_i));
    DRIVEN_WAIT(driven_list(&d, "dir") == 1);
    ck_assert_int_eq(driven_unlink(&d, name_of(1 - _i)), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(used_bytes() == 0); /* who sent it has it a moment longer */
}
END_TEST

START_TEST(both_may_go_at_once)
{
    remove_there("dir/h1");
    remove_there("dir/h2");
    DRIVEN_WAIT(driven_list(&d, "dir") <= 0);
    ck_assert_int_eq(in_mirror("h1") + in_mirror("h2"), 0);
    DRIVEN_WAIT(used_bytes() == 0);
}
END_TEST

/* Removed while nobody was there to see it. */
START_TEST(a_mount_finds_that_it_is_gone)
{
    struct stat st;

    driven_unmount(&d);
    remove_there(name_of(_i));
    driven_mount(&d);
    DRIVEN_WAIT(driven_stat(&d, name_of(_i), &st) == -ENOENT);
    ck_assert_int_eq(in_mirror(names[_i]), 0);
    driven_shows(&d, name_of(1 - _i), "ours");
    ck_assert_int_eq(driven_unlink(&d, name_of(1 - _i)), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
}
END_TEST

/* What they make under the name later is another file, with a number of its own. */
START_TEST(what_they_make_there_again_is_another_file)
{
    struct stat a, b;

    remove_there(name_of(_i));
    DRIVEN_WAIT(driven_stat(&d, name_of(_i), &a) == -ENOENT);
    driven_store(&d, name_of(_i), "theirs", 6);
    DRIVEN_WAIT(shows(name_of(_i), "theirs"));
    ck_assert_int_eq(driven_stat(&d, name_of(_i), &a), 0);
    ck_assert_int_eq(driven_stat(&d, name_of(1 - _i), &b), 0);
    ck_assert_uint_ne(a.st_ino, b.st_ino);
    driven_shows(&d, name_of(1 - _i), "ours");
}
END_TEST

/* A file that a listing found has a number that comes from its key. */
START_TEST(a_number_stays_with_the_file)
{
    struct stat a, b;

    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_unlink(&d, "dir/h2"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_link(&d, "dir/h1", "dir/h2"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    if (_i == 0)
        driven_store(&d, "dir/h1", "theirs", 6);
    else
        ck_assert_int_eq(driven_unlink(&d, "dir/h1"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    if (_i == 1)
        driven_store(&d, "dir/h1", "theirs", 6);
    DRIVEN_WAIT(shows("dir/h1", "theirs"));
    ck_assert_int_eq(driven_stat(&d, "dir/h1", &a), 0);
    ck_assert_int_eq(driven_stat(&d, "dir/h2", &b), 0);
    ck_assert_uint_ne(a.st_ino, b.st_ino);
    driven_shows(&d, "dir/h2", "ours");
}
END_TEST

/* A link that comes to a removed name with its directory is not what that removal means. */
START_TEST(a_link_that_comes_with_its_directory_stays)
{
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    d.config.late_ns = NS_PER_SEC / 2;
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "q"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "q/r"), 0);
    ck_assert_int_eq(driven_link(&d, "dir/h2", "q/h2"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/h1"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/h2"), 0);
    ck_assert_int_eq(_i ? driven_exchange(&d, "q", "dir") : driven_rename(&d, "q", "dir"), 0);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "dir/h2", "ours");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/h2", "ours");
    driven_stores(&d, "dir/h1", NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_linked");
    TCase *t = tcase_create("cache_linked");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_name_that_they_replaced_leaves, 0, 2);
    tcase_add_loop_test(t, a_name_that_they_replaced_leaves_at_an_open, 0, 2);
    tcase_add_loop_test(t, it_is_still_another_file_after_a_mount, 0, 2);
    tcase_add_loop_test(t, a_mount_finds_that_it_was_replaced, 0, 2);
    tcase_add_loop_test(t, a_reader_keeps_what_it_opened, 0, 2);
    tcase_add_loop_test(t, a_change_that_crosses_theirs_is_told, 0, 2);
    tcase_add_loop_test(t, what_is_kept_of_one_name_stays, 0, 2);
    tcase_add_loop_test(t, a_change_that_goes_up_by_half, 0, 4);
    tcase_add_loop_test(t, a_name_that_they_removed_goes_alone, 0, 2);
    tcase_add_loop_test(t, its_directory_can_be_removed, 0, 2);
    tcase_add_test(t, both_may_go_at_once);
    tcase_add_loop_test(t, a_mount_finds_that_it_is_gone, 0, 2);
    tcase_add_loop_test(t, what_they_make_there_again_is_another_file, 0, 2);
    tcase_add_loop_test(t, a_number_stays_with_the_file, 0, 2);
    tcase_add_loop_test(t, a_link_that_comes_with_its_directory_stays, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
