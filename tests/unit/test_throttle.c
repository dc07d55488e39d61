/* A server that says "slow down" to one request is left alone by all: the whole stack of layers
 * over S3, against a scripted server. */
#include "backends/layers/throttle.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THREADS 8

/* The mount's question whether the bucket is there. */
#define HELLO                                                                                  \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"                                 \
                "<ListBucketResult></ListBucketResult>",                                       \
        .close = true                                                                          \
    }
#define OK                                                                                     \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n\r\n"                  \
    }
#define BUSY(header)                                                                           \
    {                                                                                          \
        .text = "HTTP/1.1 503 Slow Down\r\nConnection: close\r\n" header "\r\n"                \
                "<Error><Code>SlowDown</Code></Error>",                                        \
        .close = true                                                                          \
    }

static struct scripted *server;
static struct store *store;
static struct op op;

static void setup(void)
{
    aws_clear_environment();
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SK", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    op_init(&op, 30 * NS_PER_SEC);
}

static void teardown(void)
{
    store_close(store);
    scripted_free(server);
}

static void open_store(const struct scripted_answer *script, size_t n)
{
    char endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint}};
    struct store_config config = {.options = options, .n_options = 1};

    server = scripted_new(script, n);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_msg(store_open("s3://bkt", &config, &op, &store) == 0, "%s", op.why);
}

static int put(int64_t patience, char why[sizeof(op.why)])
{
    struct mem_source src;
    struct op own;
    int r;

    op_init(&own, patience);
    mem_source_init(&src, "hello", 5);
    r = store_put(store, &own, "k", NULL, &src.base, NULL, NULL);
    if (why)
        memcpy(why, own.why, sizeof(own.why));
    return r;
}

static void *put_in_thread(void *arg)
{
    *(int *)arg = put(3 * NS_PER_SEC, NULL);
    return NULL;
}

START_TEST(a_wish_holds_everyone)
{
    static const struct scripted_answer script[] = {
        HELLO, BUSY("Retry-After: 1\r\n"), OK, OK, OK, OK, OK, OK, OK, OK, OK};
    pthread_t threads[THREADS], first;
    int results[THREADS], result;
    int64_t start;

    open_store(script, ARRAY_SIZE(script));
    start = clock_mono_ns();
    ck_assert_int_eq(pthread_create(&first, NULL, put_in_thread, &result), 0);
    while (scripted_count(server) < 2)
        ck_assert_int_eq(op_sleep(&op, NS_PER_MS), 0);
    ck_assert_int_eq(op_sleep(&op, 300 * NS_PER_MS), 0);
    for (size_t i = 0; i < THREADS; i++) /* these never heard of it */
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_in_thread, &results[i]), 0);
    ck_assert_int_eq(op_sleep(&op, 500 * NS_PER_MS), 0);
    if (clock_mono_ns() - start < 950 * NS_PER_MS)
        ck_assert_uint_eq(scripted_count(server), 2);
    pthread_join(first, NULL);
    ck_assert_int_eq(result, 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(results[i], 0);
    }
    ck_assert_int_ge(clock_mono_ns() - start, NS_PER_SEC);
    ck_assert_uint_eq(scripted_count(server), 3 + THREADS);
}
END_TEST

/* Alone, each of the eight would ask five times within two seconds. */
START_TEST(a_storm_is_not_answered_by_a_storm)
{
    static struct scripted_answer script[64];
    pthread_t threads[THREADS];
    int results[THREADS];
    struct op wait;
    int64_t start, lasted;
    size_t n;

    script[0] = (struct scripted_answer)HELLO;
    for (size_t i = 1; i < ARRAY_SIZE(script); i++)
        script[i] = (struct scripted_answer)BUSY("");
    open_store(script, ARRAY_SIZE(script));
    start = clock_mono_ns();
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_in_thread, &results[i]), 0);
    op_init(&wait, OP_FOREVER);
    ck_assert_int_eq(op_sleep(&wait, 2 * NS_PER_SEC), 0);
    n = scripted_count(server);
    lasted = clock_mono_ns() - start; /* longer where others have the processors */
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(results[i], -ETIMEDOUT);
    }
    ck_assert_msg((int64_t)n * 2 * NS_PER_SEC < (1 + 4 * THREADS) * lasted,
                  "%zu requests in %lld ns", n, (long long)lasted);
}
END_TEST

START_TEST(no_time_for_the_pause)
{
    static const struct scripted_answer script[] = {HELLO, BUSY("Retry-After: 20\r\n")};
    char why[sizeof(op.why)];
    int64_t start;

    open_store(script, ARRAY_SIZE(script));
    start = clock_mono_ns();
    ck_assert_int_eq(put(5 * NS_PER_SEC, why), -ETIMEDOUT);
    ck_assert_msg(strstr(why, "SlowDown") != NULL, "%s", why);
    ck_assert_int_eq(put(5 * NS_PER_SEC, why), -ETIMEDOUT);
    ck_assert_msg(strstr(why, "wants a pause") != NULL, "%s", why);
    ck_assert_int_lt(clock_mono_ns() - start, 4 * NS_PER_SEC); /* told at once */
    ck_assert_uint_eq(scripted_count(server), 2);
}
END_TEST

START_TEST(a_pause_grows_and_shrinks)
{
    struct throttle t;
    struct op now;

    server = scripted_new(NULL, 0);
    throttle_init(&t, 40 * NS_PER_MS, 160 * NS_PER_MS);
    op_init(&now, OP_FOREVER);
    ck_assert_int_eq(throttle_wait(&t, &now), 0);
    for (int64_t step = 40; step <= 320; step *= 2) {
        throttle_refused(&t, 0);
        throttle_refused(&t, 0); /* of the same moment */
        ck_assert_int_eq(t.step_ns, (step < 160 ? step : 160) * NS_PER_MS);
        ck_assert_int_eq(throttle_wait(&t, &now), 0);
        ck_assert_int_ge(clock_mono_ns(), t.until_ns);
    }
    for (int64_t step = 80; step >= 20; step /= 2) {
        throttle_answered(&t);
        throttle_refused(&t, 0);
        ck_assert_int_eq(t.step_ns, (step > 40 ? step : 40) * NS_PER_MS);
        ck_assert_int_eq(throttle_wait(&t, &now), 0);
    }
    throttle_release(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("throttle");
    TCase *t = tcase_create("throttle");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_pause_grows_and_shrinks);
    tcase_add_test(t, a_wish_holds_everyone);
    tcase_add_test(t, a_storm_is_not_answered_by_a_storm);
    tcase_add_test(t, no_time_for_the_pause);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
