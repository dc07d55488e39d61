/* cache/: what a daemon that was killed has sent arrives late: it takes nothing that came
 * after it, and brings nothing back. */
#include "common/mem.h"
#include "tests/lib/doubtful_puts.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- removals and copies ---- */

/* A story that is told again finds an empty store, too. */
static void begin_again(void)
{
    teardown();
    setup();
}

static void late_remove(const char *key)
{
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

static bool delete_late(int64_t late_ns, int i)
{
    (void)i;
    begin_again();
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_unmount(&d);
    atomic_store(&refused, -1);
    d.config.late_ns = late_ns;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    driven_put(&d, "f", "new", 3);
    driven_put(&d, "another", "new", 3);
    DRIVEN_WAIT(has("another", "new")); /* only that name waits */
    late_remove("f");
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "f", "new");
    return in_time;
}

START_TEST(a_late_delete_comes_before_a_new_file)
{
    driven_in_window(delete_late, _i);
}
END_TEST

static bool copy_late(int64_t late_ns, int i)
{
    struct op op;

    (void)i;
    begin_again();
    driven_mount(&d);
    driven_put(&d, "a", "renamed", 7);
    driven_put(&d, "b", "old", 3);
    driven_put(&d, "c", "moved", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, CALL_COPY);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    driven_unmount(&d);
    atomic_store(&refused, CALL_REMOVE); /* a stays, so that there is something to copy */
    d.config.late_ns = late_ns;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_rename(&d, "c", "b"), 0);
    DRIVEN_WAIT(has("b", "renamed") ||
                has("b", "moved")); /* again at once; or it is too late */
    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_copy(d.store->next, &op, "a", NULL, "b", NULL, NULL, NULL), 0);
    bool in_time = clock_mono_ns() < until_ns;
    refuse_no_more();
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    if (!in_time)
        return false;
    driven_stores(&d, "b", "moved");
    driven_stores(&d, "a", NULL);
    driven_stores(&d, "c", NULL);
    return true;
}

START_TEST(a_late_copy_comes_before_what_follows)
{
    driven_in_window(copy_late, _i);
}
END_TEST

/* ---- uploads ---- */

/* A put of this cache that was on its way when it was killed. */
static void doubt_put(const char *key, const char *etag, const char *data, int wanted)
{
    struct mem_source src;
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    mem_source_init(&src, data, strlen(data));
    ck_assert_int_eq(store_put(d.store->next, &op, key, etag, &src.base, &put_attrs, NULL),
                     wanted);
}

static char *etag_of(const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_stat(d.store->next, &op, key, &obj), 0);
    char *etag = strdup(obj.etag);
    object_release(&obj);
    return etag;
}

/* f is "one" at the store, and the daemon is killed while it puts "two" there. */
static char *killed_over_a_put(void)
{
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    char *etag = etag_of("f");
    atomic_store(&refused, CALL_PUT);
    driven_put(&d, "f", "two", 3);
    driven_unmount(&d);
    atomic_store(&refused, -1);
    return etag;
}

/* The same content has the same ETag: a late put bound to that is not refused. */
static bool bring_content_back(int64_t late_ns, int i)
{
    (void)i;
    begin_again();
    auto_free char *etag = killed_over_a_put();
    d.config.late_ns = late_ns;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    unsigned before = atomic_load(&puts_of_f);
    driven_put(&d, "f", "one", 3);
    DRIVEN_WAIT(atomic_load(&puts_of_f) > before && has("f", "one"));
    doubt_put("f", etag, "two", 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (!in_time)
        return false;
    driven_stores(&d, "f", "one");
    driven_shows(&d, "f", "one");
    return true;
}

START_TEST(content_that_comes_back_outlives_a_late_put)
{
    driven_in_window(bring_content_back, _i);
}
END_TEST

START_TEST(other_content_does_not_wait)
{
    auto_free char *etag = killed_over_a_put();
    int64_t began_ns = clock_mono_ns();

    d.config.late_ns = 30 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "f", "three", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_lt(clock_mono_ns() - began_ns, 30 * NS_PER_SEC);
    doubt_put("f", etag, "two", -ESTALE);
    driven_stores(&d, "f", "three");
}
END_TEST

static bool put_first_late(int64_t late_ns, int i)
{
    (void)i;
    begin_again();
    atomic_store(&refused, CALL_PUT);
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    driven_unmount(&d);
    atomic_store(&refused, -1);
    d.config.late_ns = late_ns;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    DRIVEN_WAIT(has("f", NULL));
    doubt_put("f", "", "one", 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "f", NULL);
    return in_time;
}

START_TEST(a_late_first_put_does_not_outlive_the_removal)
{
    driven_in_window(put_first_late, _i);
}
END_TEST

/* Nor that of an older version, which another node has removed, and whose removal ends before
 * the put comes. */
static bool put_late_after_two(int64_t late_ns, int i)
{
    struct cache_stats s;

    (void)i;
    begin_again();
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.last_error == -EACCES));
    late_remove("f");
    atomic_store(&puts_wait, true);
    driven_put(&d, "f", "two", 3);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "uploading") == 0);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_unmount(&d);
    atomic_store(&puts_wait, false);
    atomic_store(&refused, -1);
    d.config.late_ns = late_ns;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.pending_ops <= 1)); /* 0: too late */
    doubt_put("f", "", "two", 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "f", NULL);
    return in_time;
}

START_TEST(nor_does_it_after_two_removals)
{
    driven_in_window(put_late_after_two, _i);
}
END_TEST

static void *sync_root(void *arg)
{
    *(int *)arg = driven_fsyncdir(&d, "");
    return NULL;
}

static void *flush_all(void *arg)
{
    *(int *)arg = driven_flush(&d);
    return NULL;
}

/* A file in the store whose first put may still arrive late; until when it is reckoned with. */
static int64_t store_after_a_lost_put(int64_t late_ns)
{
    begin_again();
    atomic_store(&refused, CALL_PUT);
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    driven_unmount(&d);
    atomic_store(&refused, -1);
    d.config.late_ns = late_ns;
    d.config.retry_ns = 20 * NS_PER_MS;
    d.config.durability = DURABILITY_STORE;
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    return until_ns;
}

/* It was removed, and the put comes while somebody waits for that; whether by then. */
static bool put_late_beside(void *(*waits)(void *), int64_t until_ns)
{
    pthread_t thread;
    int r = 1;

    DRIVEN_WAIT(has("f", NULL));
    (void)usleep(50000);
    ck_assert_int_eq(pthread_create(&thread, NULL, waits, &r), 0);
    (void)usleep(200000);
    doubt_put("f", "", "one", 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "f", NULL);
    return in_time;
}

/* Who syncs the directory does not have it removed for the last time before that. */
static bool put_late_beside_a_sync(int64_t late_ns, int i)
{
    int64_t until_ns = store_after_a_lost_put(late_ns);

    (void)i;
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    return put_late_beside(sync_root, until_ns);
}

START_TEST(nor_does_it_when_the_directory_is_synced)
{
    driven_in_window(put_late_beside_a_sync, _i);
}
END_TEST

/* Nor who flushes, or syncs the directory, though an attempt to remove it failed before. */
static bool put_late_after_a_failure(int64_t late_ns, int i)
{
    int64_t until_ns = store_after_a_lost_put(late_ns);
    struct cache_stats s;

    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.last_error == -EACCES));
    atomic_store(&refused, -1);
    return put_late_beside(i == 0 ? flush_all : sync_root, until_ns);
}

START_TEST(nor_does_it_when_the_removal_failed_before)
{
    driven_in_window(put_late_after_a_failure, _i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_late");
    TCase *t = tcase_create("late");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_late_delete_comes_before_a_new_file);
    tcase_add_test(t, a_late_copy_comes_before_what_follows);
    tcase_add_test(t, content_that_comes_back_outlives_a_late_put);
    tcase_add_test(t, other_content_does_not_wait);
    tcase_add_test(t, a_late_first_put_does_not_outlive_the_removal);
    tcase_add_test(t, nor_does_it_after_two_removals);
    tcase_add_test(t, nor_does_it_when_the_directory_is_synced);
    tcase_add_loop_test(t, nor_does_it_when_the_removal_failed_before, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
