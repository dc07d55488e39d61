/* Where a bucket is. */
#include "backends/s3/url.h"

#include "backends/store.h"
#include "common/mem.h"
#include "common/path.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool bucket_ok(const char *name, size_t len)
{
    if (len < 1 || len >= S3_BUCKET_MAX || !isalnum((unsigned char)*name))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-._", name[i]))
            return false;
    return true;
}

int s3_url_parse(const char *url, struct op *op, char ret_bucket[S3_BUCKET_MAX],
                 char **ret_prefix)
{
    auto_free char *shown = store_url_redact(url);
    auto_free char *prefix = NULL;
    const char *name, *path;
    size_t len;

    if (strncasecmp(url, "s3://", 5) != 0)
        return op_fail(op, -EINVAL, "%s: expected s3://BUCKET/PREFIX", shown ? shown : "URL");
    name = url + 5;
    len = strcspn(name, "/");
    if (!bucket_ok(name, len))
        return op_fail(op, -EINVAL,
                       "%s: \"%.*s\" is no bucket name; expected s3://BUCKET/PREFIX",
                       shown ? shown : "URL", (int)(len > 64 ? 64 : len),
                       memchr(name, '@', len) ? "***" : name);
    path = name + len;
    while (*path == '/')
        path++;
    prefix = strdup(path);
    if (!prefix)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t end = strlen(prefix); end > 0 && prefix[end - 1] == '/';)
        prefix[--end] = '\0';
    if (!path_key_ok(prefix, STORE_KEY_MAX))
        return op_fail(op, -EINVAL, "%s: the prefix has an empty, \".\" or \"..\" component",
                       shown ? shown : "URL");
    memcpy(ret_bucket, name, len);
    ret_bucket[len] = '\0';
    *ret_prefix = take_ptr(prefix);
    return 0;
}

static bool host_ok(const char *host, size_t len)
{
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr("-._:[]", host[i]))
            return false;
    return true;
}

/* curl leaves a scheme's own port out of the Host header, so the signature must, too. */
static void drop_standard_port(char *host, bool https)
{
    size_t len = strlen(host), port_len = https ? 4 : 3;

    if (len > port_len && strcmp(host + len - port_len, https ? ":443" : ":80") == 0)
        host[len - port_len] = '\0';
}

int s3_endpoint_parse(const char *url, struct op *op, struct s3_endpoint *ret)
{
    static const char expected[] = "expected https://HOST[:PORT] or http://HOST[:PORT]";
    struct s3_endpoint e = {.https = true};
    const char *at = url, *scheme_end;
    size_t host_len, base_len;

    if (!url || !*url) {
        *ret = e;
        return 0;
    }
    scheme_end = strstr(url, "://");
    if (scheme_end) {
        e.https = strncasecmp(url, "https://", 8) == 0;
        if (!e.https && strncasecmp(url, "http://", 7) != 0)
            return op_fail(op, -EINVAL, "endpoint: unknown scheme \"%.*s\"; %s",
                           (int)(scheme_end - url > 20 ? 20 : scheme_end - url), url, expected);
        at = scheme_end + 3;
    } else if (!strchr(url, '@')) {
        return op_fail(op, -EINVAL,
                       "endpoint %.100s: whether it takes TLS must be said: https://%.100s or "
                       "http://%.100s",
                       url, url, url);
    }
    host_len = strcspn(at, "/");
    base_len = strlen(at + host_len);
    while (base_len && at[host_len + base_len - 1] == '/')
        base_len--;
    if (memchr(at, '@', host_len))
        return op_fail(op, -EINVAL, "endpoint: a user name or password has no place in it; %s",
                       expected);
    if (!host_ok(at, host_len) || host_len >= sizeof(e.host) - S3_BUCKET_MAX ||
        base_len >= sizeof(e.base) || strpbrk(at, "?#% "))
        return op_fail(op, -EINVAL, "endpoint %.100s: %s", url, expected);
    e.custom = true;
    memcpy(e.host, at, host_len);
    memcpy(e.base, at + host_len, base_len);
    for (char *c = e.host; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    drop_standard_port(e.host, e.https);
    *ret = e;
    return 0;
}

bool s3_region_ok(const char *region)
{
    size_t len = strlen(region);

    if (len == 0 || len >= S3_REGION_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)region[i]) && region[i] != '-' && region[i] != '_')
            return false;
    return true;
}

bool s3_bucket_is_label(const char *bucket, bool https)
{
    size_t len = strlen(bucket);

    if (len < 3 || len > 63)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)bucket[i]) && !isdigit((unsigned char)bucket[i]) &&
            bucket[i] != '-' && (https || bucket[i] != '.'))
            return false;
    return true;
}

int s3_host(const struct s3_endpoint *e, const char *region, const char *bucket,
            bool path_style, char ret[S3_HOST_MAX])
{
    const char *suffix = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
    const char *first = path_style ? "" : bucket, *dot = path_style ? "" : ".";
    int n = e->custom ? snprintf(ret, S3_HOST_MAX, "%s%s%s", first, dot, e->host)
                      : snprintf(ret, S3_HOST_MAX, "%s%ss3.%s.amazonaws.com%s", first, dot,
                                 region, suffix);

    return n > 0 && n < S3_HOST_MAX ? 0 : -EINVAL;
}
