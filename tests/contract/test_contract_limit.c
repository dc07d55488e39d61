/* The layer that limits how many requests run at once: everyone gets a turn, and who waits for
 * one may stop waiting. */
#include "backends/drivers.h"
#include "backends/layers/layers.h"
#include "common/mem.h"
#include "tests/lib/cancel.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE (60 * NS_PER_SEC)

/* A source that counts how many are read at the same time. */
struct crowd {
    atomic_int now, most;
};

struct crowd_source {
    struct source base;
    struct crowd *crowd;
};

static ssize_t crowd_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct crowd *c = container_of(src, struct crowd_source, base)->crowd;
    struct timespec ts = {.tv_nsec = 5 * NS_PER_MS};
    int now = atomic_fetch_add(&c->now, 1) + 1, most = atomic_load(&c->most);

    (void)off;
    while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now))
        ;
    /* Until others are there as well, which on a busy machine takes its time. */
    for (int i = 0; i < 400 && (i == 0 || atomic_load(&c->most) < 3); i++)
        nanosleep(&ts, NULL);
    atomic_fetch_sub(&c->now, 1);
    memset(buf, 'x', len);
    return (ssize_t)len;
}

struct crowd_member {
    struct store *s;
    struct crowd *crowd;
    int id, result;
};

static void *join_crowd(void *arg)
{
    struct crowd_member *m = arg;
    struct crowd_source src = {{.size = 10, .pread = crowd_pread}, m->crowd};
    char key[16];
    struct op op;

    op_init(&op, PATIENCE);
    (void)snprintf(key, sizeof(key), "k%d", m->id);
    m->result = store_put(m->s, &op, key, NULL, &src.base, NULL, NULL);
    return NULL;
}

START_TEST(limit_holds_and_everyone_gets_a_turn)
{
    struct crowd crowd = {0};
    struct crowd_member m[12];
    pthread_t t[12];
    struct store *s;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &s), 0);
    s = layer_limit_new(s, 3);
    for (int i = 0; i < 12; i++) {
        m[i] = (struct crowd_member){s, &crowd, i, -1};
        ck_assert_int_eq(pthread_create(&t[i], NULL, join_crowd, &m[i]), 0);
    }
    for (int i = 0; i < 12; i++) {
        pthread_join(t[i], NULL);
        ck_assert_int_eq(m[i].result, 0);
    }
    ck_assert_int_eq(atomic_load(&crowd.most), 3);
    store_close(s);
}
END_TEST

/* Holds the only slot until it is opened. */
struct gate {
    struct source base;
    atomic_bool entered, open;
};

static ssize_t gate_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct gate *g = container_of(src, struct gate, base);
    struct timespec ts = {.tv_nsec = NS_PER_MS};

    (void)off;
    atomic_store(&g->entered, true);
    while (!atomic_load(&g->open))
        nanosleep(&ts, NULL);
    memset(buf, 'x', len);
    return (ssize_t)len;
}

struct gate_job {
    struct store *s;
    struct gate *gate;
    int result;
};

static void *hold_gate(void *arg)
{
    struct gate_job *j = arg;
    struct op op;

    op_init(&op, PATIENCE);
    j->result = store_put(j->s, &op, "gate", NULL, &j->gate->base, NULL, NULL);
    return NULL;
}

START_TEST(waiting_for_a_turn_ends_at_the_deadline)
{
    struct gate gate = {.base = {.size = 1, .pread = gate_pread}};
    struct gate_job job = {.gate = &gate};
    atomic_bool cancelled = false;
    struct object obj;
    pthread_t holder, canceller;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &job.s), 0);
    job.s = layer_limit_new(job.s, 1);
    ck_assert_int_eq(pthread_create(&holder, NULL, hold_gate, &job), 0);
    while (!atomic_load(&gate.entered))
        sched_yield();
    op_init(&op, 30 * NS_PER_MS);
    ck_assert_int_eq(store_stat(job.s, &op, "k", &obj), -ETIMEDOUT);
    op_init(&op, PATIENCE);
    op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&canceller, NULL, cancel_soon, &cancelled), 0);
    ck_assert_int_eq(store_stat(job.s, &op, "k", &obj), -EINTR);
    pthread_join(canceller, NULL);
    atomic_store(&gate.open, true);
    pthread_join(holder, NULL);
    ck_assert_int_eq(job.result, 0);
    op_init(&op, PATIENCE);
    ck_assert_int_eq(store_stat(job.s, &op, "gate", &obj), 0); /* the slot came back */
    object_release(&obj);
    store_close(job.s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("limit");
    TCase *t = tcase_create("limit");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, limit_holds_and_everyone_gets_a_turn);
    tcase_add_test(t, waiting_for_a_turn_ends_at_the_deadline);
    suite_add_tcase(s, t);
    return suite_run(s);
}
