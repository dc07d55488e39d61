/* cache/: what is changed here while another node changes the same: one of them loses, is told,
 * and takes nothing with it. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/lib/two_nodes.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOSERS 100
#define PART   4096

static uint64_t kept(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.kept_files;
}

/* What is written here loses against what another node puts there meanwhile. */
static void lose(const char *path)
{
    uint64_t before = kept();

    driven_store(&d, path, "theirs", 6);
    atomic_store(&hold, false);
    DRIVEN_WAIT(kept() == before + 1);
    (void)driven_flush(&d);
    driven_stores(&d, path, "theirs");
}

/* Several ranks write the same to one name: none of them loses. Theirs counts, with what it
 * says of itself. */
START_TEST(the_same_bytes_are_no_conflict)
{
    const struct attrs theirs = {.has = ATTR_MODE, .mode = S_IFREG | 0640};
    struct stat st;

    atomic_store(&hold, true);
    driven_put(&d, "step/config", "same", 4);
    driven_put(&d, "step/rank0", "again", 5);
    driven_store_with(&d, "step/config", "same", 4, &theirs);
    driven_store(&d, "step/rank0", "again", 5);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(kept(), 0);
    /* Its worker ends a moment after who waited for it was told. */
    DRIVEN_WAIT(strcmp(driven_state(&d, "step/config"), "clean") == 0);
    out_of_date();
    driven_shows(&d, "step/config", "same");
    driven_shows(&d, "step/rank0", "again");
    DRIVEN_WAIT(driven_stat(&d, "step/config", &st) == 0 && (st.st_mode & 0777) == 0640);
    /* And the next version from here replaces it. */
    driven_put(&d, "step/config", "newer", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/config", "newer");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* Nor is it sent again and again, when it went up in parts. */
START_TEST(the_same_bytes_in_parts_are_no_conflict)
{
    static char bytes[3 * PART];

    memset(bytes, 's', sizeof(bytes));
    driven_unmount(&d);
    d.config.part_size = PART;
    driven_mount(&d);
    atomic_store(&begun, 0);
    atomic_store(&hold, true);
    driven_put(&d, "step/weights", bytes, sizeof(bytes));
    DRIVEN_WAIT(atomic_load(&begun) == 1);
    driven_store(&d, "step/weights", bytes, sizeof(bytes));
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&begun), 1);
    ck_assert_uint_eq(kept(), 0);
    /* Its worker ends a moment after who waited for it was told. */
    DRIVEN_WAIT(strcmp(driven_state(&d, "step/weights"), "clean") == 0);
    /* And the next version from here replaces it. */
    driven_put(&d, "step/weights", "newer", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/weights", "newer");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* As many bytes are not the same bytes. */
START_TEST(other_bytes_are_a_conflict)
{
    atomic_store(&hold, true);
    driven_put(&d, "step/config", "ours!!", 6);
    lose("step/config");
}
END_TEST

static bool has_error(const char *text)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.last_error == -ESTALE && strstr(s.last_error_text, text);
}

/* What is kept aside of a file. */
static void keeps(const char *path, const char *wanted)
{
    char where[160], text[64] = "";
    FILE *file = NULL;

    (void)snprintf(where, sizeof(where), "%s/kept/%s", d.dir, path);
    file = fopen(where, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    ck_assert_str_eq(text, wanted);
}

static bool uploads_run(void)
{
    mutex_lock(&d.cache->lock);
    bool run = d.cache->queue->uploads_running > 0;
    mutex_unlock(&d.cache->lock);
    return run;
}

static atomic_bool emptying, goes_on;

/* The program that empties the file; nobody waits longer than a failing test takes to say so.
 */
static void stop_emptying(const char *name)
{
    int64_t until_ns = clock_mono_ns() + 10 * NS_PER_SEC;

    if (strcmp(name, "open-stamped") != 0)
        return;
    atomic_store(&emptying, true);
    while (!atomic_load(&goes_on) && clock_mono_ns() < until_ns)
        (void)usleep(1000);
}

static void *open_emptied(void *arg)
{
    ck_assert_int_eq(driven_open(&d, "step/rank0", O_WRONLY | O_TRUNC, arg), 0);
    return NULL;
}

/* A program that opens the file has no handle yet: what it writes is not kept aside unseen. */
START_TEST(what_is_just_being_opened_does_not_lose_yet)
{
    struct handle *h = NULL;
    pthread_t thread;

    d.config.retry_ns = 50 * NS_PER_MS;
    driven_unmount(&d);
    driven_mount(&d);
    atomic_store(&hold, true);
    driven_put(&d, "step/rank0", "ours", 4);
    atomic_store(&hold_looks, true);
    driven_store(&d, "step/rank0", "theirs", 6);
    atomic_store(&hold, false);
    DRIVEN_WAIT(atomic_load(&held_looks) == 1);
    atomic_store(&emptying, false);
    atomic_store(&goes_on, false);
    crash_watch(stop_emptying);
    ck_assert_int_eq(pthread_create(&thread, NULL, open_emptied, &h), 0);
    DRIVEN_WAIT(atomic_load(&emptying));
    atomic_store(&hold_looks, false);
    DRIVEN_WAIT(!uploads_run());
    ck_assert_uint_eq(kept(), 0);
    atomic_store(&goes_on, true);
    (void)pthread_join(thread, NULL);
    crash_watch(NULL);
    ck_assert_int_eq(driven_write(&d, h, "newer", 5, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), -ESTALE); /* it is told */
    DRIVEN_WAIT(kept() == 1);
    keeps("step/rank0", "newer");
    (void)driven_flush(&d);
    driven_shows(&d, "step/rank0", "theirs");
}
END_TEST

static struct node *loser;
static pthread_t reader;

static void no_wake(struct waiter *w, int err)
{
    (void)w;
    (void)err;
}

static void *open_loser(void *arg)
{
    struct waiter w = {.wake = no_wake};
    struct handle *h = NULL;

    *(int *)arg = cache_open(d.cache, loser, O_RDONLY, &w, &h);
    if (h)
        cache_release(d.cache, h);
    return NULL;
}

static int opened;

static void open_beside(const char *name)
{
    if (strcmp(name, "conflict-removals") != 0)
        return;
    ck_assert_int_eq(pthread_create(&reader, NULL, open_loser, &opened), 0);
    (void)usleep(200000); /* it has a descriptor of the upload's, and waits for the name */
}

/* Who opens it for reading meanwhile looks the name up once more, and reads theirs. */
START_TEST(who_opens_a_loser_looks_again)
{
    struct op op;

    atomic_store(&hold, true);
    driven_put(&d, "step/rank0", "ours!!", 6);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_walk(d.cache, "step/rank0", &op, &loser), 0);
    crash_watch(open_beside);
    lose("step/rank0");
    crash_watch(NULL);
    (void)pthread_join(reader, NULL);
    ck_assert_int_eq(opened, -ESTALE);
    cache_forget(d.cache, loser, 1);
    driven_shows(&d, "step/rank0", "theirs");
}
END_TEST

/* New attributes are those of the version that they were given to: they are dropped, and told,
 * when another node has replaced it. */
START_TEST(a_chmod_of_what_was_replaced_keeps_theirs)
{
    struct stat st;

    atomic_store(&hold, true);
    ck_assert_int_eq(driven_chmod(&d, "step/rank0", 0600), 0);
    driven_store(&d, "step/rank0", "theirs", 6);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/rank0", "theirs");
    ck_assert(has_error("step/rank0"));
    driven_shows(&d, "step/rank0", "theirs");
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), 0);
    ck_assert_uint_ne(st.st_mode & 0777, 0600);
    ck_assert_uint_eq(kept(), 0);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "step/rank0", "theirs");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

static atomic_bool lingers; /* the worker that dropped attributes */

/* No longer than a failing test takes to say so. */
static void linger(const char *name)
{
    int64_t until_ns = clock_mono_ns() + 10 * NS_PER_SEC;

    if (strcmp(name, "attributes-dropped") != 0)
        return;
    while (atomic_load(&lingers) && clock_mono_ns() < until_ns)
        (void)usleep(1000);
}

/* Who was told of it sees theirs, though the worker that dropped them is slow to end. */
START_TEST(theirs_show_as_soon_as_attributes_are_dropped)
{
    struct stat st;

    atomic_store(&lingers, true);
    crash_watch(linger);
    atomic_store(&hold, true);
    ck_assert_int_eq(driven_chmod(&d, "step/rank0", 0600), 0);
    driven_store(&d, "step/rank0", "theirs", 6);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has_error("step/rank0"));
    driven_shows(&d, "step/rank0", "theirs");
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), 0);
    ck_assert_uint_ne(st.st_mode & 0777, 0600);
    atomic_store(&lingers, false);
    driven_unmount(&d);
    crash_watch(NULL);
    driven_mount(&d);
    driven_shows(&d, "step/rank0", "theirs");
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

static void *end_mount(void *arg)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_end(d.cache, &op), 0);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

/* A stamp that is written after the end was noted makes the next mount doubt the file. */
START_TEST(the_end_waits_for_the_stamp_of_dropped_attributes)
{
    atomic_bool ended = false;
    pthread_t thread;

    atomic_store(&lingers, true);
    crash_watch(linger);
    atomic_store(&hold, true);
    ck_assert_int_eq(driven_chmod(&d, "step/rank0", 0600), 0);
    driven_store(&d, "step/rank0", "theirs", 6);
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, end_mount, &ended), 0);
    (void)usleep(200000); /* an end that does not wait has come */
    ck_assert(!atomic_load(&ended));
    atomic_store(&lingers, false);
    (void)pthread_join(thread, NULL);
    driven_unmount(&d);
    crash_watch(NULL);
    driven_mount(&d);
}
END_TEST

/* Nor do they bring back what another node has removed. */
START_TEST(a_chmod_of_what_was_removed_does_not_bring_it_back)
{
    struct stat st;

    atomic_store(&hold, true);
    ck_assert_int_eq(driven_chmod(&d, "step/rank0", 0600), 0);
    store_loses("step/rank0");
    atomic_store(&hold, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/rank0", NULL);
    ck_assert(has_error("step/rank0"));
    out_of_date();
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), -ENOENT);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), -ENOENT);
    driven_stores(&d, "step/rank0", NULL);
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* Whether there is a removal that waits for an upload, for a rename or for its turn. */
static bool is_pending(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.pending_ops > 0;
}

/* Removals waited for the upload of what had been closed before. It came to nothing: what they
 * meant stays at the store and shows again, until somebody removes it anew. */
START_TEST(what_followed_a_loser_is_not_removed)
{
    driven_put(&d, "before", "old", 3);
    ck_assert_int_eq(driven_mkdir(&d, "old"), 0);
    driven_put(&d, "old/rank0", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_unlink(&d, "before"), 0);
    DRIVEN_WAIT(!is_pending());
    atomic_store(&hold, true);
    driven_put(&d, "step/latest", "mine", 4);
    ck_assert_int_eq(driven_unlink(&d, "step/rank0"), 0);
    ck_assert_int_eq(driven_unlink(&d, "old/rank0"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "old"), 0);
    lose("step/latest");
    driven_stores(&d, "before", NULL);
    driven_stores(&d, "step/rank0", "mine");
    driven_stores(&d, "old/rank0", "old");
    for (int mounted = 0; mounted < 2; mounted++) {
        driven_shows(&d, "step/rank0", "mine");
        driven_shows(&d, "old/rank0", "old");
        driven_unmount(&d);
        driven_mount(&d);
    }
    ck_assert_int_eq(driven_unlink(&d, "old/rank0"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "old"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "old/rank0", NULL);
}
END_TEST

/* So it is with the old name of what was changed and renamed. */
START_TEST(the_old_name_of_a_loser_stays)
{
    struct stat st;

    driven_unmount(&d);
    d.config.settle_ns = 30 * NS_PER_SEC; /* what went up under the old name does not lose */
    driven_mount(&d);
    driven_put(&d, "step/rank0", "newer", 5);
    ck_assert_int_eq(driven_rename(&d, "step/rank0", "step/done"), 0);
    ck_assert_int_eq(driven_stat(&d, "step/rank0", &st), -ENOENT);
    driven_store(&d, "step/done", "theirs", 6);
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    DRIVEN_WAIT(kept() == 1);
    driven_stores(&d, "step/done", "theirs");
    driven_stores(&d, "step/rank0", "mine");
    driven_shows(&d, "step/rank0", "mine");
}
END_TEST

/* What was made again under a name since it was removed replaces what the store has there. */
START_TEST(what_came_again_is_uploaded)
{
    atomic_store(&hold, true);
    driven_put(&d, "step/latest", "mine", 4);
    ck_assert_int_eq(driven_unlink(&d, "step/rank0"), 0);
    driven_put(&d, "step/rank0", "again", 5);
    lose("step/latest");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/rank0", "again");
    ck_assert_uint_eq(kept(), 1);
    ck_assert_int_eq(driven_unlink(&d, "step/rank0"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/rank0", NULL);
}
END_TEST

/* A removal whose answer was lost, and that was repeated, may arrive once more: nothing is put
 * there before that is over. */
START_TEST(nothing_is_put_where_a_removal_may_arrive)
{
    driven_unmount(&d);
    d.config.late_ns = _i ? 0 : 3600 * NS_PER_SEC;
    driven_mount(&d);
    atomic_store(&strays, true);
    ck_assert_int_eq(driven_unlink(&d, "step/rank0"), 0);
    DRIVEN_WAIT(!is_pending());
    driven_put(&d, "step/rank0", "again", 5);
    driven_put(&d, "step/later", "later", 5);
    DRIVEN_WAIT(strcmp(driven_state(&d, "step/later"), "clean") == 0);
    if (_i)
        ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "step/rank0", _i ? "again" : NULL);
    driven_shows(&d, "step/rank0", "again");
}
END_TEST

static const unsigned disputes[] = {1, 7, 8, 9, 20};

/* A server that finds another change on its way has stored nothing, however often it says so;
 * and as long as the version is there that is replaced, nobody else's is. */
START_TEST(a_disputed_upload_is_made_again)
{
    const char *name = _i % 2 ? "step/rank0" : "step/theirs";

    d.config.retry_ns = 50 * NS_PER_MS;
    driven_unmount(&d);
    driven_store(&d, "step/theirs", "theirs", 6);
    driven_mount(&d);
    driven_shows(&d, name, _i % 2 ? "mine" : "theirs");
    atomic_store(&disputed, disputes[_i / 2]);
    driven_put(&d, name, "newer", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, name, "newer");
    ck_assert_uint_eq(atomic_load(&disputed), 0);
    ck_assert_uint_eq(kept(), 0);
}
END_TEST

/* Whoever waits for what loses is told, however many do at once. */
START_TEST(a_flush_tells_of_each_loser)
{
    char path[32];

    driven_unmount(&d);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only the flush uploads */
    driven_mount(&d);
    for (int i = 0; i < LOSERS; i++) {
        (void)snprintf(path, sizeof(path), "step/f%d", i);
        driven_put(&d, path, "mine", 4);
        driven_store(&d, path, "theirs", 6);
    }
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    DRIVEN_WAIT(kept() == LOSERS);
    ck_assert_int_eq(driven_flush(&d), 0); /* which waits for nothing of them */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_conflicts");
    TCase *t = tcase_create("conflicts");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_same_bytes_are_no_conflict);
    tcase_add_test(t, the_same_bytes_in_parts_are_no_conflict);
    tcase_add_test(t, other_bytes_are_a_conflict);
    tcase_add_test(t, what_is_just_being_opened_does_not_lose_yet);
    tcase_add_test(t, who_opens_a_loser_looks_again);
    tcase_add_test(t, a_chmod_of_what_was_replaced_keeps_theirs);
    tcase_add_test(t, theirs_show_as_soon_as_attributes_are_dropped);
    tcase_add_test(t, the_end_waits_for_the_stamp_of_dropped_attributes);
    tcase_add_test(t, a_chmod_of_what_was_removed_does_not_bring_it_back);
    tcase_add_test(t, what_followed_a_loser_is_not_removed);
    tcase_add_test(t, the_old_name_of_a_loser_stays);
    tcase_add_test(t, what_came_again_is_uploaded);
    tcase_add_loop_test(t, nothing_is_put_where_a_removal_may_arrive, 0, 2);
    tcase_add_loop_test(t, a_disputed_upload_is_made_again, 0, 2 * ARRAY_SIZE(disputes));
    tcase_add_test(t, a_flush_tells_of_each_loser);
    suite_add_tcase(s, t);
    return suite_run(s);
}
