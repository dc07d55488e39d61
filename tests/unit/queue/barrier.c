/* cache/queue/: which removals wait for which uploads, and what makes a row void. */
#include "cache/queue/queue_impl.h"
#include "common/mem.h"
#include "runs/policy.h"
#include "runs/routes.h"
#include "tests/lib/room.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Handles are the test's, too. */
static void forget_handles(struct cache *c) REQUIRES(cache_mutex)
{
    struct file *f;

    OWED_FILES_FOREACH(c, f)
    f->write_handles = 0;
}

/* ---- the barrier ---- */

enum mode { ALWAYS, DRAIN, NO_QUOTA };

/* Whether the removal of a name, the n-th thing that was done, waits for any of the files. */
static const struct {
    const char *files, *removed;
    unsigned at;
    enum mode mode;
    struct {
        unsigned since, until;
    } waits[2]; /* rows of the table `wait` */
    bool holds;
} barriers[] = {
    {"", "a", 2, ALWAYS, {{0}}, false},
    {"f 1", "a", 2, ALWAYS, {{0}}, true},
    {"f 3", "a", 2, ALWAYS, {{0}}, false},
    {"f 3 g 1", "a", 2, ALWAYS, {{0}}, true},
    {"d/f 1", "a", 2, ALWAYS, {{0}}, true},
    {"f 0", "a", 2, ALWAYS, {{0}}, false}, /* attributes alone */
    {"f 1o", "a", 2, ALWAYS, {{0}}, true},
    /* A staging name. */
    {"f 1S", "a", 2, ALWAYS, {{0}}, true},
    {"f 1s", "a", 2, ALWAYS, {{0}}, false},
    {"f 1sw", "a", 2, ALWAYS, {{0}}, true},
    {"f 1s", "a", 2, DRAIN, {{0}}, true},
    /* A refused name holds what is in its directory. */
    {"f 1r", "a", 2, ALWAYS, {{0}}, true},
    {"f 1r", "d/a", 2, ALWAYS, {{0}}, false},
    {"d/f 1r", "d/a", 2, ALWAYS, {{0}}, true},
    {"d/f 3r", "d/a", 2, ALWAYS, {{0}}, false},
    {"d/f 1r", "a", 2, ALWAYS, {{0}}, false},
    {"d/f 1r", "d/e/a", 2, ALWAYS, {{0}}, false},
    {"d/f 1r", "da/a", 2, ALWAYS, {{0}}, false},
    {"d/f 1r g 1", "a", 2, ALWAYS, {{0}}, true},
    {"d/f 3r d/g 1r", "d/a", 2, ALWAYS, {{0}}, true},
    /* The store is full: what goes makes room. */
    {"f 1", "a", 2, NO_QUOTA, {{0}}, false},
    /* What was waited for went: later things are waited for instead. */
    {"f 4", "a", 2, ALWAYS, {{1, 5}}, true},
    {"f 4", "a", 1, ALWAYS, {{1, 5}}, false},
    {"f 6", "a", 2, ALWAYS, {{1, 5}}, false},
    {"f 4", "a", 6, ALWAYS, {{1, 5}}, true},
    {"f 7", "a", 6, ALWAYS, {{1, 5}}, false},
    {"f 7", "a", 2, ALWAYS, {{1, 5}, {4, 8}}, true},
};

START_TEST(removals_wait_for_files)
{
    struct cache *c = owed_new("", "");
    struct barrier b;

    owed_close(c, barriers[_i].files);
    c->queue->own->waits = calloc(2, sizeof(*c->queue->own->waits));
    ck_assert_ptr_nonnull(c->queue->own->waits);
    for (size_t i = 0; i < 2 && barriers[_i].waits[i].until; i++)
        c->queue->own->waits[c->queue->own->n_waits++] = (struct journal_wait){
            barriers[_i].waits[i].since * SEQ_STEP, barriers[_i].waits[i].until * SEQ_STEP};
    c->queue->drain = barriers[_i].mode == DRAIN;
    c->queue->volumes[0].out_of_quota = barriers[_i].mode == NO_QUOTA;
    struct intent *i = intent_new(barriers[_i].at * SEQ_STEP, INTENT_UNLINK,
                                  barriers[_i].removed, NULL, 0, "v");
    ck_assert_ptr_nonnull(i);
    scope_begin_locked(c, i);
    barrier_init_locked(c, &b);
    bool holds = barrier_holds_locked(c, &b, i);
    barrier_release(&b);
    intent_free(i);
    forget_handles(c);
    owed_free(c);
    ck_assert_msg(holds == barriers[_i].holds, "%s | %s %u", barriers[_i].files,
                  barriers[_i].removed, barriers[_i].at);
}
END_TEST

START_TEST(an_open_file_does_not_come_first)
{
    struct cache *c = owed_new("", "");

    owed_close(c, "f 2");
    struct file *f = debt_file(c->queue->owed[DEBT_FILE].first);
    ck_assert(upload_comes_first(f, 2 * SEQ_STEP + 1) && !upload_comes_first(f, 2 * SEQ_STEP));
    f->write_handles = 1;
    ck_assert(!upload_comes_first(f, 3 * SEQ_STEP));
    f->write_handles = 0;
    f->debt.seq = 0;
    ck_assert(!upload_comes_first(f, 3 * SEQ_STEP));
    owed_free(c);
}
END_TEST

START_TEST(files_stand_in_the_order_of_their_closes)
{
    struct cache *c = owed_new("", "");
    const char *const order[] = {"a", "b", "c", "x", "y"};
    struct file *f;
    size_t n = 0;

    owed_close(c, "x 0 c 3 y 0 a 1 b 2");
    OWED_FILES_FOREACH(c, f)
    ck_assert_str_eq(f->node->links->name, order[n++]);
    ck_assert_uint_eq(n, ARRAY_SIZE(order));
    owed_free(c);
}
END_TEST

/* ---- what goes up before others ---- */

static void add_route(struct routes *r, const char *path, unsigned policy)
{
    struct template from, key;
    struct op op;

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(template_parse(path, TEMPLATE_PATH, &op, &from), 0);
    ck_assert_int_eq(template_parse(path, TEMPLATE_KEY, &op, &key), 0);
    ck_assert_int_eq(routes_add(r, &from, &key, 0, policy, (struct text_place){0}, &op), 0);
}

/* Also one that is open, and that a flush puts there. */
START_TEST(urgent_files_are_in_a_list_of_their_own)
{
    const struct policy policies[] = {{.name = NULL}, {.urgent = true}};
    struct routes routes = {0};
    struct cache *c = owed_new("", "");

    add_route(&routes, "meta/**", 1);
    add_route(&routes, "**", 0);
    c->config.routes = &routes;
    c->config.policies = policies;
    c->config.n_policies = ARRAY_SIZE(policies);
    owed_close(c, "a 1 meta/b 2o c 3 meta/d 4");
    for (struct debt *d = c->queue->owed[DEBT_FILE].first, *after; d; d = after) {
        after = d->next;
        file_insert_open_locked(c, debt_file(d));
    }
    struct file *b = c->content->urgent, *d = b ? b->urgent_next : NULL;
    ck_assert(b && d && !d->urgent_next);
    ck_assert_str_eq(b->node->links->name, "b");
    ck_assert_str_eq(d->node->links->name, "d");
    file_insert_locked(c, b); /* anew: it keeps that */
    ck_assert_ptr_eq(c->content->urgent, d);
    ck_assert_ptr_eq(d->urgent_next, b);
    file_unqueue_locked(c, d);
    file_unqueue_locked(c, b);
    ck_assert_ptr_null(c->content->urgent);
    b->write_handles = 0; /* its handle is the test's */
    c->config.routes = NULL;
    routes_release(&routes);
    owed_free(c);
}
END_TEST

/* ---- with a journal ---- */

static struct cache *c;

/* From setup() to teardown() a test holds the locks: clang can't see that across functions. */
static NO_THREAD_SAFETY void setup(void)
{
    c = room_core();
    room_disk(c);
    room_tree(c);
    room_content(c, 16);
    room_queue(c);
    ns_write(c);
    cache_lock(c);
}

static NO_THREAD_SAFETY void teardown(void)
{
    cache_unlock(c);
    ns_done(c);
    room_free(c);
}

/* It gives back what setup() took, and takes it again. */
static NO_THREAD_SAFETY int pass_on(const struct file *f)
{
    cache_unlock(c);
    int r = barrier_pass_on(c, f);
    cache_lock(c);
    return r;
}

static int count_wait(void *arg, const struct journal_wait *w)
{
    struct journal_wait *ret = arg;

    *ret = *w;
    return 0;
}

/* The first of two checkpoints is rotated away before it is stored: what was removed after it
 * waits for the second. */
START_TEST(what_goes_unstored_passes_its_removals_on)
{
    struct journal_wait found = {0, 0};

    owed_close(c, "first 1 second 3");
    c->tree->seq = SEQ_STEP;
    struct intent *i = owed_add(c, "unlink a");
    ck_assert_uint_eq(i->seq, 2 * SEQ_STEP);
    ck_assert_int_eq(pass_on(tree_find(c, "second", NULL)->file), 0);
    ck_assert_uint_eq(c->queue->own->n_waits, 0); /* nothing waits for the second yet */
    c->tree->seq = 3 * SEQ_STEP;
    ck_assert_int_eq(pass_on(tree_find(c, "first", NULL)->file), 0);
    ck_assert_uint_eq(c->queue->own->n_waits, 1);
    ck_assert_uint_gt(barrier_seq_locked(c, i->seq), 3 * SEQ_STEP);
    ck_assert_uint_eq(barrier_seq_locked(c, SEQ_STEP), SEQ_STEP);
    ck_assert_int_eq(journal_each_wait(c->journal, count_wait, &found), 0);
    ck_assert_uint_eq(found.since, SEQ_STEP);
    ck_assert_uint_eq(found.until, c->queue->own->waits[0].until);
    /* A later mount finds it, and gives no place that was given. */
    c->queue->own->n_waits = 0;
    c->tree->seq = 0;
    ck_assert_int_eq(barrier_load(c), 0);
    ck_assert_uint_eq(c->queue->own->n_waits, 1);
    ck_assert_uint_ge(c->tree->seq, found.until);
}
END_TEST

START_TEST(nothing_is_passed_on_without_a_removal_between)
{
    owed_close(c, "first 1 second 2");
    c->tree->seq = 2 * SEQ_STEP;
    (void)owed_add(c, "unlink a");
    ck_assert_int_eq(pass_on(tree_find(c, "first", NULL)->file), 0);
    ck_assert_uint_eq(c->queue->own->n_waits, 0);
}
END_TEST

/* As pass_on(). */
static NO_THREAD_SAFETY int retire(enum intent_kind kind, const char *path, uint64_t seq)
{
    cache_unlock(c);
    int r = intents_retire(c, kind, path, seq);
    cache_lock(c);
    return r;
}

static int count_row(void *arg, const struct journal_row *row)
{
    (void)row;
    ++*(int *)arg;
    return 0;
}

static int rows_on_disk(void)
{
    int n = 0;

    ck_assert_int_eq(journal_each(c->journal, count_row, &n), 0);
    return n;
}

START_TEST(a_new_version_makes_older_removals_void)
{
    static const char *const rows[] = {"unlink a", "+unlink a",  "rmdir a",
                                       "unlink b", "rename a c", "unlink a"};
    const char *const left[] = {"+unlink a", "rmdir a", "unlink b", "rename a c", "unlink a"};
    struct intent *i;
    size_t n = 0;

    for (size_t at = 0; at < ARRAY_SIZE(rows); at++)
        ck_assert_int_eq(intent_record(c, owed_add(c, rows[at])), 0);
    ck_assert_int_eq(retire(INTENT_UNLINK, "a", 5 * SEQ_STEP), 0);
    for (i = row_first(c); i; i = row_next(i), n++) {
        ck_assert_uint_lt(n, ARRAY_SIZE(left));
        ck_assert_int_eq(i->debt.running, left[n][0] == '+');
        ck_assert_uint_eq(i->seq, (n + 2) * SEQ_STEP);
    }
    ck_assert_uint_eq(n, ARRAY_SIZE(left));
    ck_assert_int_eq(rows_on_disk(), (int)n);
}
END_TEST

/* ---- what has the name again ---- */

START_TEST(a_live_name_says_what_the_removal_does)
{
    struct entry *e;
    struct intent *i = owed_add(c, "unlink d/a");

    (void)room_dir_locked(c, "d");
    ck_assert_int_eq(intent_live_at(c, i), LIVE_NONE);
    (void)room_file_locked(c, "d/a");
    ck_assert_ptr_nonnull(tree_find(c, "d/a", &e));
    ck_assert_int_eq(intent_live_at(c, i), LIVE_WAIT);
    etag_set(&e->etag, "v");
    ck_assert_int_eq(intent_live_at(c, i), LIVE_STORED);
    e->dirty = true;
    ck_assert_int_eq(intent_live_at(c, i), LIVE_WAIT);
    e->dirty = false;
    e->source = place_dup(place_of_path("elsewhere")); /* a rename is still to bring it */
    ck_assert_int_eq(intent_live_at(c, i), LIVE_WAIT);
    ck_assert_int_eq(intent_live_at(c, owed_add(c, "unlink d")), LIVE_NONE);
    ck_assert_int_eq(intent_live_at(c, owed_add(c, "rmdir d/a")), LIVE_NONE);
}
END_TEST

Suite *barrier_suite(void)
{
    Suite *s = suite_create("barrier");
    TCase *t = tcase_create("barrier");

    tcase_add_loop_test(t, removals_wait_for_files, 0, ARRAY_SIZE(barriers));
    tcase_add_test(t, an_open_file_does_not_come_first);
    tcase_add_test(t, files_stand_in_the_order_of_their_closes);
    tcase_add_test(t, urgent_files_are_in_a_list_of_their_own);
    suite_add_tcase(s, t);
    t = tcase_create("barrier_journal");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_goes_unstored_passes_its_removals_on);
    tcase_add_test(t, nothing_is_passed_on_without_a_removal_between);
    tcase_add_test(t, a_new_version_makes_older_removals_void);
    tcase_add_test(t, a_live_name_says_what_the_removal_does);
    suite_add_tcase(s, t);
    return s;
}
