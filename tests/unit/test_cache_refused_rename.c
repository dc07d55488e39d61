/* cache/: what is stored is given a name that the store refuses for good, and then another, or
 * its old one, or is removed. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/refused_name.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is stored is given a bad name, is called as it was again, or otherwise, or is removed;
 * the server never learns of the bad name. */
static const struct {
    const char *from, *to; /* to NULL: removed */
    bool dir;
} ends[] = {{"other/old", "dir/good", false},
            {"other/old", "other/old", false},
            {"other/old", NULL, false},
            {"other", "good", true},
            {"other", "other", true}};

static void end_it(int i)
{
    if (ends[i].to)
        ck_assert_int_eq(driven_rename(&d, BAD, ends[i].to), 0);
    else
        ck_assert_int_eq(driven_unlink(&d, BAD), 0);
}

static void is_ended(int i)
{
    const char *at = ends[i].to ? ends[i].to : "nothing";
    char key[64];

    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert_uint_eq(stats().pending_ops, 0);
    (void)snprintf(key, sizeof(key), "%s%s", at, ends[i].dir ? "/old" : "");
    driven_stores(&d, key, ends[i].to ? "old" : NULL);
    ck_assert(strcmp(at, ends[i].from) == 0 || !is_stored("other/old"));
    driven_mount_afresh(&d);
    if (ends[i].to)
        driven_shows(&d, key, "old");
    else
        ck_assert_int_eq(driven_list(&d, "other"), 0);
}

static void give_bad_name(int i)
{
    atomic_store(&store.answers, true);
    ck_assert_int_eq(driven_rename(&d, ends[i].from, BAD), 0);
    await_refusals(1);
}

START_TEST(what_was_stored_gets_another_name)
{
    give_bad_name(_i);
    ck_assert_int_lt(driven_flush(&d), 0);
    end_it(_i);
    is_ended(_i);
}
END_TEST

/* As the next mount finds it. */
START_TEST(what_was_stored_gets_another_name_later)
{
    give_bad_name(_i);
    end_it(_i);
    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 10;
    driven_mount(&d);
    is_ended(_i);
}
END_TEST

#ifndef NDEBUG
/* Killed when the two are one on the disk: the store is not asked for the bad name again. */
START_TEST(what_was_stored_gets_another_name_and_a_kill)
{
    int status = 0;

    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 10;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        give_bad_name(_i);
        end_it(_i);
        crash_arm("rename-joined");
        DRIVEN_WAIT(driven_flush(&d) == 0);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    atomic_store(&store.answers, true);
    unsigned before = atomic_load(&store.refused);
    driven_mount(&d);
    is_ended(_i);
    ck_assert_uint_eq(atomic_load(&store.refused), before);
}
END_TEST
#endif

/* Nor is what came to the old name since taken for it. */
START_TEST(what_took_the_old_name_stays)
{
    give_bad_name(0);
    driven_put(&d, "other/old", "newer", 5);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    else
        ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "dir/good", _i ? NULL : "old");
    driven_stores(&d, "other/old", "newer");
}
END_TEST

/* What moved on over what took the old name, changed or not. */
START_TEST(what_came_back_is_stored)
{
    give_bad_name(0);
    driven_put(&d, "other/old", "newer", 5);
    if (_i)
        driven_put(&d, BAD, "changed", 7);
    ck_assert_int_eq(driven_rename(&d, BAD, "other/old"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "other/old", _i ? "changed" : "old");
    driven_shows(&d, "other/old", _i ? "changed" : "old");
}
END_TEST

START_TEST(one_bad_name_follows_another)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_rename(&d, BAD, BAD "2"), 0);
    await_refusals(3);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, BAD "2"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, BAD "2", "dir/good"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "dir/good", _i ? NULL : "old");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* It reads from there, and is changed there, after the directory moved. */
START_TEST(what_came_back_moves_with_its_directory)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_rename(&d, BAD, "other/old"), 0);
    ck_assert_int_eq(driven_rename(&d, "other", "moved"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "moved/old", "old");
    ck_assert_int_eq(driven_rename(&d, "moved/old", "moved/on"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/on", "old");
    driven_put(&d, "moved/on", "newer", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/on", "newer");
    ck_assert(!is_stored("moved/old") && !is_stored("other/old"));
}
END_TEST

/* Another node's version is not what was removed here. */
START_TEST(what_another_node_put_at_the_old_name_stays)
{
    give_bad_name(0);
    driven_store(&d, "other/old", "theirs", 6);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "other/old", "theirs");
}
END_TEST

/* What it was renamed over is at the store, and goes when the server is changed. */
START_TEST(what_the_bad_name_had_is_replaced)
{
    atomic_store(&store.with, 0);
    driven_put(&d, BAD, "before", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.with, EACCES);
    give_bad_name(0);
    await_refusals(2);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    await_refusals(2);
    ck_assert(is_stored(BAD) && is_stored("other/old"));
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored(BAD) && !is_stored("other/old"));
}
END_TEST

/* The removal waits for what is refused in its directory, also of what the store has elsewhere.
 */
START_TEST(what_is_refused_beside_it_keeps_it)
{
    give_bad_name(0);
    driven_put(&d, BAD "2", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(is_told());
    await_refusals(3);
    ck_assert(is_stored("other/old"));
    ck_assert_int_eq(driven_unlink(&d, BAD "2"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* A link at the old name is no step that is still to be made. */
START_TEST(what_is_linked_at_the_old_name_moves_over_nothing)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_link(&d, BAD, "other/old"), 0);
    ck_assert_int_eq(driven_rename(&d, BAD, BAD "2"), 0);
    await_refusals(4);
    driven_put(&d, BAD "w", "precious", 8);
    ck_assert_int_eq(driven_rename(&d, BAD "w", BAD "2"), 0);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, BAD "2", "precious");
    driven_shows(&d, "other/old", "old");
}
END_TEST

static void *sync_dir(void *arg)
{
    *(int *)arg = driven_fsyncdir(&d, "dir");
    return NULL;
}

static void *sync_root(void *arg)
{
    *(int *)arg = driven_fsyncdir(&d, "");
    return NULL;
}

/* Who waited for the rename to the bad name waits for the one that it became. */
START_TEST(who_waits_for_it_waits_on)
{
    pthread_t thread;
    int r = 1;

    driven_put(&d, "other/x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.upload_jobs = 1;
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    give_bad_name(0);
    await_refusals(3);
    atomic_store(&store.hold, "other/y"); /* nothing is tried meanwhile */
    ck_assert_int_eq(driven_rename(&d, "other/x", "other/y"), 0);
    DRIVEN_WAIT(atomic_load(&store.held));
    ck_assert_int_eq(pthread_create(&thread, NULL, sync_dir, &r), 0);
    (void)usleep(200000); /* it waits by then; if not yet, the test proves less */
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    atomic_store(&store.held, false);
    atomic_store(&store.hold, "dir/good");
    DRIVEN_WAIT(atomic_load(&store.held));
    (void)usleep(200000); /* it would be told by then */
    atomic_store(&store.with, 0);
    bool waits = pthread_tryjoin_np(thread, NULL) == EBUSY;
    atomic_store(&store.hold, NULL);
    if (waits)
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(waits || r != 0);
    driven_stores(&d, "dir/good", "old");
}
END_TEST

static void *flush_it(void *arg)
{
    *(int *)arg = driven_flush(&d);
    return NULL;
}

/* The same of a directory, whose rename becomes removals once all is copied. */
START_TEST(who_waits_for_a_directory_waits_for_its_removals)
{
    pthread_t thread;
    int r = 1;

    driven_put(&d, "dir/x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.upload_jobs = 1;
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    give_bad_name(3);
    await_refusals(3);
    atomic_store(&store.hold, "dir/y"); /* nothing is tried meanwhile */
    ck_assert_int_eq(driven_rename(&d, "dir/x", "dir/y"), 0);
    DRIVEN_WAIT(atomic_load(&store.held));
    ck_assert_int_eq(pthread_create(&thread, NULL, _i ? flush_it : sync_root, &r), 0);
    (void)usleep(200000); /* it waits by then; if not yet, the test proves less */
    ck_assert_int_eq(driven_rename(&d, BAD, "good"), 0);
    atomic_store(&store.held, false);
    atomic_store(&store.hold, "other/old");
    DRIVEN_WAIT(atomic_load(&store.held));
    (void)usleep(400000); /* it would be told by then */
    bool waits = pthread_tryjoin_np(thread, NULL) == EBUSY;
    atomic_store(&store.hold, NULL);
    ck_assert(waits);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(r, 0);
    driven_stores(&d, "good/old", "old");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* A copy can have another version than what it was copied from. */
START_TEST(what_was_just_copied_is_removed)
{
    teardown();
    driven_init(&d, around);
    d.store->facts.caps = (d.store->facts.caps & ~(unsigned)STORE_RENAME) | STORE_STATE;
    d.config.retry_ns = 100 * NS_PER_MS;
    fill();
    atomic_store(&store.answers, true);
    atomic_store(&store.hold, "other/new");
    ck_assert_int_eq(driven_rename(&d, "other/old", "other/new"), 0);
    DRIVEN_WAIT(atomic_load(&store.held));
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "other/new", "other/newer"), 0);
    ck_assert_int_eq(driven_rename(&d, _i ? "other/newer" : "other/new", BAD), 0);
    atomic_store(&store.hold, NULL);
    await_refusals(3);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored("other/old") && !is_stored("other/new") && !is_stored("other/newer"));
}
END_TEST

/* What was sent to the bad name before, and arrives late, goes, too. */
static bool put_to_the_bad_name(int64_t late_ns, int i)
{
    struct mem_source src;
    struct op op;

    (void)i;
    teardown();
    setup();
    driven_unmount(&d);
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    atomic_store(&store.answers, true);
    atomic_store(&store.with, EIO);
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_put(&d, BAD, "first", 5);
    await_refusals(1);
    atomic_store(&store.with, EACCES);
    ck_assert_int_eq(driven_rename(&d, "other/old", BAD), 0);
    await_refusals(2);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    /* Once the window is over the two are one, and nothing is refused. */
    unsigned before = atomic_load(&store.refused);
    DRIVEN_WAIT(atomic_load(&store.refused) > before || clock_mono_ns() >= until_ns);
    op_init(&op, 5 * NS_PER_SEC);
    mem_source_init(&src, "first", 5);
    int r = store_put(d.store->next, &op, BAD, "", &src.base, &store.attrs, NULL);
    bool in_time = clock_mono_ns() < until_ns;
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    if (in_time && r == 0)
        ck_assert(!is_stored(BAD));
    return in_time;
}

START_TEST(what_arrives_late_at_the_bad_name_goes)
{
    driven_in_window(put_to_the_bad_name, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_refused_rename");
    TCase *t = tcase_create("cache_refused_rename");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_was_stored_gets_another_name, 0, (int)ARRAY_SIZE(ends));
    tcase_add_loop_test(t, what_was_stored_gets_another_name_later, 0, (int)ARRAY_SIZE(ends));
#ifndef NDEBUG
    tcase_add_loop_test(t, what_was_stored_gets_another_name_and_a_kill, 0,
                        (int)ARRAY_SIZE(ends));
#endif
    tcase_add_loop_test(t, what_took_the_old_name_stays, 0, 2);
    tcase_add_loop_test(t, what_came_back_is_stored, 0, 2);
    tcase_add_loop_test(t, one_bad_name_follows_another, 0, 2);
    tcase_add_test(t, what_came_back_moves_with_its_directory);
    tcase_add_test(t, what_another_node_put_at_the_old_name_stays);
    tcase_add_test(t, what_the_bad_name_had_is_replaced);
    tcase_add_test(t, what_is_refused_beside_it_keeps_it);
    tcase_add_test(t, what_is_linked_at_the_old_name_moves_over_nothing);
    tcase_add_test(t, who_waits_for_it_waits_on);
    tcase_add_loop_test(t, who_waits_for_a_directory_waits_for_its_removals, 0, 2);
    tcase_add_loop_test(t, what_was_just_copied_is_removed, 0, 2);
    tcase_add_test(t, what_arrives_late_at_the_bad_name_goes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
