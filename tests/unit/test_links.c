/* fuse/links.c: which link the kernel means by a number, from its first lookup to its last
 * forget. */
#include "fuse/links.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct links links;
static char name[PATH_NAME_MAX + 1];

static void setup(void)
{
    links_init(&links, INO_LINK);
}

static void teardown(void)
{
    links_destroy(&links);
}

static fuse_ino_t take(const char *of)
{
    fuse_ino_t ino;

    ck_assert_int_eq(links_take(&links, of, &ino), 0);
    ck_assert(ino_is_link(ino));
    return ino;
}

START_TEST(a_link_is_known_until_it_is_forgotten)
{
    fuse_ino_t a = take("ME======"), b = take("MI======");

    ck_assert_uint_ne(a, b);
    ck_assert_uint_eq(take("ME======"), a);
    ck_assert(links_name(&links, a, name));
    ck_assert_str_eq(name, "ME======");
    links_forget(&links, a, 1);
    ck_assert(links_name(&links, a, name));
    links_forget(&links, a, 1);
    ck_assert(!links_name(&links, a, name));
    ck_assert(links_name(&links, b, name));
    ck_assert_str_eq(name, "MI======");
    links_forget(&links, a, 1); /* unknown by now */
    ck_assert_uint_ne(take("ME======"), b);
}
END_TEST

START_TEST(thousands_have_numbers_of_their_own)
{
    enum { N = 5000 };
    static fuse_ino_t inos[N];
    char text[32];

    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(text, sizeof(text), "N%u", i);
        inos[i] = take(text);
    }
    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(text, sizeof(text), "N%u", i);
        ck_assert(links_name(&links, inos[i], name));
        ck_assert_str_eq(name, text);
    }
}
END_TEST

/* After 2^32 of them; a number that is still in use is not given away again. */
START_TEST(numbers_begin_anew)
{
    fuse_ino_t first = take("first");

    links.last = UINT32_MAX;
    fuse_ino_t second = take("second"), third = take("third");

    ck_assert_uint_ne(second, first);
    ck_assert_uint_ne(third, first);
    ck_assert_uint_ne(third, second);
    ck_assert(links_name(&links, first, name));
    ck_assert_str_eq(name, "first");
}
END_TEST

START_TEST(the_longest_name_fits)
{
    char longest[PATH_NAME_MAX + 1];

    memset(longest, 'A', PATH_NAME_MAX);
    longest[PATH_NAME_MAX] = '\0';
    ck_assert(links_name(&links, take(longest), name));
    ck_assert_str_eq(name, longest);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("links");
    TCase *t = tcase_create("links");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_link_is_known_until_it_is_forgotten);
    tcase_add_test(t, thousands_have_numbers_of_their_own);
    tcase_add_test(t, numbers_begin_anew);
    tcase_add_test(t, the_longest_name_fits);
    suite_add_tcase(s, t);
    return suite_run(s);
}
