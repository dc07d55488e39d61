/* The S3 driver against a server that lies, redirects and fails on purpose. What a real server
 * does is in tests/contract. */
#include "backends/drivers.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int put(const char *etag)
{
    struct mem_source src;

    mem_source_init(&src, "hello", 5);
    return store_put(store, &op, "k", etag, &src.base, NULL, NULL);
}

static int stat_key(const char *key)
{
    struct object obj;
    int r = store_stat(store, &op, key, &obj);

    if (!r)
        object_release(&obj);
    return r;
}

static ssize_t read_key(const char *etag, size_t len, uint64_t off, char data[17])
{
    struct mem_sink sink;
    struct object obj;
    ssize_t n;

    memset(data, 0, 17);
    mem_sink_init(&sink, data, 16, off);
    n = store_read(store, &op, "k", etag, &sink.base, len, off, &obj);
    if (n >= 0)
        object_release(&obj);
    return n;
}

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

/* ---- reading ---- */

static const struct {
    struct scripted_answer answer;
    const char *etag;
    ssize_t result;
} reads[] = {
    {PARTIAL("bytes 2-6/10", 5, "e", "hello"), "e", 5},
    {PARTIAL("bytes 2-6/7", 5, "e", "hello"), "e", 5},
    {PARTIAL("bytes 2-6/10", 5, "other", "hello"), "e", -ESTALE}, /* ignored If-Match */
    {PARTIAL("bytes 2-6/10", 5, "other", "hello"), NULL, 5},
    {PARTIAL("bytes 0-4/10", 5, "e", "hello"), "e", -EPROTO}, /* another range */
    {PARTIAL("bytes 2-5/10", 4, "e", "hell"), "e", -EPROTO},  /* short, not at the end */
    {PARTIAL("bytes 2-7/10", 6, "e", "hello!"), "e", -EPROTO},
    {PARTIAL("bytes 2-6/10", 6, "e", "hello!"), "e", -EPROTO}, /* lengths disagree */
    {PARTIAL("bytes 2-6/5", 5, "e", "hello"), "e", -EPROTO},
    {PARTIAL("bytes 2-6/*", 5, "e", "hello"), "e", -EPROTO},
    {PARTIAL("bytes 2-99999999999999999999/5", 5, "e", "hello"), "e", -EPROTO},
    {{.text = "HTTP/1.1 206 P\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello"}, "e", -EPROTO},
    {{.text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: \"e\"\r\n\r\nxxhello"},
     "e",
     -EPROTO}, /* the range was ignored */
    {{.text = "HTTP/1.1 206 P\r\nContent-Length: 5\r\nContent-Range: bytes 2-6/10\r\n"
              "ETag: \"e\"\r\n\r\nhel",
      .close = true},
     "e",
     -ECONNRESET},
    {REST("412 Precondition Failed", "", ""), "e", -ESTALE},
    {REST("404 Not Found", "", "<html>no route</html>"), "e", -ENXIO},
    {REST("410 Gone", "", ""), "e", -ENXIO},
    {REST("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>"), "e", -ENOENT},
};

START_TEST(a_read)
{
    char data[17];
    ssize_t r;

    server = scripted_new(&reads[_i].answer, 1);
    open_store("us-east-1");
    r = read_key(reads[_i].etag, 5, 2, data);
    ck_assert_msg(r == reads[_i].result, "%zd, not %zd: %s", r, reads[_i].result, op.why);
    if (r > 0)
        ck_assert_str_eq(data, "hello");
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "range: bytes=2-6\r\n"));
    if (reads[_i].etag)
        ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "if-match: \"e\"\r\n"));
}
END_TEST

START_TEST(a_read_behind_the_end)
{
    START(REST("416 Range", "", "<Error><Code>InvalidRange</Code></Error>"), OK_OBJECT("e"),
          REST("416 Range", "", "<Error><Code>InvalidRange</Code></Error>"), OK_OBJECT("e"),
          REST("416 Range", "", ""), OK_OBJECT("e"));
    char data[17];

    ck_assert_int_eq(read_key("e", 5, 5, data), 0);
    ck_assert_int_eq(read_key("other", 5, 5, data), -ESTALE);
    ck_assert_int_eq(read_key("e", 5, 4, data), -EPROTO); /* byte 4 is there */
}
END_TEST

/* ---- stat ---- */

START_TEST(s3fs_links_keep_their_target_in_the_body)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n"
                   "x-amz-meta-mode: 41471\r\n\r\n"},
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\n../to"});
    struct object obj;

    ck_assert_msg(store_stat(store, &op, "k", &obj) == 0, "%s", op.why);
    ck_assert_uint_eq(obj.attrs.mode, S_IFLNK | 0777);
    ck_assert_str_eq(obj.attrs.target, "../to");
    ck_assert_uint_eq(obj.size, 0);
    object_release(&obj);
}
END_TEST

START_TEST(a_link_without_a_target_is_a_file)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n"
                   "x-amz-meta-mode: 41471\r\n\r\n"});
    struct object obj;

    ck_assert_int_eq(store_stat(store, &op, "k", &obj), 0);
    ck_assert_uint_eq(obj.attrs.mode, S_IFREG | 0777);
    object_release(&obj);
}
END_TEST

START_TEST(heads_that_say_too_little)
{
    START({.text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: \"a b\"\r\n\r\n"});
    ck_assert_int_eq(stat_key("k"), -EPROTO);
    ck_assert_int_eq(stat_key("k"), -EPROTO);
}
END_TEST

START_TEST(a_missing_bucket_is_no_missing_key)
{
    START(REST("404 Not Found", "", ""),
          REST("404 Not Found", "", "<Error><Code>NoSuchBucket</Code></Error>"),
          REST("404 Not Found", "", ""));
    ck_assert_int_eq(stat_key("k"), -ENXIO);
    ck_assert_int_eq(stat_key(""), -ENXIO); /* a server without codes */
}
END_TEST

#define NOTHING_LISTED REST("200 OK", "", "<ListBucketResult/>")

/* Some other server answered the HEAD, and is gone when the listing is asked for: its 404 says
 * nothing of the key. What S3 says is asked once. */
START_TEST(a_404_of_who_was_not_s3)
{
    START(REST("404 Not Found", "", ""), NOTHING_LISTED, OK_OBJECT("e"),
          REST("404 Not Found", "", ""), NOTHING_LISTED, REST("404 Not Found", "", ""),
          REST("404 Not Found", "x-amz-request-id: 1\r\n", ""), NOTHING_LISTED);
    ck_assert_msg(stat_key("k") == 0, "%s", op.why);
    ck_assert_int_eq(stat_key("k"), -ENOENT);
    ck_assert_int_eq(stat_key("k"), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 8);
}
END_TEST

static int see_nothing(void *arg, const char *name, const struct object *obj)
{
    (void)arg;
    (void)name;
    (void)obj;
    return 0;
}

/* A 404 that has no code is not about a key. */
#define NO_FORM                                                                                \
    REST("400 Bad Request", "",                                                                \
         "<Error><Code>XMinioInvalidObjectName</Code><Message>Object name contains "           \
         "unsupported characters.</Message></Error>")
#define WRONG_HEAD REST("403 Forbidden", "x-amz-request-id: 18EA\r\n", "") /* to a HEAD */

/* What MinIO says of a name that is no UTF-8: nothing is there, and nothing is put there. */
START_TEST(a_name_without_a_form)
{
    START(WRONG_HEAD, NO_FORM, NO_FORM, NO_FORM, NO_FORM, WRONG_HEAD,
          REST("200 OK", "", "<ListBucketResult/>"), WRONG_HEAD, NO_FORM);

    ck_assert_int_eq(stat_key("bad\xff"), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 3);
    ck_assert_int_eq(store_list(store, &op, "bad\xff", 0, see_nothing, NULL), 0);
    ck_assert_int_eq(put(NULL), -EILSEQ);
    ck_assert_int_eq(stat_key("bad\xff"), -EACCES); /* it may list it, and not look at it */
    ck_assert_int_eq(stat_key("good"), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 8);
    ck_assert_int_eq(store_list(store, &op, "", 0, see_nothing, NULL), -EILSEQ);
}
END_TEST

START_TEST(a_404_that_is_not_s3s)
{
    START(NO_ROUTE, NO_ROUTE, NO_BUCKET, NO_KEY, NO_ROUTE,
          REST("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>"));
    const char *const keys[] = {"k"};

    ck_assert_int_eq(store_list(store, &op, "d", 0, see_nothing, NULL), -ENXIO);
    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 1, NULL), -ENXIO);
    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 1, NULL), -ENXIO);
    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 1, NULL), 0);
    ck_assert_int_eq(store_rmdir(store, &op, "d"), -ENXIO);
    ck_assert_int_eq(store_rmdir(store, &op, "d"), -EPROTO);
}
END_TEST

/* ---- listing ---- */

static int count_names(void *arg, const char *name, const struct object *obj)
{
    (void)name;
    (void)obj;
    (*(int *)arg)++;
    return 0;
}

static int stop_at_once(void *arg, const char *name, const struct object *obj)
{
    (void)arg;
    (void)name;
    (void)obj;
    return 42;
}

static int list_all(int *ret_names)
{
    *ret_names = 0;
    return store_list(store, &op, "d", 0, count_names, ret_names);
}

#define PAGE(token, names)                                                                     \
    REST("200 OK", "",                                                                         \
         "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" token      \
         "</NextContinuationToken>" names "</ListBucketResult>")
#define LAST(names)                                                                            \
    REST("200 OK", "",                                                                         \
         "<ListBucketResult><IsTruncated>false</IsTruncated>" names "</ListBucketResult>")
#define KEY(name) "<Contents><Key>" name "</Key><Size>1</Size></Contents>"

START_TEST(pages_follow_their_tokens)
{
    START(PAGE("1+/=", KEY("pre/d/") KEY("pre/d/a")), PAGE("2", ""), LAST(KEY("pre/d/b")));
    int names;

    ck_assert_msg(list_all(&names) == 0, "%s", op.why);
    ck_assert_int_eq(names, 2);
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 1), "continuation-token=1%2B%2F%3D&"));
}
END_TEST

START_TEST(a_repeated_token_ends_a_listing)
{
    START(PAGE("1", KEY("pre/d/a")), PAGE("1", KEY("pre/d/b")));
    int names;

    ck_assert_int_eq(list_all(&names), -EPROTO);
}
END_TEST

/* Each page has another token, and is not that of before. */
START_TEST(pages_in_a_circle_end_a_listing)
{
    START(PAGE("1", KEY("pre/d/a")), PAGE("2", KEY("pre/d/b")), PAGE("3", KEY("pre/d/c")),
          PAGE("4", KEY("pre/d/a")), PAGE("5", KEY("pre/d/b")), PAGE("6", KEY("pre/d/c")),
          PAGE("7", KEY("pre/d/a")), PAGE("8", KEY("pre/d/b")), PAGE("9", KEY("pre/d/c")),
          LAST(KEY("pre/d/d")));
    int names;

    ck_assert_int_eq(list_all(&names), -EPROTO);
    ck_assert_msg(strstr(op.why, "repeats its pages"), "%s", op.why);
}
END_TEST

START_TEST(a_size_that_no_object_has)
{
    START(
        {.text = "HTTP/1.1 200 OK\r\nContent-Length: 56294995342131200\r\nETag: \"e\"\r\n\r\n",
         .close = true},
        LAST("<Contents><Key>pre/d/a</Key><Size>18446744073709551615</Size></Contents>"),
        LAST("<Contents><Key>pre/d/a</Key><Size>54975581388800</Size></Contents>"));
    int names;

    ck_assert_int_eq(stat_key("k"), -EBADMSG);
    ck_assert_msg(strstr(op.why, "/k: the store says 56294995342131200 bytes"), "%s", op.why);
    ck_assert_int_eq(list_all(&names), -EBADMSG);
    ck_assert_msg(strstr(op.why, "a: the store says 18446744073709551615"), "%s", op.why);
    ck_assert_msg(list_all(&names) == 0, "%s", op.why);
}
END_TEST

START_TEST(a_repeated_page_ends_a_listing)
{
    START(PAGE("1", KEY("pre/d/a")), PAGE("2", KEY("pre/d/a")));
    int names;

    ck_assert_int_eq(list_all(&names), -EPROTO);
}
END_TEST

START_TEST(bad_names_are_hidden)
{
    START(LAST(KEY("pre/d/..") KEY("pre/d/a") "<CommonPrefixes><Prefix>pre/d//</Prefix>"
                                              "</CommonPrefixes>"));
    struct store_stats stats;
    int names;

    ck_assert_msg(list_all(&names) == 0, "%s", op.why);
    ck_assert_int_eq(names, 1);
    store_get_stats(store, &stats);
    ck_assert_uint_eq(stats.hidden_names, 2);
}
END_TEST

START_TEST(a_key_outside_ends_a_listing)
{
    START(LAST(KEY("other/a")), LAST(KEY("pre/d")));
    int names;

    ck_assert_int_eq(list_all(&names), -EPROTO);
    ck_assert_int_eq(list_all(&names), -EPROTO);
}
END_TEST

START_TEST(a_visitor_may_end_a_listing)
{
    START(PAGE("1", KEY("pre/d/a") KEY("pre/d/b")));

    ck_assert_int_eq(store_list(store, &op, "d", 0, stop_at_once, NULL), 42);
    ck_assert_uint_eq(scripted_count(server), 1);
}
END_TEST

/* ---- uploads and copies ---- */

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

/* ---- removal ---- */

START_TEST(each_key_has_its_own_result)
{
    START(REST("200 OK", "",
               "<DeleteResult><Error><Key>pre/b</Key><Code>AccessDenied</Code></Error>"
               "<Error><Key>pre/c</Key><Code>NoSuchKey</Code></Error></DeleteResult>"),
          XML("204 No Content", 0, ""));
    const char *const keys[] = {"a", "b", "c", "d\x01"};
    int errs[4];

    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 4, errs), -EACCES);
    ck_assert_int_eq(errs[0], 0);
    ck_assert_int_eq(errs[1], -EACCES);
    ck_assert_int_eq(errs[2], 0);
    ck_assert_int_eq(errs[3], 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "content-md5: "));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "DELETE /bkt/pre/d%01 "));
}
END_TEST

static size_t occurrences(const char *text, const char *word)
{
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, word)); at++)
        n++;
    return n;
}

START_TEST(many_keys_go_by_the_thousand)
{
    START(REST("200 OK", "", "<DeleteResult/>"),
          REST("200 OK", "",
               "<DeleteResult><Error><Key>pre/k1500</Key><Code>AccessDenied</Code></Error>"
               "<Error><Key>pre/k1999</Key><Code>InternalError</Code></Error></DeleteResult>"),
          REST("503 Slow Down", "", "<Error><Code>SlowDown</Code></Error>"));
    static char names[2002][8];
    const char *keys[ARRAY_SIZE(names)];
    int errs[ARRAY_SIZE(names)];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%zu", i);
        keys[i] = names[i];
    }
    ck_assert_int_eq(store_remove(store, &op, keys, NULL, ARRAY_SIZE(names), errs), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 3);
    ck_assert_uint_eq(occurrences(scripted_request(server, 0), "<Key>"), 1000);
    ck_assert_uint_eq(occurrences(scripted_request(server, 1), "<Key>"), 1000);
    ck_assert_uint_eq(occurrences(scripted_request(server, 2), "<Key>"), 2);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert_int_eq(errs[i], i == 1500   ? -EACCES
                                  : i == 1999 ? -EIO
                                  : i >= 2000 ? -EAGAIN
                                              : 0);
}
END_TEST

START_TEST(a_server_without_batches)
{
    START(REST("501 Not Implemented", "", "<Error><Code>NotImplemented</Code></Error>"),
          XML("204 No Content", 0, ""),
          REST("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>"));
    const char *const keys[] = {"a", "b"};

    ck_assert_msg(store_remove(store, &op, keys, NULL, 2, NULL) == 0, "%s", op.why);
    ck_assert_uint_eq(scripted_count(server), 3);
}
END_TEST

START_TEST(a_removal_names_the_version)
{
    START(XML("204 No Content", 0, ""),
          REST("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>"),
          REST("200 OK", "",
               "<DeleteResult><Error><Key>pre/c</Key><Code>PreconditionFailed</Code></Error>"
               "</DeleteResult>"));
    const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    const char *const etags[] = {"v1", "v<2", NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    int errs[9];

    ck_assert_int_eq(store_remove(store, &op, keys, etags, 2, errs), -ESTALE);
    ck_assert_int_eq(errs[0], 0);
    ck_assert_int_eq(errs[1], -ESTALE);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 0), "if-match: \"v1\""));
    ck_assert_int_eq(store_remove(store, &op, keys, etags, 9, errs), -ESTALE);
    ck_assert_int_eq(errs[2], -ESTALE);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2),
                                 "<Key>pre/b</Key><ETag>\"v&#60;2\"</ETag></Object>"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 2), "<Key>pre/c</Key></Object>"));
}
END_TEST

#define WITHOUT_CONDITIONS                                                                     \
    REST("501 Not Implemented", "", "<Error><Code>NotImplemented</Code></Error>")
#define INVALID   REST("400 Bad Request", "", "<Error><Code>InvalidRequest</Code></Error>")
#define MALFORMED REST("400 Bad Request", "", "<Error><Code>MalformedXML</Code></Error>")
#define REMOVED   XML("204 No Content", 0, "")

static int remove_a(size_t request)
{
    const char *const keys[] = {"a"}, *const etags[] = {"v1"};
    int r = store_remove(store, &op, keys, etags, 1, NULL);

    ck_assert_uint_eq(scripted_count(server), request);
    return r;
}

/* The version is looked at, as the server does not. */
START_TEST(a_server_without_conditional_deletes)
{
    START(WITHOUT_CONDITIONS, OK_OBJECT("v1"), REMOVED, OK_OBJECT("v1"), REMOVED,
          OK_OBJECT("theirs"));

    ck_assert_msg(remove_a(3) == 0, "%s", op.why);
    ck_assert_ptr_null(strstr(scripted_request(server, 2), "if-match"));
    ck_assert_int_eq(remove_a(5), 0); /* remembered */
    ck_assert_ptr_null(strstr(scripted_request(server, 4), "if-match"));
    ck_assert_int_eq(remove_a(6), -ESTALE);
}
END_TEST

/* What may mean something else is believed of one request only. */
START_TEST(a_refusal_that_may_be_about_conditions)
{
    START(INVALID, OK_OBJECT("theirs"), INVALID, NO_OBJECT, INVALID, OK_OBJECT("v1"), REMOVED,
          REMOVED);

    ck_assert_int_eq(remove_a(2), -ESTALE);
    ck_assert_int_eq(remove_a(4), -ESTALE);
    ck_assert_int_eq(remove_a(7), 0);
    ck_assert_ptr_null(strstr(scripted_request(server, 6), "if-match"));
    ck_assert_int_eq(remove_a(8), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 7), "if-match: \"v1\""));
}
END_TEST

/* One by one, with the version of each. */
START_TEST(a_batch_whose_versions_are_refused)
{
    START(MALFORMED, REMOVED, REMOVED, REMOVED, REMOVED, REMOVED, REMOVED, REMOVED, REMOVED,
          REST("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>"),
          REST("200 OK", "", "<DeleteResult/>"));
    const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    const char *const etags[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};

    ck_assert_int_eq(store_remove(store, &op, keys, etags, 9, NULL), -ESTALE);
    ck_assert_uint_eq(scripted_count(server), 10);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 9), "if-match: \"9\""));
    ck_assert_int_eq(store_remove(store, &op, keys, etags, 9, NULL), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 10), "<ETag>"));
}
END_TEST

/* A stray refusal by what is no S3, and one that is about something else. */
START_TEST(conditions_stay_after_other_refusals)
{
    START(REST("400 Bad Request", "", "<html>"), REST("405 Method Not Allowed", "", "<html>"),
          INVALID, OK_OBJECT("v1"), INVALID, REMOVED, REST("400 Bad Request", "", "<html>"));
    const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    const char *const etags[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};

    ck_assert_int_eq(remove_a(1), -EINVAL);
    ck_assert_int_eq(remove_a(2), -EPROTO);
    ck_assert_int_eq(remove_a(5), -EINVAL);
    ck_assert_int_eq(remove_a(6), 0);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 5), "if-match: \"v1\""));
    ck_assert_int_eq(store_remove(store, &op, keys, etags, 9, NULL), -EINVAL);
    ck_assert_uint_eq(scripted_count(server), 7);
}
END_TEST

START_TEST(an_answer_about_other_keys)
{
    START(REST("200 OK", "",
               "<DeleteResult><Error><Key>elsewhere</Key><Code>AccessDenied</Code></Error>"
               "</DeleteResult>"),
          REST("200 OK", "", "garbage"));
    const char *const keys[] = {"a", "b"};

    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 2, NULL), -EPROTO);
    ck_assert_int_eq(store_remove(store, &op, keys, NULL, 2, NULL), -EPROTO);
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

static TCase *reading_tests(void)
{
    TCase *t = tcase_create("reading");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_read, 0, ARRAY_SIZE(reads));
    tcase_add_test(t, a_read_behind_the_end);
    tcase_add_test(t, s3fs_links_keep_their_target_in_the_body);
    tcase_add_test(t, a_link_without_a_target_is_a_file);
    tcase_add_test(t, heads_that_say_too_little);
    tcase_add_test(t, a_missing_bucket_is_no_missing_key);
    tcase_add_test(t, a_404_of_who_was_not_s3);
    tcase_add_test(t, a_404_that_is_not_s3s);
    tcase_add_test(t, a_name_without_a_form);
    tcase_add_test(t, pages_follow_their_tokens);
    tcase_add_test(t, a_repeated_token_ends_a_listing);
    tcase_add_test(t, a_repeated_page_ends_a_listing);
    tcase_add_test(t, pages_in_a_circle_end_a_listing);
    tcase_add_test(t, a_size_that_no_object_has);
    tcase_add_test(t, bad_names_are_hidden);
    tcase_add_test(t, a_key_outside_ends_a_listing);
    tcase_add_test(t, a_visitor_may_end_a_listing);
    return t;
}

static TCase *writing_tests(void)
{
    TCase *t = tcase_create("writing");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, an_error_of_put, 0, ARRAY_SIZE(put_errors));
    tcase_add_test(t, a_server_that_is_not_s3);
    tcase_add_test(t, an_object_without_an_etag);
    tcase_add_test(t, a_complete_that_fails_with_status_200);
    tcase_add_test(t, a_commit_whose_answer_was_lost);
    tcase_add_test(t, a_commit_that_someone_else_overtook);
    tcase_add_loop_test(t, a_commit_of_the_same_content_by_someone_else, 0, 3);
    tcase_add_test(t, a_begin_is_not_sent_twice);
    tcase_add_test(t, sessions_with_unusable_answers);
    tcase_add_test(t, bodies_are_signed_without_tls);
    tcase_add_loop_test(t, a_plain_endpoint_is_told, 0, ARRAY_SIZE(plain));
    tcase_add_test(t, refused_checksums_are_not_sent_again);
    tcase_add_test(t, another_refusal_is_not_about_checksums);
    tcase_add_loop_test(t, a_whole_object_is_verified, 0, ARRAY_SIZE(whole_reads));
    tcase_add_test(t, a_part_of_an_object_is_a_range);
    tcase_add_test(t, each_key_has_its_own_result);
    tcase_add_test(t, many_keys_go_by_the_thousand);
    tcase_add_test(t, a_server_without_batches);
    tcase_add_test(t, a_removal_names_the_version);
    tcase_add_test(t, a_server_without_conditional_deletes);
    tcase_add_test(t, a_batch_whose_versions_are_refused);
    tcase_add_test(t, conditions_stay_after_other_refusals);
    tcase_add_test(t, a_refusal_that_may_be_about_conditions);
    tcase_add_test(t, an_answer_about_other_keys);
    return t;
}

static TCase *request_tests(void)
{
    TCase *t = tcase_create("requests");

    tcase_add_checked_fixture(t, setup, teardown);
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
    return t;
}

int main(void)
{
    Suite *s = suite_create("s3_faults");

    scripted_environment();
    suite_add_tcase(s, request_tests());
    suite_add_tcase(s, reading_tests());
    suite_add_tcase(s, writing_tests());
    return suite_run(s);
}
