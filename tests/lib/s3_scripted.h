/* The S3 driver against a scripted server: what test_s3_*.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_S3_SCRIPTED_H
#define RUNFS_TESTS_LIB_S3_SCRIPTED_H

#include "backends/drivers.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define SECRET "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"

static struct scripted *server;
static struct store *store;
static struct op op;

static void setup(void)
{
    server = NULL;
    store = NULL;
    op_init(&op, 10 * NS_PER_SEC);
}

static void teardown(void)
{
    store_close(store);
    if (server)
        scripted_free(server);
}

static void open_url(const char *url, const char *region)
{
    char endpoint[64];
    const struct store_option options[] = {{"endpoint", endpoint}, {"region", region}};
    struct store_config config = {.options = options, .n_options = 2};

    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", scripted_port(server));
    ck_assert_msg(s3_store_new(url, &config, &op, &store) == 0, "%s", op.why);
}

static void open_store(const char *region)
{
    open_url("s3://bkt/pre", region);
}

#define START(...)                                                                             \
    static const struct scripted_answer script[] = {__VA_ARGS__};                              \
    server = scripted_new(script, ARRAY_SIZE(script));                                         \
    open_store("us-east-1")

/* An answer whose body is 100 bytes at most. */
#define XML(status, length, body)                                                              \
    {                                                                                          \
        .text = "HTTP/1.1 " status "\r\nContent-Length: " #length "\r\n\r\n" body              \
    }
/* An answer that ends with the connection, of any length. */
#define REST(status, headers, body)                                                            \
    {                                                                                          \
        .text = "HTTP/1.1 " status "\r\nConnection: close\r\n" headers "\r\n" body,            \
        .close = true                                                                          \
    }
#define STORED                                                                                 \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\n\r\n"                  \
    }
#define OK_OBJECT(etag)                                                                        \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"" etag "\"\r\n\r\n"           \
    }
#define PARTIAL(range, length, etag, body)                                                     \
    {                                                                                          \
        .text = "HTTP/1.1 206 Partial\r\nContent-Length: " #length "\r\nContent-Range: " range \
                "\r\nETag: \"" etag "\"\r\n\r\n" body                                          \
    }

#define BEGUN                                                                                  \
    REST("200 OK", "",                                                                         \
         "<InitiateMultipartUploadResult><UploadId>ID</UploadId>"                              \
         "</InitiateMultipartUploadResult>")
#define PART_DONE                                                                              \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"                                     \
                "ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n\r\n"                           \
    }
#define COPIED_PART REST("200 OK", "", "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>")
#define COMPLETED                                                                              \
    REST("200 OK", "",                                                                         \
         "<CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"                                 \
         "</CompleteMultipartUploadResult>")

#define NO_ROUTE  REST("404 Not Found", "", "<html>no route</html>")
#define NO_BUCKET REST("404 Not Found", "", "<Error><Code>NoSuchBucket</Code></Error>")
#define NO_KEY    REST("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>")
#define NO_OBJECT REST("404 Not Found", "", "") /* to a HEAD */

static void scripted_environment(void)
{
    aws_clear_environment();
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
}

#endif
