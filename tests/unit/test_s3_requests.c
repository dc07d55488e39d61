/* The S3 driver against a server that redirects, is in another time, and refuses: where
 * requests go, how they are signed, and what each error means. What a real server does is in
 * tests/contract. */
#include "backends/drivers.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_calls.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- region, clock, pauses ---- */

START_TEST(a_region_is_adopted_once)
{
    START(REST("400 Bad Request", "",
               "<Error><Code>AuthorizationHeaderMalformed</Code>"
               "<Region>eu-west-1</Region></Error>"),
          STORED, OK_OBJECT("a"),
          REST("301 Moved", "x-amz-bucket-region: ap-south-1\r\n",
               "<Error><Code>PermanentRedirect</Code></Error>"));
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "/us-east-1/s3/"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "/eu-west-1/s3/"));
    ck_assert_int_eq(stat_key("k"), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "/eu-west-1/s3/"));
    ck_assert_int_lt(stat_key("k"), 0); /* a second correction is not believed */
    ck_assert_uint_eq(scripted_count(server), 4);
}
END_TEST

START_TEST(a_hostile_region_is_not_adopted)
{
    START(REST("400 Bad Request", "",
               "<Error><Code>AuthorizationHeaderMalformed</Code>"
               "<Region>evil.example/x</Region></Error>"));
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 1);
}
END_TEST

START_TEST(a_redirect_elsewhere_is_not_followed)
{
    static const struct scripted_answer nothing[] = {XML("200 OK", 0, "")};
    static struct scripted_answer script[2];
    static char text[128];
    struct scripted *elsewhere = scripted_new(nothing, 1);

    (void)snprintf(text, sizeof(text),
                   "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:%u/\r\n\r\n",
                   scripted_port(elsewhere));
    script[0] = script[1] = (struct scripted_answer){.text = text, .close = true};
    server = scripted_new(script, 2);
    open_store("us-east-1");
    ck_assert_int_eq(put(NULL), -EPROTO);
    ck_assert_uint_eq(scripted_count(server), 2); /* the second asks for the region */
    ck_assert_uint_eq(scripted_connections(elsewhere), 0);
    scripted_free(elsewhere);
}
END_TEST

/* A redirect that names no region: the bucket is asked. */
START_TEST(a_region_is_asked_for)
{
    START(REST("301 Moved", "Location: http://elsewhere.example/\r\n",
               "<Error><Code>PermanentRedirect</Code></Error>"),
          REST("403 Forbidden", "x-amz-bucket-region: eu-north-1\r\n", ""), STORED);
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "HEAD /bkt HTTP"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "PUT /bkt/pre/k HTTP"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "/eu-north-1/s3/"));
}
END_TEST

#define SKEWED "<Error><Code>RequestTimeTooSkewed</Code></Error>"
#define DENIED "<Error><Code>AccessDenied</Code></Error>"

/* Answers of a server whose clock is so many seconds from ours; the first of status 403 each.
 */
static void start_skewed(const int64_t skews[], const char *const bodies[], size_t n,
                         struct scripted_answer last)
{
    static char texts[4][256];
    static struct scripted_answer answers[5];

    for (size_t i = 0; i < n; i++) {
        char date[SCRIPTED_DATE];
        scripted_date(skews[i], date);
        (void)snprintf(texts[i], sizeof(texts[i]),
                       "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nDate: %s\r\n\r\n%s",
                       date, bodies[i]);
        answers[i] = (struct scripted_answer){.text = texts[i], .close = true};
    }
    answers[n] = last;
    server = scripted_new(answers, n + 1);
    open_store("us-east-1");
}

static int64_t signed_minutes(size_t request)
{
    return scripted_signed_minutes(server, request);
}

START_TEST(the_clock_of_the_server_is_adopted)
{
    start_skewed((const int64_t[]){-3 * 3600}, (const char *const[]){SKEWED}, 1,
                 (struct scripted_answer)STORED);
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_int_eq(signed_minutes(0), 0);
    ck_assert_int_eq(signed_minutes(1), -180);
    (void)put(NULL);
    ck_assert_int_eq(signed_minutes(2), -180);
}
END_TEST

/* A HEAD is told no code: another request is. */
START_TEST(the_clock_is_learned_from_a_head)
{
    start_skewed((const int64_t[]){7200, 7200}, (const char *const[]){"", SKEWED}, 2,
                 (struct scripted_answer)OK_OBJECT("a"));
    ck_assert_msg(stat_key("k") == 0, "%s", op.why);
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 1), "GET /bkt?list-type=2&max-keys=0 "));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "HEAD /bkt/pre/k "));
    ck_assert_int_eq(signed_minutes(1), 0);
    ck_assert_int_eq(signed_minutes(2), 120);
    (void)put(NULL);
    ck_assert_int_eq(signed_minutes(3), 120);
}
END_TEST

/* Anybody on the way can say 403. */
START_TEST(a_bare_403_moves_no_clock)
{
    start_skewed((const int64_t[]){7200, 7200, 7200}, (const char *const[]){"", "", DENIED}, 3,
                 (struct scripted_answer)STORED);
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 1);
    ck_assert_int_eq(stat_key("k"), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 3);
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_int_eq(signed_minutes(3), 0);
}
END_TEST

/* What is signed for next year is good next year. */
START_TEST(no_clock_is_far_off)
{
    start_skewed((const int64_t[]){366 * 86400}, (const char *const[]){SKEWED}, 1,
                 (struct scripted_answer)STORED);
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, " min behind: set it"), "%s", op.why);
    ck_assert_uint_eq(scripted_count(server), 1);
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_int_eq(signed_minutes(1), 0);
}
END_TEST

START_TEST(a_clock_that_does_not_help_is_not_kept)
{
    start_skewed((const int64_t[]){-7200, 0}, (const char *const[]){SKEWED, DENIED}, 2,
                 (struct scripted_answer)STORED);
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_int_eq(signed_minutes(1), -120);
    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_int_eq(signed_minutes(2), 0);
}
END_TEST

START_TEST(a_wrong_clock_is_named)
{
    START(REST("403 Forbidden", "Date: Fri, 01 Jan 2021 00:00:00 GMT\r\n",
               "<Error><Code>SignatureDoesNotMatch</Code></Error>"));
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, "; the clock here is ") && strstr(op.why, " min ahead"), "%s",
                  op.why);
}
END_TEST

START_TEST(a_pause_is_passed_on)
{
    START(REST("503 Slow Down", "Retry-After: 3\r\n", "<Error><Code>SlowDown</Code></Error>"),
          REST("503 Slow Down", "", "<Error><Code>SlowDown</Code></Error>"));
    ck_assert_int_eq(put(NULL), -EAGAIN);
    ck_assert_int_eq(op.retry_after_ns, 3 * NS_PER_SEC);
    ck_assert_int_eq(put(NULL), -EAGAIN);
    ck_assert_int_eq(op.retry_after_ns, 0);
}
END_TEST

START_TEST(reasons_name_all_but_secrets)
{
    START(REST("403 Forbidden", "",
               "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key</Message>"
               "<RequestId>7F3A</RequestId></Error>"));
    ck_assert_int_eq(put(NULL), -EACCES);
    ck_assert_str_eq(op.why, "put s3://bkt/pre/k: 403 SignatureDoesNotMatch: Check your key, "
                             "request 7F3A");
    ck_assert_ptr_null(strstr(scripted_request(server, 0), SECRET));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "x-amz-content-sha256"));
}
END_TEST

/* ---- what each error means ---- */

static const struct {
    struct scripted_answer answer;
    int err;
} put_errors[] = {
    {REST("404 Not Found", "", "<Error><Code>NoSuchBucket</Code></Error>"), -ENXIO},
    {REST("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>"),
     -ESTALE},
    {REST("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>"), -ESTALE},
    {REST("409 Conflict", "", "<Error><Code>ConditionalRequestConflict</Code></Error>"),
     -ESTALE},
    {REST("409 Conflict", "", "<Error><Code>OperationAborted</Code></Error>"), -EAGAIN},
    {REST("400 Bad Request", "", "<Error><Code>RequestTimeout</Code></Error>"), -EAGAIN},
    {REST("400 Bad Request", "", "<Error><Code>BadDigest</Code></Error>"), -EIO},
    {REST("400 Bad Request", "", "<Error><Code>XAmzContentChecksumMismatch</Code></Error>"),
     -EIO},
    {REST("400 Bad Request", "", "<Error><Code>EntityTooLarge</Code></Error>"), -EFBIG},
    {REST("400 Bad Request", "", "<Error><Code>MetadataTooLarge</Code></Error>"), -E2BIG},
    {REST("400 Bad Request", "", "<Error><Code>KeyTooLongError</Code></Error>"), -ENAMETOOLONG},
    {REST("507 Full", "", "<Error><Code>XMinioStorageFull</Code></Error>"), -ENOSPC},
    {REST("403 Forbidden", "", "<html>proxy</html>"), -EACCES},
    {REST("500 Oops", "", "not xml at all"), -EIO},
    {REST("418 Teapot", "", ""), -EINVAL},
    {REST("200 OK", "", "<Error><Code>InternalError</Code></Error>"), -EIO},
    {REST("200 OK", "", "<Error><Code>NobodyKnows</Code></Error>"), -EIO},
    {REST("405 No", "", "<Error><Code>MethodNotAllowed</Code></Error>"), -EOPNOTSUPP},
    /* Who believes this sends no conditions any more. */
    {REST("405 Method Not Allowed", "", "<html>no</html>"), -EPROTO},
    /* Something that is not S3 answers at its address. */
    {REST("200 OK", "", "ok"), -EPROTO},
    {REST("200 OK", "", ""), -EPROTO},
    {REST("200 OK", "", "<html><body>It works!</body></html>"), -EPROTO},
    {REST("200 OK", "ETag: \"\"\r\n", ""), -EPROTO},
    {REST("204 No Content", "", ""), -EPROTO},
};

START_TEST(an_error_of_put)
{
    int r;

    server = scripted_new(&put_errors[_i].answer, 1);
    open_store("us-east-1");
    r = put("old");
    ck_assert_msg(r == put_errors[_i].err, "%d, not %d: %s", r, put_errors[_i].err, op.why);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "if-match: \"old\"\r\n"));
}
END_TEST

/* What answers "200 ok" to everything has stored, removed and found nothing. */
START_TEST(a_server_that_is_not_s3)
{
    START(REST("200 OK", "", "ok"), REST("200 OK", "Content-Length: 2\r\n", ""),
          REST("200 OK", "", "ok"), REST("200 OK", "", "ok"), OK_OBJECT("e"),
          REST("200 OK", "", "ok"), REST("200 OK", "Content-Length: 2\r\n", "ok"),
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n\r\n"},
          REST("200 OK", "", ""));
    const char *const keys[] = {"k"};
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};
    char data[17];

    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 1, NULL), -EPROTO);
    ck_assert_int_eq(stat_key("k"), -EPROTO);
    ck_assert_int_eq(store_mkdir(store, &op, "d", NULL, NULL), -EPROTO);
    ck_assert_int_eq(store_rmdir(store, &op, "d"), -EPROTO);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), -EPROTO);
    ck_assert_int_eq(read_key(NULL, 2, 0, data), -EPROTO);
    ck_assert_int_eq(store_set_attributes(store, &op, "k", NULL, &attrs, NULL), -EPROTO);
    ck_assert_uint_eq(scripted_count(server), 9);
}
END_TEST

/* versitygw has no ETag for a file that came into its folder by other ways. */
START_TEST(an_object_without_an_etag)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-amz-request-id: 1\r\n\r\n"});
    ck_assert_msg(stat_key("k") == 0, "%s", op.why);
}
END_TEST

/* ---- opening ---- */

START_TEST(anonymous_requests_are_not_signed)
{
    static const struct scripted_answer script[] = {OK_OBJECT("e")};
    char endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint}, {"no_sign_request", "true"}};
    struct store_config config = {.options = options, .n_options = 2};

    server = scripted_new(script, 1);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_int_eq(s3_store_new("s3://bkt", &config, &op, &store), 0);
    ck_assert_int_eq(stat_key("k"), 0);
    ck_assert_ptr_null(strcasestr(scripted_request(server, 0), "authorization"));
}
END_TEST

/* New objects go where the options say; a copy stays where its source was, unless told. */
START_TEST(objects_are_placed_as_told)
{
    START(STORED, STORED, BEGUN, XML("204 No", 0, ""),
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n"
                   "x-amz-storage-class: GLACIER_IR\r\nx-amz-server-side-encryption: AES256\r\n"
                   "\r\n"},
          REST("200 OK", "", "<CopyObjectResult><ETag>\"f\"</ETag></CopyObjectResult>"),
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n"
                   "x-amz-storage-class: GLACIER_IR\r\nx-amz-server-side-encryption: AES256\r\n"
                   "\r\n"},
          REST("200 OK", "", "<CopyObjectResult><ETag>\"f\"</ETag></CopyObjectResult>"));
    static const struct {
        size_t request;
        bool encrypted, stored, key;
    } t[] = {{0, true, true, true},
             {1, true, false, true},
             {2, true, true, true},
             {5, true, true, true}};
    char endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint},
                                           {"sse", "aws:kms"},
                                           {"sse_kms_key_id", "arn:k"},
                                           {"storage_class", "STANDARD_IA"},
                                           {"request_payer", "requester"}};
    struct store_config config = {.options = options, .n_options = ARRAY_SIZE(options)};
    struct upload *up;

    store_close(store);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_msg(s3_store_new("s3://bkt/pre", &config, &op, &store) == 0, "%s", op.why);
    ck_assert_int_eq(put(NULL), 0);
    ck_assert_int_eq(store_mkdir(store, &op, "d", NULL, NULL), 0);
    ck_assert_int_eq(store_upload_begin(store, &op, "k", NULL, &up), 0);
    ck_assert_int_eq(store_upload_abort(up, &op), 0);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), 0);
    store_close(store);
    open_store("us-east-1"); /* nothing told */
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const char *sent = scripted_request(server, t[i].request);

        ck_assert(!strstr(sent, "x-amz-server-side-encryption: aws:kms\r\n") != t[i].encrypted);
        ck_assert(!strstr(sent, "x-amz-server-side-encryption-aws-kms-key-id: arn:k\r\n") !=
                  t[i].key);
        ck_assert(!strstr(sent, "x-amz-storage-class: STANDARD_IA\r\n") != t[i].stored);
        ck_assert_ptr_null(strstr(sent, "GLACIER"));
        ck_assert_ptr_null(strstr(sent, "AES256"));
    }
    for (size_t i = 0; i < 6; i++)
        ck_assert_ptr_nonnull(
            strstr(scripted_request(server, i), "x-amz-request-payer: requester\r\n"));
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 7), "x-amz-storage-class: GLACIER_IR\r\n"));
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 7), "x-amz-server-side-encryption: AES256\r\n"));
    ck_assert_ptr_null(strstr(scripted_request(server, 7), "request-payer"));
}
END_TEST

static const struct {
    const char *endpoint;
    bool told;
} plain[] = {
    {"http://minio.example:9000", true}, {"http://10.0.0.1:9000", true},
    {"http://127.evil.example", true},   {"http://notlocalhost", true},
    {"https://minio.example", false},    {"HTTPS://minio", false},
    {"http://127.0.0.1:9000", false},    {"http://localhost:9000/x", false},
    {"http://b.localhost", false},       {NULL, false},
};

START_TEST(a_plain_endpoint_is_told)
{
    const struct store_option options[] = {{"region", "r"}, {"endpoint", plain[_i].endpoint}};
    struct store_config config = {.options = options, .n_options = plain[_i].endpoint ? 2 : 1};

    ck_assert_msg(s3_store_new("s3://bkt/pre", &config, &op, &store) == 0, "%s", op.why);
    const char *advice = store->advice;
    ck_assert_msg(plain[_i].told ? advice && strstr(advice, " is plain http: ") : !advice,
                  "%s: %s", plain[_i].endpoint, advice);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    static const struct store_option bad[] = {
        {"path_style", "maybe"},  {"endpoint", "gopher://x"}, {"region", "a/b"},
        {"no_sign_request", "2"}, {"profile", "nonexistent"}, {"ca_bundle", "/nonexistent"},
        {"sse", "rot13"},         {"sse_kms_key_id", "k"},    {"storage_class", "A B"},
        {"request_payer", "me"}};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct store_config config = {.options = &bad[i], .n_options = 1};

        ck_assert_msg(s3_store_new("s3://bkt", &config, &op, &store) == -EINVAL, "%s",
                      bad[i].name);
        ck_assert(op.why[0]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_requests");
    TCase *t = tcase_create("s3_requests");

    scripted_environment();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, an_error_of_put, 0, ARRAY_SIZE(put_errors));
    tcase_add_test(t, a_server_that_is_not_s3);
    tcase_add_test(t, an_object_without_an_etag);
    tcase_add_loop_test(t, a_plain_endpoint_is_told, 0, ARRAY_SIZE(plain));
    tcase_add_test(t, a_region_is_adopted_once);
    tcase_add_test(t, a_hostile_region_is_not_adopted);
    tcase_add_test(t, a_redirect_elsewhere_is_not_followed);
    tcase_add_test(t, a_region_is_asked_for);
    tcase_add_test(t, the_clock_of_the_server_is_adopted);
    tcase_add_test(t, the_clock_is_learned_from_a_head);
    tcase_add_test(t, a_bare_403_moves_no_clock);
    tcase_add_test(t, no_clock_is_far_off);
    tcase_add_test(t, a_clock_that_does_not_help_is_not_kept);
    tcase_add_test(t, a_wrong_clock_is_named);
    tcase_add_test(t, a_pause_is_passed_on);
    tcase_add_test(t, reasons_name_all_but_secrets);
    tcase_add_test(t, anonymous_requests_are_not_signed);
    tcase_add_test(t, objects_are_placed_as_told);
    tcase_add_test(t, bad_options_are_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
