/* backends/s3/url.c: URLs, endpoints and hosts. */
#include "backends/s3/url.h"
#include "common/mem.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(good_urls)
{
    static const struct {
        const char *url, *bucket, *prefix;
    } t[] = {
        {"s3://bucket", "bucket", ""},
        {"s3://bucket/", "bucket", ""},
        {"S3://bucket/a/b", "bucket", "a/b"},
        {"s3://my.bucket-1/a b/%20/", "my.bucket-1", "a b/%20"},
        {"s3://Old_Bucket//a//", "Old_Bucket", "a"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct op op;
        char bucket[S3_BUCKET_MAX];
        auto_free char *prefix = NULL;

        op_init(&op, OP_FOREVER);
        ck_assert_msg(s3_url_parse(t[i].url, &op, bucket, &prefix) == 0, "%s", op.why);
        ck_assert_str_eq(bucket, t[i].bucket);
        ck_assert_str_eq(prefix, t[i].prefix);
    }
}
END_TEST

START_TEST(bad_urls)
{
    static const char *const urls[] = {"s3:/bucket",       "s3://",
                                       "s3:///key",        "s3://-b/x",
                                       "s3://b b/x",       "s3://b/..",
                                       "s3://b/a//b",      "s3://b/./x",
                                       "http://b/x",       "",
                                       "s3://b?x=y",       "s3://k:secret@b/x",
                                       "s3:///k:secret@b", "s3://k:x/secret@b"};

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        struct op op;
        char bucket[S3_BUCKET_MAX];
        char *prefix = NULL;

        op_init(&op, OP_FOREVER);
        ck_assert_msg(s3_url_parse(urls[i], &op, bucket, &prefix) == -EINVAL, "%s", urls[i]);
        ck_assert(op.why[0]);
        ck_assert_ptr_null(strstr(op.why, "secret"));
    }
}
END_TEST

START_TEST(good_endpoints)
{
    static const struct {
        const char *url;
        bool custom, https;
        const char *host, *base;
    } t[] = {
        {NULL, false, true, "", ""},
        {"", false, true, "", ""},
        {"https://minio.example", true, true, "minio.example", ""},
        {"https://Minio.example:443/", true, true, "minio.example", ""},
        {"http://127.0.0.1:9000", true, false, "127.0.0.1:9000", ""},
        {"http://host:80/base/x/", true, false, "host", "/base/x"},
        {"https://host:80", true, true, "host:80", ""},
        {"http://[::1]:9000", true, false, "[::1]:9000", ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct op op;
        struct aws_endpoint e;

        op_init(&op, OP_FOREVER);
        ck_assert_msg(aws_endpoint_parse(t[i].url, &op, &e) == 0, "%s", op.why);
        ck_assert_int_eq(e.custom, t[i].custom);
        ck_assert_int_eq(e.https, t[i].https);
        ck_assert_str_eq(e.host, t[i].host);
        ck_assert_str_eq(e.base, t[i].base);
    }
}
END_TEST

START_TEST(bad_endpoints)
{
    static const char *const urls[] = {
        "minio:9000",         "ftp://x",       "http://",
        "http:///x",          "https://a b",   "http://x?",
        "https://u:secret@h", "http://h/a%2f", "https://u:x/secret@h",
        "u:secret@h"};

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        struct op op;
        struct aws_endpoint e;

        op_init(&op, OP_FOREVER);
        ck_assert_msg(aws_endpoint_parse(urls[i], &op, &e) == -EINVAL, "%s", urls[i]);
        ck_assert_ptr_null(strstr(op.why, "secret"));
    }
}
END_TEST

START_TEST(hosts)
{
    static const struct {
        const char *endpoint, *region;
        bool path_style;
        const char *host;
    } t[] = {
        {NULL, "eu-west-1", false, "b.s3.eu-west-1.amazonaws.com"},
        {NULL, "eu-west-1", true, "s3.eu-west-1.amazonaws.com"},
        {NULL, "cn-north-1", false, "b.s3.cn-north-1.amazonaws.com.cn"},
        {"http://h:9000", "x", true, "h:9000"},
        {"http://h:9000", "x", false, "b.h:9000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct op op;
        struct aws_endpoint e;
        char host[AWS_HOST_MAX];

        op_init(&op, OP_FOREVER);
        ck_assert_int_eq(aws_endpoint_parse(t[i].endpoint, &op, &e), 0);
        ck_assert_int_eq(s3_host(&e, t[i].region, "b", t[i].path_style, host), 0);
        ck_assert_str_eq(host, t[i].host);
    }
}
END_TEST

START_TEST(names_in_hosts)
{
    ck_assert(aws_region_ok("eu-west-1"));
    ck_assert(!aws_region_ok(""));
    ck_assert(!aws_region_ok("evil.example/"));
    ck_assert(!aws_region_ok("a\r\nb"));
    ck_assert(s3_bucket_is_label("my-bucket", true));
    ck_assert(!s3_bucket_is_label("my.bucket", true)); /* no wildcard certificate covers it */
    ck_assert(s3_bucket_is_label("my.bucket", false));
    ck_assert(!s3_bucket_is_label("Old_Bucket", false));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_url");
    TCase *t = tcase_create("s3_url");

    tcase_add_test(t, good_urls);
    tcase_add_test(t, bad_urls);
    tcase_add_test(t, good_endpoints);
    tcase_add_test(t, bad_endpoints);
    tcase_add_test(t, hosts);
    tcase_add_test(t, names_in_hosts);
    suite_add_tcase(s, t);
    return suite_run(s);
}
