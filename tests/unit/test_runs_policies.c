/* Policies of a configuration: presets, and who extends whom. */
#include "common/buf.h"
#include "common/mem.h"
#include "common/op.h"
#include "runs/config.h"
#include "tests/lib/config_lines.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* One store whose route has the policy "p". */
#define P(policies)                                                                            \
    "{\"stores\":{\"a\":{\"url\":\"mem:a\"}},\"routes\":[{\"path\":\"**\",\"store\":\"a\","    \
    "\"policy\":\"p\"}],\n\"policies\":{" policies "}}"

static void parse(const char *text, struct config *config)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_parse(text, strlen(text), "t", &op, NULL, config) == 0, "%s\n%s",
                  op.why, text);
    config_lines_expanded(config);
}

static const struct policy *find(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->policies.n; i++)
        if (strcmp(c->policies.items[i].name, name) == 0)
            return &c->policies.items[i];
    return NULL;
}

START_TEST(preset_is_what_it_was)
{
    static const struct {
        const char *name;
        enum policy_upload upload;
        enum policy_conflict conflict;
        int64_t settle_ns;
        const char *unit, *locks;
    } presets[] = {
        {"checkpoint", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "entry", "cluster"},
        {"logs", UPLOAD_INTERVAL, CONFLICT_LAST, POLICY_UNSET, "none", "off"},
        {"metadata", UPLOAD_CLOSE, CONFLICT_KEEP, 0, "file", "off"},
        {"data", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "names", "node"},
        {"scratch", UPLOAD_NEVER, CONFLICT_KEEP, POLICY_UNSET, "none", "off"},
        {"dbfs", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "root", "cluster"},
        {"ray", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "names", "cluster"},
        {"adaptdl", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "names", "cluster"},
        {"tfos", UPLOAD_CLOSE, CONFLICT_KEEP, POLICY_UNSET, "names", "node"},
    };
    auto_buf struct buf text = BUF_INIT(4096);
    struct config config;

    ck_assert_int_eq(buf_addf(&text,
                              "{\"stores\":{\"a\":{\"url\":\"mem:\"}},\"routes\":[{\"path\":"
                              "\"x/**\",\"store\":\"a\",\"policy\":\"%s\"}]}",
                              presets[_i].name),
                     0);
    parse(text.data, &config);
    ck_assert_uint_eq(config.policies.n, 1);
    const struct policy *p = config.policies.items;
    ck_assert_str_eq(p->name, presets[_i].name);
    ck_assert_str_eq(p->preset, presets[_i].name);
    ck_assert_int_eq(p->upload, presets[_i].upload);
    ck_assert_int_eq(p->conflict, presets[_i].conflict);
    ck_assert_int_eq(p->settle_ns, presets[_i].settle_ns);
    ck_assert_int_eq(p->interval_ns, POLICY_UNSET);
    ck_assert_int_eq(p->durability, POLICY_UNSET);
    ck_assert_int_eq(p->urgent, strcmp(p->name, "metadata") == 0);
    ck_assert_str_eq(p->unit, presets[_i].unit);
    ck_assert_str_eq(p->locks, presets[_i].locks);
    ck_assert_int_eq(config.routes.items[0].scratch, p->upload == UPLOAD_NEVER);
    config_release(&config);
}
END_TEST

START_TEST(every_field_is_read)
{
    struct config config;

    parse(P("\"p\":{\"upload\":\"interval\",\"staging\":[\"*.a\",\"b\"],\"logs\":\"*.l\","
            "\"interval\":\"250ms\",\"settle\":2,\"conflict\":\"last\",\"durability\":"
            "\"store\"}"),
          &config);
    const struct policy *p = find(&config, "p");
    ck_assert_ptr_nonnull(p);
    ck_assert_str_eq(p->preset, "data");
    ck_assert_int_eq(p->upload, UPLOAD_INTERVAL);
    ck_assert_str_eq(p->staging, "*.a:b");
    ck_assert_str_eq(p->logs, "*.l");
    ck_assert_int_eq(p->interval_ns, 250 * NS_PER_MS);
    ck_assert_int_eq(p->settle_ns, 2 * NS_PER_SEC);
    ck_assert_int_eq(p->conflict, CONFLICT_LAST);
    ck_assert_int_eq(p->durability, 1);
    ck_assert_str_eq(p->unit, "names");
    ck_assert(!p->urgent);
    config_release(&config);
}
END_TEST

/* What extends comes before and behind what is extended. */
START_TEST(fields_are_inherited)
{
    struct config config;

    parse(P("\"p\":{\"extends\":\"q\",\"settle\":\"3s\"},"
            "\"q\":{\"extends\":\"r\",\"settle\":\"2s\",\"interval\":\"9s\"},"
            "\"r\":{\"extends\":\"metadata\",\"conflict\":\"last\",\"interval\":\"8s\","
            "\"staging\":[]},"
            "\"s\":{\"extends\":\"p\",\"durability\":\"cache\"}"),
          &config);
    const struct policy *p = find(&config, "p"), *s = find(&config, "s");
    ck_assert(p && s);
    ck_assert_str_eq(p->preset, "metadata");
    ck_assert_str_eq(p->unit, "file");
    ck_assert(p->urgent && s->urgent);
    ck_assert_int_eq(p->settle_ns, 3 * NS_PER_SEC);
    ck_assert_int_eq(p->interval_ns, 9 * NS_PER_SEC);
    ck_assert_int_eq(p->conflict, CONFLICT_LAST);
    ck_assert_str_eq(p->staging, "");
    ck_assert_int_eq(p->durability, POLICY_UNSET);
    ck_assert_int_eq(s->durability, 0);
    ck_assert_int_eq(s->settle_ns, p->settle_ns);
    config_release(&config);
}
END_TEST

START_TEST(presets_in_use_come_first)
{
    struct config config;

    parse("{\"stores\":{\"a\":{\"url\":\"mem:a\"}},\"policies\":{\"p\":{},\"q\":{}},"
          "\"routes\":[{\"path\":\"x/**\",\"store\":\"a\",\"policy\":\"q\"},"
          "{\"path\":\"y/**\",\"store\":\"a\",\"policy\":\"scratch\"},"
          "{\"path\":\"z/**\",\"store\":\"a\",\"policy\":\"logs\"}]}",
          &config);
    ck_assert_uint_eq(config.policies.n, 4);
    ck_assert_str_eq(config.policies.items[0].name, "logs");
    ck_assert_str_eq(config.policies.items[1].name, "scratch");
    ck_assert_str_eq(config.policies.items[2].name, "p");
    ck_assert_uint_eq(config.routes.items[0].policy, 3);
    ck_assert_uint_eq(config.routes.items[1].policy, 1);
    ck_assert_uint_eq(config.routes.items[2].policy, 0);
    config_release(&config);
}
END_TEST

static const struct {
    const char *text, *lines;
} refused[] = {
    {P("\"p\":1"), "2:17: a policy must be an object, {...}\n"},
    {P("\"p\":[1]"), "2:17: a policy must be an object, {...}\n"},
    {P("\"p\":{},\"logs\":1"), "2:27: a policy must be an object, {...}\n"},
    {P("\"p\":{\"setle\":\"1s\"}"), "2:18: unknown \"setle\" in a policy, did you mean "
                                    "\"settle\"?\n"},
    {P("\"p\":{\"upload\":1}"), "2:27: \"upload\" in a policy must be one of close, rename, "
                                "interval, never\n"},
    {P("\"p\":{\"conflict\":\"first\"}"), "2:29: \"conflict\" in a policy must be one of keep, "
                                          "last\n"},
    {P("\"p\":{\"durability\":\"disk\"}"), "2:31: \"durability\" in a policy must be one of "
                                           "cache, store\n"},
    {P("\"p\":{\"settle\":\"soon\"}"), "2:27: \"settle\" in a policy must be a time such as "
                                       "250ms, 5s or 1m\n"},
    {P("\"p\":{\"settle\":-1}"),
     "2:27: \"settle\" in a policy must be a time such as 250ms, 5s "
     "or 1m\n"},
    {P("\"p\":{\"staging\":\"a/b\"}"),
     "2:28: \"staging\" in a policy: a pattern is of one name, "
     "without \"/\"\n"},
    {P("\"p\":{\"staging\":[1]}"),
     "2:28: \"staging\" in a policy must be a text, an integer, a "
     "boolean or a list of texts without \":\"\n"},
    /* Not built: a legal value is refused, and a wrong one is told as such. */
    {P("\"p\":{\"unit\":\"half\"}"), "2:25: \"unit\" in a policy must be one of none, file, "
                                     "names, entry, root\n"},
    {P("\"p\":{\"unit_max\":\"5s\"}"), "2:18: \"unit_max\" of a policy is not built yet\n"},
    {P("\"p\":{\"locks\":\"cluster\"}"), "2:18: \"locks\" of a policy is not built yet\n"},
    {P("\"p\":{\"lock_ttl\":\"0s\"}"), "2:29: \"lock_ttl\" in a policy must be more than 0\n"},
    {P("\"p\":{\"expect\":4}"), "2:18: \"expect\" of a policy is not built yet\n"},
    {P("\"p\":{\"expect\":\"env\"}"),
     "2:27: \"expect\": \"env\" of a policy is not built yet\n"},
    {P("\"p\":{\"expect\":0}"), "2:27: \"expect\" in a policy must be an integer from 1\n"},
    {P("\"p\":{\"keep_last\":3}"), "2:18: \"keep_last\" of a policy is not built yet\n"},
    {P("\"p\":{\"del_locks\":7}"), "2:30: \"del_locks\" in a policy must be true or false\n"},
    /* Who extends whom. */
    {P("\"p\":{\"extends\":\"chekpoint\"}"),
     "2:28: there is no policy \"chekpoint\" to extend, "
     "did you mean \"checkpoint\"?\n"},
    {P("\"p\":{\"extends\":\"mine\"},\"mime\":{}"),
     "2:28: there is no policy \"mine\" to extend, did you mean \"mime\"?\n"},
    {P("\"p\":{\"extends\":\"zzz\"}"), "2:28: there is no policy \"zzz\" to extend\n"},
    {P("\"p\":{\"extends\":\"p\"}"), "2:28: policies extend each other: p > p\n"},
    {P("\"x\":{\"extends\":\"b\"},\"p\":{\"extends\":\"b\"},\"b\":{\"extends\":\"c\"},"
       "\"c\":{\"extends\":\"p\"}"),
     "2:48: policies extend each other: p > b > c > p\n"},
    /* A preset is what it is. */
    {P("\"p\":{},\"data\":{\"settle\":\"1s\"}"),
     "2:20: \"data\" is a preset; give yours another name, with \"extends\": \"data\"\n"},
    {P("\"p\":{},\"data\":{\"extends\":\"logs\"}"),
     "2:20: \"data\" is a preset; give yours another name, with \"extends\": \"data\"\n"},
};

START_TEST(policy_says_what_is_wrong)
{
    config_lines_refused(refused[_i].text, "t.json", refused[_i].lines);
}
END_TEST

/* "p", "e1" ... each extends the next, in this order or the other; the last one a preset. */
static void add_chain(struct buf *text, size_t n, bool backwards)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = backwards ? n - 1 - i : i;

        ck_assert_int_eq(k ? buf_addf(text, "%s\n\"e%zu\"", i ? "," : "", k)
                           : buf_addf(text, "%s\n\"p\"", i ? "," : ""),
                         0);
        ck_assert_int_eq(k + 1 < n ? buf_addf(text, ":{\"extends\":\"e%zu\"}", k + 1)
                                   : buf_adds(text, ":{\"extends\":\"logs\"}"),
                         0);
    }
}

START_TEST(chain_has_a_limit_in_any_order)
{
    for (size_t n = 32; n <= 200; n += n == 32 ? 1 : 167) {
        for (int backwards = 0; backwards < 2; backwards++) {
            auto_buf struct buf text = BUF_INIT(65536);
            struct config_problems problems = {0};
            struct config config;
            struct op op;

            op_init(&op, OP_FOREVER);
            ck_assert_int_eq(
                buf_adds(&text, "{\"stores\":{\"a\":{\"url\":\"mem:\"}},\"policies\":{"), 0);
            add_chain(&text, n, backwards);
            ck_assert_int_eq(buf_adds(&text, "}}"), 0);
            int err = config_parse(text.data, text.len, "t", &op, &problems, &config);
            ck_assert_int_eq(err, n <= 32 ? 0 : -EINVAL);
            if (!err)
                config_release(&config);
            ck_assert_uint_eq(problems.n, n > 32);
            if (problems.n)
                ck_assert_msg(strstr(problems.items[0].text, "extends more than 31 others"),
                              "%s", problems.items[0].text);
            config_problems_release(&problems);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runs policies");
    TCase *t = tcase_create("policies");

    tcase_add_loop_test(t, preset_is_what_it_was, 0, 9);
    tcase_add_test(t, every_field_is_read);
    tcase_add_test(t, fields_are_inherited);
    tcase_add_test(t, presets_in_use_come_first);
    tcase_add_loop_test(t, policy_says_what_is_wrong, 0, ARRAY_SIZE(refused));
    tcase_add_test(t, chain_has_a_limit_in_any_order);
    suite_add_tcase(s, t);
    return suite_run(s);
}
