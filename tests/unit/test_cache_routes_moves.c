/* cache/: several stores in one tree: where names move to, and what moves with them. */
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/routed_runs.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A run has a name in one store that not every name has a form for in the other one; without
 * the last row nothing maps the run itself. */
static const struct routed_row tracked[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/metadata/**", .key = "{run:b32}/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

#define TRACKED_ROWS (sizeof(tracked) / sizeof(*tracked))

static bool in_layout; /* the keys are the paths */

/* Of a directory that a name was looked up in; else its listing, which nobody waits for, is
 * asked for at any time from then on. */
static void list_all(const char *const *paths, size_t n)
{
    for (size_t k = 0; k < n; k++)
        ck_assert_int_ge(driven_list(&w.d, paths[k]), 0);
}

START_TEST(what_would_cross_stores_is_refused_and_nothing_asked)
{
    static const char *const above[] = {"", "runs", "runs/one", "runs/one/checkpoint",
                                        "runs/one/logs"};
    struct stat st;

    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_symlink(&w.d, "model", "runs/one/checkpoint/link"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/one/checkpoint/dir"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_mount_afresh(&w.d); /* no content is here */
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    driven_unmount(&w.d);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/checkpoint/model", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/checkpoint/link", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/checkpoint/dir", &st), 0);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/logs/out", &st), 0);
    ck_assert_int_eq(driven_list(&w.d, "runs/one/checkpoint/dir"), 0);
    list_all(above, ARRAY_SIZE(above));
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/model"),
                     -EXDEV);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/link", "runs/one/logs/link"),
                     -EXDEV);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/dir", "runs/one/logs/dir"),
                     -EXDEV);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/logs", "runs/one/checkpoint/dir"), -EXDEV);
    ck_assert_int_eq(driven_link(&w.d, "runs/one/checkpoint/model", "runs/one/logs/model"),
                     -EXDEV);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/one/checkpoint/model", "runs/one/logs/out"),
                     -EXDEV);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/one/checkpoint", "runs/one/logs"), -EXDEV);
    ck_assert_uint_eq(routed_requests(&w), before);
    driven_shows(&w.d, "runs/one/checkpoint/model", "weights");
}
END_TEST

START_TEST(files_move_within_a_store)
{
    make_run("one");
    make_run("two");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/two/checkpoint/m"),
                     0);
    ck_assert_int_eq(driven_link(&w.d, "runs/two/checkpoint/m", "runs/one/checkpoint/again"),
                     0);
    ck_assert_int_eq(
        driven_exchange(&w.d, "runs/two/checkpoint/m", "runs/two/checkpoint/model"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 0, "one/again", "weights");
    routed_stores(&w, 0, "two/m", "weights");
}
END_TEST

/* A directory of its new name would have parts in several stores. */
START_TEST(a_file_moves_to_where_a_run_could_be)
{
    routed_release(&w);
    routed_init(&w, layout, LAYOUT_ROWS, kind);
    driven_mount(&w.d);
    put("file", "text");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_rename(&w.d, "file", "runs/one"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 2, "file", NULL);
    routed_stores(&w, 2, "runs/one", "text");
}
END_TEST

/* As os.replace() does, which has no other way. */
START_TEST(a_file_that_is_here_moves_to_another_store)
{
    struct stat before, after;

    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/checkpoint/model", &before), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/out"), 0);
    driven_shows(&w.d, "runs/one/logs/out", "weights");
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/logs/out", &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    put("runs/one/checkpoint/new", "never stored"); /* as a temporary file */
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/new", "runs/one/logs/new"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 1, "one/out", "weights");
    routed_stores(&w, 0, "one/new", NULL);
    routed_stores(&w, 1, "one/new", "never stored");
    driven_mount_afresh(&w.d);
    driven_shows(&w.d, "runs/one/logs/out", "weights");
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/checkpoint/model", &after), -ENOENT);
}
END_TEST

/* The old name goes when the new one is there, and not before. */
START_TEST(a_file_that_leaves_its_store_is_in_one_of_both)
{
    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[1].down, true);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/model"),
                     0);
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "runs/one/logs/model"), "failed") == 0);
    routed_stores(&w, 0, "one/model", "weights");
    atomic_store(&w.leaves[1].down, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 1, "one/model", "weights");
}
END_TEST

/* Its old name waits for it, what else is removed does not. */
START_TEST(a_file_that_is_open_leaves_its_store_when_it_is_closed)
{
    struct handle *h = NULL;
    struct cache_stats s;

    make_run("one");
    put("runs/one/checkpoint/other", "goes");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "runs/one/checkpoint/model", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/m"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/one/checkpoint/other"), 0);
    DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.pending_ops == 1));
    routed_stores(&w, 0, "one/other", NULL);
    routed_stores(&w, 0, "one/model", "weights");
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 1, "one/m", "weights");
}
END_TEST

START_TEST(a_flush_waits_for_no_close_of_what_left_its_store)
{
    struct handle *h = NULL;

    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "runs/one/checkpoint/model", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/m"), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "W", 1, 0), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 1, "one/m", "Weights");
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

static int wait_for(const char *path, unsigned flags)
{
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    return cache_flush_path(w.d.cache, path, flags, &op, NULL, NULL);
}

static int flush_of(const char *path)
{
    return wait_for(path, 0);
}

/* A writer has it open as it leaves: `flags` as it opened it. */
static struct handle *leaves_open(int flags, const char *to)
{
    struct handle *h = NULL;

    make_run("one");
    put("runs/one/checkpoint/other", "goes");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "runs/one/checkpoint/model", flags, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "W", 1, 0), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", to), 0);
    return h;
}

START_TEST(a_flush_of_the_old_directory_sends_what_left_it_for_another_store)
{
    struct handle *h = leaves_open(O_WRONLY, "all/m");

    /* Who may only wait can't have it sent. */
    ck_assert_int_eq(wait_for("runs/one/checkpoint", CACHE_FLUSH_AWAIT), -ETXTBSY);
    ck_assert_int_eq(flush_of("runs/one/checkpoint"), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 2, "m", "Weights");
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

START_TEST(a_flush_of_the_old_directory_says_why_the_new_store_refuses)
{
    atomic_store(&w.leaves[1].refused_key, "one/m");
    struct handle *h = leaves_open(O_WRONLY, "runs/one/logs/m");

    ck_assert_int_eq(flush_of("runs/one/checkpoint"), -EACCES);
    routed_stores(&w, 0, "one/model", "weights");
    ck_assert_int_eq(driven_close(&w.d, h), -EACCES);
}
END_TEST

/* It goes up under its staging name: nothing says that another one will come. */
START_TEST(a_flush_of_the_old_directory_waits_for_no_rename_of_what_left_it)
{
    struct handle *h = leaves_open(O_WRONLY, "runs/one/logs/m");

    atomic_store(&w.leaves[1].down, true);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/one/logs/m", "runs/one/logs/m.tmp"), 0);
    atomic_store(&w.leaves[1].down, false);
    ck_assert_int_eq(flush_of("runs/one/checkpoint"), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 1, "one/m.tmp", "Weights");
}
END_TEST

START_TEST(a_flush_names_what_left_the_directory_half)
{
    struct handle *h = leaves_open(O_WRONLY | O_TRUNC, "all/m");

    ck_assert_int_eq(flush_of("runs/one/checkpoint"), -ETXTBSY);
    routed_stores(&w, 0, "one/model", "weights");
    ck_assert_int_eq(driven_unlink(&w.d, "runs/one/checkpoint/other"), 0);
    ck_assert_int_eq(flush_of("runs/one/checkpoint/other"), 0); /* waits for no half file */
    routed_stores(&w, 0, "one/other", NULL);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    ck_assert_int_eq(flush_of("runs/one/checkpoint"), 0);
    routed_stores(&w, 0, "one/model", NULL);
    routed_stores(&w, 2, "m", "W");
}
END_TEST

static struct handle *left_open; /* by the daemon that is killed */

/* What is half goes to kept/: the store has what it had, and shows it again. */
START_TEST(a_half_file_that_leaves_its_store_stays_there_after_a_kill)
{
    int status;

    routed_init(&w, rows, ROWS, ROUTED_FOLDERS);
    driven_mount(&w.d);
    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_unmount(&w.d);
    pid_t pid = fork();
    if (pid == 0) {
        driven_mount(&w.d);
        if (driven_open(&w.d, "runs/one/checkpoint/model", O_WRONLY | O_TRUNC, &left_open) ||
            driven_write(&w.d, left_open, "half", 4, 0) ||
            driven_rename(&w.d, "runs/one/checkpoint/model", "all/m"))
            _exit(1);
        (void)raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "one/model", "weights");
    driven_shows(&w.d, "runs/one/checkpoint/model", "weights");
    routed_release(&w);
}
END_TEST

START_TEST(a_file_that_leaves_its_store_is_whole_after_a_kill_at_any_step)
{
    struct cache_stats s;
    int step = 0;

    for (bool done = false; !done; step += (int)every(SOME_STEPS)) {
        routed_init(&w, rows, ROWS, (enum routed_kind)_i);
        driven_mount(&w.d);
        make_run("one");
        ck_assert_int_eq(driven_flush(&w.d), 0);
        atomic_store(&w.fuse, step);
        ck_assert_int_eq(driven_rename(&w.d, "runs/one/checkpoint/model", "runs/one/logs/m"),
                         0);
        DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.pending_ops + s.dirty_files == 0) ||
                    atomic_load(&w.fuse) == 0);
        done = atomic_load(&w.fuse) > 0;
        driven_unmount(&w.d);
        atomic_store(&w.fuse, -1);
        driven_mount(&w.d);
        ck_assert_int_eq(driven_flush(&w.d), 0);
        routed_stores(&w, 0, "one/model", NULL);
        routed_stores(&w, 1, "one/m", "weights");
        routed_release(&w);
    }
    ck_assert_int_gt(step, 2);
}
END_TEST

static void check_run(const char *run, const char *weights)
{
    char key[64];

    (void)snprintf(key, sizeof(key), in_layout ? "runs/%s/checkpoint/model" : "%s/model", run);
    routed_stores(&w, 0, key, weights);
    (void)snprintf(key, sizeof(key), in_layout ? "runs/%s/logs/out" : "%s/out", run);
    routed_stores(&w, 1, key, weights ? "lines" : NULL);
}

START_TEST(a_directory_moves_over_all_its_stores)
{
    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    check_run("one", "weights");
    ck_assert_int_eq(driven_rename(&w.d, "runs/one", "runs/two"), 0);
    driven_shows(&w.d, "runs/two/checkpoint/model", "weights");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    check_run("two", "weights");
    check_run("one", NULL);
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
    ck_assert_int_eq(driven_list(&w.d, "runs/two"), 2);
    driven_shows(&w.d, "runs/two/logs/out", "lines");
}
END_TEST

/* A run of the tracked rows that is in the stores; its own directory is bare. */
static void make_tracked(size_t n)
{
    static const char *const above[] = {"", "runs"};

    routed_release(&w);
    routed_init(&w, tracked, n, kind);
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    driven_mount(&w.d);
    list_all(above, ARRAY_SIZE(above));
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/metadata"), 0);
    put("runs/a/checkpoint/model", "weights");
    put("runs/a/metadata/p", "params");
    ck_assert_int_eq(driven_flush(&w.d), 0);
}

static void check_unmoved(void)
{
    struct cache_stats s;

    cache_get_stats(w.d.cache, &s);
    ck_assert_uint_eq(s.pending_ops + s.dirty_files, 0);
    driven_shows(&w.d, "runs/a/checkpoint/model", "weights");
    driven_shows(&w.d, "runs/a/metadata/p", "params");
    routed_stores(&w, 0, "a/model", "weights");
    routed_stores(&w, 1, "ME======/p", "params");
}

/* What is below it comes along, and nobody would be asked for its names. */
START_TEST(a_directory_gets_no_name_that_a_route_below_cannot_store)
{
    make_tracked(_i ? TRACKED_ROWS : TRACKED_ROWS - 1);
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/\xff"), -EILSEQ);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/" LONG_NAME), -ENAMETOOLONG);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/%zz"), -EINVAL);
    ck_assert_uint_eq(routed_requests(&w), before);
    check_unmoved();
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", "runs/b"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "b/model", "weights");
    routed_stores(&w, 1, "MI======/p", "params");
}
END_TEST

/* The limit is that of the route which encodes the name, whatever maps the run itself. */
START_TEST(a_directory_gets_no_name_with_which_a_key_below_is_too_long)
{
    char path[PATH_KEY_MAX] = "runs/a/metadata";

    make_tracked(_i ? TRACKED_ROWS : TRACKED_ROWS - 1);
    while (strlen(path) < 3960) {
        (void)strcat(path, "/1234567890123456789012345678901234567890");
        ck_assert_int_eq(driven_mkdir(&w.d, path), 0);
    }
    ck_assert_int_eq(driven_flush(&w.d), 0);
    size_t more = PATH_KEY_MAX - 8 - strlen(path); /* the path itself would fit */
    char to[PATH_KEY_MAX] = "runs/a";
    memset(to + strlen(to), 'b', more);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a", to), -ENAMETOOLONG);
    check_unmoved();
}
END_TEST

START_TEST(no_directories_change_places_that_a_route_below_cannot_store)
{
    make_tracked(_i ? TRACKED_ROWS : TRACKED_ROWS - 1);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/" LONG_NAME), 0); /* no key has the name */
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/" LONG_NAME "/metadata"), -ENAMETOOLONG);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    unsigned before = routed_requests(&w);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/a", "runs/" LONG_NAME), -ENAMETOOLONG);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/" LONG_NAME, "runs/a"), -ENAMETOOLONG);
    ck_assert_uint_eq(routed_requests(&w), before);
    check_unmoved();
    ck_assert_int_eq(driven_rename(&w.d, "runs/" LONG_NAME, "runs/b"), 0);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/a", "runs/b"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 1, "MI======/p", "params");
}
END_TEST

static const struct routed_row near_limit[] = {
    {.path = "runs/{run}/**", .key = LONG_NAME "{run:b32}/**", .leaf = 0},
};

/* The name between them has a form that is too long. */
START_TEST(no_directories_change_places_whose_passage_cannot_be_stored)
{
    routed_release(&w);
    routed_init(&w, near_limit, sizeof(near_limit) / sizeof(*near_limit), kind);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    put("runs/a/file", "text");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/a", "runs/b"), -EXDEV);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, LONG_NAME "ME======/file", "text");
}
END_TEST

START_TEST(two_directories_change_places_over_all_their_stores)
{
    make_run("one");
    make_run("two");
    put("runs/two/checkpoint/model", "others");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_exchange(&w.d, "runs/one", "runs/two"), 0);
    driven_shows(&w.d, "runs/one/checkpoint/model", "others");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    check_run("one", "others");
    check_run("two", "weights");
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs"), 2);
}
END_TEST

/* The daemon is killed when the stores have taken so many of its changes. */
START_TEST(a_directory_that_moves_is_whole_after_a_kill_at_any_step)
{
    int step = 0;

    in_layout = _i >= ROUTED_KINDS;
    for (bool done = false; !done; step += (int)every(SOME_STEPS)) {
        routed_init(&w, in_layout ? layout : rows, in_layout ? LAYOUT_ROWS : ROWS,
                    (enum routed_kind)(_i % ROUTED_KINDS));
        driven_mount(&w.d);
        make_run("one");
        ck_assert_int_eq(driven_flush(&w.d), 0);
        atomic_store(&w.fuse, step);
        ck_assert_int_eq(driven_rename(&w.d, "runs/one", "runs/two"), 0);
        struct cache_stats s;
        DRIVEN_WAIT((cache_get_stats(w.d.cache, &s), s.pending_ops == 0) ||
                    atomic_load(&w.fuse) == 0);
        done = atomic_load(&w.fuse) > 0;
        driven_unmount(&w.d);
        atomic_store(&w.fuse, -1);
        driven_mount(&w.d);
        ck_assert_int_eq(driven_flush(&w.d), 0);
        check_run("two", "weights");
        check_run("one", NULL);
        ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
        driven_mount_afresh(&w.d);
        ck_assert_int_eq(driven_list(&w.d, "runs"), 1);
        routed_release(&w);
    }
    ck_assert_int_gt(step, 4); /* a copy and a removal in each store */
}
END_TEST

/* The removal of the run and what comes there again are of one key. */
START_TEST(a_run_that_is_made_again_outlives_its_removal)
{
    struct stat st;

    make_run("one");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/one/checkpoint/model"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "runs/one/logs/out"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/one/checkpoint"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/one/logs"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].stuck, true); /* the first store that is told */
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/one"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/one"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/one/logs"), 0);
    (void)usleep(200000); /* in which the second could get the new directory too early */
    atomic_store(&w.leaves[0].stuck, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "runs/one/logs", &st), 0);
    ck_assert_int_eq(driven_list(&w.d, "runs/one"), 1);
}
END_TEST

/* One key is behind a run and its checkpoint: the old run's removal is about to take it. */
START_TEST(a_directory_that_moves_into_one_made_again_stays)
{
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].rmdirs_held, 2);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), 0);
    DRIVEN_WAIT(atomic_load(&w.leaves[0].rmdirs) == 2);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/b/checkpoint", "runs/a/checkpoint"), 0);
    (void)usleep(300 * 1000); /* as long as the copy would take */
    atomic_store(&w.leaves[0].rmdirs_held, 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    driven_mount_afresh(&w.d);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 1);
}
END_TEST

/* One store has both places, where a file of the new name would be in another. */
START_TEST(a_directory_becomes_the_root_of_its_route)
{
    routed_release(&w);
    routed_init(&w, layout, LAYOUT_ROWS, kind);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint/step"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/b"), 0);
    put("runs/a/checkpoint/step/model", "weights");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_rename(&w.d, "runs/a/checkpoint/step", "runs/b/checkpoint"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "runs/b/checkpoint/model", "weights");
    routed_stores(&w, 0, "runs/a/checkpoint/step/model", NULL);
    ck_assert_int_eq(driven_rename(&w.d, "runs/b/checkpoint", "runs/a/checkpoint/step"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "runs/a/checkpoint/step/model", "weights");
}
END_TEST

static TCase *routes_of(const char *name, void (*use)(void))
{
    TCase *t = tcase_create(name);

    tcase_add_unchecked_fixture(t, use, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_would_cross_stores_is_refused_and_nothing_asked);
    tcase_add_test(t, files_move_within_a_store);
    tcase_add_test(t, a_file_moves_to_where_a_run_could_be);
    tcase_add_test(t, a_file_that_is_here_moves_to_another_store);
    tcase_add_test(t, a_file_that_leaves_its_store_is_in_one_of_both);
    tcase_add_test(t, a_file_that_is_open_leaves_its_store_when_it_is_closed);
    tcase_add_test(t, a_flush_waits_for_no_close_of_what_left_its_store);
    tcase_add_test(t, a_flush_of_the_old_directory_sends_what_left_it_for_another_store);
    tcase_add_test(t, a_flush_of_the_old_directory_says_why_the_new_store_refuses);
    tcase_add_test(t, a_flush_of_the_old_directory_waits_for_no_rename_of_what_left_it);
    tcase_add_test(t, a_flush_names_what_left_the_directory_half);
    tcase_add_test(t, a_directory_moves_over_all_its_stores);
    tcase_add_loop_test(t, a_directory_gets_no_name_that_a_route_below_cannot_store, 0, 2);
    tcase_add_loop_test(t, a_directory_gets_no_name_with_which_a_key_below_is_too_long, 0, 2);
    tcase_add_loop_test(t, no_directories_change_places_that_a_route_below_cannot_store, 0, 2);
    tcase_add_test(t, no_directories_change_places_whose_passage_cannot_be_stored);
    tcase_add_test(t, two_directories_change_places_over_all_their_stores);
    tcase_add_test(t, a_run_that_is_made_again_outlives_its_removal);
    tcase_add_test(t, a_directory_that_moves_into_one_made_again_stays);
    tcase_add_test(t, a_directory_becomes_the_root_of_its_route);
    return t;
}

int main(void)
{
    Suite *s = suite_create("cache_routes_moves");
    TCase *kills = tcase_create("kills");

    add_kinds(s, routes_of);
    tcase_set_timeout(kills, 300);
    tcase_add_loop_test(kills, a_directory_that_moves_is_whole_after_a_kill_at_any_step, 0,
                        2 * ROUTED_KINDS);
    tcase_add_loop_test(kills, a_file_that_leaves_its_store_is_whole_after_a_kill_at_any_step,
                        0, ROUTED_KINDS);
    tcase_add_test(kills, a_half_file_that_leaves_its_store_stays_there_after_a_kill);
    suite_add_tcase(s, kills);
    return suite_run(s);
}
