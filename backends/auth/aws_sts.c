/* Keys of a role from AWS's Security Token Service: a form is posted, XML comes back. */
#include "backends/auth/aws_http.h"

#include "backends/auth/aws_endpoint.h"
#include "backends/auth/aws_sign.h"
#include "backends/http/uri.h"
#include "backends/http/xml.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FORM_MAX        (96 * 1024)
#define LINE_MAX_BYTES  (72 * 1024)
#define CLOCK_SKEW_SEEN (5 * 60 * NS_PER_SEC)
#define FORM_TYPE       "application/x-www-form-urlencoded; charset=utf-8"

/* One call on its way. */
struct sts {
    const char *what;   /* for messages */
    const char *action; /* "AssumeRole" */
    const struct aws_role *role;
    struct aws_endpoint endpoint;
    char host[AWS_HOST_MAX];
    char region[AWS_REGION_MAX];
    char path[AWS_HOST_MAX + 1];
    struct buf form;
    char *lines[8]; /* headers */
    size_t n_lines;
};

static void release_lines(struct sts *c)
{
    while (c->n_lines)
        aws_free_secret(c->lines[--c->n_lines]);
}

static void sts_release(struct sts *c)
{
    buf_release(&c->form);
    release_lines(c);
}

/* The region's own endpoint; without a region the one that serves all of them. */
static int place(struct sts *c, struct op *op)
{
    const char *region = c->role->region ? c->role->region : "us-east-1";
    const char *suffix = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
    int err = aws_endpoint_parse(c->role->endpoint, op, &c->endpoint);

    if (err)
        return err;
    if (!aws_region_ok(region))
        return op_fail(op, -EINVAL, "%s: region \"%.60s\" can't be one", c->what, region);
    (void)snprintf(c->region, sizeof(c->region), "%s", region);
    if (c->endpoint.custom)
        (void)snprintf(c->host, sizeof(c->host), "%s", c->endpoint.host);
    else if (c->role->region)
        (void)snprintf(c->host, sizeof(c->host), "sts.%s.amazonaws.com%s", region, suffix);
    else
        (void)snprintf(c->host, sizeof(c->host), "sts.amazonaws.com");
    (void)snprintf(c->path, sizeof(c->path), "%s",
                   c->endpoint.base[0] ? c->endpoint.base : "/");
    return 0;
}

static int add_field(struct sts *c, const char *name, const char *value)
{
    int err = value ? buf_addf(&c->form, "&%s=", name) : 0;

    return err || !value ? err : uri_encode(&c->form, value, strlen(value), false);
}

static int build_form(struct sts *c, const char *token)
{
    char session[64];
    int err = buf_addf(&c->form, "Action=%s&Version=2011-06-15", c->action);

    (void)snprintf(session, sizeof(session), "runfs-%lld",
                   (long long)(clock_real_ns() / NS_PER_SEC));
    if (!err)
        err = add_field(c, "RoleArn", c->role->arn);
    if (!err)
        err = add_field(c, "RoleSessionName",
                        c->role->session_name ? c->role->session_name : session);
    if (!err)
        err = add_field(c, "DurationSeconds", c->role->duration);
    if (!err)
        err = add_field(c, "ExternalId", c->role->external_id);
    return err ? err : add_field(c, "WebIdentityToken", token);
}

static int add_line(struct sts *c, const char *name, const char *value)
{
    if (c->n_lines == ARRAY_SIZE(c->lines) ||
        asprintf(&c->lines[c->n_lines], "%s: %s", name, value) < 0)
        return -ENOMEM;
    c->n_lines++;
    return 0;
}

static int sign(struct sts *c, const struct aws_keys *keys, int64_t clock_ns)
{
    auto_buf struct buf authorization = BUF_INIT(LINE_MAX_BYTES);
    char date[AWS_DATE_LEN], hash[AWS_HASH_HEX];
    struct aws_pair headers[4] = {
        {"content-type", FORM_TYPE},
        {"host", c->host},
        {"x-amz-date", date},
        {"x-amz-security-token", keys->session_token},
    };
    struct aws_signer signer = {.access_key = keys->access_key,
                                .secret_key = keys->secret_key,
                                .region = c->region,
                                .service = "sts"};
    struct aws_signed what = {.method = "POST",
                              .path = c->path,
                              .query = "",
                              .headers = headers,
                              .n_headers = keys->session_token ? 4 : 3,
                              .payload_hash = hash,
                              .date = date};
    int err = aws_sha256_hex(hash, c->form.data, c->form.len);

    aws_format_date(date, clock_ns);
    if (!err)
        err = aws_sign(&authorization, &signer, &what);
    if (!err)
        err = add_line(c, "x-amz-date", date);
    if (!err && keys->session_token)
        err = add_line(c, "x-amz-security-token", keys->session_token);
    return err ? err : add_line(c, "authorization", authorization.data);
}

/* <ErrorResponse><Error><Code>: the text behind the status. */
static int refused(const struct sts *c, const struct http_answer *a, int err, struct op *op)
{
    auto_free char *code = NULL, *message = NULL;

    if (!a->status)
        return err; /* no answer: the text is there */
    (void)xml_text(a->body.data, a->body.len, "ErrorResponse/Error/Code", &code);
    (void)xml_text(a->body.data, a->body.len, "ErrorResponse/Error/Message", &message);
    if (code && strcmp(code, "Throttling") == 0)
        err = -EAGAIN;
    if (code && strcmp(code, "IDPCommunicationError") == 0)
        err = -EAGAIN;
    return op_fail(op, aws_refusal(err), "%s of %.80s: %d %.60s%s%.120s", c->what, c->role->arn,
                   a->status, code ? code : "", message ? ": " : "", message ? message : "");
}

static int text_of(const struct sts *c, const struct http_answer *a, const char *name,
                   char **ret)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%sResponse/%sResult/Credentials/%s", c->action,
                   c->action, name);
    return xml_text(a->body.data, a->body.len, path, ret);
}

static int keys_of(const struct sts *c, const struct http_answer *a, struct op *op,
                   struct aws_keys *ret)
{
    auto_free char *access = NULL, *expiry = NULL;
    char *secret = NULL, *token = NULL;
    int64_t expires_ns = AWS_KEYS_FOREVER;
    int err = text_of(c, a, "AccessKeyId", &access);

    if (!err)
        err = text_of(c, a, "SecretAccessKey", &secret);
    if (!err)
        err = text_of(c, a, "SessionToken", &token);
    if (!err)
        err = text_of(c, a, "Expiration", &expiry);
    if (!err)
        err = aws_parse_expiry(expiry, &expires_ns);
    if (!err)
        err = aws_keys_set(ret, access, secret, token);
    aws_free_secret(secret);
    aws_free_secret(token);
    if (err)
        return op_fail(op, err == -ENOMEM ? err : -EPROTO, "%s of %.80s: no keys in the answer",
                       c->what, c->role->arn);
    ret->expires_ns = expires_ns;
    return 0;
}

/* What STS answers to who signs for a wrong time. */
static bool may_blame_clock(const struct http_answer *a)
{
    static const char *const codes[] = {"SignatureDoesNotMatch", "RequestExpired",
                                        "RequestTimeTooSkewed", "InvalidSignatureException"};
    auto_free char *code = NULL;

    (void)xml_text(a->body.data, a->body.len, "ErrorResponse/Error/Code", &code);
    for (size_t i = 0; code && i < ARRAY_SIZE(codes); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

/* True when STS has another time than *skew_ns made of ours; then that is in it. No time is
 * taken that is far from ours (s3/request.c). */
static bool try_clock(const struct http_answer *a, int64_t *skew_ns)
{
    int64_t skew = a->status ? http_clock_skew_ns(a) : 0;
    int64_t change = skew > *skew_ns ? skew - *skew_ns : *skew_ns - skew;

    if (change < CLOCK_SKEW_SEEN || skew > HTTP_SKEW_TAKEN || skew < -HTTP_SKEW_TAKEN ||
        !may_blame_clock(a))
        return false;
    *skew_ns = skew;
    return true;
}

/* *again says whether a wrong clock may be corrected, and after it whether it was: then the
 * request has to be signed again. */
static int post(struct aws_fetch *f, struct op *op, struct sts *c, int64_t *skew_ns,
                struct aws_keys *ret, bool *again)
{
    auto_aws_answer struct http_answer answer = {0};
    char url[2 * AWS_HOST_MAX + 16];
    struct mem_source body;
    struct aws_request req = {.what = c->what,
                              .method = "POST",
                              .url = url,
                              .headers = (const char *const *)c->lines,
                              .n_headers = c->n_lines,
                              .body = &body.base};
    bool may = *again;
    int err;

    *again = false;
    (void)snprintf(url, sizeof(url), "%s://%s%s", c->endpoint.https ? "https" : "http", c->host,
                   c->path);
    mem_source_init(&body, c->form.data, c->form.len);
    err = aws_request_run(f, op, &req, &answer);
    if (!err) {
        f->clock_skew_ns = *skew_ns; /* what it was signed with is right */
        return keys_of(c, &answer, op, ret);
    }
    *again = may && (err == -EACCES || err == -EINVAL) && try_clock(&answer, skew_ns);
    return *again ? err : refused(c, &answer, err, op);
}

/* `source` signs; without it `token` vouches. */
static int call(struct aws_fetch *f, struct op *op, struct sts *c,
                const struct aws_keys *source, const char *token, struct aws_keys *ret)
{
    int64_t skew_ns = f->clock_skew_ns;
    int err = place(c, op);

    if (err)
        return err;
    err = build_form(c, token);
    for (int attempt = 1; !err; attempt++) {
        bool again = attempt == 1;

        release_lines(c);
        err = add_line(c, "content-type", FORM_TYPE);
        if (!err && source)
            err = sign(c, source, clock_real_ns() + skew_ns);
        if (err)
            break;
        err = post(f, op, c, &skew_ns, ret, &again);
        if (!again)
            return err;
        err = 0;
    }
    return op_fail(op, err == -EFBIG ? -EINVAL : err, "%s: the request can't be built",
                   c->what);
}

int aws_fetch_role(struct aws_fetch *f, struct op *op, const struct aws_role *role,
                   const struct aws_keys *source, struct aws_keys *ret)
{
    struct sts c = {.what = "STS AssumeRole",
                    .action = "AssumeRole",
                    .role = role,
                    .form = BUF_SECRET(FORM_MAX)};
    int err = call(f, op, &c, source, NULL, ret);

    sts_release(&c);
    return err;
}

int aws_fetch_web_identity(struct aws_fetch *f, struct op *op, const struct aws_role *role,
                           struct aws_keys *ret)
{
    struct sts c = {.what = "STS AssumeRoleWithWebIdentity",
                    .action = "AssumeRoleWithWebIdentity",
                    .role = role,
                    .form = BUF_SECRET(FORM_MAX)};
    char *token = NULL;
    int err = aws_read_file(role->token_file, "web identity token", op, &token);

    if (!err)
        err = call(f, op, &c, NULL, token, ret);
    aws_free_secret(token);
    sts_release(&c);
    return err;
}
