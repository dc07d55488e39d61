/* cache/types/xattr_set.c: attributes in, the same attributes out, whatever the text says. */
#include "cache/types/xattr_set.h"
#include "common/mem.h"
#include "tests/unit/types/suites.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

static void edit(char **json, const char *name, const char *value, int flags, int result)
{
    char *now = NULL;
    int r = xattr_set_edit(*json, name, value, value ? strlen(value) : 0, flags, &now);

    ck_assert_int_eq(r, result);
    if (r < 0)
        return;
    free(*json);
    *json = now;
}

static void has(const char *json, const char *name, const char *value)
{
    auto_free unsigned char *found = NULL;
    ssize_t n = xattr_set_get(json, name, &found);

    if (!value) {
        ck_assert_msg(n == -ENODATA, "%s: %zd", name, n);
        return;
    }
    ck_assert_msg(n == (ssize_t)strlen(value) && memcmp(found, value, (size_t)n) == 0,
                  "%s: %zd of %s", name, n, json);
}

START_TEST(what_is_set_is_there)
{
    static const char *const values[] = {"", "a", "ab", "abc", "\x01\xff\n\"\\", "long value"};
    auto_free char *json = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        edit(&json, "user.a", values[i], 0, 0);
        edit(&json, "user.b", "other", 0, 0);
        has(json, "user.a", values[i]);
        has(json, "user.b", "other");
        has(json, "user.c", NULL);
    }
}
END_TEST

START_TEST(flags_are_those_of_the_system_call)
{
    auto_free char *json = NULL;

    edit(&json, "user.a", "x", XATTR_REPLACE, -ENODATA);
    edit(&json, "user.a", NULL, 0, -ENODATA);
    edit(&json, "user.a", "x", XATTR_CREATE, 0);
    edit(&json, "user.a", "y", XATTR_CREATE, -EEXIST);
    has(json, "user.a", "x");
    edit(&json, "user.a", "y", XATTR_REPLACE, 0);
    has(json, "user.a", "y");
    edit(&json, "user.a", NULL, 0, 0);
    ck_assert_ptr_null(json);
}
END_TEST

static const char *const hostile[] = {
    "", "null", "[]", "{", "{\"user.a\":1}", "{\"user.a\":{\"user.a\":\"YQ==\"}}", "\xff",
};

/* What is damaged counts as none, and something can be set nevertheless. */
START_TEST(a_damaged_text_is_none)
{
    auto_free char *json = strdup(hostile[_i]);

    has(json, "user.a", NULL);
    edit(&json, "user.b", "x", 0, 0);
    has(json, "user.b", "x");
}
END_TEST

START_TEST(what_is_no_base64_is_an_error)
{
    static const char *const values[] = {"{\"user.a\":\"A\"}", "{\"user.a\":\"A?==\"}"};
    auto_free unsigned char *found = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        ck_assert_int_eq(xattr_set_get(values[i], "user.a", &found), -EIO);
}
END_TEST

static int count(void *arg, const char *name)
{
    (void)name;
    return ++*(int *)arg == 2 ? 7 : 0;
}

START_TEST(names_are_visited_until_one_ends_it)
{
    auto_free char *json = NULL;
    int n = 0;

    ck_assert_int_eq(xattr_set_each(NULL, count, &n), 0);
    edit(&json, "user.a", "1", 0, 0);
    ck_assert_int_eq(xattr_set_each(json, count, &n), 0);
    ck_assert_int_eq(n, 1);
    edit(&json, "user.b", "2", 0, 0);
    edit(&json, "user.c", "3", 0, 0);
    n = 0;
    ck_assert_int_eq(xattr_set_each(json, count, &n), 7);
    ck_assert_int_eq(n, 2);
}
END_TEST

Suite *xattr_set_suite(void)
{
    Suite *s = suite_create("xattr_set");
    TCase *t = tcase_create("xattr_set");

    tcase_add_test(t, what_is_set_is_there);
    tcase_add_test(t, flags_are_those_of_the_system_call);
    tcase_add_loop_test(t, a_damaged_text_is_none, 0, ARRAY_SIZE(hostile));
    tcase_add_test(t, what_is_no_base64_is_an_error);
    tcase_add_test(t, names_are_visited_until_one_ends_it);
    suite_add_tcase(s, t);
    return s;
}
