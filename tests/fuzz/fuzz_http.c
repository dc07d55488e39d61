/* HTTP answers, from the socket on: a server that sends any bytes and closes. Whatever it says,
 * the request ends with an answer within its bounds or an errno and a reason, and no byte lands
 * outside of the range that was asked for. */
#include "backends/http/http.h"
#include "backends/s3/attrs.h"
#include "common/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANGE    64
#define BODY_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    int listener;
    char url[64];
    pthread_mutex_t lock; /* held while an answer is sent */
    uint8_t *data; /* what connections get; a copy, as a request may end before it is sent */
    size_t size;
    struct http *http;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Reads until the client has said all. */
static void answer(int fd)
{
    char request[4096];
    size_t len = 0;
    ssize_t n;

    while (len < sizeof(request) - 1 &&
           (n = read(fd, request + len, sizeof(request) - 1 - len)) > 0) {
        len += (size_t)n;
        request[len] = '\0';
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    for (size_t off = 0; off < server.size; off += (size_t)n) {
        n = send(fd, server.data + off, server.size - off, MSG_NOSIGNAL);
        if (n <= 0)
            break;
    }
    (void)close(fd);
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        (void)pthread_mutex_lock(&server.lock);
        answer(fd);
        (void)pthread_mutex_unlock(&server.lock);
    }
    return NULL;
}

static void start(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct http_config config = {.allow_plain = true, .silence_ns = NS_PER_SEC};
    socklen_t len = sizeof(at);
    pthread_t thread;
    struct op op;

    op_init(&op, OP_FOREVER);
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(server.listener >= 0 && bind(server.listener, (struct sockaddr *)&at, len) == 0 &&
         listen(server.listener, 16) == 0 &&
         getsockname(server.listener, (struct sockaddr *)&at, &len) == 0);
    (void)snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u/bucket/key",
                   ntohs(at.sin_port));
    must(http_new(&config, &op, &server.http) == 0);
    must(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0);
}

static int see_header(void *arg, const char *name, const char *value)
{
    (void)arg;
    for (const char *c = name; *c; c++)
        must(*c < 'A' || *c > 'Z');
    must(!strpbrk(value, "\r\n"));
    return 0;
}

static void check_answer(const struct http_answer *a)
{
    struct attrs attrs;

    must(a->headers.len <= HTTP_HEADERS_MAX && a->n_headers <= HTTP_HEADER_COUNT_MAX);
    must(a->body.len <= (a->status / 100 == 2 ? BODY_MAX : HTTP_ERROR_BODY_MAX));
    (void)http_answer_each(a, see_header, NULL);
    must(http_retry_after_ns(a) >= 0 && http_retry_after_ns(a) <= 300 * NS_PER_SEC);
    must(http_content_length(a) >= -1);
    must(http_date_seconds(a, "last-modified") >= -1);
    (void)http_status_error(a->status);
    if (s3_attrs_read(a, false, &attrs) == 0)
        attrs_release(&attrs);
}

static int begin_anywhere(struct http_body_sink *bs, const struct http_answer *a, struct op *op,
                          uint64_t *ret_off, uint64_t *ret_len)
{
    (void)bs, (void)op;
    *ret_off = 0;
    *ret_len = http_content_length(a) < 0 ? 0 : RANGE;
    return 0;
}

static void ask(bool with_sink)
{
    char room[RANGE];
    struct mem_sink sink;
    struct http_body_sink body = {.sink = &sink.base, .begin = begin_anywhere};
    const struct http_request request = {.method = "GET",
                                         .url = server.url,
                                         .to_sink = with_sink ? &body : NULL,
                                         .body_max = BODY_MAX};
    struct http_answer a;
    struct op op;

    mem_sink_init(&sink, room, sizeof(room), 0);
    op_init(&op, 5 * NS_PER_SEC);
    int r = http_run(server.http, &op, &request, &a);
    must(r <= 0 && (r == 0 || op.why[0]));
    must(a.sunk <= RANGE);
    if (r == 0)
        check_answer(&a);
    http_answer_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!server.http)
        start();
    if (size == 0)
        return 0;
    (void)pthread_mutex_lock(&server.lock);
    free(server.data);
    server.data = malloc(size);
    must(server.data != NULL);
    memcpy(server.data, data + 1, size - 1);
    server.size = size - 1;
    (void)pthread_mutex_unlock(&server.lock);
    ask(data[0] & 1);
    return 0;
}
