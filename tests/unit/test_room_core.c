/* cache/core/: who waits and who is woken, and what failed; with nothing above it. */
#include "cache/core/workers.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct one {
    struct waiter w;
    atomic_int woken;
    int err;
};

static struct cache *c;
static struct one v[6];
static struct waitq q;

static void woken(struct waiter *w, int err)
{
    struct one *one = container_of(w, struct one, w);

    one->err = err;
    atomic_fetch_add(&one->woken, 1);
}

static void setup(void)
{
    c = room_core();
    waitq_init(&q);
    memset(v, 0, sizeof(v));
    for (size_t i = 0; i < ARRAY_SIZE(v); i++)
        v[i].w.wake = woken;
}

static void teardown(void)
{
    room_free(c);
}

static void park(const char *who)
{
    cache_lock(c);
    for (; *who; who++)
        ck_assert_int_eq(waitq_park_locked(c, &q, &v[*who - '0'].w), CACHE_PARKED);
    cache_unlock(c);
}

static void wake(int err)
{
    cache_lock(c);
    waitq_wake_locked(c, &q, err);
    cache_unlock(c);
}

/* Who stands in a list, in its order. */
static const char *names_of(const struct waiter *w)
{
    static char names[16];
    size_t n = 0;

    for (; w; w = w->next)
        names[n++] = (char)('0' + (container_of(w, struct one, w) - v));
    names[n] = '\0';
    return names;
}

/* ---- who waits ---- */

START_TEST(who_came_first_is_woken_first)
{
    park("201");
    ck_assert_str_eq(names_of(q.head), "201");
    wake(-EIO);
    park("43");
    wake(0);
    ck_assert_ptr_null(q.head);
    ck_assert_str_eq(names_of(c->wake_list), "20143");
    ck_assert_int_eq(v[0].w.err, -EIO);
    ck_assert_int_eq(v[3].w.err, 0);
    wake(-EIO); /* nobody */
    ck_assert_str_eq(names_of(c->wake_list), "20143");
}
END_TEST

/* Who is taken back, who is left, and that the queue goes on behind them. */
static const struct {
    const char *parked, *cancelled, *left;
} cancels[] = {
    {"012", "0", "12"}, {"012", "1", "02"}, {"012", "2", "01"},
    {"012", "20", "1"}, {"012", "012", ""}, {"0", "0", ""},
};

START_TEST(who_is_taken_back_is_not_woken)
{
    char expected[8];

    park(cancels[_i].parked);
    for (const char *who = cancels[_i].cancelled; *who; who++) {
        ck_assert(cache_cancel(c, &v[*who - '0'].w));
        ck_assert(!cache_cancel(c, &v[*who - '0'].w));
    }
    ck_assert_str_eq(names_of(q.head), cancels[_i].left);
    park("5");
    (void)strcat(strcpy(expected, cancels[_i].left), "5");
    ck_assert_str_eq(names_of(q.head), expected);
    wake(0);
    ck_assert_str_eq(names_of(c->wake_list), expected);
    ck_assert(!cache_cancel(c, &v[5].w)); /* it is on its way */
}
END_TEST

START_TEST(nobody_parks_while_the_cache_stops)
{
    cache_lock(c);
    c->stopping = true;
    ck_assert_int_eq(waitq_park_locked(c, &q, &v[0].w), -EINTR);
    cache_unlock(c);
    ck_assert_ptr_null(q.head);
    ck_assert(!cache_cancel(c, &v[0].w));
}
END_TEST

/* Each waits for a range of bytes, or (empty) for anything; [10, 30) is there. */
static const struct {
    uint64_t off, end;
    bool arrived;
} wanted[] = {{10, 30, true}, {9, 12, false},  {12, 20, true},
              {0, 0, true},   {29, 31, false}, {0, 10, false}};

START_TEST(bytes_wake_who_waits_for_them)
{
    struct ranges present = {0};
    char arrived[8] = "", left[8] = "";

    ck_assert_int_eq(ranges_add(&present, 10, 30), 0);
    park("012345");
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        char *list = wanted[i].arrived ? arrived : left;
        v[i].w.off = wanted[i].off;
        v[i].w.end = wanted[i].end;
        list[strlen(list)] = (char)('0' + i);
    }
    cache_lock(c);
    waitq_wake_arrived_locked(c, &q, &present);
    cache_unlock(c);
    ck_assert_str_eq(names_of(c->wake_list), arrived);
    ck_assert_str_eq(names_of(q.head), left);
    park("0"); /* the queue's end is that of who is left */
    (void)strcat(left, "0");
    ck_assert_str_eq(names_of(q.head), left);
    ranges_clear(&present);
}
END_TEST

START_TEST(progress_wakes_flushers_and_writers)
{
    cache_lock(c);
    c->pass_ns = INT64_MAX;
    ck_assert_int_eq(waitq_park_locked(c, &c->flush_waiters, &v[0].w), CACHE_PARKED);
    ck_assert_int_eq(waitq_park_locked(c, &c->space_waiters, &v[1].w), CACHE_PARKED);
    progress_tell_locked(c);
    ck_assert(c->pass_ns == INT64_MAX);
    progress_locked(c);
    ck_assert_int_eq(c->pass_ns, 0);
    cache_unlock(c);
    ck_assert_str_eq(names_of(c->wake_list), "01");
}
END_TEST

/* ---- who wakes ---- */

#define MANY 2000

static struct one many[MANY];

/* Half of them are taken back by whoever is faster: each is woken, or taken back, once. */
START_TEST(each_is_woken_or_taken_back_once)
{
    unsigned back = 0, n = 0;

    ck_assert_int_eq(wait_start(c), 0);
    for (size_t i = 0; i < MANY; i++) {
        many[i] = (struct one){.w.wake = woken};
        cache_lock(c);
        if (waitq_park_locked(c, &q, &many[i].w) != CACHE_PARKED)
            ck_abort_msg("not parked");
        if (i % 16 == 0)
            waitq_wake_locked(c, &q, -EAGAIN);
        cache_unlock(c);
        if (i % 2 && cache_cancel(c, &many[i].w)) {
            many[i].err = -ECANCELED;
            back++;
        }
    }
    wake(-EAGAIN);
    cache_lock(c);
    c->stopping = true;
    cache_unlock(c);
    wait_stop(c); /* they wake all that is to be woken before they end */
    ck_assert_ptr_null(c->wake_list);
    for (size_t i = 0; i < MANY; i++) {
        int times = atomic_load(&many[i].woken);
        if (times != (many[i].err == -EAGAIN) || times + (many[i].err == -ECANCELED) != 1)
            ck_abort_msg("%zu: woken %d times, %d", i, times, many[i].err);
        n += (unsigned)times;
    }
    ck_assert_uint_eq(n + back, MANY);
}
END_TEST

/* ---- the scheduler ---- */

START_TEST(the_scheduler_looks_soon_and_not_for_each)
{
    const int64_t due_ns = 1000 * NS_PER_MS + 1;

    cache_lock(c);
    c->pass_ns = INT64_MAX;
    scheduler_kick_at_locked(c, due_ns);
    int64_t first = c->pass_ns;
    ck_assert(first > due_ns && first <= due_ns + 10 * NS_PER_MS);
    scheduler_kick_at_locked(c, due_ns + 1);
    ck_assert_int_eq(c->pass_ns, first); /* together */
    scheduler_kick_at_locked(c, due_ns + NS_PER_SEC);
    ck_assert_int_eq(c->pass_ns, first);
    scheduler_kick_at_locked(c, due_ns - 100 * NS_PER_MS);
    ck_assert(c->pass_ns < due_ns);
    scheduler_kick_locked(c);
    ck_assert_int_eq(c->pass_ns, 0);
    cache_unlock(c);
}
END_TEST

/* After a failure it looks later than at once, the longer a look takes the later, and at most
 * for a moment; something else that asks is not put off. */
START_TEST(the_scheduler_looks_late_for_failures)
{
    static const struct {
        int64_t took_ns, least_ns, most_ns;
    } looks[] = {
        {0, 4 * NS_PER_MS, 8 * NS_PER_MS},
        {2 * NS_PER_MS, 32 * NS_PER_MS, 36 * NS_PER_MS},
        {INT64_MAX, 200 * NS_PER_MS, 204 * NS_PER_MS},
    };

    cache_lock(c);
    for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
        c->pass_ns = INT64_MAX;
        c->pass_took_ns = looks[i].took_ns;
        int64_t began_ns = clock_mono_ns();
        progress_failed_locked(c);
        int64_t first = c->pass_ns;
        ck_assert_int_ge(first, began_ns + looks[i].least_ns);
        ck_assert_int_le(first, clock_mono_ns() + looks[i].most_ns);
        progress_failed_locked(c);
        ck_assert_int_eq(c->pass_ns, first); /* together */
        progress_locked(c);
        ck_assert_int_eq(c->pass_ns, 0);
    }
    cache_unlock(c);
}
END_TEST

/* ---- failures ---- */

START_TEST(pauses_double_up_to_a_minute)
{
    static const int64_t most_s[] = {2, 4, 8, 16, 32, 60, 60, 60};

    c->config.retry_ns = 2 * NS_PER_SEC;
    for (unsigned n = 0; n < ARRAY_SIZE(most_s); n++)
        for (int i = 0; i < 50; i++) {
            int64_t pause = retry_delay_ns(c, n + 1), most = most_s[n] * NS_PER_SEC;
            if (pause < most / 2 || pause > most)
                ck_abort_msg("after %u: %lld ns", n + 1, (long long)pause);
        }
    ck_assert_int_le(retry_delay_ns(c, 1000000), 60 * NS_PER_SEC);
}
END_TEST

/* Many failures at once do not come back at once: no part of the random half stays unused. */
START_TEST(pauses_differ_up_to_the_longest)
{
    int64_t least = INT64_MAX, most = 0;

    c->config.retry_ns = 2 * NS_PER_SEC;
    for (int i = 0; i < 1000; i++) {
        int64_t pause = retry_delay_ns(c, 6);
        least = pause < least ? pause : least;
        most = pause > most ? pause : most;
    }
    ck_assert_int_lt(least, 38 * NS_PER_SEC); /* of 30 s to 60 s */
    ck_assert_int_gt(most, 53 * NS_PER_SEC);
}
END_TEST

START_TEST(the_last_failure_is_kept)
{
    read_failed(c, "download of f", -EINTR, "cancelled");
    cache_lock(c);
    ck_assert_ptr_null(c->read_failure.text);
    cache_unlock(c);
    read_failed(c, "download of f", -EIO, "one");
    read_failed(c, "download of g", -EACCES, "two");
    cache_lock(c);
    ck_assert_int_eq(c->read_failure.err, -EACCES);
    ck_assert_str_eq(c->read_failure.text, "two");
    failure_note_locked(c, &c->write_failure, -ENOSPC, "full");
    ck_assert_int_eq(c->write_failure.err, -ENOSPC);
    ck_assert_str_eq(c->read_failure.text, "two");
    cache_unlock(c);
}
END_TEST

START_TEST(a_request_ends_with_the_cache)
{
    struct op op, brief;

    c->config.store_timeout_ns = 100 * NS_PER_SEC;
    cache_op(c, &op);
    cache_op_within(c, &brief, 1 * NS_PER_SEC);
    ck_assert(brief.deadline_ns < op.deadline_ns);
    ck_assert_int_eq(op_check(&op), 0);
    atomic_store(&c->cancelled, true);
    ck_assert_int_eq(op_check(&op), -EINTR);
    ck_assert_int_eq(op_check(&brief), -EINTR);
}
END_TEST

/* ---- threads ---- */

#define LINKS 5000

static struct chain {
    struct task task;
    struct workers *workers;
    struct store_set stores;
    atomic_int run;
} chain;

/* Each is submitted by the one before it. */
static void run_link(struct task *task)
{
    if (atomic_fetch_add(&chain.run, 1) + 1 == LINKS)
        return;
    cache_lock(c);
    workers_submit_locked(chain.workers, &chain.stores, task, false);
    cache_unlock(c);
}

START_TEST(what_tasks_submit_while_the_workers_end_is_run)
{
    chain = (struct chain){.task.run = run_link, .workers = workers_new("test", 2, false)};
    ck_assert_ptr_nonnull(chain.workers);
    store_set_add(&chain.stores, 1);
    cache_lock(c);
    workers_submit_locked(chain.workers, &chain.stores, &chain.task, false);
    cache_unlock(c);
    workers_free(c, chain.workers);
    ck_assert_int_eq(atomic_load(&chain.run), LINKS);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("core");
    TCase *t = tcase_create("core");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, who_came_first_is_woken_first);
    tcase_add_loop_test(t, who_is_taken_back_is_not_woken, 0, ARRAY_SIZE(cancels));
    tcase_add_test(t, nobody_parks_while_the_cache_stops);
    tcase_add_test(t, bytes_wake_who_waits_for_them);
    tcase_add_test(t, progress_wakes_flushers_and_writers);
    tcase_add_test(t, each_is_woken_or_taken_back_once);
    tcase_add_test(t, the_scheduler_looks_soon_and_not_for_each);
    tcase_add_test(t, the_scheduler_looks_late_for_failures);
    tcase_add_test(t, pauses_double_up_to_a_minute);
    tcase_add_test(t, pauses_differ_up_to_the_longest);
    tcase_add_test(t, the_last_failure_is_kept);
    tcase_add_test(t, a_request_ends_with_the_cache);
    tcase_add_test(t, what_tasks_submit_while_the_workers_end_is_run);
    suite_add_tcase(s, t);
    return suite_run(s);
}
