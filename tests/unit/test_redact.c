/* cli/redact: what a message shows of the URLs in it. */
#include "cli/redact.h"
#include "common/mem.h"
#include "tests/lib/suite.h"

static const struct {
    const char *text, *shown;
} texts[] = {
    {"", ""},
    {"no such file", "no such file"},
    {" two  blanks\n", " two  blanks\n"},
    {"s3://k:secret@b/x: No such file", "s3://***@b/x: No such file"},
    {"unknown \"s3:///k:secret@b\" in it", "unknown \"s3:///***@b\" in it"},
    {"(s3:/k:secret@b), s3://b/x?token=secret: gone", "(s3:/***@b), s3://b/x?token=***: gone"},
    {"at https://h:9000/p. And \"x\"", "at https://h:9000/p. And \"x\""},
    /* Names of files, and a key that holds an "@". */
    {"/a:b@c and a:b@c: gone", "/a:b@c and a:b@c: gone"},
    {"s3://b/a@b: gone", "s3://b/a@b: gone"},
    {"'", "'"},
    {"\"\" : ://", "\"\" : ://"},
};

START_TEST(words_that_are_urls)
{
    auto_free char *shown = redact_words(texts[_i].text);

    ck_assert_ptr_nonnull(shown);
    ck_assert_str_eq(shown, texts[_i].shown);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("redact");
    TCase *t = tcase_create("redact");

    tcase_add_loop_test(t, words_that_are_urls, 0, ARRAY_SIZE(texts));
    suite_add_tcase(s, t);
    return suite_run(s);
}
