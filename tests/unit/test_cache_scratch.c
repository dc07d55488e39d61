/* cache/: directories of scratch through which an earlier route leads: what that one has there
 * is in its store, all else in none. */
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct routed_row rows[] = {
    {.path = "runs/{run}/checkpoint/**", .leaf = 0},
    {.path = "runs/{run}/model.pt", .key = "models/{run}.pt", .leaf = 1},
    {.path = "runs/{run}/own/tmp/**", .scratch = true, .policy = 3},
    {.path = "runs/**", .scratch = true, .policy = 3},
    {.path = "**", .leaf = 2},
};

#define ROWS  (sizeof(rows) / sizeof(*rows))
#define SHORT (200 * NS_PER_MS) /* so long a listing is believed at least */

static struct routed_world w;

static void use_kind(int kind)
{
    routed_init(&w, rows, ROWS, kind);
    w.policies[3].upload = UPLOAD_NEVER;
}

static void teardown(void)
{
    routed_release(&w);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

static bool is_there(const char *path)
{
    struct stat st;
    int r = driven_stat(&w.d, path, &st);

    ck_assert_msg(r == 0 || r == -ENOENT, "%s: %d", path, r);
    return r == 0;
}

/* Another node's run, and one of here with scratch beside what is stored. */
static void fill(void)
{
    routed_store(&w, 0, "runs/a/checkpoint/m", "theirs");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b/checkpoint"), 0);
    put("runs/b/checkpoint/m", "ours");
    put("runs/b/model.pt", "model");
    put("runs/b/x", "scratch");
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b/dir"), 0);
    put("runs/b/dir/y", "scratch");
    ck_assert_int_eq(driven_flush(&w.d), 0);
}

START_TEST(what_an_earlier_route_has_below_scratch_is_found)
{
    use_kind(_i);
    routed_store(&w, 0, "runs/a/checkpoint/m", "weights");
    routed_store(&w, 1, "models/c.pt", "model");
    routed_store(&w, 0, "runs/a/of no route", "x");
    routed_store(&w, 2, "runs/d/checkpoint/m", "of the wrong store");
    driven_mount(&w.d);
    driven_shows(&w.d, "runs/a/checkpoint/m", "weights");
    driven_shows(&w.d, "runs/c/model.pt", "model");
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/c"), 1);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), -EEXIST);
    ck_assert(!is_there("runs/d"));
    put("runs/a/checkpoint/m", "newer"); /* of a version that is known: nothing is kept aside */
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "runs/a/checkpoint/m", "newer");
}
END_TEST

START_TEST(what_another_node_makes_below_scratch_comes)
{
    use_kind(_i);
    w.d.config.list_timeout_ns = SHORT;
    fill();
    routed_store(&w, 0, "runs/b/checkpoint/n", "theirs");
    routed_store(&w, 0, "runs/c/checkpoint/m", "theirs");
    DRIVEN_WAIT(is_there("runs/b/checkpoint/n") && is_there("runs/c/checkpoint/m"));
    DRIVEN_WAIT(driven_list(&w.d, "runs") == 3);
    ck_assert_int_eq(driven_list(&w.d, "runs/b"), 4); /* scratch is not dropped */
    driven_shows(&w.d, "runs/b/x", "scratch");
    driven_shows(&w.d, "runs/b/dir/y", "scratch");
    ck_assert_str_eq(driven_state(&w.d, "runs/b/x"), "local");
    ck_assert_str_eq(driven_state(&w.d, "runs/b/dir"), "local");
    ck_assert_str_eq(driven_state(&w.d, "runs/b"), "clean");
}
END_TEST

START_TEST(what_is_removed_below_scratch_leaves_its_store)
{
    use_kind(_i);
    fill();
    ck_assert(is_there("runs/a")); /* the kernel looks a name up before it removes it */
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), -ENOTEMPTY);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/a/checkpoint/m"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(!routed_has(&w, 0, "runs/a"));
    ck_assert(!is_there("runs/a"));
    ck_assert_int_eq(driven_rmdir(&w.d, "runs"), -EBUSY);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/b"), 2);
}
END_TEST

/* A run that has scratch alone is in no store; one that has more is there without it. */
START_TEST(scratch_beside_what_is_stored_ends_with_the_mount)
{
    use_kind(_i / 2);
    fill();
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/c"), 0);
    put("runs/c/x", "scratch");
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/d"), 0);
    ck_assert_str_eq(driven_state(&w.d, "runs/c"), "local");
    if (_i % 2)
        driven_end(&w.d);
    else
        driven_unmount(&w.d); /* a kill */
    driven_mount(&w.d);
    ck_assert(!is_there("runs/c") && !is_there("runs/d") && !is_there("runs/b/x"));
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
    ck_assert_int_eq(driven_list(&w.d, "runs/b"), 2);
    driven_shows(&w.d, "runs/b/checkpoint/m", "ours");
    driven_shows(&w.d, "runs/b/model.pt", "model");
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        ck_assert(!routed_has(&w, i, "runs/b/x") && !routed_has(&w, i, "runs/c"));
}
END_TEST

START_TEST(a_run_moves_with_its_scratch)
{
    use_kind(_i);
    fill();
    ck_assert_int_eq(driven_rename(&w.d, "runs/b", "runs/c"), 0);
    driven_shows(&w.d, "runs/c/x", "scratch");
    ck_assert_int_eq(driven_unlink(&w.d, "runs/c/dir/y"), 0);
    put("runs/c/dir/z", "scratch");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "runs/c/checkpoint/m", "ours");
    routed_stores(&w, 1, "models/c.pt", "model");
    routed_stores(&w, 0, "runs/b/checkpoint/m", NULL);
    routed_stores(&w, 1, "models/b.pt", NULL);
    driven_shows(&w.d, "runs/c/x", "scratch");
    ck_assert_int_eq(driven_list(&w.d, "runs/c"), 4);
    ck_assert_int_eq(driven_list(&w.d, "runs/c/dir"), 1);
    ck_assert_int_eq(driven_rename(&w.d, "runs/c", "runs/dir"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/dir/dir", "runs/a/dir"), 0); /* scratch alone */
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/dir", "runs/e"), -EXDEV);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_shows(&w.d, "runs/a/dir/z", "scratch");
    ck_assert(!is_there("runs/b"));
}
END_TEST

/* The rename of a run is owed while its scratch is dropped. */
START_TEST(a_kill_before_a_run_moved_leaves_it_moved)
{
    use_kind(_i);
    fill();
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, true);
    ck_assert_int_eq(driven_rename(&w.d, "runs/b", "runs/c"), 0);
    driven_unmount(&w.d); /* a kill */
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, false);
    driven_mount(&w.d);
    driven_shows(&w.d, "runs/c/checkpoint/m", "ours");
    driven_shows(&w.d, "runs/c/model.pt", "model");
    ck_assert(!is_there("runs/c/x") && !is_there("runs/b"));
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_list(&w.d, "runs/c"), 2);
    routed_stores(&w, 0, "runs/c/checkpoint/m", "ours");
    routed_stores(&w, 0, "runs/b/checkpoint/m", NULL);
}
END_TEST

START_TEST(two_runs_change_places_with_their_scratch)
{
    use_kind(_i);
    fill();
    put("runs/a/x", "of a");
    ck_assert_int_eq(driven_exchange(&w.d, "runs/a", "runs/b"), 0);
    driven_shows(&w.d, "runs/a/x", "scratch");
    driven_shows(&w.d, "runs/b/x", "of a");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_shows(&w.d, "runs/a/checkpoint/m", "ours");
    driven_shows(&w.d, "runs/b/checkpoint/m", "theirs");
    routed_stores(&w, 0, "runs/a/checkpoint/m", "ours");
    routed_stores(&w, 0, "runs/b/checkpoint/m", "theirs");
    routed_stores(&w, 1, "models/a.pt", "model");
    routed_stores(&w, 1, "models/b.pt", NULL);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 4);
    ck_assert_int_eq(driven_list(&w.d, "runs/b"), 2);
}
END_TEST

/* The last route keeps all that others leave out of the stores. */
START_TEST(where_the_rest_is_scratch_the_root_shows_both)
{
    static const struct routed_row rest[] = {
        {.path = "{team}/runs/**", .leaf = 0},
        {.path = "**", .scratch = true, .policy = 3},
    };

    routed_init(&w, rest, 2, _i);
    w.policies[3].upload = UPLOAD_NEVER;
    routed_store(&w, 0, "a/runs/m", "theirs");
    driven_mount(&w.d);
    put("x", "scratch");
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    put("b/x", "scratch");
    ck_assert_int_eq(driven_list(&w.d, ""), 3);
    driven_shows(&w.d, "a/runs/m", "theirs");
    ck_assert_int_eq(driven_rename(&w.d, "a", "c"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "c/runs/m", "theirs");
    routed_stores(&w, 0, "a/runs/m", NULL);
    driven_end(&w.d);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, ""), 1);
    driven_shows(&w.d, "c/runs/m", "theirs");
}
END_TEST

/* A name is scratch as a file, and a store's as a directory. */
START_TEST(a_directory_and_scratch_change_places)
{
    static const struct routed_row either[] = {
        {.path = "d/{x}/**", .key = "{x}/**", .leaf = 0},
        {.path = "**", .scratch = true, .policy = 3},
    };

    routed_init(&w, either, 2, _i);
    w.policies[3].upload = UPLOAD_NEVER;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "d/dir"), 0);
    put("d/dir/m", "stored");
    put("d/file", "scratch");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_exchange(&w.d, "d/dir", "d/file"), 0);
    ck_assert_str_eq(driven_state(&w.d, "d/dir"), "local");
    ck_assert_int_eq(driven_rename(&w.d, "d/dir", "d/file/n"), -EXDEV);
    put("d/dir", "newer");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "file/m", "stored");
    routed_stores(&w, 0, "dir/m", NULL);
    ck_assert_int_eq(driven_unlink(&w.d, "d/file/m"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "d/file"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(!routed_has(&w, 0, "file"));
    driven_shows(&w.d, "d/dir", "newer");
    driven_unmount(&w.d); /* a kill */
    driven_mount(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "d"), 0);
}
END_TEST

static struct node *look(struct node *dir, const char *name)
{
    struct waiter none = {0};
    struct node *n = NULL;
    struct stat st;

    ck_assert_int_eq(cache_lookup(w.d.cache, dir, name, &none, &n, &st), 0);
    return n;
}

/* What no store can have is asked of none, though the directory has names that one can. Who
 * would have to wait is told so here. */
START_TEST(scratch_beside_what_is_stored_asks_nobody)
{
    const struct cache_cred cred = {.umask = 022};
    struct waiter none = {0};
    struct node *n, *made;
    struct stat st;

    use_kind(_i);
    w.d.config.list_timeout_ns = 3 * NS_PER_SEC;
    fill();
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
    struct node *runs = look(cache_root(w.d.cache), "runs");
    struct node *run = look(runs, "b"), *dir = look(run, "dir");
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].hung, true);
    (void)usleep(3200 * 1000);
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(cache_lookup(w.d.cache, run, "none", &none, &n, &st), -ENOENT);
    ck_assert_int_eq(cache_lookup(w.d.cache, dir, "none", &none, &n, &st), -ENOENT);
    ck_assert_int_eq(cache_mkdir(w.d.cache, run, "new", 0755, &cred, &none, &made, &st), 0);
    ck_assert_int_eq(cache_lookup(w.d.cache, made, "none", &none, &n, &st), -ENOENT);
    ck_assert_int_eq(cache_rmdir(w.d.cache, run, "new", &none), 0);
    ck_assert_int_eq(cache_unlink(w.d.cache, run, "x", &none), 0);
    ck_assert_uint_eq(routed_requests(&w), before);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].hung, false);
    struct node *const held[] = {runs, run, dir, made};
    for (size_t i = 0; i < 4; i++)
        cache_forget(w.d.cache, held[i], 1);
}
END_TEST

/* ---- whose the cache is ---- */

static const struct routed_row once_stored[] = {{.path = "tmp/**", .leaf = 2},
                                                {.path = "**", .leaf = 2}};

/* To this mount the name is scratch, and to the one that owes it not: no stamp says so, its
 * time alone. */
START_TEST(what_is_scratch_by_now_is_owed_by_another_mount)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    auto_free char *path = NULL;
    struct op op;

    routed_init(&w, once_stored, sizeof(once_stored) / sizeof(*once_stored), ROUTED_FOLDERS);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "tmp"), 0);
    put("tmp/l", "text");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_end(&w.d);
    ck_assert_int_gt(asprintf(&path, "%s/mirror/tmp/l", w.d.dir), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    struct cache_config other = w.d.config;
    other.identity = "another store";
    w.routes.items[0].scratch = true;
    op_init(&op, 20 * NS_PER_SEC);
    int r = cache_new(&other, w.d.store, &op, &w.d.cache);
    ck_assert_msg(r == -EEXIST, "%d: %s", r, op.why);
    w.routes.items[0].scratch = false;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_shows(&w.d, "tmp/l", "text");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_scratch");
    TCase *t = tcase_create("below");

    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_an_earlier_route_has_below_scratch_is_found, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, what_another_node_makes_below_scratch_comes, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, what_is_removed_below_scratch_leaves_its_store, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, scratch_beside_what_is_stored_ends_with_the_mount, 0,
                        2 * ROUTED_KINDS);
    tcase_add_loop_test(t, a_run_moves_with_its_scratch, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, a_kill_before_a_run_moved_leaves_it_moved, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, two_runs_change_places_with_their_scratch, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, where_the_rest_is_scratch_the_root_shows_both, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, a_directory_and_scratch_change_places, 0, ROUTED_KINDS);
    tcase_add_loop_test(t, scratch_beside_what_is_stored_asks_nobody, 0, ROUTED_KINDS);
    tcase_add_test(t, what_is_scratch_by_now_is_owed_by_another_mount);
    suite_add_tcase(s, t);
    return suite_run(s);
}
