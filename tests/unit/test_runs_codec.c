/* Codecs: names of the mount and names of a store, both ways. */
#include "common/buf.h"
#include "common/mem.h"
#include "runs/codec.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Pairs that are each other's; a stored name is given by the raw bytes' meaning in comments. */
static const struct {
    enum codec codec;
    const char *shown, *stored;
} pairs[] = {
    {CODEC_NONE, "any %2F thing", "any %2F thing"},
    /* RFC 4648, section 10 */
    {CODEC_B32, "f", "MY======"},
    {CODEC_B32, "fo", "MZXQ===="},
    {CODEC_B32, "foo", "MZXW6==="},
    {CODEC_B32, "foob", "MZXW6YQ="},
    {CODEC_B32, "fooba", "MZXW6YTB"},
    {CODEC_B32, "foobar", "MZXW6YTBOI======"},
    {CODEC_B32, "torchx:%2F%2Fsession%2Fapp", "ORXXEY3IPA5C6L3TMVZXG2LPNYXWC4DQ"},
    {CODEC_B32, "ä", "YOSA===="},
    {CODEC_B32, "%00", "AA======"},
    {CODEC_B32, "%2E", "FY======"},
    {CODEC_B32, "%2E%2E", "FYXA===="},
    {CODEC_B32, "...", "FYXC4==="},
    {CODEC_B32, "%2E%72%75%6E%66%73", "FZZHK3TGOM======"},
    {CODEC_B32, ".runfs2", "FZZHK3TGOMZA===="},
    {CODEC_HEX, "foo", "666f6f"},
    {CODEC_HEX, "\xff", "ff"},
    {CODEC_HEX, "%7F", "7f"},
    {CODEC_HEX, "%25", "25"},
    {CODEC_HEX, "%2E%2E", "2e2e"},
    {CODEC_PCT, "a b", "a%20b"},
    {CODEC_PCT, "a%2Fb", "a%2Fb"},
    {CODEC_PCT, "a%25b", "a%25b"},
    {CODEC_PCT, "A-z_0.~", "A-z_0.%7E"},
    {CODEC_PCT, "%0A", "%0A"},
    {CODEC_PCT, "ä", "%C3%A4"},
    {CODEC_PCT, "%2E%72%75%6E%66%73", ".runfs"},
};

START_TEST(both_forms)
{
    struct buf auto_buf stored = BUF_INIT(1024);
    struct buf auto_buf shown = BUF_INIT(1024);
    enum codec codec = pairs[_i].codec;

    ck_assert_int_eq(codec_encode(codec, pairs[_i].shown, strlen(pairs[_i].shown), &stored), 0);
    ck_assert_str_eq(stored.data, pairs[_i].stored);
    ck_assert_int_eq(codec_decode(codec, stored.data, stored.len, &shown), 0);
    ck_assert_str_eq(shown.data, pairs[_i].shown);
}
END_TEST

/* Names of the mount that no stored name is shown as. */
static const struct {
    enum codec codec;
    int err;
    const char *shown;
} no_names[] = {
    {CODEC_NONE, -EINVAL, ""},
    {CODEC_B32, -EINVAL, ""},
    {CODEC_B32, -EINVAL, "."},
    {CODEC_B32, -EINVAL, ".."},
    {CODEC_HEX, -EINVAL, ".runfs"},
    {CODEC_B32, -EINVAL, "%2E."},
    {CODEC_B32, -EINVAL, "%2e"},
    {CODEC_B32, -EINVAL, "%2Erunfs"},
    {CODEC_B32, -EINVAL, "a%2fb"},
    {CODEC_B32, -EINVAL, "%41"},
    {CODEC_HEX, -EINVAL, "%"},
    {CODEC_HEX, -EINVAL, "%2"},
    {CODEC_HEX, -EINVAL, "a%"},
    {CODEC_HEX, -EINVAL, "%G0"},
    {CODEC_HEX, -EINVAL, "a/b"},
    {CODEC_HEX, -EINVAL, "a\nb"},
    {CODEC_PCT, -EINVAL, "%80"},
    {CODEC_PCT, -EINVAL, "a\x7f"},
    {CODEC_PCT, -EINVAL, "%20"},
    {CODEC_B32, -EILSEQ, "\xff"},
    {CODEC_B32, -EILSEQ, "\xc3"},
    {CODEC_B32, -EILSEQ, "\xc0\x80"},
    {CODEC_B32, -EILSEQ, "\x80"},
    {CODEC_B32, -EILSEQ, "\xe0\x80\x80"},
    {CODEC_B32, -EILSEQ, "\xed\xa0\x80"},
    {CODEC_B32, -EILSEQ, "\xf0\x80\x80\x80"},
    {CODEC_B32, -EILSEQ, "\xf4\x90\x80\x80"},
};

START_TEST(no_spelling)
{
    struct buf auto_buf stored = BUF_INIT(1024);
    const char *shown = no_names[_i].shown;

    ck_assert_int_eq(codec_encode(no_names[_i].codec, shown, strlen(shown), &stored),
                     no_names[_i].err);
    ck_assert_uint_eq(stored.len, 0);
}
END_TEST

/* Stored names that are shown as nothing. */
static const struct {
    enum codec codec;
    const char *stored;
} hidden[] = {
    {CODEC_NONE, ""},          {CODEC_B32, ""},
    {CODEC_B32, "my======"},   /* lower case */
    {CODEC_B32, "MY"},         /* no padding */
    {CODEC_B32, "MY====="},    /* too little */
    {CODEC_B32, "MY========"}, /* too much */
    {CODEC_B32, "MZ======"},   /* bits behind the end */
    {CODEC_B32, "M======="},   /* no whole byte */
    {CODEC_B32, "========"},   {CODEC_B32, "MY==MY=="},
    {CODEC_B32, "M1======"},   {CODEC_B32, "74======"}, /* 0xff */
    {CODEC_B32, "README"},     {CODEC_HEX, ""},
    {CODEC_HEX, "6"},          {CODEC_HEX, "666"},
    {CODEC_HEX, "6F"},         {CODEC_HEX, "zz"},
    {CODEC_PCT, "a b"},        {CODEC_PCT, "%41"},
    {CODEC_PCT, "%2f"},        {CODEC_PCT, "%"},
    {CODEC_PCT, "a%2"},        {CODEC_PCT, "ä"},
};

START_TEST(hidden_names)
{
    struct buf auto_buf shown = BUF_INIT(1024);
    const char *stored = hidden[_i].stored;

    ck_assert_int_eq(codec_decode(hidden[_i].codec, stored, strlen(stored), &shown), -ENOENT);
    ck_assert_uint_eq(shown.len, 0);
}
END_TEST

/* The longest name whose encoding is a name. */
START_TEST(long_names)
{
    static const size_t most[CODEC_N] = {
        [CODEC_NONE] = 255, [CODEC_B32] = 155, [CODEC_HEX] = 127, [CODEC_PCT] = 255};
    char name[512], stored[PATH_NAME_MAX];
    enum codec codec = (enum codec)_i;
    struct buf auto_buf shown = BUF_INIT(1024);
    size_t n = 0;

    memset(name, 'a', sizeof(name));
    ck_assert_int_eq(codec_write(codec, name, most[codec], stored, &n), 0);
    ck_assert_int_eq(codec_decode(codec, stored, n, &shown), 0);
    ck_assert_uint_eq(shown.len, most[codec]);
    for (size_t len = most[codec] + 1; len < sizeof(name); len++)
        ck_assert_int_eq(codec_write(codec, name, len, stored, &n), -ENAMETOOLONG);
}
END_TEST

/* 90 times "%": 270 bytes in the mount, which is no name there. */
START_TEST(shown_longer_than_stored)
{
    struct buf auto_buf stored = BUF_INIT(1024);
    struct buf auto_buf shown = BUF_INIT(1024);

    for (int i = 0; i < 85; i++)
        ck_assert_int_eq(buf_adds(&stored, "25"), 0);
    ck_assert_int_eq(codec_decode(CODEC_HEX, stored.data, stored.len, &shown), 0);
    ck_assert_uint_eq(shown.len, 255);
    buf_clear(&shown);
    ck_assert_int_eq(buf_adds(&stored, "25"), 0);
    ck_assert_int_eq(codec_decode(CODEC_HEX, stored.data, stored.len, &shown), -ENOENT);
    ck_assert_uint_eq(shown.len, 0);
}
END_TEST

START_TEST(names_of_codecs)
{
    enum codec codec = CODEC_NONE;

    ck_assert_ptr_null(codec_name(CODEC_NONE));
    for (int c = CODEC_NONE + 1; c < CODEC_N; c++) {
        const char *name = codec_name((enum codec)c);

        ck_assert_int_eq(codec_by_name(name, strlen(name), &codec), 0);
        ck_assert_int_eq(codec, c);
        ck_assert_int_eq(codec_by_name(name, strlen(name) - 1, &codec), -ENOENT);
    }
    ck_assert_int_eq(codec_by_name("", 0, &codec), -ENOENT);
}
END_TEST

static unsigned state = 15;

static unsigned random_below(unsigned n)
{
    state = state * 1103515245 + 12345;
    return (state >> 16) % n;
}

/* Whatever is taken on one side comes back from the other as the same bytes: a name has one
 * spelling on each side. */
START_TEST(both_ways)
{
    static const char all[] = "%%%%2222FfEe.runsMY7aA==/\n\x7f\xc3\xa4\xff ~";
    static const char base32[] = "ABCDEFGHIMQUY2467===";
    enum codec codec = (enum codec)_i;
    unsigned names = 0, stored_names = 0;

    for (int round = 0; round < 50000; round++) {
        struct buf auto_buf there = BUF_INIT(1024);
        struct buf auto_buf back = BUF_INIT(1024);
        char text[12];
        const char *bytes = round % 2 ? all : base32;
        size_t len = 1 + random_below(sizeof(text));

        for (size_t i = 0; i < len; i++)
            text[i] = bytes[random_below((unsigned)strlen(bytes))];
        if (codec_encode(codec, text, len, &there) == 0) {
            names++;
            ck_assert_int_eq(codec_decode(codec, there.data, there.len, &back), 0);
            ck_assert_mem_eq(back.data, text, len);
            ck_assert_uint_eq(back.len, len);
        }
        buf_clear(&there);
        buf_clear(&back);
        if (codec_decode(codec, text, len, &there) == 0) {
            stored_names++;
            ck_assert_int_eq(codec_encode(codec, there.data, there.len, &back), 0);
            ck_assert_mem_eq(back.data, text, len);
            ck_assert_uint_eq(back.len, len);
        }
    }
    ck_assert_uint_gt(names, 100);
    ck_assert_uint_gt(stored_names, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_codec");
    TCase *t = tcase_create("runs_codec");

    tcase_add_loop_test(t, both_forms, 0, ARRAY_SIZE(pairs));
    tcase_add_loop_test(t, no_spelling, 0, ARRAY_SIZE(no_names));
    tcase_add_loop_test(t, hidden_names, 0, ARRAY_SIZE(hidden));
    tcase_add_loop_test(t, long_names, 0, CODEC_N);
    tcase_add_test(t, shown_longer_than_stored);
    tcase_add_test(t, names_of_codecs);
    tcase_add_loop_test(t, both_ways, 0, CODEC_N);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
