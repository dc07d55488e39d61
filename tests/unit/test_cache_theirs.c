/* cache/: what another node puts where something of this mount is on its way: it is moved along
 * or stays, and never goes without a copy. */
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
static atomic_bool hold; /* copies wait */
static atomic_bool copies_fail, lists_wait;
enum { PUT_GOES, PUT_FAILS, PUT_IS_LOST };
static atomic_int put_ends;   /* of dir/both, before it moves */
static atomic_bool put_waits; /* it has not begun at the store */
static atomic_int puts_begun, copies_begun;
static atomic_bool careless; /* the server looks at no condition of a removal */
static atomic_int replaced;  /* how often another node replaces a source before it is copied */
static atomic_bool removed;  /* it removes the source before it is copied, and puts the same
                                content there afterwards */
static atomic_bool removals; /* it replaces what is about to be removed */
static atomic_bool copy_replaced; /* and the copy in new/both */
/* a copy back to "back" has another version, as that of an object in parts has; it stays */
static atomic_bool copies_in_parts, removals_fail;
static atomic_int removals_failed;

static bool take_turn(atomic_int *turns)
{
    int n = atomic_load(turns);

    while (n > 0 && !atomic_compare_exchange_weak(turns, &n, n - 1))
        ;
    return n > 0;
}

static void remove_there(const char *key)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

static void before_copy(const char *key)
{
    static atomic_int version;
    char text[32];

    atomic_fetch_add(&copies_begun, 1);
    while (atomic_load(&hold))
        (void)usleep(1000);
    if (take_turn(&replaced)) {
        (void)snprintf(text, sizeof(text), "theirs %d", atomic_fetch_add(&version, 1));
        driven_store(&d, key, text, strlen(text));
    }
    if (atomic_load(&removed))
        remove_there(key);
}

static int64_t copy(struct call *c)
{
    before_copy(c->key);
    int64_t r =
        atomic_load(&copies_fail) ? op_fail(c->op, -EHOSTUNREACH, "no answer") : call_next(c);
    if (atomic_exchange(&removed, false))
        driven_store(&d, c->key, "ours", 4);
    if (r == 0 && strcmp(c->to, "back") == 0 && atomic_exchange(&copies_in_parts, false)) {
        driven_store(&d, c->to, "OURS", 4);
        object_release(c->ret_obj);
        r = store_stat(c->next, c->op, c->to, c->ret_obj);
    }
    if (r == 0 && strcmp(c->key, "dir/both") == 0 && atomic_exchange(&copy_replaced, false))
        driven_store(&d, "new/both", "theirs", 6);
    return r;
}

static int64_t put(struct call *c)
{
    int end = atomic_load(&put_ends);

    atomic_fetch_add(&puts_begun, 1);
    while (atomic_load(&put_waits))
        (void)usleep(1000);
    int64_t r = end == PUT_FAILS ? 0 : call_next(c);
    return end == PUT_GOES || r < 0 ? r : op_fail(c->op, -EHOSTUNREACH, "no answer");
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_LIST && atomic_load(&lists_wait))
        (void)usleep(1000);
    if (c->kind == CALL_COPY)
        return copy(c);
    if (c->kind == CALL_PUT && strcmp(c->key, "dir/both") == 0)
        return put(c);
    if (c->kind == CALL_REMOVE && atomic_load(&removals_fail)) {
        atomic_fetch_add(&removals_failed, 1);
        return op_fail(c->op, -EHOSTUNREACH, "no answer");
    }
    if (c->kind == CALL_REMOVE && atomic_exchange(&removals, false))
        driven_store(&d, c->key, "newer", 5);
    if (c->kind == CALL_REMOVE && atomic_load(&careless))
        c->etags = NULL;
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&hold, false);
    atomic_store(&copies_fail, false);
    atomic_store(&lists_wait, false);
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&put_waits, false);
    atomic_store(&puts_begun, 0);
    atomic_store(&copies_begun, 0);
    atomic_store(&careless, false);
    atomic_store(&copy_replaced, false);
    atomic_store(&copies_in_parts, false);
    atomic_store(&removals_fail, false);
    atomic_store(&removals_failed, 0);
    atomic_store(&replaced, 0);
    atomic_store(&removed, false);
    atomic_store(&removals, false);
    driven_init_like_s3(&d, around);
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 200 * NS_PER_MS;
    d.config.late_ns = 500 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "ours", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void teardown(void)
{
    driven_release(&d);
}

/* ---- renames ---- */

/* Of the directory, or of the file alone. */
static void rename_it(int dir)
{
    ck_assert_int_eq(
        dir ? driven_rename(&d, "dir", "new") : driven_rename(&d, "dir/f", "dir/g"), 0);
}

static const char *new_key(int dir)
{
    return dir ? "new/f" : "dir/g";
}

/* Their version is what has the name when it is copied: it moves, and nothing is removed of
 * which there is no copy, whatever the server thinks of conditions. */
START_TEST(what_they_replaced_before_the_copy_moves)
{
    char text[32] = "";

    atomic_store(&careless, true);
    atomic_store(&replaced, 1);
    rename_it(_i);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/f", NULL);
    ck_assert_int_gt(driven_stored(&d, new_key(_i), text, sizeof(text)), 0);
    ck_assert_int_eq(strncmp(text, "theirs", 6), 0);
}
END_TEST

/* What comes between a copy that had to follow them and the removal was not copied. */
START_TEST(what_they_replaced_after_the_copy_stays)
{
    atomic_store(&replaced, 1);
    atomic_store(&removals, true);
    rename_it(_i);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/f", "newer");
    driven_mount_afresh(&d);
    driven_shows(&d, "dir/f", "newer");
}
END_TEST

/* They removed it; what has the same content, and so the same version, is another thing. */
START_TEST(what_they_removed_is_not_removed_again)
{
    atomic_store(&removed, true);
    rename_it(_i);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/f", "ours");
}
END_TEST

/* While it changes all the time the rename stays owed. */
START_TEST(what_never_rests_is_moved_later)
{
    char text[32] = "";

    atomic_store(&careless, true);
    atomic_store(&replaced, 9); /* once more than it is tried at once */
    rename_it(_i);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(atomic_load(&replaced), 0);
    driven_stores(&d, "dir/f", NULL);
    ck_assert_int_gt(driven_stored(&d, new_key(_i), text, sizeof(text)), 0);
    ck_assert_int_eq(strncmp(text, "theirs", 6), 0);
}
END_TEST

/* A new file goes up under its directory's new name; the old one's is theirs. */
START_TEST(what_was_never_copied_is_not_removed)
{
    atomic_store(&hold, true);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    driven_put(&d, "dir/both", "ours", 4);
    driven_store(&d, "dir/both", "theirs", 6);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/both", "ours");
    driven_stores(&d, "dir/both", "theirs");
    DRIVEN_WAIT(driven_list(&d, "dir") == 1);
    driven_shows(&d, "dir/both", "theirs");
}
END_TEST

/* Nor what they put there when an upload to the old name had failed, or is on its way. */
START_TEST(what_came_instead_of_ours_is_not_removed)
{
    atomic_store(&put_ends, _i ? PUT_GOES : PUT_FAILS);
    atomic_store(&put_waits, _i);
    atomic_store(&hold, true);
    driven_put(&d, "dir/both", "ours", 4);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    (void)usleep(_i ? 0 : 100000); /* the answer is noted */
    driven_store(&d, "dir/both", "theirs", 6);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    atomic_store(&put_waits, false);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/both", "ours");
    driven_stores(&d, "dir/both", "theirs");
}
END_TEST

static void rename_what_came_unheard(void)
{
    atomic_store(&put_ends, PUT_IS_LOST);
    atomic_store(&hold, true);
    driven_put(&d, "dir/both", "ours", 4);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    (void)usleep(100000); /* the answer is noted */
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
}

/* Ours goes, also when nobody heard that it came. */
START_TEST(what_came_unheard_is_removed)
{
    rename_what_came_unheard();
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/both", "ours");
    ck_assert_int_eq(driven_stored(&d, "dir/both", NULL, 0), -ENOENT);
}
END_TEST

/* And so it does where two renames bring it, and it was put by a mount that was killed: what it
 * bears tells of the first name only. */
START_TEST(what_came_unheard_is_removed_where_it_moved)
{
    rename_what_came_unheard();
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    atomic_store(&hold, false);
    driven_unmount(&d);
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&hold, true);
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "last/both"), 0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "last/both", NULL, 0), -ENOENT);
    driven_stores(&d, "last/f", "ours");
}
END_TEST

/* And where a file that was made since has taken its name. */
START_TEST(what_came_unheard_is_removed_with_what_replaced_it)
{
    atomic_store(&copies_fail, true);
    rename_what_came_unheard();
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    atomic_store(&hold, false);
    driven_unmount(&d);
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&hold, true);
    atomic_store(&copies_fail, false);
    driven_mount(&d);
    driven_put(&d, "tmp", "newer", 5);
    ck_assert_int_eq(driven_rename(&d, "tmp", "last/both"), 0);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, "last/both"), 0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last/both", _i ? NULL : "newer");
    driven_stores(&d, "new/both", NULL);
    driven_stores(&d, "dir/both", NULL);
}
END_TEST

/* Two renames are to bring what a killed mount put: the last name of all is "last/both". */
static void brought_to_the_next_mount(void)
{
    atomic_store(&copies_fail, true);
    rename_what_came_unheard();
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    atomic_store(&hold, false);
    driven_unmount(&d);
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&copies_begun, 0);
    atomic_store(&hold, true);
    atomic_store(&copies_fail, false);
}

/* And where the file itself leaves the name, whatever number it has by then. */
START_TEST(what_came_unheard_is_removed_when_its_file_moves)
{
    enum { MOVED, MOVED_OUT, LINKED };

    brought_to_the_next_mount();
    driven_mount(&d);
    if (_i == LINKED)
        ck_assert_int_eq(driven_link(&d, "last/both", "other"), 0);
    if (_i == MOVED || _i == MOVED_OUT)
        ck_assert_int_eq(driven_rename(&d, "last/both", _i == MOVED ? "last/x" : "other"), 0);
    else
        ck_assert_int_eq(driven_unlink(&d, "last/both"), 0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, _i == MOVED ? "last/x" : "other", "ours");
    driven_stores(&d, "last/both", NULL);
    driven_stores(&d, "new/both", NULL);
    driven_stores(&d, "dir/both", NULL);
}
END_TEST

/* And where the next mount copies it on, since it was open when the first rename ran: but not
 * what another node has put in the copy's place. */
START_TEST(what_the_next_mount_copied_on_is_removed)
{
    struct handle *h = NULL;

    brought_to_the_next_mount();
    atomic_store(&copy_replaced, _i);
    atomic_store(&lists_wait, true);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "last/both", O_WRONLY | O_APPEND, &h), 0);
    atomic_store(&lists_wait, false);
    DRIVEN_WAIT(atomic_load(&copies_begun) > 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last/both", "ours");
    driven_stores(&d, "new/both", _i ? "theirs" : NULL);
    driven_stores(&d, "dir/both", NULL);
}
END_TEST

/* What another node has put to the first name instead of ours is not removed without a copy. */
START_TEST(what_they_put_instead_of_ours_stays_after_a_kill)
{
    atomic_store(&put_ends, PUT_FAILS);
    atomic_store(&hold, true);
    driven_put(&d, "dir/both", "ours", 4);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    (void)usleep(100000); /* the answer is noted */
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    atomic_store(&hold, false);
    driven_unmount(&d);
    driven_store(&d, "dir/both", "theirs", 6);
    atomic_store(&put_ends, PUT_GOES);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/both", "ours");
    driven_stores(&d, "dir/both", "theirs");
}
END_TEST

/* And where it was copied on by a first rename, since it was open: the copy bears a number,
 * too. */
START_TEST(what_was_copied_on_is_removed)
{
    struct handle *h;

    atomic_store(&put_ends, PUT_IS_LOST);
    driven_put(&d, "dir/both", "ours", 4);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    (void)usleep(100000); /* the answer is noted */
    ck_assert_int_eq(driven_open(&d, "dir/both", O_WRONLY | O_APPEND, &h), 0);
    atomic_store(&hold, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    DRIVEN_WAIT(atomic_load(&copies_begun) > 0);
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&put_ends, PUT_GOES);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last/both", "ours");
    ck_assert_int_eq(driven_stored(&d, "new/both", NULL, 0), -ENOENT);
    ck_assert_int_eq(driven_stored(&d, "dir/both", NULL, 0), -ENOENT);
}
END_TEST

/* What was made after the renames was never where they lead from: it is told from theirs. */
START_TEST(what_they_put_where_a_new_file_was_not_sent_stays)
{
    atomic_store(&copies_fail, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    driven_put(&d, "new/x", "ours", 4);
    if (_i == 2)
        ck_assert_int_eq(driven_link(&d, "new/x", "x"), 0);
    driven_unmount(&d);
    atomic_store(&hold, true);
    atomic_store(&copies_fail, false);
    driven_mount(&d);
    driven_store(&d, "new/x", "theirs", 6);
    ck_assert_int_eq(_i == 1 ? driven_rename(&d, "new/x", "new/y") : driven_unlink(&d, "new/x"),
                     0);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/x", "theirs");
}
END_TEST

/* What a later rename brings over a name is not what the directory's rename takes there: that
 * one goes in its own version. */
START_TEST(what_another_rename_replaces_is_removed_in_its_version)
{
    struct handle *h;

    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 60 * NS_PER_SEC;
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    driven_put(&d, "k", "k", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "k", "changed", 7);
    ck_assert_int_eq(driven_open(&d, "k", O_WRONLY | O_APPEND, &h), 0);
    atomic_store(&lists_wait, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    ck_assert_int_eq(driven_rename(&d, "k", "new/f"), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&lists_wait, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/f", "changed");
    ck_assert_int_eq(driven_stored(&d, "dir/f", NULL, 0), -ENOENT);
    ck_assert_int_eq(driven_stored(&d, "k", NULL, 0), -ENOENT);
}
END_TEST

/* A later rename brought something over what a directory's rename copied to a name, and a file
 * that is written anew has the name since: the directory's next rename leaves neither there. */
START_TEST(what_was_brought_over_a_copy_is_removed)
{
    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 60 * NS_PER_SEC;
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    driven_put(&d, "k", "k", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&copies_fail, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    ck_assert_int_eq(driven_rename(&d, "k", "new/f"), 0);
    driven_put(&d, "tmp", "newer", 5);
    ck_assert_int_eq(driven_rename(&d, "tmp", "new/f"), 0);
    ck_assert_int_eq(driven_rename(&d, "new", "last"), 0);
    if (_i == 1) {
        driven_unmount(&d);
        atomic_store(&copies_fail, false);
        driven_mount(&d);
    }
    if (_i == 2)
        driven_store(&d, "k", "theirs", 6); /* which is copied, and is not removed */
    atomic_store(&copies_fail, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last/f", "newer");
    driven_stores(&d, "new/f", _i == 2 ? "theirs" : NULL);
    driven_stores(&d, "dir/f", NULL);
    driven_stores(&d, "k", NULL);
}
END_TEST

/* The other node removes the source before it is copied: what was replaced here, and removed
 * then, or written anew, does not come back. */
START_TEST(what_was_replaced_by_what_they_removed_does_not_come_back)
{
    driven_store(&d, "source", "source", 6);
    driven_store(&d, "target", "target", 6);
    DRIVEN_WAIT(driven_list(&d, "") == 3);
    atomic_store(&copies_fail, true);
    ck_assert_int_eq(driven_rename(&d, "source", "target"), 0);
    ck_assert_int_eq(driven_unlink(&d, "target"), 0);
    remove_there("source");
    if (_i)
        driven_put(&d, "target", "new", 3);
    atomic_store(&copies_fail, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "target", _i ? "new" : NULL);
}
END_TEST

/* A file came back to its name before it was removed: what a copy has put there goes, in the
 * version of the copy, also by the next mount. */
START_TEST(what_was_copied_back_is_removed)
{
    driven_store(&d, "back", "ours", 4);
    DRIVEN_WAIT(driven_list(&d, "") == 2);
    atomic_store(&copies_fail, true);
    ck_assert_int_eq(driven_rename(&d, "back", "there"), 0);
    ck_assert_int_eq(driven_rename(&d, "there", "back"), 0);
    ck_assert_int_eq(driven_unlink(&d, "back"), 0);
    atomic_store(&removals_fail, true);
    atomic_store(&copies_in_parts, true);
    atomic_store(&copies_fail, false);
    DRIVEN_WAIT(!atomic_load(&copies_in_parts) && atomic_load(&removals_failed) > 0);
    if (_i) {
        driven_unmount(&d);
        atomic_store(&removals_fail, false);
        driven_mount(&d);
    }
    atomic_store(&removals_fail, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "back", NULL);
    driven_stores(&d, "there", NULL);
}
END_TEST

/* A file that moves by itself leaves behind what its upload put: the new name is theirs. */
START_TEST(what_they_put_at_the_new_name_of_what_is_sent_stays)
{
    atomic_store(&put_waits, true);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    driven_put(&d, "dir/both", "ours", 4);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    ck_assert_int_eq(driven_rename(&d, "dir/both", "k"), 0);
    driven_store(&d, "k", "theirs", 6);
    atomic_store(&put_waits, false);
    (void)driven_flush(&d); /* tells of it */
    driven_stores(&d, "k", "theirs");
    driven_stores(&d, "dir/both", NULL);
}
END_TEST

/* So is one that was stored, changed, and replaced by them meanwhile. */
START_TEST(what_they_put_in_place_of_a_changed_file_is_not_removed)
{
    d.config.settle_ns = 30 * NS_PER_SEC;
    driven_unmount(&d);
    driven_mount(&d);
    driven_put(&d, "dir/f", "changed", 7);
    driven_store(&d, "dir/f", "theirs", 6);
    ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new/f", "changed");
    driven_stores(&d, "dir/f", "theirs");
}
END_TEST

/* ---- exchanges ---- */

/* dir/f and dir/g are stored, the one after several changes, and change places. */
static void exchange_them(void)
{
    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    driven_unmount(&d);
    driven_mount(&d);
    for (int i = 0; i < 4; i++) {
        driven_put(&d, "dir/f", "f", 1);
        ck_assert_int_eq(driven_flush(&d), 0);
    }
    driven_put(&d, "dir/g", "g", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_exchange(&d, "dir/f", "dir/g"), 0);
}

START_TEST(a_flush_waits_for_both_that_changed_places)
{
    exchange_them();
    if (_i) {
        driven_unmount(&d);
        driven_mount(&d);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/f", "g");
    driven_stores(&d, "dir/g", "f");
}
END_TEST

/* Each name's upload replaces the version that the name had. */
START_TEST(what_they_put_at_a_name_that_changed_places_stays)
{
    const char *theirs = _i % 2 ? "dir/f" : "dir/g", *ours = _i % 2 ? "dir/g" : "dir/f";

    exchange_them();
    driven_store(&d, theirs, "theirs", 6);
    if (_i / 2) {
        driven_unmount(&d);
        driven_mount(&d);
    }
    (void)driven_flush(&d); /* tells of it */
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, theirs, "theirs");
    driven_stores(&d, ours, _i % 2 ? "f" : "g");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_theirs");
    TCase *t = tcase_create("renames");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_they_replaced_before_the_copy_moves, 0, 2);
    tcase_add_loop_test(t, what_they_replaced_after_the_copy_stays, 0, 2);
    tcase_add_loop_test(t, what_they_removed_is_not_removed_again, 0, 2);
    tcase_add_loop_test(t, what_never_rests_is_moved_later, 0, 2);
    tcase_add_test(t, what_was_never_copied_is_not_removed);
    tcase_add_loop_test(t, what_came_instead_of_ours_is_not_removed, 0, 2);
    tcase_add_test(t, what_came_unheard_is_removed);
    tcase_add_test(t, what_came_unheard_is_removed_where_it_moved);
    tcase_add_loop_test(t, what_came_unheard_is_removed_with_what_replaced_it, 0, 2);
    tcase_add_loop_test(t, what_came_unheard_is_removed_when_its_file_moves, 0, 3);
    tcase_add_loop_test(t, what_the_next_mount_copied_on_is_removed, 0, 2);
    tcase_add_test(t, what_they_put_instead_of_ours_stays_after_a_kill);
    tcase_add_test(t, what_was_copied_on_is_removed);
    tcase_add_loop_test(t, what_they_put_where_a_new_file_was_not_sent_stays, 0, 3);
    tcase_add_test(t, what_another_rename_replaces_is_removed_in_its_version);
    tcase_add_loop_test(t, what_was_brought_over_a_copy_is_removed, 0, 3);
    tcase_add_loop_test(t, what_was_replaced_by_what_they_removed_does_not_come_back, 0, 2);
    tcase_add_loop_test(t, what_was_copied_back_is_removed, 0, 2);
    tcase_add_test(t, what_they_put_at_the_new_name_of_what_is_sent_stays);
    tcase_add_test(t, what_they_put_in_place_of_a_changed_file_is_not_removed);
    suite_add_tcase(s, t);
    t = tcase_create("exchanges");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_flush_waits_for_both_that_changed_places, 0, 2);
    tcase_add_loop_test(t, what_they_put_at_a_name_that_changed_places_stays, 0, 4);
    suite_add_tcase(s, t);
    return suite_run(s);
}
