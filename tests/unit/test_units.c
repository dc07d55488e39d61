/* common/units: texts in, values or messages out. */
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

START_TEST(time_is_shown)
{
    static const struct {
        int64_t ns;
        const char *text;
    } t[] = {{0, "0s"},
             {1, "1ns"},
             {1500, "1500ns"},
             {90000000, "90ms"},
             {INT64_C(30000000000), "30s"},
             {INT64_C(90000000000), "90s"},
             {INT64_C(600000000000), "10m"},
             {INT64_C(7200000000000), "2h"}};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        char text[FORMAT_TIME_MAX];
        int64_t ns;

        ck_assert_str_eq(format_time(text, t[i].ns), t[i].text);
        ck_assert_int_eq(parse_time(text, &ns), 0);
        ck_assert_int_eq(ns, t[i].ns);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("units");
    TCase *tc = tcase_create("units");

    suite_add_tcase(suite, tc);
    tcase_add_loop_test(tc, size_is_parsed, 0, ARRAY_SIZE(sizes));
    tcase_add_loop_test(tc, time_is_parsed, 0, ARRAY_SIZE(times));
    tcase_add_test(tc, time_is_shown);
    tcase_add_loop_test(tc, size_is_shown, 0, ARRAY_SIZE(shown));
    return suite_run(suite);
}
