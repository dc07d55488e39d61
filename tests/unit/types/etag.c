/* cache/types/etag.c: an etag comes back as it was, in however few bytes it was kept. */
#include "cache/types/etag.h"
#include "common/mem.h"
#include "tests/unit/types/suites.h"

static const char *const etags[] = {
    "",
    "1",
    "fifteen letters",
    "sixteen letters.",
    "0123456789abcde",
    "0123456789abcdef",
    "0123456789abcdeF",
    "0123456789abcdef0",
    "d41d8cd98f00b204e9800998ecf8427e",
    "D41D8CD98F00B204E9800998ECF8427E",
    "d41d8cd98f00b204e9800998ecf8427",
    "d41d8cd98f00b204e9800998ecf8427ef",
    "d41d8cd98f00b204e9800998ecf8427g",
    "d41d8cd98f00b204e9800998ecf8427e-",
    "d41d8cd98f00b204e9800998ecf8427e-0",
    "d41d8cd98f00b204e9800998ecf8427e-1",
    "d41d8cd98f00b204e9800998ecf8427e-01",
    "d41d8cd98f00b204e9800998ecf8427e-10000",
    "d41d8cd98f00b204e9800998ecf8427e-65535",
    "d41d8cd98f00b204e9800998ecf8427e-65536",
    "d41d8cd98f00b204e9800998ecf8427e-4294967297",
    "d41d8cd98f00b204e9800998ecf8427e-1x",
    "d41d8cd98f00b204e9800998ecf8427e--1",
    "\"d41d8cd98f00b204e9800998ecf8427e\"",
    "00000000000000000000000000000000",
    "an etag of some server that is as long as the interface lets it be, 71.",
};

START_TEST(etags_come_back_as_they_are)
{
    struct etag t = {0}, moved = {0};
    char buf[ETAG_TEXT_MAX];

    etag_set(&t, etags[_i]);
    ck_assert(etag_known(&t));
    ck_assert_str_eq(etag_text(&t, buf), etags[_i]);
    auto_free char *copy = etag_dup(&t);
    ck_assert_str_eq(copy, etags[_i]);
    for (size_t i = 0; i < ARRAY_SIZE(etags); i++)
        ck_assert_int_eq(etag_is(&t, etags[i]), i == (size_t)_i);
    etag_set(&t, etag_text(&t, buf)); /* its own text */
    etag_move(&moved, &t);
    ck_assert(!etag_known(&t));
    ck_assert_str_eq(etag_text(&moved, buf), etags[_i]);
    etag_set(&moved, NULL);
    ck_assert(!etag_known(&moved) && !etag_is(&moved, ""));
    ck_assert_ptr_null(etag_text(&moved, buf));
    ck_assert_ptr_null(etag_dup(&moved));
    etag_clear(&moved);
}
END_TEST

Suite *etag_suite(void)
{
    Suite *s = suite_create("etag");
    TCase *t = tcase_create("etags");

    tcase_add_loop_test(t, etags_come_back_as_they_are, 0, ARRAY_SIZE(etags));
    suite_add_tcase(s, t);
    return s;
}
