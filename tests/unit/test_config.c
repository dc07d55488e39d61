/* common/units and common/config: texts in, values or messages out. */
#include "cli/single_config.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    int err;
    uint64_t bytes;
} sizes[] = {
    {"0", 0, 0},
    {"4096", 0, 4096},
    {"64M", 0, UINT64_C(64) << 20},
    {"64MiB", 0, UINT64_C(64) << 20},
    {"64mb", 0, 64000000},
    {"200GiB", 0, UINT64_C(200) << 30},
    {"200 GiB", 0, UINT64_C(200) << 30},
    {"1.5g", 0, UINT64_C(3) << 29},
    {"0.5K", 0, 512},
    {"5T", 0, UINT64_C(5) << 40},
    {"8191P", 0, UINT64_C(8191) << 50},
    {"8192P", -ERANGE, 0},
    {"99999999999999999999", -ERANGE, 0},
    {"9223372036854775807", 0, INT64_MAX},
    {"9223372036854775807K", -ERANGE, 0},
    {"", -EINVAL, 0},
    {"G", -EINVAL, 0},
    {"-1", -EINVAL, 0},
    {"1.", -EINVAL, 0},
    {"1x", -EINVAL, 0},
    {"1 G B", -EINVAL, 0},
    {"0x10", -EINVAL, 0},
};

START_TEST(size_is_parsed)
{
    uint64_t bytes = 77;

    ck_assert_int_eq(parse_size(sizes[_i].text, &bytes), sizes[_i].err);
    ck_assert_uint_eq(bytes, sizes[_i].err ? 77 : sizes[_i].bytes);
}
END_TEST

static const struct {
    const char *text;
    int err;
    int64_t ns;
} times[] = {
    {"5", 0, 5000000000},
    {"5s", 0, 5000000000},
    {"250ms", 0, 250000000},
    {"1m", 0, 60000000000},
    {"1.5", 0, 1500000000},
    {"2h", 0, 7200000000000},
    {"1d", 0, 86400000000000},
    {"0", 0, 0},
    {"3us", 0, 3000},
    {"1.0000000001s", 0, 1000000000},
    {"m", -EINVAL, 0},
    {"5 minutes", -EINVAL, 0},
    {"-5s", -EINVAL, 0},
    {"", -EINVAL, 0},
    {"999999999999d", -ERANGE, 0},
};

START_TEST(time_is_parsed)
{
    int64_t ns = 77;

    ck_assert_int_eq(parse_time(times[_i].text, &ns), times[_i].err);
    ck_assert_int_eq(ns, times[_i].err ? 77 : times[_i].ns);
}
END_TEST

static const struct {
    uint64_t bytes;
    const char *text;
} shown[] = {
    {0, "0 B"},
    {1023, "1023 B"},
    {1024, "1.0 KiB"},
    {1536, "1.5 KiB"},
    {(UINT64_C(1) << 20) - 1, "1.0 MiB"},
    {UINT64_C(200) << 30, "200.0 GiB"},
    {UINT64_MAX, "16.0 EiB"},
};

START_TEST(size_is_shown)
{
    char text[FORMAT_SIZE_MAX];

    ck_assert_str_eq(format_size(text, shown[_i].bytes), shown[_i].text);
}
END_TEST

START_TEST(whole_config)
{
    static const char text[] =
        "{\"routes\": [{\"path\": \"**\", \"store\": \"ckpt\", \"key\": \"**\"}],"
        " \"stores\": {\"ckpt\": {\"url\": \"s3://training/ckpt\", \"region\": \"eu-west-1\","
        "                        \"path_style\": true}},"
        " \"cache\": {\"dir\": \"/var/cache/x\", \"size\": \"200GiB\"},"
        " \"options\": {\"upload_jobs\": 8, \"allow_other\": false,"
        "               \"staging\": [\"*.tmp\", \"tmp-*\"]}}";
    struct single_config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(single_config_parse(text, strlen(text), "t.json", &op, &config) == 0, "%s",
                  op.why);
    ck_assert_str_eq(config.store_name, "ckpt");
    ck_assert_str_eq(config.url, "s3://training/ckpt");
    ck_assert_uint_eq(config.store.n, 2);
    ck_assert_str_eq(settings_get(&config.store, "region"), "eu-west-1");
    ck_assert_str_eq(settings_get(&config.store, "path_style"), "true");
    ck_assert_ptr_null(settings_get(&config.store, "url"));
    ck_assert_str_eq(settings_get(&config.options, "cache_dir"), "/var/cache/x");
    ck_assert_str_eq(settings_get(&config.options, "cache_size"), "200GiB");
    ck_assert_str_eq(settings_get(&config.options, "upload_jobs"), "8");
    ck_assert_str_eq(settings_get(&config.options, "allow_other"), "false");
    ck_assert_str_eq(settings_get(&config.options, "staging"), "*.tmp:tmp-*");
    single_config_release(&config);
}
END_TEST

START_TEST(config_without_store)
{
    static const char text[] = "{\"options\": {\"ro\": true}}";
    struct single_config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(single_config_parse(text, strlen(text), "t.json", &op, &config), 0);
    ck_assert_ptr_null(config.url);
    single_config_release(&config);
}
END_TEST

#define STORE "\"stores\": {\"a\": {\"url\": \"mem:\"}}"

/* What is refused, and a word that the message must hold. */
static const struct {
    const char *text;
    const char *says;
} refused[] = {
    {"", "t.json: line 1"},
    {"{", "t.json: line 1"},
    {"{\"a\": 1}", "unknown section \"a\""},
    {"[]", "JSON object"},
    {"{\"stores\": {}}", "0 stores"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\"}, \"b\": {\"url\": \"mem:\"}}}", "2 stores"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\"}, \"a\": {\"url\": \"mem:\"}}}", "duplicate"},
    {"{\"stores\": {\"a\": {}}}", "needs a \"url\""},
    {"{\"stores\": {\"a\": \"mem:\"}}", "must be an object"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\", \"region\": 1.5}}}", "\"region\""},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\", \"region\": \"a\\u0000b\"}}}", "line 1"},
    {"{" STORE ", \"routes\": []}", "exactly one route"},
    {"{" STORE ", \"routes\": [{\"path\": \"**\"}]}", "lacks"},
    {"{" STORE ", \"routes\": [{\"path\": \"runs/**\", \"store\": \"a\"}]}", "runs/**"},
    {"{" STORE ", \"routes\": [{\"path\": \"**\", \"store\": \"b\"}]}", "\"b\""},
    {"{" STORE ", \"routes\": [{\"path\": \"**\", \"store\": \"a\", \"policy\": \"logs\"}]}",
     "\"policy\""},
    {"{" STORE ", \"routes\": [{\"path\": \"**\", \"store\": \"a\"},"
     " {\"path\": \"**\", \"store\": \"a\"}]}",
     "exactly one route"},
    {"{\"cache\": {\"sise\": 1}}", "\"sise\""},
    {"{\"cache\": 5}", "must be an object"},
    {"{\"options\": {\"a\": null}}", "\"a\""},
    {"{\"options\": {\"a\": {\"b\": 1}}}", "\"a\""},
    {"{\"options\": {\"staging\": [\"a:b\"]}}", "\"staging\""},
};

START_TEST(bad_config_is_refused)
{
    struct single_config config = {0};
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(
        single_config_parse(refused[_i].text, strlen(refused[_i].text), "t.json", &op, &config),
        -EINVAL);
    ck_assert_msg(strstr(op.why, refused[_i].says) != NULL, "says: %s", op.why);
}
END_TEST

START_TEST(missing_file_is_told)
{
    struct single_config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(single_config_load("/nonexistent/x.json", &op, &config), -ENOENT);
    ck_assert_ptr_nonnull(strstr(op.why, "/nonexistent/x.json"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tc = tcase_create("config");

    suite_add_tcase(suite, tc);
    tcase_add_loop_test(tc, size_is_parsed, 0, ARRAY_SIZE(sizes));
    tcase_add_loop_test(tc, time_is_parsed, 0, ARRAY_SIZE(times));
    tcase_add_loop_test(tc, size_is_shown, 0, ARRAY_SIZE(shown));
    tcase_add_test(tc, whole_config);
    tcase_add_test(tc, config_without_store);
    tcase_add_loop_test(tc, bad_config_is_refused, 0, ARRAY_SIZE(refused));
    tcase_add_test(tc, missing_file_is_told);
    return suite_run(suite);
}
