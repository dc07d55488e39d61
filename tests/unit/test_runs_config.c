/* runs/config: a text in, stores and routes out, or each thing that is wrong with its place. */
#include "common/buf.h"
#include "common/mem.h"
#include "runs/config.h"
#include "tests/lib/config_lines.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is wrong ---- */

#define A        "{\"stores\":{\"a\":{\"url\":\"mem:a\"}}"
#define AB       "{\"stores\":{\"a\":{\"url\":\"mem:a\"},\"b\":{\"url\":\"mem:b\"}}"
#define ROUTE(x) A ",\n\"routes\":[{" x "}]}"

static const struct {
    const char *text;
    const char *lines; /* LINE:COLUMN: TEXT, each ended by a newline */
} refused[] = {
    /* JSON. */
    {"", "1:1: the JSON ends too early; a bracket, brace or quote is not closed\n"},
    {"{\"stores\":\n {\"a\": secret}}",
     "2:13: no JSON: a comma, colon, quote or bracket is missing or out of place here\n"},
    {"{} {}", "1:4: something follows behind the end of the JSON\n"},
    {"{\"a\": \"\\u0000\"}", "1:14: a text can't hold \\u0000\n"},
    {"{\"a\": 99999999999999999999}", "1:26: the number is too large\n"},
    {"[]", "1:1: a configuration must be an object, {...}\n"},
    {"5", "1:1: a configuration must be an object, {...}\n"},

    /* Members. */
    {"{\n \"stors\": {}}", "2:2: unknown \"stors\" in the configuration, did you mean "
                           "\"stores\"?\n"},
    {"{\"x\": 1}",
     "1:2: unknown \"x\" in the configuration; known are default_fs, default_store, "
     "stores, routes, layout, policies, latest, cache, options\n"},
    {"{\"cache\":{},\n\"cache\":{}}", "2:1: \"cache\" is there twice, first in line 1\n"},
    {A ",\n \"latest\": \"newest\"}", "2:2: \"latest\" is not built yet\n"},
    {"{\"cache\": {\"dirr\": \"/x\"}}",
     "1:12: unknown \"dirr\" in \"cache\", did you mean \"dir\"?\n"},
    {"{\"cache\": {\"size\": 1.5}}",
     "1:20: \"size\" in \"cache\" must be a text, an integer, a "
     "boolean or a list of texts without \":\"\n"},
    {"{\"options\": {\"x\": {}}}", "1:19: \"x\" in \"options\" must be a text, an integer, a "
                                   "boolean or a list of texts without \":\"\n"},
    {"{\"options\": [\"x\"]}", "1:13: \"options\" must be an object, {...}\n"},

    /* Stores. */
    {"{\"stores\": 1}", "1:12: \"stores\" must be an object, {...}\n"},
    {"{\"stores\": {}}", "1:12: \"stores\" has no store\n"},
    {"{\"stores\": {\"a\": 1}}", "1:18: a store must be an object, {...}\n"},
    {"{\"stores\": {\"a/b\": {\"url\": \"mem:\"}}}",
     "1:13: the name of a store is 1 to 255 bytes without \"/\" and without control "
     "characters\n"},
    {"{\"stores\": {\"a\": {}}}", "1:18: store \"a\" needs a \"url\" or a \"torchx_config\"\n"},
    {"{\"stores\": {\"a\": {\"url\": \"\"}}}",
     "1:26: \"url\" in a store must be a text that is not empty\n"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\", \"torchx_config\": \"x\"}}}",
     "1:34: a store has a \"url\" or a \"torchx_config\", not both\n"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\", \"region\": null}}}",
     "1:44: \"region\" in a store must be a text, an integer or a boolean\n"},
    {"{\"stores\": {\"a\": {\"url\": \"mem:\", \"secret_key\": \"hush\"}}}",
     "1:34: \"secret_key\" of a store: secrets don't belong in a configuration; take them from "
     "the environment or a profile\n"},
    {"{\"stores\": {\"a\": {\"url\": \"s3://b\", \"endpoint\": \"http://u:hush@h\"}}}",
     "1:48: \"endpoint\" of a store: credentials don't belong in a URL; take them from the "
     "environment or a profile\n"},
    {"{\"stores\": {\"a\": {\"url\": \"x/y\"}}}",
     "1:26: the URL has neither a scheme nor a \"/\" at its start; a relative path needs "
     "\"default_fs\"\n"},
    {"{\"default_fs\": \"hadoop\"}", "1:16: \"default_fs\": \"hadoop\" is not built yet; write "
                                     "the URL that fs.defaultFS has\n"},
    {"{\"default_fs\": \"nn:8020\"}",
     "1:16: \"default_fs\" must be a URL such as hdfs://host:8020 or file:///\n"},
    {"{\"default_fs\": \"hdfs://nn/x\"}",
     "1:16: \"default_fs\" names a filesystem, so it has no path behind the host\n"},
    {"{\"default_fs\": \"hdfs://u:hush@nn\"}",
     "1:16: credentials don't belong in a URL; take them from the environment or a profile\n"},

    /* Routes. */
    {"{\"routes\": [{}]}", "1:2: \"routes\" needs \"stores\"\n"},
    {"{\"layout\": \"runs\"}", "1:2: \"layout\" needs \"stores\"\n"},
    {"{\"default_store\": \"a\"}", "1:2: \"default_store\" needs \"stores\"\n"},
    {AB "}", "1:11: several stores, and nothing says what lies in which: add \"routes\", a "
             "\"layout\" or a \"default_store\"\n"},
    {AB ",\"routes\":[]}", "1:11: several stores, and nothing says what lies in which: add "
                           "\"routes\", a \"layout\" or "
                           "a \"default_store\"\n"},
    {A ",\"routes\": {}}", "1:43: \"routes\" must be a list, [...]\n"},
    {A ",\"routes\": [1]}", "1:44: a route must be an object, {...}\n"},
    {ROUTE("\"store\":\"a\""), "2:11: a route needs a \"path\"\n"},
    {ROUTE("\"path\":\"**\""), "2:11: a route needs a \"store\"\n"},
    {ROUTE("\"path\":1,\"store\":\"a\""),
     "2:19: \"path\" in a route must be a text that is not empty\n"},
    {ROUTE("\"path\":\"**\",\"store\":\"a\",\"polcy\":\"data\""),
     "2:36: unknown \"polcy\" in a route, did you mean \"policy\"?\n"},
    {ROUTE("\"path\":\"**\",\"store\":\"a\",\"x\":1"),
     "2:36: unknown \"x\" in a route; known are path, store, key, policy\n"},
    {AB ",\"routes\":[{\"path\":\"**\",\"store\":\"x\"}]}",
     "1:84: route names the store \"x\"; \"stores\" has a, b\n"},
    {ROUTE("\"path\":\"**\",\"store\":\"a\",\"policy\":\"chekpoint\""),
     "2:45: route names the policy \"chekpoint\", did you mean \"checkpoint\"?\n"},
    {ROUTE("\"path\":\"**\",\"store\":\"a\",\"policy\":\"zzz\""),
     "2:45: route names the policy \"zzz\"; there are checkpoint, logs, metadata, data, "
     "scratch, "
     "dbfs, ray, adaptdl, tfos\n"},
    {A ",\n\"default_store\": \"b\"}",
     "2:18: \"default_store\" names the store \"b\"; \"stores\" has a\n"},

    /* Templates. */
    {ROUTE("\"path\":\"{run}/**\",\"store\":\"a\",\"key\":\"x/**\""),
     "2:48: \"path\" has {run}, \"key\" has not\n"},
    {ROUTE("\"path\":\"x/**\",\"store\":\"a\",\"key\":\"{run}/**\""),
     "2:44: \"key\" has {run}, \"path\" has not\n"},
    {ROUTE("\"path\":\"{a}/{b}/**\",\"store\":\"a\",\"key\":\"{b}/{a}/**\""),
     "2:50: \"key\" has {b} before {a}\n"},
    {ROUTE("\"path\":\"{a}-{b}\",\"store\":\"a\""), "2:19: two captures in \"{a}-{b}\"\n"},

    /* Nothing is left for a route. */
    {A
     ",\n\"routes\":[{\"path\":\"**\",\"store\":\"a\"},\n{\"path\":\"x/**\",\"store\":\"a\"}]}",
     "3:1: can never match: line 2 takes every path of it\n"},
    {AB ",\n\"routes\":[{\"path\":\"**\",\"store\":\"a\"}],\n\"default_store\":\"b\"}",
     "3:17: can never match: line 2 takes every path of it\n"},
    {AB ",\n\"routes\":[{\"path\":\"**\",\"store\":\"a\"}],\n\"layout\":{\"name\":\"runs\","
        "\"data\":\"b\"}}",
     "3:32: can never match: line 2 takes every path of it\n"},
    {A ",\n\"routes\":[{\"path\":\"**\",\"store\":\"a\"}],\n\"layout\":\"runs\"}",
     "3:10: can never match: line 2 takes every path of it\n"},

    /* What only follows from that is not told. */
    {"{\"default_fs\": \"hadoop\", \"stores\":{\"a\":{\"url\":\"x\"},\"b\":{\"url\":\"y\"}}, "
     "\"default_store\":\"a\"}",
     "1:16: \"default_fs\": \"hadoop\" is not built yet; write the URL that fs.defaultFS "
     "has\n"},
    {"{\"defualt_fs\": \"s3://t\", \"stores\":{\"a\":{\"url\":\"x\"}}}",
     "1:2: unknown \"defualt_fs\" in the configuration, did you mean \"default_fs\"?\n"},
    {AB ",\n\"layot\":\"runs\"}",
     "2:1: unknown \"layot\" in the configuration, did you mean \"layout\"?\n"},
    {AB ",\n\"default_stor\":\"a\",\"layout\":\"runs\"}",
     "2:1: unknown \"default_stor\" in the configuration, did you mean \"default_store\"?\n"},
    {AB ",\n\"cach\":{}}",
     "1:11: several stores, and nothing says what lies in which: add \"routes\", a \"layout\" "
     "or a \"default_store\"\n"
     "2:1: unknown \"cach\" in the configuration, did you mean \"cache\"?\n"},
    {AB ",\n\"routes\":{}}", "2:10: \"routes\" must be a list, [...]\n"},
    {"{\"store\":{\"a\":{\"url\":\"mem:\"}},\"layout\":\"runs\"}",
     "1:2: unknown \"store\" in the configuration, did you mean \"stores\"?\n"},
    {"{\"stores\":[],\"default_store\":\"a\"}", "1:11: \"stores\" must be an object, {...}\n"},
    {"{\"stores\":{\"a/b\":{\"url\":\"mem:\"}},\"layout\":{\"name\":\"runs\",\"data\":\"a/"
     "b\"}}",
     "1:12: the name of a store is 1 to 255 bytes without \"/\" and without control "
     "characters\n"},
    {A ",\"routes\":[{\"path\":\"**\",\"store\":\"a\",\"policy\":\"mine\"}],\n\"polices\":{"
       "\"mine\":{}}}",
     "2:1: unknown \"polices\" in the configuration, did you mean \"policies\"?\n"},
    {A ",\"routes\":[{\"path\":\"**\",\"store\":\"a\",\"policy\":\"x/y\"}],\n\"policies\":{\"x/"
       "y\":{}}}",
     "2:13: the name of a policy is 1 to 255 bytes without \"/\" and without control "
     "characters\n"},
    {ROUTE("\"pth\":\"**\",\"store\":\"a\""),
     "2:12: unknown \"pth\" in a route, did you mean \"path\"?\n"},
    {ROUTE("\"path\":\"**\",\"stoer\":\"a\""),
     "2:24: unknown \"stoer\" in a route, did you mean \"store\"?\n"},

    /* All of it at once, by places. */
    {"{\"cache\": {\"x\": 1},\n"
     " \"policies\": {\"p\": {\"upload\": \"later\"}},\n"
     " \"routes\": [{\"path\": \"**\", \"store\": \"q\"}],\n"
     " \"stores\": {\"a\": {}}}",
     "1:12: unknown \"x\" in \"cache\"; known are dir, size, reserve\n"
     "2:31: \"upload\" in a policy must be one of close, rename, interval, never\n"
     "3:37: route names the store \"q\"; \"stores\" has a\n"
     "4:18: store \"a\" needs a \"url\" or a \"torchx_config\"\n"},
    /* Names can't break a line or command a terminal. */
    {"{\"a\\n\\u001b[2J\": 1}", "1:2: unknown \"a\\x0a\\x1b[2J\" in the configuration; known "
                                "are default_fs, default_store, "
                                "stores, routes, layout, policies, latest, cache, options\n"},
};

START_TEST(it_says_what_is_wrong)
{
    config_lines_refused(refused[_i].text, "t.json", refused[_i].lines);
}
END_TEST

START_TEST(no_secret_is_shown)
{
    static const char *const urls[] = {"s3://key:hush@b/p",
                                       "hdfs://hush@nn/p",
                                       "s3://k:hu/sh@b",
                                       "s3://k:hu?sh@b",
                                       "sftp://u:hush@h/p",
                                       "https://h/p?sig=hush",
                                       "https://h/p?a=1&access_token=hush"};
    char text[256];

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        (void)snprintf(text, sizeof(text), "{\"stores\":{\"a\":{\"url\":\"%s\"}}}", urls[i]);
        config_lines_refused(text, "t.json",
                             "1:23: credentials don't belong in a URL; take them from the "
                             "environment or a profile\n");
    }
}
END_TEST

START_TEST(first_problem_is_the_reason)
{
    struct config config;
    struct op op;
    static const char text[] = "{\"y\":1,\n\"x\":1}";

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(config_parse(text, strlen(text), "dir/t.json", &op, NULL, &config),
                     -EINVAL);
    ck_assert_msg(strncmp(op.why, "dir/t.json:1:2: unknown \"y\"", 27) == 0, "%s", op.why);
}
END_TEST

/* The first hundred by their places, whatever was found first. */
START_TEST(hundred_problems_are_kept)
{
    auto_buf struct buf text = BUF_INIT(1 << 20);
    struct config_problems problems = {0};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(buf_adds(&text, "{\"cache\":{"), 0);
    for (int i = 0; i < 110; i++)
        ck_assert_int_eq(buf_addf(&text, "%s\"wrong%d\":1", i ? ",\n" : "\n", i), 0);
    ck_assert_int_eq(buf_adds(&text, "},\n\"stores\":{}}"), 0);
    ck_assert_int_eq(config_parse(text.data, text.len, "t", &op, &problems, &config), -EINVAL);
    ck_assert_uint_eq(problems.n, CONFIG_PROBLEMS_MAX);
    ck_assert_uint_eq(problems.more, 11);
    for (unsigned i = 0; i < problems.n; i++)
        ck_assert_uint_eq(problems.items[i].at.line, i + 2);
    config_problems_release(&problems);
}
END_TEST

/* ---- what is legal ---- */

static const struct {
    const char *text;
    const char *stores; /* NAME URL name=value... */
    const char *routes; /* PATH STORE KEY POLICY */
} legal[] = {
    {"{}", "", ""},
    {"{\"options\": {\"ro\": true}}", "", ""},
    {"{\"routes\": []}", "", ""},
    {A "}", "a mem:a\n", "** a ** data\n"},
    {A ",\"routes\":[]}", "a mem:a\n", "** a ** data\n"},
    {A ",\"default_store\":\"a\"}", "a mem:a\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"s3://b/p\",\"region\":\"eu\",\"path_style\":true,"
     "\"port\":9000}}}",
     "a s3://b/p region=eu path_style=true port=9000\n", "** a ** data\n"},
    /* Sections refer to each other in any order. */
    {"{\"default_store\":\"b\",\"routes\":[{\"path\":\"x/{r}/**\",\"key\":\"{r:b32}/**\","
     "\"policy\":\"mine\",\"store\":\"a\"}],\"policies\":{\"mine\":{\"settle\":\"1s\"}},"
     "\"stores\":{\"a\":{\"url\":\"mem:a\"},\"b\":{\"url\":\"mem:b\"}}}",
     "a mem:a\nb mem:b\n", "x/{r}/** a {r:b32}/** mine\n** b ** data\n"},
    {ROUTE("\"path\":\"x/{r}\",\"store\":\"a\",\"policy\":\"scratch\""), "a mem:a\n",
     "x/{r} a x/{r} scratch\n"},
    /* A place in a query or a port is no secret. */
    {"{\"stores\":{\"a\":{\"url\":\"hdfs://nn:8020/p@q\",\"token_file\":\"/x\"}}}",
     "a hdfs://nn:8020/p@q token_file=/x\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"hdfs://[::1]:8020/p@q\"}}}", "a hdfs://[::1]:8020/p@q\n",
     "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"abfs://box@account.dfs/p\"}}}",
     "a abfs://box@account.dfs/p\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"/mnt/a?key=b\"}}}", "a /mnt/a?key=b\n", "** a ** data\n"},
    /* The default filesystem. */
    {"{\"stores\":{\"a\":{\"url\":\"/p\"}},\"default_fs\":\"hdfs://nn:8020/\"}",
     "a hdfs://nn:8020/p\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"p/q\"}},\"default_fs\":\"hdfs://nn:8020\"}",
     "a hdfs://nn:8020/user/trainer/p/q\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"hdfs:///p\"}},\"default_fs\":\"hdfs://nn:8020\"}",
     "a hdfs://nn:8020/p\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"hdfs:///p\",\"host\":\"h\"}},"
     "\"default_fs\":\"hdfs://nn:8020\"}",
     "a hdfs:///p host=h\n", "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"hdfs:///p\"}},\"default_fs\":\"s3://b\"}", "a hdfs:///p\n",
     "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"/p\"}},\"default_fs\":\"file:///\"}", "a file:///p\n",
     "** a ** data\n"},
    {"{\"stores\":{\"a\":{\"url\":\"s3://b\"}},\"default_fs\":\"hdfs://nn\"}", "a s3://b\n",
     "** a ** data\n"},
};

START_TEST(it_reads_what_is_legal)
{
    ck_assert_int_eq(setenv("HADOOP_USER_NAME", "trainer", 1), 0);
    config_lines_legal(legal[_i].text, "t.json", legal[_i].stores, legal[_i].routes);
    ck_assert_int_eq(unsetenv("HADOOP_USER_NAME"), 0);
}
END_TEST

START_TEST(relative_folder_is_below_the_working_directory)
{
    auto_free char *folder = getcwd(NULL, 0);
    char stores[5000];

    (void)snprintf(stores, sizeof(stores), "a file://%s/p\n", folder);
    config_lines_legal("{\"stores\":{\"a\":{\"url\":\"p\"}},\"default_fs\":\"file:///\"}", "t",
                       stores, "** a ** data\n");
}
END_TEST

START_TEST(options_keep_their_places)
{
    static const char text[] =
        "{\"cache\": {\"dir\": \"/c\", \"size\": 5},\n"
        " \"options\": {\"staging\": [\"*.tmp\", \"x\"], \"ro\": false}}";
    static const struct config_option wanted[] = {{"cache_dir", "/c", {1, 19}},
                                                  {"cache_size", "5", {1, 33}},
                                                  {"staging", "*.tmp:x", {2, 25}},
                                                  {"ro", "false", {2, 47}}};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_parse(text, strlen(text), "t", &op, NULL, &config) == 0, "%s", op.why);
    ck_assert_uint_eq(config.n_options, ARRAY_SIZE(wanted));
    for (size_t i = 0; i < config.n_options; i++) {
        ck_assert_str_eq(config.options[i].name, wanted[i].name);
        ck_assert_str_eq(config.options[i].value, wanted[i].value);
        ck_assert_uint_eq(config.options[i].at.line, wanted[i].at.line);
        ck_assert_uint_eq(config.options[i].at.column, wanted[i].at.column);
    }
    config_release(&config);
}
END_TEST

START_TEST(places_of_routes_and_stores)
{
    static const char text[] =
        "{\"stores\": {\"a\": {\"url\": \"mem:a\"}},\n"
        " \"routes\": [{\"path\": \"x/**\", \"store\": \"a\", \"policy\": \"scratch\"},\n"
        "            {\"path\": \"y/**\", \"store\": \"a\"}],\n"
        " \"layout\": \"ray\"}";
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_parse(text, strlen(text), "t", &op, NULL, &config) == 0, "%s", op.why);
    ck_assert_uint_eq(config.stores[0].at.column, 13);
    ck_assert_uint_eq(config.stores[0].url_at.column, 26);
    ck_assert_uint_eq(config.routes.n, 3);
    ck_assert(config.routes.items[0].scratch && !config.routes.items[1].scratch);
    ck_assert_uint_eq(config.routes.items[1].at.line, 3);
    ck_assert_uint_eq(config.routes.items[1].at.column, 13);
    ck_assert_uint_eq(config.routes.items[2].at.line, 4);
    ck_assert_str_eq(config.layout, "ray");
    config_release(&config);
}
END_TEST

/* ---- files ---- */

START_TEST(a_file_is_read)
{
    static const char text[] = A "}";
    char dir[256], path[300];
    struct config_problems problems = {0};
    struct config config;
    struct op op;
    FILE *file;

    op_init(&op, OP_FOREVER);
    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(path, sizeof(path), "%s/c.json", dir);
    ck_assert_int_eq(config_load(path, &op, &problems, &config), -ENOENT);
    ck_assert_uint_eq(problems.n, 1);
    ck_assert_uint_eq(problems.items[0].at.line, 0);
    ck_assert_str_eq(problems.items[0].text, "No such file or directory");
    config_problems_release(&problems);
    file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    ck_assert_msg(config_load(path, &op, NULL, &config) == 0, "%s", op.why);
    ck_assert_str_eq(config.origin, path);
    config_release(&config);
    temp_dir_remove(dir);
}
END_TEST

/* ---- one URL ---- */

START_TEST(one_url)
{
    struct settings settings = {0};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(settings_add(&settings, "region", "eu"), 0);
    ck_assert_msg(config_of_url("s3://b/p", &settings, NULL, &op, &config) == 0, "%s", op.why);
    ck_assert_uint_eq(config.n_stores, 1);
    ck_assert_str_eq(config.stores[0].name, "store");
    ck_assert_str_eq(settings_get(&config.stores[0].settings, "region"), "eu");
    ck_assert(routes_trivial(&config.routes));
    ck_assert_str_eq(config.layout, "plain");
    ck_assert_str_eq(config.policies.items[config.routes.items[0].policy].name, "data");
    config_release(&config);
    ck_assert_int_eq(config_of_url("mem:", &settings, "hrovod", &op, &config), -EINVAL);
    ck_assert_str_eq(op.why, "unknown layout \"hrovod\", did you mean \"horovod\"?");
    ck_assert_int_eq(config_of_url("s3://k:hush@b", &settings, NULL, &op, &config), -EINVAL);
    ck_assert_ptr_null(strstr(op.why, "hush"));
    settings_release(&settings);
}
END_TEST

/* ---- the stores as a whole ---- */

#define TWO_LOGS                                                                               \
    "{\"stores\":{\"ckpt\":{\"url\":\"mem:a\"},\"b\":{\"url\":\"mem:b\"}},\n"                  \
    "\"routes\":[{\"path\":\"runs/{r}/checkpoint/**\",\"key\":\"{r}/"                          \
    "**\",\"store\":\"ckpt\"},\n"                                                              \
    "{\"path\":\"runs/{r}/logs/**\",\"key\":\"{r}/**\",\"store\":\"b\"%s}]}"

static const struct {
    const char *policy; /* of the second route */
    struct config_root roots[2];
    const char *lines;
} roots[] = {
    {"", {{"x", "p", "p.runfs"}, {"y", "p", "p.runfs"}}, ""},
    {"", {{"x", "p", "p.runfs"}, {"x", "q", "q.runfs"}}, ""},
    {"",
     {{"x", "p", NULL}, {"x", "p", NULL}},
     "3:1: an object of \"ckpt\" such as OBJECT would be PATH and PATH (line 2)\n"},
    {",\"policy\":\"scratch\"", {{"x", "p", NULL}, {"x", "p", NULL}}, ""},
    {"",
     {{"x", "p/q", "p/q.runfs"}, {"x", "p", "p.runfs"}},
     "1:26: the state of \"ckpt\" would lie in \"b\" (p/q.runfs); put one of them elsewhere, "
     "or "
     "say state_prefix\n"
     "3:1: an object of \"ckpt\" such as OBJECT would be PATH and PATH (line 2)\n"},
    {"",
     {{"x", "p", "p.runfs"}, {"x", "p.runfs/q", "p.runfs/q.runfs"}},
     "1:46: \"b\" (p.runfs/q) would lie in the state of \"ckpt\" (p.runfs); put one of them "
     "elsewhere, or say state_prefix\n"},
    {"", {{"x", "p", "p.runfs"}, {"y", "p.runfs/q", NULL}}, ""},
    {"", {{"x", "p", "p.runfs"}, {"x", "p.runfsq", NULL}}, ""},
    {"",
     {{"x", "p", "p.runfs"}, {"x", "p.runfs", NULL}},
     "1:26: the state of \"ckpt\" would lie in \"b\" (p.runfs); put one of them elsewhere, or "
     "say state_prefix\n"},
};

/* Which object and paths are an example of, routes_overlap() decides. */
static void blur(char *line)
{
    char *at = strstr(line, " such as ");
    char object[256], one[256], other[256], rest[512];

    if (at && sscanf(at, " such as %255s would be %255s and %255s %511[^\n]", object, one,
                     other, rest) == 4)
        (void)sprintf(at, " such as OBJECT would be PATH and PATH %s\n", rest);
}

START_TEST(places_of_stores_are_checked)
{
    struct config_problems problems = {0};
    struct config config;
    struct op op;
    char text[1024], lines[4096] = "";

    op_init(&op, OP_FOREVER);
    (void)snprintf(text, sizeof(text), TWO_LOGS, roots[_i].policy);
    ck_assert_msg(config_parse(text, strlen(text), "t", &op, NULL, &config) == 0, "%s", op.why);
    ck_assert_int_eq(config_check_roots(&config, roots[_i].roots, &op, &problems),
                     *roots[_i].lines ? -EINVAL : 0);
    for (size_t i = 0; i < problems.n; i++) {
        char line[1024];

        (void)snprintf(line, sizeof(line), "%u:%u: %s\n", problems.items[i].at.line,
                       problems.items[i].at.column, problems.items[i].text);
        blur(line);
        (void)strcat(lines, line);
    }
    ck_assert_str_eq(lines, roots[_i].lines);
    config_problems_release(&problems);
    config_release(&config);
}
END_TEST

START_TEST(an_overlap_names_both_paths)
{
    static const struct config_root one[2] = {{"x", "", NULL}, {"x", "", NULL}};
    struct config config;
    struct op op;
    char text[1024];

    op_init(&op, OP_FOREVER);
    (void)snprintf(text, sizeof(text), TWO_LOGS, "");
    ck_assert_int_eq(config_parse(text, strlen(text), "t", &op, NULL, &config), 0);
    ck_assert_int_eq(config_check_roots(&config, one, &op, NULL), -EINVAL);
    ck_assert_msg(strstr(op.why, "/checkpoint/") && strstr(op.why, "/logs/"), "%s", op.why);
    config_release(&config);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runs config");
    TCase *t = tcase_create("config");

    tcase_add_loop_test(t, it_says_what_is_wrong, 0, ARRAY_SIZE(refused));
    tcase_add_test(t, no_secret_is_shown);
    tcase_add_test(t, first_problem_is_the_reason);
    tcase_add_test(t, hundred_problems_are_kept);
    tcase_add_loop_test(t, it_reads_what_is_legal, 0, ARRAY_SIZE(legal));
    tcase_add_test(t, relative_folder_is_below_the_working_directory);
    tcase_add_test(t, options_keep_their_places);
    tcase_add_test(t, places_of_routes_and_stores);
    tcase_add_test(t, a_file_is_read);
    tcase_add_test(t, one_url);
    tcase_add_loop_test(t, places_of_stores_are_checked, 0, ARRAY_SIZE(roots));
    tcase_add_test(t, an_overlap_names_both_paths);
    suite_add_tcase(s, t);
    return suite_run(s);
}
