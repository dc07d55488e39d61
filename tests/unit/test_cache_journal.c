/* cache/: what a journal that can't be written, or read, for a while must not undo. Another
 * connection to state.db holds its lock meanwhile. */
#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static sqlite3 *other;        /* the connection that holds the lock */
static atomic_int lock_after; /* enum call_kind of "f" after which it takes the lock; -1 none */
static atomic_bool hold_first; /* puts of "first" wait */

static void run(const char *sql)
{
    ck_assert_msg(sqlite3_exec(other, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(other));
}

static void connect(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/state.db", d.dir);
    ck_assert_int_eq(sqlite3_open(path, &other), SQLITE_OK);
    ck_assert_int_eq(sqlite3_busy_timeout(other, 10000), SQLITE_OK);
}

static void disconnect(void)
{
    ck_assert_int_eq(sqlite3_close(other), SQLITE_OK);
    other = NULL;
}

static int rows(void)
{
    sqlite3_stmt *s = NULL;

    connect();
    ck_assert_int_eq(sqlite3_prepare_v2(other, "SELECT count(*) FROM intent", -1, &s, NULL),
                     SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(s), SQLITE_ROW);
    int n = sqlite3_column_int(s, 0);
    ck_assert_int_eq(sqlite3_finalize(s), SQLITE_OK);
    disconnect();
    return n;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_PUT && strcmp(c->key, "first") == 0 && atomic_load(&hold_first))
        (void)usleep(1000);
    int64_t r = call_next(c);
    int kind = (int)c->kind;
    if (c->key && strcmp(c->key, "f") == 0 &&
        atomic_compare_exchange_strong(&lock_after, &kind, -1))
        run("BEGIN IMMEDIATE");
    return r;
}

static bool has_failed(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.last_error != 0;
}

static void setup(void)
{
    atomic_store(&lock_after, -1);
    atomic_store(&hold_first, false);
}

/* The row of a delete that a newer version made void stays in memory as long as on the disk:
 * else the next mount would carry it out, upon the newer version. */
START_TEST(a_row_that_could_not_be_retired_is_retired_later)
{
    driven_init(&d, around);
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_first, true);
    driven_put(&d, "first", "first", 5); /* deletes wait for it */
    connect();
    atomic_store(&lock_after, CALL_PUT);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_put(&d, "f", "two", 3);
    DRIVEN_WAIT(has_failed());
    run("ROLLBACK");
    disconnect();
    atomic_store(&hold_first, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "two");
    driven_unmount(&d);
    ck_assert_int_eq(rows(), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "two");
    driven_release(&d);
}
END_TEST

/* What waits for its rename does not hold its name's removal, and goes up again if that took
 * what nobody could note. */
START_TEST(what_could_not_be_noted_outlives_the_removal_of_its_name)
{
    static const char *staging[] = {"f", NULL};
    struct cache_stats s;
    struct op op;

    driven_init(&d, around);
    d.config.staging = staging;
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_first, true);
    driven_put(&d, "first", "first", 5); /* deletes wait for it */
    connect();
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_put(&d, "f", "two", 3);
    atomic_store(&lock_after, CALL_PUT);
    op_init(&op, 2 * NS_PER_SEC);
    ck_assert_int_lt(cache_flush_path(d.cache, "f", CACHE_FLUSH_STAGED, &op, NULL, NULL), 0);
    DRIVEN_WAIT(has_failed());
    run("ROLLBACK");
    disconnect();
    atomic_store(&hold_first, false);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.pending_ops == 0));
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "two");
    driven_release(&d);
}
END_TEST

/* Natively, and as a copy. */
START_TEST(a_rename_that_could_not_be_noted_is_made_again)
{
    if (_i == 0)
        driven_init_folder(&d, around, 1 << 20);
    else
        driven_init_like_s3(&d, around);
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    connect();
    atomic_store(&lock_after, _i == 0 ? CALL_RENAME : CALL_COPY);
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    DRIVEN_WAIT(has_failed());
    run("ROLLBACK");
    disconnect();
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", "one");
    ck_assert_int_eq(driven_stored(&d, "f", NULL, 0), -ENOENT);
    driven_unmount(&d);
    ck_assert_int_eq(rows(), 0);
    driven_release(&d);
}
END_TEST

/* What can't be read for a while is not damaged: its rows are still needed. */
START_TEST(a_journal_in_use_is_not_set_aside)
{
    struct cache *c = NULL;
    struct op op;

    driven_init(&d, around);
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_first, true);
    driven_put(&d, "first", "first", 5);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    atomic_store(&hold_first, false);
    driven_unmount(&d);
    connect();
    run("PRAGMA locking_mode=EXCLUSIVE");
    run("BEGIN EXCLUSIVE");
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_new(&d.config, d.store, &op, &c), -EBUSY);
    ck_assert_msg(strstr(op.why, "state.db"), "%s", op.why);
    run("ROLLBACK");
    disconnect();
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", NULL, 0), -ENOENT);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_journal");
    TCase *t = tcase_create("cache_journal");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_row_that_could_not_be_retired_is_retired_later);
    tcase_add_test(t, what_could_not_be_noted_outlives_the_removal_of_its_name);
    tcase_add_loop_test(t, a_rename_that_could_not_be_noted_is_made_again, 0, 2);
    tcase_add_test(t, a_journal_in_use_is_not_set_aside);
    suite_add_tcase(s, t);
    return suite_run(s);
}
