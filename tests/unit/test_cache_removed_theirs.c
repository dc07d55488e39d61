/* cache/: what is removed, or renamed over, before the store has heard of the rename that
 * brings it there. The removal means the version that was known here: what another node has put
 * in its place stays, and what is ours goes, killed in between or not. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold, copies_fail, removals_fail, attrs_wait;
static atomic_int attrs_begun, removals_begun;

static int64_t fails(struct call *c)
{
    return op_fail(c->op, -EHOSTUNREACH, "no answer");
}

static int64_t copy(struct call *c)
{
    while (atomic_load(&hold))
        (void)usleep(1000);
    return atomic_load(&copies_fail) ? fails(c) : call_next(c);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_RENAME || (c->kind == CALL_COPY && c->attrs == NULL))
        return copy(c);
    if (c->kind == CALL_SETATTR || c->kind == CALL_COPY) {
        atomic_fetch_add(&attrs_begun, 1);
        while (atomic_load(&attrs_wait))
            (void)usleep(1000);
    }
    if (c->kind == CALL_REMOVE) {
        atomic_fetch_add(&removals_begun, 1);
        if (atomic_load(&removals_fail))
            return fails(c);
    }
    return call_next(c);
}

/* LIKE_S3: a copy has the version of its source. ANEW: it has one of its own. RENAMES: the
 * store renames by itself, and by copies where something below a directory is about to go. */
enum { LIKE_S3, ANEW, RENAMES, STORES };
#define COPYING RENAMES /* how many of them copy */

static void start(int store)
{
    atomic_store(&hold, false);
    atomic_store(&copies_fail, false);
    atomic_store(&removals_fail, false);
    atomic_store(&attrs_wait, false);
    atomic_store(&attrs_begun, 0);
    atomic_store(&removals_begun, 0);
    if (store == LIKE_S3)
        driven_init_like_s3(&d, around);
    else
        driven_init(&d, around);
    if (store != RENAMES)
        d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 60 * NS_PER_SEC;
    d.config.late_ns = 100 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "ours", 4);
    driven_put(&d, "dir/x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* ---- what happens here ---- */

static void move_file(void)
{
    ck_assert_int_eq(driven_rename(&d, "dir/f", "dir/g"), 0);
}

static void move_dir(void)
{
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
}

static void removed_where_it_moved(void)
{
    move_file();
    ck_assert_int_eq(driven_unlink(&d, "dir/g"), 0);
}

static void removed_where_it_moved_twice(void)
{
    move_file();
    ck_assert_int_eq(driven_rename(&d, "dir/g", "dir/h"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/h"), 0);
}

static void removed_below_what_moved(void)
{
    move_dir();
    ck_assert_int_eq(driven_unlink(&d, "new/f"), 0);
}

static void removed_with_what_moved(void)
{
    move_dir();
    ck_assert_int_eq(driven_unlink(&d, "new/f"), 0);
    ck_assert_int_eq(driven_unlink(&d, "new/x"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "new"), 0);
}

static void removed_below_what_moved_twice(void)
{
    move_dir();
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    ck_assert_int_eq(driven_unlink(&d, "last/f"), 0);
}

static void removed_out_of_what_moved(void)
{
    move_dir();
    ck_assert_int_eq(driven_rename(&d, "new/f", "g"), 0);
    ck_assert_int_eq(driven_unlink(&d, "g"), 0);
}

static void renamed_over(void)
{
    move_file();
    ck_assert_int_eq(driven_rename(&d, "dir/x", "dir/g"), 0);
}

static void renamed_over_by_a_changed_one(void)
{
    move_file();
    driven_put(&d, "dir/y", "x", 1);
    ck_assert_int_eq(driven_rename(&d, "dir/y", "dir/g"), 0);
}

static void renamed_over_where_it_moved_twice(void)
{
    move_file();
    ck_assert_int_eq(driven_rename(&d, "dir/g", "dir/h"), 0);
    ck_assert_int_eq(driven_rename(&d, "dir/x", "dir/h"), 0);
}

static void (*const stories[])(void) = {
    removed_where_it_moved,
    removed_where_it_moved_twice,
    removed_below_what_moved,
    removed_with_what_moved,
    removed_below_what_moved_twice,
    removed_out_of_what_moved,
    renamed_over,
    renamed_over_by_a_changed_one,
    renamed_over_where_it_moved_twice,
};
#define STORIES ((int)ARRAY_SIZE(stories))

/* When the daemon is killed. */
enum { NEVER, BEFORE_THE_COPY, BEFORE_THE_REMOVAL, KILLS };
#define CASES (STORIES * STORES * KILLS)

static bool removes(int i)
{
    return i % STORIES < 6;
}

/* The store has the content under some name. */
static bool is_stored(const char *content)
{
    static const char *const keys[] = {"dir/f", "dir/g", "dir/h", "new/f", "last/f", "g"};
    char text[16];

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        ssize_t n = driven_stored(&d, keys[i], text, sizeof(text));
        if (n == (ssize_t)strlen(content) && strncmp(text, content, (size_t)n) == 0)
            return true;
    }
    return false;
}

static void killed(void)
{
    driven_unmount(&d);
    atomic_store(&copies_fail, false);
    atomic_store(&removals_fail, false);
    driven_mount(&d);
}

/* `theirs`: another node replaces the file, which is not seen here. */
static void tell(int i, bool theirs)
{
    int kill = i / STORIES / STORES;

    start(i / STORIES % STORES);
    atomic_store(kill == BEFORE_THE_COPY ? &copies_fail : &hold, true);
    atomic_store(&removals_fail, kill == BEFORE_THE_REMOVAL);
    if (theirs)
        driven_store(&d, "dir/f", "theirs", 6);
    stories[i % STORIES]();
    atomic_store(&hold, false);
    for (int ms = 0; kill == BEFORE_THE_REMOVAL && !atomic_load(&removals_begun) && ms < 500;
         ms++)
        (void)usleep(1000); /* what is theirs may stay where it is */
    if (kill != NEVER)
        killed();
    (void)driven_flush(&d); /* tells of what stays */
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* What a store renames by itself goes over a name whatever has that. */
START_TEST(what_they_replaced_stays)
{
    if (_i / STORIES % STORES == RENAMES && !removes(_i))
        return;
    tell(_i, true);
    ck_assert(is_stored("theirs"));
    ck_assert(removes(_i) || is_stored("x"));
    driven_release(&d);
}
END_TEST

START_TEST(what_is_ours_goes)
{
    tell(_i, false);
    ck_assert(!is_stored("ours"));
    ck_assert(removes(_i) || is_stored("x"));
    driven_release(&d);
}
END_TEST

/* Attributes that come to the old name after the rename make a version that is ours, too. */
START_TEST(what_got_attributes_meanwhile_goes)
{
    start(_i / STORIES % COPYING);
    atomic_store(&attrs_wait, true);
    ck_assert_int_eq(driven_chmod(&d, "dir/f", 0600), 0);
    DRIVEN_WAIT(atomic_load(&attrs_begun) > 0);
    stories[_i % STORIES]();
    atomic_store(&copies_fail, _i / STORIES / COPYING);
    atomic_store(&attrs_wait, false);
    if (_i / STORIES / COPYING) {
        (void)usleep(200000); /* the answer is noted */
        killed();
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_stored("ours"));
    driven_release(&d);
}
END_TEST

/* But not attributes that are for another version than theirs. */
START_TEST(what_they_replaced_before_it_got_attributes_stays)
{
    start(_i / STORIES);
    atomic_store(&attrs_wait, true);
    ck_assert_int_eq(driven_chmod(&d, "dir/f", 0600), 0);
    DRIVEN_WAIT(atomic_load(&attrs_begun) > 0);
    driven_store(&d, "dir/f", "theirs", 6);
    stories[_i % STORIES]();
    atomic_store(&attrs_wait, false);
    (void)driven_flush(&d); /* tells of what stays */
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(is_stored("theirs"));
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_removed_theirs");
    TCase *t = tcase_create("removals");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_they_replaced_stays, 0, CASES);
    tcase_add_loop_test(t, what_is_ours_goes, 0, CASES);
    tcase_add_loop_test(t, what_got_attributes_meanwhile_goes, 0, STORIES * COPYING * 2);
    tcase_add_loop_test(t, what_they_replaced_before_it_got_attributes_stays, 0,
                        STORIES * COPYING);
    suite_add_tcase(s, t);
    return suite_run(s);
}
