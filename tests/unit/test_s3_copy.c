/* Copies at the server and new attributes, which are copies, against a server that lies, hangs
 * and fails on purpose. What a real server does is in tests/contract. */
#include "backends/s3/s3.h"
#include "tests/lib/s3_scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(a_copy_that_fails_with_status_200)
{
    START(OK_OBJECT("e"), REST("200 OK", "", "<Error><Code>SlowDown</Code></Error>"),
          OK_OBJECT("e"),
          REST("200 OK", "", "<CopyObjectResult><ETag>\"f\"</ETag></CopyObjectResult>"));
    struct object obj;

    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, &obj), -EAGAIN);
    ck_assert_msg(store_copy(store, &op, "a b", "e", "b", NULL, NULL, &obj) == 0, "%s", op.why);
    ck_assert_str_eq(obj.etag, "f");
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 3), "x-amz-copy-source: bkt/pre/a%20b\r\n"));
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 3), "x-amz-copy-source-if-match: \"e\"\r\n"));
    object_release(&obj);
}
END_TEST

START_TEST(foreign_metadata_survives_new_attributes)
{
    START({.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n"
                   "Content-Type: text/plain\r\nx-amz-meta-owner-team: blue\r\n"
                   "x-amz-meta-mode: 33188\r\n\r\n"},
          {.text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"f\"\r\n\r\n"});
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};
    struct object obj;
    const char *sent;

    ck_assert_int_eq(store_set_attributes(store, &op, "k", NULL, &attrs, &obj), 0);
    object_release(&obj);
    sent = scripted_request(server, 1);
    ck_assert_ptr_nonnull(strstr(sent, "content-type: text/plain\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "x-amz-meta-owner-team: blue\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "x-amz-meta-mode: 33152\r\n"));
    ck_assert_ptr_null(strstr(sent, "33188"));
    ck_assert_ptr_nonnull(strstr(sent, "if-match: \"e\"\r\n"));
}
END_TEST

#define NOTHING_LISTED REST("200 OK", "", "<ListBucketResult/>")

/* A HEAD is told no code: whether the bucket is there is asked before a source is called gone,
 * and whether the source is, now that the bucket is. */
START_TEST(a_missing_bucket_is_no_missing_source)
{
    START(NO_OBJECT, NO_BUCKET, NO_OBJECT, NO_ROUTE, NO_OBJECT, NO_OBJECT, NO_BUCKET, NO_OBJECT,
          NOTHING_LISTED, NO_OBJECT, NOTHING_LISTED, NO_OBJECT, NO_OBJECT, NOTHING_LISTED,
          NO_OBJECT, NOTHING_LISTED, NO_OBJECT, NOTHING_LISTED, OK_OBJECT("e"));
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};

    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), -ENXIO);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), -ENXIO);
    ck_assert_int_eq(store_set_attributes(store, &op, "k", NULL, &attrs, NULL), -ENXIO);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), -ENOENT);
    ck_assert_int_eq(store_set_attributes(store, &op, "k", NULL, &attrs, NULL), -ENOENT);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", NULL, NULL, NULL), -EAGAIN);
    ck_assert_uint_eq(scripted_count(server), 19);
}
END_TEST

/* The root of a bucket that has no marker: there is no object of that name to look for once
 * more, and the bucket, which is there, is none. */
START_TEST(a_bucket_without_a_marker_has_none)
{
    static const struct scripted_answer script[] = {NO_OBJECT, NOTHING_LISTED, OK_OBJECT("e")};
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFDIR | 0750};

    server = scripted_new(script, ARRAY_SIZE(script));
    open_url("s3://bkt", "us-east-1");
    ck_assert_int_eq(store_set_attributes(store, &op, "", NULL, &attrs, NULL), -ENOENT);
    ck_assert_uint_eq(scripted_count(server), 2);
}
END_TEST

/* AWS copies ranges only out of objects above 5 MB. */
START_TEST(a_part_that_is_the_whole_object_names_no_range)
{
    START(OK_OBJECT("e"), BEGUN, COPIED_PART, COMPLETED);
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};
    const char *sent;

    ck_assert_msg(store_set_attributes(store, &op, "k", NULL, &attrs, NULL) == 0, "%s", op.why);
    sent = scripted_request(server, 2);
    ck_assert_ptr_nonnull(strstr(sent, "x-amz-copy-source: bkt/pre/k\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "x-amz-copy-source-if-match: \"e\"\r\n"));
    ck_assert_ptr_null(strstr(sent, "x-amz-copy-source-range"));
}
END_TEST

#define DENIED REST("403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>")
#define ENDED                                                                                  \
    {                                                                                          \
        .text = "HTTP/1.1 204 No Content\r\n\r\n"                                              \
    }

/* The time is over, and the parts would stay at the store for ever. */
START_TEST(a_copy_that_hangs_is_ended_at_the_store)
{
    START(OK_OBJECT("e"), BEGUN, {.text = NULL}, ENDED);

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL), -ETIMEDOUT);
    ck_assert_uint_eq(scripted_count(server), 4);
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 3), "DELETE /bkt/pre/b?uploadId=ID HTTP"));
}
END_TEST

static void *cancel_later(void *arg)
{
    while (scripted_count(server) < 3)
        usleep(10 * 1000);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

START_TEST(a_copy_that_is_cancelled_is_ended_at_the_store)
{
    START(OK_OBJECT("e"), BEGUN, {.text = NULL}, ENDED);
    static atomic_bool cancelled;
    pthread_t canceller;

    op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&canceller, NULL, cancel_later, &cancelled), 0);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL), -EINTR);
    (void)pthread_join(canceller, NULL);
    ck_assert_ptr_nonnull(
        strstr(scripted_request(server, 3), "DELETE /bkt/pre/b?uploadId=ID HTTP"));
}
END_TEST

struct account {
    struct store_sessions base;
    char said[128];
};

static int account_begun(struct store_sessions *s, const char *key, const char *token)
{
    struct account *a = container_of(s, struct account, base);
    size_t n = strlen(a->said);

    (void)snprintf(a->said + n, sizeof(a->said) - n, "%s %s,", key, token ? token : "-");
    return 0;
}

static void account_ended(struct store_sessions *s)
{
    struct account *a = container_of(s, struct account, base);
    size_t n = strlen(a->said);

    (void)snprintf(a->said + n, sizeof(a->said) - n, "ended,");
}

/* Killed, it could not end its session: the requester is told of it before there is a part. */
START_TEST(a_copy_tells_of_its_session)
{
    START(OK_OBJECT("e"), BEGUN, COPIED_PART, COMPLETED, OK_OBJECT("e"), DENIED, OK_OBJECT("e"),
          BEGUN, DENIED, ENDED, OK_OBJECT("e"), BEGUN, DENIED, DENIED);
    static const struct {
        int err;
        const char *said;
    } t[] = {{0, "b -,b ID,ended,"},
             {-EACCES, "b -,ended,"},
             {-EACCES, "b -,b ID,ended,"},
             {-EACCES, "b -,b ID,"}};
    struct op_notes notes = {0};

    op.notes = &notes;
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct account a = {.base = {.begun = account_begun, .ended = account_ended}};

        notes.sessions = &a.base;
        ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL), t[i].err);
        ck_assert_str_eq(a.said, t[i].said);
    }
}
END_TEST

#define NO_SESSION REST("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>")

/* A rule of the bucket, or another node that took it for one of its own. A rename that heard of
 * a missing source would leave the file under its old name. */
START_TEST(a_session_that_others_end_is_no_missing_source)
{
    START(OK_OBJECT("e"), BEGUN, NO_SESSION, NO_SESSION, NO_SESSION, ENDED, OK_OBJECT("e"),
          BEGUN, COPIED_PART, NO_SESSION, NO_SESSION, OK_OBJECT("other"), ENDED);

    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL), -EAGAIN);
    ck_assert_uint_eq(scripted_count(server), 6);
    ck_assert_int_eq(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL), -EAGAIN);
}
END_TEST

#define SLOW_PART(after)                                                                       \
    {                                                                                          \
        .text =                                                                                \
            "HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n<CopyPartResult><ETag>\"p\"</ETag>"  \
            "</CopyPartResult>",                                                               \
        .stall_ms = (after)                                                                    \
    }

/* Each part has the patience of the whole call, and one that fails in passing is sent again. */
START_TEST(a_copy_may_take_longer_than_each_part)
{
    START(OK_OBJECT("e"), BEGUN, SLOW_PART(1500), SLOW_PART(1500), SLOW_PART(1500),
          SLOW_PART(1500), REST("500 Oops", "", "<Error><Code>InternalError</Code></Error>"),
          SLOW_PART(1500), COMPLETED);
    const char *sent;

    s3_of(store)->copy_part = 1;
    op_init(&op, 2900 * NS_PER_MS);
    ck_assert_msg(store_copy(store, &op, "a", NULL, "b", "v", NULL, NULL) == 0, "%s", op.why);
    ck_assert_uint_eq(scripted_count(server), 9);
    sent = scripted_request(server, 8);
    for (int i = 1; i <= 5; i++) {
        char number[32];

        (void)snprintf(number, sizeof(number), "<PartNumber>%d<", i);
        ck_assert_ptr_nonnull(strstr(sent, number));
    }
}
END_TEST

#define TAGGED(size)                                                                           \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: " size "\r\nETag: \"e\"\r\n"               \
                "Expires: Thu, 01 Jan 2032 00:00:00 GMT\r\nx-amz-tagging-count: 2\r\n\r\n"     \
    }
#define TAGS                                                                                   \
    REST("200 OK", "",                                                                         \
         "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag>"                    \
         "<Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>")

/* Tags are asked for and sent, and left behind where they are refused. */
START_TEST(tags_survive_new_attributes)
{
    START(TAGGED("5"), TAGS, BEGUN, COPIED_PART, COMPLETED, TAGGED("0"), TAGS, STORED,
          TAGGED("5"), TAGS, DENIED, BEGUN, COPIED_PART, COMPLETED, TAGGED("0"), DENIED,
          STORED);
    static const struct {
        size_t request;
        bool has;
    } t[] = {{2, true}, {7, true}, {10, true}, {11, false}, {16, false}};
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};

    for (int i = 0; i < 4; i++)
        ck_assert_msg(store_set_attributes(store, &op, "k", NULL, &attrs, NULL) == 0, "%d %s",
                      i, op.why);
    ck_assert_uint_eq(scripted_count(server), 17);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const char *sent = scripted_request(server, t[i].request);

        ck_assert_msg(!strstr(sent, "x-amz-tagging: a%20b=1%262&c=\r\n") != t[i].has, "%zu: %s",
                      i, sent);
        ck_assert_ptr_nonnull(strstr(sent, "expires: Thu, 01 Jan 2032"));
    }
}
END_TEST

/* ---- servers that know less ---- */

#define SAYS(status, code) REST(status, "", "<Error><Code>" code "</Code></Error>")
#define COPIED             REST("200 OK", "", "<CopyObjectResult><ETag>\"f\"</ETag></CopyObjectResult>")

static const struct scripted_answer refusals[] = {
    SAYS("501 Not Implemented", "NotImplemented"),
    SAYS("405 Method Not Allowed", "MethodNotAllowed"),
    SAYS("400 Bad Request", "InvalidArgument"),
};

/* The server says in the words number `which` what it does not know. */
static void start(const struct scripted_answer *script, size_t n, int which)
{
    static struct scripted_answer answers[16];

    ck_assert_uint_le(n, ARRAY_SIZE(answers));
    for (size_t i = 0; i < n; i++)
        answers[i] = script[i].repeat == 1 ? refusals[which] : script[i];
    server = scripted_new(answers, n);
    open_store("us-east-1");
}
#define REFUSED                                                                                \
    {                                                                                          \
        .repeat = 1                                                                            \
    } /* replaced by one of the refusals */
#define SERVE(...)                                                                             \
    static const struct scripted_answer serve_[] = {__VA_ARGS__};                              \
    start(serve_, ARRAY_SIZE(serve_), _i)

static const struct attrs mode_only = {.has = ATTR_MODE, .mode = S_IFREG | 0600};

static int set_mode(void)
{
    op_init(&op, 10 * NS_PER_SEC);
    return store_set_attributes(store, &op, "k", "e", &mode_only, NULL);
}

static bool said(size_t request, const char *text)
{
    return strstr(scripted_request(server, request), text) != NULL;
}

/* Its Complete knows no condition: new attributes are copied in one request from then on. */
START_TEST(attributes_where_complete_knows_no_condition)
{
    SERVE(OK_OBJECT("e"), BEGUN, COPIED_PART, REFUSED, ENDED, COPIED, OK_OBJECT("e"), COPIED);

    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(5, "x-amz-metadata-directive: REPLACE\r\n"));
    ck_assert(said(5, "x-amz-copy-source-if-match: \"e\"\r\n"));
    ck_assert(said(5, "x-amz-meta-mode: 33152\r\n"));
    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(7, "x-amz-copy-source-if-match: \"e\"\r\n"));
    ck_assert_uint_eq(scripted_count(server), 8);
}
END_TEST

/* It copies no parts. */
START_TEST(attributes_where_no_part_is_copied)
{
    SERVE(OK_OBJECT("e"), BEGUN, REFUSED, ENDED, COPIED, OK_OBJECT("e"), COPIED);

    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(6, "x-amz-copy-source-if-match: \"e\"\r\n"));
    ck_assert_uint_eq(scripted_count(server), 7);
}
END_TEST

/* It copies nothing at all: the content goes through here. */
START_TEST(attributes_where_nothing_is_copied)
{
    SERVE(OK_OBJECT("e"), BEGUN, REFUSED, ENDED, REFUSED, BEGUN,
          PARTIAL("bytes 0-4/5", 5, "e", "hello"), PART_DONE, OK_OBJECT("e"), COMPLETED,
          OK_OBJECT("e"), BEGUN, PARTIAL("bytes 0-4/5", 5, "e", "hello"), PART_DONE,
          OK_OBJECT("other"), ENDED);

    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(5, "x-amz-meta-mode: 33152\r\n"));
    ck_assert(said(6, "if-match: \"e\"\r\n"));
    ck_assert(said(7, "hello"));
    ck_assert_int_eq(set_mode(), -ESTALE); /* replaced while it was sent */
    ck_assert_uint_eq(scripted_count(server), 16);
}
END_TEST

/* A large object has no CopyObject; what is refused of it is not held against smaller ones. */
START_TEST(attributes_of_a_large_object)
{
    SERVE(OK_OBJECT("e"), BEGUN, COPIED_PART, REFUSED, ENDED, BEGUN, COPIED_PART,
          OK_OBJECT("e"), COMPLETED, OK_OBJECT("e"), BEGUN, COPIED_PART, COMPLETED);

    s3_of(store)->copy_max = 4;
    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(!said(8, "if-match"));
    s3_of(store)->copy_max = 5;
    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(12, "if-match: \"e\"\r\n"));
    ck_assert_uint_eq(scripted_count(server), 13);
}
END_TEST

/* An empty object is written anew, where the version was looked at. */
START_TEST(attributes_of_an_empty_object)
{
    SERVE(STORED, REFUSED, STORED, STORED, STORED, STORED, STORED, STORED, OK_OBJECT("other"));

    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(said(1, "if-match: \"e\"\r\n"));
    ck_assert(!said(3, "if-match"));
    ck_assert_msg(set_mode() == 0, "%s", op.why);
    ck_assert(!said(6, "if-match"));
    ck_assert_int_eq(set_mode(), -ESTALE); /* replaced in between */
    ck_assert_uint_eq(scripted_count(server), 9);
}
END_TEST

/* What refuses everything is no server that knows less: nothing is learned. */
START_TEST(what_is_refused_in_every_way_fails)
{
    SERVE(OK_OBJECT("e"), REFUSED, REFUSED, REFUSED, OK_OBJECT("e"), BEGUN, COPIED_PART,
          COMPLETED);

    ck_assert_int_eq(set_mode(), _i == 2 ? -EINVAL : -EOPNOTSUPP);
    if (_i < 2) {
        ck_assert_msg(set_mode() == 0, "%s", op.why);
        ck_assert(said(7, "if-match: \"e\"\r\n"));
    }
}
END_TEST

/* Who uploads is told that it is the condition, in whichever words. (A put is repeated without
 * its checksum first, where the words could mean that.) */
START_TEST(a_put_whose_condition_is_refused)
{
    SERVE(REFUSED, REFUSED);
    struct mem_source src;

    mem_source_init(&src, "hello", 5);
    ck_assert_int_eq(store_put(store, &op, "k", "e", &src.base, &mode_only, NULL), -EOPNOTSUPP);
}
END_TEST

START_TEST(a_commit_whose_condition_is_refused)
{
    SERVE(BEGUN, PART_DONE, REFUSED, ENDED);
    struct upload *up = NULL;
    struct mem_source src;

    mem_source_init(&src, "hello", 5);
    ck_assert_int_eq(store_upload_begin(store, &op, "k", &mode_only, &up), 0);
    ck_assert_int_eq(store_upload_part(up, &op, 1, &src.base), 0);
    ck_assert_int_eq(store_upload_commit(up, &op, "e", NULL), -EOPNOTSUPP);
    ck_assert_int_eq(store_upload_abort(up, &op), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_copy");
    TCase *t = tcase_create("copies");

    scripted_environment();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_part_that_is_the_whole_object_names_no_range);
    tcase_add_test(t, a_copy_that_hangs_is_ended_at_the_store);
    tcase_add_test(t, a_copy_that_is_cancelled_is_ended_at_the_store);
    tcase_add_test(t, a_bucket_without_a_marker_has_none);
    tcase_add_test(t, a_copy_tells_of_its_session);
    tcase_add_test(t, a_session_that_others_end_is_no_missing_source);
    tcase_add_test(t, a_copy_may_take_longer_than_each_part);
    tcase_add_test(t, a_missing_bucket_is_no_missing_source);
    tcase_add_test(t, a_copy_that_fails_with_status_200);
    tcase_add_test(t, foreign_metadata_survives_new_attributes);
    tcase_add_test(t, tags_survive_new_attributes);
    tcase_add_loop_test(t, attributes_where_complete_knows_no_condition, 0, 3);
    tcase_add_loop_test(t, attributes_where_no_part_is_copied, 0, 3);
    tcase_add_loop_test(t, attributes_where_nothing_is_copied, 0, 3);
    tcase_add_loop_test(t, attributes_of_a_large_object, 0, 3);
    tcase_add_loop_test(t, attributes_of_an_empty_object, 0, 3);
    tcase_add_loop_test(t, what_is_refused_in_every_way_fails, 0, 3);
    tcase_add_loop_test(t, a_put_whose_condition_is_refused, 0, 3);
    tcase_add_loop_test(t, a_commit_whose_condition_is_refused, 0, 3);
    suite_add_tcase(s, t);
    return suite_run(s);
}
