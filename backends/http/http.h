/* HTTP requests over pooled libcurl handles. A request sends its body, bounds and checks the
 * answer, ends at once on a cancel or the deadline (during a look-up of the host's name only
 * with libcurl 7.87 and newer), and says why it failed. It follows no redirect and repeats
 * nothing: the layers do. Any thread. */
#ifndef RUNFS_BACKENDS_HTTP_HTTP_H
#define RUNFS_BACKENDS_HTTP_HTTP_H

#include "backends/store.h"
#include "common/buf.h"
#include "common/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEADERS_MAX      (64 * 1024)              /* bytes of all headers of one answer */
#define HTTP_HEADER_COUNT_MAX 200                      /* headers of one answer */
#define HTTP_SKEW_TAKEN       (24 * 3600 * NS_PER_SEC) /* nobody's clock is so far off */
#define HTTP_ERROR_BODY_MAX   (64 * 1024) /* bytes of the body of an answer other than 2xx */

struct http;

struct http_config {
    bool allow_plain;           /* also http://; otherwise only https:// leaves the machine */
    bool direct;                /* past any proxy that the environment names */
    const char *ca_file;        /* PEM bundle instead of the system's; may be NULL */
    int64_t connect_timeout_ns; /* 0: 10 s */
    int64_t silence_ns;         /* no byte either way for so long is a failure; 0: 30 s */
    unsigned idle_max;          /* connections kept open while nobody uses them; 0: 64 */
};

/* -EINVAL when the CA file can't be read, -ENOMEM. The config is borrowed for the call. */
int http_new(const struct http_config *config, struct op *op, struct http **ret);
/* No request may be running. Accepts NULL. */
void http_free(struct http *h);

/* What came back. All memory is freed by http_answer_release(). */
struct http_answer {
    int status;         /* 200...; 0 when there was no answer */
    struct buf headers; /* "name\0value\0" pairs, names in lower case */
    size_t n_headers;
    struct buf body;     /* what did not go into the sink */
    uint64_t sunk;       /* bytes that did */
    int64_t duration_ns; /* from the start to the last byte */
};
void http_answer_release(struct http_answer *a);
/* The value of a header (lower-case name), without space around it; NULL when there is none,
 * the last one when there are several. Valid until the release. */
const char *http_answer_header(const struct http_answer *a, const char *name);
/* Visits all headers; a non-zero visit ends it and is returned. */
int http_answer_each(const struct http_answer *a,
                     int (*visit)(void *arg, const char *name, const char *value), void *arg);

/* Where the body of a 2xx answer belongs. `begin` is called once, before the first byte, with
 * the headers complete: it judges them and says which bytes will come: exactly *ret_len of
 * them, from offset *ret_off. A negative errno ends the request. */
struct http_body_sink {
    struct sink *sink;
    int (*begin)(struct http_body_sink *bs, const struct http_answer *a, struct op *op,
                 uint64_t *ret_off, uint64_t *ret_len);
};

struct http_request {
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value" or "Name;" for an empty value */
    size_t n_headers;
    struct source *body;            /* sent with PUT and POST; NULL: an empty one */
    struct http_body_sink *to_sink; /* NULL: the body of a 2xx answer goes to answer->body */
    size_t body_max;                /* bytes of answer->body for a 2xx */
    int64_t silence_ns;             /* 0: as configured */
    bool secret;                    /* nothing of answer->body is left in freed memory */
    bool once; /* when a kept connection dies under it, fail rather than send it again unseen:
                  it may have arrived */
};

/* Runs one request. 0: an answer came and is complete, whatever its status. Otherwise a
 * negative errno with op->why: -EINTR, -ETIMEDOUT, -EHOSTUNREACH, -ECONNREFUSED, -ECONNRESET,
 * -EPROTO, -EACCES (the certificate), or what source, sink or `begin` returned. The answer is
 * initialised here in any case; release it. */
int http_run(struct http *h, struct op *op, const struct http_request *req,
             struct http_answer *ret);

/* The errno for a status: 0 for 2xx, -EPROTO for what no server should say. */
int http_status_error(int status);

/* ns of a Retry-After header, 0 without one; at most 5 minutes. */
int64_t http_retry_after_ns(const struct http_answer *a);

/* Seconds since 1970 of an HTTP date header; -1 when there is none or it is broken. */
int64_t http_date_seconds(const struct http_answer *a, const char *name);

/* The server's clock less ours, to the second, when the answer has a usable Date; else 0. */
int64_t http_clock_skew_ns(const struct http_answer *a);

/* The Content-Length; -1 without one or when it is no number. */
int64_t http_content_length(const struct http_answer *a);

#endif
