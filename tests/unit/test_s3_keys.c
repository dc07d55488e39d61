/* The S3 driver when its keys end or are refused: a container's endpoint hands out keys, a
 * scripted S3 server judges them. */
#include "backends/drivers.h"
#include "backends/store.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REST(status, body)                                                                     \
    {                                                                                          \
        .text = "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n" body, .close = true         \
    }
#define KEYS(name)                                                                             \
    REST("200 OK", "{\"AccessKeyId\": \"AK" name "\", \"SecretAccessKey\": \"SK" name          \
                   "\", \"Token\": \"TK" name "\", \"Expiration\": \"2100-01-01T00:00:00Z\"}")
#define EXPIRED REST("400 Bad Request", "<Error><Code>ExpiredToken</Code></Error>")
#define BEGUN                                                                                  \
    REST("200 OK", "<InitiateMultipartUploadResult><UploadId>ID</UploadId>"                    \
                   "</InitiateMultipartUploadResult>")
#define DONE                                                                                   \
    REST("200 OK", "<CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"                       \
                   "</CompleteMultipartUploadResult>")
#define EMPTY                                                                                  \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"                                     \
                "ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n\r\n"                           \
    }

static struct scripted *keys, *server;
static struct store *store;
static struct op op;

static void setup(void)
{
    aws_clear_environment();
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    op_init(&op, 10 * NS_PER_SEC);
    keys = server = NULL;
    store = NULL;
}

static void teardown(void)
{
    store_close(store);
    scripted_free(keys);
    scripted_free(server);
}

static void open_store(const struct scripted_answer *from_keys, size_t n_keys,
                       const struct scripted_answer *from_server, size_t n_server)
{
    char url[64], endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint}};
    struct store_config config = {.options = options, .n_options = 1};

    keys = scripted_new(from_keys, n_keys);
    server = scripted_new(from_server, n_server);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", scripted_port(keys));
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    ck_assert_msg(s3_store_new("s3://bkt", &config, &op, &store) == 0, "%s", op.why);
}

static void sent(size_t i, const char *text)
{
    ck_assert_msg(strstr(scripted_request(server, i), text) != NULL,
                  "request %zu: %s\nhas no %s", i, scripted_request(server, i), text);
}

static int put(void)
{
    struct mem_source src;

    mem_source_init(&src, "hello", 5);
    return store_put(store, &op, "k", NULL, &src.base, NULL, NULL);
}

START_TEST(a_token_ends_in_mid_upload)
{
    static const struct scripted_answer given[] = {KEYS("1"), KEYS("2"), KEYS("3")};
    static const struct scripted_answer script[] = {BEGUN, EMPTY, EXPIRED, EMPTY,
                                                    EMPTY, DONE,  EXPIRED, EMPTY};
    struct mem_source src;
    struct upload *up;

    open_store(given, 3, script, ARRAY_SIZE(script));
    mem_source_init(&src, "hello", 5);
    ck_assert_msg(store_upload_begin(store, &op, "k", NULL, &up) == 0, "%s", op.why);
    for (unsigned i = 1; i <= 3; i++)
        ck_assert_msg(store_upload_part(up, &op, i, &src.base) == 0, "%s", op.why);
    ck_assert_msg(store_upload_commit(up, &op, NULL, NULL) == 0, "%s", op.why);
    sent(1, "Credential=AK1/");
    sent(1, "x-amz-security-token: TK1\r\n");
    for (size_t i = 2; i <= 3; i++) {
        sent(i, "PUT /bkt/k?partNumber=2&uploadId=ID ");
        sent(i, "\r\n\r\nhello");
    }
    sent(2, "Credential=AK1/");
    for (size_t i = 3; i <= 5; i++) {
        sent(i, "Credential=AK2/");
        sent(i, "x-amz-security-token: TK2\r\n");
    }
    sent(5, "<PartNumber>3</PartNumber>");
    ck_assert_uint_eq(scripted_count(keys), 2);
    ck_assert_int_eq(put(), -EACCES); /* the next ones end at once: not asked for so soon */
    ck_assert_uint_eq(scripted_count(keys), 2);
}
END_TEST

/* What a HEAD is told has no body. */
START_TEST(a_refusal_without_a_code)
{
    static const struct scripted_answer given[] = {KEYS("1"), KEYS("2"), KEYS("3")};
    static const struct scripted_answer script[] = {REST("400 Bad Request", ""), EMPTY,
                                                    REST("403 Forbidden", "")};
    struct object obj;

    open_store(given, 3, script, ARRAY_SIZE(script));
    ck_assert_msg(store_stat(store, &op, "k", &obj) == 0, "%s", op.why);
    object_release(&obj);
    sent(1, "Credential=AK2/");
    ck_assert_int_eq(store_stat(store, &op, "k", &obj), -EACCES);
    ck_assert_uint_eq(scripted_count(keys), 2); /* may be about the object */
}
END_TEST

START_TEST(a_refusal_that_is_not_about_keys)
{
    static const struct scripted_answer given[] = {KEYS("1")};
    static const struct scripted_answer script[] = {
        REST("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>")};

    open_store(given, 1, script, 1);
    ck_assert_int_eq(put(), -EACCES);
    ck_assert_uint_eq(scripted_count(keys), 1);
}
END_TEST

/* At its most talkative, through all layers, with keys that come, are refused, and end. */
START_TEST(no_secret_is_logged)
{
    static const struct scripted_answer given[] = {KEYS("1"), KEYS("2"), KEYS("3")};
    static const struct scripted_answer script[] = {
        REST("200 OK", "<ListBucketResult></ListBucketResult>"), EXPIRED, EMPTY,
        REST("403 Forbidden", "<Error><Code>InvalidAccessKeyId</Code></Error>"), EMPTY};
    char path[] = "/tmp/runfs-log.XXXXXX", text[16384], endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint}};
    struct store_config config = {.options = options, .n_options = 1};
    auto_close int fd = mkstemp(path);
    ssize_t len;

    ck_assert_int_ge(fd, 0);
    log_set_level(LOG_LEVEL_DEBUG);
    ck_assert_int_eq(log_to_file(AT_FDCWD, path), 0);
    open_store(given, 3, script, ARRAY_SIZE(script));
    store_close(store);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_msg(store_open("s3://bkt", &config, &op, &store) == 0, "%s", op.why);
    ck_assert_int_eq(put(), 0);
    ck_assert_int_eq(put(), -EACCES);
    ck_assert_ptr_null(strstr(op.why, "SK"));
    ck_assert_ptr_null(strstr(op.why, "TK"));
    len = read(fd, text, sizeof(text) - 1);
    ck_assert_int_gt(len, 0);
    text[len] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "put"));
    for (const char *secret = "123"; *secret; secret++) {
        ck_assert_ptr_null(strstr(text, (char[]){'S', 'K', *secret, '\0'}));
        ck_assert_ptr_null(strstr(text, (char[]){'T', 'K', *secret, '\0'}));
    }
    log_set_level(LOG_LEVEL_INFO);
    (void)unlink(path);
}
END_TEST

START_TEST(there_are_no_other_keys)
{
    static const struct scripted_answer given[] = {
        KEYS("1"),
        REST("403 Forbidden", "{\"code\": \"Gone\", \"message\": \"role is deleted\"}")};
    static const struct scripted_answer script[] = {
        REST("403 Forbidden",
             "<Error><Code>InvalidAccessKeyId</Code><Message>Unknown</Message></Error>")};

    open_store(given, 2, script, 1);
    ck_assert_int_eq(put(), -EACCES);
    ck_assert_msg(strstr(op.why, "403 InvalidAccessKeyId: Unknown; new keys: the container's "
                                 "credentials: Gone: role is deleted") != NULL,
                  "%s", op.why);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("s3_keys");
    TCase *t = tcase_create("s3_keys");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_token_ends_in_mid_upload);
    tcase_add_test(t, a_refusal_without_a_code);
    tcase_add_test(t, a_refusal_that_is_not_about_keys);
    tcase_add_test(t, there_are_no_other_keys);
    tcase_add_test(t, no_secret_is_logged);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
