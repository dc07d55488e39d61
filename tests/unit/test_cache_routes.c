/* cache/: several stores in one tree: which names the routes admit, and what is said of them.
 */
#include "common/path.h"
#include "tests/lib/routed_runs.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int create(const char *path)
{
    struct handle *h = NULL;
    int r = driven_open(&w.d, path, O_CREAT | O_WRONLY, &h);

    return r < 0 ? r : driven_close(&w.d, h);
}

/* ---- admission ---- */

START_TEST(a_path_without_a_route_is_refused_and_asked_of_nobody)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(&w.d, "runs", &st), 0); /* lists nothing: it always exists */
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_stat(&w.d, "elsewhere", &st), -ENOENT);
    ck_assert_uint_eq(routed_requests(&w), before);
    ck_assert_int_eq(create("elsewhere"), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "elsewhere"), -EPERM);
    ck_assert_int_eq(driven_symlink(&w.d, "target", "elsewhere"), -EPERM);
    ck_assert_int_eq(create("runs/file"), -EPERM); /* a directory could be there, no file */
}
END_TEST

START_TEST(a_name_that_a_route_cannot_store_is_refused)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/\xff"), -EILSEQ);
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/%zz"), -EINVAL);
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/" LONG_NAME), -ENAMETOOLONG);
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/run"), 0);
}
END_TEST

/* Where keys begin with a name of the mount; the last one's are of no store. */
static const struct routed_row roots[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/logs/**", .key = "logs/{run}/**", .leaf = 1},
    {.path = "pct/{run}/**", .key = "{run:pct}/**", .leaf = 1},
    {.path = "hex/{run}/**", .key = "{run:hex}/**", .leaf = 1},
    {.path = "all/**", .key = "**", .leaf = 2},
    {.path = "tmp/**", .key = "**", .scratch = true},
};

#define SHOWN_RESERVED "%2E%72%75%6E%66%73"

static void use_roots(void)
{
    routed_release(&w);
    routed_init(&w, roots, sizeof(roots) / sizeof(*roots), kind);
    driven_mount(&w.d);
}

static void check_owes_nothing(void)
{
    struct cache_stats s;

    ck_assert_int_eq(driven_flush(&w.d), 0);
    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.pending_ops + s.dirty_files, 0);
    for (unsigned leaf = 0; leaf < ROUTED_LEAVES; leaf++)
        ck_assert(!routed_has(&w, leaf, PATH_RESERVED));
}

START_TEST(a_name_that_a_store_keeps_for_itself_is_refused)
{
    use_roots();
    ck_assert_int_eq(driven_mkdir(&w.d, "all/.runfs"), -EPERM);
    ck_assert_int_eq(create("all/.runfs"), -EPERM);
    ck_assert_int_eq(driven_symlink(&w.d, "target", "all/.runfs"), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "pct/" SHOWN_RESERVED), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "hex/" SHOWN_RESERVED), 0); /* 2e72756e6673 */
    put("all/file", "text");
    ck_assert_int_eq(driven_link(&w.d, "all/file", "all/.runfs"), -EPERM);
    ck_assert_int_eq(driven_rename(&w.d, "all/file", "all/.runfs"), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "all/dir"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "all/dir", "all/.runfs"), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "all/dir/.runfs"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "all/.runfs2"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "tmp/.runfs"), 0); /* in no store */
    put("tmp/.runfs/file", "text");
    check_owes_nothing();
}
END_TEST

START_TEST(a_directory_gets_no_name_that_a_store_below_keeps_for_itself)
{
    struct stat st;

    use_roots();
    make_run("one");
    ck_assert_int_eq(driven_rename(&w.d, "runs/one", "runs/.runfs"), -EPERM);
    ck_assert_int_eq(driven_stat(&w.d, "runs/.runfs", &st), -ENOENT);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/.runfs"), 0); /* no key has the name */
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/.runfs/checkpoint"), -EPERM);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/.runfs/logs"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one", "runs/.runfs"), -EPERM);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/one", "runs/.runfs"), -EPERM);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/.runfs", "runs/one"), -EPERM);
    put("runs/.runfs/logs/out", "theirs");
    check_owes_nothing();
    routed_stores(&w, 0, "one/model", "weights");
    routed_stores(&w, 1, "logs/one/out", "lines");
    routed_stores(&w, 1, "logs/.runfs/out", "theirs");
    ck_assert_int_eq(driven_rename(&w.d, "runs/.runfs", "runs/two"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/.runfs"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/.runfs"), 0);
    check_owes_nothing();
    routed_stores(&w, 1, "logs/two/out", "theirs");
}
END_TEST

START_TEST(fixed_directories_stay)
{
    struct stat st;

    ck_assert_int_eq(driven_list(&w.d, ""), 3);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs"), -EEXIST);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs"), -EBUSY);
    ck_assert_int_eq(driven_rmdir(&w.d, "all"), -EBUSY); /* a store's own root */
    ck_assert_int_eq(driven_rename(&w.d, "runs", "meta/x"), -EBUSY);
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/x"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "meta/x", "runs"), -EBUSY);
    make_run("one");
    ck_assert_int_eq(driven_rename(&w.d, "meta/x", "runs"), -ENOTEMPTY);
    ck_assert_int_eq(driven_chmod(&w.d, "runs", 0700), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "runs", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700); /* kept here: no store has the directory */
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
}
END_TEST

START_TEST(fixed_directories_outlive_their_stores)
{
    struct stat st;

    for (size_t i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, true);
    ck_assert_int_eq(driven_stat(&w.d, "runs", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "meta", &st), 0);
}
END_TEST

/* ---- attributes ---- */

static void check_own(const char *path, const char *what, const char *wanted)
{
    char name[64], value[256] = "";

    (void)snprintf(name, sizeof(name), "user.runfs.%s", what);
    ssize_t n = driven_getxattr(&w.d, path, name, value, sizeof(value) - 1);
    if (wanted)
        ck_assert_msg(n >= 0 && strcmp(value, wanted) == 0, "%s of %s: %zd \"%s\"", what, path,
                      n, value);
    else
        ck_assert_int_eq(n, -ENODATA);
}

struct asker {
    pthread_t thread;
    char path[64];
    int r;
};

static void *stat_it(void *arg)
{
    struct asker *a = arg;
    struct stat st;

    a->r = driven_stat(&w.d, a->path, &st);
    return NULL;
}

static const struct routed_row shared[] = {
    {.path = "a/**", .key = "a/**", .leaf = 0},
    {.path = "b/**", .key = "b/**", .leaf = 1},
    {.path = "u/{x}/a/**", .key = "u/{x}/**", .leaf = 0},
    {.path = "u/{x}/c/**", .key = "u/{x}/**", .leaf = 2},
    {.path = "v/{x}/b/**", .key = "v/{x}/**", .leaf = 1},
    {.path = "v/{x}/c/**", .key = "v/{x}/**", .leaf = 2},
};

#define ASKERS 40 /* more than the workers of any set of stores */

static void make_shared(struct asker *alone, struct asker *both)
{
    routed_release(&w);
    routed_init(&w, shared, sizeof(shared) / sizeof(*shared), kind);
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    for (unsigned i = 0; i < ASKERS; i++) {
        (void)snprintf(alone[i].path, sizeof(alone[i].path), "a/d%u/f", i);
        (void)snprintf(both[i].path, sizeof(both[i].path), "u/d%u/f", i);
        routed_store(&w, 0, alone[i].path, "a");
        routed_store(&w, 0, both[i].path, "a");
        (void)snprintf(both[i].path, sizeof(both[i].path), "u/d%u/a/f", i);
    }
    routed_store(&w, 1, "b/d/f", "b");
    routed_store(&w, 1, "v/d/f", "b");
    driven_mount(&w.d);
}

static void begin_asking(struct asker *a)
{
    ck_assert_int_eq(pthread_create(&a->thread, NULL, stat_it, a), 0);
}

/* Listings of others are answered, however many wait for a store, alone or with others. */
START_TEST(questions_wait_for_no_store_that_is_not_asked)
{
    static struct asker alone[ASKERS], both[ASKERS];
    struct stat st;

    make_shared(alone, both);
    ck_assert_int_eq(driven_stat(&w.d, "a/d0", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "u/d0", &st), 0);
    atomic_store(&w.leaves[0].silent, true);
    for (unsigned i = 0; i < ASKERS; i++) {
        begin_asking(&alone[i]);
        begin_asking(&both[i]);
    }
    DRIVEN_WAIT(atomic_load(&w.leaves[0].kept_waiting) >= 32 + 16); /* all workers of both */
    ck_assert_int_eq(driven_stat(&w.d, "b/d/f", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "v/d/b/f", &st), 0);
    atomic_store(&w.leaves[0].silent, false);
    for (unsigned i = 0; i < ASKERS; i++) {
        pthread_join(alone[i].thread, NULL);
        pthread_join(both[i].thread, NULL);
        ck_assert_int_eq(alone[i].r, 0);
        ck_assert_int_eq(both[i].r, 0);
    }
}
END_TEST

static int stored(const char *path)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    int r = cache_stored_path(w.d.cache, path, &op);
    ck_assert(r == 0 || op.why[0]);
    return r;
}

/* Another node made the run by its checkpoints: under the run's own key there is nothing. */
START_TEST(a_directory_that_other_routes_make_is_not_stored)
{
    struct stat st;

    routed_release(&w);
    routed_init(&w, layout, LAYOUT_ROWS, kind);
    routed_store(&w, 0, "runs/a/checkpoint/m", "weights");
    routed_store(&w, 1, "runs/b/notes", "text");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "runs/a/checkpoint/m", &st), 0);
    ck_assert_int_eq(stored("runs/a"), -EISDIR);
    ck_assert_int_eq(stored("runs"), -EISDIR); /* as the mount's, it always exists */
    ck_assert_int_eq(stored("runs/a/checkpoint"), 0);
    ck_assert_int_eq(stored("runs/b"), 0);
    atomic_store(&w.leaves[1].down, true); /* nor is it said when nobody can tell */
    ck_assert_int_lt(stored("runs/b"), 0);
    atomic_store(&w.leaves[1].down, false);
    put("runs/a/notes", "text");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(stored("runs/a"), 0);
}
END_TEST

START_TEST(a_file_says_which_store_has_it)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/run"), 0);
    put("meta/run/file", "x");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    check_own("meta/run/file", "store", "c");
    check_own("meta/run/file", "route", "meta/{run}/**");
    check_own("meta/run/file", "policy", "plain");
    check_own("meta/run/file", "url", "mem:c/OJ2W4===/file");
    check_own("meta/run", "url", "mem:c/OJ2W4===");
    check_own("runs", "store", NULL);
    check_own("runs", "url", NULL);
    routed_stores(&w, 2, "OJ2W4===/file", "x");
}
END_TEST

/* What is owed of one path, by the name that it is to have, as "KIND STORE ROUTE POLICY". */
struct owed_where {
    const char *path;
    char text[128];
};

static int tell_where(void *arg, const struct cache_pending *p)
{
    const struct cache_routed *r = &p->routed;
    struct owed_where *o = arg;

    if (strcmp(p->path2 ? p->path2 : p->path, o->path) == 0)
        (void)snprintf(o->text, sizeof(o->text), "%s %s %s %s", p->kind,
                       r->store ? r->store : "-", r->route ? r->route : "-",
                       r->policy ? r->policy : "-");
    return 0;
}

static void check_owed(const char *path, const char *wanted)
{
    struct owed_where o = {.path = path};

    ck_assert_int_eq(cache_each_pending(w.d.cache, tell_where, &o), 0);
    ck_assert_msg(strcmp(o.text, wanted) == 0, "%s: \"%s\"", path, o.text);
}

static void make_full(bool full)
{
    for (unsigned leaf = 0; leaf < ROUTED_LEAVES; leaf++)
        atomic_store(&w.leaves[leaf].full, full);
}

/* A rename may lead to another route, and a file of the last name would have none. */
START_TEST(what_is_owed_says_which_store_gets_it)
{
    make_run("a");
    ck_assert_int_eq(driven_mkdir(&w.d, "meta/run"), 0);
    put("meta/run/moves", "x");
    put("all/goes", "x");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (unsigned leaf = 0; leaf < ROUTED_LEAVES; leaf++)
        atomic_store(&w.leaves[leaf].down, true);
    put("runs/a/logs/new", "x");
    ck_assert_int_eq(driven_rename(&w.d, "meta/run/moves", "all/came"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "all/goes"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/a/checkpoint/model"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    check_owed("runs/a/logs/new", "write b runs/{run}/logs/** plain");
    check_owed("all/came", "rename c all/** plain");
    check_owed("all/goes", "unlink c all/** plain");
    check_owed("runs/a/checkpoint", "rmdir a runs/{run}/checkpoint/** plain");
}
END_TEST

/* What several stores carry out names none of them, though its own key is in one. */
START_TEST(what_several_stores_owe_names_none)
{
    routed_release(&w);
    routed_init(&w, layout, LAYOUT_ROWS, kind);
    driven_mount(&w.d);
    make_run("a");
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/own"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (unsigned leaf = 0; leaf < ROUTED_LEAVES; leaf++)
        atomic_store(&w.leaves[leaf].down, true);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/own", "runs/a/other"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/b"), 0);
    check_owed("runs/b", "rename - - -");
    check_owed("runs/a/other", "rename b runs/{run}/** plain");
}
END_TEST

/* Its name among the kept files may be another one than it had. A folder keeps none so. */
START_TEST(what_is_kept_goes_nowhere)
{
    struct cache_stats s = {0};

    routed_release(&w);
    routed_init(&w, rows, ROWS, ROUTED_S3);
    driven_mount(&w.d);
    put("all/x", "x");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    make_full(true);
    put("all/x", "mine");
    check_owed("all/x", "write c all/** plain");
    routed_store(&w, 2, "x", "theirs");
    make_full(false);
    DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.kept_files));
    check_owed("all/x", "kept - - -");
}
END_TEST

/* A file of the directory's name would be in another store, of another kind: what that can says
 * nothing of the directory. */
START_TEST(a_directory_above_another_store_keeps_its_mode)
{
    struct stat st;

    routed_release(&w);
    routed_init(&w, layout, LAYOUT_ROWS, ROUTED_MIXED);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a/checkpoint", 0700), 0);
    put("runs/a/checkpoint/m", "weights");
    ck_assert_int_eq(driven_utimens(&w.d, "runs/a/checkpoint", 1000 * NS_PER_SEC), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    if (_i == 0)
        driven_unmount(&w.d);
    else
        driven_end(&w.d);
    if (_i < 2)
        driven_mount(&w.d);
    else
        driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 1);
    ck_assert_int_eq(driven_stat(&w.d, "runs/a/checkpoint", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(driven_list(&w.d, "runs/a/checkpoint"), 1);
    ck_assert_int_eq(driven_stat(&w.d, "runs/a/checkpoint", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(st.st_mtime, 1000);
}
END_TEST

static TCase *routes_of(const char *name, void (*use)(void))
{
    TCase *t = tcase_create(name);

    tcase_add_unchecked_fixture(t, use, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_path_without_a_route_is_refused_and_asked_of_nobody);
    tcase_add_test(t, a_name_that_a_route_cannot_store_is_refused);
    tcase_add_test(t, a_name_that_a_store_keeps_for_itself_is_refused);
    tcase_add_test(t, a_directory_gets_no_name_that_a_store_below_keeps_for_itself);
    tcase_add_test(t, fixed_directories_stay);
    tcase_add_test(t, fixed_directories_outlive_their_stores);
    tcase_add_test(t, a_directory_that_other_routes_make_is_not_stored);
    tcase_add_test(t, a_file_says_which_store_has_it);
    tcase_add_test(t, what_is_owed_says_which_store_gets_it);
    tcase_add_test(t, what_several_stores_owe_names_none);
    tcase_add_test(t, questions_wait_for_no_store_that_is_not_asked);
    return t;
}

int main(void)
{
    Suite *s = suite_create("cache_routes");

    TCase *t = tcase_create("cache_routes mixed");

    add_kinds(s, routes_of);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_directory_above_another_store_keeps_its_mode, 0, 3);
    tcase_add_test(t, what_is_kept_goes_nowhere);
    suite_add_tcase(s, t);
    return suite_run(s);
}
