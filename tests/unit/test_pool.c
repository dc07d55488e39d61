/* common/pool.c: tasks, their order, and calls that differ by a number. */
#include "common/lock.h"
#include "common/mem.h"
#include "common/op.h"
#include "common/pool.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct counting_task {
    struct task task;
    struct pool *pool;
    atomic_uint *count;
    unsigned spawn; /* tasks to submit from within */
    char thread_name[16];
};

static void count_and_spawn(struct task *t)
{
    struct counting_task *c = container_of(t, struct counting_task, task);

    pthread_getname_np(pthread_self(), c->thread_name, sizeof(c->thread_name));
    atomic_fetch_add(c->count, 1);
    if (c->spawn) {
        struct counting_task *child = calloc(1, sizeof(*child));
        *child = *c;
        child->spawn--;
        pool_submit(c->pool, &child->task);
        free(c);
    } else {
        free(c);
    }
}

START_TEST(pool_runs_everything)
{
    struct pool *pool = pool_new("test-pool", 3);
    atomic_uint count = 0;

    ck_assert_ptr_nonnull(pool);
    for (int i = 0; i < 500; i++) {
        struct counting_task *c = calloc(1, sizeof(*c));
        *c = (struct counting_task){{.run = count_and_spawn}, pool, &count, i % 3u, ""};
        pool_submit(pool, &c->task);
    }
    pool_drain(pool);
    ck_assert_uint_eq(atomic_load(&count), 500 + 499); /* 0 + 1 + 2 children in turn */
    ck_assert_uint_eq(pool_waiting(pool), 0);
    pool_free(pool);
    pool_free(NULL);
}
END_TEST

struct order_task {
    struct task task;
    struct mutex *gate;
    char *log;
    char letter;
    char thread_name[16];
    bool signals_blocked;
};

static void write_letter(struct task *t)
{
    struct order_task *o = container_of(t, struct order_task, task);
    sigset_t set;

    mutex_lock(o->gate);
    strncat(o->log, &o->letter, 1);
    pthread_getname_np(pthread_self(), o->thread_name, sizeof(o->thread_name));
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    o->signals_blocked = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGCHLD) == 1;
    mutex_unlock(o->gate);
}

START_TEST(pool_keeps_order)
{
    struct pool *pool = pool_new("a-name-that-is-too-long", 1);
    char log[8] = "";
    struct mutex gate;
    struct order_task t[4];

    mutex_init(&gate);
    mutex_lock(&gate);
    for (int i = 0; i < 4; i++)
        t[i] =
            (struct order_task){{.run = write_letter}, &gate, log, (char)('a' + i), "", false};
    pool_submit(pool, &t[0].task);
    while (pool_waiting(pool)) /* the worker holds task a */
        sched_yield();
    pool_submit(pool, &t[1].task);
    pool_submit(pool, &t[2].task);
    pool_submit_first(pool, &t[3].task);
    ck_assert_uint_eq(pool_waiting(pool), 3);
    mutex_unlock(&gate);
    pool_free(pool); /* runs what is queued */
    ck_assert_str_eq(log, "adbc");
    ck_assert_str_eq(t[0].thread_name, "a-name-that-is-");
    ck_assert(t[0].signals_blocked);
    mutex_destroy(&gate);
}
END_TEST

/* ---- a pool whose worker goes on by itself ---- */

struct chained_task {
    struct task task;
    struct pool *pool;
    unsigned *left; /* the chain is one task at a time */
    bool *batch;    /* so far every worker was */
};

static void run_and_chain(struct task *t)
{
    struct chained_task *c = container_of(t, struct chained_task, task);

    *c->batch = *c->batch && sched_getscheduler(0) == SCHED_BATCH;
    if (--*c->left)
        pool_submit_own(c->pool, &c->task);
}

START_TEST(pool_worker_goes_on_by_itself)
{
    struct pool *pool = pool_new("test-pool", 3);
    unsigned left = 1000;
    bool batch = true;
    struct chained_task c = {{.run = run_and_chain}, pool, &left, &batch};

    ck_assert_ptr_nonnull(pool);
    pool_set_batch(pool);
    pool_submit(pool, &c.task);
    pool_drain(pool);
    ck_assert_uint_eq(left, 0);
    ck_assert(batch);
    pool_free(pool);
}
END_TEST

/* ---- a pool that grows ---- */

struct held_task {
    struct task task;
    struct mutex *gate;
    atomic_uint *begun, *batch;
};

static void run_held(struct task *t)
{
    struct held_task *h = container_of(t, struct held_task, task);

    atomic_fetch_add(h->batch, sched_getscheduler(0) == SCHED_BATCH);
    atomic_fetch_add(h->begun, 1);
    mutex_lock(h->gate);
    mutex_unlock(h->gate);
}

/* The next task begins though the others hold their workers, up to the limit. */
START_TEST(pool_grows_as_tasks_wait)
{
    struct pool *pool = pool_new_growing("test-pool", 3);
    atomic_uint begun = 0, batch = 0;
    struct held_task t[5];
    struct mutex gate;

    ck_assert_ptr_nonnull(pool);
    pool_set_batch(pool);
    mutex_init(&gate);
    mutex_lock(&gate);
    for (unsigned i = 0; i < 5; i++) {
        t[i] = (struct held_task){{.run = run_held}, &gate, &begun, &batch};
        if (i == 1)
            pool_submit_first(pool, &t[i].task);
        else
            pool_submit(pool, &t[i].task);
        while (i < 3 && atomic_load(&begun) < i + 1)
            sched_yield();
    }
    ck_assert_uint_eq(pool_waiting(pool), 2);
    mutex_unlock(&gate);
    pool_drain(pool);
    ck_assert_uint_eq(atomic_load(&begun), 5);
    ck_assert_uint_eq(atomic_load(&batch), 5);
    pool_free(pool);
    mutex_destroy(&gate);
}
END_TEST

/* ---- calls that differ by a number ---- */

struct counted_calls {
    struct each each;
    const atomic_bool *cancelled;
    atomic_uint made[100];
    size_t fails_at;
};

/* Far away; each call has it, too. */
static const atomic_llong lease_end_ns = INT64_MAX / 2;

static int count_call(struct each *each, size_t i, struct op *op)
{
    struct counted_calls *c = container_of(each, struct counted_calls, each);

    atomic_fetch_add(&c->made[i], 1);
    ck_assert_ptr_eq(op->cancelled, c->cancelled);
    ck_assert(op_left_ns(op) > 0 && op_left_ns(op) <= c->each.patience_ns);
    ck_assert_ptr_eq(op->lease_end_ns, &lease_end_ns);
    if (i < c->fails_at)
        return 0;
    op->retry_after_ns = 7;
    return op_fail(op, -EIO, "call %zu failed", i);
}

static void each_of(struct counted_calls *c, size_t n, unsigned at_once, size_t fails_at)
{
    *c = (struct counted_calls){.fails_at = fails_at};
    c->each = (struct each){
        .call = count_call, .n = n, .at_once = at_once, .patience_ns = 3600 * NS_PER_SEC};
}

START_TEST(pool_each_makes_all_calls)
{
    struct pool *pool = pool_new("test-pool", 3);
    const unsigned at_once[] = {1, 2, 1000};
    const atomic_bool cancelled = false;
    struct counted_calls c;
    struct op op;

    ck_assert_ptr_nonnull(pool);
    op_init(&op, OP_FOREVER);
    op.lease_end_ns = &lease_end_ns;
    op.cancelled = &cancelled;
    for (size_t k = 0; k < ARRAY_SIZE(at_once); k++) {
        each_of(&c, 100, at_once[k], SIZE_MAX);
        c.cancelled = &cancelled;
        ck_assert_int_eq(pool_each(pool, &c.each, &op), 0);
        for (size_t i = 0; i < 100; i++)
            ck_assert_uint_eq(atomic_load(&c.made[i]), 1);
    }
    each_of(&c, 0, 2, 0);
    ck_assert_int_eq(pool_each(pool, &c.each, &op), 0);
    ck_assert_str_eq(op.why, "");
    pool_free(pool);
}
END_TEST

START_TEST(pool_each_ends_after_a_failure)
{
    struct pool *pool = pool_new("test-pool", 1);
    struct counted_calls c;
    struct op op;

    ck_assert_ptr_nonnull(pool);
    op_init(&op, OP_FOREVER);
    op.lease_end_ns = &lease_end_ns;
    each_of(&c, 100, 4, 3);
    ck_assert_int_eq(pool_each(pool, &c.each, &op), -EIO);
    ck_assert_str_eq(op.why, "call 3 failed");
    ck_assert_int_eq(op.retry_after_ns, 7);
    for (size_t i = 0; i < 100; i++)
        ck_assert_uint_eq(atomic_load(&c.made[i]), i <= 3);
    pool_free(pool);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, pool_runs_everything);
    tcase_add_test(t, pool_worker_goes_on_by_itself);
    tcase_add_test(t, pool_grows_as_tasks_wait);
    tcase_add_test(t, pool_each_makes_all_calls);
    tcase_add_test(t, pool_each_ends_after_a_failure);
    tcase_add_test(t, pool_keeps_order);
    suite_add_tcase(s, t);
    return suite_run(s);
}
