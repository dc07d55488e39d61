/* Whether a store answers (backends/layers/stall.h): the state by itself, where time is moved
 * by hand, and in the stack of layers over S3, against a scripted server. */
#include "backends/layers/stall.h"

#include "backends/store.h"
#include "cli/stall_doc.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define AFTER   (5 * NS_PER_SEC)
#define LATER   (7 * NS_PER_SEC)
#define STEP_NS (2 * NS_PER_MS)

/* ---- the state ---- */

static struct stall stall;
static char why[sizeof(((struct op *)0)->why)] = "503 Slow Down";

static void setup_state(void)
{
    stall_init(&stall, AFTER);
}

static void teardown_state(void)
{
    stall_release(&stall);
}

static struct store_stall look(void)
{
    struct store_stall s;

    stall_get(&stall, &s);
    return s;
}

static void enter(struct stall_call *call, enum call_kind kind, int64_t patience_ns)
{
    struct op op;
    const struct call c = {.kind = kind, .op = &op};

    op_init(&op, patience_ns);
    stall_enter(&stall, call, &c);
    stall_begin(call);
}

static void earlier(atomic_llong *ns, int64_t by)
{
    if (atomic_load(ns))
        atomic_fetch_sub(ns, by);
}

/* All that happened was so much earlier. */
static void let_pass(int64_t ns)
{
    for (int i = 0; i < STALL_LANES; i++) {
        struct stall_call *call = stall.lane[i].calls;

        stall.lane[i].good_ns -= ns;
        if (stall.lane[i].owing_ns)
            stall.lane[i].owing_ns -= ns;
        for (; call; call = call->next) {
            earlier(&call->began_ns, ns);
            earlier(&call->moved_ns, ns);
        }
    }
}

/* What hangs is a stall after a while, without a word; a success ends it. */
START_TEST(silence_is_a_stall)
{
    struct stall_call put, other;

    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
    enter(&put, CALL_PUT, OP_FOREVER);
    ck_assert_int_eq(look().ns, 0);
    let_pass(LATER);
    ck_assert_int_ge(look().ns, LATER);
    ck_assert(look().changes);
    ck_assert(look().until_ns == OP_FOREVER);
    ck_assert_str_eq(look().why, "");
    enter(&other, CALL_REMOVE, OP_FOREVER);
    stall_leave(&stall, &other, 0);
    ck_assert_int_eq(look().ns, 0);
    stall_leave(&stall, &put, -EINTR);
    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
}
END_TEST

/* A large transfer works as long as its bytes move, and no longer. */
START_TEST(bytes_that_move_are_no_stall)
{
    struct stall_call get;

    enter(&get, CALL_READ, LATER * 10);
    let_pass(LATER);
    stall_moved(&get);
    ck_assert_int_eq(look().ns, 0);
    let_pass(LATER);
    ck_assert_int_ge(look().ns, LATER);
    ck_assert(!look().changes);
    ck_assert_int_lt(look().until_ns, OP_FOREVER);
    stall_leave(&stall, &get, 4);
    ck_assert_int_eq(look().ns, 0);
}
END_TEST

/* A server that takes bytes and refuses then does not work, however often it does. */
START_TEST(refused_bytes_do_not_count)
{
    struct stall_call put;

    enter(&put, CALL_PUT, OP_FOREVER);
    for (int i = 0; i < 3; i++) {
        let_pass(LATER);
        stall_begin(&put);
        stall_moved(&put);
        ck_assert_int_ge(look().ns, i * LATER); /* the stall is not over now and then */
        stall_end(&stall, &put, -EAGAIN, why);
    }
    ck_assert_int_ge(look().ns, 3 * LATER);
    ck_assert_str_eq(look().why, why);
    ck_assert_int_eq(look().err, -EAGAIN);
    stall_leave(&stall, &put, -ETIMEDOUT);
}
END_TEST

/* A line that breaks from time to time, after minutes of transfer, is no stall either. */
START_TEST(a_line_that_breaks_works_between)
{
    struct stall_call put;

    enter(&put, CALL_PUT, OP_FOREVER);
    stall_begin(&put);
    for (int i = 0; i < 3; i++) {
        let_pass(LATER);
        stall_moved(&put);
        stall_end(&stall, &put, -ECONNRESET, why);
        ck_assert_int_eq(look().ns, 0);
        stall_begin(&put);
    }
    stall_leave(&stall, &put, 0);
}
END_TEST

/* A change that failed is tried again after a pause, in which no request is under way; a
 * question that failed is not. */
START_TEST(a_failed_change_is_tried_again)
{
    struct stall_call put, stat;

    enter(&stat, CALL_STAT, OP_FOREVER);
    stall_end(&stall, &stat, -EHOSTUNREACH, why);
    stall_leave(&stall, &stat, -EHOSTUNREACH);
    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
    enter(&put, CALL_PUT, OP_FOREVER);
    stall_end(&stall, &put, -EACCES, why);
    stall_leave(&stall, &put, -EACCES);
    let_pass(LATER);
    ck_assert_int_ge(look().ns, LATER);
    enter(&stat, CALL_STAT, OP_FOREVER); /* answered, but nothing is taken */
    stall_leave(&stall, &stat, -ENOENT);
    ck_assert_int_ge(look().ns, LATER);
    enter(&put, CALL_PUT, OP_FOREVER);
    ck_assert_int_ge(look().ns, LATER);
    stall_leave(&stall, &put, 0);
    ck_assert_int_eq(look().ns, 0);
    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
}
END_TEST

/* A question that is refused is answered by that; an error of the caller's own source says
 * nothing of the store; a copy of the server's takes its time. */
START_TEST(what_is_no_stall)
{
    struct stall_call stat, put, copy;

    enter(&stat, CALL_STAT, OP_FOREVER);
    stall_end(&stall, &stat, -EACCES, why);
    ck_assert_str_eq(stall.lane[STALL_QUESTIONS].why, "");
    stall_leave(&stall, &stat, -EACCES);
    enter(&put, CALL_PUT, OP_FOREVER);
    put.ours = true;
    stall_end(&stall, &put, -EIO, why);
    stall_leave(&stall, &put, -EIO);
    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
    enter(&copy, CALL_COPY, OP_FOREVER);
    let_pass(LATER);
    ck_assert_int_eq(look().ns, 0);
    let_pass(10 * LATER);
    ck_assert_int_gt(look().ns, 10 * LATER);
    stall_leave(&stall, &copy, 0);
}
END_TEST

/* ---- its words ---- */

START_TEST(a_stall_in_words)
{
    struct store_stall s = {.ns = 7900 * NS_PER_MS, .changes = true, .until_ns = OP_FOREVER};
    char text[STALL_TEXT_MAX];

    json_t *json = stall_json(&(struct store_stall){0});
    ck_assert(json_is_null(json));
    json_decref(json);
    json = stall_json(&s);
    ck_assert_str_eq(stall_text(json, OP_FOREVER, NULL, text),
                     "no answer for 7 s; retried until it works");
    ck_assert(!stall_is_unreachable(json));
    json_decref(json);
    s.err = -ECONNREFUSED;
    (void)snprintf(s.why, sizeof(s.why), "nobody there");
    json = stall_json(&s);
    ck_assert_str_eq(stall_text(json, OP_FOREVER, NULL, text),
                     "no success for 7 s, last: nobody there; retried until it works");
    ck_assert_str_eq(stall_text(json, OP_FOREVER, "put: nobody there", text),
                     "no success for 7 s; retried until it works");
    ck_assert(stall_is_unreachable(json));
    /* The clock on the wall. */
    ck_assert_ptr_null(strstr(stall_text(json, clock_mono_ns(), NULL, text), "works"));
    json_decref(json);
    s.until_ns = clock_mono_ns();
    json = stall_json(&s);
    ck_assert_ptr_null(strstr(stall_text(json, OP_FOREVER, NULL, text), "works"));
    json_decref(json);
}
END_TEST

/* ---- the layers ---- */

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
#define BUSY                                                                                   \
    {                                                                                          \
        .text = "HTTP/1.1 503 Slow Down\r\nConnection: close\r\n\r\n"                          \
                "<Error><Code>SlowDown</Code></Error>",                                        \
        .close = true, .again = &busy                                                          \
    }

static struct scripted *server;
static struct store *store;
static atomic_bool busy, cancelled;

static void setup(void)
{
    aws_clear_environment();
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SK", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    atomic_store(&cancelled, false);
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
    struct store_config config = {
        .options = options, .n_options = 1, .stalled_ns = 50 * NS_PER_MS};
    struct op op;

    op_init(&op, 30 * NS_PER_SEC);
    server = scripted_new(script, n);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_msg(store_open("s3://bkt", &config, &op, &store) == 0, "%s", op.why);
}

static void *put(void *arg)
{
    int *r = arg;
    struct mem_source src;
    struct op op;

    op_init(&op, 30 * NS_PER_SEC);
    op.cancelled = &cancelled;
    mem_source_init(&src, "hello", 5);
    *r = store_put(store, &op, "k", NULL, &src.base, NULL, NULL);
    return NULL;
}

static struct store_stall told(void)
{
    struct store_stats s;

    store_get_stats(store, &s);
    return s.stall;
}

static void await_stall(void)
{
    const struct timespec step = {.tv_nsec = STEP_NS};

    while (!told().ns)
        (void)nanosleep(&step, NULL);
}

START_TEST(a_hanging_server)
{
    static const struct scripted_answer script[] = {HELLO, {.text = NULL}};
    pthread_t thread;
    int r;

    open_store(script, ARRAY_SIZE(script));
    ck_assert_int_eq(told().ns, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, put, &r), 0);
    await_stall();
    ck_assert(told().changes);
    ck_assert_str_eq(told().why, "");
    atomic_store(&cancelled, true);
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(r, -EINTR);
    ck_assert_int_eq(told().ns, 0);
}
END_TEST

START_TEST(a_refusing_server)
{
    static const struct scripted_answer script[] = {HELLO, BUSY, OK};
    pthread_t thread;
    int r;

    atomic_store(&busy, true);
    open_store(script, ARRAY_SIZE(script));
    ck_assert_int_eq(pthread_create(&thread, NULL, put, &r), 0);
    do /* until the first answer is there it is one of silence */
        await_stall();
    while (!*told().why);
    ck_assert_ptr_nonnull(strstr(told().why, "SlowDown"));
    atomic_store(&busy, false);
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(told().ns, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stall");
    TCase *state = tcase_create("state");
    TCase *layers = tcase_create("layers");

    tcase_add_checked_fixture(state, setup_state, teardown_state);
    tcase_add_test(state, silence_is_a_stall);
    tcase_add_test(state, bytes_that_move_are_no_stall);
    tcase_add_test(state, refused_bytes_do_not_count);
    tcase_add_test(state, a_line_that_breaks_works_between);
    tcase_add_test(state, a_failed_change_is_tried_again);
    tcase_add_test(state, what_is_no_stall);
    tcase_add_test(state, a_stall_in_words);
    suite_add_tcase(s, state);
    tcase_add_checked_fixture(layers, setup, teardown);
    tcase_add_test(layers, a_hanging_server);
    tcase_add_test(layers, a_refusing_server);
    tcase_set_timeout(layers, 30);
    suite_add_tcase(s, layers);
    return suite_run(s);
}
