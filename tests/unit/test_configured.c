/* cli/configured: the words of a mount in, stores with their options or a message out. */
#include "cli/configured.h"
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/lib/top.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mount_options options;
static struct config config;
static struct op op;

static void setup(void)
{
    top_make();
    top_make_file("aws.conf", "[profile p]\nregion = r\n");
    ck_assert_int_eq(setenv("AWS_CONFIG_FILE", in_top("aws.conf"), 1), 0);
    mount_options_init(&options);
    op_init(&op, OP_FOREVER);
    config = (struct config){0};
}

static void teardown(void)
{
    config_release(&config);
    mount_options_release(&options);
    (void)unsetenv("AWS_CONFIG_FILE");
    top_remove();
}

/* With the file, as c.json, and its path in the place of "@" in either word. */
static int read_words(const char *text, const char *spec, const char *list)
{
    char path[512], specs[600], lists[1200], *at;

    top_make_file("c.json", text);
    (void)snprintf(path, sizeof(path), "%s", in_top("c.json"));
    (void)snprintf(specs, sizeof(specs), "%s", *spec == '@' ? path : spec);
    at = list ? strchr(list, '@') : NULL;
    if (at)
        (void)snprintf(lists, sizeof(lists), "%.*s%s%s", (int)(at - list), list, path, at + 1);
    else
        (void)snprintf(lists, sizeof(lists), "%s", list ? list : "");
    return configured(specs, list ? lists : NULL, &options, &op, &config);
}

static void reads(const char *text, const char *spec, const char *list)
{
    ck_assert_msg(read_words(text, spec, list) == 0, "%s", op.why);
}

static const char *option_of(size_t store, const char *name)
{
    return settings_get(&config.stores[store].settings, name);
}

/* ---- what is read ---- */

#define ONE                                                                                    \
    "{\"stores\": {\"a\": {\"url\": \"s3://b/p\", \"region\": \"here\", \"profile\": \"p\"}}," \
    " \"options\": {\"region\": \"there\", \"endpoint\": \"http://file\", \"ro\": true}}"
#define TWO                                                                                    \
    "{\"stores\": {\"a\": {\"url\": \"mem:a\"}, \"b\": {\"url\": \"mem:b\"}},"                 \
    " \"routes\": [{\"path\": \"logs/**\", \"store\": \"b\"},"                                 \
    " {\"path\": \"**\", \"store\": \"a\"}]}"

START_TEST(a_url_is_one_store_with_everything)
{
    ck_assert_int_eq(configured("mem:x", "region=r,ro", &options, &op, &config), 0);
    ck_assert_uint_eq(config.n_stores, 1);
    ck_assert_str_eq(config.stores[0].url, "mem:x");
    ck_assert_str_eq(option_of(0, "region"), "r");
    ck_assert(options.read_only && configured_is_plain(&config));
    ck_assert_uint_eq(options.store.n, 0);
}
END_TEST

/* The store's own, then the file's options, then those of the command line: the last wins. */
START_TEST(what_is_said_later_wins)
{
    reads(ONE, "@", "endpoint=http://line,rw");
    ck_assert_str_eq(config.stores[0].name, "a");
    ck_assert_str_eq(config.stores[0].url, "s3://b/p");
    ck_assert_str_eq(option_of(0, "profile"), "p");
    ck_assert_str_eq(option_of(0, "region"), "there");
    ck_assert_str_eq(option_of(0, "endpoint"), "http://line");
    ck_assert(!options.read_only);
}
END_TEST

START_TEST(a_store_of_a_file_is_mounted_by_its_name)
{
    reads(ONE, "a", "config=@");
    ck_assert_str_eq(config.stores[0].url, "s3://b/p");
    ck_assert(options.read_only);
}
END_TEST

START_TEST(a_file_without_stores_gives_options_to_a_url)
{
    reads("{\"options\": {\"region\": \"r\", \"upload_jobs\": 3}}", "mem:x",
          "config=@,upload_jobs=5");
    ck_assert_str_eq(config.stores[0].url, "mem:x");
    ck_assert_str_eq(option_of(0, "region"), "r");
    ck_assert_uint_eq(options.cache.upload_jobs, 5);
}
END_TEST

START_TEST(several_stores_have_routes)
{
    reads(TWO, "@", "ro");
    ck_assert_uint_eq(config.n_stores, 2);
    ck_assert_uint_eq(config.routes.n, 2);
    ck_assert(!configured_is_plain(&config));
}
END_TEST

/* ---- layouts ---- */

START_TEST(a_url_takes_any_layout)
{
    ck_assert_int_eq(configured("mem:x", "layout=runs", &options, &op, &config), 0);
    ck_assert_uint_eq(config.n_stores, 1);
    ck_assert_uint_gt(config.routes.n, 1);
    ck_assert(!configured_is_plain(&config));
}
END_TEST

START_TEST(the_one_store_of_a_file_takes_a_layout_and_keeps_its_name)
{
    reads("{\"stores\": {\"a\": {\"url\": \"s3://b/p\"}}, \"options\": {\"region\": "
          "\"there\"}}",
          "@", "layout=runs");
    ck_assert_str_eq(config.stores[0].name, "a");
    ck_assert_str_eq(option_of(0, "region"), "there");
    ck_assert_uint_gt(config.routes.n, 1);
    ck_assert_ptr_nonnull(strstr(config.origin, "c.json"));
}
END_TEST

START_TEST(plain_is_what_a_url_is_anyway)
{
    ck_assert_int_eq(configured("mem:x", "layout=plain", &options, &op, &config), 0);
    ck_assert(configured_is_plain(&config));
}
END_TEST

/* ---- fields of a policy ---- */

#define PLAIN "{\"stores\": {\"a\": {\"url\": \"mem:a\"}}"

static const struct policy *policy(void)
{
    return &config.policies.items[config.routes.items[0].policy];
}

/* The configuration that the cache keeps. */
static void expands_to_itself(void)
{
    auto_free char *text = config_expand(&config, false), *again_text = NULL;
    struct config again;

    ck_assert_msg(config_parse(text, strlen(text), "x", &op, NULL, &again) == 0, "%s", op.why);
    again_text = config_expand(&again, false);
    ck_assert_str_eq(again_text, text);
    ck_assert(routes_trivial(&again.routes) == routes_trivial(&config.routes));
    config_release(&again);
}

START_TEST(fields_make_a_policy_that_extends_data)
{
    ck_assert_int_eq(configured("mem:x",
                                "conflict=last,interval=5s,upload_interval=9s,settle=1s,"
                                "unit=names,logs=a*:b",
                                &options, &op, &config),
                     0);
    ck_assert(!configured_is_plain(&config) && routes_trivial(&config.routes));
    ck_assert_uint_eq(config.policies.n, 1);
    ck_assert_str_eq(policy()->name, "options");
    ck_assert_str_eq(policy()->preset, "data");
    ck_assert_int_eq(policy()->conflict, CONFLICT_LAST);
    ck_assert_int_eq(policy()->upload, UPLOAD_CLOSE);
    ck_assert_int_eq(policy()->interval_ns, 5 * NS_PER_SEC);
    ck_assert_str_eq(policy()->logs, "a*:b");
    ck_assert_str_eq(policy()->unit, "names");
    /* The mount has these for every policy. */
    ck_assert_int_eq(policy()->settle_ns, POLICY_UNSET);
    ck_assert_int_eq(options.cache.settle_ns, NS_PER_SEC);
    ck_assert_int_eq(options.cache.upload_interval_ns, 9 * NS_PER_SEC);
    expands_to_itself();
}
END_TEST

static const char *const as_data[] = {
    "upload=close",
    "conflict=keep",
    "conflict=last,conflict=keep",
    "unit=names",
    "unit_idle=10s,unit_max=10m,locks=node,lock_ttl=60s,expect=1,keep_last=0,del_locks=no",
};

START_TEST(what_data_says_anyway_stays_plain)
{
    ck_assert_int_eq(configured("mem:x", as_data[_i], &options, &op, &config), 0);
    ck_assert(configured_is_plain(&config));
    ck_assert_uint_eq(config.policies.n, 1);
}
END_TEST

START_TEST(fields_stand_in_a_file_too_and_the_last_wins)
{
    reads(PLAIN ", \"options\": {\"conflict\": \"last\", \"interval\": 0, \"expect\": 1,"
                " \"del_locks\": false, \"logs\": [\"x*\", \"y\"], \"upload\": \"never\"}}",
          "@", "upload=interval");
    ck_assert_int_eq(policy()->conflict, CONFLICT_LAST);
    ck_assert_int_eq(policy()->interval_ns, 0);
    ck_assert_int_eq(policy()->upload, UPLOAD_INTERVAL);
    ck_assert(!config.routes.items[0].scratch);
    ck_assert_str_eq(policy()->logs, "x*:y");
    expands_to_itself();
}
END_TEST

START_TEST(a_file_of_options_has_fields_for_a_url)
{
    reads("{\"options\": {\"conflict\": \"last\"}}", "mem:x", "config=@");
    ck_assert_int_eq(policy()->conflict, CONFLICT_LAST);
}
END_TEST

/* A policy of that name that no route has is another one. */
START_TEST(a_policy_of_the_file_with_that_name_is_no_matter)
{
    reads(PLAIN ", \"policies\": {\"options\": {\"upload\": \"never\"}}}", "@",
          "layout=plain,conflict=last");
    ck_assert_int_eq(policy()->conflict, CONFLICT_LAST);
    ck_assert_int_eq(policy()->upload, UPLOAD_CLOSE);
    expands_to_itself();
}
END_TEST

START_TEST(a_mount_that_never_uploads_is_scratch)
{
    ck_assert_int_eq(configured("mem:x", "upload=never", &options, &op, &config), 0);
    ck_assert(config.routes.items[0].scratch);
    ck_assert_uint_eq(config.n_stores, 1);
    expands_to_itself();
}
END_TEST

/* As `runfs check` reads it: whatever is wrong, with its place. */
START_TEST(check_finds_all_that_is_wrong_with_fields)
{
    static const char text[] = PLAIN ",\n \"options\": {\"keep_last\": 2,\n"
                                     "  \"conflict\": \"lst\", \"upload\": \"interval\"}}";
    struct config_problems problems = {0};
    bool known;

    ck_assert_int_eq(config_parse(text, strlen(text), "x", &op, NULL, &config), 0);
    ck_assert_int_eq(configured_check(&config, &op, &problems, &known), 0);
    ck_assert_uint_eq(problems.n, 2);
    ck_assert_uint_eq(problems.items[0].at.line, 2);
    ck_assert_uint_eq(problems.items[1].at.line, 3);
    ck_assert_ptr_nonnull(strstr(problems.items[1].text, "option conflict=lst: "));
    config_problems_release(&problems);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *text, *spec, *list;
    const char *says;
} refused[] = {
    {"{\"options\": {\"ro\": true}}", "@", NULL, "names no store"},
    {ONE, "b", "config=@", "names the store \"a\": mount that name"},
    {ONE, "@", "config=@", "is a configuration already: leave config="},
    {TWO, "a", "config=@", "has the stores a, b: mount"},
    {TWO, "@", "ro,region=r", "option region is one store's, and"},
    {TWO, "@", "layout=runs", "has the stores a, b: give it a \"layout\""},
    {"{\"stores\": {\"a\": {\"url\": \"mem:a\"}}, \"layout\": \"runs\"}", "@", "layout=ray",
     "has a layout of its own, \"runs\""},
    {"{\"stores\": {\"a\": {\"url\": \"mem:a\"}},\n"
     " \"routes\": [{\"path\": \"x/**\", \"store\": \"a\"}]}",
     "@", "layout=ray", "has routes of its own"},
    {"{}", "mem:x", "layout=rusn", "\"runs\""},
    {"{}", "mem:x", "config=@,regoin=r", "did you mean \"region\"?"},
    {"{}", "s3://key:secret@b/p", NULL, "credentials don't belong in a URL"},
    /* A place: line, column. */
    {"{\"stores\": {\n \"a\": {\"url\": \"mem:a\", \"regoin\": \"r\"}}}", "@", NULL,
     "c.json:2:2: store \"a\": unknown option \"regoin\", did you mean \"region\"?"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:a\"}},\n \"options\": {\"upload_jobs\": 0}}", "@",
     NULL, "c.json:2:"},
    {"{\"options\": {\n \"ro\": 5}}", "mem:x", "config=@", "c.json:2:8: option ro=5"},
    {"{\"options\": {\n \"config\": \"x\"}}", "mem:x", "config=@",
     "c.json:2:12: a configuration can't name another one"},
    {"{\"options\": {\n \"rw\": false}}", "mem:x", "config=@", "c.json:2:8: option rw=false"},
    {"{\"options\": {\n \"nosuid\": true}}", "mem:x", "config=@",
     "c.json:2:12: \"nosuid\" is a word for -o and fstab"},
    {"{\"options\": {\n \"_netdev\": true}}", "mem:x", "config=@",
     "c.json:2:13: \"_netdev\" is a word for -o and fstab"},
    {"{\"options\": {\n \"remount\": true}}", "mem:x", "config=@",
     "c.json:2:13: \"remount\" is a word for -o and fstab"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:a\"}, \"b\": {\"url\": \"mem:b\"}},\n"
     " \"default_store\": \"a\",\n"
     " \"options\": {\"region\": \"r\"}}",
     "@", NULL,
     "c.json:3:24: option \"region\" is one store's, and \"stores\" has a, b: put it into the "
     "store"},
    /* Fields of a policy. */
    {"{}", "mem:x", "keep_last=2",
     "option keep_last=2: \"keep_last\" of a policy is not built yet"},
    {"{}", "mem:x", "layout=ray,conflict=last",
     "option conflict=last: layout ray has policies of its own: write a configuration with "
     "them"},
    {"{}", "mem:x", "conflict=keep,layout=runs", "option conflict=keep: layout runs has"},
    {"{\"options\": {\"layout\": \"ray\", \"upload\": \"interval\"}}", "mem:x", "config=@",
     "option upload=interval: layout ray has policies of its own"},
    {TWO, "@", "conflict=last",
     "option conflict=last: only a store without routes and layout takes it; put it into a "
     "policy of "},
    {PLAIN ", \"layout\": \"ray\"}", "@", "conflict=last", "put it into a policy of "},
    {PLAIN ", \"layout\": \"ray\"}", "@", "layout=ray,conflict=last",
     "put it into a policy of "},
    {PLAIN ",\n \"layout\": \"ray\", \"options\": {\"conflict\": \"last\"}}", "@", NULL,
     "c.json:2:43: option conflict=last: only a store without"},
    {PLAIN ",\n \"options\": {\"interval\": \"soon\"}}", "@", NULL,
     "c.json:2:26: option interval=soon: \"interval\" in a policy must be a time"},
};

START_TEST(what_makes_no_sense_is_refused)
{
    int err = read_words(refused[_i].text, refused[_i].spec, refused[_i].list);

    ck_assert_msg(err == -EINVAL, "%d: %s", err, op.why);
    ck_assert_msg(strstr(op.why, refused[_i].says) != NULL, "says: %s", op.why);
    ck_assert_ptr_null(strstr(op.why, "secret"));
}
END_TEST

START_TEST(a_missing_file_is_told)
{
    ck_assert_int_eq(configured("/nonexistent/x.json", NULL, &options, &op, &config), -ENOENT);
    ck_assert_ptr_nonnull(strstr(op.why, "/nonexistent/x.json"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("configured");
    TCase *tc = tcase_create("configured");

    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_url_is_one_store_with_everything);
    tcase_add_test(tc, what_is_said_later_wins);
    tcase_add_test(tc, a_store_of_a_file_is_mounted_by_its_name);
    tcase_add_test(tc, a_file_without_stores_gives_options_to_a_url);
    tcase_add_test(tc, several_stores_have_routes);
    tcase_add_test(tc, a_url_takes_any_layout);
    tcase_add_test(tc, the_one_store_of_a_file_takes_a_layout_and_keeps_its_name);
    tcase_add_test(tc, plain_is_what_a_url_is_anyway);
    tcase_add_test(tc, fields_make_a_policy_that_extends_data);
    tcase_add_loop_test(tc, what_data_says_anyway_stays_plain, 0, ARRAY_SIZE(as_data));
    tcase_add_test(tc, fields_stand_in_a_file_too_and_the_last_wins);
    tcase_add_test(tc, a_file_of_options_has_fields_for_a_url);
    tcase_add_test(tc, a_policy_of_the_file_with_that_name_is_no_matter);
    tcase_add_test(tc, a_mount_that_never_uploads_is_scratch);
    tcase_add_test(tc, check_finds_all_that_is_wrong_with_fields);
    tcase_add_loop_test(tc, what_makes_no_sense_is_refused, 0, ARRAY_SIZE(refused));
    tcase_add_test(tc, a_missing_file_is_told);
    return suite_run(suite);
}
