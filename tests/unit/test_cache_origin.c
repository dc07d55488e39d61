/* cache/: which versions at the store are this cache's own. Not what a copy of its directory,
 * or a later life of it that a restored disk has forgotten, put there; but what a daemon that
 * was killed had on its way. */
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_bool refusing;          /* the store takes no change */
static _Atomic(const char *) refused; /* it takes none of this key */
static atomic_int lost;        /* answers to puts that the store takes, still to be lost */
static atomic_bool unanswered; /* the store takes attributes, and nobody hears of it */
static atomic_bool dirs_stay;  /* it removes no directory */
static struct driven d;
static char other[80];                                       /* a copy of the cache directory */
static pthread_mutex_t put_lock = PTHREAD_MUTEX_INITIALIZER; /* guards put_attrs */
static struct attrs put_attrs; /* those of the last put that the store took */

static bool changes(enum call_kind kind)
{
    return kind == CALL_PUT || kind == CALL_REMOVE || kind == CALL_COPY;
}

static bool refuses(const struct call *c)
{
    const char *key = atomic_load(&refused);

    return atomic_load(&refusing) || (key && strcmp(key, c->key) == 0);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (changes(c->kind) && refuses(c))
        return op_fail(c->op, -EACCES, "%s %s: refused", call_name(c->kind), c->key);
    if (c->kind == CALL_RMDIR && atomic_load(&dirs_stay))
        return op_fail(c->op, -EHOSTUNREACH, "%s: no answer", c->key);
    if (c->kind == CALL_PUT && c->attrs) {
        (void)pthread_mutex_lock(&put_lock);
        attrs_release(&put_attrs);
        ck_assert_int_eq(attrs_copy(&put_attrs, c->attrs), 0);
        (void)pthread_mutex_unlock(&put_lock);
    }
    int64_t r = call_next(c);
    if (c->kind == CALL_SETATTR && r >= 0 && atomic_load(&unanswered)) {
        object_release(c->ret_obj);
        return op_fail(c->op, -EIO, "setattr %s: the answer was lost", c->key);
    }
    if (c->kind == CALL_PUT && r >= 0 && atomic_load(&lost) > 0) {
        atomic_fetch_sub(&lost, 1);
        return op_fail(c->op, -EIO, "put %s: the answer was lost", c->key);
    }
    return r;
}

static void setup(void)
{
    atomic_store(&refusing, false);
    atomic_store(&refused, NULL);
    atomic_store(&lost, 0);
    atomic_store(&dirs_stay, false);
    driven_init_like_s3(&d, around);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 50 * NS_PER_MS;
    d.config.late_ns = 1;
    (void)snprintf(other, sizeof(other), "%s.other", d.dir);
}

/* The command finds the cache directory and its copy in its environment, or does not run. */
static void run(const char *command)
{
    auto_free char *text = NULL;

    ck_assert(setenv("CACHE", d.dir, 1) == 0 && setenv("COPY", other, 1) == 0);
    ck_assert_int_ge(asprintf(&text, ": \"${CACHE:?}\" \"${COPY:?}\"; %s", command), 0);
    ck_assert_msg(system(text) == 0, "%s", command);
}

static void teardown(void)
{
    driven_release(&d);
    run("rm -rf \"$COPY\"");
    attrs_release(&put_attrs);
}

static uint64_t kept(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.kept_files;
}

/* Unmounted, with a copy made of the directory; the store takes changes again. */
static void copy_away(void)
{
    driven_unmount(&d);
    run("cp -a \"$CACHE\" \"$COPY\"");
    atomic_store(&refusing, false);
}

/* The original did its work, and the copy is mounted in its place: another directory. */
static void mount_copy(void)
{
    driven_unmount(&d);
    run("rm -rf \"$CACHE\" && mv \"$COPY\" \"$CACHE\"");
    driven_mount(&d);
}

/* The same directory, with what it held when the copy was made: a machine that was rolled back
 * to a snapshot. */
static void roll_back(void)
{
    driven_unmount(&d);
    run("find \"$CACHE\" -mindepth 1 -delete && cp -a \"$COPY/.\" \"$CACHE\"");
    driven_mount(&d);
}

static void (*const comes_back[])(void) = {mount_copy, roll_back};

static void put_flushed(const char *path, const char *text)
{
    driven_put(&d, path, text, strlen(text));
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* A flush tells of a conflict that it sees. */
static void flush_all(void)
{
    DRIVEN_WAIT(driven_flush(&d) == 0);
}

/* ---- another life of the cache directory ---- */

/* What it owed when the two parted, a new version of f. */
static void owe_content(void)
{
    put_flushed("f", "one");
    atomic_store(&refusing, true);
    driven_put(&d, "f", "two", 3);
}

static void owe_first_content(void)
{
    atomic_store(&refusing, true);
    driven_put(&d, "f", "two", 3);
}

static void owe_what_was_renamed_over(void)
{
    put_flushed("f", "one");
    atomic_store(&refusing, true);
    driven_put(&d, "new", "two", 3);
    ck_assert_int_eq(driven_rename(&d, "new", "f"), 0);
}

static void owe_what_changed_places(void)
{
    put_flushed("f", "one");
    put_flushed("g", "two");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_exchange(&d, "f", "g"), 0);
}

/* The store has tried to give another name to what is owed. */
static void owe_what_was_moved_stored(void)
{
    struct handle *h = NULL;

    put_flushed("g", "one");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_open(&d, "g", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "two", 3, 0), 0);
    ck_assert_int_eq(driven_rename(&d, "g", "f"), 0); /* a copy, since it is open */
    atomic_store(&refusing, false);
    DRIVEN_WAIT(driven_stored(&d, "f", (char[8]){0}, 8) == 3);
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

static void (*const owes[])(void) = {
    owe_content,
    owe_first_content,
    owe_what_was_renamed_over,
    owe_what_changed_places,
    owe_what_was_moved_stored,
};
#define OWES ((int)(sizeof(owes) / sizeof(*owes)))

START_TEST(what_is_owed_loses_against_the_other_life)
{
    driven_mount(&d);
    owes[_i / 2]();
    copy_away();
    driven_mount(&d);
    put_flushed("f", "three");
    comes_back[_i % 2]();
    flush_all();
    driven_stores(&d, "f", "three");
    ck_assert_uint_ge(kept(), 1); /* of what changed places, both */
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0 ||
                strcmp(driven_state(&d, "f"), "partial") == 0);
    driven_shows(&d, "f", "three");
}
END_TEST

/* Without another life it is published by the next mount, wherever that has the directory. */
START_TEST(what_is_owed_replaces_what_it_meant_to)
{
    driven_mount(&d);
    owes[_i / 3]();
    copy_away();
    if (_i % 3 < 2)
        comes_back[_i % 3]();
    else
        driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", "two");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

START_TEST(a_removal_spares_what_the_other_life_put)
{
    driven_mount(&d);
    put_flushed("f", "one");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    copy_away();
    driven_mount(&d);
    flush_all();
    put_flushed("f", "three");
    comes_back[_i]();
    flush_all();
    driven_stores(&d, "f", "three");
}
END_TEST

/* Of a name that a rename was to bring: in which version, nobody knew. */
START_TEST(a_copy_does_not_repeat_what_the_original_may_have_done)
{
    driven_mount(&d);
    put_flushed("f", "one");
    put_flushed("g", "two");
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    put_flushed("dir/h", "three");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_rename(&d, "f", "removed"), 0);
    ck_assert_int_eq(driven_unlink(&d, "removed"), 0);
    ck_assert_int_eq(driven_rename(&d, "g", "moved"), 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved-dir"), 0);
    copy_away();
    driven_mount(&d);
    flush_all();
    put_flushed("removed", "new");
    put_flushed("g", "new");
    put_flushed("moved", "newer");
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    put_flushed("dir/h", "new");
    put_flushed("moved-dir/h", "newer");
    mount_copy();
    flush_all();
    driven_stores(&d, "f", NULL);
    driven_stores(&d, "removed", "new");
    driven_stores(&d, "g", "new");
    driven_stores(&d, "moved", "newer");
    driven_stores(&d, "dir/h", "new");
    driven_stores(&d, "moved-dir/h", "newer");
}
END_TEST

/* A cache that was moved, not copied: nothing else carries out what it owes. */
START_TEST(a_moved_cache_loses_nothing)
{
    driven_mount(&d);
    put_flushed("g", "two");
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    put_flushed("dir/h", "three");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_rename(&d, "g", "moved"), 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved-dir"), 0);
    copy_away();
    mount_copy();
    flush_all();
    driven_stores(&d, "moved", "two");
    driven_stores(&d, "moved-dir/h", "three");
    driven_shows(&d, "moved-dir/h", "three");
}
END_TEST

START_TEST(a_copy_is_told)
{
    struct cache_stats s;

    driven_mount(&d);
    cache_get_stats(d.cache, &s);
    ck_assert(!s.copied);
    copy_away();
    mount_copy();
    cache_get_stats(d.cache, &s);
    ck_assert(s.copied);
    driven_unmount(&d);
    driven_mount(&d);
    cache_get_stats(d.cache, &s);
    ck_assert(!s.copied);
}
END_TEST

/* ---- an older version of runfs ---- */

/* What it left: it noted neither where the directory is nor what uploads are to replace, and
 * its puts have the number of the directory. */
static void as_older_version_left_it(void)
{
    run("python3 -c 'import os, sqlite3; "
        "sqlite3.connect(os.environ[\"CACHE\"] + \"/state.db\", "
        "isolation_level=None).execute(\"DROP TABLE put\")'");
    run("rm -f \"$CACHE\"/place \"$CACHE\"/root && setfattr -x user.runfs.mirror "
        "\"$CACHE\"/mirror");
    run("find \"$CACHE\"/mirror -type f | while read -r f; do "
        "v=$(getfattr --only-values -n user.runfs.k \"$f\" 2>/dev/null | "
        "grep -v ' 18446744073709551615 ' | base64 -w 0); "
        "if [ \"$v\" ]; then setfattr -n user.runfs.k -v \"0s$v\" \"$f\"; "
        "else setfattr -x user.runfs.k \"$f\" 2>/dev/null; fi; done; true");
}

START_TEST(what_an_older_version_owed_is_published)
{
    driven_mount(&d);
    owes[_i / 2]();
    driven_unmount(&d);
    as_older_version_left_it();
    if (_i % 2) { /* and the store is away at first */
        driven_mount(&d);
        driven_unmount(&d);
    }
    atomic_store(&refusing, false);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", "two");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* ---- a daemon that was killed ---- */

/* The store took "two", of which this cache does not know: its answer was lost. */
static void put_without_answer(bool first)
{
    struct cache_stats s;
    int64_t retry_ns = d.config.retry_ns;

    d.config.retry_ns = 30 * NS_PER_SEC; /* it is seen to have failed */
    driven_mount(&d);
    d.config.retry_ns = retry_ns;
    if (!first)
        put_flushed("f", "one");
    atomic_store(&lost, 1);
    driven_put(&d, "f", "two", 3);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.failed_files == 1));
    driven_unmount(&d);
    driven_stores(&d, "f", "two");
}

START_TEST(what_was_in_flight_is_ours)
{
    put_without_answer(_i % 2);
    atomic_store(&refusing, _i >= 2);
    driven_mount(&d);
    if (_i >= 2) { /* another content, and another mount between */
        struct handle *h = NULL;
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &h), 0);
        ck_assert_int_eq(driven_write(&d, h, "three", 5, 0), 0);
        (void)driven_close(&d, h); /* may tell of the attempt that failed */
        driven_unmount(&d);
        atomic_store(&refusing, false);
        driven_mount(&d);
    }
    flush_all();
    driven_stores(&d, "f", _i >= 2 ? "three" : "two");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

START_TEST(what_was_in_flight_is_removed)
{
    put_without_answer(_i);
    atomic_store(&refusing, true);
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_unmount(&d);
    atomic_store(&refusing, false);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", NULL);
}
END_TEST

/* The name was a directory's before, whose removal ends in between. */
START_TEST(what_was_in_flight_is_removed_after_a_directory)
{
    struct cache_stats s;

    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "f"), 0);
    flush_all();
    atomic_store(&dirs_stay, true);
    ck_assert_int_eq(driven_rmdir(&d, "f"), 0);
    atomic_store(&lost, 1);
    driven_put(&d, "f", "two", 3);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.failed_files == 1));
    driven_stores(&d, "f", "two");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    atomic_store(&dirs_stay, false);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.pending_ops == 1));
    driven_put(&d, "g", "next", 4);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.failed_files == 1));
    driven_unmount(&d);
    atomic_store(&refusing, false);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", NULL);
}
END_TEST

/* Something else was renamed over it meanwhile. Where versions tell nobody's origin it goes, as
 * it would be removed. */
START_TEST(what_was_in_flight_and_was_replaced_is_no_other_nodes)
{
    if (_i)
        d.store->facts.caps &= ~(unsigned)STORE_ORIGIN;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "g"), 0);
    flush_all();
    driven_unmount(&d);
    put_without_answer(false);
    atomic_store(&refusing, true);
    driven_mount(&d);
    driven_put(&d, "h", "three", 5);
    ck_assert_int_eq(driven_exchange(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_rename(&d, "h", "g"), 0);
    atomic_store(&refusing, false);
    flush_all();
    driven_stores(&d, "g", "three");
    driven_stores(&d, "f", NULL);
}
END_TEST

static bool is_put(const char *key, const char *text)
{
    char data[8] = {0};

    return driven_stored(&d, key, data, sizeof(data) - 1) >= 0 && strcmp(data, text) == 0;
}

/* The store has the new content under one name when the mount ends, and the next mount brings
 * it to the other. */
START_TEST(what_another_name_has_not_got_yet_is_replaced)
{
    const char *const names[] = {"f", "g"}, *const got = names[_i], *const owed = names[!_i];

    driven_mount(&d);
    put_flushed("f", "one");
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    driven_mount(&d);
    atomic_store(&refused, owed);
    driven_put(&d, "f", "two", 3);
    DRIVEN_WAIT(is_put(got, "two"));
    driven_unmount(&d);
    driven_stores(&d, owed, "one");
    atomic_store(&refused, NULL);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", "two");
    driven_stores(&d, "g", "two");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* A directory with f in it and a file g beside it, which the store has from a mount before; the
 * store is to rename the directory, which it refuses. */
static void begin_moved(void)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    put_flushed("dir/f", "one");
    put_flushed("g", "two");
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "dir/f", "one");
    driven_shows(&d, "g", "two");
    atomic_store(&refusing, true);
}

/* The next mount carries it out. */
static void end_moved(const char *f)
{
    driven_unmount(&d);
    atomic_store(&refusing, false);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "dir/f", NULL);
    driven_stores(&d, "moved/f", f);
    ck_assert_uint_eq(kept(), 0);
}

START_TEST(what_changed_places_in_a_moved_directory_is_replaced)
{
    begin_moved();
    driven_put(&d, "g", "three", 5);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_exchange(&d, "moved/f", "g"), 0);
    end_moved("three");
    driven_stores(&d, "g", "one");
}
END_TEST

START_TEST(what_was_renamed_over_in_a_moved_directory_is_replaced)
{
    begin_moved();
    driven_put(&d, "new", "three", 5);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_rename(&d, "new", "moved/f"), 0);
    end_moved("three");
}
END_TEST

/* A mount that was killed had copied the directory, and not noted it. */
START_TEST(what_was_copied_before_a_kill_is_replaced)
{
    begin_moved();
    driven_put(&d, "dir/f", "three", 5);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    driven_store(&d, "moved/f", "one", 3);
    end_moved("three");
}
END_TEST

/* Of two renames of what it replaces the store has carried out the first when the mount ends.
 */
START_TEST(what_was_renamed_over_on_its_way_is_replaced)
{
    const char *const now = _i ? "moved/f" : "dir/f";

    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    put_flushed("a", "one");
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    ck_assert_int_eq(driven_rename(&d, "b", "dir/f"), 0);
    driven_put(&d, "new", "three", 5);
    ck_assert_int_eq(driven_rename(&d, "new", "dir/f"), 0);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    atomic_store(&refused, "b");
    atomic_store(&refusing, false);
    DRIVEN_WAIT(is_put("b", "one") && driven_stored(&d, "a", NULL, 0) == -ENOENT);
    driven_unmount(&d);
    driven_stores(&d, now, NULL);
    atomic_store(&refused, NULL);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "a", NULL);
    driven_stores(&d, "b", NULL);
    if (_i)
        driven_stores(&d, "dir/f", NULL);
    driven_stores(&d, now, "three");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* The same number with a later time: a life that this cache has forgotten. */
START_TEST(what_is_later_than_all_that_was_sent_is_not_ours)
{
    put_without_answer(_i);
    put_attrs.origin_ns++;
    driven_store_with(&d, "f", "later", 5, &put_attrs);
    driven_mount(&d);
    flush_all();
    driven_stores(&d, "f", "later");
    ck_assert_uint_eq(kept(), 1);
}
END_TEST

/* ---- attributes ---- */

#define PART  65536
#define LARGE (64 * PART) /* more than a reader is read ahead at once */

static char large[LARGE];

/* f is at a store where new attributes make a new version, as copies in parts do at S3. */
static void setup_versions(void)
{
    atomic_store(&refusing, false);
    atomic_store(&refused, NULL);
    atomic_store(&lost, 0);
    driven_init(&d, around);
    d.config.part_size = PART;
    memset(large, 'x', sizeof(large));
    (void)snprintf(other, sizeof(other), "%s.other", d.dir);
    driven_store(&d, "f", large, sizeof(large));
    driven_mount(&d);
}

static mode_t stored_mode(void)
{
    struct stat st;

    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    return st.st_mode & 0777;
}

/* New attributes got to the store, but not the answer here, also because the daemon was killed.
 * What the user gives it next is for that version, though none, or some, of its content is
 * here.
 */
START_TEST(attributes_that_got_there_hold_back_no_others)
{
    bool killed = _i % 2, read_some = _i / 2;
    char text[PART];

    if (read_some) {
        ck_assert_int_eq(driven_read(&d, "f", text, sizeof(text)), PART);
        ck_assert_str_eq(driven_state(&d, "f"), "partial");
    }
    atomic_store(&unanswered, true);
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "failed") == 0);
    if (killed) {
        driven_unmount(&d);
        driven_mount(&d);
    }
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
    atomic_store(&unanswered, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_read(&d, "f", text, sizeof(text)), PART);
    ck_assert_mem_eq(text, large, PART);
    ck_assert_uint_eq(stored_mode(), 0640);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_origin");
    TCase *t = tcase_create("origins");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_some_test(t, what_is_owed_loses_against_the_other_life, 0, 2 * OWES, SOME_KINDS);
    tcase_add_some_test(t, what_is_owed_replaces_what_it_meant_to, 0, 3 * OWES, SOME_KINDS);
    tcase_add_loop_test(t, a_removal_spares_what_the_other_life_put, 0, 2);
    tcase_add_test(t, a_copy_does_not_repeat_what_the_original_may_have_done);
    tcase_add_test(t, a_moved_cache_loses_nothing);
    tcase_add_test(t, a_copy_is_told);
    tcase_add_some_test(t, what_an_older_version_owed_is_published, 0, 2 * OWES, SOME_KINDS);
    tcase_add_loop_test(t, what_was_in_flight_is_ours, 0, 4);
    tcase_add_loop_test(t, what_was_in_flight_is_removed, 0, 2);
    tcase_add_test(t, what_was_in_flight_is_removed_after_a_directory);
    tcase_add_loop_test(t, what_was_in_flight_and_was_replaced_is_no_other_nodes, 0, 2);
    tcase_add_loop_test(t, what_another_name_has_not_got_yet_is_replaced, 0, 2);
    tcase_add_test(t, what_changed_places_in_a_moved_directory_is_replaced);
    tcase_add_test(t, what_was_renamed_over_in_a_moved_directory_is_replaced);
    tcase_add_test(t, what_was_copied_before_a_kill_is_replaced);
    tcase_add_loop_test(t, what_was_renamed_over_on_its_way_is_replaced, 0, 2);
    tcase_add_loop_test(t, what_is_later_than_all_that_was_sent_is_not_ours, 0, 2);
    suite_add_tcase(s, t);
    t = tcase_create("attributes");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_versions, teardown);
    tcase_add_loop_test(t, attributes_that_got_there_hold_back_no_others, 0, 4);
    suite_add_tcase(s, t);
    return suite_run(s);
}
