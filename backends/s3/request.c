/* One signed request to S3: sent, judged, and sent again where the answer tells what was wrong.
 */
#include "backends/s3/s3.h"

#include "backends/http/uri.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define URL_MAX         (64 * 1024)
#define ATTEMPTS        4 /* a wrong region, a wrong clock and old keys may meet */
#define CLOCK_SKEW_SEEN (5 * 60 * NS_PER_SEC) /* servers allow 15 minutes */

/* --- fields --- */

void s3_fields_release(struct s3_fields *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free((char *)f->items[i].name);
        free((char *)f->items[i].value);
    }
    free(f->items);
    *f = (struct s3_fields){0};
}

void s3_fields_add(struct s3_fields *f, const char *name, const char *value)
{
    struct aws_pair *items = reallocarray(f->items, f->n + 1, sizeof(*items));
    char *name_copy, *value_copy;

    if (!items) {
        f->err = -ENOMEM;
        return;
    }
    f->items = items;
    name_copy = strdup(name);
    value_copy = strdup(value);
    if (!name_copy || !value_copy) {
        free(name_copy);
        free(value_copy);
        f->err = -ENOMEM;
        return;
    }
    items[f->n++] = (struct aws_pair){name_copy, value_copy};
}

void s3_fields_addf(struct s3_fields *f, const char *name, const char *fmt, ...)
{
    auto_free char *value = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&value, fmt, ap) < 0) {
        value = NULL;
        f->err = -ENOMEM;
    }
    va_end(ap);
    if (value)
        s3_fields_add(f, name, value);
}

int s3_fields_add_header(void *arg, const char *name, const char *value)
{
    struct s3_fields *f = arg;

    s3_fields_add(f, name, value);
    return f->err;
}

/* --- a request --- */

int s3_full_key(const struct s3 *s, const char *key, bool slash, char ret[S3_KEY_MAX])
{
    const char *state = s->state_prefix ? path_below(STORE_STATE_DIR, key) : NULL;
    const char *prefix = state ? s->state_prefix : s->prefix;
    int n;

    if (state)
        key = state;
    n = snprintf(ret, S3_KEY_MAX, "%s%s%s%s", prefix, *prefix && *key ? "/" : "", key,
                 slash && (*key || *prefix) ? "/" : "");
    return n < 0 || n >= S3_KEY_MAX ? -ENAMETOOLONG : 0;
}

int s3_request_init(struct s3 *s, struct op *op, struct s3_request *r, const char *what,
                    const char *method, const char *key, bool slash)
{
    *r = (struct s3_request){.what = what, .method = method};
    if (s3_full_key(s, key, slash, r->key))
        return op_fail(op, -ENAMETOOLONG, "%s %s: the key is too long", what, s->base.url);
    return 0;
}

void s3_request_release(struct s3_request *r)
{
    s3_fields_release(&r->query);
    s3_fields_release(&r->headers);
    http_answer_release(&r->answer);
}

int s3_fail(struct s3 *s, struct op *op, const struct s3_request *r, int err, const char *text)
{
    return op_fail(op, err, "%s s3://%s/%.120s: %s", r->what, s->bucket, r->key, text);
}

/* The request in the form it is signed and sent in; rebuilt for each attempt. */
struct prepared {
    char region[AWS_REGION_MAX];
    struct aws_keys keys; /* none when anonymous */
    char host[AWS_HOST_MAX];
    char date[AWS_DATE_LEN];
    struct buf path, query, url, authorization;
    struct s3_fields headers; /* the lines: name and value */
    char **lines;
    size_t n_lines;
};

static void prepared_release(struct prepared *p)
{
    buf_release(&p->path);
    buf_release(&p->query);
    buf_release(&p->url);
    buf_release(&p->authorization);
    s3_fields_release(&p->headers);
    for (size_t i = 0; i < p->n_lines; i++)
        free(p->lines[i]);
    free(p->lines);
    aws_keys_release(&p->keys);
}

static int prepare_url(struct s3 *s, const struct s3_request *r, struct prepared *p)
{
    int err = s3_host(&s->endpoint, p->region, s->bucket, s->path_style, p->host);

    if (!err)
        err = buf_addf(&p->path, "%s/", s->endpoint.base);
    if (!err && s->path_style)
        err = buf_addf(&p->path, "%s%s", s->bucket, *r->key ? "/" : "");
    if (!err)
        err = uri_encode(&p->path, r->key, strlen(r->key), true);
    if (!err)
        err = aws_canonical_query(&p->query, r->query.items, r->query.n);
    if (err)
        return err;
    return buf_addf(&p->url, "%s://%s%s%s%s", s->endpoint.https ? "https" : "http", p->host,
                    p->path.data, r->query.n ? "?" : "", p->query.data ? p->query.data : "");
}

static int sign(struct s3 *s, const struct s3_request *r, int64_t skew_ns, struct prepared *p)
{
    const char *hash = r->payload_hash;
    struct aws_signer signer = {.access_key = p->keys.access_key,
                                .secret_key = p->keys.secret_key,
                                .region = p->region,
                                .service = "s3"};
    struct aws_signed what = {.method = r->method,
                              .path = p->path.data,
                              .query = p->query.data ? p->query.data : "",
                              .date = p->date};

    if (s->anonymous)
        return 0;
    if (!hash)
        hash = r->body && r->body->size ? AWS_UNSIGNED_PAYLOAD : AWS_EMPTY_HASH;
    aws_format_date(p->date, clock_real_ns() + skew_ns);
    s3_fields_add(&p->headers, "host", p->host);
    s3_fields_add(&p->headers, "x-amz-content-sha256", hash);
    s3_fields_add(&p->headers, "x-amz-date", p->date);
    if (p->keys.session_token)
        s3_fields_add(&p->headers, "x-amz-security-token", p->keys.session_token);
    if (p->headers.err)
        return p->headers.err;
    what.headers = p->headers.items;
    what.n_headers = p->headers.n;
    what.payload_hash = hash;
    return aws_sign(&p->authorization, &signer, &what);
}

static int add_line(struct prepared *p, const char *name, const char *value)
{
    /* curl sends a header without a value only in the form "name;". */
    return asprintf(&p->lines[p->n_lines], *value ? "%s: %s" : "%s;", name, value) < 0
               ? -ENOMEM
               : (p->n_lines++, 0);
}

static int prepare_lines(struct prepared *p)
{
    int err = 0;

    p->lines = calloc(p->headers.n + 1, sizeof(*p->lines));
    if (!p->lines)
        return -ENOMEM;
    for (size_t i = 0; i < p->headers.n && !err; i++)
        if (strcmp(p->headers.items[i].name, "host") != 0)
            err = add_line(p, p->headers.items[i].name, p->headers.items[i].value);
    if (!err && p->authorization.len)
        err = add_line(p, "authorization", p->authorization.data);
    return err;
}

static int prepare(struct s3 *s, const struct s3_request *r, int64_t skew_ns,
                   struct prepared *p)
{
    int err = r->headers.err ? r->headers.err : r->query.err;

    mutex_lock(&s->lock);
    memcpy(p->region, s->region, sizeof(p->region));
    mutex_unlock(&s->lock);
    if (!err)
        err = prepare_url(s, r, p);
    for (size_t i = 0; i < r->headers.n && !err; i++) {
        s3_fields_add(&p->headers, r->headers.items[i].name, r->headers.items[i].value);
        err = p->headers.err;
    }
    if (s->request_payer)
        s3_fields_add(&p->headers, "x-amz-request-payer", "requester");
    if (!err)
        err = p->headers.err;
    if (!err)
        err = sign(s, r, skew_ns, p);
    return err ? err : prepare_lines(p);
}

/* What a request is signed with: the server may know better. */
struct signature {
    char region[AWS_REGION_MAX];
    struct aws_keys keys;
    int64_t skew_ns; /* the server's clock less ours; set before it is sent */
};

static struct signature signature_init(struct s3 *s)
{
    return (struct signature){.skew_ns = atomic_load(&s->clock_skew_ns)};
}

/* Fails with the request's name before the text that is in op->why. */
static int fail_below(struct s3 *s, struct op *op, const struct s3_request *r, int err)
{
    char why[sizeof(op->why)];

    memcpy(why, op->why, sizeof(why));
    return s3_fail(s, op, r, err, why);
}

/* Sends it once. What http_run() says, its text with the request's name before it. */
static int send_once(struct s3 *s, struct op *op, struct s3_request *r, struct signature *with)
{
    struct prepared p = {.path = BUF_INIT(URL_MAX),
                         .query = BUF_INIT(URL_MAX),
                         .url = BUF_INIT(URL_MAX),
                         .authorization = BUF_INIT(URL_MAX)};
    struct http_request http = {.method = r->method,
                                .body = r->body,
                                .to_sink = r->to_sink,
                                .body_max = S3_XML_BODY_MAX,
                                .silence_ns = r->silence_ns,
                                .once = r->once};
    int err = s->anonymous ? 0 : aws_credentials_get(s->credentials, op, &p.keys);

    http_answer_release(&r->answer);
    if (err)
        return fail_below(s, op, r, err);
    err = prepare(s, r, with->skew_ns, &p);
    if (err) {
        prepared_release(&p);
        return s3_fail(s, op, r, err == -EFBIG ? -ENAMETOOLONG : err,
                       "the request can't be built");
    }
    http.url = p.url.data;
    http.headers = (const char *const *)p.lines;
    http.n_headers = p.n_lines;
    err = http_run(s->http, op, &http, &r->answer);
    memcpy(with->region, p.region, sizeof(p.region));
    aws_keys_release(&with->keys);
    with->keys = p.keys;
    p.keys = (struct aws_keys){0};
    prepared_release(&p);
    return err ? fail_below(s, op, r, err) : 0;
}

/* --- what an answer means --- */

int s3_code_error(const char *code)
{
    static const struct {
        const char *code;
        int err;
    } table[] = {
        {"AccessDenied", -EACCES},
        {"AllAccessDisabled", -EACCES},
        {"AuthorizationHeaderMalformed", -EACCES},
        {"BadDigest", -EIO}, /* damaged on its way, or the file changed: send it again */
        {"BucketAlreadyOwnedByYou", -EEXIST},
        {"ConditionalRequestConflict", -ESTALE},
        {"DirectoryNotEmpty", -ENOTEMPTY}, /* versitygw keeps keys as files */
        {"EntityTooLarge", -EFBIG},
        {"ErrDirectoryNotEmpty", -ENOTEMPTY},
        {"ExistingObjectIsDirectory", -EISDIR},
        {"ExpiredToken", -EACCES},
        {"IncompleteBody", -EIO},
        {"InternalError", -EIO},
        {"InvalidAccessKeyId", -EACCES},
        {"InvalidObjectState", -EACCES}, /* archived */
        {"InvalidRange", -ERANGE},
        {"InvalidToken", -EACCES},
        {"KeyTooLongError", -ENAMETOOLONG},
        {"MetadataTooLarge", -E2BIG},
        {"MethodNotAllowed", -EOPNOTSUPP},
        {"NoSuchBucket", -ENXIO},
        {"NoSuchKey", -ENOENT},
        {"NoSuchUpload", -ENOENT},
        {"NotImplemented", -EOPNOTSUPP},
        {"ObjectParentIsFile", -ENOTDIR},
        {"OperationAborted", -EAGAIN},
        {"PreconditionFailed", -ESTALE},
        {"QuotaExceeded", -ENOSPC},
        {"RequestTimeTooSkewed", -EACCES},
        {"RequestTimeout", -EAGAIN},
        {"ServiceUnavailable", -EAGAIN},
        {"SignatureDoesNotMatch", -EACCES},
        {"SlowDown", -EAGAIN},
        {"TooManyRequests", -EAGAIN},
        {"XAdminUserNotFound", -EACCES}, /* versitygw, with 404, for an unknown access key */
        {"XAmzContentChecksumMismatch", -EIO}, /* MinIO's BadDigest */
        {"XAmzContentSHA256Mismatch", -EIO},
        {"XMinioInvalidObjectName", -EILSEQ},
        {"XMinioParentIsObject", -ENOTDIR},
        {"XMinioStorageFull", -ENOSPC},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (strcmp(table[i].code, code) == 0)
            return table[i].err;
    return 0;
}

/* Takes the <Error> out of the body, or what a HEAD has instead. */
static void read_error(struct s3_request *r)
{
    const struct http_answer *a = &r->answer;
    const char *id = http_answer_header(a, "x-amz-request-id");
    const char *region = http_answer_header(a, "x-amz-bucket-region");

    if (!s3_xml_error(a->body.data, a->body.len, &r->error))
        r->error = (struct s3_error){0};
    if (!r->error.request_id[0] && id)
        (void)snprintf(r->error.request_id, sizeof(r->error.request_id), "%s", id);
    if (region)
        (void)snprintf(r->error.region, sizeof(r->error.region), "%s", region);
}

static bool is_copy(const struct s3_request *r)
{
    for (size_t i = 0; i < r->headers.n; i++)
        if (strcmp(r->headers.items[i].name, "x-amz-copy-source") == 0)
            return true;
    return false;
}

static int not_s3(struct s3_request *r, int err, const char *why)
{
    (void)snprintf(r->error.message, sizeof(r->error.message), "not S3's answer: %s", why);
    return err;
}

/* "200 ok" of something that only listens where S3 should: believed, it would cost the only
 * copy of what was to be stored. The answers that are read as XML are judged by that; those
 * about an object by s3_object_from_answer(). */
static int judge_success(struct s3_request *r)
{
    const char *text = http_answer_header(&r->answer, "etag");
    char etag[STORE_ETAG_MAX] = "";

    if (strcmp(r->method, "PUT") == 0 && !is_copy(r) &&
        (!text || s3_etag_copy(etag, text) || !*etag))
        return not_s3(r, -EPROTO, "it has no usable ETag");
    if (strcmp(r->method, "DELETE") == 0 && r->answer.body.len)
        return not_s3(r, -EPROTO, "it has a body");
    return 0;
}

/* 0, or the errno of an answer. A 200 may hold an <Error>: Complete and copies send their
 * status before they know. */
static int judge(struct s3_request *r)
{
    int err = http_status_error(r->answer.status), by_code;

    r->error = (struct s3_error){0};
    if (!err && (!r->answer.body.len ||
                 !s3_xml_error(r->answer.body.data, r->answer.body.len, &r->error)))
        return judge_success(r);
    read_error(r);
    by_code = s3_code_error(r->error.code);
    if (by_code)
        return by_code;
    /* AWS answers so to a HEAD whose keys have ended; there is nothing else to get wrong in it.
     */
    if (r->answer.status == 400 && !r->error.code[0] && strcmp(r->method, "HEAD") == 0) {
        (void)snprintf(r->error.message, sizeof(r->error.message),
                       "refused without a reason, as keys are that have ended");
        return -EACCES;
    }
    /* Only S3 knows keys, and it names what it misses: else the path leads to no bucket. */
    if (err == -ENOENT && !r->error.code[0] && strcmp(r->method, "HEAD") != 0)
        return not_s3(r, -ENXIO, "no such bucket at this endpoint");
    /* Who takes this for "not here" sends the next request without what was refused. */
    if (err == -EOPNOTSUPP && !r->error.code[0] && strcmp(r->method, "HEAD") != 0)
        return not_s3(r, -EPROTO, "it refuses without a code");
    return err ? err : -EIO;
}

/* "; the clock here is 42 min behind" when that is why nobody believes us. */
static void tell_skew(const struct s3_request *r, int err, char ret[64])
{
    int64_t skew = http_clock_skew_ns(&r->answer);

    ret[0] = '\0';
    if (err == -EACCES && (skew > CLOCK_SKEW_SEEN || skew < -CLOCK_SKEW_SEEN))
        (void)snprintf(ret, 64, "; the clock here is %lld min %s%s",
                       (long long)((skew < 0 ? -skew : skew) / NS_PER_SEC / 60),
                       skew < 0 ? "ahead" : "behind",
                       skew > HTTP_SKEW_TAKEN || skew < -HTTP_SKEW_TAKEN ? ": set it" : "");
}

static int fail_answer(struct s3 *s, struct op *op, const struct s3_request *r, int err)
{
    const struct s3_error *e = &r->error;
    char skew[64];
    const char *message = e->message[0] ? e->message : strerror(-err);

    op->retry_after_ns = err == -EAGAIN ? http_retry_after_ns(&r->answer) : 0;
    tell_skew(r, err, skew);
    return op_fail(op, err, "%s s3://%s/%.100s: %d %s%s%.150s%s%s%s", r->what, s->bucket,
                   r->key, r->answer.status, e->code, e->code[0] ? ": " : "", message, skew,
                   e->request_id[0] ? ", request " : "", e->request_id);
}

/* Whether the answer means another region without naming it. */
static bool hides_region(const struct s3_request *r)
{
    return !r->error.region[0] && (r->answer.status == 301 || r->answer.status == 307 ||
                                   strcmp(r->error.code, "AuthorizationHeaderMalformed") == 0);
}

static bool region_is_settled(struct s3 *s)
{
    bool settled;

    mutex_lock(&s->lock);
    settled = s->region_corrected;
    mutex_unlock(&s->lock);
    return settled;
}

/* Asks for the bucket itself: that answer names its region, whatever its status. */
static void ask_region(struct s3 *s, const struct op *op, struct s3_request *r)
{
    auto_request struct s3_request head = {.what = "region", .method = "HEAD"};
    struct signature used = signature_init(s);
    struct op own = *op;

    if (!send_once(s, &own, &head, &used)) {
        read_error(&head);
        memcpy(r->error.region, head.error.region, sizeof(r->error.region));
    }
    aws_keys_release(&used.keys);
}

/* True when the answer named another region than the one that was signed for: adopted once. */
static bool adopt_region(struct s3 *s, const struct op *op, struct s3_request *r,
                         const char *used)
{
    bool again = false;

    if (r->answer.status != 301 && r->answer.status != 307 && r->answer.status != 400)
        return false;
    if (hides_region(r) && !region_is_settled(s))
        ask_region(s, op, r);
    if (!aws_region_ok(r->error.region) || strcmp(r->error.region, used) == 0)
        return false;
    mutex_lock(&s->lock);
    if (!s->region_corrected) {
        memcpy(s->region, r->error.region, sizeof(s->region));
        s->region_corrected = true;
    }
    again = strcmp(s->region, used) != 0;
    mutex_unlock(&s->lock);
    return again;
}

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

static bool blames_clock(const struct s3_request *r)
{
    return strcmp(r->error.code, "RequestTimeTooSkewed") == 0;
}

/* The answer to a HEAD has no code: where its date makes the clock a suspect, the bucket is
 * asked in a way that has one. True when that is it; *ret is the server's clock less ours. */
static bool ask_clock(struct s3 *s, const struct op *op, const struct signature *used,
                      int64_t *ret)
{
    auto_request struct s3_request get = {.what = "clock", .method = "GET"};
    struct signature own_used = {.skew_ns = used->skew_ns};
    struct op own = *op;
    bool blamed = false;

    s3_fields_add(&get.query, "list-type", "2");
    s3_fields_add(&get.query, "max-keys", "0");
    if (!send_once(s, &own, &get, &own_used) && judge(&get)) {
        blamed = blames_clock(&get);
        *ret = http_clock_skew_ns(&get.answer);
    }
    aws_keys_release(&own_used.keys);
    return blamed;
}

/* True when the server says that the time is wrong which was signed with, and tells another:
 * the next attempt is signed with that. Only its success makes it the clock of the store, and
 * no date is taken that is far from ours: what is signed for a time to come can be kept by who
 * sees it, and be sent again then. */
static bool try_clock(struct s3 *s, const struct op *op, const struct s3_request *r,
                      struct signature *used)
{
    int64_t skew = http_clock_skew_ns(&r->answer);
    bool suspect = !r->error.code[0] && r->answer.status == 403 &&
                   strcmp(r->method, "HEAD") == 0 &&
                   distance(skew, used->skew_ns) >= CLOCK_SKEW_SEEN;

    if (s->anonymous || (!blames_clock(r) && !(suspect && ask_clock(s, op, used, &skew))) ||
        distance(skew, used->skew_ns) < NS_PER_SEC * 2 || distance(skew, 0) > HTTP_SKEW_TAKEN)
        return false;
    used->skew_ns = skew;
    return true;
}

/* A request succeeded: what it was signed with is right. */
static void adopt_clock(struct s3 *s, int64_t skew_ns)
{
    if (atomic_exchange(&s->clock_skew_ns, skew_ns) != skew_ns)
        log_warn("%s has another clock: requests are signed for %+" PRId64 " s from the time "
                 "here",
                 s->base.url, skew_ns / NS_PER_SEC);
}

/* Whether the answer is about the keys: 1 for certain, -1 when it may be (the answer to a HEAD
 * has no code), 0 when not. */
static int blames_keys(const struct s3_request *r)
{
    static const char *const codes[] = {
        "ExpiredToken",       "ExpiredTokenException", "InvalidAccessKeyId",
        "InvalidToken",       "TokenRefreshRequired",  "InvalidClientTokenId",
        "XAdminUserNotFound", "SignatureDoesNotMatch", "InvalidSecurity"};
    int status = r->answer.status;

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(r->error.code, codes[i]) == 0)
            return 1;
    return !r->error.code[0] && (status == 400 || status == 401 || status == 403) ? -1 : 0;
}

/* True when the keys were refused and there are others now. What went wrong in the search for
 * them is added to the answer's own message. */
static bool adopt_keys(struct s3 *s, const struct op *op, struct s3_request *r,
                       const struct aws_keys *used)
{
    int blamed = s->credentials ? blames_keys(r) : 0;
    size_t len = strlen(r->error.message);
    struct op own = *op;
    bool others;

    if (!blamed)
        return false;
    own.why[0] = '\0';
    others = aws_credentials_refused(s->credentials, &own, used, blamed > 0);
    if (!others && own.why[0])
        (void)snprintf(r->error.message + len, sizeof(r->error.message) - len, "; new keys: %s",
                       own.why);
    return others;
}

/* Whether something was learned from the failure *err, so that another attempt can do better.
 */
static bool learn(struct s3 *s, struct op *op, struct s3_request *r, struct signature *used,
                  bool *dropped, int *err)
{
    if (adopt_region(s, op, r, used->region) || try_clock(s, op, r, used) ||
        adopt_keys(s, op, r, &used->keys))
        return true;
    if (*dropped || !s3_checksum_refused(r))
        return false;
    *dropped = true;
    *err = s3_drop_checksum(op, r);
    return !*err;
}

int s3_run(struct s3 *s, struct op *op, struct s3_request *r)
{
    struct signature used = signature_init(s);
    const int64_t known_skew_ns = used.skew_ns;
    bool dropped = false;
    int err;

    for (int attempt = 1;; attempt++) {
        err = send_once(s, op, r, &used);
        if (err)
            break;
        err = judge(r);
        if (!err) {
            if (used.skew_ns != known_skew_ns)
                adopt_clock(s, used.skew_ns);
            break;
        }
        if (attempt == ATTEMPTS || !learn(s, op, r, &used, &dropped, &err)) {
            err = fail_answer(s, op, r, err);
            break;
        }
    }
    if (!err && dropped) /* that was it */
        atomic_store(&s->no_checksums, true);
    aws_keys_release(&used.keys);
    return err;
}
