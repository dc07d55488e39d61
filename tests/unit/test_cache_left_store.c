/* cache/: what left its store for another one, and what its old key goes through meanwhile. */
#include "cache/mirror/stamp.h"
#include "tests/lib/routed_pair.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How the old name is used again while the other store lacks what left it. */
enum again {
    PUT_ANEW,
    RENAMED_ONTO,
    BROUGHT_BY_A_DIRECTORY,
    A_DIRECTORY,
    REMOVED_ANEW,
    AGAINS
};

static atomic_uint changed, changed_too_early;
static const char *_Atomic left_as; /* what the file is called meanwhile */
static atomic_bool no_syncs;        /* the cache's disk syncs nothing */

int fsync(int fd)
{
    if (!atomic_load(&no_syncs))
        return (int)syscall(SYS_fsync, fd);
    errno = EROFS;
    return -1;
}

/* Whether a power loss now leaves the file as one that is to be published. */
static bool is_durable(const char *path)
{
    char at[128];
    struct stamp_attrs a;
    struct stat st;

    (void)snprintf(at, sizeof(at), "%s/mirror/%s", w.d.dir, path);
    int fd = open(at, O_RDONLY | O_CLOEXEC);
    bool ret = fd >= 0 && stamp_read_attrs(fd, &a) == 0 && fstat(fd, &st) == 0 &&
               (a.flags & STAMP_SYNCED) && a.synced_size == (uint64_t)st.st_size &&
               a.synced_mtime_ns == st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec;
    if (fd >= 0)
        (void)close(fd);
    return ret;
}

static bool concerns(const struct call *c, const char *key)
{
    bool ret = c->kind == CALL_COPY || c->kind == CALL_RENAME ? strcmp(c->to, key) == 0
               : c->kind == CALL_PUT                          ? strcmp(c->key, key) == 0
                                                              : false;

    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++)
        ret = ret || strcmp(c->keys[i], key) == 0;
    return ret;
}

static void watch_old_key(unsigned leaf, const struct call *c)
{
    if (leaf != 0 || !concerns(c, "a/d/f"))
        return;
    atomic_fetch_add(&changed, 1);
    if (!is_durable(atomic_load(&left_as)))
        atomic_fetch_add(&changed_too_early, 1);
}

static bool old_key_holds(const char *text)
{
    char buf[64];
    struct mem_sink sink;
    struct op op;

    op_init(&op, 60 * NS_PER_SEC);
    mem_sink_init(&sink, buf, sizeof(buf), 0);
    ssize_t n = store_read(w.leaves[0].layer->base.next, &op, "a/d/f", NULL, &sink.base,
                           sizeof(buf), 0, NULL);
    return n == (ssize_t)strlen(text) && memcmp(buf, text, (size_t)n) == 0;
}

static void leave_for_a_store_that_takes_nothing(enum routed_kind kind)
{
    routed_release(&w);
    routed_init(&w, rows, ROWS, kind);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "a/d"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "a/e"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    put("a/d/f", "only copy");
    put("a/d/g", "beside it");
    put("a/e/f", "brought");
    put("a/g", "renamed");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&left_as, "b/f");
    atomic_store(&changed, 0);
    atomic_store(&changed_too_early, 0);
    atomic_store(&w.watch, watch_old_key);
    atomic_store(&w.leaves[1].no_puts, true);
}

static void use_old_name_again(enum again how)
{
    switch (how) {
    case PUT_ANEW:
        put("a/d/f", "new");
        break;
    case RENAMED_ONTO:
        ck_assert_int_eq(driven_rename(&w.d, "a/g", "a/d/f"), 0);
        break;
    case BROUGHT_BY_A_DIRECTORY:
        ck_assert_int_eq(driven_unlink(&w.d, "a/d/g"), 0);
        ck_assert_int_eq(driven_rmdir(&w.d, "a/d"), 0);
        ck_assert_int_eq(driven_rename(&w.d, "a/e", "a/d"), 0);
        break;
    case A_DIRECTORY:
        ck_assert_int_eq(driven_mkdir(&w.d, "a/d/f"), 0);
        break;
    default: /* something that was not stored */
        atomic_store(&w.leaves[0].no_puts, true);
        put("a/d/f", "new");
        DRIVEN_WAIT(strcmp(driven_state(&w.d, "a/d/f"), "failed") == 0);
        ck_assert_int_eq(driven_unlink(&w.d, "a/d/f"), 0);
    }
}

static void another_boot(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", w.d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
}

START_TEST(what_left_its_store_is_durable_before_its_old_key_changes)
{
    struct handle *h = NULL;
    enum again how = (enum again)(_i % AGAINS);

    leave_for_a_store_that_takes_nothing((enum routed_kind)(_i / AGAINS));
    /* No other removal waits for what is open, and nothing is written any more. */
    ck_assert_int_eq(driven_open(&w.d, "a/d/f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    use_old_name_again(how);
    DRIVEN_WAIT(!old_key_holds("only copy"));
    ck_assert_uint_gt(atomic_load(&changed), 0);
    ck_assert_uint_eq(atomic_load(&changed_too_early), 0);
    (void)driven_close(&w.d, h);
    driven_unmount(&w.d);
    another_boot(); /* the power was lost */
    atomic_store(&w.leaves[0].no_puts, false);
    atomic_store(&w.leaves[1].no_puts, false);
    driven_mount(&w.d);
    driven_shows(&w.d, "b/f", "only copy");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 1, "b/f", "only copy");
}
END_TEST

/* It comes back to where its directory went. It would be taken along to its new name, but for
 * the removal, which still says that the store is to lose it: no upload of it goes to the old
 * key. */
START_TEST(what_came_back_beside_its_old_key_is_durable_before_that_changes)
{
    leave_for_a_store_that_takes_nothing((enum routed_kind)_i);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    atomic_store(&w.leaves[0].no_moves, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/d", "a/x"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "b/f", "a/x/f"), 0);
    atomic_store(&left_as, "a/x/f");
    ck_assert_int_eq(driven_mkdir(&w.d, "a/d"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "a/d/f"), 0);
    DRIVEN_WAIT(!old_key_holds("only copy"));
    ck_assert_uint_gt(atomic_load(&changed), 0);
    ck_assert_uint_eq(atomic_load(&changed_too_early), 0);
    driven_unmount(&w.d);
    another_boot(); /* the power was lost */
    atomic_store(&w.leaves[0].no_moves, false);
    atomic_store(&w.leaves[1].no_puts, false);
    driven_mount(&w.d);
    driven_shows(&w.d, "a/x/f", "only copy");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/x/f", "only copy");
}
END_TEST

START_TEST(an_old_key_stays_as_long_as_the_disk_syncs_nothing)
{
    leave_for_a_store_that_takes_nothing((enum routed_kind)(_i / REMOVED_ANEW));
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    atomic_store(&no_syncs, true);
    use_old_name_again((enum again)(_i % REMOVED_ANEW));
    (void)usleep(500 * 1000);
    ck_assert(old_key_holds("only copy"));
    atomic_store(&no_syncs, false);
    DRIVEN_WAIT(!old_key_holds("only copy"));
    ck_assert_uint_eq(atomic_load(&changed_too_early), 0);
    atomic_store(&w.leaves[1].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 1, "b/f", "only copy");
}
END_TEST

/* Each old name is used again by a file that waits for nobody. */
START_TEST(files_that_change_places_over_their_stores_all_arrive)
{
    leave_for_a_store_that_takes_nothing(ROUTED_S3);
    put("t", "third");
    atomic_store(&w.leaves[1].no_puts, false);
    put("b/f", "second");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, true);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "aside"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "b/f", "a/d/f"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "t", "b/f"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "aside", "t"), 0);
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "b/f"), "failed") == 0);
    for (unsigned i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].no_puts, false);
    atomic_store(&w.watch, NULL);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/d/f", "second");
    routed_stores(&w, 1, "b/f", "third");
    routed_stores(&w, 2, "t", "only copy");
    routed_stores(&w, 2, "aside", NULL);
}
END_TEST

/* No mount would publish what is half. */
START_TEST(what_left_its_store_half_keeps_its_old_key)
{
    struct handle *h = NULL;
    struct op op;

    leave_for_a_store_that_takes_nothing((enum routed_kind)(_i / REMOVED_ANEW));
    ck_assert_int_eq(driven_open(&w.d, "a/d/f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "half", 4, 0), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    use_old_name_again((enum again)(_i % REMOVED_ANEW));
    (void)usleep(500 * 1000);
    ck_assert(old_key_holds("only copy"));
    op_init(&op, 10 * NS_PER_SEC);
    int r = cache_flush_path(w.d.cache, "a/d/f", 0, &op, NULL, NULL);
    ck_assert_msg((r == -EBUSY && strstr(op.why, "as b/f, which is in no store yet")) ||
                      (r == -ETXTBSY && strstr(op.why, "b/f is being written")),
                  "%d: %s", r, op.why);
    ck_assert(old_key_holds("only copy"));
    (void)driven_close(&w.d, h);
    DRIVEN_WAIT(!old_key_holds("only copy"));
    ck_assert_uint_eq(atomic_load(&changed_too_early), 0);
    atomic_store(&w.leaves[1].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 1, "b/f", "half");
}
END_TEST

/* It waits for the half file, and what a store that is away owes has nothing to do with it. */
START_TEST(a_flush_behind_a_half_file_waits_for_no_other_store)
{
    struct handle *h = NULL;
    struct op op;

    leave_for_a_store_that_takes_nothing(ROUTED_FOLDERS);
    put("elsewhere", "x");
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "elsewhere"), "clean") == 0);
    ck_assert_int_eq(driven_open(&w.d, "a/d/f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "half", 4, 0), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    atomic_store(&w.leaves[2].stuck, true);
    ck_assert_int_eq(driven_unlink(&w.d, "elsewhere"), 0);
    use_old_name_again(A_DIRECTORY);
    put("a/d/f/x", "below");
    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(w.d.cache, "a/d/f", 0, &op, NULL, NULL), -ETXTBSY);
    ck_assert_msg(strstr(op.why, "b/f is being written"), "%s", op.why);
    atomic_store(&w.leaves[2].stuck, false);
    (void)driven_close(&w.d, h);
    atomic_store(&w.leaves[1].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/d/f/x", "below");
}
END_TEST

/* There and back: what is sent to the old key is the file itself. */
START_TEST(what_came_back_is_sent_half_when_that_is_asked_for)
{
    struct handle *h = NULL;
    struct op op;

    leave_for_a_store_that_takes_nothing(ROUTED_S3);
    atomic_store(&w.watch, NULL);
    ck_assert_int_eq(driven_open(&w.d, "a/d/f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "half", 4, 0), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/d/f", "b/f"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "b/f", "a/d/f"), 0);
    op_init(&op, 10 * NS_PER_SEC);
    int r = cache_flush_path(w.d.cache, "a/d/f", CACHE_FLUSH_HALF, &op, NULL, NULL);
    ck_assert_msg(r == 0, "%d: %s", r, op.why);
    routed_stores(&w, 0, "a/d/f", "half");
    (void)driven_close(&w.d, h);
    atomic_store(&w.leaves[1].no_puts, false);
    ck_assert_int_eq(driven_flush(&w.d), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_left_store");
    TCase *t = tcase_create("left store");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_left_its_store_is_durable_before_its_old_key_changes, 0,
                        ROUTED_KINDS * AGAINS);
    tcase_add_loop_test(t, what_came_back_beside_its_old_key_is_durable_before_that_changes, 0,
                        ROUTED_KINDS);
    tcase_add_loop_test(t, an_old_key_stays_as_long_as_the_disk_syncs_nothing, 0,
                        ROUTED_KINDS * REMOVED_ANEW);
    tcase_add_test(t, files_that_change_places_over_their_stores_all_arrive);
    tcase_add_loop_test(t, what_left_its_store_half_keeps_its_old_key, 0,
                        ROUTED_KINDS * REMOVED_ANEW);
    tcase_add_test(t, a_flush_behind_a_half_file_waits_for_no_other_store);
    tcase_add_test(t, what_came_back_is_sent_half_when_that_is_asked_for);
    return suite_run(s);
}
