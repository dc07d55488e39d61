/* cache/: deletion locks of one node (docs/locks.md): what a lock hides, what the store and the
 * cache keep for it, and who is refused what. */
#include "tests/lib/lock_stories.h"
#include "tests/lib/suite.h"

#define FILE_BYTES (1 << 16)
#define A_WHILE_US 300000 /* in which what is not held would go */

static struct cache_stats stats(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s;
}

/* ---- hide ---- */

START_TEST(the_store_keeps_what_is_removed_until_the_lock_ends)
{
    make_tree();
    uint64_t id = lock("d", false, getpid());
    remove_tree();
    ck_assert_int_eq(driven_list(&d, ""), 0);
    struct stat st;
    ck_assert_int_eq(driven_stat(&d, "d/a", &st), -ENOENT);
    (void)usleep(A_WHILE_US);
    ck_assert_uint_eq(atomic_load(&removals), 0);
    driven_stores(&d, "d/a", "of a");
    driven_stores(&d, "d/sub/b", "of b");
    ck_assert_uint_eq(stats().pending_ops, 4);
    unlock(id);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", NULL);
    driven_stores(&d, "d/sub/b", NULL);
    ck_assert(!driven_stores_dir(&d, "d"));
    ck_assert_uint_eq(stats().open_handles, 0);
}
END_TEST

START_TEST(what_lies_beside_a_locked_path_goes_at_once)
{
    make_tree();
    put("dd", "beside");
    ck_assert_int_eq(driven_flush(&d), 0);
    uint64_t id = lock("d/sub", false, getpid());
    ck_assert_int_eq(driven_unlink(&d, "dd"), 0);
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dd", NULL);
    driven_stores(&d, "d/a", NULL);
    unlock(id);
}
END_TEST

static int note_held(void *arg, const struct cache_pending *p)
{
    if (strcmp(p->state, "locked") == 0)
        ++*(unsigned *)arg;
    return 0;
}

START_TEST(a_flush_says_what_a_lock_holds_and_does_not_wait)
{
    struct op op;
    unsigned held = 0;

    make_tree();
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    put("new", "goes up");
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "", 0, &op, NULL, NULL), -EBUSY);
    ck_assert_ptr_nonnull(strstr(op.why, "d/a was removed here"));
    ck_assert_ptr_nonnull(strstr(op.why, "runfs locks"));
    driven_stores(&d, "new", "goes up");
    ck_assert_int_eq(cache_each_pending(d.cache, note_held, &held), 0);
    ck_assert_uint_eq(held, 1);
    unlock(id);
}
END_TEST

START_TEST(a_flush_does_not_wait_for_the_directory_above_either)
{
    struct op op;
    unsigned held = 0;

    make_tree();
    uint64_t id = lock("d/sub", false, getpid());
    remove_tree();
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "", 0, &op, NULL, NULL), -EBUSY);
    driven_stores(&d, "d/a", NULL);
    ck_assert_int_eq(cache_each_pending(d.cache, note_held, &held), 0);
    ck_assert_uint_eq(held, 3);                 /* b, sub and d */
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0); /* its object goes after the old one's */
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "", 0, &op, NULL, NULL), -EBUSY);
    unlock(id);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(driven_stores_dir(&d, "d") && !driven_stores_dir(&d, "d/sub"));
}
END_TEST

START_TEST(two_locks_hold_until_the_last_ends)
{
    make_tree();
    uint64_t one = lock("d", false, getpid()), two = lock("d/a", false, other);
    ck_assert_uint_ne(one, two);
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    unlock(one);
    unlock(one); /* nothing has it any more */
    (void)usleep(A_WHILE_US);
    driven_stores(&d, "d/a", "of a");
    ck_assert_uint_eq(stats().open_handles, 1); /* in the cache, too */
    unlock(two);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", NULL);
    ck_assert_uint_eq(stats().open_handles, 0);
}
END_TEST

START_TEST(a_lock_that_came_later_holds_nothing)
{
    make_tree();
    atomic_store(&slow, true);
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    DRIVEN_WAIT(atomic_load(&removals) == 1);
    struct op op;
    uint64_t id;
    ck_assert_int_eq(lock_for("d/a", false, other, 0, &op, &id), -EBUSY);
    ck_assert_ptr_nonnull(strstr(op.why, "just being removed"));
    ck_assert_int_eq(driven_unlink(&d, "d/sub/b"), 0);
    id = lock("d", false, other); /* what was removed before is none of its business */
    atomic_store(&slow, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", NULL);
    driven_stores(&d, "d/sub/b", NULL);
    unlock(id);
    ck_assert_int_eq(lock_for("d/a", false, other, 20 * NS_PER_SEC, &op, &id), -ENOENT);
    ck_assert_int_eq(lock_for("d/a", false, 0, 0, &op, &id), -ESRCH);
}
END_TEST

START_TEST(a_daemon_that_is_killed_leaves_no_lock)
{
    make_tree();
    (void)lock("d", false, getpid());
    remove_tree();
    driven_unmount(&d);
    ck_assert_uint_eq(atomic_load(&removals), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", NULL);
    driven_stores(&d, "d/sub/b", NULL);
}
END_TEST

START_TEST(what_is_moved_stays_locked_where_it_comes)
{
    make_tree();
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    ck_assert_int_eq(driven_rename(&d, "e/a", "out"), 0);
    ck_assert_int_eq(driven_unlink(&d, "out"), 0);
    ck_assert_int_eq(driven_unlink(&d, "e/sub/b"), 0);
    (void)usleep(A_WHILE_US);
    /* Its object is under one of its names. */
    char buf[8];
    ck_assert(driven_stored(&d, "out", buf, 8) == 4 || driven_stored(&d, "d/a", buf, 8) == 4);
    ck_assert(driven_stored(&d, "e/sub/b", buf, 8) == 4 ||
              driven_stored(&d, "d/sub/b", buf, 8) == 4);
    unlock(id);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "out", NULL);
    driven_stores(&d, "d/a", NULL);
    driven_stores(&d, "e/sub/b", NULL);
}
END_TEST

START_TEST(a_name_that_is_taken_again_goes_up)
{
    struct handle *h;

    make_tree();
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    put("d/a", "anew");
    /* Were it stored under this name, the lock would hold the name's removal. */
    ck_assert_int_eq(driven_open(&d, "d/sub/.b", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "over b", 6, 0), 0);
    ck_assert_int_eq(driven_rename(&d, "d/sub/.b", "d/sub/b"), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", "anew");
    driven_stores(&d, "d/sub/b", "over b");
    ck_assert_uint_eq(stats().open_handles, 2); /* of what they replaced */
    unlock(id);
    ck_assert_uint_eq(stats().open_handles, 0);
    driven_shows(&d, "d/a", "anew");
}
END_TEST

START_TEST(what_is_not_here_is_fetched_before_its_name_is_taken)
{
    make_tree();
    driven_mount_afresh(&d);
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_uint_eq(atomic_load(&reads), 0); /* the store has it */
    put("d/a", "anew");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_gt(atomic_load(&reads), 0);
    unlock(id);
}
END_TEST

/* ---- eviction ---- */

static void put_large(const char *path)
{
    static char data[FILE_BYTES];

    memset(data, 'x', sizeof(data));
    driven_put(&d, path, data, sizeof(data));
}

static bool is_here(const char *path)
{
    return strcmp(driven_state(&d, path), "clean") == 0;
}

START_TEST(locked_content_is_evicted_last)
{
    char name[16];

    driven_unmount(&d);
    d.config.size_bytes = 20 * FILE_BYTES;
    driven_mount(&d);
    put_large("locked");
    ck_assert_int_eq(driven_flush(&d), 0);
    uint64_t id = lock("locked", false, getpid());
    for (int i = 0; i < 40; i++) { /* it is the least recently used one */
        (void)snprintf(name, sizeof(name), "f%d", i);
        put_large(name);
        ck_assert_int_eq(driven_flush(&d), 0);
    }
    DRIVEN_WAIT(!is_here("f0"));
    ck_assert(is_here("locked"));
    struct op op;
    struct cache_evicted e;
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(cache_evict_path(d.cache, "locked", &op, NULL, NULL, &e), 0);
    ck_assert_uint_eq(e.stay[CACHE_STAYS_USED], 1);
    /* Where nothing else is left it goes: the store has it. */
    (void)lock("", false, getpid());
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "g%d", i);
        put_large(name);
        ck_assert_int_eq(driven_flush(&d), 0);
    }
    DRIVEN_WAIT(!is_here("locked"));
    unlock(id);
}
END_TEST

/* ---- refuse ---- */

START_TEST(removals_are_refused_to_all_but_the_holder)
{
    make_tree();
    put("x", "beside");
    uint64_t id = lock("d", true, other);
    ck_assert_int_eq(driven_unlink(&d, "d/a"), -EBUSY);
    ck_assert_int_eq(driven_unlink(&d, "d/none"), -ENOENT);
    ck_assert_int_eq(driven_rename(&d, "d/a", "d/c"), -EBUSY);
    ck_assert_int_eq(driven_rename(&d, "d", "e"), -EBUSY);
    ck_assert_int_eq(driven_rename(&d, "x", "d/a"), -EBUSY);
    ck_assert_int_eq(driven_exchange(&d, "x", "d/a"), -EBUSY);
    ck_assert_int_eq(driven_mkdir(&d, "d/empty"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "d/empty"), -EBUSY);
    driven_caller = 0; /* nobody knows who asks */
    ck_assert_int_eq(driven_unlink(&d, "d/a"), -EBUSY);
    driven_caller = getpid();
    put("d/new", "is made"); /* and nothing is taken away by that */
    ck_assert_int_eq(driven_rename(&d, "x", "d/x"), 0);
    /* The holder's removal is carried out. */
    driven_caller = other;
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/a", NULL);
    /* What is moved stays locked there alone. */
    driven_caller = getpid();
    ck_assert_int_eq(driven_unlink(&d, "e/x"), -EBUSY);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "d"), 0);
    unlock(id);
    ck_assert_int_eq(driven_unlink(&d, "e/x"), 0);
}
END_TEST

START_TEST(removals_are_refused_where_an_exchange_brought_it)
{
    make_tree();
    ck_assert_int_eq(driven_mkdir(&d, "x"), 0);
    put("x/a", "of x");
    uint64_t id = lock("d", true, other);
    driven_caller = other;
    ck_assert_int_eq(driven_exchange(&d, "d", "x"), 0);
    driven_caller = getpid();
    ck_assert_int_eq(driven_unlink(&d, "x/a"), -EBUSY);
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    unlock(id);
}
END_TEST

START_TEST(what_the_holder_started_is_the_holder)
{
    make_tree();
    uint64_t id = lock("d", true, getpid());
    driven_caller = other; /* our child */
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    uint64_t two = lock("d", true, other); /* ours is none of somebody else */
    unlock(id);
    driven_caller = getpid();
    ck_assert_int_eq(driven_unlink(&d, "d/sub/b"), -EBUSY);
    unlock(two);
    ck_assert_int_eq(driven_unlink(&d, "d/sub/b"), 0);
}
END_TEST

START_TEST(a_lock_waits_for_one_that_refuses)
{
    struct op op;
    uint64_t id, refusing;

    make_tree();
    refusing = lock("d/sub", true, other);
    ck_assert_int_eq(driven_rename(&d, "d", "e"), -EBUSY); /* it would go along */
    ck_assert_int_eq(lock_for("d", false, getpid(), 0, &op, &id), -EBUSY);
    ck_assert_ptr_nonnull(strstr(op.why, "d/sub is locked by process"));
    int64_t began_ns = clock_mono_ns();
    ck_assert_int_eq(lock_for("d", true, getpid(), 300 * NS_PER_MS, &op, &id), -EBUSY);
    ck_assert_int_ge(clock_mono_ns() - began_ns, 300 * NS_PER_MS);
    ck_assert_ptr_nonnull(strstr(op.why, "a test"));
    ck_assert_int_eq(lock_for("d/a", false, getpid(), 0, &op, &id), 0);
    unlock(id);
    unlock(refusing);
    ck_assert_int_eq(lock_for("d", true, getpid(), 0, &op, &id), 0);
    unlock(id);
}
END_TEST

START_TEST(an_attribute_tells_who_has_it_locked)
{
    char text[256] = "", wanted[64];

    make_tree();
    ck_assert_int_eq(driven_getxattr(&d, "d", "user.runfs.locks", text, 255), 0);
    uint64_t id = lock("d/sub", true, other);
    (void)snprintf(wanted, sizeof(wanted), "refuse command pid=%d node=", (int)other);
    for (int i = 0; i < 3; i++) {
        static const char *const paths[] = {"d", "d/sub", "d/sub/b"};
        memset(text, 0, sizeof(text));
        ck_assert_int_gt(driven_getxattr(&d, paths[i], "user.runfs.locks", text, 255), 0);
        ck_assert_msg(strncmp(text, wanted, strlen(wanted)) == 0, "%s", text);
        ck_assert_ptr_nonnull(strstr(text, " path=d/sub command=a test\n"));
    }
    ck_assert_int_eq(driven_getxattr(&d, "d/a", "user.runfs.locks", text, 255), 0);
    unlock(id);
    ck_assert_int_eq(driven_getxattr(&d, "d/sub", "user.runfs.locks", text, 255), 0);
}
END_TEST

/* ---- both orders ---- */

#define ROUNDS 200

static void *remove_it(void *arg)
{
    (void)usleep(*(useconds_t *)arg);
    return (void *)(intptr_t)driven_unlink(&d, "d/f");
}

/* Either the lock was first, and the store has the file as long as it is there; or the removal
 * was, and there is no lock. */
START_TEST(a_lock_and_a_removal_meet)
{
    unsigned locked = 0, missed = 0;

    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_t remover;
        useconds_t pause = i % 2 ? (i * 7) % 200 : 0;
        struct op op;
        uint64_t id;
        void *result;

        put("d/f", "content");
        ck_assert_int_eq(driven_flush(&d), 0);
        ck_assert_int_eq(pthread_create(&remover, NULL, remove_it, &pause), 0);
        (void)usleep(i % 2 ? 0 : (i * 7) % 200);
        int r = lock_for("d/f", false, getpid(), i % 3 ? 0 : 20 * NS_PER_SEC, &op, &id);
        ck_assert_int_eq(pthread_join(remover, &result), 0);
        ck_assert_int_eq((intptr_t)result, 0);
        if (r == 0) {
            locked++;
            (void)usleep(2000);
            driven_stores(&d, "d/f", "content");
            unlock(id);
        } else {
            missed++;
            ck_assert_msg(r == -ENOENT || r == -EBUSY, "%d %s", r, op.why);
        }
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_stores(&d, "d/f", NULL);
    }
    if (!locked || !missed)
        (void)fprintf(stderr, "one order only: %u locked, %u missed\n", locked, missed);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_locks");
    TCase *t = tcase_create("cache_locks");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_store_keeps_what_is_removed_until_the_lock_ends);
    tcase_add_test(t, what_lies_beside_a_locked_path_goes_at_once);
    tcase_add_test(t, a_flush_says_what_a_lock_holds_and_does_not_wait);
    tcase_add_test(t, a_flush_does_not_wait_for_the_directory_above_either);
    tcase_add_test(t, two_locks_hold_until_the_last_ends);
    tcase_add_test(t, a_lock_that_came_later_holds_nothing);
    tcase_add_test(t, a_daemon_that_is_killed_leaves_no_lock);
    tcase_add_test(t, what_is_moved_stays_locked_where_it_comes);
    tcase_add_test(t, a_name_that_is_taken_again_goes_up);
    tcase_add_test(t, what_is_not_here_is_fetched_before_its_name_is_taken);
    tcase_add_test(t, locked_content_is_evicted_last);
    tcase_add_test(t, removals_are_refused_to_all_but_the_holder);
    tcase_add_test(t, removals_are_refused_where_an_exchange_brought_it);
    tcase_add_test(t, what_the_holder_started_is_the_holder);
    tcase_add_test(t, a_lock_waits_for_one_that_refuses);
    tcase_add_test(t, an_attribute_tells_who_has_it_locked);
    tcase_add_test(t, a_lock_and_a_removal_meet);
    suite_add_tcase(s, t);
    return suite_run(s);
}
