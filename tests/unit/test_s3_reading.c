/* The S3 driver against a server that lies about what it has: reads, HEADs and listings. What a
 * real server does is in tests/contract. */
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_calls.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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

#define LISTED(key)                                                                            \
    REST("200 OK", "",                                                                         \
         "<ListBucketResult><Contents><Key>pre/" key "</Key><Size>1</Size></Contents>"         \
         "</ListBucketResult>")
#define NOT_FOUND   REST("404 Not Found", "", "")
#define S3_HAS_NONE REST("404 Not Found", "x-amz-request-id: 1\r\n", "")

/* Some other server answered the HEAD, and a listing is S3's: a 404 says nothing of a key that
 * is listed. What S3 says is asked once. */
START_TEST(a_404_of_who_was_not_s3)
{
    START(NOT_FOUND, NOTHING_LISTED, LISTED("k"), OK_OBJECT("e"), NOT_FOUND, NOTHING_LISTED,
          NOTHING_LISTED, NOT_FOUND, S3_HAS_NONE, NOTHING_LISTED, NOT_FOUND, NOTHING_LISTED,
          LISTED("k"), NOT_FOUND, NOT_FOUND, NOTHING_LISTED, LISTED("k2"), NOT_FOUND);
    ck_assert_msg(stat_key("k") == 0, "%s", op.why);
    ck_assert_int_eq(stat_key("k"), -ENOENT);
    ck_assert_int_eq(stat_key("k"), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 10);
    ck_assert_int_eq(stat_key("k"), -EAGAIN); /* one of several servers has no way to S3 */
    ck_assert_int_eq(stat_key("k"), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 18);
}
END_TEST

/* Who believed it would count a rename as done. */
START_TEST(a_404_to_each_head_of_a_copy)
{
    START(NOT_FOUND, NOTHING_LISTED, NOT_FOUND, LISTED("k"), NOT_FOUND, NOTHING_LISTED,
          NOT_FOUND, NOTHING_LISTED, S3_HAS_NONE, NOTHING_LISTED, S3_HAS_NONE);
    ck_assert_int_eq(store_copy(store, &op, "k", NULL, "to", NULL, NULL, NULL), -EAGAIN);
    ck_assert_int_eq(store_copy(store, &op, "k", NULL, "to", NULL, NULL, NULL), -ENOENT);
    ck_assert_int_eq(store_copy(store, &op, "k", NULL, "to", NULL, NULL, NULL), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 11);
}
END_TEST

/* An implied directory has no attributes, and leaves no marker at its new name. Servers list
 * some that they don't have. */
START_TEST(a_404_of_a_marker_that_is_listed)
{
    START(S3_HAS_NONE, LISTED("k/"), NOT_FOUND, S3_HAS_NONE, LISTED("k/"), S3_HAS_NONE);
    ck_assert_int_eq(stat_key("k"), -EAGAIN);
    ck_assert_int_eq(stat_key("k"), 0);
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

#define NUL_KEY "<EncodingType>url</EncodingType>" KEY("pre/d/n%00")

/* Another listing of the store, between two pages of the first. */
static int list_beside(void *arg, const char *name, const struct object *obj)
{
    struct op_notes *notes = arg;
    struct op own;
    int names = 0;

    (void)name, (void)obj;
    op_init(&own, OP_FOREVER);
    own.notes = notes;
    ck_assert_msg(store_list(store, &own, "e", 0, count_names, &names) == 0, "%s", own.why);
    ck_assert_int_eq(names, 1);
    return 0;
}

START_TEST(hidden_names_are_those_of_their_listing)
{
    START(PAGE("1", NUL_KEY KEY("pre/d/a")), LAST(KEY("pre/e/x")), LAST(""));
    struct op_notes notes = {0}, beside = {0};

    op.notes = &notes;
    ck_assert_msg(store_list(store, &op, "d", 0, list_beside, &beside) == 0, "%s", op.why);
    op.notes = NULL;
    ck_assert_uint_eq(scripted_count(server), 3);
    ck_assert_uint_eq(beside.hidden_names, 0);
    ck_assert_uint_eq(notes.hidden_names, 1);
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

int main(void)
{
    Suite *s = suite_create("s3_reading");
    TCase *t = tcase_create("s3_reading");

    scripted_environment();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_read, 0, ARRAY_SIZE(reads));
    tcase_add_test(t, a_read_behind_the_end);
    tcase_add_test(t, s3fs_links_keep_their_target_in_the_body);
    tcase_add_test(t, a_link_without_a_target_is_a_file);
    tcase_add_test(t, heads_that_say_too_little);
    tcase_add_test(t, a_missing_bucket_is_no_missing_key);
    tcase_add_test(t, a_404_of_who_was_not_s3);
    tcase_add_test(t, a_404_to_each_head_of_a_copy);
    tcase_add_test(t, a_404_of_a_marker_that_is_listed);
    tcase_add_test(t, a_404_that_is_not_s3s);
    tcase_add_test(t, a_name_without_a_form);
    tcase_add_test(t, pages_follow_their_tokens);
    tcase_add_test(t, a_repeated_token_ends_a_listing);
    tcase_add_test(t, a_repeated_page_ends_a_listing);
    tcase_add_test(t, pages_in_a_circle_end_a_listing);
    tcase_add_test(t, a_size_that_no_object_has);
    tcase_add_test(t, bad_names_are_hidden);
    tcase_add_test(t, hidden_names_are_those_of_their_listing);
    tcase_add_test(t, a_key_outside_ends_a_listing);
    tcase_add_test(t, a_visitor_may_end_a_listing);
    suite_add_tcase(s, t);
    return suite_run(s);
}
