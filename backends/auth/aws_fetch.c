/* Keys from AWS's services that answer with JSON: the SSO portal, containers, instances. */
#include "backends/auth/aws_fetch.h"

#include "backends/auth/aws_endpoint.h"
#include "backends/auth/aws_http.h"
#include "backends/auth/aws_profile.h"
#include "backends/http/uri.h"
#include "common/mem.h"
#include "common/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define URL_MAX      4096
#define SHA1_BYTES   20
#define ROLE_MAX     256
#define LATE_KEYS_NS (10 * 60 * NS_PER_SEC) /* see aws_fetch_instance() */

/* The errno and text of an answer that is no 2xx; what it says itself comes first. */
static int refused(const char *what, const struct http_answer *a, int err, struct op *op)
{
    struct op said = *op;
    struct aws_keys none = {0};

    if (!a->status)
        return err;
    if (aws_keys_from_json(what, a->body.data, a->body.len, "Token", &said, &none) == -EACCES)
        return op_fail(op, aws_refusal(err), "%s (status %d)", said.why, a->status);
    aws_keys_release(&none);
    return op_fail(op, aws_refusal(err), "%s: status %d", what, a->status);
}

/* --- SSO --- */

static char *sso_cache_path(const char *name)
{
    unsigned char hash[SHA1_BYTES];
    char path[64] = ".aws/sso/cache/";
    size_t at = strlen(path);

    if (!EVP_Digest(name, strlen(name), hash, NULL, EVP_sha1(), NULL))
        return NULL;
    for (size_t i = 0; i < sizeof(hash); i++, at += 2)
        (void)snprintf(path + at, sizeof(path) - at, "%02x", hash[i]);
    (void)snprintf(path + at, sizeof(path) - at, ".json");
    return aws_home_path(path);
}

static int login_token(const char *path, const char *text, struct op *op, char **ret)
{
    json_t *login = json_loads(text, 0, NULL);
    const char *token = json_string_value(json_object_get(login, "accessToken"));
    const char *expiry = json_string_value(json_object_get(login, "expiresAt"));
    int64_t expires_ns = 0;
    int err = 0;

    if (!token || !expiry || aws_parse_expiry(expiry, &expires_ns))
        err = op_fail(op, -EACCES, "%s is no login of `aws sso login`", path);
    else if (expires_ns <= clock_real_ns())
        err = op_fail(op, -EACCES, "the SSO login ended at %.30s: run `aws sso login` again",
                      expiry);
    else if (!(*ret = strdup(token)))
        err = op_fail(op, -ENOMEM, "out of memory");
    json_decref(login);
    return err;
}

/* The token that `aws sso login` left. */
static int sso_token(const struct aws_sso *sso, struct op *op, char **ret)
{
    auto_free char *path = sso_cache_path(sso->cache_name);
    char *text = NULL;
    int err;

    if (!path)
        return op_fail(op, -ENOMEM, "out of memory");
    err = aws_read_file(path, "no SSO login (run `aws sso login`):", op, &text);
    if (!err)
        err = login_token(path, text, op, ret);
    aws_free_secret(text);
    return err;
}

static int sso_url(const struct aws_sso *sso, struct op *op, struct buf *url)
{
    struct aws_endpoint e;
    int err = aws_endpoint_parse(sso->endpoint, op, &e);

    if (!err && !aws_region_ok(sso->region))
        err = op_fail(op, -EINVAL, "SSO: region \"%.60s\" can't be one", sso->region);
    if (err)
        return err;
    if (e.custom)
        err = buf_addf(url, "%s://%s%s", e.https ? "https" : "http", e.host, e.base);
    else
        err = buf_addf(url, "https://portal.sso.%s.amazonaws.com%s", sso->region,
                       strncmp(sso->region, "cn-", 3) == 0 ? ".cn" : "");
    if (!err)
        err = buf_adds(url, "/federation/credentials?account_id=");
    if (!err)
        err = uri_encode(url, sso->account_id, strlen(sso->account_id), false);
    if (!err)
        err = buf_adds(url, "&role_name=");
    if (!err)
        err = uri_encode(url, sso->role_name, strlen(sso->role_name), false);
    return err ? op_fail(op, err == -EFBIG ? -EINVAL : err, "SSO: the request can't be built")
               : 0;
}

/* Their own spelling, and milliseconds. */
static int sso_keys(const struct http_answer *a, struct op *op, struct aws_keys *ret)
{
    json_t *answer = json_loadb(a->body.data ? a->body.data : "", a->body.len, 0, NULL);
    const json_t *keys = json_object_get(answer, "roleCredentials");
    json_int_t expires_ms = json_integer_value(json_object_get(keys, "expiration"));
    int err = aws_keys_set(ret, json_string_value(json_object_get(keys, "accessKeyId")),
                           json_string_value(json_object_get(keys, "secretAccessKey")),
                           json_string_value(json_object_get(keys, "sessionToken")));

    if (err)
        err = op_fail(op, err == -ENOMEM ? err : -EPROTO, "SSO: no keys in the answer");
    else if (expires_ms > 0 && expires_ms < INT64_MAX / NS_PER_MS)
        ret->expires_ns = expires_ms * NS_PER_MS;
    json_decref(answer);
    return err;
}

int aws_fetch_sso(struct aws_fetch *f, struct op *op, const struct aws_sso *sso,
                  struct aws_keys *ret)
{
    auto_aws_answer struct http_answer answer = {0};
    auto_buf struct buf url = BUF_INIT(URL_MAX);
    char *token = NULL, *line = NULL;
    struct aws_request req = {.what = "SSO", .method = "GET"};
    int err = sso_url(sso, op, &url);

    if (!err)
        err = sso_token(sso, op, &token);
    if (!err && asprintf(&line, "x-amz-sso_bearer_token: %s", token) < 0) {
        line = NULL;
        err = op_fail(op, -ENOMEM, "out of memory");
    }
    if (!err) {
        req.url = url.data;
        req.headers = (const char *const *)&line;
        req.n_headers = 1;
        err = aws_request_run(f, op, &req, &answer);
        err = err ? refused("SSO", &answer, err, op) : sso_keys(&answer, op, ret);
    }
    aws_free_secret(token);
    aws_free_secret(line);
    return err;
}

/* --- containers --- */

/* Whether plain HTTP to this host stays on the machine. */
static bool host_is_near(const char *url)
{
    static const char *const known[] = {"localhost", "169.254.170.2", "169.254.170.23",
                                        "fd00:ec2::23", "::1"};
    const char *host = strstr(url, "://") + 3;
    char name[128];
    struct in_addr addr;
    size_t len;

    if (*host == '[')
        len = strcspn(++host, "]");
    else
        len = strcspn(host, ":/?#");
    if (len >= sizeof(name) || memchr(host, '@', strcspn(host, "/?#")))
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcasecmp(name, known[i]) == 0)
            return true;
    return inet_pton(AF_INET, name, &addr) == 1 && ntohl(addr.s_addr) >> 24 == 127;
}

/* 1 with the URL, 0 when no variable names one. */
static int container_url(char ret[URL_MAX], bool *ret_near, struct op *op)
{
    const char *relative = aws_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = aws_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    int n = relative ? snprintf(ret, URL_MAX, "http://169.254.170.2%s", relative)
            : full   ? snprintf(ret, URL_MAX, "%s", full)
                     : 0;

    if (!relative && !full)
        return 0;
    if (n >= URL_MAX || strpbrk(ret, " \t\r\n") || (relative && *relative != '/'))
        return op_fail(op, -EINVAL, "AWS_CONTAINER_CREDENTIALS_%s_URI can't be one",
                       relative ? "RELATIVE" : "FULL");
    *ret_near = strncasecmp(ret, "http://", 7) == 0;
    if (*ret_near ? !host_is_near(ret) : strncasecmp(ret, "https://", 8) != 0)
        return op_fail(op, -EINVAL,
                       "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https or lead to this "
                       "machine, 169.254.170.2 or 169.254.170.23");
    return 1;
}

/* The Authorization header; NULL without one. */
static int container_line(struct op *op, char **ret)
{
    const char *path = aws_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = aws_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *token = NULL;
    int err = 0;

    *ret = NULL;
    if (path)
        err = aws_read_file(path, "container token", op, &token);
    else if (given && !(token = strdup(given)))
        err = op_fail(op, -ENOMEM, "out of memory");
    if (!err && token && strpbrk(token, "\r\n"))
        err = op_fail(op, -EINVAL, "the container token has several lines");
    if (!err && token && asprintf(ret, "Authorization: %s", token) < 0) {
        *ret = NULL;
        err = op_fail(op, -ENOMEM, "out of memory");
    }
    aws_free_secret(token);
    return err;
}

int aws_fetch_container(struct aws_fetch *f, struct op *op, struct aws_keys *ret)
{
    auto_aws_answer struct http_answer answer = {0};
    char url[URL_MAX], *line = NULL;
    struct aws_request req = {.what = "the container's credentials", .method = "GET"};
    int r = container_url(url, &req.near, op), err;

    if (r <= 0)
        return r;
    err = container_line(op, &line);
    if (err)
        return err;
    req.url = url;
    req.headers = (const char *const *)&line;
    req.n_headers = line ? 1 : 0;
    err = aws_request_run(f, op, &req, &answer);
    aws_free_secret(line);
    if (err)
        return refused(req.what, &answer, err, op);
    err = aws_keys_from_json(req.what, answer.body.data, answer.body.len, "Token", op, ret);
    return err ? err : 1;
}

/* --- instances --- */

static const char *const instance = "the instance metadata service";

static void instance_base(char ret[URL_MAX / 4])
{
    const char *named = aws_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = aws_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    size_t len;

    if (!named)
        named = mode && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]"
                                                      : "http://169.254.169.254";
    (void)snprintf(ret, URL_MAX / 4, "%s", named);
    for (len = strlen(ret); len && ret[len - 1] == '/';)
        ret[--len] = '\0';
}

/* GET (or PUT, for the token) below the endpoint. */
static int instance_ask(struct aws_fetch *f, struct op *op, const char *method,
                        const char *path, const char *header, struct http_answer *ret)
{
    const char *attempts = aws_env("AWS_METADATA_SERVICE_NUM_ATTEMPTS");
    const char *timeout = aws_env("AWS_METADATA_SERVICE_TIMEOUT");
    char base[URL_MAX / 4], url[URL_MAX];
    struct aws_request req = {.what = instance,
                              .method = method,
                              .url = url,
                              .headers = &header,
                              .n_headers = 1,
                              .near = true,
                              .attempts = attempts ? (unsigned)atoi(attempts) : 1,
                              .patience_ns = NS_PER_SEC};

    if (timeout && parse_time(timeout, &req.patience_ns))
        req.patience_ns = NS_PER_SEC;
    if (req.attempts == 0 || req.attempts > 10)
        req.attempts = 1;
    instance_base(base);
    (void)snprintf(url, sizeof(url), "%s%s", base, path);
    return aws_request_run(f, op, &req, ret);
}

/* The header with a session token, heap. */
static int instance_token(struct aws_fetch *f, struct op *op, char **ret)
{
    auto_aws_answer struct http_answer answer = {0};
    int err = instance_ask(f, op, "PUT", "/latest/api/token",
                           "X-aws-ec2-metadata-token-ttl-seconds: 300", &answer);

    if (err)
        return err;
    if (!answer.body.len || strlen(answer.body.data) != answer.body.len ||
        strpbrk(answer.body.data, " \r\n"))
        return op_fail(op, -EPROTO, "%s: the answer has no token", instance);
    if (asprintf(ret, "X-aws-ec2-metadata-token: %s", answer.body.data) < 0) {
        *ret = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    return 0;
}

static int instance_role(struct aws_fetch *f, struct op *op, const char *header,
                         char ret[ROLE_MAX])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789+=,.@_-";
    auto_aws_answer struct http_answer answer = {0};
    size_t len;
    int err = instance_ask(f, op, "GET", "/latest/meta-data/iam/security-credentials/", header,
                           &answer);

    if (err)
        return err;
    len = answer.body.data ? strspn(answer.body.data, allowed) : 0;
    if (len == 0 || len >= ROLE_MAX || (answer.body.data[len] && answer.body.data[len] != '\n'))
        return op_fail(op, -EPROTO, "%s: the answer names no role", instance);
    memcpy(ret, answer.body.data, len);
    ret[len] = '\0';
    return 0;
}

static int instance_keys(struct aws_fetch *f, struct op *op, const char *header,
                         const char *role, struct aws_keys *ret)
{
    auto_aws_answer struct http_answer answer = {0};
    char path[ROLE_MAX + 64];
    int err;

    (void)snprintf(path, sizeof(path), "/latest/meta-data/iam/security-credentials/%s", role);
    err = instance_ask(f, op, "GET", path, header, &answer);
    if (err)
        return refused(instance, &answer, err, op);
    return aws_keys_from_json(instance, answer.body.data, answer.body.len, "Token", op, ret);
}

/* Whether the service is just not there, or has no role to give. */
static bool nobody(int err)
{
    return err != -EINTR && err != -ENOMEM;
}

int aws_fetch_instance(struct aws_fetch *f, struct op *op, struct aws_keys *ret)
{
    char role[ROLE_MAX], *header = NULL;
    int err;

    if (aws_env_true("AWS_EC2_METADATA_DISABLED")) {
        (void)op_fail(op, -ENOENT, "%s is turned off", instance);
        return 0;
    }
    err = instance_token(f, op, &header);
    if (err)
        return nobody(err) ? 0 : err;
    err = instance_role(f, op, header, role);
    if (err == -ENOENT) {
        (void)op_fail(op, err, "%s knows no role of this instance", instance);
        err = 0;
    } else if (!err) {
        err = instance_keys(f, op, header, role, ret);
        /* In an outage it hands out keys that have expired, which S3 then still takes. */
        if (!err && ret->expires_ns < clock_real_ns())
            ret->expires_ns = clock_real_ns() + LATE_KEYS_NS;
        err = err ? err : 1;
    }
    aws_free_secret(header);
    return err;
}
