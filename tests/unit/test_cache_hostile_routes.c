/* Findings of a hostile reader: each test fails as long as its finding stands. */
#include "backends/drivers.h"
#include "backends/routed/routed.h"
#include "tests/lib/routed_pair.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* 1: the other store has no room. */
START_TEST(what_moves_to_a_full_store_stays_in_its_own)
{
    put("a/f", "only copy");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(routed_has(&w, 0, "a/f"));
    atomic_store(&w.leaves[1].full, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/f", "b/f"), 0);
    (void)usleep(1500 * 1000);
    ck_assert_msg(routed_has(&w, 0, "a/f") || routed_has(&w, 1, "b/f"), "no store has it");
}
END_TEST

/* 2: one full store lets removals of all others overtake. */
START_TEST(a_full_store_changes_no_order_in_others)
{
    put("a/old", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[1].full, true);
    put("b/x", "fills");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "b/x"), "failed") == 0);
    atomic_store(&w.leaves[0].no_puts, true);
    put("a/new", "new");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/new"), "failed") == 0);
    ck_assert_int_eq(driven_unlink(&w.d, "a/old"), 0);
    (void)usleep(1500 * 1000);
    ck_assert_msg(routed_has(&w, 0, "a/new") || routed_has(&w, 0, "a/old"),
                  "the removal overtook");
}
END_TEST

/* 3: a writer has it open. */
START_TEST(what_moves_while_open_stays_in_a_store)
{
    struct handle *h = NULL;

    put("a/f", "only copy");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "a/f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "O", 1, 0), 0);
    int r = driven_rename(&w.d, "a/f", "b/f");
    ck_assert(r == 0 || r == -EXDEV);
    (void)usleep(1500 * 1000);
    ck_assert_msg(routed_has(&w, 0, "a/f") || routed_has(&w, 1, "b/f"), "no store has it");
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

/* 8: for a while the first store refuses everything, while the other works. */
START_TEST(a_removal_is_not_given_up_as_another_store_takes_its_own)
{
    put("a/f", "goes");
    put("b/1", "1");
    put("b/2", "2");
    put("b/3", "3");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].refuses, -EACCES); /* credentials ran out */
    ck_assert_int_eq(driven_unlink(&w.d, "a/f"), 0);
    (void)usleep(200 * 1000);
    for (char name[] = "b/1"; name[2] <= '3'; name[2]++) {
        ck_assert_int_eq(driven_unlink(&w.d, name), 0);
        (void)usleep(500 * 1000);
    }
    atomic_store(&w.leaves[0].refuses, 0); /* and are renewed */
    DRIVEN_WAIT(driven_flush(&w.d) == 0);  /* one may end by a refusal that was under way */
    ck_assert_msg(!routed_has(&w, 0, "a/f"), "the removal was given up");
}
END_TEST

/* 10: one store knows no conditions. */
START_TEST(a_store_with_conditions_goes_on_using_them)
{
    struct cache_stats s;

    put("b/f", "first");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].no_conditions, true);
    put("a/x", "1");
    put("a/y", "2");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    /* Between the look and the put somebody else writes. */
    atomic_store(&w.leaves[1].plain_puts, 0);
    put("b/f", "ours");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(atomic_load(&w.leaves[1].plain_puts), 0);
}
END_TEST

/* 12: the other store refuses just this name; and the daemon is killed meanwhile. */
START_TEST(what_is_refused_stays_in_its_own_store_after_a_kill)
{
    put("a/f", "only copy");
    put("b/other", "1");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[1].refused_key, "b/f");
    ck_assert_int_eq(driven_rename(&w.d, "a/f", "b/f"), 0);
    for (int i = 0; i < 3; i++) {
        put("b/other", "2");
        (void)usleep(500 * 1000);
    }
    ck_assert(routed_has(&w, 0, "a/f"));
    if (_i) {
        driven_unmount(&w.d);
        driven_mount(&w.d);
    }
    for (int i = 0; i < 3; i++) {
        put("b/other", "3");
        (void)usleep(500 * 1000);
    }
    ck_assert_msg(routed_has(&w, 0, "a/f") || routed_has(&w, 1, "b/f"), "no store has it");
}
END_TEST

/* 14: one key is the root of the run and the directory below it. */
static const struct routed_row aliased[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
};

START_TEST(a_directory_that_is_made_again_is_not_removed_by_its_parents_removal)
{
    routed_release(&w);
    routed_init(&w, aliased, 1, _i ? ROUTED_S3 : ROUTED_FOLDERS);
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(routed_has(&w, 0, "a"));
    atomic_store(&w.leaves[0].rmdirs_held, getenv("CONTROL") ? 0 : 2);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), 0);
    (void)usleep(1000 * 1000);
    fprintf(stderr, "%u rmdirs\n", atomic_load(&w.leaves[0].rmdirs));
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_setxattr(&w.d, "runs/a/checkpoint", "user.x", "1", 1, 0), 0);
    (void)usleep(1000 * 1000);
    fprintf(stderr, "stored: %d\n", routed_has(&w, 0, "a"));
    atomic_store(&w.leaves[0].rmdirs_held, 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_msg(routed_has(&w, 0, "a"), "flush is over, and the directory is not there");
}
END_TEST

/* ---- another configuration ---- */

static const struct routed_row one[] = {{.path = "**", .leaf = 2}};
static const struct routed_row two[] = {
    {.path = "runs/{run}/logs/**", .key = "{run}/**", .leaf = 0},
};

static int mount_with(struct routes *routes, const char *identity)
{
    struct op op;

    w.d.config.routes = routes;
    w.d.config.identity = identity;
    op_init(&op, 10 * NS_PER_SEC);
    int r = cache_new(&w.d.config, w.d.store, &op, &w.d.cache);
    if (r < 0)
        (void)fprintf(stderr, "refused: %s\n", op.why);
    return r;
}

static void make_routes(struct routes *ret, const struct routed_row *r, size_t n)
{
    struct op op;

    *ret = (struct routes){0};
    for (size_t i = 0; i < n; i++) {
        struct template path, key;
        op_init(&op, NS_PER_SEC);
        ck_assert_int_eq(template_parse(r[i].path, TEMPLATE_PATH, &op, &path), 0);
        ck_assert_int_eq(
            template_parse(r[i].key ? r[i].key : r[i].path, TEMPLATE_KEY, &op, &key), 0);
        ck_assert_int_eq(
            routes_add(ret, &path, &key, r[i].leaf, r[i].policy, (struct text_place){0}, &op),
            0);
        ret->items[ret->n - 1].scratch = r[i].scratch;
    }
}

/* 4: what a directory owes under one configuration is noticed by another one. */
START_TEST(an_owed_directory_keeps_another_configuration_out)
{
    struct routes other;

    routed_release(&w);
    routed_init(&w, one, 1, ROUTED_S3);
    make_routes(&other, two, 1);
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, ""), 0);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, true);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs"), 0);
    ck_assert_int_eq(driven_setxattr(&w.d, "runs", "user.owner", "me", 2, 0), 0);
    driven_unmount(&w.d);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, false);
    int r = mount_with(&other, "another one");
    if (r == 0)
        driven_unmount(&w.d);
    w.d.cache = NULL;
    ck_assert_msg(r == -EEXIST, "%d: the mount dropped what it found owed", r);
    routes_release(&other);
}
END_TEST

/* 15: what is owed to nobody. */
static const struct routed_row with_scratch[] = {
    {.path = "tmp/**", .scratch = true, .policy = 3},
    {.path = "**", .leaf = 2},
};

START_TEST(scratch_of_a_killed_mount_keeps_nobody_out)
{
    struct routes other;
    struct cache_stats s;

    routed_release(&w);
    routed_init(&w, with_scratch, 2, ROUTED_S3);
    w.policies[3].upload = UPLOAD_NEVER;
    make_routes(&other, one, 1);
    driven_mount(&w.d);
    put("tmp/x", "scratch");
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.dirty_files, 0);
    struct cache_evicted e;
    struct op op;
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(cache_evict_path(w.d.cache, "tmp", &op, NULL, NULL, &e), 0);
    fprintf(stderr, "evict: scratch is told as dirty: %d\n", (int)e.stay[CACHE_STAYS_DIRTY]);
    driven_unmount(&w.d);
    int r = mount_with(&other, "another one");
    if (r == 0)
        driven_unmount(&w.d);
    w.d.cache = NULL;
    ck_assert_int_eq(r, 0);
    routes_release(&other);
}
END_TEST

/* 5: a mount that is refused leaves the cache as it was. */
static struct handle *left_open;
START_TEST(a_refused_configuration_changes_nothing)
{
    struct routes *mine = &w.routes, other;

    w.policies[1].upload = UPLOAD_INTERVAL;
    w.policies[1].interval_ns = 600 * NS_PER_SEC;
    make_routes(&other, one, 1);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    pid_t pid = fork();
    if (pid == 0) {
        driven_mount(&w.d);
        if (driven_mkdir(&w.d, "a/d") ||
            driven_open(&w.d, "a/d/metrics", O_CREAT | O_WRONLY, &left_open) ||
            driven_write(&w.d, left_open, "line", 4, 0))
            _exit(1);
        (void)kill(getpid(), 9);
    }
    int status;
    (void)waitpid(pid, &status, 0);
    ck_assert(WIFSIGNALED(status));
    const char *identity = w.d.store->url;
    if (_i) {
        int r = mount_with(&other, "another one");
        ck_assert_int_eq(r, -EEXIST);
        w.d.cache = NULL;
    }
    ck_assert_int_eq(mount_with(mine, identity), 0);
    driven_shows(&w.d, "a/d/metrics", "line");
    routes_release(&other);
}
END_TEST

/* 6 */
START_TEST(a_directory_that_no_store_has_is_not_said_to_be_stored)
{
    struct op op;

    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, true);
    ck_assert_int_eq(driven_mkdir(&w.d, "a/new"), 0);
    put("a/new/f", "x");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/new/f"), "failed") == 0);
    (void)usleep(300 * 1000);
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert(!routed_has(&w, 0, "a/new"));
    ck_assert_int_eq(cache_stored_path(w.d.cache, "a/new", &op), -EBUSY);
}
END_TEST

/* 7 */
static void *read_it(void *arg)
{
    char buf[16];

    (void)driven_read(&w.d, arg, buf, sizeof(buf));
    return NULL;
}

static atomic_bool healthy_read;
static void *read_healthy(void *arg)
{
    char buf[16];

    if (driven_read(&w.d, arg, buf, sizeof(buf)) == 5)
        atomic_store(&healthy_read, true);
    return NULL;
}

START_TEST(reads_of_a_healthy_store_wait_for_no_other)
{
    static const char *const stuck[] = {"a/0", "a/1", "a/2"};
    pthread_t t[3], last;
    struct stat st;

    driven_unmount(&w.d);
    w.d.config.download_jobs = 2;
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    for (int i = 0; i < 3; i++)
        routed_store(&w, 0, stuck[i], "stuck");
    routed_store(&w, 1, "b/f", "quick");
    driven_mount_afresh(&w.d);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(driven_stat(&w.d, stuck[i], &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "b/f", &st), 0);
    atomic_store(&w.leaves[0].no_reads, true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, read_it, (void *)stuck[i]), 0);
    (void)usleep(300 * 1000);
    ck_assert_int_eq(pthread_create(&last, NULL, read_healthy, "b/f"), 0);
    for (int i = 0; i < 200 && !atomic_load(&healthy_read); i++)
        (void)usleep(100 * 1000);
    bool was = atomic_load(&healthy_read);
    atomic_store(&w.leaves[0].no_reads, false);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    pthread_join(last, NULL);
    ck_assert_msg(was, "b/f waited for store a");
}
END_TEST

/* 9: the disk of one of the folders is not mounted. */
START_TEST(a_folder_that_is_another_one_is_noticed)
{
    static const char *const names[ROUTED_LEAVES] = {"a", "b", "c"};
    struct store *leaves[ROUTED_LEAVES], *store;
    char away[80];
    struct op op;

    routed_release(&w);
    routed_init(&w, rows, ROWS, ROUTED_FOLDERS);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    put("a/f", "content");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    (void)snprintf(away, sizeof(away), "%s.away", w.leaves[0].folder);
    ck_assert_int_eq(rename(w.leaves[0].folder, away), 0);
    ck_assert_int_eq(mkdir(w.leaves[0].folder, 0755), 0);
    for (int i = 0; i < ROUTED_LEAVES; i++) {
        op_init(&op, NS_PER_SEC);
        ck_assert_int_eq(local_store_new(w.leaves[i].folder, NULL, &op, &leaves[i]), 0);
    }
    ck_assert_int_eq(routed_store_new(&w.routes, leaves, names, ROUTED_LEAVES, &op, &store), 0);
    struct cache *c = NULL;
    w.d.config.identity = w.d.store->url;
    op_init(&op, 10 * NS_PER_SEC);
    int r = cache_new(&w.d.config, store, &op, &c);
    if (r == 0)
        cache_free(c);
    store_close(store);
    (void)rmdir(w.leaves[0].folder);
    (void)rename(away, w.leaves[0].folder);
    ck_assert_int_eq(r, -ENODEV);
}
END_TEST

/* 13: killed at each step here. */
START_TEST(what_moves_is_whole_after_a_kill_in_the_cache)
{
    static const char *const steps[] = {"rename-row", "rename-mirror", "orphan-moved",
                                        "delete-done", "delete-noted"};
    char text[64];
    struct mem_sink sink;
    struct op op;

    routed_release(&w);
    routed_init(&w, rows, ROWS, ROUTED_FOLDERS);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    put("a/f", "only copy");
    if (_i >= 5)
        put("b/f", "replaced");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("RUNFS_CRASH_AT", steps[_i % 5], 1);
        driven_mount(&w.d);
        (void)driven_rename(&w.d, "a/f", "b/f");
        (void)driven_flush(&w.d);
        _exit(0);
    }
    int status;
    (void)waitpid(pid, &status, 0);
    ck_assert_msg(WIFSIGNALED(status), "%s not passed", steps[_i % 5]);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ssize_t n = -ENOENT;
    int there = 0;
    for (unsigned leaf = 0; leaf < 2; leaf++) {
        op_init(&op, 60 * NS_PER_SEC);
        mem_sink_init(&sink, text, sizeof(text), 0);
        n = store_read(w.leaves[leaf].layer->base.next, &op, leaf ? "b/f" : "a/f", NULL,
                       &sink.base, sizeof(text), 0, NULL);
        there += n == 9 && memcmp(text, "only copy", 9) == 0;
    }
    ck_assert_int_eq(there, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hostile_routes");
    TCase *t = tcase_create("findings");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_moves_to_a_full_store_stays_in_its_own);
    tcase_add_test(t, a_full_store_changes_no_order_in_others);
    tcase_add_test(t, what_moves_while_open_stays_in_a_store);
    tcase_add_test(t, an_owed_directory_keeps_another_configuration_out);
    tcase_add_test(t, a_removal_is_not_given_up_as_another_store_takes_its_own);
    tcase_add_test(t, a_store_with_conditions_goes_on_using_them);
    tcase_add_test(t, a_folder_that_is_another_one_is_noticed);
    tcase_add_test(t, scratch_of_a_killed_mount_keeps_nobody_out);
    tcase_add_loop_test(t, a_directory_that_is_made_again_is_not_removed_by_its_parents_removal,
                        0, 2);
    tcase_add_loop_test(t, what_moves_is_whole_after_a_kill_in_the_cache, 0, 10);
    tcase_add_loop_test(t, what_is_refused_stays_in_its_own_store_after_a_kill, 0, 2);
    tcase_add_loop_test(t, a_refused_configuration_changes_nothing, 0, 2);
    tcase_add_test(t, a_directory_that_no_store_has_is_not_said_to_be_stored);
    tcase_add_test(t, reads_of_a_healthy_store_wait_for_no_other);
    return suite_run(s);
}
