/* cache/: what other nodes do in directories that this node made, and for how long an answer of
 * the store is believed. */
#include "cache/mount.h"
#include "cache/tree/tree_impl.h"
#include "common/mem.h"
#include "common/pool.h"
#include "tests/lib/suite.h"
#include "tests/lib/two_nodes.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANY 1001 /* names; one more than a question tells */

static bool is_queued(const char *path)
{
    mutex_lock(&d.cache->lock);
    struct node *n = tree_find(d.cache, path, NULL);
    bool queued = n && n->dir && debt_is_queued(&n->dir->debt);
    mutex_unlock(&d.cache->lock);
    return queued;
}

START_TEST(what_another_node_puts_there_shows)
{
    struct stat st;
    char back[8];

    driven_store(&d, "step/rank1", "theirs", 6);
    DRIVEN_WAIT(driven_stat(&d, "step/rank1", &st) == 0);
    ck_assert_int_eq(driven_read(&d, "step/rank1", back, sizeof(back)), 6);
    driven_store(&d, "step/rank2", "theirs", 6);
    DRIVEN_WAIT(driven_list(&d, "step") == 3);
    ck_assert_int_eq(driven_unlink(&d, "step/rank0"), 0);
    ck_assert_int_eq(driven_unlink(&d, "step/rank1"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "step"), -ENOTEMPTY);
}
END_TEST

START_TEST(what_another_node_removes_goes)
{
    struct stat st;
    struct op op;

    store_loses("step/rank0");
    DRIVEN_WAIT(driven_stat(&d, "step/rank0", &st) == -ENOENT);
    op_init(&op, 5 * NS_PER_SEC);
    (void)store_rmdir(d.store->next, &op, "step"); /* its marker, if it was told before rank0 */
    DRIVEN_WAIT(driven_stat(&d, "step", &st) == -ENOENT);
}
END_TEST

/* A program reads a file of a directory that another node removes, and the file is gone from
 * the cache's disk: the directory waits for it. */
START_TEST(a_directory_goes_after_what_is_in_it)
{
    struct handle *h;
    struct stat st;
    struct op op;
    char path[128];

    ck_assert_int_eq(driven_open(&d, "step/rank0", O_RDONLY, &h), 0);
    (void)snprintf(path, sizeof(path), "%s/mirror/step/rank0", d.dir);
    ck_assert_int_eq(unlink(path), 0);
    op_init(&op, 5 * NS_PER_SEC);
    store_loses("step/rank0");
    (void)store_rmdir(d.store->next, &op, "step");
    out_of_date();
    ck_assert_int_eq(driven_stat(&d, "step", &st), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    DRIVEN_WAIT(driven_stat(&d, "step", &st) == -ENOENT);
}
END_TEST

static void store_many(const char *dir)
{
    char path[32];

    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "%s/f%04d", dir, i);
        driven_store(&d, path, "x", 1);
    }
}

/* A large directory is renamed, and another node makes one of its old name: who looks for a
 * name in the one is told nothing of the other. */
START_TEST(what_a_renamed_directory_lacks_its_successor_may_have)
{
    struct stat st;

    d.config.list_timeout_ns = 3 * NS_PER_SEC;
    driven_unmount(&d);
    store_many("ckpt");
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "ckpt/none", &st), -ENOENT);
    ck_assert_int_eq(driven_rename(&d, "ckpt", "old"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    store_many("ckpt");
    driven_store(&d, "ckpt/zz", "x", 1);
    (void)usleep(3100000);
    ck_assert_int_eq(driven_stat(&d, "old/zz", &st), -ENOENT);
    ck_assert_int_eq(driven_stat(&d, "ckpt/zz", &st), 0);
}
END_TEST

/* Nor is it believed of a name that an `ls` has shown since: theirs stays, and shows at once.
 */
START_TEST(what_was_shown_since_is_not_absent)
{
    struct stat st;

    driven_unmount(&d);
    d.config.list_timeout_ns = 30 * NS_PER_SEC;
    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    store_many("ckpt");
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "ckpt/zz", &st), -ENOENT);
    driven_store(&d, "ckpt/zz", "first", 5);
    ck_assert_int_eq(driven_list(&d, "ckpt"), MANY + 1);
    driven_put(&d, "ckpt/zz", "mine", 4);
    driven_store(&d, "ckpt/zz", "second", 6);
    (void)driven_flush(&d); /* what was written here is kept aside */
    ck_assert_int_eq(driven_stat(&d, "ckpt/zz", &st), 0);
    driven_shows(&d, "ckpt/zz", "second");
}
END_TEST

/* What was listed and then renamed keeps its inode number; what another node puts under the old
 * name is another file. `cp` takes two of a number for one. */
START_TEST(two_things_have_two_numbers)
{
    const char *const old = _i ? "dir" : "step/latest", *const name = _i ? "dir/f" : old;
    const char *const renamed = _i ? "moved" : "step/previous";
    struct stat was, is, next;

    driven_store(&d, name, "theirs", 6);
    DRIVEN_WAIT(driven_stat(&d, old, &was) == 0);
    ck_assert_int_eq(driven_rename(&d, old, renamed), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int run = 0; run < 2; run++) {
        driven_store(&d, name, "newer", 5);
        DRIVEN_WAIT(driven_stat(&d, old, &next) == 0);
        ck_assert_int_eq(driven_stat(&d, renamed, &is), 0);
        ck_assert_uint_eq(is.st_ino, was.st_ino);
        ck_assert_uint_ne(next.st_ino, is.st_ino);
        driven_unmount(&d);
        driven_mount(&d);
    }
}
END_TEST

/* The numbers of what was renamed are remembered as long as something has them. */
START_TEST(numbers_that_nothing_has_are_forgotten)
{
    char path[32], to[32];
    struct stat was, is;

    driven_store(&d, "theirs", "theirs", 6);
    DRIVEN_WAIT(driven_stat(&d, "theirs", &was) == 0);
    ck_assert_int_eq(driven_rename(&d, "theirs", "moved"), 0);
    store_many("big");
    DRIVEN_WAIT(driven_list(&d, "big") == MANY);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "big/f%04d", i);
        (void)snprintf(to, sizeof(to), "step/f%04d", i);
        ck_assert_int_eq(driven_rename(&d, path, to), 0);
        ck_assert_int_eq(driven_unlink(&d, to), 0);
    }
    ns_write(d.cache);
    mutex_lock(&d.cache->lock);
    inos_purge_locked(d.cache);
    unsigned left = d.cache->tree->own->moved_seen;
    mutex_unlock(&d.cache->lock);
    ns_done(d.cache);
    ck_assert_uint_ge(left, 1);
    ck_assert_uint_lt(left, 10);
    driven_store(&d, "theirs", "newer", 5);
    DRIVEN_WAIT(driven_stat(&d, "theirs", &is) == 0);
    ck_assert_uint_ne(is.st_ino, was.st_ino);
    ck_assert_int_eq(driven_stat(&d, "moved", &is), 0);
    ck_assert_uint_eq(is.st_ino, was.st_ino);
}
END_TEST

START_TEST(an_outage_does_not_hide_it)
{
    struct stat st;

    out_of_date();
    atomic_store(&refuse, true);
    ck_assert_int_eq(driven_list(&d, "step"), 1);
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), 0);
    ck_assert_int_eq(driven_stat(&d, "step/rank1", &st), -ENOENT);
    driven_put(&d, "step/later", "mine", 4);
    ck_assert_int_eq(driven_list(&d, "step"), 2);
    atomic_store(&refuse, false);
}
END_TEST

/* A thousand files a second must not become one round trip each. */
START_TEST(who_fills_it_asks_nothing)
{
    char path[32];
    struct stat st;

    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "step/f%d", i);
        driven_put(&d, path, "", 0);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    out_of_date();
    unsigned before = atomic_load(&questions);
    for (int i = MANY; i < MANY + 10; i++) {
        (void)snprintf(path, sizeof(path), "step/f%d", i);
        ck_assert_int_eq(driven_stat(&d, path, &st), -ENOENT);
    }
    ck_assert_uint_lt(atomic_load(&questions), before + 5); /* of the root, if any */
    driven_store(&d, "step/theirs", "theirs", 6);
    ck_assert_int_eq(driven_list(&d, "step"), MANY + 2);
}
END_TEST

/* ---- answers that take longer than they are believed ---- */

START_TEST(a_slow_answer_is_an_answer)
{
    char back[8];

    ck_assert_int_eq(driven_read(&d, "step/rank0", back, sizeof(back)), 4);
    out_of_date();
    atomic_store(&delay_ms, 300);
    ck_assert_int_eq(driven_read(&d, "step/rank0", back, sizeof(back)), 4);
}
END_TEST

START_TEST(a_slow_answer_about_one_of_many_is_an_answer)
{
    char path[32];
    struct stat st;

    for (int i = 0; i < MANY + 10; i++) {
        (void)snprintf(path, sizeof(path), "many/f%d", i);
        driven_store(&d, path, "", 0);
    }
    DRIVEN_WAIT(driven_stat(&d, "many/f0", &st) == 0);
    out_of_date();
    atomic_store(&delay_ms, 300);
    ck_assert_int_eq(driven_stat(&d, "many/f0", &st), 0);
    ck_assert_int_eq(driven_stat(&d, "many/f999", &st), 0);
}
END_TEST

/* A server's wrong answer made the version count as gone; its listing tells of it again. */
START_TEST(what_is_listed_again_can_be_read)
{
    char back[8];

    d.config.attr_timeout_ns = 60 * NS_PER_SEC;
    driven_mount_afresh(&d);
    atomic_store(&stale, true);
    ck_assert_int_eq(driven_read(&d, "step/rank0", back, sizeof(back)), -ESTALE);
    atomic_store(&stale, false);
    (void)usleep(1100000); /* a failure is told for a second */
    ck_assert_int_eq(driven_read(&d, "step/rank0", back, sizeof(back)), 4);
}
END_TEST

START_TEST(nothing_is_believed)
{
    char back[8];

    driven_unmount(&d);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_read(&d, "step/rank0", back, sizeof(back)), 4);
    ck_assert_int_eq(driven_list(&d, "step"), 1);
}
END_TEST

static bool is_owed(const char *path)
{
    mutex_lock(&d.cache->lock);
    struct node *n = tree_find(d.cache, path, NULL);
    bool owed = !n || n->dir->new_here;
    mutex_unlock(&d.cache->lock);
    return owed;
}

static void nap(struct task *task)
{
    (void)task;
    (void)usleep(300000);
}

/* A chore writes the stamp by which a directory that its names stand for is owed no more. */
START_TEST(an_end_waits_for_chores)
{
    struct task naps[4] = {{.run = nap}, {.run = nap}, {.run = nap}, {.run = nap}};

    for (size_t i = 0; i < ARRAY_SIZE(naps); i++)
        pool_submit(d.cache->chores, &naps[i]);
    ck_assert_int_eq(driven_mkdir(&d, "fresh"), 0);
    driven_put(&d, "fresh/f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    if (_i)
        driven_end(&d);
    else
        driven_unmount(&d);
    driven_mount(&d);
    ck_assert(!is_owed("fresh"));
}
END_TEST

/* A directory that a flush does not find owed, since it waits for its names, is not owed either
 * when these are stored. */
START_TEST(a_flush_settles_what_its_names_stand_for)
{
    driven_unmount(&d);
    d.config.settle_ns = NS_PER_SEC; /* the name comes before its marker is due */
    driven_mount(&d);
    atomic_store(&last, true);
    ck_assert_int_eq(driven_mkdir(&d, "fresh"), 0);
    if (_i)
        driven_put(&d, "fresh/f", "content", 7);
    else
        ck_assert_int_eq(driven_mkdir(&d, "fresh/empty"), 0);
    DRIVEN_WAIT(!is_queued("fresh"));
    ck_assert(is_owed("fresh"));
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_owed("fresh"));
    driven_end(&d);
    driven_mount(&d);
    ck_assert(!is_owed("fresh"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_nodes");
    TCase *t = tcase_create("nodes");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_another_node_puts_there_shows);
    tcase_add_test(t, what_another_node_removes_goes);
    tcase_add_test(t, a_directory_goes_after_what_is_in_it);
    tcase_add_test(t, what_a_renamed_directory_lacks_its_successor_may_have);
    tcase_add_test(t, what_was_shown_since_is_not_absent);
    tcase_add_loop_test(t, two_things_have_two_numbers, 0, 2);
    tcase_add_test(t, numbers_that_nothing_has_are_forgotten);
    tcase_add_test(t, an_outage_does_not_hide_it);
    tcase_add_test(t, who_fills_it_asks_nothing);
    tcase_add_test(t, a_slow_answer_is_an_answer);
    tcase_add_test(t, a_slow_answer_about_one_of_many_is_an_answer);
    tcase_add_test(t, what_is_listed_again_can_be_read);
    tcase_add_test(t, nothing_is_believed);
    tcase_add_loop_test(t, an_end_waits_for_chores, 0, 2);
    tcase_add_loop_test(t, a_flush_settles_what_its_names_stand_for, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
