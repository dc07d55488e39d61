/* cache/mirror/journal.c: rows come back in their order, after a kill, too, and what is damaged
 * is set aside. */
#include "cache/mirror/journal.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/mirror/suites.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static int dir_fd;
static struct log_queue log_lines;
static struct journal *j;

static int open_journal(int *ret_damaged)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    return journal_open(dir_fd, dir, &log_lines, &op, &j, ret_damaged);
}

static void setup(void)
{
    temp_dir_make(dir, sizeof(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    log_queue_init(&log_lines);
    ck_assert_int_eq(open_journal(NULL), 0);
}

static void teardown(void)
{
    journal_close(j);
    log_queue_release(&log_lines);
    (void)close(dir_fd);
    temp_dir_remove(dir);
}

static void reopen(void)
{
    journal_close(j);
    ck_assert_int_eq(open_journal(NULL), 0);
}

/* ---- as text ---- */

static char text[1024];

static int add_row(void *arg, const struct journal_row *row)
{
    size_t n = strlen(text);

    (void)arg;
    (void)snprintf(text + n, sizeof(text) - n, "%" PRIu64 " %d %s>%s %" PRIu64 " %s; ",
                   row->seq, (int)row->kind, row->from, row->to ? row->to : "", row->ino,
                   row->etag);
    return 0;
}

static const char *rows(void)
{
    text[0] = '\0';
    ck_assert_int_eq(journal_each(j, add_row, NULL), 0);
    return text;
}

static const struct journal_row some[] = {
    {.seq = 3, .kind = INTENT_UNLINK, .from = "c", .ino = 5, .etag = "v"},
    {.seq = 1, .kind = INTENT_RENAME, .from = "a", .to = "b", .ino = UINT64_MAX, .etag = ""},
    {.seq = 2, .kind = INTENT_RMDIR, .from = "d '\"\n", .etag = INTENT_OURS},
};

#define SOME "1 3 a>b 18446744073709551615 ; 2 2 d '\"\n> 0 -; 3 1 c> 5 v; "

/* ---- intentions ---- */

START_TEST(rows_come_back_in_their_order)
{
    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    ck_assert_str_eq(rows(), SOME);
    reopen();
    ck_assert_str_eq(rows(), SOME);
}
END_TEST

/* What is done goes, and what follows from it comes, or nothing of both. */
START_TEST(a_row_becomes_others_at_once)
{
    static const uint64_t done[] = {1, 3, 77};
    static const struct journal_row next = {
        .seq = 1, .kind = INTENT_UNLINK, .from = "a", .etag = "v"};

    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    ck_assert_int_eq(journal_done(j, done, ARRAY_SIZE(done), &next, 1), 0);
    ck_assert_str_eq(rows(), "1 1 a> 0 v; 2 2 d '\"\n> 0 -; ");
    ck_assert_int_eq(journal_done(j, NULL, 0, NULL, 0), 0);
    ck_assert_int_eq(journal_sync(j), 0);
    ck_assert_int_eq(journal_sync_intents(j), 0);
}
END_TEST

/* A row that is gone does not come again by being told. */
START_TEST(rows_are_told_what_they_mean)
{
    static const uint64_t done[] = {1};
    static const struct journal_row told[] = {{.seq = 2, .etag = "w"},
                                              {.seq = 77, .etag = "w"}};

    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    ck_assert_int_eq(journal_done_and_told(j, done, 1, NULL, 0, told, ARRAY_SIZE(told)), 0);
    ck_assert_ptr_nonnull(strstr(rows(), "2 2 d '\"\n> 0 w; "));
    ck_assert_ptr_null(strstr(rows(), "77 "));
    reopen();
    ck_assert_ptr_nonnull(strstr(rows(), "2 2 d '\"\n> 0 w; "));
}
END_TEST

static int note_over(void *arg, const struct journal_row *row)
{
    (void)arg;
    (void)snprintf(text, sizeof(text), "%s", row->over ? row->over : "unknown");
    return 0;
}

static const char *over(void)
{
    reopen();
    ck_assert_int_eq(journal_each(j, note_over, NULL), 0);
    return text;
}

/* And what takes its number says nothing of it. */
START_TEST(a_rename_says_what_it_replaces)
{
    const uint64_t seq = 7;
    struct journal_row row = {.seq = seq, .kind = INTENT_RENAME, .from = "a", .to = "b"};

    row.over = "v1";
    ck_assert_int_eq(journal_add(j, &row, 1), 0);
    ck_assert_str_eq(over(), "v1");
    row.over = NULL;
    ck_assert_int_eq(journal_done(j, &seq, 1, &row, 1), 0);
    ck_assert_str_eq(over(), "unknown");
    row.over = INTENT_OURS;
    ck_assert_int_eq(journal_add(j, &row, 1), 0);
    ck_assert_str_eq(over(), INTENT_OURS);
    journal_take_back(j, &seq, 1);
    row.over = NULL;
    ck_assert_int_eq(journal_add(j, &row, 1), 0);
    ck_assert_str_eq(over(), "unknown");
    row.over = "v2";
    ck_assert_int_eq(journal_add(j, &row, 1), 0);
    ck_assert_int_eq(journal_adopt(j), 0);
    row.over = NULL;
    ck_assert_int_eq(journal_add(j, &row, 1), 0);
    ck_assert_str_eq(over(), "unknown");
}
END_TEST

START_TEST(what_is_taken_back_is_gone)
{
    static const uint64_t seqs[] = {2, 3};

    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    journal_take_back(j, seqs, ARRAY_SIZE(seqs));
    ck_assert_int_eq(journal_retry(j), 0);
    ck_assert_str_eq(rows(), "1 3 a>b 18446744073709551615 ; ");
}
END_TEST

static int end_at_second(void *arg, const struct journal_row *row)
{
    (void)row;
    return ++*(int *)arg == 2 ? 7 : 0;
}

START_TEST(a_visit_ends_it)
{
    int n = 0;

    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    ck_assert_int_eq(journal_each(j, end_at_second, &n), 7);
    ck_assert_int_eq(n, 2);
}
END_TEST

/* A copy carries out nothing that the original does, too. */
START_TEST(a_copy_renames_nothing)
{
    static const struct journal_row more[] = {
        {.seq = 4, .kind = INTENT_RENAMEDIR, .from = "d", .to = "e", .etag = ""},
        {.seq = 5, .kind = INTENT_UNLINK, .from = "x", .etag = INTENT_ANY},
        {.seq = 6, .kind = INTENT_UNLINK, .from = "y", .etag = ""},
    };

    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    ck_assert_int_eq(journal_add(j, more, ARRAY_SIZE(more)), 0);
    ck_assert_int_eq(journal_adopt(j), 0);
    ck_assert_str_eq(rows(), "2 2 d '\"\n> 0 -; 3 1 c> 5 v; 5 1 x> 0 -; 6 1 y> 0 -; ");
}
END_TEST

/* ---- the other tables ---- */

static int add_pin(void *arg, const char *path)
{
    (void)arg;
    (void)strcat(strcat(text, path), ";");
    return 0;
}

START_TEST(pins_come_back)
{
    ck_assert_int_eq(journal_set_pin(j, "a", 1), 0);
    ck_assert_int_eq(journal_set_pin(j, "a", 1), 0);
    ck_assert_int_eq(journal_set_pin(j, "b", 1), 0);
    ck_assert_int_eq(journal_set_pin(j, "a", 0), 0);
    reopen();
    text[0] = '\0';
    ck_assert_int_eq(journal_each_pin(j, add_pin, NULL), 0);
    ck_assert_str_eq(text, "b;");
}
END_TEST

static int add_session(void *arg, const struct journal_session *s)
{
    size_t n = strlen(text);

    (void)arg;
    (void)snprintf(text + n, sizeof(text) - n,
                   "%s %" PRId64 " %s %" PRIu64 " %" PRIu64 " %" PRIx64 " %d; ", s->key,
                   s->began_ns, s->token, s->part_size, s->size, s->attrs, s->live);
    return 0;
}

START_TEST(sessions_come_back)
{
    struct journal_session s = {
        .key = "k", .began_ns = 5, .token = "", .part_size = 8, .size = 9, .attrs = UINT64_MAX};

    ck_assert_int_eq(journal_set_session(j, &s, 1), 0);
    s.token = "token";
    s.live = 1;
    ck_assert_int_eq(journal_set_session(j, &s, 0), 0);
    s.began_ns = 6;
    ck_assert_int_eq(journal_set_session(j, &s, 0), 0);
    ck_assert_int_eq(journal_remove_session(j, "k", 6), 0);
    reopen();
    text[0] = '\0';
    ck_assert_int_eq(journal_each_session(j, add_session, NULL), 0);
    ck_assert_str_eq(text, "k 5 token 8 9 ffffffffffffffff 1; ");
}
END_TEST

static int add_put(void *arg, const struct journal_put *p)
{
    size_t n = strlen(text);

    (void)arg;
    (void)snprintf(text + n, sizeof(text) - n, "%s %" PRIx64 " %" PRId64 "; ", p->key,
                   p->origin, p->last_ns);
    return 0;
}

/* A settled note goes with the next one, unless it was made again since, after the clock was
 * set back, too. */
START_TEST(notes_of_puts_come_back)
{
    struct journal_put a = {"a", UINT64_MAX, 5}, b = {"b", 1, 6}, c = {"c", 2, 7};
    const struct journal_put settled[] = {{"a", UINT64_MAX, 5}, {"b", 1, 5}, {"c", 2, 8}};

    ck_assert_int_eq(journal_note_put(j, &a, NULL, 0), 0);
    ck_assert_int_eq(journal_note_put(j, &b, NULL, 0), 0);
    ck_assert_int_eq(journal_note_put(j, &c, settled, ARRAY_SIZE(settled)), 0);
    reopen();
    text[0] = '\0';
    ck_assert_int_eq(journal_each_put(j, add_put, NULL), 0);
    ck_assert_str_eq(text, "b 1 6; c 2 7; ");
}
END_TEST

static int add_wait(void *arg, const struct journal_wait *w)
{
    size_t n = strlen(text);

    (void)arg;
    (void)snprintf(text + n, sizeof(text) - n, "%" PRIu64 "-%" PRIu64 ";", w->since, w->until);
    return 0;
}

START_TEST(waits_are_replaced)
{
    static const struct journal_wait first[] = {{1, 2}, {5, 6}}, second[] = {{3, INT64_MAX}};

    ck_assert_int_eq(journal_set_waits(j, first, 2), 0);
    text[0] = '\0';
    ck_assert_int_eq(journal_each_wait(j, add_wait, NULL), 0);
    ck_assert_str_eq(text, "1-2;5-6;");
    ck_assert_int_eq(journal_set_waits(j, second, 1), 0);
    reopen();
    text[0] = '\0';
    ck_assert_int_eq(journal_each_wait(j, add_wait, NULL), 0);
    ck_assert_str_eq(text, "3-9223372036854775807;");
}
END_TEST

/* ---- damage ---- */

static unsigned set_aside(void)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    unsigned n = 0;

    ck_assert_ptr_nonnull(d);
    while ((e = readdir(d)))
        n += strncmp(e->d_name, "state.db.damaged-", 17) == 0;
    (void)closedir(d);
    return n;
}

static void is_set_aside(void)
{
    int damaged = 0;

    ck_assert_int_eq(open_journal(&damaged), 0);
    ck_assert_int_ne(damaged, 0);
    ck_assert_uint_ge(set_aside(), 1);
    ck_assert_str_eq(rows(), "");
    ck_assert_int_eq(journal_add(j, some, ARRAY_SIZE(some)), 0);
    reopen();
    ck_assert_str_eq(rows(), SOME);
}

START_TEST(what_is_no_database_is_set_aside)
{
    journal_close(j);
    auto_close int fd = openat(dir_fd, "state.db", O_WRONLY | O_TRUNC | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "no database, and longer than its head is", 40), 40);
    is_set_aside();
}
END_TEST

/* What SQLite would run for who wrote into the database is not run. */
static const char *const codes[] = {
    "CREATE TRIGGER t AFTER INSERT ON intent BEGIN INSERT OR IGNORE INTO pin VALUES('x'); END",
    "CREATE TRIGGER t BEFORE DELETE ON put BEGIN DELETE FROM intent; END",
    "CREATE VIEW v AS SELECT * FROM intent",
    "DROP TABLE pin; CREATE VIEW pin AS SELECT 'x' AS path",
};

START_TEST(what_has_code_is_set_aside)
{
    sqlite3 *db = NULL;
    char path[80];

    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/state.db", dir);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, codes[_i], NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
    is_set_aside();
}
END_TEST

Suite *journal_suite(void)
{
    Suite *s = suite_create("journal");
    TCase *t = tcase_create("journal");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rows_come_back_in_their_order);
    tcase_add_test(t, a_row_becomes_others_at_once);
    tcase_add_test(t, rows_are_told_what_they_mean);
    tcase_add_test(t, a_rename_says_what_it_replaces);
    tcase_add_test(t, what_is_taken_back_is_gone);
    tcase_add_test(t, a_visit_ends_it);
    tcase_add_test(t, a_copy_renames_nothing);
    tcase_add_test(t, pins_come_back);
    tcase_add_test(t, sessions_come_back);
    tcase_add_test(t, notes_of_puts_come_back);
    tcase_add_test(t, waits_are_replaced);
    tcase_add_test(t, what_is_no_database_is_set_aside);
    tcase_add_loop_test(t, what_has_code_is_set_aside, 0, ARRAY_SIZE(codes));
    suite_add_tcase(s, t);
    return s;
}
