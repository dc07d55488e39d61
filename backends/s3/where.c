/* Where a bucket's prefix is, and which key in it a URL names: s3://, s3a:// and s3n:// with
 * the key's bytes, or https:// of the endpoint with the bucket in the path or in the host. */
#include "backends/s3/s3.h"

#include "backends/drivers.h"
#include "backends/http/uri.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- AWS's hosts ---- */

/* "s3", or "s3-eu-west-1" and "s3-fips" of older names; the other services behind "s3-" serve
 * no bucket by its name. */
static bool is_service_label(const char *label, size_t len)
{
    static const char *const others[] = {"s3-accesspoint", "s3-outposts", "s3-object-lambda",
                                         "s3-website", "s3-control"};

    if (len < 2 || memcmp(label, "s3", 2) != 0 || (len > 2 && label[2] != '-'))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (len >= strlen(others[i]) && memcmp(label, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return len > end_len && strcmp(text + len - end_len, end) == 0;
}

/* Where the service's name begins in a host of AWS's S3, behind a bucket; NULL: another host. A
 * bucket may have a label "s3", too. */
static const char *aws_service(const char *host)
{
    const char *found = NULL;

    if (!ends_with(host, ".amazonaws.com") && !ends_with(host, ".amazonaws.com.cn"))
        return NULL;
    for (const char *label = host; label; label = strchr(label, '.')) {
        label += *label == '.';
        if (is_service_label(label, strcspn(label, ".")))
            found = label;
    }
    return found;
}

/* A bucket's name is one bucket's in all regions of a partition. */
static const char *aws_partition(const char *region_or_host)
{
    if (strncmp(region_or_host, "cn-", 3) == 0 ||
        ends_with(region_or_host, ".amazonaws.com.cn"))
        return "s3 https://s3.amazonaws.com.cn";
    if (strstr(region_or_host, "us-gov-"))
        return "s3 https://s3.us-gov.amazonaws.com";
    return "s3 https://s3.amazonaws.com";
}

/* ---- places ---- */

/* "s3 https://HOST" of an endpoint without its path; one name for all of AWS's. Heap. */
static char *origin_of(const struct aws_endpoint *e, const char *region)
{
    char *origin;

    if (!e->custom || aws_service(e->host))
        return strdup(aws_partition(e->custom ? e->host : region));
    return asprintf(&origin, "s3 %s://%s", e->https ? "https" : "http", e->host) < 0 ? NULL
                                                                                     : origin;
}

static char *server_of(const struct aws_endpoint *e, const char *region, const char *bucket)
{
    auto_free char *origin = origin_of(e, region);
    char *server;

    return !origin || asprintf(&server, "%s%s/%s", origin, e->base, bucket) < 0 ? NULL : server;
}

int s3_where(const char *url, const struct store_config *config, struct op *op,
             struct store_where *ret)
{
    struct s3 *s = calloc(1, sizeof(*s));

    if (!s)
        return op_fail(op, -ENOMEM, "out of memory");
    mutex_init(&s->lock);
    int err = s3_configure(s, url, config, op);
    if (!err) {
        ret->server = server_of(&s->endpoint, s->region, s->bucket);
        ret->root = take_ptr(s->prefix);
        ret->state = take_ptr(s->state_prefix);
        err = ret->server ? 0 : op_fail(op, -ENOMEM, "out of memory");
    }
    s3_close(&s->base);
    return err;
}

/* ---- keys of URLs ---- */

static int elsewhere(const struct store_where *w, const char *url, struct op *op)
{
    auto_free char *shown = store_url_redact(url);

    return op_fail(op, -ENOENT, "%s is not in %s%s%s", shown ? shown : "the URL",
                   w->server + strlen("s3 "), *w->root ? "/" : "", w->root);
}

/* The key below the root of what `path` names in the bucket. */
static int key_below(const struct store_where *w, const char *url, const char *path,
                     struct op *op, char **ret_key)
{
    size_t len = strlen(path);

    while (len && path[len - 1] == '/')
        len--;
    auto_free char *all = strndup(path, len);
    if (!all)
        return op_fail(op, -ENOMEM, "out of memory");
    const char *below = path_key_safe(all, STORE_KEY_MAX) ? path_below(w->root, all) : NULL;
    if (!below)
        return elsewhere(w, url, op);
    *ret_key = strdup(below);
    return *ret_key ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static bool is_bucket(const struct store_where *w, const char *name, size_t len)
{
    const char *bucket = strrchr(w->server, '/') + 1;

    return strlen(bucket) == len && memcmp(bucket, name, len) == 0;
}

/* Behind s3://. */
static int key_of_bucket_form(const struct store_where *w, const char *url, const char *name,
                              struct op *op, char **ret_key)
{
    size_t len = strcspn(name, "/");

    if (!is_bucket(w, name, len))
        return elsewhere(w, url, op);
    return key_below(w, url, name + len + strspn(name + len, "/"), op, ret_key);
}

/* The path of an http URL, decoded. Heap; NULL: broken, or a NUL in it, or no memory. */
static char *decoded_path(const char *path)
{
    auto_free char *copy = strndup(path, strcspn(path, "?#"));
    ssize_t len = copy ? uri_decode(copy, false) : -1;

    return len < 0 || strlen(copy) != (size_t)len ? NULL : take_ptr(copy);
}

/* What is behind `head` in a path; NULL: it does not begin so. */
static const char *behind(const char *path, const char *head, size_t len)
{
    if (strncmp(path, head, len) != 0 || (path[len] && path[len] != '/'))
        return NULL;
    return path + len + (path[len] == '/');
}

/* The bucket in the path: "/base/bucket/key" where the server is "s3 https://host/base/bucket".
 */
static const char *key_in_path(const struct store_where *w, const struct aws_endpoint *e,
                               const char *path)
{
    auto_free char *origin = origin_of(e, "");
    const char *head = origin ? behind(w->server, origin, strlen(origin)) : NULL;

    return head ? behind(path, head - 1, strlen(head - 1)) : NULL;
}

/* The bucket in front of the host. */
static const char *key_in_host(const struct store_where *w, const struct aws_endpoint *e,
                               const char *path)
{
    const char *bucket = strrchr(w->server, '/') + 1, *service = aws_service(e->host);
    size_t len = service ? (size_t)(service - e->host) : strlen(bucket) + 1;
    struct aws_endpoint server = *e;

    if (len == 0 || len >= strlen(e->host) || e->host[len - 1] != '.' ||
        strlen(bucket) != len - 1 || strncasecmp(e->host, bucket, len - 1) != 0)
        return NULL;
    (void)snprintf(server.host, sizeof(server.host), "%s", e->host + len);
    auto_free char *origin = origin_of(&server, "");
    const char *head = origin ? behind(w->server, origin, strlen(origin)) : NULL;
    return head ? behind(path, head - 1, (size_t)(bucket - head)) : NULL;
}

static int key_of_http_form(const struct store_where *w, const char *url, struct op *op,
                            char **ret_key)
{
    const char *host = strstr(url, "://") + 3;
    const char *path = host + strcspn(host, "/?#");
    auto_free char *server = strndup(url, (size_t)(path - url));
    auto_free char *decoded = decoded_path(path);
    struct aws_endpoint e;

    if (!server)
        return op_fail(op, -ENOMEM, "out of memory");
    if (!decoded || aws_endpoint_parse(server, op, &e))
        return elsewhere(w, url, op);
    const char *key = key_in_path(w, &e, decoded);
    if (!key)
        key = key_in_host(w, &e, decoded);
    return key ? key_below(w, url, key, op, ret_key) : elsewhere(w, url, op);
}

int s3_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key)
{
    static const char *const schemes[] = {"s3://", "s3a://", "s3n://"};

    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (strncasecmp(url, schemes[i], strlen(schemes[i])) == 0)
            return key_of_bucket_form(w, url, url + strlen(schemes[i]), op, ret_key);
    if (strncasecmp(url, "https://", 8) == 0 || strncasecmp(url, "http://", 7) == 0)
        return key_of_http_form(w, url, op, ret_key);
    return elsewhere(w, url, op);
}
