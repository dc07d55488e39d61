/* cache/types/acl.c: what the bytes of an ACL mean. */
#include "cache/types/acl.h"
#include "tests/lib/acl_text.h"
#include "tests/unit/types/suites.h"

#include <errno.h>

START_TEST(forms)
{
    struct acl_bytes b = acl_text(acl_cases[_i].text);
    uint32_t bits = 0;

    ck_assert_int_eq(acl_check(b.v, b.n), acl_cases[_i].result);
    for (size_t n = 0; n < b.n; n++)
        ck_assert(acl_check(b.v, n) < 0 || acl_is_empty(n) || n % 8 == 4);
    if (acl_cases[_i].result < 0)
        return;
    ck_assert_int_eq(acl_to_mode(b.v, b.n, &bits), acl_cases[_i].minimal);
    ck_assert_uint_eq(bits, acl_cases[_i].bits);
    ck_assert(!acl_take_mode(b.v, b.n, bits));
    ck_assert(acl_take_mode(b.v, b.n, bits ^ 0110));
    (void)acl_to_mode(b.v, b.n, &bits);
    ck_assert_uint_eq(bits, acl_cases[_i].bits ^ 0110);
    ck_assert_int_eq(acl_check(b.v, b.n), 0);
    b.v[0] = 1;
    ck_assert_int_eq(acl_check(b.v, b.n), -EOPNOTSUPP);
}
END_TEST

START_TEST(inheritance)
{
    static const struct {
        const char *from, *becomes;
        uint32_t mode, ret;
        bool kept;
    } cases[] = {
        {"u7 g5 o5", "u6 g4 o0", 0100640, 0100640, false},
        {"u6 g0 o7", "u6 g0 o6", 0100666, 0100606, false},
        {"u7 U5:7 g5 m7 o0", "u6 U5:7 g5 m6 o0", 0100666, 0100660, true},
        {"u7 U5:7 g7 m1 o7", "u7 U5:7 g7 m1 o7", 0043777, 0043717, true},
        {"u7 g7 m7 o7", "u4 g7 m0 o0", 0100400, 0100400, true},
    };
    struct acl_bytes b = acl_text(cases[_i].from), expected = acl_text(cases[_i].becomes);
    uint32_t mode = cases[_i].mode;

    ck_assert_int_eq(acl_inherit(b.v, b.n, &mode), cases[_i].kept);
    ck_assert_uint_eq(mode, cases[_i].ret);
    ck_assert_mem_eq(b.v, expected.v, b.n);
}
END_TEST

Suite *acl_suite(void)
{
    Suite *s = suite_create("acl");
    TCase *t = tcase_create("acl_bytes");

    tcase_add_loop_test(t, forms, 0, ACL_CASES);
    tcase_add_loop_test(t, inheritance, 0, 5);
    suite_add_tcase(s, t);
    return s;
}
