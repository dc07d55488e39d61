/* Templates: which texts are some, and which names they take. */
#include "common/mem.h"
#include "runs/template.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct op op;

static void setup(void)
{
    op_init(&op, OP_FOREVER);
}

/* What a template was taken for: components as `before<capture:codec>after`, then "**". */
static void say(const struct template *t, char *text, size_t size)
{
    FILE *f = fmemopen(text, size, "w");

    for (size_t i = 0; i < t->n; i++) {
        const struct component *c = &t->components[i];

        (void)fprintf(f, "%s[%s", i ? " " : "", c->before);
        if (c->capture)
            (void)fprintf(f, "<%s%s%s>", c->capture, c->codec ? ":" : "",
                          c->codec ? codec_name(c->codec) : "");
        (void)fprintf(f, "%s]", c->after);
    }
    (void)fprintf(f, "%s", t->rest ? "**" : "");
    (void)fclose(f);
}

static const struct {
    const char *text, *is;
} good[] = {
    {"**", "**"},
    {"a", "[a]"},
    {"a/**", "[a]**"},
    {"runs/{run}/logs/**", "[runs] [<run>] [logs]**"},
    {"runs/{run:b32}/**", "[runs] [<run:b32>]**"},
    {"{a:hex}/{b:pct}", "[<a:hex>] [<b:pct>]"},
    {"data{x}", "[data<x>]"},
    {"data-{x}.bin/y", "[data-<x>.bin] [y]"},
    {"{{a}}", "[{a}]"},
    {"{{{a_0}}}", "[{<a_0>}]"},
    {"}}{a}{{", "[}<a>{]"},
    {"*/***/a**", "[*] [***] [a**]"},
    {"..a/...", "[..a] [...]"},
    {"a/.runfs", "[a] [.runfs]"},
};

START_TEST(good_texts)
{
    char text[256];
    struct template t, copy;

    ck_assert_int_eq(template_parse(good[_i].text, TEMPLATE_KEY, &op, &t), 0);
    ck_assert_str_eq(t.text, good[_i].text);
    say(&t, text, sizeof(text));
    ck_assert_str_eq(text, good[_i].is);
    ck_assert_int_eq(template_copy(&copy, &t), 0);
    template_release(&t);
    say(&copy, text, sizeof(text));
    ck_assert_str_eq(text, good[_i].is);
    ck_assert_str_eq(copy.text, good[_i].text);
    template_release(&copy);
    ck_assert_ptr_null(copy.text);
}
END_TEST

#define NO_NAME ": it begins with one of a-z and goes on with a-z, 0-9 and _"

static const struct {
    const char *text, *why;
} bad[] = {
    {"", "\"\" can't be a component: \"/\" stands between two names only"},
    {"/", "\"\" can't be a component: \"/\" stands between two names only"},
    {"/a", "\"\" can't be a component: \"/\" stands between two names only"},
    {"a/", "\"\" can't be a component: \"/\" stands between two names only"},
    {"a//b", "\"\" can't be a component: \"/\" stands between two names only"},
    {"**/", "\"**\" is not the last of \"path\""},
    {"**/a", "\"**\" is not the last of \"path\""},
    {".", "\".\" can't be a component"},
    {"a/../b", "\"..\" can't be a component"},
    {".runfs/x", "\".runfs\" can't be a component"},
    {"a/{a}-{b}", "two captures in \"{a}-{b}\""},
    {"{a", "no \"}\" behind \"{\" in \"{a\""},
    {"a}", "no \"{\" before \"}\" in \"a}\""},
    {"{{a}", "no \"{\" before \"}\" in \"{{a}\""},
    {"{a/b}", "no \"}\" behind \"{\" in \"{a\""},
    {"{}", "no name of a capture in \"{}\"" NO_NAME},
    {"x{Run}", "no name of a capture in \"x{Run}\"" NO_NAME},
    {"{_a}", "no name of a capture in \"{_a}\"" NO_NAME},
    {"{0}", "no name of a capture in \"{0}\"" NO_NAME},
    {"{a-b}", "no name of a capture in \"{a-b}\"" NO_NAME},
    {"{:b32}", "no name of a capture in \"{:b32}\"" NO_NAME},
    {"{a}/{b}/{a}", "\"path\" has {a} twice"},
    {"{run:b32}", "a codec in \"{run:b32}\": \"path\" can't have one, \"key\" can"},
    {"{run:b33}", "unknown codec \"b33\" in \"{run:b33}\", did you mean \"b32\"?"},
    {"{run:}", "unknown codec \"\" in \"{run:}\"; there are b32, hex and pct"},
    {"{run:base64}",
     "unknown codec \"base64\" in \"{run:base64}\"; there are b32, hex and pct"},
};

START_TEST(bad_texts)
{
    struct template t;

    ck_assert_int_eq(template_parse(bad[_i].text, TEMPLATE_PATH, &op, &t), -EINVAL);
    ck_assert_str_eq(op.why, bad[_i].why);
}
END_TEST

/* Texts of `n` times a part with "/" between. */
static const struct {
    const char *part;
    size_t n;
    const char *why;
} big[] = {
    {"a", TEMPLATE_COMPONENTS_MAX, NULL},
    {"a", TEMPLATE_COMPONENTS_MAX + 1, "more than 64 components in \"key\""},
    {"a", TEMPLATE_TEXT_MAX, "\"key\" is longer than 8191 bytes"},
    {"{{{{{{{{", TEMPLATE_TEXT_MAX / 9, "more than 64 components in \"key\""},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64, NULL},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64,
     "\"key\" is longer than 4095 bytes"},
};

START_TEST(big_texts)
{
    size_t len = strlen(big[_i].part);
    auto_free char *text = calloc(big[_i].n, len + 1);
    struct template t;
    int r;

    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < big[_i].n; i++) {
        memcpy(text + i * (len + 1), big[_i].part, len);
        text[i * (len + 1) + len] = i + 1 < big[_i].n ? '/' : '\0';
    }
    r = template_parse(text, TEMPLATE_KEY, &op, &t);
    ck_assert_int_eq(r, big[_i].why ? -EINVAL : 0);
    ck_assert_str_eq(op.why, big[_i].why ? big[_i].why : "");
    if (r == 0)
        template_release(&t);
}
END_TEST

START_TEST(a_long_name)
{
    char text[PATH_NAME_MAX + 4];
    struct template t;

    memset(text, 'a', sizeof(text));
    strcpy(text + PATH_NAME_MAX - 1, "{x}");
    ck_assert_int_eq(template_parse(text, TEMPLATE_KEY, &op, &t), 0);
    template_release(&t);
    memset(text, 'a', sizeof(text));
    text[PATH_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(template_parse(text, TEMPLATE_KEY, &op, &t), -EINVAL);
    ck_assert_msg(strstr(op.why, "aaa...\" is longer than a name of 255 bytes") != NULL, "%s",
                  op.why);
}
END_TEST

static const struct {
    const char *text, *name, *captured; /* NULL: not taken */
} taken[] = {
    {"a", "a", ""},
    {"a", "b", NULL},
    {"a", "aa", NULL},
    {"{x}", "a", "a"},
    {"{x}", "", NULL},
    {"data{x}", "data1", "1"},
    {"data{x}", "data", NULL},
    {"data{x}", "dat1", NULL},
    {"{x}.h5", "a.h5", "a"},
    {"{x}.h5", ".h5", NULL},
    {"a{x}a", "aa", NULL},
    {"a{x}a", "aaa", "a"},
    {"ab{x}ba", "aba", NULL},
    {"ab{x}ba", "abcba", "c"},
    {"{{{x}}}", "{y}", "y"},
};

START_TEST(names_taken)
{
    const char *name = taken[_i].name;
    size_t at = 0, n = 0;
    struct template t;

    ck_assert_int_eq(template_parse(taken[_i].text, TEMPLATE_PATH, &op, &t), 0);
    ck_assert_int_eq(component_takes(&t.components[0], name, strlen(name), &at, &n),
                     taken[_i].captured != NULL);
    if (taken[_i].captured) {
        ck_assert_uint_eq(n, t.components[0].capture ? strlen(taken[_i].captured) : 0);
        ck_assert_int_eq(strncmp(name + at, taken[_i].captured, n), 0);
    }
    template_release(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_template");
    TCase *t = tcase_create("runs_template");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, good_texts, 0, ARRAY_SIZE(good));
    tcase_add_loop_test(t, bad_texts, 0, ARRAY_SIZE(bad));
    tcase_add_loop_test(t, big_texts, 0, ARRAY_SIZE(big));
    tcase_add_test(t, a_long_name);
    tcase_add_loop_test(t, names_taken, 0, ARRAY_SIZE(taken));
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
