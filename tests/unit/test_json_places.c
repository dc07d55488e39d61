/* runs/json_places: where each value of a text lies. */
#include "common/buf.h"
#include "common/mem.h"
#include "runs/json_places.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* "NAME@LINE:COLUMN=" for a member, then "LINE:COLUMN" and what is in it. */
static void show(const struct json_node *node, struct buf *to)
{
    int err = 0;

    if (node->name)
        err = buf_addf(to, "%s@%u:%u%s=", node->name, node->name_at.line, node->name_at.column,
                       node->again ? "!" : "");
    ck_assert_int_eq(err, 0);
    ck_assert_int_eq(buf_addf(to, "%u:%u", node->at.line, node->at.column), 0);
    ck_assert_int_eq(node->value != NULL,
                     node->type != JSON_OBJECT && node->type != JSON_ARRAY);
    if (node->value)
        return;
    ck_assert_int_eq(buf_addc(to, node->type == JSON_OBJECT ? '{' : '['), 0);
    for (size_t i = 0; i < node->n; i++) {
        ck_assert_int_eq(buf_adds(to, i ? " " : ""), 0);
        show(&node->items[i], to);
    }
    ck_assert_int_eq(buf_addc(to, node->type == JSON_OBJECT ? '}' : ']'), 0);
}

static const struct {
    const char *text, *shown;
} places[] = {
    {"{}", "1:1{}"},
    {" [ ] ", "1:2[]"},
    {"-1.5e3", "1:1"},
    {"[1,true,null,\"x\"]", "1:1[1:2 1:4 1:9 1:14]"},
    {"{\"a\":1}", "1:1{a@1:2=1:6}"},
    {"{\n\t\"a\" :\r\n  [ {\"b\":[]} , 2 ]\n}", "1:1{a@2:2=3:3[3:5{b@3:6=3:10[]} 3:16]}"},
    /* Braces, quotes and backslashes in texts are none. */
    {"[\"\\\"]{\", \"\\\\\", \"}\"]", "1:1[1:2 1:10 1:16]"},
    {"{\"\\u00e9\\n\": 1}", "1:1{\xc3\xa9\n@1:2=1:14}"},
    /* Columns are bytes. */
    {"{\"\xc3\xa9\": 1}", "1:1{\xc3\xa9@1:2=1:8}"},
    /* Of three members with one name the first counts. */
    {"{\"a\":1,\"b\":2,\"a\":3,\"\\u0061\":4}", "1:1{a@1:2=1:6 b@1:8=1:12 a@1:14!=1:18 "
                                                "a@1:20!=1:29}"},
};

START_TEST(values_have_places)
{
    auto_buf struct buf shown = BUF_INIT(4096);
    struct json_node root;
    struct text_place at;
    const char *why;

    ck_assert_int_eq(
        json_places_parse(places[_i].text, strlen(places[_i].text), &root, &at, &why), 0);
    show(&root, &shown);
    ck_assert_str_eq(shown.data, places[_i].shown);
    json_node_release(&root);
}
END_TEST

START_TEST(values_are_read)
{
    static const char text[] = "{\"a\": {\"b\": [1, \"t\\u00e9xt\", false]}, \"c\": null}";
    struct json_node root;
    struct text_place at;
    const char *why;

    ck_assert_int_eq(json_places_parse(text, strlen(text), &root, &at, &why), 0);
    const struct json_node *b = json_node_get(json_node_get(&root, "a"), "b");
    ck_assert_uint_eq(b->n, 3);
    ck_assert_int_eq(json_integer_value(b->items[0].value), 1);
    ck_assert_str_eq(json_string_value(b->items[1].value), "t\xc3\xa9xt");
    ck_assert_int_eq(b->items[2].type, JSON_FALSE);
    ck_assert_int_eq(json_node_get(&root, "c")->type, JSON_NULL);
    ck_assert_ptr_null(json_node_get(&root, "b"));
    json_node_release(&root);
}
END_TEST

static const struct {
    const char *text;
    struct text_place at;
    const char *word; /* of the reason */
} wrong[] = {
    {"", {1, 1}, "too early"},
    {"{\"a\": [1,\n 2", {2, 2}, "too early"},
    {"{\"a\": \"x\n\"}", {1, 8}, "missing or out of place"},
    {"[1,\n\n  hush]", {3, 6}, "missing or out of place"},
    {"[1] 2", {1, 5}, "behind the end"},
    {"[\"\xff\"]", {1, 2}, "UTF-8"},
    {"[\"\\u0000\"]", {1, 9}, "\\u0000"},
};

START_TEST(no_json_has_a_place_and_a_reason)
{
    struct json_node root;
    struct text_place at;
    const char *why;

    ck_assert_int_eq(
        json_places_parse(wrong[_i].text, strlen(wrong[_i].text), &root, &at, &why), -EINVAL);
    ck_assert_uint_eq(at.line, wrong[_i].at.line);
    ck_assert_uint_eq(at.column, wrong[_i].at.column);
    ck_assert_msg(strstr(why, wrong[_i].word), "%s", why);
    ck_assert_ptr_null(strstr(why, "hush"));
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    size_t n = 1000 * 1000;
    auto_free char *text = malloc(n);
    struct json_node root;
    struct text_place at;
    const char *why;

    ck_assert_ptr_nonnull(text);
    memset(text, '[', n);
    ck_assert_int_eq(json_places_parse(text, n, &root, &at, &why), -EINVAL);
    ck_assert_str_eq(why, "nested too deeply");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json places");
    TCase *t = tcase_create("places");

    tcase_add_loop_test(t, values_have_places, 0, ARRAY_SIZE(places));
    tcase_add_test(t, values_are_read);
    tcase_add_loop_test(t, no_json_has_a_place_and_a_reason, 0, ARRAY_SIZE(wrong));
    tcase_add_test(t, deep_nesting_is_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
