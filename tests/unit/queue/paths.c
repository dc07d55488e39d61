/* cache/queue/row_paths.c: what is asked of the rows by their paths has the answer that a walk
 * over all of them gives, for row sets at random; and is answered with few looks. The walks
 * here are the rules of the order as they read without an index. */
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/room.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 8
#ifdef __SANITIZE_THREAD__ /* there is one thread */
#define SETS 30
#else
#define SETS 500 /* of rows, for each seed */
#endif
#define ROWS_MAX 24

static uint64_t state;

static unsigned below(unsigned n)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % n);
}

/* Names that begin alike, with what comes before and behind "/" where bytes are compared. */
static const char *any_path(void)
{
    static const char *const paths[] = {
        "a",   "a/b",  "a/b/c", "a/b/d", "a/c",   "a-b", "a-b/c", "a.b",   "ab",   "ab/c",
        "a b", "a!/c", "b",     "b/a",   "b/a/c", "b/b", "c",     "a/b-c", "a/bc", "a/b/c/d"};

    return paths[below(ARRAY_SIZE(paths))];
}

/* ---- row sets ---- */

static void add_any(struct cache *c, uint64_t seq) REQUIRES(cache_mutex)
{
    enum intent_kind kind = INTENT_UNLINK + below(4);
    bool renames = kind == INTENT_RENAME || kind == INTENT_RENAMEDIR;
    struct intent *i = intent_new(seq, kind, any_path(), renames ? any_path() : NULL, 0, "v");

    ck_assert_ptr_nonnull(i);
    i->debt.running = below(4) == 0;
    i->debt.error = below(3) == 0 ? -EIO : 0;
    i->debt.failing_ns = i->debt.error ? 1 + below(4) : 0;
    i->urgent = !renames && below(6) == 0;
    i->redo = renames && below(6) == 0;
    i->taken_over = kind == INTENT_RENAMEDIR && below(4) == 0;
    intent_add_locked(c, i);
}

static struct intent *any_row(struct cache *c, unsigned n) REQUIRES(cache_mutex)
{
    return owed_row(c, 1 + below(n));
}

/* The rows come in any order, some go, and some renames become removals. */
static struct cache *any_rows(void)
{
    static const char *const names[] = {"",       "a/b/c",   "a/ b/",   "a b/a/c",
                                        "a/b/ c", "a/b/c/d", "ab/ a/b", "c/"};
    struct cache *c = owed_new("", names[below(ARRAY_SIZE(names))]);
    unsigned n = 1 + below(ROWS_MAX);

    for (unsigned k = 0; k < n; k++) /* 7 is prime to all of 29 */
        add_any(c, (1 + k * 7 % 29) * SEQ_STEP);
    for (unsigned gone = below(n); gone > 0; gone--, n--)
        intent_remove_locked(c, any_row(c, n));
    for (unsigned k = below(3); k > 0; k--) {
        struct intent *i = any_row(c, n);
        if (i->kind == INTENT_RENAME)
            intent_becomes_removal_locked(c, i, strdup("w"));
    }
#ifndef NDEBUG
    struct intent *i;
    ROWS_FOREACH(c, i)
    {
        row_check_locked(c, i);
    }
#endif
    return c;
}

/* ---- the rules, row by row ---- */

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

static bool conflicts(const struct intent *removal, const struct intent *rename,
                      const char *path)
{
    bool dir_goes = removal->kind == INTENT_RMDIR;
    bool dir_comes = rename->kind == INTENT_RENAMEDIR;

    if (strcmp(removal->from, path) == 0)
        return dir_goes != dir_comes;
    if (path_below(removal->from, path))
        return !dir_goes;
    return path_below(path, removal->from) && !dir_comes;
}

static bool waits_for(const struct intent *rename, const struct intent *removal)
    REQUIRES(cache_mutex)
{
    return conflicts(removal, rename, rename->from) || conflicts(removal, rename, rename->to) ||
           (removal->urgent && path_below(rename->to, removal->from));
}

static bool in_the_way(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    auto_free char *at = strdup(i->from);
    bool was_dir = i->kind == INTENT_RMDIR;

    while (*at) {
        struct node *n = tree_find(c, at, NULL);
        if (n)
            return (n->dir != NULL) != was_dir;
        at[path_parent_len(at)] = '\0';
        was_dir = true;
    }
    return false;
}

static bool touches(const struct intent *i, const char *path)
{
    if (intent_is_rename(i))
        return overlap(i->from, path) || overlap(i->to, path);
    return strcmp(i->from, path) == 0;
}

static bool blocks_upload(struct cache *c, const struct intent *i, const char *path, bool dir)
    REQUIRES(cache_mutex)
{
    bool below_it = dir && i->kind == INTENT_RENAME && !path_below(i->from, path) &&
                    !path_below(i->to, path);

    if ((intent_is_rename(i) || i->debt.running) && !below_it && touches(i, path))
        return true;
    return !intent_is_rename(i) && !i->debt.error && overlap(i->from, path) && in_the_way(c, i);
}

static bool follows(const struct intent *i, const struct intent *first) REQUIRES(cache_mutex)
{
    if (intent_is_rename(first))
        return touches(first, i->from) || (i->to && touches(first, i->to));
    return intent_is_rename(i) && !first->debt.error && waits_for(i, first);
}

static bool is_over(const struct intent *i, const char *path)
{
    return path_below(i->from, path) || (i->to && path_below(i->to, path));
}

static bool is_over_or_below(const struct intent *i, const char *path)
{
    return path_below(path, i->from) || (i->to && path_below(path, i->to));
}

/* ---- each row of a set ---- */

static void check_row(struct cache *c, struct intent *self, const char *path)
    REQUIRES(cache_mutex)
{
    struct intent *i, *from = NULL, *until = NULL, *of_name = row_of_name_locked(c, self->from);
    bool earlier = false, waits = false, in_way = false, first = false, below_it = false;

    ROWS_FOREACH(c, i)
    {
        earlier = earlier || (i->seq < self->seq && intent_is_rename(i) && touches(i, path));
        waits = waits || (i->seq > self->seq && intent_is_rename(i) &&
                          !intent_is_rename(self) && waits_for(i, self));
        in_way = in_way || (i->seq < self->seq && !intent_is_rename(i) && !i->debt.error &&
                            intent_is_rename(self) && waits_for(self, i));
        first = first || (intent_is_rename(i) && touches(i, self->from) &&
                          (i->seq < self->seq || i->debt.running));
        const char *rest = path_below(self->from, i->from);
        below_it = below_it || (i->seq < self->seq && rest && *rest);
        from = !from && i->seq >= self->seq && is_over(i, path) ? i : from;
        until = i->seq <= self->seq && is_over(i, path) ? i : until;
        if (strcmp(i->from, self->from) != 0)
            continue;
        ck_assert_ptr_eq(of_name, i);
        of_name = row_of_name_next(i);
    }
    ck_assert_ptr_null(of_name);
    ck_assert(order_earlier_rename_touches(c, self, path) == earlier);
    ck_assert(intent_is_rename(self) || order_later_rename_waits(c, self) == waits);
    ck_assert(!intent_is_rename(self) || order_removal_in_the_way(c, self) == in_way);
    ck_assert(intent_is_rename(self) || order_rename_comes_first(c, self) == first);
    ck_assert(order_removals_below(c, self) == below_it);
    ck_assert_ptr_eq(row_over_from(self, path), from);
    ck_assert_ptr_eq(row_over_until(self, path), until);
}

static void check_moves(struct cache *c, const struct intent *first, const char *path)
    REQUIRES(cache_mutex)
{
    auto_free char *after = intent_path_after(first, path);
    auto_free char *lasting = intent_lasting_path(first, path);
    auto_free char *at = strdup(path);
    bool lasts = true, leads[2] = {true, true};

    for (const struct intent *i = first; i; i = row_next(i)) {
        bool removes = !intent_is_rename(i) && strcmp(i->from, at) == 0;
        leads[i->kind == INTENT_RMDIR] &= !removes;
        bool moved = intent_forward(i, &at);
        lasts = lasts && (moved || strcmp(intent_is_rename(i) ? i->to : i->from, at) != 0);
    }
    ck_assert_str_eq(after, at);
    ck_assert_pstr_eq(lasting, lasts ? at : NULL);
    for (int dir = 0; first == row_first(c) && dir < 2; dir++) {
        ck_assert(intent_leads_to(c, place_of_path(path), dir, at) == leads[dir]);
        ck_assert(!intent_leads_to(c, place_of_path(path), dir, "elsewhere"));
    }
}

/* ---- each path ---- */

/* The rows that are below what the path was called, from the newest on, up to number *arg. */
static bool is_up_to(void *arg, const struct intent *i, const char *at)
{
    const uint64_t *seq = arg;

    ck_assert(is_over_or_below(i, at));
    return i->seq <= *seq;
}

static void check_below(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    auto_free char *at = strdup(path);
    uint64_t seq = below(30) * SEQ_STEP;
    bool any = false, some = false;

    for (const struct intent *i = row_last(c); i; i = row_prev(i)) {
        bool is = is_over_or_below(i, at);
        any = any || is;
        some = some || (is && i->seq <= seq);
        (void)intent_backward(i, &at);
    }
    ck_assert(intent_below(c, path) == any);
    ck_assert_int_eq(intent_below_is(c, path, is_up_to, &seq), some);
}

static void check_path(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    bool blocks[2] = {false, false}, stuck = false, runs = false, taken = false, rmdir = false;
    bool going[2] = {false, false};
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        for (int dir = 0; dir < 2; dir++)
            blocks[dir] |= blocks_upload(c, i, path, dir);
        stuck |= i->stuck && blocks_upload(c, i, path, false);
        bool leaves = intent_is_rename(i) && path_below(i->from, path);
        runs |= leaves && (i->debt.running || i->redo);
        taken |= leaves && i->taken_over;
        bool goes = !intent_is_rename(i) && i->debt.running;
        going[false] |= goes && strcmp(i->from, path) == 0;
        going[true] |= goes && path_below(path, i->from);
        rmdir |= i->debt.running && i->kind == INTENT_RMDIR && path_below(i->from, path);
    }
    ck_assert(order_row_blocks_upload(c, path, false) == blocks[false]);
    ck_assert(order_row_blocks_upload(c, path, true) == blocks[true]);
    ck_assert(stuck_intent_blocks_locked(c, path) == stuck);
    ck_assert(rename_runs_at_locked(c, place_of_path(path)) == runs);
    ck_assert(rename_is_taken_over_at_locked(c, place_of_path(path)) == taken);
    c->queue->removals_running = 1; /* or more */
    for (int dir = 0; dir < 2; dir++)
        ck_assert(order_removal_runs_at(c, path, dir) == going[dir]);
    c->config.routes = (const struct routes *)c; /* some */
    ck_assert(order_rmdir_runs_above(c, path) == rmdir);
    c->config.routes = NULL;
    c->queue->removals_running = 0;
    check_below(c, path);
}

/* ---- what is asked with a test ---- */

static bool has_error(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    (void)arg;
    return i->debt.error != 0;
}

static bool is_asked(const struct row_ask *ask, const struct intent *i, bool at, bool over,
                     bool under) REQUIRES(cache_mutex)
{
    const char *const ends[] = {i->from, i->to};
    const unsigned sets[] = {intent_is_rename(i) ? ROWS_LEAVING : ROWS_REMOVING, ROWS_COMING};

    if (i->seq < ask->since || (ask->until && i->seq >= ask->until) ||
        (ask->is && !i->debt.error))
        return false;
    for (int k = 0; k < 2; k++) {
        bool same = ends[k] && strcmp(ends[k], ask->path) == 0;
        if (ends[k] && (ask->sets & sets[k]) &&
            ((at && same) || (over && path_below(ends[k], ask->path)) ||
             (under && !same && path_below(ask->path, ends[k]))))
            return true;
    }
    return false;
}

static void check_ask(struct cache *c) REQUIRES(cache_mutex)
{
    const struct row_ask ask = {.sets = 1 + below(ROWS_ALL),
                                .path = below(20) ? any_path() : "",
                                .since = below(2) ? 0 : below(30) * SEQ_STEP,
                                .until = below(2) ? 0 : below(30) * SEQ_STEP,
                                .is = below(2) ? has_error : NULL};
    struct intent *i, *at = NULL, *found;
    bool over = false, under = false;

    ROWS_FOREACH(c, i)
    {
        at = !at && is_asked(&ask, i, true, false, false) ? i : at;
        over |= is_asked(&ask, i, false, true, false);
        under |= is_asked(&ask, i, false, false, true);
    }
    ck_assert_ptr_eq(row_at_locked(c, &ask), at);
    found = row_over_locked(c, &ask);
    ck_assert(!found == !over && (!found || is_asked(&ask, found, false, true, false)));
    found = row_below_locked(c, &ask);
    ck_assert(!found == !under && (!found || is_asked(&ask, found, false, false, true)));
    ck_assert(!row_touching_locked(c, &ask) == !(over || under));
}

/* What is stuck is noted in the rows. */
static void check_stuck(struct cache *c) REQUIRES(cache_mutex)
{
    int64_t since_ns = 1 + below(5);
    struct intent *i, *first;
    bool wanted[ROWS_MAX], any = false;
    size_t n = 0;

    ROWS_FOREACH(c, i)
    {
        size_t k = 0;
        wanted[n] = i->debt.error && i->debt.failing_ns < since_ns;
        for (first = row_first(c); first != i; first = row_next(first), k++)
            wanted[n] = wanted[n] || (wanted[k] && follows(i, first));
        any = any || wanted[n];
        n++;
    }
    ck_assert(intents_look_stuck_locked(c, since_ns) == any);
    n = 0;
    ROWS_FOREACH(c, i)
    {
        ck_assert(i->stuck == wanted[n++]);
    }
}

START_TEST(the_answers_are_those_of_a_walk)
{
    struct intent *i;

    state = (uint64_t)_i;
    for (unsigned set = 0; set < SETS; set++) {
        struct cache *c = any_rows();
        check_stuck(c);
        for (int k = 0; k < 4; k++) {
            const char *path = below(20) ? any_path() : "";
            check_path(c, path);
            check_ask(c);
            ROWS_FOREACH(c, i)
            {
                check_row(c, i, path);
                check_moves(c, i, path);
            }
        }
        owed_free(c);
    }
}
END_TEST

#ifndef NDEBUG
/* ---- looks ---- */

static void add_many(struct cache *c, enum intent_kind kind, unsigned n, const char *from,
                     const char *to) REQUIRES(cache_mutex)
{
    char a[32], b[32];

    for (unsigned k = 0; k < n; k++) {
        (void)snprintf(a, sizeof(a), "%s%u", from, k);
        (void)snprintf(b, sizeof(b), "%s%u", to ? to : "", k);
        struct intent *i = intent_new(seq_next_locked(c), kind, a, to ? b : NULL, 0, "v");
        ck_assert_ptr_nonnull(i);
        intent_add_locked(c, i);
    }
}

/* What a pass, and the end of a rename, ask of each row. */
static void ask_all(struct cache *c) REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        const char *at = i->to ? i->to : i->from;
        free(intent_path_after(row_next(i), at));
        free(intent_lasting_path(row_next(i), at));
        (void)order_row_blocks_upload(c, i->from, false);
        (void)removal_pending(c, i->from);
        (void)tombstone_hides(c, place_of_path(i->from), false, i->from, 0);
        (void)rename_runs_at_locked(c, place_of_path(i->from));
        if (intent_is_rename(i)) {
            (void)intent_comes_first(c, i);
            (void)order_removal_in_the_way(c, i);
            (void)intent_below(c, i->from);
        } else {
            (void)intent_is_urgent(c, i);
            (void)order_earlier_rename_touches(c, i, i->from);
        }
    }
}

/* Each file of a directory is renamed within it, the directory itself before, in between or
 * behind, and half of them are removed: while the store is away. */
static unsigned long long looked_for(unsigned n, int when)
{
    struct cache *c = owed_new(when == 0 ? "renamedir c d" : "", "");

    add_many(c, INTENT_RENAME, n, "d/f", "d/g");
    if (when == 1)
        (void)owed_add(c, "renamedir d e");
    add_many(c, INTENT_UNLINK, n / 2, when == 1 ? "e/g" : "d/g", NULL);
    if (when == 2)
        (void)owed_add(c, "renamedir d e");
    unsigned long long before = atomic_load(&rows_looked_at);
    ask_all(c);
    row_first(c)->debt.error = -EIO;
    ck_assert(intents_look_stuck_locked(c, 1));
    unsigned long long looked = atomic_load(&rows_looked_at) - before;
    owed_free(c);
    return looked;
}

/* A search in ten times the rows takes a few steps more. */
START_TEST(renames_and_removals_take_few_looks)
{
    unsigned long long few = looked_for(100, _i), many = looked_for(1000, _i),
                       most = looked_for(10000, _i);

    ck_assert_msg(many < 30 * few && most < 30 * many, "%llu, %llu, %llu", few, many, most);
}
END_TEST
#endif

Suite *paths_suite(void)
{
    Suite *s = suite_create("paths");
    TCase *t = tcase_create("paths");

    tcase_set_timeout(t, 60); /* a busy machine is no failure */
    tcase_add_loop_test(t, the_answers_are_those_of_a_walk, 0, SEEDS);
#ifndef NDEBUG /* others count no looks */
    tcase_add_loop_test(t, renames_and_removals_take_few_looks, 0, 3);
#endif
    suite_add_tcase(s, t);
    return s;
}
