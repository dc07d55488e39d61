/* cli/identity: which stores a cache is of, as a text, and what differs between two. */
#include "backends/drivers.h"
#include "backends/routed/routed.h"
#include "cli/identity.h"
#include "common/buf.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct op op;

static void setup(void)
{
    op_init(&op, OP_FOREVER);
}

/* ---- one store ---- */

START_TEST(identity_is_read_back)
{
    auto_free char *text = identity_make("s3://b/p", "http://e");
    auto_free char *plain = identity_make("file:///b", NULL);
    struct identity read;

    ck_assert_int_eq(identity_parse(text, &op, &read), 0);
    ck_assert_uint_eq(read.n, 1);
    ck_assert_ptr_null(read.stores[0].name);
    ck_assert_ptr_null(read.routes);
    ck_assert_str_eq(read.title, "s3://b/p");
    ck_assert_str_eq(read.stores[0].url, "s3://b/p");
    ck_assert_str_eq(settings_get(&read.stores[0].settings, "endpoint"), "http://e");
    ck_assert_uint_eq(read.stores[0].settings.n, 1);
    ck_assert_ptr_null(strstr(plain, "endpoint"));
    identity_release(&read);
}
END_TEST

/* The identity of the bucket as the store is opened now. */
static char *identity_of_bucket(const struct store_config *config)
{
    struct store *s = NULL;
    int r = s3_store_new("s3://bucket/p", config, &op, &s);

    ck_assert_msg(r == 0, "%s", op.why);
    char *text = identity_make(s->url, s->endpoint);
    store_close(s);
    return text;
}

/* A cache of the one must not be taken for one of the other, whoever names the endpoint. */
START_TEST(identity_knows_the_endpoint_wherever_it_is_set)
{
    static const struct store_option given[] = {
        {"region", "r"}, {"no_sign_request", ""}, {"endpoint", "http://option"}};
    struct store_config config = {.options = given, .n_options = 2};
    char path[] = "/tmp/runfs-config-XXXXXX";
    int fd = mkstemp(path);
    static const char profile[] = "[default]\nendpoint_url = http://profile\n";

    aws_clear_environment();
    ck_assert_int_eq(write(fd, profile, sizeof(profile) - 1), sizeof(profile) - 1);
    (void)close(fd);
    ck_assert_int_eq(setenv("AWS_CONFIG_FILE", "/dev/null", 1), 0);
    auto_free char *none = identity_of_bucket(&config);
    ck_assert_int_eq(setenv("AWS_CONFIG_FILE", path, 1), 0);
    auto_free char *of_profile = identity_of_bucket(&config);
    ck_assert_int_eq(setenv("AWS_ENDPOINT_URL", "http://env", 1), 0);
    auto_free char *of_env = identity_of_bucket(&config);
    config.n_options++;
    auto_free char *of_option = identity_of_bucket(&config);
    (void)unlink(path);
    aws_clear_environment();
    ck_assert_ptr_null(strstr(none, "endpoint"));
    ck_assert_ptr_nonnull(strstr(of_profile, "http://profile"));
    ck_assert_ptr_nonnull(strstr(of_env, "http://env"));
    ck_assert_ptr_nonnull(strstr(of_option, "http://option"));
}
END_TEST

START_TEST(default_dirs_differ)
{
    auto_free char *a = identity_default_dir("{\"url\":\"x\"}", "/mnt/a");
    auto_free char *b = identity_default_dir("{\"url\":\"x\"}", "/mnt/b");
    auto_free char *c = identity_default_dir("{\"url\":\"y\"}", "/mnt/a");
    auto_free char *again = identity_default_dir("{\"url\":\"x\"}", "/mnt/a");

    ck_assert_str_ne(a, b);
    ck_assert_str_ne(a, c);
    ck_assert_str_eq(a, again);
    ck_assert_int_eq(a[0], '/');
}
END_TEST

/* Where a cache is that an earlier version made: the endpoint of a profile was not in its name.
 */
START_TEST(the_dir_of_earlier_versions_is_known)
{
    auto_free char *former_identity = identity_make("s3://b/p", NULL);
    auto_free char *former = identity_default_dir(former_identity, "/m");
    auto_free char *dir = identity_former_dir("s3://b/p", "http://e", "/m");
    auto_free char *none = identity_former_dir("s3://b/p", NULL, "/m");

    ck_assert_str_eq(dir, former);
    ck_assert_ptr_null(none);
}
END_TEST

/* ---- several ---- */

#define CONFIG                                                                                 \
    "{\"stores\": {\"logs\": {\"url\": \"mem:l\"}, \"ckpt\": {\"url\": \"mem:c\"}},"           \
    " \"routes\": [{\"path\": \"runs/{run}/logs/**\", \"store\": \"logs\", \"key\": "          \
    "\"{run}/**\"}, {\"path\": \"tmp/**\", \"policy\": \"scratch\", \"store\": \"ckpt\"},"     \
    " {\"path\": \"**\", \"store\": \"ckpt\"}]}"

/* The same stores give the same text whatever order the file has them in. */
START_TEST(several_stores_and_their_routes_are_one_identity)
{
    struct mount_options options;
    struct config config;
    struct open_stores stores;
    struct identity read;

    mount_options_init(&options);
    ck_assert_msg(config_parse(CONFIG, strlen(CONFIG), "t.json", &op, NULL, &config) == 0, "%s",
                  op.why);
    ck_assert_msg(open_stores(&config, &options, &op, &stores) == 0, "%s", op.why);
    auto_free char *text = identity_of(&config, &stores);
    ck_assert_str_eq(text,
                     "{\"routes\":[{\"key\":\"{run}/**\",\"path\":\"runs/{run}/logs/**\","
                     "\"store\":\"logs\"},{\"path\":\"tmp/**\",\"scratch\":true},"
                     "{\"key\":\"**\",\"path\":\"**\",\"store\":\"ckpt\"}],"
                     "\"stores\":{\"ckpt\":{\"url\":\"mem:c\"},\"logs\":{\"url\":\"mem:l\"}}}");
    ck_assert_int_eq(identity_parse(text, &op, &read), 0);
    ck_assert_str_eq(read.title, "runfs:ckpt+logs");
    ck_assert_uint_eq(read.n, 2);
    ck_assert_str_eq(read.stores[0].name, "ckpt");
    ck_assert_str_eq(read.stores[1].url, "mem:l");
    auto_free char *routes = identity_routes(&config);
    ck_assert_str_eq(read.routes, routes);
    identity_release(&read);
    open_stores_close(&stores);
    config_release(&config);
    mount_options_release(&options);
}
END_TEST

/* As the store over them is called. */
START_TEST(the_title_of_many_stores_is_cut)
{
    auto_buf struct buf text = BUF_INIT(1 << 20);
    char name[256][33];
    const char *names[256];
    struct identity read;

    ck_assert_int_eq(buf_adds(&text, "{\"routes\":[],\"stores\":{"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(name[i], sizeof(name[i]), "%032zu", i);
        names[i] = name[i];
        ck_assert_int_eq(buf_addf(&text, "%s\"%s\":{\"url\":\"mem:\"}", i ? "," : "", name[i]),
                         0);
    }
    ck_assert_int_eq(buf_adds(&text, "}}"), 0);
    ck_assert_int_eq(identity_parse(text.data, &op, &read), 0);
    auto_free char *title = routed_title(names, ARRAY_SIZE(names));
    ck_assert_str_eq(read.title, title);
    ck_assert_uint_lt(strlen(title), 1025);
    identity_release(&read);
}
END_TEST

START_TEST(bad_identity_is_refused)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"url\": 1}",
        "{\"url\": \"a\", \"endpoint\": 5}",
        "{\"stores\": {}, \"routes\": []}",
        "{\"stores\": {\"a\": {\"url\": \"x\"}}}",
        "{\"stores\": {\"a\": {}}, \"routes\": []}",
        "{\"stores\": {\"a\": 5}, \"routes\": []}",
    };
    struct identity read;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_assert_msg(identity_parse(texts[i], &op, &read) == -EINVAL, "%s", texts[i]);
}
END_TEST

/* ---- differences ---- */

#define ROUTES  "\"routes\":[{\"key\":\"**\",\"path\":\"**\",\"store\":\"a\"}]"
#define STORE_A "\"a\":{\"url\":\"s3://a/b\"}"
#define STORE_B "\"b\":{\"url\":\"s3://b\"}"
#define A       "{\"stores\":{" STORE_A "}," ROUTES "}"
#define A_AND_B "{\"stores\":{" STORE_A "," STORE_B "}," ROUTES "}"
#define ANOTHER "{\"stores\":{\"a\":{\"url\":\"s3://a/c\"}}," ROUTES "}"
#define ELSEWHERE                                                                              \
    "{\"stores\":{\"a\":{\"url\":\"s3://a/b\",\"endpoint\":\"http://e\"}}," ROUTES "}"
#define SCRATCH  "{\"stores\":{" STORE_A "},\"routes\":[{\"path\":\"t/**\",\"scratch\":true}]}"
#define NO_ROUTE "{\"stores\":{" STORE_A "},\"routes\":[]}"

static const struct {
    const char *cache, *mount, *words;
} differences[] = {
    {"{\"url\":\"s3://a/b\"}", "{\"url\":\"s3://a/c\"}",
     "the cache is of a store at s3://a/b, the mount has s3://a/c"},
    {"{\"url\":\"s3://a\",\"endpoint\":\"http://e\"}", "{\"url\":\"s3://a\"}",
     "the cache is of a store with endpoint http://e, the mount has none"},
    {A, ANOTHER, "the cache is of \"a\" at s3://a/b, the mount has s3://a/c"},
    {A, ELSEWHERE, "the cache is of \"a\" with endpoint none, the mount has http://e"},
    {A_AND_B, A, "the cache is of \"b\" at s3://b, too, which the mount has not"},
    {A, A_AND_B, "the mount has \"b\" at s3://b, too, of which the cache is not"},
    {A, SCRATCH,
     "route 1 of the cache is ** to ** of \"a\", that of the mount t/** in no store"},
    {NO_ROUTE, A, "route 1 of the cache is none, that of the mount ** to ** of \"a\""},
    {"{\"url\":\"s3://a/b\"}", A,
     "the cache is of s3://a/b without routes, the mount has s3://a/b with some"},
};

START_TEST(the_first_difference_is_told)
{
    auto_free char *words =
        identity_difference(differences[_i].cache, differences[_i].mount, "the mount");

    ck_assert_str_eq(words, differences[_i].words);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identity");
    TCase *tc = tcase_create("identity");

    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, identity_is_read_back);
    tcase_add_test(tc, identity_knows_the_endpoint_wherever_it_is_set);
    tcase_add_test(tc, default_dirs_differ);
    tcase_add_test(tc, the_dir_of_earlier_versions_is_known);
    tcase_add_test(tc, several_stores_and_their_routes_are_one_identity);
    tcase_add_test(tc, the_title_of_many_stores_is_cut);
    tcase_add_test(tc, bad_identity_is_refused);
    tcase_add_loop_test(tc, the_first_difference_is_told, 0, ARRAY_SIZE(differences));
    return suite_run(suite);
}
