/* Publish units on one mount: the store has the file that was closed last after the rest. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "common/path.h"
#include "tests/lib/suite.h"
#include "tests/lib/unit_stories.h"

#include <errno.h>
#include <fcntl.h>

START_TEST(the_last_waits_for_the_next)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/y");
    DRIVEN_WAIT(has("a/c-1/x"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/y"));
    put("a/c-1/z");
    DRIVEN_WAIT(has("a/c-1/y"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/z"));
    ck_assert_str_eq(driven_state(&w.d, "a/c-1/z"), "dirty");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(has("a/c-1/z"));
}
END_TEST

START_TEST(what_is_below_counts_too)
{
    mounted();
    made("a/c-1");
    made("a/c-1/sub");
    put("a/c-1/sub/x");
    put("a/c-1/y");
    put("a/c-1/sub/z");
    DRIVEN_WAIT(has("a/c-1/sub/x") && has("a/c-1/y"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/sub/z"));
}
END_TEST

START_TEST(its_last_name_says_that_it_is_complete)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/done");
    DRIVEN_WAIT(has("a/c-1/done"));
    ck_assert_ptr_nonnull(strstr(sent, "c-1/x"));
    ck_assert(strstr(sent, "c-1/x") < strstr(sent, "c-1/done"));
}
END_TEST

START_TEST(nothing_for_a_while_says_so)
{
    w.policies[1].unit_idle_ns = 100 * NS_PER_MS;
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    DRIVEN_WAIT(has("a/c-1/x"));
}
END_TEST

START_TEST(not_while_a_writer_is_in_it)
{
    struct handle *h;

    w.policies[1].unit_idle_ns = 10 * NS_PER_MS;
    mounted();
    made("a/c-1");
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/open", O_CREAT | O_WRONLY, &h), 0);
    put("a/c-1/done");
    (void)usleep(100000);
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/done"));
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    DRIVEN_WAIT(has("a/c-1/done") && has("a/c-1/open"));
}
END_TEST

/* As AdaptDL does. */
START_TEST(a_rename_says_so_and_keeps_the_order)
{
    static const char *const names[] = {"m", "z", "a", "q", "b"};
    char path[32];

    mounted();
    made("a/tmp-1");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "a/tmp-1/%s", names[i]);
        put(path);
    }
    all_that_goes_is_gone();
    ck_assert_int_eq(driven_rename(&w.d, "a/tmp-1", _i ? "a/c-1" : "a/other"), 0);
    (void)snprintf(path, sizeof(path), "a/%s/b", _i ? "c-1" : "other");
    DRIVEN_WAIT(has(path));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "a/%s/%s", _i ? "c-1" : "other", names[i]);
        ck_assert(has(path));
    }
    ck_assert_str_eq(strrchr(sent, ' '), _i ? " a/c-1/b" : " a/other/b");
}
END_TEST

START_TEST(a_pointer_declares_and_follows)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/y");
    atomic_store(&w.leaves[0].refused_key, "a/c-1/x");
    put("a/latest");
    put("a/beside");
    DRIVEN_WAIT(has("a/beside"));
    all_that_goes_is_gone();
    ck_assert(!has("a/latest") && !has("a/c-1/y"));
    atomic_store(&w.leaves[0].refused_key, NULL);
    DRIVEN_WAIT(has("a/latest"));
    ck_assert(has("a/c-1/x") && has("a/c-1/y"));
    ck_assert_str_eq(strrchr(sent, ' '), " a/latest");
}
END_TEST

START_TEST(a_pointer_follows_what_is_beside_it)
{
    mounted();
    atomic_store(&w.leaves[0].refused_key, "a/model-1");
    put("a/model-1");
    put("a/latest");
    all_that_goes_is_gone();
    ck_assert(!has("a/latest"));
    atomic_store(&w.leaves[0].refused_key, NULL);
    DRIVEN_WAIT(has("a/latest"));
    ck_assert(has("a/model-1"));
}
END_TEST

START_TEST(units_come_in_the_order_in_which_they_settled)
{
    mounted();
    made("a/c-1");
    made("a/c-2");
    put("a/c-1/x");
    put("a/c-1/done");
    atomic_store(&w.leaves[0].refused_key, "a/c-1/x");
    all_that_goes_is_gone();
    put("a/c-2/x");
    put("a/c-2/done");
    DRIVEN_WAIT(has("a/c-2/x"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/done") && !has("a/c-2/done"));
    atomic_store(&w.leaves[0].refused_key, NULL);
    DRIVEN_WAIT(has("a/c-2/done"));
    ck_assert(has("a/c-1/done"));
}
END_TEST

START_TEST(other_directories_do_not_wait)
{
    mounted();
    made("a/r");
    made("a/s");
    made("a/r/c-1");
    made("a/s/c-1");
    atomic_store(&w.leaves[0].refused_key, "a/r/c-1/x");
    put("a/r/c-1/x");
    put("a/r/c-1/done");
    put("a/s/c-1/x");
    put("a/s/c-1/done");
    DRIVEN_WAIT(has("a/s/c-1/done"));
    ck_assert(!has("a/r/c-1/done"));
}
END_TEST

START_TEST(a_kill_changes_nothing)
{
    mounted();
    made("a/c-1");
    atomic_store(&w.leaves[0].no_puts, true);
    put("a/c-1/x");
    put("a/c-1/y");
    put("a/c-1/z");
    driven_unmount(&w.d);
    forget_sent();
    driven_mount(&w.d);
    atomic_store(&w.leaves[0].no_puts, false);
    DRIVEN_WAIT(has("a/c-1/x") && has("a/c-1/y"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/z"));
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_str_eq(strrchr(sent, ' '), " a/c-1/z");
}
END_TEST

START_TEST(a_change_of_what_is_there_goes_by_itself)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/done");
    char value[64] = "";

    DRIVEN_WAIT(has("a/c-1/done"));
    all_that_goes_is_gone();
    atomic_store(&w.leaves[0].no_puts, true);
    driven_put(&w.d, "a/c-1/late", "1", 1);
    ck_assert_int_eq(driven_getxattr(&w.d, "a/c-1", "user.runfs.unit.state", value, 63), 4);
    ck_assert_int_eq(memcmp(value, "open", 4), 0);
    atomic_store(&w.leaves[0].no_puts, false);
    DRIVEN_WAIT(has("a/c-1/late"));
}
END_TEST

/* The last one goes away unsent: then the one before it is the last. */
START_TEST(a_tail_that_goes_leaves_another)
{
    mounted();
    made("a/c-1");
    atomic_store(&w.leaves[0].no_puts, true);
    put("a/c-1/x");
    put("a/c-1/y");
    put("a/c-1/z");
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-1/z"), 0);
    atomic_store(&w.leaves[0].no_puts, false);
    DRIVEN_WAIT(has("a/c-1/x"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/y"));
}
END_TEST

static bool waits_for_store(void)
{
    w.policies[1].durability = DURABILITY_STORE;
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    ck_assert(has("a/c-1/x"));
    put("a/c-1/y");
    return has("a/c-1/y");
}

START_TEST(who_waits_for_the_last_gets_it)
{
    ck_assert(waits_for_store());
}
END_TEST

START_TEST(who_waits_for_the_last_is_told_of_the_rest)
{
    struct handle *h;

    mounted();
    made("a/c-1");
    atomic_store(&w.leaves[0].refused_key, "a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/w");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/c-1/x"), "failed") == 0);
    now_durable(DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/y", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_close(&w.d, h), -EACCES);
    ck_assert(!has("a/c-1/y"));
    atomic_store(&w.leaves[0].refused_key, NULL);
    DRIVEN_WAIT(driven_flush(&w.d) == 0);
    ck_assert(has("a/c-1/x") && has("a/c-1/y"));
}
END_TEST

START_TEST(a_synced_directory_is_complete)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/x"));
    ck_assert_int_eq(driven_fsyncdir(&w.d, "a/c-1"), 0);
    DRIVEN_WAIT(has("a/c-1/x"));
}
END_TEST

static void count_unit(void *arg, const struct cache_unit *u)
{
    (void)u;
    ++*(int *)arg;
}

static int units(void)
{
    int n = 0;

    cache_each_unit(w.d.cache, "", count_unit, &n);
    return n;
}

START_TEST(an_empty_one_is_forgotten_and_begins_again)
{
    w.policies[1].unit_idle_ns = 50 * NS_PER_MS;
    mounted();
    made("a/c-1");
    DRIVEN_WAIT(units() == 0);
    now_idle(HOUR);
    put("a/c-1/x");
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/x"));
    ck_assert_int_eq(units(), 1);
}
END_TEST

START_TEST(a_removed_unit_is_nobodys)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-1/x"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "a/c-1"), 0);
    put("a/latest");
    DRIVEN_WAIT(has("a/latest"));
    ck_assert_int_eq(driven_flush(&w.d), 0);
}
END_TEST

/* Marker objects of empty directories are names of the unit as well. */
START_TEST(an_empty_directory_comes_before_the_last)
{
    w.d.config.settle_ns = 300 * NS_PER_MS; /* of directories */
    w.policies[1].settle_ns = 0;
    mounted();
    made("a/c-1");
    made("a/c-1/empty");
    put("a/c-1/x");
    put("a/c-1/done");
    DRIVEN_WAIT(has("a/c-1/done"));
    ck_assert(has("a/c-1/empty"));
}
END_TEST

/* Who takes the newest directory for the newest checkpoint must find something in it. */
START_TEST(nothing_is_in_the_store_of_an_empty_one)
{
    mounted();
    made("a/c-1");
    made("a/c-2");
    put("a/c-2/x");
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-2/x"), 0);
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1") && !has("a/c-2"));
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert(has("a/c-1") && has("a/c-2"));
}
END_TEST

static atomic_int made_there; /* directories of units, at the store */

static void count_made(unsigned leaf, const struct call *c)
{
    if (leaf == 0 && c->kind == CALL_MKDIR && strncmp(c->key, "a/c-", 4) == 0)
        atomic_fetch_add(&made_there, 1);
}

/* As a person asks for it, not the end of a mount. */
static void *flush(void *arg)
{
    struct op op;

    op_init(&op, 60 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(w.d.cache, "", 0, &op, NULL, NULL), 0);
    return arg;
}

/* With a file another one is on its way, so that this one does not go. On a machine that stands
 * still meanwhile it proves nothing, and is told again. */
static bool removed_amid_a_flush(const char *dir, bool with_file)
{
    auto_free char *file = path_join(dir, "x");
    pthread_t thread;

    atomic_store(&w.leaves[0].stuck, with_file);
    put("a/busy");
    int64_t began_ns = clock_mono_ns();
    made(dir);
    if (with_file)
        put(file);
    ck_assert_int_eq(pthread_create(&thread, NULL, flush, NULL), 0);
    (void)usleep(50000);
    ck_assert_int_eq(with_file ? driven_unlink(&w.d, file) : 0, 0);
    (void)usleep(50000);
    ck_assert_int_eq(driven_rmdir(&w.d, dir), 0);
    bool in_time = clock_mono_ns() - began_ns < 500 * NS_PER_MS;
    atomic_store(&w.leaves[0].stuck, false);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return in_time;
}

START_TEST(a_flush_amid_a_removal_does_not_show_what_is_left)
{
    char dir[] = "a/c-1";
    bool in_time = false;

    w.d.config.upload_jobs = 1;
    mounted();
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.watch, count_made);
    for (; !in_time && dir[4] <= '9'; dir[4]++) {
        atomic_store(&made_there, 0);
        in_time = removed_amid_a_flush(dir, _i == 1);
    }
    ck_assert(in_time);
    ck_assert_int_eq(atomic_load(&made_there), 0);
}
END_TEST

START_TEST(an_empty_one_comes_after_a_while)
{
    w.policies[1].unit_idle_ns = 50 * NS_PER_MS;
    mounted();
    made("a/c-1");
    DRIVEN_WAIT(has("a/c-1"));
}
END_TEST

START_TEST(a_rename_in_it_comes_before_the_last)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/z");
    DRIVEN_WAIT(has("a/c-1/x"));
    atomic_store(&w.leaves[0].no_moves, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/c-1/x", "a/c-1/y"), 0);
    put("a/c-1/done");
    DRIVEN_WAIT(has("a/c-1/z"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/done"));
    atomic_store(&w.leaves[0].no_moves, false);
    DRIVEN_WAIT(has("a/c-1/done"));
    ck_assert(has("a/c-1/y"));
}
END_TEST

/* A walk meets what is below first. */
START_TEST(a_rename_keeps_the_last_below_the_last)
{
    mounted();
    made("a/tmp-1");
    made("a/tmp-1/sub");
    put("a/tmp-1/m");
    put("a/tmp-1/sub/last");
    ck_assert_int_eq(driven_rename(&w.d, "a/tmp-1", "a/c-1"), 0);
    DRIVEN_WAIT(has("a/c-1/m") && has("a/c-1/sub/last"));
    ck_assert_str_eq(strrchr(sent, ' '), " a/c-1/sub/last");
}
END_TEST

/* Names that no program closes. */
START_TEST(a_symlink_comes_before_the_last)
{
    const char *dir = _i ? "a/tmp-1" : "a/c-1";
    char path[32];

    mounted();
    made(dir);
    atomic_store(&w.leaves[0].refused_key, "a/c-1/link");
    (void)snprintf(path, sizeof(path), "%s/x", dir);
    put(path);
    (void)snprintf(path, sizeof(path), "%s/link", dir);
    ck_assert_int_eq(driven_symlink(&w.d, "nowhere", path), 0);
    (void)snprintf(path, sizeof(path), "%s/done", dir);
    put(path);
    if (_i)
        ck_assert_int_eq(driven_rename(&w.d, dir, "a/c-1"), 0);
    DRIVEN_WAIT(has("a/c-1/x"));
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/done"));
    atomic_store(&w.leaves[0].refused_key, NULL);
    DRIVEN_WAIT(has("a/c-1/done"));
    ck_assert(has("a/c-1/link"));
}
END_TEST

/* The old one goes when the new one is whole, though nothing of that was closed before. */
START_TEST(a_removal_waits_for_what_was_begun)
{
    struct handle *h;

    mounted();
    made("a/c-0");
    put("a/c-0/old");
    put("a/c-0/done");
    DRIVEN_WAIT(has("a/c-0/done"));
    made("a/c-1");
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/x", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-0/old"), 0);
    all_that_goes_is_gone();
    ck_assert(has("a/c-0/old"));
    ck_assert_int_eq(driven_write(&w.d, h, "1", 1, 0), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    all_that_goes_is_gone();
    ck_assert(has("a/c-0/old"));
    put("a/c-1/done");
    DRIVEN_WAIT(!has("a/c-0/old"));
    ck_assert(has("a/c-1/done"));
}
END_TEST

/* A flush waits for no writer. */
START_TEST(who_waits_for_a_removal_has_the_last_sent)
{
    struct handle *h;
    struct op op;

    mounted();
    made("b");
    made("a/c-1");
    put("b/old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/x", O_CREAT | O_WRONLY, &h), 0);
    put("a/c-1/y");
    ck_assert_int_eq(driven_unlink(&w.d, "b/old"), 0);
    op_init(&op, 60 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(w.d.cache, "b", 0, &op, NULL, NULL), 0);
    ck_assert(has("a/c-1/y") && !routed_has(&w, 1, "b/old"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

/* One file, of which the store lacks both names. */
START_TEST(a_file_of_two_names_is_the_last)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    ck_assert_int_eq(driven_link(&w.d, "a/c-1/x", "a/c-1/done"), 0);
    DRIVEN_WAIT(has("a/c-1/x") && has("a/c-1/done"));
}
END_TEST

START_TEST(a_commit_waits_for_no_writer)
{
    struct handle *h;
    struct op op;

    mounted();
    made("a/c-1");
    made("a/plain");
    made("b");
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/open", O_CREAT | O_WRONLY, &h), 0);
    put("a/c-1/x");
    all_that_goes_is_gone();
    ck_assert(!has("a/c-1/x"));
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(cache_commit(w.d.cache, "b", &op), -EINVAL);
    ck_assert_int_eq(cache_commit(w.d.cache, "a/plain", &op), 0);
    ck_assert_int_eq(cache_commit(w.d.cache, "a/c-1/x", &op), -ENOTDIR);
    ck_assert_int_eq(cache_commit(w.d.cache, "a/none", &op), -ENOENT);
    ck_assert_int_eq(cache_commit(w.d.cache, "a/c-1", &op), 0);
    DRIVEN_WAIT(has("a/c-1/x"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

static void note_unit(void *arg, const struct cache_unit *u)
{
    (void)snprintf(arg, 64, "%s %s %d %d", u->path, u->state, (int)u->lacks, u->declared);
}

START_TEST(a_unit_is_told_of)
{
    char text[64] = "", value[64] = "";

    mounted();
    made("a/c-1");
    put("a/c-1/x");
    cache_each_unit(w.d.cache, "a", note_unit, text);
    ck_assert_str_eq(text, "a/c-1 open 1 0");
    text[0] = '\0';
    cache_each_unit(w.d.cache, "b", note_unit, text);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(driven_getxattr(&w.d, "a/c-1/x", "user.runfs.unit", value, 63), 5);
    ck_assert_int_eq(memcmp(value, "a/c-1", 5), 0);
    ck_assert_int_eq(driven_getxattr(&w.d, "a/c-1", "user.runfs.unit.state", value, 63), 4);
    ck_assert_int_eq(memcmp(value, "open", 4), 0);
    ck_assert_int_eq(driven_getxattr(&w.d, "a", "user.runfs.unit", value, 63), -ENODATA);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    DRIVEN_WAIT(driven_getxattr(&w.d, "a/c-1", "user.runfs.unit.state", value, 63) == 5);
    ck_assert_int_eq(memcmp(value, "whole", 5), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_units");
    TCase *t = tcase_create("cache_units");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_last_waits_for_the_next);
    tcase_add_test(t, what_is_below_counts_too);
    tcase_add_test(t, its_last_name_says_that_it_is_complete);
    tcase_add_test(t, nothing_for_a_while_says_so);
    tcase_add_test(t, not_while_a_writer_is_in_it);
    tcase_add_loop_test(t, a_rename_says_so_and_keeps_the_order, 0, 2);
    tcase_add_test(t, a_pointer_declares_and_follows);
    tcase_add_test(t, a_pointer_follows_what_is_beside_it);
    tcase_add_test(t, units_come_in_the_order_in_which_they_settled);
    tcase_add_test(t, other_directories_do_not_wait);
    tcase_add_test(t, a_kill_changes_nothing);
    tcase_add_test(t, a_change_of_what_is_there_goes_by_itself);
    tcase_add_test(t, a_tail_that_goes_leaves_another);
    tcase_add_test(t, who_waits_for_the_last_gets_it);
    tcase_add_test(t, who_waits_for_the_last_is_told_of_the_rest);
    tcase_add_test(t, a_synced_directory_is_complete);
    tcase_add_test(t, an_empty_one_is_forgotten_and_begins_again);
    tcase_add_test(t, a_removed_unit_is_nobodys);
    tcase_add_test(t, an_empty_directory_comes_before_the_last);
    tcase_add_test(t, nothing_is_in_the_store_of_an_empty_one);
    tcase_add_loop_test(t, a_flush_amid_a_removal_does_not_show_what_is_left, 0, 2);
    tcase_add_test(t, an_empty_one_comes_after_a_while);
    tcase_add_test(t, a_rename_in_it_comes_before_the_last);
    tcase_add_test(t, a_rename_keeps_the_last_below_the_last);
    tcase_add_loop_test(t, a_symlink_comes_before_the_last, 0, 2);
    tcase_add_test(t, a_removal_waits_for_what_was_begun);
    tcase_add_test(t, who_waits_for_a_removal_has_the_last_sent);
    tcase_add_test(t, a_file_of_two_names_is_the_last);
    tcase_add_test(t, a_commit_waits_for_no_writer);
    tcase_add_test(t, a_unit_is_told_of);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
