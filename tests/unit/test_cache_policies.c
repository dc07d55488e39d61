/* cache/: what a file's route says of it: when it goes up, what is staged, what is a log, who
 * wins; and what is in no store at all. */
#include "cache/offline.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0, .policy = 1},
    {.path = "b/**", .leaf = 1, .policy = 2},
    {.path = "tmp/**", .scratch = true, .policy = 3},
    {.path = "runs/{run}/tmp/**", .scratch = true, .policy = 3},
    {.path = "**", .leaf = 2},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct routed_world w;

static void setup(void)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.policies[3].upload = UPLOAD_NEVER;
}

static void teardown(void)
{
    routed_release(&w);
}

static void mount_with_dirs(void)
{
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

START_TEST(staging_names_are_those_of_the_route)
{
    static char ours[] = "*.part:tmp.*";
    struct cache_stats s;

    w.policies[1].staging = ours;
    mount_with_dirs();
    put("a/x.part", "1"); /* is renamed later */
    put("a/x.tmp", "2");  /* is what it is */
    put("b/x.part", "3");
    put("b/x.tmp", "4"); /* as the mount says */
    DRIVEN_WAIT(routed_has(&w, 0, "a/x.tmp") && routed_has(&w, 1, "b/x.part"));
    ck_assert(!routed_has(&w, 0, "a/x.part") && !routed_has(&w, 1, "b/x.tmp"));
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.staged_files, 2);
    ck_assert_int_eq(driven_rename(&w.d, "a/x.part", "a/x"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/x", "1");
}
END_TEST

START_TEST(open_logs_are_those_of_the_route)
{
    static char ours[] = "out.*";
    struct handle *h[4];

    w.d.config.upload_interval_ns = 600 * NS_PER_SEC;
    w.policies[1].logs = ours;
    w.policies[1].interval_ns = 10 * NS_PER_MS;
    w.policies[2].upload = UPLOAD_INTERVAL; /* all of them, as often as the mount says */
    mount_with_dirs();
    const char *const names[] = {"a/out.txt", "a/train.log", "b/any", "train.log"};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(driven_open(&w.d, names[i], O_CREAT | O_WRONLY, &h[i]), 0);
        ck_assert_int_eq(driven_write(&w.d, h[i], "x", 1, 0), 0);
    }
    DRIVEN_WAIT(routed_has(&w, 0, "a/out.txt"));
    ck_assert(!routed_has(&w, 0, "a/train.log"));
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(driven_close(&w.d, h[i]), 0);
}
END_TEST

START_TEST(a_route_has_an_interval_of_its_own_for_all_its_files)
{
    struct handle *h, *other;

    w.d.config.upload_interval_ns = 600 * NS_PER_SEC;
    w.policies[2].upload = UPLOAD_INTERVAL;
    w.policies[2].interval_ns = 10 * NS_PER_MS;
    mount_with_dirs();
    ck_assert_int_eq(driven_open(&w.d, "a/any", O_CREAT | O_WRONLY, &other), 0);
    ck_assert_int_eq(driven_write(&w.d, other, "x", 1, 0), 0);
    ck_assert_int_eq(driven_open(&w.d, "b/any", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "x", 1, 0), 0);
    DRIVEN_WAIT(routed_has(&w, 1, "b/any"));
    ck_assert(!routed_has(&w, 0, "a/any"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(driven_close(&w.d, other), 0);
}
END_TEST

START_TEST(a_route_settles_as_long_as_it_says)
{
    w.d.config.settle_ns = 600 * NS_PER_SEC;
    w.policies[1].settle_ns = 0;
    mount_with_dirs();
    put("b/x", "1");
    put("a/x", "1");
    DRIVEN_WAIT(routed_has(&w, 0, "a/x"));
    ck_assert(!routed_has(&w, 1, "b/x"));
}
END_TEST

START_TEST(a_new_directory_waits_for_its_first_name_where_files_do_not)
{
    w.d.config.settle_ns = 600 * NS_PER_SEC;
    w.policies[1].settle_ns = 0;
    mount_with_dirs();
    ck_assert_int_eq(driven_mkdir(&w.d, "a/new"), 0);
    put("a/x", "1");
    DRIVEN_WAIT(routed_has(&w, 0, "a/x"));
    put("a/y", "1"); /* comes after what was due before */
    DRIVEN_WAIT(routed_has(&w, 0, "a/y"));
    ck_assert(!routed_has(&w, 0, "a/new"));
}
END_TEST

START_TEST(a_close_waits_for_the_store_where_the_route_says_so)
{
    w.policies[1].durability = DURABILITY_STORE;
    mount_with_dirs();
    ck_assert_int_eq(driven_flush(&w.d), 0);
    put("a/x", "1");
    ck_assert(routed_has(&w, 0, "a/x"));
    atomic_store(&w.leaves[1].down, true);
    put("b/x", "1"); /* else it would not return */
    atomic_store(&w.leaves[1].down, false);
}
END_TEST

START_TEST(the_last_writer_wins_where_the_route_says_so)
{
    struct cache_stats s;

    w.policies[2].conflict = CONFLICT_LAST;
    mount_with_dirs();
    put("a/x", "old");
    put("b/x", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (size_t i = 0; i < 2; i++)
        atomic_store(&w.leaves[i].down, true);
    put("a/x", "ours");
    put("b/x", "ours");
    routed_store(&w, 0, "a/x", "theirs");
    routed_store(&w, 1, "b/x", "theirs");
    for (size_t i = 0; i < 2; i++)
        atomic_store(&w.leaves[i].down, false);
    (void)driven_flush(&w.d);
    DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.dirty_files == 0));
    ck_assert_uint_eq(s.kept_files, 1);
    routed_stores(&w, 0, "a/x", "theirs");
    routed_stores(&w, 1, "b/x", "ours");
}
END_TEST

/* ---- scratch ---- */

static void fill_scratch(void)
{
    /* What was listed is not asked for again, however long it takes. */
    w.d.config.list_timeout_ns = w.d.config.attr_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "tmp/dir"), 0);
    put("tmp/dir/file", "x");
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    put("runs/a/kept", "k");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    /* The first name began a listing of the root for which nobody waited. */
    ck_assert_int_ge(driven_list(&w.d, ""), 2);
}

START_TEST(scratch_is_asked_of_nobody_and_owed_to_nobody)
{
    struct cache_stats s;
    struct stat st;

    fill_scratch();
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_stat(&w.d, "tmp/none", &st), -ENOENT);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/tmp"), 0);
    put("runs/a/tmp/x", "1");
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a/tmp/x", 0600), 0);
    ck_assert_int_eq(driven_chmod(&w.d, "tmp/dir", 0700), 0);
    ck_assert_int_eq(driven_symlink(&w.d, "x", "runs/a/tmp/link"), 0);
    ck_assert_int_eq(driven_link(&w.d, "runs/a/tmp/x", "tmp/y"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "tmp/dir", "runs/a/tmp/dir"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/tmp/dir/file", "tmp/file"), 0);
    driven_shows(&w.d, "tmp/file", "x");
    ck_assert_int_eq(driven_unlink(&w.d, "tmp/y"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/tmp/dir"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "tmp/file", "runs/a/file"), -EXDEV);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/kept", "tmp/kept"), -EXDEV);
    ck_assert_int_eq(driven_list(&w.d, "tmp"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/a/tmp"), 2);
    ck_assert_str_eq(driven_state(&w.d, "tmp/file"), "local");
    ck_assert_int_eq(driven_rmdir(&w.d, "tmp"), -EBUSY);
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.dirty_files, 0);
    ck_assert_uint_eq(s.pending_ops, 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_uint_eq(routed_requests(&w), before);
    driven_shows(&w.d, "tmp/file", "x");
}
END_TEST

START_TEST(scratch_moves_with_the_directory_around_it)
{
    fill_scratch();
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/tmp"), 0);
    put("runs/a/tmp/x", "1");
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/b"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 2, "runs/a/kept", NULL);
    routed_stores(&w, 2, "runs/b/kept", "k");
    driven_shows(&w.d, "runs/b/tmp/x", "1");
    ck_assert_str_eq(driven_state(&w.d, "runs/b/tmp/x"), "local");
    ck_assert_str_eq(driven_state(&w.d, "runs/b/tmp"), "local");
    driven_end(&w.d);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs/b"), 1);
}
END_TEST

START_TEST(scratch_ends_with_the_mount)
{
    struct stat st;

    fill_scratch();
    if (_i)
        driven_end(&w.d);
    else
        driven_unmount(&w.d); /* a kill */
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "tmp"), 0);
    ck_assert_int_eq(driven_stat(&w.d, "tmp/dir", &st), -ENOENT);
    driven_shows(&w.d, "runs/a/kept", "k");
}
END_TEST

START_TEST(an_open_scratch_file_is_not_flushed)
{
    struct handle *h;

    w.d.config.durability = DURABILITY_STORE;
    fill_scratch();
    ck_assert_int_eq(driven_open(&w.d, "tmp/open", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "x", 1, 0), 0);
    ck_assert_int_eq(driven_fsync(&w.d, h), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(driven_truncate(&w.d, "tmp/open", 0), 0);
}
END_TEST

/* A file gets its name only when it is linked. */
static void link_unnamed(const char *name)
{
    const struct cache_cred cred = {.umask = 022};
    struct node *n, *again = NULL, *root = cache_root(w.d.cache), *dir = NULL;
    struct waiter none = {0};
    struct handle *h;
    struct stat st;

    ck_assert_int_eq(cache_lookup(w.d.cache, root, "tmp", &none, &dir, &st), 0);
    ck_assert_int_eq(
        cache_tmpfile(w.d.cache, dir, S_IRUSR | S_IWUSR, O_RDWR, &cred, NULL, &n, &st, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "x", 1, 0), 0);
    ck_assert_int_eq(cache_link(w.d.cache, n, dir, name, &none, &again, &st), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    cache_forget(w.d.cache, n, 1);
    cache_forget(w.d.cache, again, 1);
    cache_forget(w.d.cache, dir, 1);
}

/* A link into scratch fails first: something has the name in the mirror, past the cache. */
static void link_unnamed_elsewhere(const char *taken, const char *dir_path, const char *name)
{
    const struct cache_cred cred = {.umask = 022};
    struct node *n, *again = NULL, *root = cache_root(w.d.cache), *tmp = NULL, *dir = NULL;
    struct waiter none = {0};
    char path[128];
    struct handle *h;
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/mirror/tmp/%s", w.d.dir, taken);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(cache_lookup(w.d.cache, root, "tmp", &none, &tmp, &st), 0);
    ck_assert_int_eq(cache_lookup(w.d.cache, root, dir_path, &none, &dir, &st), 0);
    ck_assert_int_eq(
        cache_tmpfile(w.d.cache, dir, S_IRUSR | S_IWUSR, O_RDWR, &cred, NULL, &n, &st, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "x", 1, 0), 0);
    ck_assert_int_eq(cache_link(w.d.cache, n, tmp, taken, &none, &again, &st), -EEXIST);
    ck_assert_int_eq(cache_link(w.d.cache, n, dir, name, &none, &again, &st), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(unlink(path), 0);
    cache_forget(w.d.cache, n, 1);
    cache_forget(w.d.cache, again, 1);
    cache_forget(w.d.cache, dir, 1);
    cache_forget(w.d.cache, tmp, 1);
}

/* Else the next mount drops it, and no store ever had it. */
START_TEST(a_link_into_scratch_that_failed_leaves_a_file_that_is_owed)
{
    mount_with_dirs();
    put("tmp/other", "x"); /* now the mirror has the directory */
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, true);
    link_unnamed_elsewhere("taken", "a", "x");
    driven_unmount(&w.d); /* a kill */
    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, false);
    driven_mount(&w.d);
    driven_shows(&w.d, "a/x", "x");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/x", "x");
}
END_TEST

static int count_one(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

/* Neither the routes nor the policies that make it scratch are known then. */
START_TEST(scratch_is_told_from_what_is_owed_by_itself)
{
    unsigned owed = 0;
    struct cache_evicted e;
    struct op op;

    fill_scratch();
    link_unnamed("linked");
    ck_assert_int_eq(driven_symlink(&w.d, "x", "tmp/link"), 0);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_evict_path(w.d.cache, "tmp", &op, NULL, NULL, &e), 0);
    ck_assert_uint_eq(e.stay[CACHE_STAYS_LOCAL], 3);
    ck_assert_uint_eq(e.stay[CACHE_STAYS_DIRTY], 0);
    driven_unmount(&w.d); /* a kill */
    ck_assert_int_eq(recover_list(w.d.dir, &op, count_one, &owed), 0);
    ck_assert_uint_eq(owed, 0);
    w.d.config.routes = NULL;
    free(w.d.store->url);
    w.d.store->url = strdup("another");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "tmp"), -ENOENT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_policies");
    TCase *t = tcase_create("policies");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, staging_names_are_those_of_the_route);
    tcase_add_test(t, open_logs_are_those_of_the_route);
    tcase_add_test(t, a_route_has_an_interval_of_its_own_for_all_its_files);
    tcase_add_test(t, a_route_settles_as_long_as_it_says);
    tcase_add_test(t, a_new_directory_waits_for_its_first_name_where_files_do_not);
    tcase_add_test(t, a_close_waits_for_the_store_where_the_route_says_so);
    tcase_add_test(t, the_last_writer_wins_where_the_route_says_so);
    tcase_add_test(t, scratch_is_asked_of_nobody_and_owed_to_nobody);
    tcase_add_test(t, scratch_moves_with_the_directory_around_it);
    tcase_add_loop_test(t, scratch_ends_with_the_mount, 0, 2);
    tcase_add_test(t, an_open_scratch_file_is_not_flushed);
    tcase_add_test(t, scratch_is_told_from_what_is_owed_by_itself);
    tcase_add_test(t, a_link_into_scratch_that_failed_leaves_a_file_that_is_owed);
    suite_add_tcase(s, t);
    return suite_run(s);
}
