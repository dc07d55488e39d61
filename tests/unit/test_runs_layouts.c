/* Layouts of a configuration: the routes they are, as an expanded configuration has them. */
#include "common/mem.h"
#include "runs/config.h"
#include "tests/lib/config_lines.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define HA      "{\"stores\":{\"a\":{\"url\":\"mem:a\"},\"h\":{\"url\":\"mem:h\"}},\n"
#define ONE     "{\"stores\":{\"a\":{\"url\":\"mem:a\"}},\n"
#define STORES  "a mem:a\nh mem:h\n"
#define REST(s) "** " s " ** data\n"

/* The three data sets where they lie by default. */
#define DATASET(x, s)                                                                          \
    "intermediate_" x "_data/** " s " intermediate_" x "_data/** data\n"                       \
    "intermediate_" x "_data{x}/** " s " intermediate_" x "_data{x}/** data\n"                 \
    "intermediate_" x "_data{x} " s " intermediate_" x "_data{x} data\n"
#define HOROVOD_RUNS(s, other)                                                                 \
    "runs/{run}/checkpoint.h5 " s " runs/{run}/checkpoint.h5 checkpoint\n"                     \
    "runs/{run}/checkpoint/** " s " runs/{run}/checkpoint/** checkpoint\n"                     \
    "runs/{run}/logs/** " s " runs/{run}/logs/** logs\n"                                       \
    "runs/{run}/** " s " runs/{run}/** " other "\n"
#define RUNS(s)                                                                                \
    "runs/{run}/checkpoint/** " s " runs/{run}/checkpoint/** checkpoint\n"                     \
    "runs/{run}/logs/** " s " runs/{run}/logs/** logs\n"                                       \
    "runs/{run}/metadata/** " s " runs/{run}/metadata/** metadata\n"                           \
    "runs/{run}/** " s " runs/{run}/** data\n"

static const struct {
    const char *name, *routes;
} bare[] = {
    {"plain", REST("store")},
    {"runs", RUNS("store") REST("store")},
    {"horovod", DATASET("train", "store") DATASET("val", "store") DATASET("test", "store")
                    HOROVOD_RUNS("store", "checkpoint") REST("store")},
    {"dbfs", DATASET("train", "store") DATASET("val", "store") DATASET("test", "store")
                 HOROVOD_RUNS("store", "dbfs") REST("store")},
    {"ray", "** store ** ray\n"},
    {"adaptdl", "** store ** adaptdl\n"},
    {"torchx", "runs/{run}/** store {run:b32}/** metadata\n"},
    {"tfos", "** store ** tfos\n"},
};

START_TEST(bare_url_takes_any_layout)
{
    static const struct config_root root = {"mem:a", "p", "p.runfs"};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_of_url("mem:a", NULL, bare[_i].name, &op, &config) == 0, "%s", op.why);
    auto_free char *routes = config_lines_routes(&config);
    ck_assert_str_eq(routes, bare[_i].routes);
    ck_assert_str_eq(config.layout, bare[_i].name);
    ck_assert_uint_eq(config.routes.items[0].at.line, 0);
    config_lines_expanded(&config);
    ck_assert_msg(config_check_roots(&config, &root, &op, NULL) == 0, "%s", op.why);
    config_release(&config);
}
END_TEST

static const struct {
    const char *text, *routes;
} legal[] = {
    {HA "\"layout\":{\"name\":\"plain\",\"data\":\"h\"}}", REST("h")},
    {HA "\"layout\":{\"name\":\"plain\",\"data\":\"h/x\"}}", "** h x/** data\n"},
    {HA "\"layout\":\"plain\",\"default_store\":\"h\"}", REST("h")},
    {HA "\"default_store\":\"a\",\"layout\":\"ray\"}", "** a ** ray\n"},
    /* The specification's example. */
    {HA "\"layout\":{\"name\":\"horovod\",\"runs\":\"a\",\"train\":\"h/warehouse/tr\","
        "\"val\":\"h\",\"test\":\"h\",\"data\":\"a\",\"save_runs\":true}}",
     "intermediate_train_data/** h warehouse/tr/** data\n"
     "intermediate_train_data{x}/** h warehouse/tr{x}/** data\n"
     "intermediate_train_data{x} h warehouse/tr{x} data\n" DATASET("val", "h")
         DATASET("test", "h") HOROVOD_RUNS("a", "checkpoint") REST("a")},
    {HA "\"layout\":{\"name\":\"horovod\",\"data\":\"h\",\"save_runs\":false}}",
     DATASET("train", "h") DATASET("val", "h")
         DATASET("test", "h") "runs/** h runs/** scratch\n" REST("h")},
    {HA "\"layout\":{\"name\":\"dbfs\",\"runs\":\"a/e/f\",\"data\":\"h\"}}",
     DATASET("train", "h") DATASET("val", "h")
         DATASET("test", "h") "runs/{run}/checkpoint.h5 a e/f/{run}/checkpoint.h5 checkpoint\n"
                              "runs/{run}/checkpoint/** a e/f/{run}/checkpoint/** checkpoint\n"
                              "runs/{run}/logs/** a e/f/{run}/logs/** logs\n"
                              "runs/{run}/** a e/f/{run}/** dbfs\n" REST("h")},
    /* What is not named lies where the rest lies, at its path. */
    {HA "\"layout\":{\"name\":\"runs\",\"data\":\"h\"}}", RUNS("h") REST("h")},
    {HA "\"layout\":{\"name\":\"runs\",\"data\":\"h/x\",\"logs\":\"a/l\"}}",
     "runs/{run}/checkpoint/** h x/runs/{run}/checkpoint/** checkpoint\n"
     "runs/{run}/logs/** a l/{run}/logs/** logs\n"
     "runs/{run}/metadata/** h x/runs/{run}/metadata/** metadata\n"
     "runs/{run}/** h x/runs/{run}/** data\n"
     "** h x/** data\n"},
    {HA "\"layout\":{\"name\":\"runs\",\"data\":\"h\",\"tracker\":\"a\"}}",
     "runs/{run}/checkpoint/** h runs/{run}/checkpoint/** checkpoint\n"
     "runs/{run}/logs/** h runs/{run}/logs/** logs\n"
     "runs/{run}/metadata/** a {run:b32}/** metadata\n"
     "runs/{run}/** h runs/{run}/** data\n" REST("h")},
    {HA "\"layout\":{\"name\":\"torchx\",\"tracker\":\"h/t\"}}",
     "runs/{run}/** h t/{run:b32}/** metadata\n"},
    {HA "\"layout\":{\"name\":\"torchx\",\"tracker\":\"h\"},\"default_store\":\"a\"}",
     "runs/{run}/** h {run:b32}/** metadata\n" REST("a")},
    {ONE "\"layout\":{\"name\":\"torchx\",\"names\":\"raw\"}}", "** a ** metadata\n"},
    {ONE "\"layout\":{\"name\":\"torchx\",\"names\":\"b32\"}}",
     "runs/{run}/** a {run:b32}/** metadata\n"},
    /* A path is no template. */
    {HA "\"layout\":{\"name\":\"plain\",\"data\":\"h/x{y}\"}}", "** h x{{y}}/** data\n"},
    /* Own routes come first, and what they take wholly is not in the layout. */
    {HA "\"routes\":[{\"path\":\"runs/{run}/logs/**\",\"store\":\"a\",\"policy\":\"logs\"},"
        "{\"path\":\"runs/{run}/old/**\",\"store\":\"a\"}],"
        "\"layout\":{\"name\":\"runs\",\"data\":\"h\"}}",
     "runs/{run}/logs/** a runs/{run}/logs/** logs\n"
     "runs/{run}/old/** a runs/{run}/old/** data\n"
     "runs/{run}/checkpoint/** h runs/{run}/checkpoint/** checkpoint\n"
     "runs/{run}/metadata/** h runs/{run}/metadata/** metadata\n"
     "runs/{run}/** h runs/{run}/** data\n" REST("h")},
};

START_TEST(layout_is_its_routes)
{
    struct config config;
    struct op op;
    bool both = strncmp(legal[_i].text, HA, strlen(HA)) == 0;

    config_lines_legal(legal[_i].text, "t.json", both ? STORES : "a mem:a\n", legal[_i].routes);
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(
        config_parse(legal[_i].text, strlen(legal[_i].text), "t", &op, NULL, &config), 0);
    auto_free char *text = config_expand(&config, false);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_null(strstr(text, "\"layout\""));
    ck_assert_ptr_null(strstr(text, "\"default_store\""));
    config_release(&config);
}
END_TEST

static const struct {
    const char *text;
    enum codec names;
} named[] = {
    {ONE "\"layout\":{\"name\":\"torchx\",\"names\":\"raw\"}}", CODEC_B32},
    {ONE "\"layout\":{\"name\":\"torchx\",\"names\":\"b32\"}}", CODEC_NONE},
    {ONE "\"layout\":\"torchx\"}", CODEC_NONE},
    {ONE "\"layout\":\"plain\"}", CODEC_NONE},
    {"{}", CODEC_NONE},
};

START_TEST(raw_names_are_known_as_such)
{
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(
        config_parse(named[_i].text, strlen(named[_i].text), "t", &op, NULL, &config), 0);
    ck_assert_int_eq(config.raw_names, named[_i].names);
    config_release(&config);
}
END_TEST

static const struct {
    const char *text, *lines;
} refused[] = {
    {ONE "\"layout\":\"hrovod\"}",
     "2:10: unknown layout \"hrovod\", did you mean \"horovod\"?\n"},
    {ONE "\"layout\":\"zzzzzzzz\"}",
     "2:10: unknown layout \"zzzzzzzz\"; known are plain, runs, horovod, dbfs, ray, adaptdl, "
     "torchx, tfos\n"},
    {ONE "\"layout\":{}}", "2:10: a layout needs a \"name\"\n"},
    {ONE "\"layout\":1}", "2:10: \"layout\" must be a name or an object, {...}\n"},
    {ONE "\"layout\":{\"name\":\"\"}}",
     "2:18: \"name\" in a layout must be a text that is not empty\n"},
    {ONE "\"layout\":{\"name\":\"horovod\",\"trian\":\"a\"}}",
     "2:28: unknown \"trian\" in layout \"horovod\", did you mean \"train\"?\n"},
    {ONE "\"layout\":{\"name\":\"plain\",\"save_runs\":false}}",
     "2:26: unknown \"save_runs\" in layout \"plain\"; known are name, data\n"},
    {ONE "\"layout\":{\"name\":\"plain\",\"data\":\"x/y\"}}",
     "2:33: \"data\" names the store \"x\"; \"stores\" has a\n"},
    {ONE "\"layout\":{\"name\":\"plain\",\"data\":\"a/\"}}",
     "2:33: \"data\": what follows \"STORE/\" must be a path without empty names, \".\" and "
     "\"..\"\n"},
    {ONE "\"layout\":{\"name\":\"plain\",\"data\":\"a/x/../y\"}}",
     "2:33: \"data\": what follows \"STORE/\" must be a path without empty names, \".\" and "
     "\"..\"\n"},
    {HA "\"layout\":\"runs\"}", "2:10: layout \"runs\" needs \"data\", the store of what the "
                                "others do not take, or a \"default_store\"\n"},
    {HA "\"layout\":\"torchx\"}",
     "2:10: layout \"torchx\" needs \"tracker\", the store of what "
     "the others do not take, or a \"default_store\"\n"},
    /* One thing is told once. */
    {HA "\"layout\":\"runs\",\"default_store\":\"x\"}",
     "2:33: \"default_store\" names the store \"x\"; \"stores\" has a, h\n"},
    {HA "\"layout\":{\"name\":\"runs\",\"data\":\"a\",\"tracker\":\"h\",\"metadata\":\"h\"}}",
     "2:36: a tracker holds the runs' metadata: \"tracker\" or \"metadata\", not both\n"},
    {ONE "\"layout\":{\"name\":\"horovod\",\"runs\":\"a\",\"save_runs\":false}}",
     "2:28: \"runs\" names a store, but with \"save_runs\": false no run is stored; leave one "
     "of "
     "them out\n"},
    {ONE "\"layout\":{\"name\":\"horovod\",\"save_runs\":\"maybe\"}}",
     "2:40: \"save_runs\" in a layout must be true or false\n"},
    {ONE "\"layout\":{\"name\":\"torchx\",\"names\":\"hex\"}}",
     "2:35: \"names\" in a layout must be one of b32, raw\n"},
    /* What was named and never matches is told at its own place. */
    {HA "\"routes\":[{\"path\":\"runs/{r}/logs/**\",\"store\":\"a\"}],\n"
        "\"layout\":{\"name\":\"runs\",\"data\":\"h\",\"logs\":\"h\"}}",
     "3:43: can never match: line 2 takes every path of it\n"},
    {HA "\"layout\":{\"name\":\"plain\",\"data\":\"h\"},\n\"default_store\":\"a\"}",
     "3:17: can never match: line 2 takes every path of it\n"},
};

START_TEST(layout_says_what_is_wrong)
{
    config_lines_refused(refused[_i].text, "t.json", refused[_i].lines);
}
END_TEST

/* Where the parts of a layout lie in each other, an object would have two paths. */
START_TEST(parts_in_each_other_are_refused)
{
    static const char *const texts[] = {
        HA "\"layout\":{\"name\":\"horovod\",\"data\":\"a\",\"train\":\"a/tr\"}}",
        HA "\"layout\":{\"name\":\"runs\",\"data\":\"a\",\"tracker\":\"a\"}}",
        HA "\"layout\":{\"name\":\"runs\",\"data\":\"a\",\"logs\":\"a/l\"}}"};
    static const struct config_root roots[] = {{"x", "a", NULL}, {"x", "h", NULL}};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        ck_assert_int_eq(config_parse(texts[i], strlen(texts[i]), "t", &op, NULL, &config), 0);
        ck_assert_int_eq(config_check_roots(&config, roots, &op, NULL), -EINVAL);
        ck_assert_msg(strstr(op.why, "an object of \"a\" such as "), "%s", op.why);
        config_release(&config);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runs layouts");
    TCase *t = tcase_create("layouts");

    tcase_add_loop_test(t, bare_url_takes_any_layout, 0, ARRAY_SIZE(bare));
    tcase_add_loop_test(t, layout_is_its_routes, 0, ARRAY_SIZE(legal));
    tcase_add_loop_test(t, raw_names_are_known_as_such, 0, ARRAY_SIZE(named));
    tcase_add_loop_test(t, layout_says_what_is_wrong, 0, ARRAY_SIZE(refused));
    tcase_add_test(t, parts_in_each_other_are_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
