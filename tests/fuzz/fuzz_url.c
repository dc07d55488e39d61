/* Store URLs, URLs of keys, and endpoints of S3: what is accepted makes the same parts again,
 * and a host and a prefix that can do no harm in a request; what is refused has a reason. */
#include "backends/s3/url.h"
#include "backends/store.h"
#include "backends/where.h"
#include "common/mem.h"
#include "common/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_host(const char *host)
{
    must(*host && strlen(host) < AWS_HOST_MAX);
    for (const char *c = host; *c; c++)
        must((unsigned char)*c > ' ' && (unsigned char)*c < 0x7f && !strchr("/@?#%\\", *c));
}

static void check_bucket(const char *url)
{
    char bucket[S3_BUCKET_MAX], again[S3_BUCKET_MAX], host[AWS_HOST_MAX];
    const struct aws_endpoint aws = {.https = true};
    auto_free char *prefix = NULL;
    auto_free char *prefix2 = NULL;
    auto_free char *joined = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (s3_url_parse(url, &op, bucket, &prefix) < 0) {
        must(op.why[0] && !prefix);
        return;
    }
    must(path_key_ok(prefix, STORE_KEY_MAX) && !strpbrk(bucket, "/@:?#% "));
    if (asprintf(&joined, "s3://%s/%s", bucket, prefix) < 0)
        abort();
    must(s3_url_parse(joined, &op, again, &prefix2) == 0);
    must(strcmp(bucket, again) == 0 && strcmp(prefix, prefix2) == 0);
    if (s3_bucket_is_label(bucket, true) &&
        s3_host(&aws, "eu-west-1", bucket, false, host) == 0)
        check_host(host);
}

static void check_endpoint(const char *url)
{
    struct aws_endpoint e;
    char host[AWS_HOST_MAX];
    struct op op;

    op_init(&op, OP_FOREVER);
    if (aws_endpoint_parse(url, &op, &e) < 0) {
        must(op.why[0]);
        return;
    }
    if (!e.custom)
        return;
    check_host(e.host);
    must(!e.base[0] || e.base[0] == '/');
    must(!strpbrk(e.base, "?#% "));
    for (int path_style = 0; path_style < 2; path_style++)
        if (s3_host(&e, "r", "bucket", path_style, host) == 0)
            check_host(host);
}

static void check_region(const char *region)
{
    const struct aws_endpoint aws = {.https = true};
    char host[AWS_HOST_MAX];

    if (aws_region_ok(region) && s3_host(&aws, region, "bucket", true, host) == 0)
        check_host(host);
}

/* What names a key does so again when the key is written as a URL. */
static void check_key(const char *url)
{
    struct store_where places[] = {{"s3 https://s3.amazonaws.com/b", "p", NULL},
                                   {"s3 http://h:9000/base/b", "", NULL},
                                   {"mem:x", "", NULL}};

    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        auto_free char *key = NULL;
        auto_free char *again = NULL;
        auto_free char *written = NULL;
        struct op op;

        op_init(&op, OP_FOREVER);
        if (store_key_of(&places[i], url, &op, &key) < 0) {
            must(op.why[0] && !key);
            continue;
        }
        must(path_key_safe(key, STORE_KEY_MAX));
        must(store_url_of(&places[i], key, NULL, &op, &written) == 0);
        must(store_key_of(&places[i], written, &op, &again) == 0);
        must(strcmp(key, again) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_bucket(text);
    check_endpoint(text);
    check_region(text);
    check_key(text);
    return 0;
}
