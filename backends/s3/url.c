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
    if (!bucket_ok(name, len) && (!shown || strcmp(shown, url) != 0))
        return op_fail(op, -EINVAL,
                       "%s: keys have no place in a URL; expected s3://BUCKET/PREFIX",
                       shown ? shown : "URL");
    if (!bucket_ok(name, len))
        return op_fail(op, -EINVAL,
                       "%s: \"%.*s\" is no bucket name; expected s3://BUCKET/PREFIX", shown,
                       (int)(len > 64 ? 64 : len), name);
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

int s3_host(const struct aws_endpoint *e, const char *region, const char *bucket,
            bool path_style, char ret[AWS_HOST_MAX])
{
    const char *suffix = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
    const char *first = path_style ? "" : bucket, *dot = path_style ? "" : ".";
    int n = e->custom ? snprintf(ret, AWS_HOST_MAX, "%s%s%s", first, dot, e->host)
                      : snprintf(ret, AWS_HOST_MAX, "%s%ss3.%s.amazonaws.com%s", first, dot,
                                 region, suffix);

    return n > 0 && n < AWS_HOST_MAX ? 0 : -EINVAL;
}
