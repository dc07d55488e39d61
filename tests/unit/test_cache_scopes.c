/* cache/queue/scope.c: which removals wait for which uploads, as far as they lie in one scope,
 * and what moves from one to another. */
#include "cache/mount.h"
#include "common/mem.h"
#include "runs/policy_fields.h"
#include "tests/lib/driven.h"
#include "tests/lib/route_table.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static const char *_Atomic failing; /* uploads to keys that begin with this; NULL: none */
static atomic_int failure, puts_failed;
static atomic_bool holds_removals;
static atomic_uint refusals; /* of what gets the name "bad" */

static int64_t around(struct layer *l, struct call *c)
{
    const char *prefix = atomic_load(&failing);

    (void)l;
    if (c->kind == CALL_PUT && prefix && strncmp(c->key, prefix, strlen(prefix)) == 0) {
        atomic_fetch_add(&puts_failed, 1);
        return op_fail(c->op, atomic_load(&failure), "no uploads to %s now", prefix);
    }
    if (c->kind == CALL_COPY && strcmp(c->to, "r2/checkpoint-2/bad") == 0) {
        atomic_fetch_add(&refusals, 1);
        return op_fail(c->op, -EINVAL, "no such name");
    }
    while (c->kind == CALL_REMOVE && atomic_load(&holds_removals))
        (void)usleep(1000);
    return call_next(c);
}

static void fail_puts(const char *prefix)
{
    atomic_store(&failing, prefix);
    atomic_store(&puts_failed, 0);
}

static void make_run(const char *run)
{
    char path[64];

    ck_assert_int_eq(driven_mkdir(&d, run), 0);
    for (int i = 1; i <= 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/checkpoint-%d", run, i);
        ck_assert_int_eq(driven_mkdir(&d, path), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/checkpoint-1/old", run);
    driven_put(&d, path, "old", 3);
    (void)snprintf(path, sizeof(path), "%s/checkpoint-1/other", run);
    driven_put(&d, path, "other", 5);
}

/* What a mount with `-o unit_idle=20ms` has. */
static void settle_soon(void)
{
    static const struct route_text all[] = {{"**", NULL, 0}, {NULL, NULL, 0}};
    static const struct cache_store store = {.name = "a", .url = "mem:a"};
    static struct policy policy;
    static struct routes routes;

    if (!routes.n)
        routes = routes_of(all);
    policy = *policy_preset("data");
    policy.unit_idle_ns = 20 * NS_PER_MS;
    d.config.routes = &routes;
    d.config.policies = &policy;
    d.config.n_policies = d.config.n_stores = 1;
    d.config.stores = &store;
}

/* Two runs with a checkpoint each. */
static void start(void)
{
    fail_puts(NULL);
    atomic_store(&failure, -EIO);
    driven_init_like_s3(&d, around);
    d.config.retry_ns = 20 * NS_PER_MS;
    d.config.late_ns = 0;
    settle_soon();
    driven_mount(&d);
    make_run("r1");
    make_run("r2");
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* Removals had their turn when uploads have been tried again and again. */
static void wait_for_passes(void)
{
    atomic_store(&puts_failed, 0);
    DRIVEN_WAIT(atomic_load(&puts_failed) >= 4);
}

static void remount(void)
{
    driven_unmount(&d);
    driven_mount(&d);
}

static bool is_gone(const char *key)
{
    return driven_stored(&d, key, NULL, 0) == -ENOENT;
}

/* All goes up, and what was removed goes. */
static void finish(const char *removed)
{
    fail_puts(NULL);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, removed, NULL);
    driven_release(&d);
}

/* ---- one run fails ---- */

static const int failures[] = {-EIO, -EACCES};

START_TEST(a_failing_run_holds_its_own_removals_alone)
{
    start();
    atomic_store(&failure, failures[_i % 2]);
    fail_puts("r1");
    driven_put(&d, "r1/checkpoint-1/new", "new", 3);
    driven_put(&d, "r2/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "r2/checkpoint-1/old"), 0);
    if (_i >= 2)
        remount();
    DRIVEN_WAIT(is_gone("r2/checkpoint-1/old"));
    wait_for_passes();
    driven_stores(&d, "r2/checkpoint-2/new", "new");
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    finish("r1/checkpoint-1/old");
}
END_TEST

/* The unit's own directory is of the same scope, and a run's is of its own. */
START_TEST(directories_go_with_what_is_in_them)
{
    start();
    fail_puts("r1");
    driven_put(&d, "r1/checkpoint-2/new", "new", 3);
    for (int i = 1; i <= 2; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "r%d/checkpoint-1/old", i);
        ck_assert_int_eq(driven_unlink(&d, path), 0);
        (void)snprintf(path, sizeof(path), "r%d/checkpoint-1/other", i);
        ck_assert_int_eq(driven_unlink(&d, path), 0);
        (void)snprintf(path, sizeof(path), "r%d/checkpoint-1", i);
        ck_assert_int_eq(driven_rmdir(&d, path), 0);
    }
    DRIVEN_WAIT(!driven_stores_dir(&d, "r2/checkpoint-1"));
    wait_for_passes();
    ck_assert(driven_stores_dir(&d, "r1/checkpoint-1"));
    finish("r1/checkpoint-1/old");
}
END_TEST

static void make_step(const char *step, const char *text)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "ckpts/%s", step);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
    (void)snprintf(path, sizeof(path), "ckpts/%s/default", step);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
    (void)snprintf(path, sizeof(path), "ckpts/%s/default/d", step);
    driven_put(&d, path, text, strlen(text));
}

/* Nothing says that they are checkpoints: no policy names such a unit, and no route a run. */
START_TEST(what_nobody_knows_waits_for_its_successor)
{
    static const char *const names[] = {"100", "best"};
    char path[64];

    start();
    ck_assert_int_eq(driven_mkdir(&d, "ckpts"), 0);
    make_step(names[_i], "old");
    ck_assert_int_eq(driven_flush(&d), 0);
    fail_puts("ckpts/200");
    make_step("200", "new");
    (void)snprintf(path, sizeof(path), "ckpts/%s/default/d", names[_i]);
    ck_assert_int_eq(driven_unlink(&d, path), 0);
    wait_for_passes();
    driven_stores(&d, path, "old");
    finish(path);
}
END_TEST

/* A checkpoint that gets its name within its run is nobody else's, though that came after
 * another run's removal. */
START_TEST(what_stays_in_its_scope_holds_no_other)
{
    start();
    ck_assert_int_eq(driven_mkdir(&d, "r1/tmp-3"), 0);
    fail_puts("r");
    driven_put(&d, "r1/tmp-3/new", "new", 3);
    driven_put(&d, "r1/checkpoint-2/.new", "new", 3);
    driven_put(&d, "r2/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r2/checkpoint-1/old"), 0);
    ck_assert_int_eq(driven_rename(&d, "r1/tmp-3", "r1/checkpoint-3"), 0);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-2/.new", "r1/checkpoint-2/new"), 0);
    driven_stores(&d, "r2/checkpoint-1/old", "old");
    fail_puts("r1");
    DRIVEN_WAIT(is_gone("r2/checkpoint-1/old"));
    finish("r2/checkpoint-1/old");
}
END_TEST

/* ---- what moves to another scope ---- */

static void put_and_remove(void)
{
    driven_put(&d, "r1/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
}

static void it_moves_itself(void)
{
    driven_put(&d, "r1/checkpoint-1/old", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-1/old", "r2/checkpoint-2/new"), 0);
}

static void it_takes_a_stored_name(void)
{
    driven_put(&d, "r1/checkpoint-1/old", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-1/old", "r2/checkpoint-1/other"), 0);
}

static void it_gets_another_name(void)
{
    ck_assert_int_eq(driven_link(&d, "r1/checkpoint-1/old", "r2/checkpoint-2/new"), 0);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
}

static void it_is_written_under_both(void)
{
    ck_assert_int_eq(driven_link(&d, "r1/checkpoint-1/old", "r2/checkpoint-2/new"), 0);
    driven_put(&d, "r2/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
}

static void its_directory_moves(void)
{
    driven_put(&d, "r1/checkpoint-1/old", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-1", "r2/checkpoint-3"), 0);
}

static void its_directory_is_exchanged(void)
{
    driven_put(&d, "r1/checkpoint-1/old", "new", 3);
    ck_assert_int_eq(driven_exchange(&d, "r1/checkpoint-1", "r2/checkpoint-1"), 0);
}

static void the_new_one_moves(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-2/new", "r2/checkpoint-2/new"), 0);
}

static void the_new_one_moves_twice(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-2/new", "r1/new"), 0);
    ck_assert_int_eq(driven_rename(&d, "r1/new", "r2/checkpoint-2/new"), 0);
}

static void the_new_directory_moves(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-2", "r2/checkpoint-3"), 0);
}

static void the_run_moves(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_rename(&d, "r1", "r2/r1"), 0);
}

static void the_new_one_is_exchanged(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_exchange(&d, "r1/checkpoint-2/new", "r2/checkpoint-1/other"), 0);
}

static void the_new_directory_is_exchanged(void)
{
    put_and_remove();
    ck_assert_int_eq(driven_exchange(&d, "r1/checkpoint-2", "r2/checkpoint-2"), 0);
}

static void link_remove(void)
{
    fail_puts(NULL);
    driven_put(&d, "r1/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_link(&d, "r1/checkpoint-2/new", "r2/checkpoint-2/new"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    fail_puts("r"); /* its first close that the store lacks comes after the link */
    driven_put(&d, "r2/checkpoint-2/new", "newer", 5);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
}

static void the_new_one_loses_its_name(void)
{
    link_remove();
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-2/new"), 0);
}

static void the_new_one_is_replaced(void)
{
    link_remove();
    driven_put(&d, "r1/checkpoint-2/next", "next", 4);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-2/next", "r1/checkpoint-2/new"), 0);
}

/* After each of them r1/checkpoint-1/old waits for an upload to r2. */
static void (*const moves[])(void) = {it_moves_itself,
                                      it_takes_a_stored_name,
                                      it_gets_another_name,
                                      it_is_written_under_both,
                                      its_directory_moves,
                                      its_directory_is_exchanged,
                                      the_new_one_moves,
                                      the_new_one_moves_twice,
                                      the_new_directory_moves,
                                      the_run_moves,
                                      the_new_one_is_exchanged,
                                      the_new_directory_is_exchanged,
                                      the_new_one_loses_its_name,
                                      the_new_one_is_replaced};

#define MOVES (int)ARRAY_SIZE(moves)

/* Nothing is uploaded before all of it happened; then only r1 takes something. */
START_TEST(what_moves_is_waited_for_wherever_it_is)
{
    start();
    fail_puts("r");
    moves[_i % MOVES]();
    if (_i >= MOVES)
        remount();
    fail_puts("r2");
    wait_for_passes();
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    if (moves[_i % MOVES] == its_directory_is_exchanged) { /* r2's own takes the name */
        fail_puts(NULL);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_stores(&d, "r2/checkpoint-1/old", "new");
        driven_release(&d);
        return;
    }
    finish("r1/checkpoint-1/old");
}
END_TEST

static int count_rename(void *arg, const struct cache_pending *p)
{
    *(int *)arg += strcmp(p->kind, "rename") == 0;
    return 0;
}

static int renames(void)
{
    int n = 0;

    (void)cache_each_pending(d.cache, count_rename, &n);
    return n;
}

/* A name that the store refuses is given, and removed: that is the removal of the old one, and
 * waits as that of the new one would. */
START_TEST(a_removal_that_took_the_place_of_another_waits_as_that)
{
    start();
    atomic_store(&refusals, 0);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-1/old", "r2/checkpoint-2/bad"), 0);
    DRIVEN_WAIT(atomic_load(&refusals) > 0);
    driven_put(&d, "r2/checkpoint-2/good", "good", 4);
    ck_assert_int_eq(driven_rename(&d, "r1/checkpoint-1/other", "r2/checkpoint-2/other"), 0);
    fail_puts("r2/checkpoint-1");
    driven_put(&d, "r2/checkpoint-1/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r2/checkpoint-2/bad"), 0);
    DRIVEN_WAIT(renames() == 0);
    wait_for_passes();
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    finish("r1/checkpoint-1/old");
}
END_TEST

/* ---- with routes ---- */

static const struct routed_row runs[] = {
    {.path = "runs/{run}/**", .key = "{run}/**", .leaf = 0},
};

static struct routed_world w;

static void start_routed(void)
{
    routed_init(&w, runs, ARRAY_SIZE(runs), ROUTED_S3);
    w.d.config.retry_ns = 20 * NS_PER_MS;
    w.d.config.late_ns = 0;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/d"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b/d"), 0);
    driven_put(&w.d, "runs/a/d/f", "old", 3);
    driven_put(&w.d, "runs/b/d/g", "other", 5);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].no_puts, true);
    driven_put(&w.d, "runs/a/d/f", "new", 3);
}

/* What two directories change places by lies beside one of them: not all scopes are the mount.
 */
START_TEST(directories_that_change_places_wait_for_both)
{
    start_routed();
    ck_assert_int_eq(driven_exchange(&w.d, "runs/a/d", "runs/b/d"), 0);
    if (_i) {
        driven_unmount(&w.d);
        driven_mount(&w.d);
    }
    DRIVEN_WAIT(routed_has(&w, 0, "a/d/g"));
    unsigned before = routed_requests(&w);
    DRIVEN_WAIT(routed_requests(&w) >= before + 4); /* the upload is tried again */
    routed_stores(&w, 0, "a/d/f", "old");
    atomic_store(&w.leaves[0].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/d/f", NULL);
    routed_stores(&w, 0, "b/d/f", "new");
    routed_release(&w);
}
END_TEST

/* ---- who waits for removals ---- */

static int flush(const char *path)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_flush_path(d.cache, path, 0, &op, NULL, NULL);
}

static void *let_go(void *arg)
{
    (void)arg;
    (void)usleep(200000);
    atomic_store(&holds_removals, false);
    return NULL;
}

/* What `wait` answers for r2, of which a removal is on its way meanwhile. */
static int while_removing(int (*wait)(const char *path), const char *path)
{
    pthread_t thread;

    atomic_store(&holds_removals, true);
    ck_assert_int_eq(driven_unlink(&d, "r2/checkpoint-1/old"), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
    int r = wait(path);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return r;
}

START_TEST(a_flush_waits_for_its_own_scope)
{
    struct handle *h = NULL;

    start();
    fail_puts("r1");
    driven_put(&d, "r1/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_open(&d, "r1/checkpoint-2/new", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
    ck_assert_int_eq(while_removing(flush, "r2"), 0);
    driven_stores(&d, "r2/checkpoint-1/old", NULL);
    ck_assert_int_eq(flush("r1/checkpoint-1"), -ETXTBSY);
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    ck_assert_int_eq(driven_close(&d, h), 0);
    finish("r1/checkpoint-1/old");
}
END_TEST

static int sync_dir(const char *path)
{
    return driven_fsyncdir(&d, path);
}

START_TEST(so_does_fsync_of_a_directory)
{
    start();
    driven_unmount(&d);
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    fail_puts("r1");
    struct handle *h = NULL;
    ck_assert_int_eq(driven_open(&d, "r1/checkpoint-2/new", O_WRONLY | O_CREAT, &h), 0);
    (void)driven_close(&d, h); /* it says that it failed */
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
    ck_assert_int_eq(while_removing(sync_dir, "r2/checkpoint-1"), 0);
    driven_stores(&d, "r2/checkpoint-1/old", NULL);
    ck_assert_int_eq(driven_fsyncdir(&d, "r1/checkpoint-1"), -EIO);
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    finish("r1/checkpoint-1/old");
}
END_TEST

/* What is removed in one directory can be of several scopes. */
START_TEST(so_does_fsync_of_a_directory_for_each_of_its_removals)
{
    struct handle *h = NULL;

    start();
    driven_put(&d, "r1/note", "note", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    fail_puts("r2");
    ck_assert_int_eq(driven_open(&d, "r2/checkpoint-2/new", O_WRONLY | O_CREAT, &h), 0);
    (void)driven_close(&d, h); /* it says that it failed */
    ck_assert_int_eq(driven_unlink(&d, "r1/note"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "r1/checkpoint-2"), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, "r1"), -EIO);
    driven_stores(&d, "r1/note", "note");
    finish("r1/note");
}
END_TEST

/* Another node's version takes a name in one run: what the other run removed stays removed. */
START_TEST(removals_of_another_scope_are_not_taken_back)
{
    struct stat st;

    start();
    fail_puts("r");
    driven_put(&d, "r1/checkpoint-1/other", "mine", 4);
    driven_put(&d, "r2/checkpoint-2/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "r1/checkpoint-1/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "r2/checkpoint-1/old"), 0);
    driven_store(&d, "r1/checkpoint-1/other", "theirs", 6);
    fail_puts("r2");
    DRIVEN_WAIT(driven_stat(&d, "r1/checkpoint-1/old", &st) == 0);
    ck_assert_int_eq(driven_stat(&d, "r2/checkpoint-1/old", &st), -ENOENT);
    driven_stores(&d, "r2/checkpoint-1/old", "old");
    fail_puts(NULL);
    (void)driven_flush(&d);
    driven_stores(&d, "r1/checkpoint-1/old", "old");
    driven_stores(&d, "r2/checkpoint-1/old", NULL);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_scopes");
    TCase *t = tcase_create("cache_scopes");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_failing_run_holds_its_own_removals_alone, 0, 4);
    tcase_add_test(t, directories_go_with_what_is_in_them);
    tcase_add_loop_test(t, what_nobody_knows_waits_for_its_successor, 0, 2);
    tcase_add_test(t, what_stays_in_its_scope_holds_no_other);
    tcase_add_loop_test(t, what_moves_is_waited_for_wherever_it_is, 0, 2 * MOVES);
    tcase_add_test(t, a_removal_that_took_the_place_of_another_waits_as_that);
    tcase_add_loop_test(t, directories_that_change_places_wait_for_both, 0, 2);
    tcase_add_test(t, a_flush_waits_for_its_own_scope);
    tcase_add_test(t, so_does_fsync_of_a_directory);
    tcase_add_test(t, so_does_fsync_of_a_directory_for_each_of_its_removals);
    tcase_add_test(t, removals_of_another_scope_are_not_taken_back);
    suite_add_tcase(s, t);
    return suite_run(s);
}
