/* backends/auth/aws_sign.c: AWS's published vectors, what botocore signs, and the encoding. */
#include "backends/auth/aws_sign.h"
#include "backends/http/uri.h"
#include "common/mem.h"
#include "common/op.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- AWS's documentation, "Examples: signature calculations" for S3 ---- */

static const struct aws_signer aws_example = {
    .access_key = "AKIAIOSFODNN7EXAMPLE",
    .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "s3",
};
#define AWS_HOST "examplebucket.s3.amazonaws.com"
#define AWS_DATE "20130524T000000Z"
#define AWS_HASH "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

static const struct published {
    const char *method, *path, *hash;
    struct aws_pair query[3];
    struct aws_pair headers[6];
    const char *signature;
} published[] = {
    {"GET",
     "/test.txt",
     AWS_EMPTY_HASH,
     {{0}},
     {{"host", AWS_HOST},
      {"range", "bytes=0-9"},
      {"x-amz-content-sha256", AWS_EMPTY_HASH},
      {"x-amz-date", AWS_DATE}},
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"PUT",
     "/test%24file.text",
     AWS_HASH,
     {{0}},
     {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"host", AWS_HOST},
      {"x-amz-content-sha256", AWS_HASH},
      {"x-amz-date", AWS_DATE},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"GET",
     "/",
     AWS_EMPTY_HASH,
     {{"lifecycle", ""}},
     {{"host", AWS_HOST}, {"x-amz-content-sha256", AWS_EMPTY_HASH}, {"x-amz-date", AWS_DATE}},
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"GET",
     "/",
     AWS_EMPTY_HASH,
     {{"prefix", "J"}, {"max-keys", "2"}},
     {{"host", AWS_HOST}, {"x-amz-content-sha256", AWS_EMPTY_HASH}, {"x-amz-date", AWS_DATE}},
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

static size_t count(const struct aws_pair *pairs, size_t room)
{
    size_t n = 0;

    while (n < room && pairs[n].name)
        n++;
    return n;
}

static void assert_signature(const struct aws_signer *signer, const struct aws_signed *what,
                             const struct aws_pair *query, size_t n_query,
                             const char *signature)
{
    auto_buf struct buf q = BUF_INIT(4096);
    auto_buf struct buf out = BUF_INIT(4096);
    auto_buf struct buf canonical = BUF_INIT(4096);
    struct aws_signed full = *what;
    const char *found;

    ck_assert_int_eq(aws_canonical_query(&q, query, n_query), 0);
    full.query = q.data ? q.data : "";
    ck_assert_int_eq(aws_canonical_request(&canonical, &full), 0);
    ck_assert_int_eq(aws_sign(&out, signer, &full), 0);
    found = strstr(out.data, "Signature=");
    ck_assert_ptr_nonnull(found);
    ck_assert_msg(strcmp(found + 10, signature) == 0, "%s\n%s, not %s", canonical.data,
                  found + 10, signature);
}

START_TEST(published_vectors)
{
    const struct published *v = &published[_i];
    struct aws_signed what = {.method = v->method,
                              .path = v->path,
                              .headers = v->headers,
                              .n_headers = count(v->headers, ARRAY_SIZE(v->headers)),
                              .payload_hash = v->hash,
                              .date = AWS_DATE};

    assert_signature(&aws_example, &what, v->query, count(v->query, ARRAY_SIZE(v->query)),
                     v->signature);
}
END_TEST

/* ---- AWS's general test suite: get-header-key-duplicate, get-vanilla-query-order... ---- */

static const struct aws_signer suite_signer = {
    .access_key = "AKIDEXAMPLE",
    .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "service",
};
#define SUITE_DATE "20150830T123600Z"

static const struct suite_case {
    const char *method;
    struct aws_pair query[3];
    struct aws_pair headers[5];
    const char *signature;
} suite_cases[] = {
    /* get-vanilla */
    {"GET",
     {{0}},
     {{"host", "example.amazonaws.com"}, {"x-amz-date", SUITE_DATE}},
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    /* post-vanilla */
    {"POST",
     {{0}},
     {{"host", "example.amazonaws.com"}, {"x-amz-date", SUITE_DATE}},
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    /* get-vanilla-query-order-key-case */
    {"GET",
     {{"Param2", "value2"}, {"Param1", "value1"}},
     {{"host", "example.amazonaws.com"}, {"x-amz-date", SUITE_DATE}},
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    /* get-header-key-duplicate */
    {"GET",
     {{0}},
     {{"host", "example.amazonaws.com"},
      {"my-header1", "value2"},
      {"my-header1", "value2"},
      {"my-header1", "value1"},
      {"x-amz-date", SUITE_DATE}},
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
    /* get-header-value-trim */
    {"GET",
     {{0}},
     {{"host", "example.amazonaws.com"},
      {"my-header1", " value1"},
      {"my-header2", " \"a   b   c\""},
      {"x-amz-date", SUITE_DATE}},
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
};

START_TEST(suite_vectors)
{
    const struct suite_case *v = &suite_cases[_i];
    struct aws_signed what = {.method = v->method,
                              .path = "/",
                              .headers = v->headers,
                              .n_headers = count(v->headers, ARRAY_SIZE(v->headers)),
                              .payload_hash = AWS_EMPTY_HASH,
                              .date = SUITE_DATE};

    assert_signature(&suite_signer, &what, v->query, count(v->query, ARRAY_SIZE(v->query)),
                     v->signature);
}
END_TEST

/* ---- what botocore 1.43 signs, payload unsigned ---- */

static const struct botocore_case {
    const char *method, *host, *path;
    struct aws_pair query[5];
    struct aws_pair headers[4];
    const char *region, *token;
    const char *signed_headers, *signature;
} botocore_cases[] = {
    {"GET",
     "bucket.s3.eu-west-1.amazonaws.com",
     "/a/b",
     {},
     {},
     "eu-west-1",
     NULL,
     "host;x-amz-content-sha256;x-amz-date",
     "1dddce486e5e8b36bffdf8b74d836e6b2e5582c3f5288e37d388327614e48f4a"},
    {"PUT",
     "bucket.s3.eu-west-1.amazonaws.com",
     "/a%20b%2Bc%25",
     {},
     {{"content-type", "application/octet-stream"},
      {"x-amz-meta-mtime", "1700000000.123456789"}},
     "eu-west-1",
     NULL,
     "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-mtime",
     "62989149a2e3bc041848800e4bde7d50f0c0be9372337dc4e28ad2dac4ccac77"},
    {"GET",
     "127.0.0.1:9000",
     "/bucket",
     {{"list-type", "2"}, {"prefix", "a/b/"}, {"delimiter", "/"}, {"encoding-type", "url"}},
     {},
     "us-east-1",
     NULL,
     "host;x-amz-content-sha256;x-amz-date",
     "4cc3aee60b76653af5d7ec36f4090c3e45bd1d281b97a7194a59045398a0e948"},
    {"GET",
     "127.0.0.1:9000",
     "/bucket",
     {{"continuation-token", "1+Abc=="}, {"list-type", "2"}, {"max-keys", "1"}, {"prefix", ""}},
     {},
     "us-east-1",
     NULL,
     "host;x-amz-content-sha256;x-amz-date",
     "c0b827bbe37a47f8e54e9fa4b56ec8eccd74c8516b94a1570fb3d5b446c7f80b"},
    {"POST",
     "localhost:9000",
     "/b/k",
     {{"uploads", ""}},
     {{"x-amz-checksum-algorithm", "CRC32C"}},
     "us-east-1",
     "TOKEN/with+chars==",
     "host;x-amz-checksum-algorithm;x-amz-content-sha256;x-amz-date;x-amz-security-token",
     "024f0db1325606d533160a1e5bade92f5cd7e3d39def2b2cc4f0befb2995240f"},
    {"PUT",
     "localhost:9000",
     "/b/k",
     {{"partNumber", "12"}, {"uploadId", "a.b_c~d-e"}},
     {{"x-amz-checksum-crc32c", "AAAAAA=="}},
     "us-east-1",
     NULL,
     "host;x-amz-checksum-crc32c;x-amz-content-sha256;x-amz-date",
     "9cbdfd549b1ba287595ec77bc1e52da2d7d24bf07102473116be3ab21400ae63"},
    {"DELETE",
     "localhost",
     "/b/%C3%BC%23%3F",
     {},
     {{"if-match", "\"abc\""}},
     "us-east-1",
     NULL,
     "host;if-match;x-amz-content-sha256;x-amz-date",
     "17569030aa28431947c051e3cf7cfa1e0c570248d6b3384b2efd49e0ee75668f"},
    {"HEAD",
     "localhost",
     "/b/a%3Db%26c",
     {},
     {{"range", "bytes=0-9"}},
     "auto",
     NULL,
     "host;range;x-amz-content-sha256;x-amz-date",
     "c0bd5b7604eac22acc56f971758740fc4cce399fbde94e9fdef7eb63fd47fa59"},
    {"PUT",
     "b.s3.us-gov-west-1.amazonaws.com",
     "/copy",
     {},
     {{"x-amz-copy-source", "b/from%20here"},
      {"x-amz-metadata-directive", "REPLACE"},
      {"x-amz-meta-symlink-target", "../x%20y"}},
     "us-gov-west-1",
     NULL,
     "host;x-amz-content-sha256;x-amz-copy-source;x-amz-date;x-amz-meta-symlink-target;x-amz-"
     "metadata-directive",
     "d02270551a902fb3c2b075381cffe8fd484a906a855473b0d0f5565af8e6ebfe"},
    {"GET",
     "localhost:9000",
     "/b/%01%0A%09",
     {},
     {{"x-amz-meta-a", "  two   spaces  "}},
     "us-east-1",
     NULL,
     "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a",
     "c58ee5824ef2d918c557351d2ed0c114125fecd352d0fb1298dc6627acd940f5"},
};
#define BOTOCORE_DATE "20260203T040506Z"

START_TEST(botocore_vectors)
{
    const struct botocore_case *v = &botocore_cases[_i];
    struct aws_signer signer = suite_signer;
    struct aws_pair headers[8];
    size_t n = count(v->headers, ARRAY_SIZE(v->headers));
    struct aws_signed what = {.method = v->method,
                              .path = v->path,
                              .query = "",
                              .headers = headers,
                              .payload_hash = AWS_UNSIGNED_PAYLOAD,
                              .date = BOTOCORE_DATE};
    auto_buf struct buf out = BUF_INIT(4096);

    memcpy(headers, v->headers, n * sizeof(*headers));
    headers[n++] = (struct aws_pair){"x-amz-date", BOTOCORE_DATE};
    headers[n++] = (struct aws_pair){"host", v->host};
    headers[n++] = (struct aws_pair){"x-amz-content-sha256", AWS_UNSIGNED_PAYLOAD};
    if (v->token)
        headers[n++] = (struct aws_pair){"x-amz-security-token", v->token};
    what.n_headers = n;
    signer.region = v->region;
    signer.service = "s3";
    assert_signature(&signer, &what, v->query, count(v->query, ARRAY_SIZE(v->query)),
                     v->signature);
    ck_assert_int_eq(aws_sign(&out, &signer, &what), 0);
    ck_assert_ptr_nonnull(strstr(out.data, v->signed_headers));
}
END_TEST

/* ---- encoding ---- */

START_TEST(encoding_and_back)
{
    char every[256], *again;
    auto_buf struct buf out = BUF_INIT(4096);

    for (int i = 1; i < 256; i++)
        every[i - 1] = (char)i;
    every[255] = '\0';
    ck_assert_int_eq(uri_encode(&out, every, 255, true), 0);
    ck_assert_ptr_null(strpbrk(out.data, " +?#&=;:@$,!*'()<>[]{}|\\^`\"\x7f"));
    ck_assert_ptr_nonnull(strstr(out.data, "-./0123456789%3A"));
    again = buf_take(&out);
    ck_assert_int_eq(uri_decode(again, true), 255);
    ck_assert_str_eq(again, every);
    free(again);
    ck_assert_int_eq(uri_encode(&out, "a/b", 3, false), 0);
    ck_assert_str_eq(out.data, "a%2Fb");
}
END_TEST

START_TEST(decoding)
{
    static const struct {
        const char *text;
        bool plus;
        ssize_t len;
        const char *out;
    } t[] = {
        {"a+b%20c", true, 5, "a b c"}, {"a+b", false, 3, "a+b"}, {"%2f%2F", true, 2, "//"},
        {"%", true, -1, NULL},         {"%1", true, -1, NULL},   {"%zz", true, -1, NULL},
        {"a%00b", true, 3, "a"},       {"", true, 0, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        auto_free char *text = strdup(t[i].text);

        ck_assert_msg(uri_decode(text, t[i].plus) == t[i].len, "%s", t[i].text);
        if (t[i].out)
            ck_assert_str_eq(text, t[i].out);
    }
}
END_TEST

START_TEST(dates)
{
    char out[AWS_DATE_LEN];

    aws_format_date(out, INT64_C(1369353600) * NS_PER_SEC);
    ck_assert_str_eq(out, "20130524T000000Z");
    aws_format_date(out, INT64_MAX);
    ck_assert_int_eq(strlen(out), 16);
}
END_TEST

START_TEST(results_are_bounded)
{
    auto_buf struct buf out = BUF_INIT(20);
    struct aws_signed what = {.method = "GET",
                              .path = "/",
                              .query = "",
                              .payload_hash = AWS_EMPTY_HASH,
                              .date = AWS_DATE};

    ck_assert_int_eq(aws_sign(&out, &aws_example, &what), -EFBIG);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("aws_sign");
    TCase *t = tcase_create("aws_sign");

    tcase_add_loop_test(t, published_vectors, 0, ARRAY_SIZE(published));
    tcase_add_loop_test(t, suite_vectors, 0, ARRAY_SIZE(suite_cases));
    tcase_add_loop_test(t, botocore_vectors, 0, ARRAY_SIZE(botocore_cases));
    tcase_add_test(t, encoding_and_back);
    tcase_add_test(t, decoding);
    tcase_add_test(t, dates);
    tcase_add_test(t, results_are_bounded);
    suite_add_tcase(s, t);
    return suite_run(s);
}
