/* backends/http/http.c against a server that misbehaves on purpose. */
#include "backends/http/http.h"
#include "common/mem.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OK5 "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello"

static struct http *http;
static struct scripted *server;
static struct op op;
static struct http_answer answer;
static char url[64];

static void setup(void)
{
    struct http_config config = {.allow_plain = true, .silence_ns = 500 * NS_PER_MS};

    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(http_new(&config, &op, &http), 0);
    answer = (struct http_answer){0};
    server = NULL;
}

static void teardown(void)
{
    http_answer_release(&answer);
    http_free(http);
    if (server)
        scripted_free(server);
}

static void start(const struct scripted_answer *script, size_t n)
{
    server = scripted_new(script, n);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/x", scripted_port(server));
}

#define START(...)                                                                             \
    static const struct scripted_answer script[] = {__VA_ARGS__};                              \
    start(script, ARRAY_SIZE(script))

static int run(const char *method)
{
    struct http_request req = {.method = method, .url = url, .body_max = 1000};

    http_answer_release(&answer);
    return http_run(http, &op, &req, &answer);
}

/* ---- good answers ---- */

START_TEST(a_get)
{
    START({.text = "HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
                   "HTTP/1.1 200 OK\r\nX-Two:  a b \t\r\nx-two: c\r\nContent-Length: 5\r\n"
                   "Empty:\r\n\r\nhello"});
    ck_assert_msg(run("GET") == 0, "%s", op.why);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_str_eq(answer.body.data, "hello");
    ck_assert_str_eq(http_answer_header(&answer, "x-two"), "c");
    ck_assert_str_eq(http_answer_header(&answer, "empty"), "");
    ck_assert_ptr_null(http_answer_header(&answer, "x-early"));
    ck_assert_int_eq(http_content_length(&answer), 5);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "GET /x HTTP/1.1\r\n"));
}
END_TEST

START_TEST(connections_are_kept)
{
    START({.text = OK5}, {.text = OK5}, {.text = OK5});
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(run("GET"), 0);
    ck_assert_uint_eq(scripted_connections(server), 1);
}
END_TEST

START_TEST(a_head_has_a_length_and_no_body)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"}, {.text = OK5});
    ck_assert_int_eq(run("HEAD"), 0);
    ck_assert_int_eq(http_content_length(&answer), 500);
    ck_assert_int_eq(run("GET"), 0);
}
END_TEST

START_TEST(a_put_sends_everything_without_a_pause)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"});
    size_t len = 3 * 1024 * 1024;
    auto_free char *data = malloc(len);
    const char *headers[] = {"content-type: a/b", "x-empty;"};
    struct mem_source src;
    struct http_request req = {
        .method = "PUT", .url = url, .headers = headers, .n_headers = 2, .body = &src.base};

    memset(data, 'q', len);
    mem_source_init(&src, data, len);
    ck_assert_msg(http_run(http, &op, &req, &answer) == 0, "%s", op.why);
    ck_assert_uint_eq(strlen(strstr(scripted_request(server, 0), "\r\n\r\n") + 4), len);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "content-type: a/b\r\n"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "x-empty:"));
    ck_assert_ptr_null(strcasestr(scripted_request(server, 0), "expect:"));
    ck_assert_ptr_null(strcasestr(scripted_request(server, 0), "transfer-encoding:"));
    http_answer_release(&answer);
    req.body = NULL;
    ck_assert_int_eq(http_run(http, &op, &req, &answer), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "Content-Length: 0\r\n"));
}
END_TEST

START_TEST(a_dead_kept_connection_is_replaced)
{
    START({.text = OK5, .close = true}, {.text = OK5, .close = true}, {.text = OK5});
    struct mem_source src;
    struct http_request req = {.method = "PUT", .url = url, .body = &src.base, .body_max = 9};

    struct timespec pause = {.tv_nsec = 50 * NS_PER_MS};

    mem_source_init(&src, "body", 4);
    for (int i = 0; i < 3; i++) {
        (void)nanosleep(&pause, NULL); /* the close arrives; in a race with it the send fails */
        http_answer_release(&answer);
        ck_assert_msg(http_run(http, &op, &req, &answer) == 0, "%s", op.why);
        ck_assert_str_eq(strstr(scripted_request(server, (size_t)i), "\r\n\r\n") + 4, "body");
    }
}
END_TEST

/* curl would repeat it on a new connection, as above. */
START_TEST(what_may_be_sent_once_is_sent_once)
{
    START({.text = OK5}, {.text = "", .close = true}, {.text = OK5});
    struct http_request req = {.method = "PUT", .url = url, .body_max = 9, .once = true};

    ck_assert_int_eq(http_run(http, &op, &req, &answer), 0);
    http_answer_release(&answer);
    ck_assert_int_eq(http_run(http, &op, &req, &answer), -ECONNRESET);
    http_answer_release(&answer);
    ck_assert_uint_eq(scripted_count(server), 2);
    ck_assert_int_eq(http_run(http, &op, &req, &answer), 0);
}
END_TEST

/* ---- bodies into sinks ---- */

struct test_sink {
    struct http_body_sink base;
    struct mem_sink mem;
    uint64_t off, len;
    char data[16];
};

static int sink_begin(struct http_body_sink *bs, const struct http_answer *a, struct op *o,
                      uint64_t *ret_off, uint64_t *ret_len)
{
    struct test_sink *t = container_of(bs, struct test_sink, base);

    (void)o;
    ck_assert_int_eq(a->status / 100, 2);
    ck_assert_str_eq(http_answer_header(a, "etag"), "\"e\"");
    *ret_off = t->off;
    *ret_len = t->len;
    return 0;
}

static int run_sink(struct test_sink *t, uint64_t off, uint64_t len)
{
    struct http_request req = {.method = "GET", .url = url, .to_sink = &t->base};

    *t = (struct test_sink){.base = {.begin = sink_begin}, .off = off, .len = len};
    mem_sink_init(&t->mem, t->data, sizeof(t->data) - 1, 7);
    t->base.sink = &t->mem.base;
    http_answer_release(&answer);
    return http_run(http, &op, &req, &answer);
}

START_TEST(a_body_into_a_sink)
{
    START({.text = OK5});
    struct test_sink t;

    ck_assert_msg(run_sink(&t, 7, 5) == 0, "%s", op.why);
    ck_assert_str_eq(t.data, "hello");
    ck_assert_uint_eq(answer.sunk, 5);
    ck_assert_uint_eq(answer.body.len, 0);
}
END_TEST

START_TEST(other_lengths_than_promised)
{
    START({.text = OK5}, {.text = OK5},
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n\r\n"});
    struct test_sink t;

    ck_assert_int_eq(run_sink(&t, 7, 4), -EPROTO);
    ck_assert_str_eq(t.data, "");
    ck_assert_int_eq(run_sink(&t, 7, 6), -EPROTO);
    ck_assert_int_eq(run_sink(&t, 7, 1), -EPROTO);
}
END_TEST

START_TEST(a_sink_may_refuse)
{
    START({.text = OK5});
    struct test_sink t;

    ck_assert_int_lt(run_sink(&t, 0, 5), 0); /* the sink begins at 7 */
}
END_TEST

START_TEST(an_error_body_stays_out_of_the_sink)
{
    START({.text = "HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nwhy"});
    struct test_sink t;

    ck_assert_int_eq(run_sink(&t, 7, 5), 0);
    ck_assert_int_eq(answer.status, 404);
    ck_assert_str_eq(answer.body.data, "why");
    ck_assert_str_eq(t.data, "");
}
END_TEST

/* ---- broken answers ---- */

#define LONG_NAME                                                                              \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"

static const struct broken {
    struct scripted_answer answer;
    int err;
} broken[] = {
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", .close = true},
     -ECONNRESET},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", .reset = true},
     -ECONNRESET},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Le", .close = true}, -ECONNRESET},
    {{.text = "", .close = true}, -ECONNRESET},
    {{.text = "SSH-2.0-OpenSSH_9.2\r\n", .close = true}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\nhello", .close = true}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", .repeat = 2000}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\n\r\n", .repeat = 100000, .close = true}, -EPROTO},
    {{.text = "HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n", .repeat = 1000000},
     -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nx-long: ", .repeat = 3 * HTTP_HEADERS_MAX, .close = true},
     -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
      .close = true},
     -ECONNRESET},
    {{.text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", .close = true},
     -ECONNRESET},
    {{.text = "HTTP/1.1 200 OK\r\nX-A: b\rX-C: d\r\nContent-Length: 0\r\n\r\n"}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nX-A\rX-C: d\r\nContent-Length: 0\r\n\r\n"}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nX-A: \x1b[2J\r\nContent-Length: 0\r\n\r\n"}, -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nX\x7f: a\r\nContent-Length: 0\r\n\r\n"}, -EPROTO},
    {{.text = NULL}, -ETIMEDOUT},
    {{.text = OK5, .stall_ms = 10000}, -ETIMEDOUT},
};

START_TEST(a_broken_answer)
{
    int64_t begun = clock_mono_ns();
    int r;

    start(&broken[_i].answer, 1);
    r = run("GET");
    ck_assert_msg(r == broken[_i].err, "%d, not %d: %s", r, broken[_i].err, op.why);
    ck_assert(op.why[0]);
    ck_assert(clock_mono_ns() - begun < 9 * NS_PER_SEC);
}
END_TEST

static const struct {
    const char *path, *header, *text;
} not_sent[] = {
    {"/x", "x-a: b\r\nx-c: d", "the header x-a has a control character"},
    {"/x", "x-a: b\rx-c: d", "the header x-a has a control character"},
    {"/x", "x-a\nx-c: secret", "the header x-a has a control character"},
    {"/x HTTP/1.1\r\nx-c: d", "x-a: b", "the URL has a control character"},
    {"/x y", "x-a: b", "the URL has a control character or a space"},
};

START_TEST(a_request_of_more_lines_is_not_sent)
{
    START({.text = OK5});
    struct http_request req = {
        .method = "GET", .url = url, .headers = &not_sent[_i].header, .n_headers = 1};

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", scripted_port(server),
                   not_sent[_i].path);
    ck_assert_int_eq(http_run(http, &op, &req, &answer), -EINVAL);
    ck_assert_msg(strstr(op.why, not_sent[_i].text) && !strstr(op.why, "secret"), "%s", op.why);
    ck_assert_uint_eq(scripted_count(server), 0);
}
END_TEST

START_TEST(too_many_headers)
{
    auto_buf struct buf text = BUF_INIT(1 << 20);
    struct scripted_answer script = {0};

    buf_adds(&text, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i <= HTTP_HEADER_COUNT_MAX; i++)
        buf_addf(&text, "x-%d: 1\r\n", i);
    buf_adds(&text, "Content-Length: 0\r\n\r\n");
    script.text = text.data;
    start(&script, 1);
    ck_assert_int_eq(run("GET"), -EPROTO);
    scripted_free(take_ptr(server)); /* it reads the text */
}
END_TEST

START_TEST(redirects_are_not_followed)
{
    START({.text = "HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\n"
                   "Content-Length: 0\r\n\r\n"});
    ck_assert_int_eq(run("GET"), 0);
    ck_assert_int_eq(answer.status, 302);
    ck_assert_int_eq(http_status_error(answer.status), -EPROTO);
}
END_TEST

START_TEST(an_early_refusal_of_an_upload_is_heard)
{
    START({.text = "HTTP/1.1 403 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
           .without_body = true});
    size_t len = 64 * 1024;
    auto_free char *data = calloc(1, len);
    struct mem_source src;
    struct http_request req = {.method = "PUT", .url = url, .body = &src.base};
    int r;

    mem_source_init(&src, data, len);
    r = http_run(http, &op, &req, &answer);
    /* The answer may drown in the reset that follows it; then it is a lost connection. */
    ck_assert_msg((r == 0 && answer.status == 403) || r == -ECONNRESET, "%d %s", r, op.why);
}
END_TEST

static ssize_t short_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    (void)src;
    if (off)
        return 0;
    memset(buf, 'a', len < 10 ? len : 10);
    return len < 10 ? (ssize_t)len : 10;
}

static ssize_t failing_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    (void)src;
    (void)buf;
    (void)len;
    (void)off;
    return -ENXIO;
}

START_TEST(sources_that_fail)
{
    START({.text = NULL}, {.text = NULL});
    struct source src = {.size = 100, .pread = short_pread};
    struct http_request req = {.method = "PUT", .url = url, .body = &src};

    ck_assert_int_eq(http_run(http, &op, &req, &answer), -EBUSY);
    http_answer_release(&answer);
    src.pread = failing_pread;
    ck_assert_int_eq(http_run(http, &op, &req, &answer), -ENXIO);
}
END_TEST

START_TEST(nobody_listens)
{
    START({.text = OK5});
    scripted_free(take_ptr(server));
    ck_assert_int_eq(run("GET"), -ECONNREFUSED);
    (void)snprintf(url, sizeof(url), "http://runfs-test.invalid/");
    ck_assert_int_eq(run("GET"), -EHOSTUNREACH);
    (void)snprintf(url, sizeof(url), "ftp://127.0.0.1/");
    ck_assert_int_eq(run("GET"), -EINVAL);
}
END_TEST

START_TEST(https_is_checked)
{
    START({.text = OK5}, {.text = OK5});
    struct http_config strict = {.allow_plain = false};
    struct http_config no_ca = {.ca_file = "/nonexistent/ca.pem"};
    struct http *other;

    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", scripted_port(server));
    op.deadline_ns = clock_mono_ns() + NS_PER_SEC;
    ck_assert_int_lt(run("GET"), 0);
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(http_new(&no_ca, &op, &other), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "/nonexistent/ca.pem"));
    http_free(http);
    ck_assert_int_eq(http_new(&strict, &op, &http), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", scripted_port(server));
    ck_assert_int_eq(run("GET"), -EINVAL); /* plain http only when it was asked for */
}
END_TEST

static unsigned char hello[4096];
static ssize_t hello_len;

/* Takes a client's first message, and answers by the end of the connection. */
static void *hear_hello(void *listener)
{
    int fd = accept(*(const int *)listener, NULL, NULL);

    hello_len = recv(fd, hello, sizeof(hello), 0);
    (void)close(fd);
    return NULL;
}

/* Also where this machine's configuration of OpenSSL takes older ones (main() sees to that). */
START_TEST(tls_is_1_2_at_least)
{
    static const unsigned char both[] = {0x00, 0x2b, 0x00, 0x05, 0x04, 0x03, 0x04, 0x03, 0x03};
    const struct http_config patient = {.allow_plain = false};
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;

    http_free(http);
    ck_assert_int_eq(http_new(&patient, &op, &http), 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", ntohs(addr.sin_port));
    ck_assert_int_eq(pthread_create(&thread, NULL, hear_hello, &listener), 0);
    ck_assert_int_lt(run("GET"), 0);
    (void)pthread_join(thread, NULL);
    ck_assert_int_gt(hello_len, 0);
    /* The extension supported_versions (RFC 8446, 4.2.1). */
    ck_assert_ptr_nonnull(memmem(hello, (size_t)hello_len, both, sizeof(both)));
    (void)close(listener);
}
END_TEST

/* ---- ending a wait ---- */

static atomic_bool cancelled;

static void *cancel_soon(void *arg)
{
    const struct timespec pause = {.tv_nsec = 100 * NS_PER_MS};

    (void)arg;
    do
        (void)nanosleep(&pause, NULL);
    while (scripted_count(server) < 1);
    atomic_store(&cancelled, true);
    return NULL;
}

START_TEST(a_cancel_ends_a_stuck_request)
{
    START({.text = NULL}, {.text = OK5});
    struct http_config patient = {.allow_plain = true};
    pthread_t thread;
    int64_t begun;

    http_free(http);
    ck_assert_int_eq(http_new(&patient, &op, &http), 0);
    atomic_store(&cancelled, false);
    op.cancelled = &cancelled;
    begun = clock_mono_ns();
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, NULL), 0);
    ck_assert_int_eq(run("GET"), -EINTR);
    ck_assert_int_lt(clock_mono_ns() - begun, 5 * NS_PER_SEC);
    pthread_join(thread, NULL);
    ck_assert_int_eq(run("GET"), -EINTR); /* does not even start */
    ck_assert_uint_eq(scripted_count(server), 1);
    op.cancelled = NULL;
    ck_assert_int_eq(run("GET"), 0);
}
END_TEST

START_TEST(a_deadline_ends_a_stuck_request)
{
    START({.text = NULL});
    int64_t begun = clock_mono_ns();

    op_init(&op, 200 * NS_PER_MS);
    ck_assert_int_eq(run("GET"), -ETIMEDOUT);
    ck_assert_int_lt(clock_mono_ns() - begun, 5 * NS_PER_SEC);
}
END_TEST

/* ---- small judgements ---- */

/* libcurl asks for names here: one of them takes longer than anybody waits, one there is not.
 */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    int (*libc)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    if (name && strcmp(name, "hangs.example") == 0)
        (void)sleep(5);
    if (name && strcmp(name, "runfs-test.invalid") == 0)
        return EAI_NONAME; /* also where the resolver does not answer */
    *(void **)&libc = dlsym(RTLD_NEXT, "getaddrinfo");
    return libc(name, service, hints, ret);
}

START_TEST(a_deadline_ends_a_stuck_look_up)
{
    int64_t start_ns = clock_mono_ns();

    (void)snprintf(url, sizeof(url), "http://hangs.example/x");
    op_init(&op, 300 * NS_PER_MS);
    ck_assert_int_eq(run("GET"), -ETIMEDOUT);
    ck_assert_int_lt(clock_mono_ns() - start_ns, 4 * NS_PER_SEC);
}
END_TEST

START_TEST(retry_after)
{
    static const struct {
        const char *headers;
        int64_t seconds;
    } t[] = {
        {"", 0},
        {"Retry-After: 7\r\n", 7},
        {"Retry-After: 99999999999999999999\r\n", 300},
        {"Retry-After: -5\r\n", 0},
        {"Retry-After: soon\r\n", 0},
        {"Date: Sat, 21 Nov 2026 04:00:00 GMT\r\n"
         "Retry-After: Sat, 21 Nov 2026 04:00:09 GMT\r\n",
         9},
    };
    struct scripted_answer script = {0};
    char text[300];

    (void)snprintf(text, sizeof(text), "HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n%s\r\n",
                   t[_i].headers);
    script.text = text;
    start(&script, 1);
    ck_assert_int_eq(run("GET"), 0);
    ck_assert_int_eq(http_retry_after_ns(&answer), t[_i].seconds * NS_PER_SEC);
    scripted_free(take_ptr(server)); /* it reads the text */
}
END_TEST

START_TEST(dates)
{
    static const struct {
        const char *header;
        int64_t seconds;
    } t[] = {
        {"", -1},
        {"Last-Modified: Thu, 01 Jan 1970 00:01:00 GMT\r\n", 60},
        {"Last-Modified: Sat, 22 Nov 1846 04:06:27 GMT\r\n", -1},
        {"Last-Modified: yesterday\r\n", -1},
    };
    struct scripted_answer script = {0};
    char text[300];

    (void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s\r\n",
                   t[_i].header);
    script.text = text;
    start(&script, 1);
    ck_assert_int_eq(run("GET"), 0);
    ck_assert_int_eq(http_date_seconds(&answer, "last-modified"), t[_i].seconds);
    scripted_free(take_ptr(server)); /* it reads the text */
}
END_TEST

START_TEST(statuses)
{
    static const struct {
        int status, err;
    } t[] = {
        {200, 0},       {206, 0},       {204, 0},       {302, -EPROTO}, {304, -EPROTO},
        {401, -EACCES}, {403, -EACCES}, {404, -ENOENT}, {412, -ESTALE}, {429, -EAGAIN},
        {503, -EAGAIN}, {507, -ENOSPC}, {500, -EIO},    {502, -EIO},    {418, -EINVAL},
        {600, -EPROTO}, {99, -EPROTO},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        ck_assert_int_eq(http_status_error(t[i].status), t[i].err);
}
END_TEST

/* ---- many threads ---- */

#define THREADS 8
#define ROUNDS  6

static void *many_requests(void *arg)
{
    int *failures = arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct http_request req = {.method = "GET", .url = url, .body_max = 100};
        struct http_answer a;
        struct op own;

        op_init(&own, 10 * NS_PER_SEC);
        if (http_run(http, &own, &req, &a) || a.body.len != 5)
            (*failures)++;
        http_answer_release(&a);
    }
    return NULL;
}

START_TEST(threads_share_a_pool)
{
    static struct scripted_answer script[THREADS * ROUNDS];
    pthread_t threads[THREADS];
    int failures[THREADS] = {0};

    for (size_t i = 0; i < ARRAY_SIZE(script); i++)
        script[i].text = OK5;
    start(script, ARRAY_SIZE(script));
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, many_requests, &failures[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(failures[i], 0);
    }
    ck_assert_uint_le(scripted_connections(server), THREADS);
}
END_TEST

/* An OpenSSL that would take any version. */
static void be_lenient(void)
{
    static const char text[] = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\n"
                               "system_default = any\n[any]\nMinProtocol = TLSv1\n"
                               "CipherString = DEFAULT@SECLEVEL=0\n";
    int fd = memfd_create("openssl.cnf", 0);
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, text, sizeof(text) - 1) > 0)
        setenv("OPENSSL_CONF", path, 1);
}

int main(void)
{
    Suite *s = suite_create("http");
    TCase *t = tcase_create("http");

    be_lenient();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_get);
    tcase_add_test(t, connections_are_kept);
    tcase_add_test(t, a_head_has_a_length_and_no_body);
    tcase_add_test(t, a_put_sends_everything_without_a_pause);
    tcase_add_test(t, a_dead_kept_connection_is_replaced);
    tcase_add_test(t, what_may_be_sent_once_is_sent_once);
    tcase_add_test(t, a_body_into_a_sink);
    tcase_add_test(t, other_lengths_than_promised);
    tcase_add_test(t, a_sink_may_refuse);
    tcase_add_test(t, an_error_body_stays_out_of_the_sink);
    tcase_add_loop_test(t, a_broken_answer, 0, ARRAY_SIZE(broken));
    tcase_add_loop_test(t, a_request_of_more_lines_is_not_sent, 0, ARRAY_SIZE(not_sent));
    tcase_add_test(t, too_many_headers);
    tcase_add_test(t, redirects_are_not_followed);
    tcase_add_test(t, an_early_refusal_of_an_upload_is_heard);
    tcase_add_test(t, sources_that_fail);
    tcase_add_test(t, nobody_listens);
    tcase_add_test(t, https_is_checked);
    tcase_add_test(t, tls_is_1_2_at_least);
    tcase_add_test(t, a_cancel_ends_a_stuck_request);
    tcase_add_test(t, a_deadline_ends_a_stuck_request);
    tcase_add_test(t, a_deadline_ends_a_stuck_look_up);
    tcase_add_loop_test(t, retry_after, 0, 6);
    tcase_add_loop_test(t, dates, 0, 4);
    tcase_add_test(t, statuses);
    tcase_add_test(t, threads_share_a_pool);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return suite_run(s);
}
