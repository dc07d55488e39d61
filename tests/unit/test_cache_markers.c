/* cache/: markers that are just being put. A new directory takes the name of an empty one: what
 * comes late of the one is not taken for the other's. And what is owed of the directories
 * above.
 */
#include "common/path.h"
#include "tests/lib/at_point.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLE_NS (100 * NS_PER_MS)

enum answer { NOW, LATER, LOST };

static _Atomic enum answer answer; /* to a put of the marker of "last", before it is stored */
static atomic_uint asked, stored;  /* such puts */
static atomic_uint others;         /* puts of other markers that are stored */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_MKDIR || strcmp(path_basename(c->key), "last") != 0) {
        int64_t r = call_next(c);
        atomic_fetch_add(&others, c->kind == CALL_MKDIR);
        return r;
    }
    atomic_fetch_add(&asked, 1);
    while (atomic_load(&answer) == LATER)
        (void)usleep(1000);
    if (atomic_load(&answer) == LOST)
        return op_fail(c->op, -EIO, "mkdir %s: nobody is left to be answered", c->key);
    int64_t r = call_next(c);
    atomic_fetch_add(&stored, 1);
    return r;
}

/* A directory with a file that is not stored before it is closed takes the name. */
static struct handle *replace(struct driven *d)
{
    struct handle *h;

    atomic_store(&answer, LATER);
    atomic_store(&asked, 0);
    atomic_store(&stored, 0);
    driven_init_like_s3(d, around);
    d->config.late_ns = 0;
    d->config.settle_ns = SETTLE_NS; /* the first put has the attributes that follow */
    driven_mount(d);
    ck_assert_int_eq(driven_mkdir(d, "run"), 0);
    ck_assert_int_eq(driven_open(d, "run/x", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_mkdir(d, "last"), 0);
    ck_assert_int_eq(driven_chmod(d, "last", 0702), 0);
    DRIVEN_WAIT(atomic_load(&asked) == 1);
    ck_assert_int_eq(driven_rename(d, "run", "last"), 0);
    return h;
}

static void check_mode(struct driven *d)
{
    struct stat st;

    driven_mount_afresh(d);
    ck_assert_int_eq(driven_stat(d, "last/x", &st), 0);
    ck_assert_int_eq(driven_stat(d, "last", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, d->config.dir_mode);
    driven_release(d);
}

START_TEST(a_marker_of_the_replaced_directory_comes_late)
{
    struct driven d;
    struct handle *h = replace(&d);

    (void)usleep(2 * SETTLE_NS / 1000); /* its own does not overtake that one */
    ck_assert_uint_eq(atomic_load(&asked), 1);
    atomic_store(&answer, NOW);
    DRIVEN_WAIT(atomic_load(&stored) > 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    check_mode(&d);
}
END_TEST

/* The daemon is killed, and the store has taken what it sent. */
START_TEST(a_marker_of_the_replaced_directory_that_a_killed_daemon_sent)
{
    const struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFDIR | 0702};
    struct driven d;
    struct op op;
    struct handle *h = replace(&d);

    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&answer, LOST);
    driven_unmount(&d);
    atomic_store(&answer, NOW);
    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "last", &attrs, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    check_mode(&d);
}
END_TEST

static void *flush(void *arg)
{
    static int r;

    r = driven_flush(arg);
    return &r;
}

/* Of the directory above nothing is to be sent: what is stored below stands for it. */
START_TEST(nothing_is_owed_above_when_the_last_marker_is_stored)
{
    struct driven d;
    struct cache_stats s;
    pthread_t flusher;
    void *r;

    atomic_store(&answer, LATER);
    atomic_store(&asked, 0);
    atomic_store(&others, 0);
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 3 * NS_PER_SEC; /* no marker of "above" before "last" is in it */
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "above"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "above/last"), 0);
    DRIVEN_WAIT(atomic_load(&asked) == 1);
    ck_assert_int_eq(driven_mkdir(&d, "above/last/leaf"), 0);
    ck_assert_int_eq(pthread_create(&flusher, NULL, flush, &d), 0);
    DRIVEN_WAIT(atomic_load(&others) == 1 &&
                strcmp(driven_state(&d, "above/last/leaf"), "clean") == 0);
    atomic_store(&answer, NOW);
    ck_assert_int_eq(pthread_join(flusher, &r), 0);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.pending_ops, 0);
    ck_assert_int_eq(*(int *)r, 0);
    ck_assert_uint_eq(atomic_load(&others), 1);
    driven_release(&d);
}
END_TEST

static atomic_uint puts_run, removals_run, puts_begun;
static atomic_bool was_beside; /* the put of a marker beside a removal */

static int64_t slow_markers_and_removals(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_MKDIR && c->kind != CALL_REMOVE && c->kind != CALL_RMDIR)
        return call_next(c);
    atomic_uint *run = c->kind == CALL_MKDIR ? &puts_run : &removals_run;
    atomic_fetch_add(run, 1);
    atomic_fetch_add(&puts_begun, c->kind == CALL_MKDIR);
    (void)usleep(200 * 1000);
    if (atomic_load(&puts_run) && atomic_load(&removals_run))
        atomic_store(&was_beside, true);
    int64_t r = call_next(c);
    atomic_fetch_sub(run, 1);
    return r;
}

/* A server that keeps objects in folders removes a folder with the last object in it, and with
 * it the marker that has come there meanwhile. */
START_TEST(a_marker_does_not_come_while_names_in_its_directory_go)
{
    struct driven d;

    driven_init_like_s3(&d, slow_markers_and_removals);
    d.config.late_ns = d.config.settle_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run/sub"), 0);
    driven_put(&d, "run/sub/a", "a", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d); /* whether there are markers, nobody knows */
    ck_assert_int_eq(driven_list(&d, "run/sub"), 1);
    atomic_store(&was_beside, false);
    if (_i == 0)
        ck_assert_int_eq(driven_unlink(&d, "run/sub/a"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, "run/sub/a", "a"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!atomic_load(&was_beside));
    ck_assert(driven_stores_dir(&d, "run/sub"));
    driven_release(&d);
}
END_TEST

/* So does the marker of a directory that is replaced. */
START_TEST(a_marker_does_not_come_while_a_directory_in_its_own_is_replaced)
{
    struct driven d;

    driven_init_like_s3(&d, slow_markers_and_removals);
    d.config.late_ns = d.config.settle_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run/empty"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/a", "a", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&was_beside, false);
    atomic_store(&puts_begun, 0);
    ck_assert_int_eq(driven_chmod(&d, "run", 0700), 0);
    DRIVEN_WAIT(atomic_load(&puts_begun) > 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "run/empty"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!atomic_load(&was_beside));
    driven_release(&d);
}
END_TEST

static atomic_uint failures; /* of removals of markers to come */

static int64_t keeps_markers(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_RMDIR || atomic_load(&failures) == 0)
        return call_next(c);
    atomic_fetch_sub(&failures, 1);
    return op_fail(c->op, -EACCES, "rmdir %s: the store keeps it", c->key);
}

/* What has no marker of its own comes to a name whose marker can't be removed then. */
START_TEST(a_marker_that_stays_says_nothing_of_the_directory_that_takes_its_name)
{
    struct driven d;
    struct stat st;
    char text[8];

    driven_init_like_s3(&d, keeps_markers);
    d.config.retry_ns = 10 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "old"), 0);
    ck_assert_int_eq(driven_chmod(&d, "old", 0700), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    driven_put(&d, "new/f", "text", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&failures, UINT_MAX);
    ck_assert_int_eq(driven_rename(&d, "old", "other"), 0);
    ck_assert_int_eq(driven_rename(&d, "new", "old"), 0);
    DRIVEN_WAIT(driven_stored(&d, "old/f", text, sizeof(text)) == 4);
    atomic_store(&failures, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "old", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, d.config.dir_mode);
    ck_assert_int_eq(driven_stat(&d, "other", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    driven_shows(&d, "old/f", "text");
    driven_release(&d);
}
END_TEST

static atomic_bool held;

/* And the marker that takes the place of the one that is to go: the row of that would end. */
static int64_t holds_a_file(struct layer *l, struct call *c)
{
    bool holds = (c->kind == CALL_PUT && strcmp(c->key, "a/b/held") == 0) ||
                 (c->kind == CALL_MKDIR && strcmp(c->key, "a/b/old/sub") == 0);

    (void)l;
    while (holds && atomic_load(&held))
        (void)usleep(1000);
    return call_next(c);
}

/* The store has the marker of a directory whose removal waits for a file. */
START_TEST(what_took_the_name_of_a_removed_directory_does_not_show_its_attributes)
{
    struct driven d;
    struct cache_stats s;
    struct stat st;

    driven_init_like_s3(&d, holds_a_file);
    d.config.list_timeout_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b/old"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b/old/sub"), 0);
    ck_assert_int_eq(driven_chmod(&d, "a/b/old/sub", 0711), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b/new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b/new/sub"), 0);
    driven_put(&d, "a/b/new/sub/f", "text", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    atomic_store(&held, true);
    driven_put(&d, "a/b/held", "text", 4);
    ck_assert_int_eq(driven_rmdir(&d, "a/b/old/sub"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "a/b/old"), 0);
    ck_assert_int_eq(driven_rename(&d, "a/b/new", "a/b/old"), 0);
    /* The rename has become three removals, and the one of the name's former marker is gone. */
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.pending_ops == 4));
    ck_assert_int_eq(driven_list(&d, "a/b/old/sub"), 1);
    ck_assert_int_eq(driven_stat(&d, "a/b/old/sub", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, d.config.dir_mode);
    atomic_store(&held, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "a/b/old/sub", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, d.config.dir_mode);
    driven_release(&d);
}
END_TEST

static _Atomic enum answer removals, rmdirs, copies, markers; /* answers to such requests */
static atomic_uint removals_asked, copies_asked;

static int64_t answer_to(struct call *c, _Atomic enum answer *to)
{
    while (atomic_load(to) == LATER)
        (void)usleep(1000);
    if (atomic_load(to) == LOST)
        return op_fail(c->op, -EIO, "nobody is left to be answered");
    return call_next(c);
}

static int64_t as_told(struct layer *l, struct call *c)
{
    (void)l;
    atomic_fetch_add(&removals_asked, c->kind == CALL_REMOVE);
    atomic_fetch_add(&copies_asked, c->kind == CALL_COPY);
    return c->kind == CALL_REMOVE  ? answer_to(c, &removals)
           : c->kind == CALL_RMDIR ? answer_to(c, &rmdirs)
           : c->kind == CALL_COPY  ? answer_to(c, &copies)
           : c->kind == CALL_MKDIR ? answer_to(c, &markers)
                                   : call_next(c);
}

static void let_be(void)
{
}

static void lose_markers(void)
{
    atomic_store(&markers, LOST);
}

enum way { MADE_AGAIN, MOVED_THERE, MADE_BELOW_AGAIN, WAYS };

/* Another directory takes the name above/last, whose marker the store has still. */
static void take_the_name(struct driven *d, enum way way)
{
    struct handle *h;

    if (way == MADE_BELOW_AGAIN) {
        atomic_store(&copies, LATER); /* what is to be removed then, is not known yet */
        ck_assert_int_eq(driven_rename(d, "above", "away"), 0);
        DRIVEN_WAIT(atomic_load(&copies_asked) == 1);
        ck_assert_int_eq(driven_mkdir(d, "above"), 0);
        ck_assert_int_eq(driven_mkdir(d, "above/last"), 0);
        atomic_store(&copies, NOW);
        return;
    }
    ck_assert_int_eq(driven_rmdir(d, "above/last"), 0);
    if (way == MADE_AGAIN) {
        ck_assert_int_eq(driven_mkdir(d, "above/last"), 0);
        return;
    }
    ck_assert_int_eq(driven_mkdir(d, "made"), 0);
    ck_assert_int_eq(driven_open(d, "made/g", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_rename(d, "made", "above/last"), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
}

/* It has a file that is stored, but no marker. */
static void replace_while_removals_wait(struct driven *d, enum way way)
{
    atomic_store(&removals, NOW);
    atomic_store(&rmdirs, NOW);
    atomic_store(&markers, NOW);
    atomic_store(&copies, NOW);
    atomic_store(&removals_asked, 0);
    atomic_store(&copies_asked, 0);
    driven_init_like_s3(d, as_told);
    d->config.late_ns = d->config.settle_ns = 0;
    driven_mount(d);
    driven_put(d, "other", "x", 1);
    ck_assert_int_eq(driven_mkdir(d, "above"), 0);
    driven_put(d, "above/f", "f", 1);
    ck_assert_int_eq(driven_mkdir(d, "above/last"), 0);
    ck_assert_int_eq(driven_chmod(d, "above/last", 0702), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&removals, LATER); /* others wait for the first */
    ck_assert_int_eq(driven_unlink(d, "other"), 0);
    DRIVEN_WAIT(atomic_load(&removals_asked) == 1);
    take_the_name(d, way);
    driven_put(d, "above/last/f", "f", 1);
    DRIVEN_WAIT(strcmp(driven_state(d, "above/last/f"), "clean") == 0);
}

/* A rename brings what is in the directory, and not the attributes of the one that had its name
 * before. */
START_TEST(a_marker_of_the_directory_before_is_not_renamed)
{
    bool killed = _i / WAYS;
    struct driven d;
    struct stat st;

    replace_while_removals_wait(&d, (enum way)(_i % WAYS));
    at("renamedir-taken", killed ? lose_markers : let_be);
    ck_assert_int_eq(driven_rename(&d, "above/last", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&done));
    crash_watch(NULL);
    if (killed) {
        atomic_store(&removals, LOST);
        driven_unmount(&d);
        atomic_store(&markers, NOW);
        driven_mount(&d);
    }
    atomic_store(&removals, NOW);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, "moved/f", "f");
    ck_assert_int_eq(driven_stat(&d, "moved", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, d.config.dir_mode);
    driven_release(&d);
}
END_TEST

/* A mount that was killed has all directories listed anew: that marker tells it nothing.
 * Neither does the directory have one yet when it becomes empty. */
START_TEST(a_marker_of_the_directory_before_is_not_shown)
{
    bool emptied = _i / WAYS;
    struct driven d;
    struct stat st;

    replace_while_removals_wait(&d, (enum way)(_i % WAYS));
    atomic_store(&removals, LOST);
    driven_unmount(&d);
    atomic_store(&removals, NOW);
    atomic_store(&rmdirs, LATER);
    driven_mount(&d);
    ck_assert_int_ge(driven_list(&d, "above/last"), 1);
    ck_assert_int_eq(driven_stat(&d, "above/last", &st), 0);
    if (emptied) {
        ck_assert_int_eq(driven_unlink(&d, "above/last/f"), 0);
        (void)driven_unlink(&d, "above/last/g");
        atomic_store(&rmdirs, NOW);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_mount_afresh(&d);
        ck_assert_int_eq(driven_stat(&d, "above/last", &st), 0);
    }
    ck_assert_uint_eq(st.st_mode & 07777, d.config.dir_mode);
    atomic_store(&rmdirs, NOW);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_markers");
    TCase *t = tcase_create("cache_markers");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_marker_of_the_replaced_directory_comes_late);
    tcase_add_test(t, a_marker_of_the_replaced_directory_that_a_killed_daemon_sent);
    tcase_add_test(t, nothing_is_owed_above_when_the_last_marker_is_stored);
    tcase_add_loop_test(t, a_marker_does_not_come_while_names_in_its_directory_go, 0, 2);
    tcase_add_test(t, a_marker_does_not_come_while_a_directory_in_its_own_is_replaced);
    tcase_add_test(t, a_marker_that_stays_says_nothing_of_the_directory_that_takes_its_name);
    tcase_add_test(t, what_took_the_name_of_a_removed_directory_does_not_show_its_attributes);
    tcase_add_loop_test(t, a_marker_of_the_directory_before_is_not_renamed, 0, 2 * WAYS);
    tcase_add_loop_test(t, a_marker_of_the_directory_before_is_not_shown, 0, 2 * WAYS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
