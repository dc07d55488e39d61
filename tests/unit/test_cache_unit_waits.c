/* Publish units: waits that have to end, and orders that a reader of the code found broken. */
#include "cache/mount.h"
#include "tests/lib/suite.h"
#include "tests/lib/unit_stories.h"

#include <errno.h>
#include <fcntl.h>

/* The pass counter of debug builds. */
extern atomic_ullong passes_made;

static int flush_for(const char *path, unsigned flags)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_flush_path(w.d.cache, path, flags, &op, NULL, NULL);
}

static void opened(const char *path, int flags, struct handle **ret)
{
    ck_assert_int_eq(driven_open(&w.d, path, O_CREAT | O_WRONLY | flags, ret), 0);
    ck_assert_int_eq(driven_write(&w.d, *ret, "1", 1, 0), 0);
}

/* It does not come for as long as other files do. */
static void stays_away(const char *path)
{
    all_that_goes_is_gone();
    (void)usleep(200000);
    all_that_goes_is_gone();
    ck_assert_msg(!has(path), "%s is there", path);
}

static void refuse(const char *key)
{
    atomic_store(&w.leaves[0].refused_key, key);
}

/* ---- waits ---- */

START_TEST(a_name_in_another_unit_or_a_pointer)
{
    mounted();
    made("a/c-1");
    made("a/c-2");
    put("a/c-1/x");
    ck_assert_int_eq(driven_link(&w.d, "a/c-1/x", _i ? "a/latest" : "a/c-2/x"), 0);
    ck_assert_int_eq(flush_for("", CACHE_FLUSH_STAGED), 0);
}
END_TEST

START_TEST(a_log_that_was_never_closed_is_no_writer)
{
    struct handle *h;

    w.policies[1].unit_idle_ns = 10 * NS_PER_MS;
    mounted();
    made("a/c-1");
    opened("a/c-1/t.log", O_APPEND, &h);
    put("a/c-1/x");
    DRIVEN_WAIT(has("a/c-1/x"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

START_TEST(a_pointer_beside_a_writer)
{
    struct handle *h;

    w.policies[1].unit_idle_ns = 10 * NS_PER_MS;
    mounted();
    made("a/c-1");
    opened("a/c-1/open", 0, &h);
    put("a/c-1/x");
    put("a/latest");
    if (_i == 2)
        cache_abandon(w.d.cache, h);
    ck_assert_int_eq(flush_for("", _i ? CACHE_FLUSH_STAGED : 0), -ETXTBSY);
    ck_assert(has("a/latest") && has("a/c-1/x"));
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

START_TEST(a_staged_directory_never_comes)
{
    w.policies[1].unit_idle_ns = 10 * NS_PER_MS;
    mounted();
    made("a/c-1");
    made("a/c-1/tmp-9");
    put("a/c-1/x");
    put("a/c-1/done");
    if (_i)
        ck_assert_int_eq(flush_for("a/c-1", 0), 0);
    DRIVEN_WAIT(has("a/c-1/done"));
}
END_TEST

static int closed_durably(const char *path)
{
    struct handle *h;

    now_durable(DURABILITY_STORE);
    opened(path, 0, &h);
    return driven_close(&w.d, h);
}

START_TEST(a_rename_that_fails_is_told_of)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/w");
    DRIVEN_WAIT(has("a/c-1/x"));
    atomic_store(&w.leaves[0].no_moves, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/c-1/x", "a/c-1/y"), 0);
    ck_assert_int_lt(closed_durably("a/c-1/z"), 0);
    ck_assert(!has("a/c-1/z"));
    atomic_store(&w.leaves[0].no_moves, false);
}
END_TEST

START_TEST(a_file_that_fails_beside_a_pointer_is_told_of)
{
    mounted();
    refuse("a/model-1");
    put("a/model-1");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/model-1"), "failed") == 0);
    ck_assert_int_eq(closed_durably("a/latest"), -EACCES);
    ck_assert(!has("a/latest"));
    refuse(NULL);
}
END_TEST

START_TEST(a_file_that_is_written_again_is_not_waited_for)
{
    struct handle *h, *other;

    mounted();
    made("a/c-1");
    opened("a/c-1/m.jsonl", O_APPEND, &h);
    ck_assert_int_eq(driven_open(&w.d, "a/c-1/m.jsonl", O_WRONLY | O_APPEND, &other), 0);
    ck_assert_int_eq(driven_close(&w.d, other), 0);
    ck_assert_int_eq(closed_durably("a/c-1/z"), 0);
    now_durable(DURABILITY_CACHE);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

START_TEST(a_refused_file_holds_no_removal_elsewhere)
{
    mounted();
    made("a/c-1");
    made("a/b");
    put("a/b/old");
    DRIVEN_WAIT(has("a/b/old"));
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/done");
    all_that_goes_is_gone(); /* the store takes others: it refuses the name */
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/c-1/x"), "failed") == 0);
    all_that_goes_is_gone();
    ck_assert_int_eq(driven_unlink(&w.d, "a/b/old"), 0);
    DRIVEN_WAIT(!has("a/b/old"));
    refuse(NULL);
}
END_TEST

/* What failed before the flush is tried by it, and what comes after that waits for how it ends.
 */
START_TEST(a_failure_from_before_a_flush_says_nothing)
{
    w.d.config.retry_ns = HOUR;
    mounted();
    made("a/c-1");
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/done");
    put("a/latest");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/c-1/x"), "failed") == 0);
    ck_assert_int_eq(flush_for("", 0), -EACCES);
    refuse(NULL);
    ck_assert_int_eq(flush_for(_i ? "a/latest" : "", 0), _i ? -EACCES : 0);
    ck_assert_int_eq(flush_for("", 0), 0);
    ck_assert(has("a/c-1/x") && has("a/c-1/done") && has("a/latest"));
}
END_TEST

START_TEST(a_unit_at_rest_costs_nothing)
{
#ifdef NDEBUG
    return;
#else
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    made("a/c-2");
    (void)usleep(300000);
    unsigned long long before = atomic_load(&passes_made);
    (void)usleep(500000);
    ck_assert_uint_lt(atomic_load(&passes_made) - before, 20);
#endif
}
END_TEST

/* c-1 as the store has it, with a directory in it that has nothing, goes and is made anew. */
static void begin_c_1(void)
{
    made("a/c-1");
    made("a/c-1/e");
    put("a/c-1/x");
    put("a/c-1/done");
}

static void make_c_1_again(void)
{
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-1/x"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "a/c-1/done"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "a/c-1/e"), 0);
    ck_assert_int_eq(driven_rmdir(&w.d, "a/c-1"), 0);
    begin_c_1();
}

START_TEST(a_unit_made_again_waits_for_no_removal)
{
    struct handle *h;

    mounted();
    begin_c_1();
    ck_assert_int_eq(flush_for("", 0), 0);
    made("a/c-2");
    put("a/c-2/y");
    opened("a/c-2/z", 0, &h);
    make_c_1_again(); /* the removals wait for c-2, which settles after this */
    all_that_goes_is_gone();
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    put("a/c-2/done");
    DRIVEN_WAIT(has("a/c-2/done"));
    ck_assert_int_eq(flush_for("", 0), 0);
    ck_assert(has("a/c-1/e") && has("a/c-1/done"));
}
END_TEST

START_TEST(a_unit_made_again_waits_for_no_lock)
{
    uint64_t id;
    struct op op;

    mounted();
    begin_c_1();
    ck_assert_int_eq(flush_for("", 0), 0);
    op_init(&op, 0);
    ck_assert_int_eq(
        cache_deletion_lock(w.d.cache, "a/c-1", false, getpid(), "a test", &op, &id), 0);
    forget_sent();
    make_c_1_again();
    put("a/latest");
    DRIVEN_WAIT(was_sent("c-1/done") && was_sent("latest"));
    ck_assert_int_eq(flush_for("", 0), -EBUSY); /* of the removals, and at once */
    cache_deletion_unlock(w.d.cache, id);
    ck_assert_int_eq(flush_for("", 0), 0);
    ck_assert(has("a/c-1/e") && has("a/c-1/done"));
}
END_TEST

/* ---- orders ---- */

START_TEST(a_late_release_is_no_close)
{
    struct waiter waiter = {0};
    struct handle *h;

    mounted();
    made("a/c-1");
    opened("a/c-1/x", 0, &h);
    ck_assert_int_eq(cache_flush(w.d.cache, h, &waiter), 0);
    put("a/c-1/done");
    refuse("a/c-1/x");
    cache_release(w.d.cache, h);
    stays_away("a/c-1/done");
    refuse(NULL);
}
END_TEST

START_TEST(new_attributes_are_no_close)
{
    mounted();
    made("a/c-1");
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/done");
    ck_assert_int_eq(driven_chmod(&w.d, "a/c-1/x", 0640), 0);
    stays_away("a/c-1/done");
    refuse(NULL);
}
END_TEST

START_TEST(new_attributes_of_what_is_stored_release_nothing)
{
    mounted();
    made("a/c-1");
    put("a/c-1/o");
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/y");
    DRIVEN_WAIT(has("a/c-1/o"));
    for (unsigned i = 0; i < 20; i++) {
        ck_assert_int_eq(driven_chmod(&w.d, "a/c-1/o", 0600 + i % 8), 0);
        all_that_goes_is_gone();
    }
    ck_assert(!has("a/c-1/y"));
    refuse(NULL);
}
END_TEST

START_TEST(a_pointer_written_again_follows_what_came_since)
{
    mounted();
    refuse("a/model-1");
    put("a/model-1");
    put("a/latest");
    all_that_goes_is_gone();
    refuse("a/model-2");
    put("a/model-2");
    driven_put(&w.d, "a/latest", "2", 1);
    stays_away("a/latest");
    refuse(NULL);
}
END_TEST

START_TEST(a_stored_file_that_becomes_a_pointer_follows)
{
    mounted();
    made("a/c-1");
    put("a/new");
    DRIVEN_WAIT(has("a/new"));
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/y");
    ck_assert_int_eq(driven_rename(&w.d, "a/new", "a/latest"), 0);
    stays_away("a/latest");
    refuse(NULL);
    DRIVEN_WAIT(has("a/latest"));
    ck_assert(has("a/c-1/x") && has("a/c-1/y"));
}
END_TEST

/* TensorFlow's `checkpoint`: a flush has stored it before it got its name. What the one before
 * names stays until then. */
START_TEST(a_removal_waits_for_a_stored_file_that_becomes_a_pointer)
{
    mounted();
    put("a/model-1");
    put("a/latest");
    put("a/model-2");
    put("a/new");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].no_moves, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/new", "a/latest"), 0);
    ck_assert_int_eq(driven_unlink(&w.d, "a/model-1"), 0);
    all_that_goes_is_gone();
    ck_assert(has("a/model-1"));
    atomic_store(&w.leaves[0].no_moves, false);
    DRIVEN_WAIT(!has("a/model-1"));
    ck_assert(!has("a/new"));
}
END_TEST

START_TEST(a_stored_file_that_gets_the_last_name_declares)
{
    mounted();
    made("a/c-1");
    put("a/c-1/x");
    put("a/c-1/y");
    DRIVEN_WAIT(has("a/c-1/x"));
    ck_assert_int_eq(driven_rename(&w.d, "a/c-1/x", "a/c-1/done"), 0);
    DRIVEN_WAIT(has("a/c-1/y") && has("a/c-1/done"));
}
END_TEST

START_TEST(directories_alone_are_no_stored_unit)
{
    w.policies[1].unit_idle_ns = 100 * NS_PER_MS;
    mounted();
    made("a/c-1");
    made("a/c-1/sub");
    DRIVEN_WAIT(has("a/c-1/sub"));
    (void)usleep(300000);
    now_idle(HOUR);
    refuse("a/c-1/x");
    put("a/c-1/x");
    put("a/c-1/done");
    stays_away("a/c-1/done");
    refuse(NULL);
}
END_TEST

START_TEST(a_unit_within_a_unit_is_part_of_it)
{
    mounted();
    made("a/w");
    made("a/w/c-3");
    atomic_store(&w.leaves[0].no_puts, true);
    put("a/w/c-3/x");
    put("a/w/c-3/y");
    put("a/w/z");
    ck_assert_int_eq(driven_rename(&w.d, "a/w", "a/c-9"), 0);
    refuse("a/c-9/c-3/x");
    put("a/c-9/done");
    atomic_store(&w.leaves[0].no_puts, false);
    stays_away("a/c-9/done");
    refuse(NULL);
}
END_TEST

/* What a flush stored of a staged directory moves first. */
START_TEST(what_was_stored_under_a_staging_name_comes_first)
{
    mounted();
    made("a/tmp-1");
    put("a/tmp-1/x");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].no_moves, true);
    put("a/tmp-1/y");
    put("a/tmp-1/done");
    ck_assert_int_eq(driven_rename(&w.d, "a/tmp-1", "a/c-1"), 0);
    stays_away("a/c-1/done");
    atomic_store(&w.leaves[0].no_moves, false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_unit_waits");
    TCase *t = tcase_create("cache_unit_waits");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_name_in_another_unit_or_a_pointer, 0, 2);
    tcase_add_test(t, a_log_that_was_never_closed_is_no_writer);
    tcase_add_loop_test(t, a_pointer_beside_a_writer, 0, 3);
    tcase_add_loop_test(t, a_staged_directory_never_comes, 0, 2);
    tcase_add_test(t, a_rename_that_fails_is_told_of);
    tcase_add_test(t, a_file_that_fails_beside_a_pointer_is_told_of);
    tcase_add_test(t, a_file_that_is_written_again_is_not_waited_for);
    tcase_add_test(t, a_refused_file_holds_no_removal_elsewhere);
    tcase_add_loop_test(t, a_failure_from_before_a_flush_says_nothing, 0, 2);
    tcase_add_test(t, a_unit_at_rest_costs_nothing);
    tcase_add_test(t, a_unit_made_again_waits_for_no_removal);
    tcase_add_test(t, a_unit_made_again_waits_for_no_lock);
    tcase_add_test(t, a_late_release_is_no_close);
    tcase_add_test(t, new_attributes_are_no_close);
    tcase_add_test(t, new_attributes_of_what_is_stored_release_nothing);
    tcase_add_test(t, a_pointer_written_again_follows_what_came_since);
    tcase_add_test(t, a_stored_file_that_becomes_a_pointer_follows);
    tcase_add_test(t, a_removal_waits_for_a_stored_file_that_becomes_a_pointer);
    tcase_add_test(t, a_stored_file_that_gets_the_last_name_declares);
    tcase_add_test(t, directories_alone_are_no_stored_unit);
    tcase_add_test(t, a_unit_within_a_unit_is_part_of_it);
    tcase_add_test(t, what_was_stored_under_a_staging_name_comes_first);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
