/* cache/queue/order.c: docs/format.md, section 4: who waits for whom, as a table. */
#include "common/mem.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum order { GO, WAIT };

/* What is asked: "put K" and "mark D", whether the upload of a file or of a directory's marker
 * waits for a row; "row 2", whether the row waits for an earlier one; "urgent 1", whether it
 * goes before the uploads that it would wait for. */
struct line {
    const char *rows, *names, *asked;
    enum order order;
};

static const struct line uploads[] = {
    /* Running deletes of the name, and none that only wait: what is put takes their place. */
    {"", "a", "put a", GO},
    {"+unlink a", "a", "put a", WAIT},
    {"unlink a", "a", "put a", GO},
    {"-unlink a", "a", "put a", GO},
    {"+unlink a", "a b", "put b", GO},
    {"+unlink a/x", "a/ a/y", "put a/y", GO},
    {"+rmdir d", "d/", "mark d", WAIT},
    {"+rmdir d", "d/ d/x", "put d/x", GO},
    {"rmdir d", "d/", "mark d", GO},
    /* Renames that read or write the name, whether they run or not. */
    {"rename a b", "b", "put a", WAIT},
    {"rename a b", "b", "put b", WAIT},
    {"-rename a b", "b", "put b", WAIT},
    {"rename a b", "b c", "put c", GO},
    {"rename a b", "b ab", "put ab", GO},
    {"rename a b", "b a/ a/x", "put a/x", WAIT},
    {"rename d/a d/b", "d/ d/b d/c", "put d/c", GO},
    {"renamedir d e", "e/ e/x", "put e/x", WAIT},
    {"renamedir d e", "e/ d/ d/x", "put d/x", WAIT},
    {"renamedir d e", "e/", "mark e", WAIT},
    {"renamedir d e", "e/ d/", "mark d", WAIT},
    {"renamedir d e", "e/ dx", "put dx", GO},
    {"renamedir d/a d/b", "d/ d/b/ d/c", "put d/c", GO},
    /* A directory has room for files that come and go below it, and not for directories. */
    {"rename d/a d/b", "d/ d/b", "mark d", GO},
    {"rename d/a e/a", "d/ e/ e/a", "mark e", GO},
    {"rename d e", "e d/", "mark d", WAIT},
    {"rename e d", "d/", "mark d", WAIT},
    {"rename e d", "d/ d/x/", "mark d/x", WAIT},
    {"renamedir d/a d/b", "d/ d/b/", "mark d", WAIT},
    /* What is in the way: there was a file where a directory is now, or the reverse. */
    {"unlink a", "a/ a/x", "put a/x", WAIT},
    {"unlink a", "a/", "mark a", WAIT},
    {"unlink a", "a/ a/b/ a/b/x", "put a/b/x", WAIT},
    {"-unlink a", "a/ a/x", "put a/x", GO},
    {"+unlink a", "a/ a/x", "put a/x", WAIT},
    {"rmdir a", "a", "put a", WAIT},
    {"unlink a/x", "a", "put a", WAIT},
    {"unlink a/b/x", "a", "put a", WAIT},
    {"-unlink a/x", "a", "put a", GO},
    {"unlink a/x", "a b", "put b", GO},
    {"unlink a", "a/ b/ b/a", "put b/a", GO},
    {"rmdir d", "d/ d/x", "put d/x", GO},
};

static const struct line renames[] = {
    {"rename a b", "b", "row 1", GO},
    /* Renames with a lower number that overlap. */
    {"rename a b; rename b c", "c", "row 1", GO},
    {"rename a b; rename b c", "c", "row 2", WAIT},
    {"rename a b; rename c d", "b d", "row 2", GO},
    {"rename a b; rename c a", "a b", "row 2", WAIT},
    {"rename a b; rename c b", "b", "row 2", WAIT},
    {"-rename a b; rename b c", "c", "row 2", WAIT},
    {"rename a b; rename c d; rename d a", "a b", "row 3", WAIT},
    {"rename a b; rename c d; rename e f", "b d f", "row 3", GO},
    {"renamedir d e; rename e/a f", "e/ f", "row 2", WAIT},
    {"renamedir d e; rename d/a f", "e/ d/ f", "row 2", WAIT},
    {"renamedir d e; rename dd ee", "e/ ee", "row 2", GO},
    {"rename d/a d/b; renamedir d e", "e/ e/b", "row 2", WAIT},
    {"rename d/a d/b; rename d/c d/e", "d/ d/b d/e", "row 2", GO},
    {"renamedir d/a d/b; renamedir d/c d/e", "d/ d/b/ d/e/", "row 2", GO},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 1", GO},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 2", WAIT},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 3", WAIT},
    {"rename f t; renamedir d f; rename t d", "d f/", "row 2", WAIT},
    /* Removals with a lower number, of something of the other kind where it reads or writes. */
    {"unlink b; rename a b", "b", "row 2", GO},
    {"rmdir b; rename a b", "b", "row 2", WAIT},
    {"unlink b; renamedir d b", "b/", "row 2", WAIT},
    {"-unlink b; renamedir d b", "b/", "row 2", GO},
    {"rmdir b; renamedir d b", "b/", "row 2", GO},
    {"unlink a; rename a b", "b", "row 2", GO},
    {"rmdir a; rename a b", "b", "row 2", WAIT},
    {"unlink d; renamedir d e", "e/", "row 2", WAIT},
    {"rmdir d; renamedir d e", "e/", "row 2", GO},
    {"unlink b; rename a b/x", "b/ b/x", "row 2", WAIT},
    {"unlink b; renamedir d b/x", "b/ b/x/", "row 2", WAIT},
    {"rmdir b; rename a b/x", "b/ b/x", "row 2", GO},
    {"unlink b/x; rename a b", "b", "row 2", WAIT},
    {"rmdir b/x; rename a b", "b", "row 2", WAIT},
    {"unlink b/x; renamedir d b", "b/", "row 2", GO},
    {"unlink d/x; renamedir d e", "e/", "row 2", GO},
    {"unlink c; rename a b", "b", "row 2", GO},
    /* One that the listing of what is copied found to be needed. */
    {"*unlink b/x; renamedir d b", "b/", "row 2", WAIT},
    {"-unlink b/x; renamedir d b", "b/", "row 2", GO},
    {"*unlink c/x; renamedir d b", "b/", "row 2", GO},
    /* A later removal is none of it. */
    {"renamedir d b; unlink b", "b/", "row 1", GO},
};

static const struct line removals[] = {
    {"unlink a", "", "row 1", GO},
    {"unlink a; unlink a", "", "row 2", GO},
    /* Renames with a lower number there. */
    {"rename a b; unlink a", "b", "row 2", WAIT},
    {"rename a b; unlink b", "", "row 2", WAIT},
    {"rename a b; unlink c", "b", "row 2", GO},
    {"unlink a; rename a b", "b", "row 1", GO},
    {"renamedir d e; unlink e/x", "e/", "row 2", WAIT},
    {"renamedir d e; unlink d/x", "e/ d/", "row 2", WAIT},
    {"renamedir d e; rmdir e", "", "row 2", WAIT},
    {"renamedir d/a d/b; rmdir d", "", "row 2", WAIT},
    {"renamedir d e; unlink ex", "e/", "row 2", GO},
    /* Urgent: in the way of an upload... */
    {"unlink a", "", "urgent 1", WAIT},
    {"unlink a", "a", "urgent 1", WAIT},
    {"unlink a", "a/", "urgent 1", GO},
    {"rmdir a", "a", "urgent 1", GO},
    {"rmdir a", "a/", "urgent 1", WAIT},
    {"unlink a/x", "a", "urgent 1", GO},
    {"unlink a/x", "a/", "urgent 1", WAIT},
    /* ...or of a rename with a higher number. */
    {"unlink b; renamedir d b", "b/", "urgent 1", GO},
    {"unlink b; renamedir d b; renamedir b c", "c/", "urgent 1", GO},
    {"unlink b; rename a b; rename b c", "c", "urgent 1", WAIT},
    {"rmdir b; rename a b; rename b c", "c", "urgent 1", GO},
    {"unlink b/x; rename a b; rename b c", "c", "urgent 1", GO},
    {"unlink b; rename a b/x; rename b/x c", "b/ c", "urgent 1", GO},
    {"renamedir d b; unlink b", "", "urgent 2", WAIT},
    {"*unlink b/x; renamedir d b; renamedir b c", "c/", "urgent 1", GO},
};

static bool row_waits(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    if (intent_is_rename(i))
        return !intent_comes_first(c, i) || intent_removal_in_the_way(c, i);
    return intent_earlier_rename_touches(c, i, i->from);
}

static enum order ask(struct cache *c, const char *asked) REQUIRES(cache_mutex)
{
    char word[16], about[64];
    bool waits = false;

    ck_assert_int_eq(sscanf(asked, "%15s %63s", word, about), 2);
    if (strcmp(word, "put") == 0 || strcmp(word, "mark") == 0)
        waits = intent_blocks_upload_locked(c, about, *word == 'm');
    else if (strcmp(word, "row") == 0)
        waits = row_waits(c, owed_row(c, (unsigned)atoi(about)));
    else if (strcmp(word, "urgent") == 0)
        waits = !intent_is_urgent(c, owed_row(c, (unsigned)atoi(about)));
    else
        ck_abort_msg("not to be asked: %s", asked);
    return waits ? WAIT : GO;
}

static void holds(const struct line *line)
{
    struct cache *c = owed_new(line->rows, line->names);
    enum order order = ask(c, line->asked);

    owed_free(c);
    ck_assert_msg(order == line->order, "%s | %s | %s: %s", line->rows, line->names,
                  line->asked, order == GO ? "goes" : "waits");
}

START_TEST(uploads_wait)
{
    holds(&uploads[_i]);
}
END_TEST

START_TEST(renames_wait)
{
    holds(&renames[_i]);
}
END_TEST

START_TEST(removals_wait)
{
    holds(&removals[_i]);
}
END_TEST

/* ---- what waits for one that fails ---- */

/* `stuck`: a letter a row, "y" for those that fail, or wait for such a one. */
static const struct {
    const char *rows, *names, *stuck, *put;
    enum order order;
} failing[] = {
    {"-rename a b; rename b c; rename x y", "c y", "yyn", "b", WAIT},
    {"-rename a b; rename b c; rename x y", "c y", "yyn", "y", GO},
    {"-unlink b; renamedir d b", "b/", "yn", "b/x", GO},
    {"-rename a b; unlink a; unlink x", "b", "yyn", "x", GO},
    {"rename x y; -rename a b; rename y z", "z b", "nyn", "z", GO},
    {"unlink a; rename b c", "c", "nn", "c", GO},
};

START_TEST(what_waits_for_a_failure_is_stuck)
{
    struct cache *c = owed_new(failing[_i].rows, failing[_i].names);
    struct intent *i;
    char stuck[8] = "";
    size_t n = 0;

    bool any = intents_look_stuck_locked(c, 1);
    for (i = row_first(c); i; i = row_next(i))
        stuck[n++] = i->stuck ? 'y' : 'n';
    bool put = stuck_intent_blocks_locked(c, failing[_i].put);
    owed_free(c);
    ck_assert_str_eq(stuck, failing[_i].stuck);
    ck_assert_int_eq(any, strchr(stuck, 'y') != NULL);
    ck_assert_int_eq(put, failing[_i].order == WAIT);
}
END_TEST

/* ---- what the store is just renaming ---- */

static const struct {
    const char *row, *key;
    bool runs;
} running[] = {
    {"rename a b", "a", false},      {"+rename a b", "a", true},
    {"+rename a b", "b", false},     {"+renamedir d e", "d/x", true},
    {"+renamedir d e", "dx", false}, {"+unlink a", "a", false},
};

START_TEST(what_is_being_renamed_is_in_both_places)
{
    struct cache *c = owed_new(running[_i].row, "");
    struct intent *i = owed_row(c, 1);

    bool runs = rename_runs_at_locked(c, place_of_path(running[_i].key));
    i->redo = i->debt.running; /* an earlier mount may have done it */
    i->debt.running = false;
    bool may_have_run = rename_runs_at_locked(c, place_of_path(running[_i].key));
    owed_free(c);
    ck_assert_int_eq(runs, running[_i].runs);
    ck_assert_int_eq(may_have_run, running[_i].runs);
}
END_TEST

Suite *order_suite(void)
{
    Suite *s = suite_create("order");
    TCase *t = tcase_create("order");

    tcase_add_loop_test(t, uploads_wait, 0, ARRAY_SIZE(uploads));
    tcase_add_loop_test(t, renames_wait, 0, ARRAY_SIZE(renames));
    tcase_add_loop_test(t, removals_wait, 0, ARRAY_SIZE(removals));
    tcase_add_loop_test(t, what_waits_for_a_failure_is_stuck, 0, ARRAY_SIZE(failing));
    tcase_add_loop_test(t, what_is_being_renamed_is_in_both_places, 0, ARRAY_SIZE(running));
    suite_add_tcase(s, t);
    return s;
}
