/* The S3 driver against a server that refuses removals, their batches or their conditions. What
 * a real server does is in tests/contract. */
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

int main(void)
{
    Suite *s = suite_create("s3_removal");
    TCase *t = tcase_create("s3_removal");

    scripted_environment();
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, each_key_has_its_own_result);
    tcase_add_test(t, many_keys_go_by_the_thousand);
    tcase_add_test(t, a_server_without_batches);
    tcase_add_test(t, a_removal_names_the_version);
    tcase_add_test(t, a_server_without_conditional_deletes);
    tcase_add_test(t, a_batch_whose_versions_are_refused);
    tcase_add_test(t, conditions_stay_after_other_refusals);
    tcase_add_test(t, a_refusal_that_may_be_about_conditions);
    tcase_add_test(t, an_answer_about_other_keys);
    suite_add_tcase(s, t);
    return suite_run(s);
}
