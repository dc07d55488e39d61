/* cache/transfer/: room on the disk, what is pinned, uploads in parts that were broken off, how
 * many rows the end of a rename looks at; with nothing above it. */
#include "cache/queue/queue_impl.h"
#include "cache/transfer/copy.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct store_ops no_ops;
static struct store store = {.ops = &no_ops,
                             .facts = {.part_min = 5, .part_max = 100, .parts_max = 10}};
static struct cache *c;

static void setup(void)
{
    c = room_core();
    c->store = &store;
    c->config.grace_ns = 60 * NS_PER_SEC;
    room_disk(c);
    room_tree(c);
    room_content(c, 16);
    room_queue(c);
    room_listing(c);
    room_transfer(c);
}

static void teardown(void)
{
    room_free(c);
}

/* ---- room ---- */

/* What the dirty files hold: goes up now, would if it had not failed for long, waits for its
 * name, or is just being written. */
struct held {
    unsigned soon, failing, staged, written;
};

static const struct {
    uint64_t size, used, free, reserve;
    struct held held;
    bool evictable, uploaded; /* uploaded: the store took another one meanwhile */
    bool full;                /* writers wait, or are refused */
    enum space_trouble outlook;
} spaces[] = {
    {100, 50, 50, 10, {0}, false, false, false, SPACE_OVER_LIMIT},
    {100, 100, 50, 10, {0}, true, false, false, SPACE_FINE},
    {100, 101, 50, 10, {0}, true, false, true, SPACE_FINE},
    {100, 101, 50, 10, {.soon = 101}, false, false, true, SPACE_FINE},
    {100, 101, 50, 10, {.staged = 101}, false, false, true, SPACE_OVER_LIMIT},
    {100, 101, 50, 10, {.written = 101}, false, false, true, SPACE_OVER_LIMIT},
    {100, 101, 50, 10, {.failing = 101}, false, false, true, SPACE_STORE_GONE},
    {100, 101, 50, 10, {.soon = 1, .failing = 100}, false, true, true, SPACE_FINE},
    {100, 150, 50, 10, {.soon = 1, .failing = 149}, false, true, true, SPACE_STORE_GONE},
    {100, 101, 50, 10, {.soon = 100, .failing = 1}, false, false, true, SPACE_STORE_GONE},
    {100, 101, 50, 10, {.soon = 100, .failing = 1}, false, true, true, SPACE_FINE},
    /* The disk: half of the reserve is for what can't wait. */
    {100, 50, 5, 10, {0}, true, false, false, SPACE_FINE},
    {100, 50, 4, 10, {0}, true, false, true, SPACE_FINE},
    {100, 50, 4, 10, {.soon = 50}, false, false, true, SPACE_FINE},
    {100, 50, 4, 10, {.staged = 50}, false, false, true, SPACE_DISK_FULL},
    {100, 50, 4, 10, {.failing = 50}, false, false, true, SPACE_STORE_GONE},
};

static struct file *add_dirty(const char *name, uint64_t bytes) REQUIRES(cache_mutex)
{
    struct node *n = room_file_locked(c, name);
    struct file *f = file_new(n, FILE_DIRTY);

    ck_assert_ptr_nonnull(f);
    file_count_locked(c);
    f->debt.seq = f->seq = seq_next_locked(c);
    f->blocks_bytes = bytes;
    file_insert_locked(c, f);
    return f;
}

static void hold(const struct held *held) REQUIRES(cache_mutex)
{
    if (held->soon)
        (void)add_dirty("soon", held->soon);
    if (held->staged)
        add_dirty("staged", held->staged)->staged = true;
    if (held->written)
        add_dirty("written", held->written)->mapped_writer = true;
    if (held->failing)
        add_dirty("failing", held->failing)->debt.failing_ns = 1;
}

START_TEST(room_is_as_the_files_say)
{
    ns_write(c);
    cache_lock(c);
    c->config.size_bytes = spaces[_i].size;
    c->config.reserve_bytes = spaces[_i].reserve;
    hold(&spaces[_i].held);
    c->content->used_bytes = spaces[_i].used;
    c->content->disk_free_bytes = spaces[_i].free;
    c->queue->volumes[0].uploaded_ns = spaces[_i].uploaded ? 2 : 0;
    if (spaces[_i].evictable) {
        struct file *f = add_dirty("clean", 0);
        file_unqueue_locked(c, f);
        f->state = FILE_CLEAN;
        file_lru_add_locked(c, f);
    }
    ck_assert_int_eq(space_is_full_locked(c), spaces[_i].full);
    ck_assert_int_eq(space_outlook_locked(c, NULL), spaces[_i].outlook);
    cache_unlock(c);
    ns_done(c);
}
END_TEST

static void wake(struct waiter *w, int err)
{
    (void)w;
    (void)err;
}

START_TEST(a_writer_waits_or_is_told)
{
    struct waiter w = {.wake = wake};

    ns_write(c);
    cache_lock(c);
    c->config.size_bytes = 100;
    struct file *f = add_dirty("f", 101), *own = add_dirty("own", 0);
    c->content->disk_free_bytes = 1000;
    c->content->used_bytes = 100;
    ck_assert_int_eq(space_need_locked(c, own, &w), 0);
    c->content->used_bytes = 101;
    ck_assert_int_eq(space_need_locked(c, own, NULL), 0); /* it can't wait */
    ck_assert_int_eq(space_need_locked(c, own, &w), CACHE_PARKED);
    ck_assert_ptr_eq(c->space_waiters.head, &w);
    waitq_wake_locked(c, &c->space_waiters, 0);
    f->debt.failing_ns = 1;
    ck_assert_int_eq(space_need_locked(c, own, &w), -ENOSPC);
    ck_assert_int_eq(c->transfer->space, SPACE_STORE_GONE);
    ck_assert_ptr_nonnull(strstr(space_trouble_text(SPACE_STORE_GONE), "uploads fail"));
    f->debt.failing_ns = 0;
    f->staged = true;
    ck_assert_int_eq(space_need_locked(c, own, &w),
                     0); /* beyond the limit, up to the reserve */
    ck_assert_int_eq(c->transfer->space, SPACE_OVER_LIMIT);
    cache_unlock(c);
    ns_done(c);
}
END_TEST

START_TEST(what_could_never_be_there)
{
    ns_write(c);
    cache_lock(c);
    c->config.reserve_bytes = 20; /* half of it is kept */
    struct file *f = add_dirty("f", 30);
    c->content->disk_free_bytes = 50;
    c->content->used_bytes = 100;
    ck_assert(!space_is_never_there_locked(c, f, 30 + 50 + 70 - 10));
    ck_assert(space_is_never_there_locked(c, f, 30 + 50 + 70 - 10 + 1));
    ck_assert(!space_is_never_there_locked(c, f, 10)); /* it has that */
    cache_unlock(c);
    ns_done(c);
}
END_TEST

/* ---- pins ---- */

START_TEST(what_is_below_a_pin_is_pinned)
{
    ck_assert_int_eq(cache_pin(c, "d", true), 0);
    ck_assert_int_eq(cache_pin(c, "d", true), 0);
    ck_assert_int_eq(cache_pin(c, "gone", true), 0);
    ck_assert_int_eq(cache_pin(c, "gone", false), 0);
    for (int round = 0; round < 2; round++) {
        cache_lock(c);
        ck_assert(path_is_pinned(c, "d") && path_is_pinned(c, "d/e/f"));
        ck_assert(!path_is_pinned(c, "de") && !path_is_pinned(c, "gone"));
        ck_assert_uint_eq(pins_count_locked(c), 1);
        pins_free(c);
        ck_assert_int_eq(pins_load(c), 0); /* as a later mount */
        cache_unlock(c);
    }
}
END_TEST

/* ---- uploads in parts ---- */

static const struct session_mark mark = {.ino = 5, .size = 90, .mtime_ns = 7, .attrs = 9};

static char rows[256];

static int add_row(void *arg, const struct journal_session *s)
{
    size_t n = strlen(rows);

    (void)arg;
    (void)snprintf(rows + n, sizeof(rows) - n, "%s %" PRId64 " %s;", s->key, s->began_ns,
                   s->token);
    return 0;
}

static const char *noted(void)
{
    rows[0] = '\0';
    ck_assert_int_eq(journal_each_session(c->journal, add_row, NULL), 0);
    return rows;
}

static struct session *begun(const char *key, int64_t began_ns, const char *token)
{
    struct session *s = NULL;

    ck_assert_int_eq(session_open(c, place_of_path(key), &mark, 10, began_ns, false, &s), 0);
    if (token)
        ck_assert_int_eq(session_begun(c, s, token), 0);
    return s;
}

START_TEST(an_upload_of_the_same_content_goes_on)
{
    struct session *s = begun("k", 1, NULL);

    ck_assert_str_eq(noted(), "k 1 ;"); /* before the store is asked to begin */
    ck_assert_int_eq(session_begun(c, s, "t"), 0);
    ck_assert_str_eq(noted(), "k 1 t;");
    session_leave(c, s, false);
    ck_assert_ptr_null(session_take(c, place_of_path("other"), &mark));
    ck_assert_ptr_eq(session_take(c, place_of_path("k"), &mark), s);
    ck_assert_ptr_null(session_take(c, place_of_path("k"), &mark));
    session_gone(c, s);
    ck_assert_str_eq(noted(), "");
}
END_TEST

START_TEST(other_content_begins_anew)
{
    struct session_mark other = mark;
    struct session *s = begun("k", 1, "t");

    session_leave(c, s, false);
    other.mtime_ns++;
    ck_assert_ptr_null(session_take(c, place_of_path("k"), &other));
    ck_assert(s->over);
    ck_assert_ptr_null(session_take(c, place_of_path("k"), &mark)); /* it is to be ended */
    ck_assert_str_eq(noted(), "k 1 t;");
}
END_TEST

/* One whose token was not learned is found by a sweep of the key, which ends all of them. */
START_TEST(one_sweep_of_a_key_is_enough)
{
    session_leave(c, begun("k", 1, NULL), false);
    session_leave(c, begun("k", 2, NULL), false);
    session_leave(c, begun("l", 3, NULL), false);
    ck_assert_str_eq(noted(), "k 1 ;l 3 ;");
    cache_lock(c);
    ck_assert(!session_blocks_upload_locked(c, place_of_path("k")));
    debt_run(c->queue->owed[DEBT_SESSION].first, true);
    ck_assert(session_blocks_upload_locked(c, place_of_path("k")) &&
              !session_blocks_upload_locked(c, place_of_path("l")));
    ck_assert(sessions_pending_locked(c));
    cache_unlock(c);
}
END_TEST

/* What a later mount makes of a row: one of no use is to be ended. */
static const struct {
    const char *token;
    uint64_t part_size, size;
    bool over;
} loads[] = {
    {"t", 10, 90, false}, {"", 10, 90, true},   {"t", 0, 90, true},
    {"t", 4, 30, true},   {"t", 101, 90, true}, {"t", 10, 100, true}, /* too many parts */
};

START_TEST(a_later_mount_finds_it)
{
    const struct journal_session row = {.key = "k",
                                        .began_ns = 1,
                                        .token = loads[_i].token,
                                        .part_size = loads[_i].part_size,
                                        .ino = mark.ino,
                                        .size = loads[_i].size,
                                        .mtime_ns = mark.mtime_ns,
                                        .attrs = mark.attrs};

    ck_assert_int_eq(journal_set_session(c->journal, &row, 0), 0);
    cache_lock(c);
    ck_assert_int_eq(sessions_load(c), 0);
    ck_assert_int_eq(
        container_of(c->queue->owed[DEBT_SESSION].first, struct session, debt)->over,
        loads[_i].over);
    cache_unlock(c);
}
END_TEST

/* ---- how many at once ---- */

/* While all that may be copied at once is, a pass looks at no row for a rename. */
START_TEST(a_rename_needs_a_free_slot)
{
    int64_t next = INT64_MAX;
    struct pass p = {.cache = c, .next_ns = &next};

    c->config.upload_jobs = 2;
    cache_lock(c);
    ck_assert(!rename_starter.begin(&p)); /* there is none */
    struct intent *i = intent_new(seq_next_locked(c), INTENT_RENAME, "a", "b", 0, "v");
    ck_assert_ptr_nonnull(i);
    intent_add_locked(c, i);
    for (unsigned running = 0; running < 4; running++) {
        c->transfer->copies_running = running;
        ck_assert_int_eq(rename_starter.begin(&p), running < 2);
    }
    c->transfer->copies_running = 0;
    intent_remove_locked(c, i);
    cache_unlock(c);
}
END_TEST

#ifndef NDEBUG
/* ---- the end of a rename ---- */

static void add_many(enum intent_kind kind, unsigned n, const char *from, const char *to)
    REQUIRES(cache_mutex)
{
    char a[32], b[32];

    for (unsigned k = 0; k < n; k++) {
        (void)snprintf(a, sizeof(a), n > 1 ? "%s%u" : "%s", from, k);
        (void)snprintf(b, sizeof(b), n > 1 ? "%s%u" : "%s", to ? to : "", k);
        struct intent *i = intent_new(seq_next_locked(c), kind, a, to ? b : NULL, 0, "v");
        ck_assert_ptr_nonnull(i);
        intent_add_locked(c, i);
    }
}

static void end_rename(struct intent *i, bool removed) REQUIRES(cache_mutex)
{
    struct copying k = {.cache = c, .intent = i, .from = i->from, .to = i->to};
    struct copy_readers changed = {0};

    copy_sources_locked(c, i, &changed);
    copy_tell_next_locked(&k, i->to, "v", "w", false);
    ck_assert_uint_eq(k.n_told, removed);
    ck_assert(!copy_is_replaced_locked(&k)); /* the directory took it along */
    ck_assert_uint_eq(changed.n, 0);
    free(k.told);
}

/* Of a directory's files, each of which was renamed within it before it was renamed itself and
 * half of them were removed. */
static unsigned long long looked_for(unsigned n)
{
    struct intent *i;
    unsigned k = 0;

    cache_lock(c);
    add_many(INTENT_RENAME, n, "d/f", "d/g");
    add_many(INTENT_RENAMEDIR, 1, "d", "e");
    add_many(INTENT_UNLINK, n / 2, "e/g", NULL);
    unsigned long long before = atomic_load(&rows_looked_at);
    RENAMES_FOREACH(c, i)
    {
        if (i->kind == INTENT_RENAME)
            end_rename(i, k++ < n / 2);
    }
    unsigned long long looked = atomic_load(&rows_looked_at) - before;
    while (row_first(c))
        intent_remove_locked(c, row_first(c));
    cache_unlock(c);
    return looked;
}

START_TEST(the_end_of_a_rename_takes_few_looks)
{
    unsigned long long few = looked_for(100), many = looked_for(1000);

    ck_assert_msg(many < 30 * few, "%llu, %llu", few, many);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("transfer");
    TCase *t = tcase_create("transfer");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, room_is_as_the_files_say, 0, ARRAY_SIZE(spaces));
    tcase_add_test(t, a_writer_waits_or_is_told);
    tcase_add_test(t, what_could_never_be_there);
    tcase_add_test(t, what_is_below_a_pin_is_pinned);
    tcase_add_test(t, an_upload_of_the_same_content_goes_on);
    tcase_add_test(t, other_content_begins_anew);
    tcase_add_test(t, one_sweep_of_a_key_is_enough);
    tcase_add_loop_test(t, a_later_mount_finds_it, 0, ARRAY_SIZE(loads));
    tcase_add_test(t, a_rename_needs_a_free_slot);
#ifndef NDEBUG /* others count no looks */
    tcase_add_test(t, the_end_of_a_rename_takes_few_looks);
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
