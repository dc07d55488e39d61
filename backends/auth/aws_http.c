/* One request to a service that hands out keys, and what its answer holds. */
#include "backends/auth/aws_http.h"

#include "common/err.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define ANSWER_MAX   (256 * 1024)
#define FILE_MAX     (64 * 1024)
#define ATTEMPTS     3
#define PATIENCE_NS  (10 * NS_PER_SEC)
#define NEAR_CONNECT (1 * NS_PER_SEC)
#define PAUSE_NS     (200 * NS_PER_MS) /* before the second attempt; doubles */

void aws_fetch_release(struct aws_fetch *f)
{
    http_free(take_ptr(f->near));
    http_free(take_ptr(f->far));
}

static int client(struct aws_fetch *f, bool near, struct op *op, struct http **ret)
{
    struct http_config config = {.allow_plain = true,
                                 .direct = near,
                                 .ca_file = near ? NULL : f->ca_bundle,
                                 .connect_timeout_ns = near ? NEAR_CONNECT : 0,
                                 .idle_max = 1};
    struct http **at = near ? &f->near : &f->far;
    int err = *at ? 0 : http_new(&config, op, at);

    *ret = *at;
    return err;
}

int aws_refusal(int err)
{
    return err_is_transient(err) || err == -EINTR || err == -ENOMEM ? err : -EACCES;
}

static int send_once(struct aws_fetch *f, struct op *op, const struct aws_request *req,
                     struct http_answer *ret)
{
    struct http_request http = {.method = req->method,
                                .url = req->url,
                                .headers = req->headers,
                                .n_headers = req->n_headers,
                                .body = req->body,
                                .body_max = ANSWER_MAX,
                                .secret = true};
    int64_t latest = clock_mono_ns() + (req->patience_ns ? req->patience_ns : PATIENCE_NS);
    struct op own = *op;
    struct http *h;
    int err = client(f, req->near, op, &h);

    if (err)
        return err;
    if (own.deadline_ns > latest)
        own.deadline_ns = latest;
    err = http_run(h, &own, &http, ret);
    if (err)
        return op_fail(op, err, "%s: %s", req->what, own.why);
    err = http_status_error(ret->status);
    if (err == -EAGAIN)
        op->retry_after_ns = http_retry_after_ns(ret);
    return err ? op_fail(op, err, "%s: status %d", req->what, ret->status) : 0;
}

static int64_t pause_before(unsigned attempt)
{
    unsigned char random = 128;
    int64_t step = PAUSE_NS << (attempt < 6 ? attempt - 1 : 5);

    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return step / 2 + step / 2 * random / 255;
}

int aws_request_run(struct aws_fetch *f, struct op *op, const struct aws_request *req,
                    struct http_answer *ret)
{
    unsigned attempts = req->attempts ? req->attempts : ATTEMPTS;
    int err = 0;

    *ret = (struct http_answer){0};
    for (unsigned attempt = 1;; attempt++) {
        http_answer_release(ret);
        err = send_once(f, op, req, ret);
        if (!err_is_transient(err) || err == -EPROTO || attempt >= attempts || op_check(op))
            return err;
        if (op_sleep(op, pause_before(attempt)))
            return err;
    }
}

/* --- files --- */

static int read_all(int fd, struct buf *b)
{
    char chunk[4096];
    ssize_t got;
    int err = 0;

    while (!err && (got = read(fd, chunk, sizeof(chunk))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        err = got < 0 ? -errno : buf_add(b, chunk, (size_t)got);
    }
    OPENSSL_cleanse(chunk, sizeof(chunk));
    return err;
}

int aws_read_file(const char *path, const char *what, struct op *op, char **ret)
{
    auto_buf struct buf b = BUF_SECRET(FILE_MAX);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    int err = fd < 0 ? -errno : read_all(fd, &b);
    size_t start = 0;

    if (err)
        return op_fail(op, err == -ENOMEM ? err : -EACCES, "%s %s: %s", what, path,
                       strerror(-err));
    while (b.len && isspace((unsigned char)b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    while (start < b.len && isspace((unsigned char)b.data[start]))
        start++;
    if (start == b.len || strlen(b.data) != b.len)
        return op_fail(op, -EACCES, "%s %s: %s", what, path,
                       start == b.len ? "the file is empty" : "the file is no text");
    *ret = strdup(b.data + start);
    return *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

/* --- answers --- */

int aws_parse_expiry(const char *text, int64_t *ret_ns)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int hours = 0, minutes = 0, n = 0;
    char sign = '+';
    int64_t seconds;

    if (!end)
        return -EPROTO;
    if (*end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    if (strcmp(end, "Z") != 0 && strcmp(end, "UTC") != 0 && *end &&
        (sscanf(end, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) < 3 || end[n] ||
         (sign != '+' && sign != '-')))
        return -EPROTO;
    seconds = (int64_t)timegm(&tm);
    seconds -= (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    if (seconds < 0 || seconds > INT64_MAX / NS_PER_SEC)
        return -EPROTO;
    *ret_ns = seconds * NS_PER_SEC;
    return 0;
}

static const char *member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* {"Code": "...", "Message": "..."} of a service that has no keys to give. */
static int said_instead(const char *what, const json_t *object, struct op *op)
{
    const char *code = member(object, "Code"), *message = member(object, "Message");

    if (!code)
        code = member(object, "code");
    if (!message)
        message = member(object, "message");
    if (!code || strcmp(code, "Success") == 0)
        return op_fail(op, -EPROTO, "%s: the answer has no keys", what);
    return op_fail(op, -EACCES, "%s: %.60s%s%.120s", what, code, message ? ": " : "",
                   message ? message : "");
}

static int keys_of(const char *what, const json_t *object, const char *token_name,
                   struct op *op, struct aws_keys *ret)
{
    const char *access = member(object, "AccessKeyId");
    const char *secret = member(object, "SecretAccessKey");
    const char *expiry = member(object, "Expiration");
    int64_t expires_ns = AWS_KEYS_FOREVER;
    int err;

    if (!access || !secret)
        return said_instead(what, object, op);
    if (expiry && *expiry && aws_parse_expiry(expiry, &expires_ns))
        return op_fail(op, -EPROTO, "%s: the expiration is no time", what);
    err = aws_keys_set(ret, access, secret, member(object, token_name));
    if (err)
        return op_fail(op, err == -ENOMEM ? err : -EPROTO, "%s: unusable keys", what);
    ret->expires_ns = expires_ns;
    return 0;
}

int aws_keys_from_json(const char *what, const char *text, size_t len, const char *token_name,
                       struct op *op, struct aws_keys *ret)
{
    json_t *object = json_loadb(text ? text : "", len, 0, NULL);
    int err = json_is_object(object)
                  ? keys_of(what, object, token_name, op, ret)
                  : op_fail(op, -EPROTO, "%s: the answer is no JSON object", what);

    json_decref(object);
    return err;
}
