/* cache/: a policy whose new files wait for their rename. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0, .policy = 1},
    {.path = "b/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

static struct routed_world w;

static void setup(void)
{
    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    w.policies[1].upload = UPLOAD_RENAME;
}

static void teardown(void)
{
    routed_release(&w);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

static void mount_renaming(void)
{
    struct stat st;

    driven_mount(&w.d);
    if (driven_stat(&w.d, "a", &st) != 0)
        ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
}

static void unmount_by_a_kill(void)
{
    driven_unmount(&w.d);
    driven_mount(&w.d);
}

/* What was closed before it, and does not wait, is in the store. */
static void wait_for_later(const char *name)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "b/%s", name);
    put(path, "later");
    DRIVEN_WAIT(routed_has(&w, 1, path));
}

static void renamed(const char *from, const char *to)
{
    ck_assert_int_eq(driven_rename(&w.d, from, to), 0);
}

START_TEST(a_new_file_waits_for_its_rename)
{
    struct cache_stats s;

    mount_renaming();
    put("a/x", "1");
    put("a/train.log", "l");
    ck_assert_int_eq(driven_symlink(&w.d, "x", "a/link"), 0);
    wait_for_later("one");
    ck_assert(!routed_has(&w, 0, "a/x"));
    DRIVEN_WAIT(routed_has(&w, 0, "a/train.log") && routed_has(&w, 0, "a/link"));
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.staged_files, 1);
    if (_i == 0) {
        renamed("a/x", "a/y");
    } else if (_i == 1) { /* and back */
        renamed("a/x", "a/z");
        renamed("a/z", "a/x");
    } else if (_i == 2) {
        ck_assert_int_eq(driven_link(&w.d, "a/x", "a/y"), 0);
    } else {
        put("a/y", "2");
        ck_assert_int_eq(driven_exchange(&w.d, "a/x", "a/y"), 0);
    }
    DRIVEN_WAIT(routed_has(&w, 0, _i == 1 ? "a/x" : "a/y"));
    routed_stores(&w, 0, _i == 1 ? "a/x" : "a/y", "1");
    put("a/new", "3");
    ck_assert_int_eq(driven_flush(&w.d), 0); /* of everything: also of what waits */
    routed_stores(&w, 0, "a/new", "3");
}
END_TEST

/* What a program writes into a directory that it renames then. */
START_TEST(a_new_file_waits_for_the_rename_of_a_directory_above)
{
    mount_renaming();
    ck_assert_int_eq(driven_mkdir(&w.d, "a/part"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "a/part/sub"), 0);
    put("a/part/x", "1");
    put("a/part/sub/y", "2");
    wait_for_later("one");
    ck_assert(!routed_has(&w, 0, "a/part/x") && !routed_has(&w, 0, "a/part/sub/y"));
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, _i != 0);
    renamed("a/part", "a/whole");
    if (_i) {
        for (size_t i = 0; i < ROUTED_LEAVES; i++)
            atomic_store(&w.leaves[i].no_puts, false);
        unmount_by_a_kill();
    }
    DRIVEN_WAIT(routed_has(&w, 0, "a/whole/x") && routed_has(&w, 0, "a/whole/sub/y"));
    routed_stores(&w, 0, "a/whole/sub/y", "2");
}
END_TEST

START_TEST(a_new_file_waits_on_after_a_kill)
{
    mount_renaming();
    put("a/x", "1");
    put("a/y", "2");
    unmount_by_a_kill();
    wait_for_later("one");
    ck_assert(!routed_has(&w, 0, "a/x") && !routed_has(&w, 0, "a/y"));
    renamed("a/x", "a/z");
    unmount_by_a_kill();
    DRIVEN_WAIT(routed_has(&w, 0, "a/z"));
    ck_assert(!routed_has(&w, 0, "a/y"));
    w.policies[1].upload = UPLOAD_CLOSE;
    unmount_by_a_kill();
    DRIVEN_WAIT(routed_has(&w, 0, "a/y"));
    routed_stores(&w, 0, "a/y", "2");
}
END_TEST

START_TEST(a_stored_file_goes_up_when_it_is_closed)
{
    routed_store(&w, 0, "a/theirs", "1");
    mount_renaming();
    put("a/renamed.part", "1");
    renamed("a/renamed.part", "a/renamed");
    put("a/flushed", "1");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    put("a/renamed", "22");
    put("a/flushed", "22");
    put("a/theirs", "22");
    static const char *const names[] = {"a/renamed", "a/flushed", "a/theirs"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct stat st;
        DRIVEN_WAIT((driven_stat(&w.d, names[i], &st) == 0 &&
                     strcmp(driven_state(&w.d, names[i]), "clean") == 0));
        routed_stores(&w, 0, names[i], "22");
    }
}
END_TEST

START_TEST(a_close_waits_for_the_store_though_the_file_waits_for_its_rename)
{
    struct handle *h;

    w.policies[1].durability = DURABILITY_STORE;
    mount_renaming();
    ck_assert_int_eq(driven_open(&w.d, "a/x", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "x", 1, 0), 0);
    ck_assert_int_eq(driven_fsync(&w.d, h), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    renamed("a/x", "a/y");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/y", "x");
    routed_stores(&w, 0, "a/x", NULL);
}
END_TEST

/* As `runfs flush PATH` does it without --staged. */
static int flush_plainly(const char *path, unsigned flags)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_flush_path(w.d.cache, path, flags, &op, NULL, NULL);
}

/* The name is free before the new file goes up, and nobody waits for that. */
START_TEST(what_had_its_name_is_removed)
{
    struct stat st;

    routed_store(&w, 0, "a/x", "old");
    mount_renaming();
    ck_assert_int_eq(driven_stat(&w.d, "a/x", &st), 0);
    if (_i)
        renamed("a/x", "a/x.bak");
    else
        ck_assert_int_eq(driven_unlink(&w.d, "a/x"), 0);
    put("a/x", "new");
    ck_assert_int_eq(flush_plainly("", 0), 0);
    routed_stores(&w, 0, "a/x", NULL);
    routed_stores(&w, 0, "a/x.bak", _i ? "old" : NULL);
    renamed("a/x", "a/y");
    ck_assert_int_eq(flush_plainly("", 0), 0);
    routed_stores(&w, 0, "a/y", "new");
}
END_TEST

static void *flush_staged(void *arg)
{
    static int r;

    r = flush_plainly(arg, CACHE_FLUSH_STAGED);
    return &r;
}

START_TEST(what_was_appended_meanwhile_goes_up_when_it_is_closed)
{
    static char path[] = "a/x";
    struct handle *h;
    struct cache_stats s;
    pthread_t flusher;
    void *r;

    mount_renaming();
    put(path, "1");
    ck_assert_int_eq(driven_open(&w.d, path, O_WRONLY | O_APPEND, &h), 0);
    atomic_store(&w.leaves[0].stuck, true);
    ck_assert_int_eq(pthread_create(&flusher, NULL, flush_staged, path), 0);
    DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.uploading_files == 1));
    ck_assert_int_eq(driven_write(&w.d, h, "2", 1, 1), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    atomic_store(&w.leaves[0].stuck, false);
    ck_assert_int_eq(pthread_join(flusher, &r), 0);
    ck_assert_int_eq(*(int *)r, 0);
    DRIVEN_WAIT(strcmp(driven_state(&w.d, path), "clean") == 0);
    routed_stores(&w, 0, path, "12");
}
END_TEST

/* It is whole, and open: a flush leaves it where it is all the same. */
START_TEST(an_open_file_waits_for_its_rename)
{
    struct handle *h;

    mount_renaming();
    ck_assert_int_eq(driven_open(&w.d, "a/x", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_fsync(&w.d, h), 0);
    ck_assert_int_eq(flush_plainly("", 0), 0);
    ck_assert(!routed_has(&w, 0, "a/x"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    wait_for_later("one");
    ck_assert(!routed_has(&w, 0, "a/x"));
    renamed("a/x", "a/y");
    DRIVEN_WAIT(routed_has(&w, 0, "a/y"));
}
END_TEST

/* Nobody waits for a file that its writer may hold for ever, nor for what had its name. */
START_TEST(a_half_file_is_told_of)
{
    struct handle *h;
    struct stat st;

    routed_store(&w, 0, "a/x", "old");
    mount_renaming();
    ck_assert_int_eq(driven_stat(&w.d, "a/x", &st), 0);
    atomic_store(&w.leaves[1].stuck, true);
    put("b/first", "1"); /* the removal waits for it */
    if (_i)
        ck_assert_int_eq(driven_unlink(&w.d, "a/x"), 0);
    const char *path = _i ? "a/x" : "a/y";
    ck_assert_int_eq(driven_open(&w.d, path, O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    atomic_store(&w.leaves[1].stuck, false);
    ck_assert_int_eq(flush_plainly("", 0), -ETXTBSY);
    ck_assert_int_eq(flush_plainly("", CACHE_FLUSH_STAGED), -ETXTBSY);
    ck_assert_int_eq(flush_plainly("", CACHE_FLUSH_HALF), 0);
    ck_assert(!routed_has(&w, 0, "a/y"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, path, "1");
}
END_TEST

static uint64_t stored_bytes(unsigned leaf, const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, NS_PER_SEC);
    int r = store_stat(w.leaves[leaf].layer->base.next, &op, key, &obj);
    const uint64_t size = r == 0 ? obj.size : 0;
    object_release(&obj);
    return size;
}

/* Whatever its directory is called, before and after. */
START_TEST(a_log_goes_up_while_it_is_open)
{
    struct handle *h;

    w.d.config.upload_interval_ns = 10 * NS_PER_MS;
    mount_renaming();
    ck_assert_int_eq(driven_mkdir(&w.d, "b/tmp-d"), 0);
    ck_assert_int_eq(driven_open(&w.d, "b/tmp-d/x.log", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    DRIVEN_WAIT(routed_has(&w, 1, "b/tmp-d/x.log"));
    ck_assert_int_eq(driven_write(&w.d, h, "2", 1, 1), 0);
    if (_i)
        ck_assert_int_eq(flush_plainly("", 0), 0);
    renamed("b/tmp-d", "b/d");
    DRIVEN_WAIT(routed_has(&w, 1, "b/d/x.log"));
    ck_assert_int_eq(driven_write(&w.d, h, "3", 1, 2), 0);
    DRIVEN_WAIT(stored_bytes(1, "b/d/x.log") == 3);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

static bool no_upload_runs(void)
{
    cache_lock(w.d.cache);
    bool none = w.d.cache->queue->uploads_running == 0;
    cache_unlock(w.d.cache);
    return none;
}

/* Also where a flush asked for it, and gave up. */
START_TEST(an_open_file_waits_on_after_a_flush_that_failed)
{
    struct handle *h;
    struct op op;

    mount_renaming();
    ck_assert_int_eq(driven_open(&w.d, "a/x", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_fsync(&w.d, h), 0);
    atomic_store(&w.leaves[0].no_puts, true);
    op_init(&op, NS_PER_SEC);
    ck_assert_int_lt(cache_flush_path(w.d.cache, "a/x", CACHE_FLUSH_STAGED, &op, NULL, NULL),
                     0);
    DRIVEN_WAIT(no_upload_runs()); /* one may have begun for the flush */
    atomic_store(&w.leaves[0].no_puts, false);
    ck_assert_int_eq(flush_plainly("", 0), 0);
    wait_for_later("one");
    ck_assert(!routed_has(&w, 0, "a/x"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

/* Nothing is left to be renamed when that name is gone. */
START_TEST(another_name_under_a_pattern_is_no_matter)
{
    mount_renaming();
    atomic_store(&w.leaves[1].no_puts, true);
    put("b/x", "1");
    put("b/y", "2");
    ck_assert_int_eq(driven_link(&w.d, "b/x", "b/x.tmp"), 0);
    if (_i)
        renamed("b/y", "b/x.tmp");
    else
        ck_assert_int_eq(driven_unlink(&w.d, "b/x.tmp"), 0);
    atomic_store(&w.leaves[1].no_puts, false);
    DRIVEN_WAIT(routed_has(&w, 1, "b/x"));
}
END_TEST

START_TEST(a_directory_that_gets_its_name_back_was_renamed)
{
    mount_renaming();
    ck_assert_int_eq(driven_mkdir(&w.d, "a/part"), 0);
    put("a/part/x", "1");
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, true);
    renamed("a/part", "a/other");
    if (_i == 1)
        unmount_by_a_kill();
    renamed("a/other", "a/part");
    if (_i == 2)
        unmount_by_a_kill();
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, false);
    DRIVEN_WAIT(routed_has(&w, 0, "a/part/x"));
    routed_stores(&w, 0, "a/part/x", "1");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_upload_rename");
    TCase *t = tcase_create("upload: rename");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_new_file_waits_for_its_rename, 0, 4);
    tcase_add_loop_test(t, a_new_file_waits_for_the_rename_of_a_directory_above, 0, 2);
    tcase_add_test(t, a_new_file_waits_on_after_a_kill);
    tcase_add_test(t, a_stored_file_goes_up_when_it_is_closed);
    tcase_add_test(t, a_close_waits_for_the_store_though_the_file_waits_for_its_rename);
    tcase_add_loop_test(t, what_had_its_name_is_removed, 0, 2);
    tcase_add_test(t, what_was_appended_meanwhile_goes_up_when_it_is_closed);
    tcase_add_test(t, an_open_file_waits_for_its_rename);
    tcase_add_loop_test(t, a_half_file_is_told_of, 0, 2);
    tcase_add_test(t, an_open_file_waits_on_after_a_flush_that_failed);
    tcase_add_loop_test(t, another_name_under_a_pattern_is_no_matter, 0, 2);
    tcase_add_loop_test(t, a_log_goes_up_while_it_is_open, 0, 2);
    tcase_add_loop_test(t, a_directory_that_gets_its_name_back_was_renamed, 0, 3);
    suite_add_tcase(s, t);
    return suite_run(s);
}
