/* The scripted HTTP server: one thread accepts, one thread for each connection answers. */
#include "tests/lib/scripted.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS_MAX    64
#define CONNECTIONS_MAX 64
#define REQUEST_MAX     (4 * 1024 * 1024)

struct scripted {
    const struct scripted_answer *answers;
    size_t n_answers;
    int listener;
    int stop[2]; /* readable when the server shall end */
    unsigned port;
    pthread_t acceptor;
    pthread_mutex_t lock;
    char *requests[REQUESTS_MAX]; /* under lock */
    size_t n_requests;            /* under lock */
    size_t next;                  /* under lock; the answer to the next request */
    pthread_t threads[CONNECTIONS_MAX];
    size_t n_threads; /* under lock */
};

struct connection {
    struct scripted *s;
    int fd;
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

/* False when the server ends or the client went away. */
static bool wait_readable(struct scripted *s, int fd, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = s->stop[0], .events = POLLIN}};
    int r = poll(fds, 2, timeout_ms);

    return r > 0 && !fds[1].revents;
}

static size_t body_length(const char *head)
{
    const char *at = strcasestr(head, "\r\ncontent-length:");

    return at ? strtoul(at + 17, NULL, 10) : 0;
}

/* Reads one request; NULL at the end of the connection. */
static char *read_request(struct scripted *s, int fd, bool head_only)
{
    char *text = malloc(REQUEST_MAX + 1);
    size_t len = 0, wanted = 0;

    must(text != NULL, "malloc");
    for (;;) {
        const char *end;
        ssize_t got;

        text[len] = '\0';
        end = strstr(text, "\r\n\r\n");
        if (end && !wanted)
            wanted = (size_t)(end + 4 - text) + (head_only ? 0 : body_length(text));
        if (wanted && len >= wanted)
            return text;
        if (len == REQUEST_MAX || !wait_readable(s, fd, -1))
            break;
        got = read(fd, text + len, REQUEST_MAX - len);
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    free(text);
    return NULL;
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static void send_repeat(int fd, size_t n)
{
    char chunk[65536];

    memset(chunk, 'x', sizeof(chunk));
    while (n) {
        size_t len = n < sizeof(chunk) ? n : sizeof(chunk);

        if (!send_all(fd, chunk, len))
            return;
        n -= len;
    }
}

/* Whether the connection may go on. */
static bool answer(struct scripted *s, int fd, const struct scripted_answer *a)
{
    struct linger hard = {.l_onoff = 1};
    size_t len;

    if (!a->text) {
        char c;

        while (wait_readable(s, fd, -1) && read(fd, &c, 1) > 0)
            ;
        return false;
    }
    len = strlen(a->text);
    if (a->stall_ms && len) {
        (void)send_all(fd, a->text, len - 1);
        (void)wait_readable(s, s->stop[0], (int)a->stall_ms);
        (void)send_all(fd, a->text + len - 1, 1);
    } else {
        (void)send_all(fd, a->text, len);
    }
    send_repeat(fd, a->repeat);
    if (a->reset)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    return !a->close && !a->reset && !a->without_body;
}

static const struct scripted_answer *next_answer(struct scripted *s, char *request)
{
    static const struct scripted_answer none = {
        .text = "HTTP/1.1 500 Script Is Over\r\nContent-Length: 0\r\n\r\n"};
    const struct scripted_answer *a = &none;

    pthread_mutex_lock(&s->lock);
    if (s->next < s->n_answers)
        a = &s->answers[s->next];
    if (!a->again || !atomic_load(a->again))
        s->next++;
    if (s->n_requests < REQUESTS_MAX)
        s->requests[s->n_requests++] = request;
    else
        free(request);
    pthread_mutex_unlock(&s->lock);
    return a;
}

static bool next_skips_body(struct scripted *s)
{
    bool skips;

    pthread_mutex_lock(&s->lock);
    skips = s->next < s->n_answers && s->answers[s->next].without_body;
    pthread_mutex_unlock(&s->lock);
    return skips;
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    char *request;

    while ((request = read_request(c->s, c->fd, next_skips_body(c->s))))
        if (!answer(c->s, c->fd, next_answer(c->s, request)))
            break;
    close(c->fd);
    free(c);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct scripted *s = arg;

    while (wait_readable(s, s->listener, -1)) {
        struct connection *c = malloc(sizeof(*c));

        must(c != NULL, "malloc");
        c->s = s;
        c->fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&s->lock);
        if (c->fd >= 0 && s->n_threads < CONNECTIONS_MAX &&
            pthread_create(&s->threads[s->n_threads], NULL, serve, c) == 0) {
            s->n_threads++;
            c = NULL;
        }
        pthread_mutex_unlock(&s->lock);
        if (c && c->fd >= 0)
            close(c->fd);
        free(c);
    }
    return NULL;
}

struct scripted *scripted_new(const struct scripted_answer *answers, size_t n)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct scripted *s = calloc(1, sizeof(*s));
    socklen_t len = sizeof(addr);

    must(s != NULL, "calloc");
    s->answers = answers;
    s->n_answers = n;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pthread_mutex_init(&s->lock, NULL);
    must(pipe2(s->stop, O_CLOEXEC) == 0, "pipe");
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(s->listener >= 0, "socket");
    must(bind(s->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0, "bind");
    must(listen(s->listener, 64) == 0, "listen");
    must(getsockname(s->listener, (struct sockaddr *)&addr, &len) == 0, "getsockname");
    s->port = ntohs(addr.sin_port);
    must(pthread_create(&s->acceptor, NULL, accept_all, s) == 0, "pthread_create");
    return s;
}

void scripted_free(struct scripted *s)
{
    must(write(s->stop[1], "x", 1) == 1, "write");
    pthread_join(s->acceptor, NULL);
    for (size_t i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    for (size_t i = 0; i < s->n_requests; i++)
        free(s->requests[i]);
    close(s->listener);
    close(s->stop[0]);
    close(s->stop[1]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

unsigned scripted_port(const struct scripted *s)
{
    return s->port;
}

size_t scripted_count(struct scripted *s)
{
    size_t n;

    pthread_mutex_lock(&s->lock);
    n = s->n_requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

size_t scripted_connections(struct scripted *s)
{
    size_t n;

    pthread_mutex_lock(&s->lock);
    n = s->n_threads;
    pthread_mutex_unlock(&s->lock);
    return n;
}

const char *scripted_request(struct scripted *s, size_t i)
{
    const char *request = "";

    pthread_mutex_lock(&s->lock);
    if (i < s->n_requests)
        request = s->requests[i];
    pthread_mutex_unlock(&s->lock);
    return request;
}

void scripted_date(int64_t seconds, char ret[SCRIPTED_DATE])
{
    time_t then = time(NULL) + (time_t)seconds;
    struct tm tm;

    must(strftime(ret, SCRIPTED_DATE, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&then, &tm)) > 0,
         "strftime");
}

int64_t scripted_signed_minutes(struct scripted *s, size_t i)
{
    const char *at = strstr(scripted_request(s, i), "x-amz-date: ");
    struct tm tm = {0};

    must(at && strptime(at, "x-amz-date: %Y%m%dT%H%M%SZ", &tm), "a signed request");
    int64_t seconds = (int64_t)(timegm(&tm) - time(NULL));
    return (seconds + (seconds < 0 ? -30 : 30)) / 60;
}
