/* The S3 driver against a server that loses answers and bytes on purpose: uploads in parts, and
 * checksums both ways. What a real server does is in tests/contract. */
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_calls.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* ---- uploads in parts ---- */

/* md5(md5("hello")) */
#define WHOLE_ETAG "62109206880d38a4010a98e11243924a-1"

static struct upload *begin_with_part(const struct attrs *attrs)
{
    struct mem_source src;
    struct upload *up = NULL;

    ck_assert_msg(store_upload_begin(store, &op, "k", attrs, &up) == 0, "%s", op.why);
    mem_source_init(&src, "hello", 5);
    ck_assert_msg(store_upload_part(up, &op, 1, &src.base) == 0, "%s", op.why);
    return up;
}

START_TEST(a_complete_that_fails_with_status_200)
{
    START(BEGUN, PART_DONE,
          REST("200 OK", "",
               "\n \n<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>"),
          REST("200 OK", "",
               "<?xml version=\"1.0\"?>\n   <Error><Code>InternalError</Code></Error>"),
          REST("200 OK", "",
               "<CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"
               "</CompleteMultipartUploadResult>"));
    struct upload *up = begin_with_part(NULL);
    struct object obj;

    ck_assert_int_lt(store_upload_commit(up, &op, NULL, &obj), 0);
    ck_assert_int_eq(store_upload_commit(up, &op, NULL, &obj), -EIO);
    ck_assert_int_eq(store_upload_commit(up, &op, NULL, &obj), 0);
    ck_assert_str_eq(obj.etag, "x-1");
    ck_assert_uint_eq(obj.size, 5);
    object_release(&obj);
}
END_TEST

/* The first Complete reached the server, its answer did not reach us. */
static int commit_again(const struct attrs *attrs, const char *head)
{
    static struct scripted_answer script[6];
    struct upload *up;
    struct object obj;
    int r;

    script[0] = (struct scripted_answer)BEGUN;
    script[1] = (struct scripted_answer)PART_DONE;
    script[2] = (struct scripted_answer){.text = "", .close = true};
    script[3] =
        (struct scripted_answer)REST("404 No", "", "<Error><Code>NoSuchUpload</Code></Error>");
    script[4] = script[3]; /* ListParts */
    script[5] = (struct scripted_answer){.text = head};
    server = scripted_new(script, ARRAY_SIZE(script));
    open_store("us-east-1");
    up = begin_with_part(attrs);
    ck_assert_int_eq(store_upload_commit(up, &op, "", &obj), -ECONNRESET);
    r = store_upload_commit(up, &op, "", &obj);
    if (r)
        store_upload_detach(up);
    else
        object_release(&obj);
    return r;
}

START_TEST(a_commit_whose_answer_was_lost)
{
    ck_assert_msg(commit_again(NULL,
                               "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"" WHOLE_ETAG
                               "\"\r\n\r\n") == 0,
                  "%s", op.why);
}
END_TEST

/* Two nodes put the same content: each has its own origin. */
START_TEST(a_commit_of_the_same_content_by_someone_else)
{
    static const struct attrs mine = {.has = ATTR_ORIGIN, .origin = 0x11, .origin_ns = 5};
    static const char *const heads[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"" WHOLE_ETAG "\"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"" WHOLE_ETAG "\"\r\n"
        "x-amz-meta-runfs-origin: 0000000000000011.6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"" WHOLE_ETAG "\"\r\n"
        "x-amz-meta-runfs-origin: 0000000000000011.5\r\n\r\n"};
    int r = commit_again(&mine, heads[_i]);

    ck_assert_msg(r == (_i == 2 ? 0 : -ENOENT), "%d %s", r, op.why);
}
END_TEST

START_TEST(a_commit_that_someone_else_overtook)
{
    ck_assert_int_eq(
        commit_again(NULL, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"abc\"\r\n\r\n"),
        -ENOENT);
}
END_TEST

/* A kept connection that dies under it: sent again unseen, it leaves a second session. */
START_TEST(a_begin_is_not_sent_twice)
{
    START(STORED, {.text = "", .close = true}, BEGUN);
    struct upload *up = NULL;

    ck_assert_int_eq(put(NULL), 0);
    ck_assert_int_eq(store_upload_begin(store, &op, "k", NULL, &up), -ECONNRESET);
    ck_assert_uint_eq(scripted_count(server), 2);
}
END_TEST

START_TEST(sessions_with_unusable_answers)
{
    START(REST("200 OK", "", "<InitiateMultipartUploadResult/>"),
          REST("200 OK", "",
               "<InitiateMultipartUploadResult><UploadId>a b</UploadId>"
               "</InitiateMultipartUploadResult>"),
          BEGUN, XML("200 OK", 0, ""), XML("204 Gone", 0, ""));
    struct mem_source src;
    struct upload *up = NULL;

    ck_assert_int_eq(store_upload_begin(store, &op, "k", NULL, &up), -EPROTO);
    ck_assert_int_eq(store_upload_begin(store, &op, "k", NULL, &up), -EPROTO);
    ck_assert_int_eq(store_upload_begin(store, &op, "k", NULL, &up), 0);
    mem_source_init(&src, "hello", 5);
    ck_assert_int_eq(store_upload_part(up, &op, 1, &src.base), -EPROTO); /* no ETag */
    ck_assert_int_eq(store_upload_abort(up, &op), 0);
}
END_TEST

/* ---- checksums ---- */

#define HELLO_CRC "mnG7TA==" /* CRC-32C of "hello" */
#define HELLO_MD5 "XUFAKrxLKna5cZ2REBfFkg=="
#define WHOLE(headers, body)                                                                   \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n" headers "\r\n" body  \
    }

/* put() of a version whose size is known from then on. */
static void put_known(void)
{
    struct mem_source src;
    struct object obj;

    mem_source_init(&src, "hello", 5);
    ck_assert_int_eq(store_put(store, &op, "k", NULL, &src.base, NULL, &obj), 0);
    object_release(&obj);
}

#define HELLO_SHA256 "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

/* Else who is on the way could put other content under the same signature. */
START_TEST(bodies_are_signed_without_tls)
{
    START(STORED, BEGUN, PART_DONE, COMPLETED,
          REST("400 Bad Request", "", "<Error><Code>XAmzContentSHA256Mismatch</Code></Error>"));
    struct upload *up;

    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    up = begin_with_part(NULL);
    ck_assert_int_eq(store_upload_commit(up, &op, NULL, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        const char *sent = scripted_request(server, i);
        ck_assert_ptr_null(strstr(sent, "UNSIGNED-PAYLOAD"));
        if (i == 0 || i == 2)
            ck_assert_ptr_nonnull(strstr(sent, "x-amz-content-sha256: " HELLO_SHA256 "\r\n"));
    }
    ck_assert_int_eq(put(NULL), -EIO); /* as for a content that changed on its way */
}
END_TEST

START_TEST(refused_checksums_are_not_sent_again)
{
    START(REST("501 Not Implemented", "", "<Error><Code>NotImplemented</Code></Error>"), STORED,
          STORED, BEGUN, PART_DONE,
          REST("200 OK", "",
               "<CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"
               "</CompleteMultipartUploadResult>"));
    struct upload *up;

    ck_assert_msg(put(NULL) == 0, "%s", op.why);
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 0), "x-amz-checksum-crc32c: " HELLO_CRC "\r\n"));
    ck_assert_int_eq(put(NULL), 0);
    up = begin_with_part(NULL);
    ck_assert_int_eq(store_upload_commit(up, &op, NULL, NULL), 0);
    ck_assert_uint_eq(scripted_count(server), 6);
    for (size_t i = 1; i < 6; i++) {
        const char *sent = scripted_request(server, i);

        ck_assert_ptr_null(strcasestr(sent, "checksum"));
        if (i != 3 && i != 5)
            ck_assert_ptr_nonnull(strstr(sent, "content-md5: " HELLO_MD5 "\r\n"));
    }
}
END_TEST

START_TEST(another_refusal_is_not_about_checksums)
{
    START(REST("501 Not Implemented", "", "<Error><Code>NotImplemented</Code></Error>"),
          REST("501 Not Implemented", "", "<Error><Code>NotImplemented</Code></Error>"), STORED,
          REST("400 Bad Request", "", "<Error><Code>BadDigest</Code></Error>"));
    ck_assert_int_eq(put(NULL), -EOPNOTSUPP);
    ck_assert_int_eq(put(NULL), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "x-amz-checksum-crc32c"));
    ck_assert_int_eq(put(NULL), -EIO);
    ck_assert_uint_eq(scripted_count(server), 4);
}
END_TEST

static const struct {
    struct scripted_answer answer;
    ssize_t result;
} whole_reads[] = {
    {WHOLE("x-amz-checksum-crc32c: " HELLO_CRC "\r\n", "hello"), 5},
    {WHOLE("x-amz-checksum-crc32c: " HELLO_CRC "\r\n", "hallo"), -EIO},
    {WHOLE("x-amz-checksum-crc32c: AAAAAA==\r\n", "hello"), -EIO},
    {WHOLE("x-amz-checksum-crc32c: AAAAAA==-1\r\n", "hello"), 5}, /* of its parts */
    {WHOLE("x-amz-checksum-crc32c: !!!!!!!!\r\n", "hello"), 5},
    {WHOLE("x-amz-checksum-crc32: NhCmhg==\r\n", "hello"), 5}, /* boto3's */
    {WHOLE("x-amz-checksum-crc32: NhCmhg==\r\n", "hallo"), -EIO},
    {WHOLE("x-amz-checksum-crc64nvme: M3eFcAZSQlc=\r\n", "hello"), 5}, /* Amazon's own */
    {WHOLE("x-amz-checksum-crc64nvme: M3eFcAZSQlc=\r\n", "hallo"), -EIO},
    {WHOLE("x-amz-checksum-sha1: AAAAAA==\r\n", "hello"), 5}, /* one that is not known here */
    {WHOLE("", "hello"), 5},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n"
              "x-amz-checksum-crc32c: " HELLO_CRC "\r\n\r\nhel",
      .close = true},
     -ECONNRESET},
};

START_TEST(a_whole_object_is_verified)
{
    static struct scripted_answer script[2];
    char data[17];
    ssize_t n;

    script[0] = (struct scripted_answer){
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n\r\n"};
    script[1] = whole_reads[_i].answer;
    server = scripted_new(script, 2);
    open_store("us-east-1");
    put_known();
    n = read_key("e", 16, 0, data);
    ck_assert_msg(n == whole_reads[_i].result, "%zd: %s", n, op.why);
    ck_assert_str_eq(data, n == 5 ? "hello" : ""); /* nothing that is damaged gets out */
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 1), "x-amz-checksum-mode: ENABLED\r\n"));
    ck_assert_ptr_null(strstr(scripted_request(server, 1), "range:"));
}
END_TEST

START_TEST(a_part_of_an_object_is_a_range)
{
    START(OK_OBJECT("e"), PARTIAL("bytes 0-2/5", 3, "e", "hel"),
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: \"e\"\r\n\r\nhello!!"},
          PARTIAL("bytes 0-4/7", 5, "e", "hello"));
    char data[17];

    ck_assert_int_eq(stat_key("k"), 0);
    ck_assert_int_eq(read_key("e", 3, 0, data), 3);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "range: bytes=0-2\r\n"));
    ck_assert_int_eq(read_key("e", 5, 0, data), 5); /* two versions with one ETag */
    ck_assert_str_eq(data, "hello");
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 3), "range: bytes=0-4\r\n"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_writing");
    TCase *t = tcase_create("s3_writing");

    scripted_environment();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_complete_that_fails_with_status_200);
    tcase_add_test(t, a_commit_whose_answer_was_lost);
    tcase_add_test(t, a_commit_that_someone_else_overtook);
    tcase_add_loop_test(t, a_commit_of_the_same_content_by_someone_else, 0, 3);
    tcase_add_test(t, a_begin_is_not_sent_twice);
    tcase_add_test(t, sessions_with_unusable_answers);
    tcase_add_test(t, bodies_are_signed_without_tls);
    tcase_add_test(t, refused_checksums_are_not_sent_again);
    tcase_add_test(t, another_refusal_is_not_about_checksums);
    tcase_add_loop_test(t, a_whole_object_is_verified, 0, ARRAY_SIZE(whole_reads));
    tcase_add_test(t, a_part_of_an_object_is_a_range);
    suite_add_tcase(s, t);
    return suite_run(s);
}
