/* cli/kept_config: what a cache directory keeps of its stores, and what becomes of that. */
#include "cli/kept_config.h"

#include "cache/mirror/door.h"
#include "cli/store_places.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/suite.h"
#include "tests/lib/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config config, kept;
static struct identity identity;
static struct op op;
static int dir_fd;

static void setup(void)
{
    top_make();
    op_init(&op, OP_FOREVER);
    ck_assert_msg(door_open(in_top("cache"), DOOR_MAKE, &op, &dir_fd, NULL) == 0, "%s", op.why);
    config = kept = (struct config){0};
    identity = (struct identity){0};
}

static void teardown(void)
{
    (void)close(dir_fd);
    config_release(&config);
    config_release(&kept);
    identity_release(&identity);
    top_remove();
}

#define ONE "{\"stores\": {\"s\": {\"url\": \"s3://b/p\", \"region\": \"r\"}}}"
#define TWO                                                                                    \
    "{\"stores\": {\"l\": {\"url\": \"mem:l\"}, \"s\": {\"url\": \"s3://b/p\", "               \
    "\"region\": \"r\"}},"                                                                     \
    " \"routes\": [{\"path\": \"logs/**\", \"store\": \"l\", \"policy\": \"mine\"}],"          \
    " \"policies\": {\"mine\": {\"extends\": \"logs\", \"interval\": \"7s\"}},"                \
    " \"default_store\": \"s\"}"
#define URL_ONE "{\"url\":\"s3://b/p\",\"endpoint\":\"http://e\"}"
#define ROUTES                                                                                 \
    "[{\"key\":\"logs/**\",\"path\":\"logs/**\",\"store\":\"l\"},"                             \
    "{\"key\":\"**\",\"path\":\"**\",\"store\":\"s\"}]"
#define STORES                                                                                 \
    "{\"l\":{\"url\":\"mem:l\"},\"s\":{\"endpoint\":\"http://e\",\"url\":\"s3://was/p\"}}"
#define URL_TWO "{\"routes\":" ROUTES ",\"stores\":" STORES "}"

static void read_config(const char *text)
{
    config_release(&config);
    ck_assert_msg(config_parse(text, strlen(text), "t.json", &op, NULL, &config) == 0, "%s",
                  op.why);
}

static void save(const char *text)
{
    read_config(text);
    ck_assert_msg(kept_config_save(dir_fd, &config, &op) == 0, "%s", op.why);
}

static int load(const char *text)
{
    identity_release(&identity);
    ck_assert_int_eq(identity_parse(text, &op, &identity), 0);
    return kept_config_load(dir_fd, "/the/cache", &identity, &op, &kept);
}

static bool is_kept(const char *name)
{
    return faccessat(dir_fd, name, F_OK, 0) == 0;
}

/* The endpoint may have come from a profile, which says another by now. */
START_TEST(one_store_has_its_options_and_the_endpoint_that_it_had)
{
    save(ONE);
    ck_assert(is_kept("store.json") && !is_kept("config.json"));
    ck_assert_msg(load(URL_ONE) == 0, "%s", op.why);
    ck_assert_uint_eq(kept.n_stores, 1);
    ck_assert_str_eq(kept.stores[0].url, "s3://b/p");
    ck_assert_str_eq(settings_get(&kept.stores[0].settings, "region"), "r");
    ck_assert_str_eq(settings_get(&kept.stores[0].settings, "endpoint"), "http://e");
    ck_assert(routes_trivial(&kept.routes));
}
END_TEST

#define NO_ENDPOINT "{\"url\":\"s3://was/p\"}"
#define TWO_WITHOUT                                                                            \
    "{\"routes\":" ROUTES ",\"stores\":{\"l\":{\"url\":\"mem:l\"},\"s\":" NO_ENDPOINT "}}"

static void is_at(const struct config_store *store, const char *server)
{
    struct store_where where;

    ck_assert_msg(store_place(store, &op, &where) == 0, "%s", op.why);
    ck_assert_str_eq(where.server, server);
    store_where_release(&where);
}

/* A bucket of that name may be at the other server, too. */
START_TEST(a_store_without_an_endpoint_stays_without)
{
    aws_clear_environment();
    ck_assert_int_eq(setenv("AWS_CONFIG_FILE", "/dev/null", 1), 0);
    ck_assert_int_eq(setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1), 0);
    ck_assert_int_eq(setenv("AWS_ENDPOINT_URL", "http://env", 1), 0);
    save(TWO);
    ck_assert_msg(load(TWO_WITHOUT) == 0, "%s", op.why);
    is_at(&kept.stores[1], "s3 http://env/was"); /* nobody can tell which of them was meant */
    ck_assert_int_eq(kept_config_stay(&identity, &op, &kept), 0);
    is_at(&kept.stores[0], "mem:l");
    is_at(&kept.stores[1], "s3 https://s3.amazonaws.com/was");
    config_release(&kept);
    save(ONE);
    ck_assert_msg(load(NO_ENDPOINT) == 0, "%s", op.why);
    ck_assert_int_eq(kept_config_stay(&identity, &op, &kept), 0);
    is_at(&kept.stores[0], "s3 https://s3.amazonaws.com/was");
    aws_clear_environment();
}
END_TEST

/* A mount that was killed before it kept anything had written nothing. */
START_TEST(one_store_needs_no_options)
{
    ck_assert_int_eq(load(URL_ONE), 0);
    ck_assert_str_eq(kept.stores[0].url, "s3://b/p");
}
END_TEST

START_TEST(several_stores_have_all_of_the_configuration)
{
    save(TWO);
    ck_assert(is_kept("config.json"));
    ck_assert_msg(load(URL_TWO) == 0, "%s", op.why);
    ck_assert_uint_eq(kept.n_stores, 2);
    ck_assert_str_eq(kept.stores[1].url, "s3://was/p");
    ck_assert_str_eq(settings_get(&kept.stores[1].settings, "region"), "r");
    ck_assert_str_eq(settings_get(&kept.stores[1].settings, "endpoint"), "http://e");
    ck_assert_uint_eq(kept.routes.n, 2);
    const struct policy *p = &kept.policies.items[kept.routes.items[0].policy];
    ck_assert_int_eq(p->upload, UPLOAD_INTERVAL);
    ck_assert_int_eq(p->interval_ns, 7 * NS_PER_SEC);
}
END_TEST

/* Its policy decides what is published. */
START_TEST(one_store_under_a_policy_keeps_that)
{
    save("{\"stores\": {\"s\": {\"url\": \"s3://b/p\"}},"
         " \"routes\": [{\"path\": \"**\", \"store\": \"s\", \"policy\": \"checkpoint\"}]}");
    ck_assert(is_kept("config.json"));
    ck_assert_msg(load(URL_ONE) == 0, "%s", op.why);
    ck_assert_str_eq(kept.policies.items[kept.routes.items[0].policy].name, "checkpoint");
    ck_assert_str_eq(settings_get(&kept.stores[0].settings, "endpoint"), "http://e");
}
END_TEST

START_TEST(what_was_before_is_not_taken_for_it)
{
    save(TWO);
    save(ONE);
    ck_assert(!is_kept("config.json"));
    ck_assert_int_eq(load(URL_ONE), 0);
    ck_assert_uint_eq(kept.n_stores, 1);
}
END_TEST

START_TEST(another_configuration_is_refused)
{
    static const char *const others[] = {
        URL_ONE,
        "{\"routes\":[],\"stores\":" STORES "}",
        "{\"routes\":" ROUTES ",\"stores\":{\"s\":{\"url\":\"mem:s\"}}}",
        "{\"routes\":" ROUTES
        ",\"stores\":{\"l\":{\"url\":\"mem:l\"},\"x\":{\"url\":\"mem:s\"}}}",
    };

    save(TWO);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        ck_assert_msg(load(others[i]) == -EINVAL, "%s", others[i]);
        ck_assert_msg(strstr(op.why, "/the/cache") != NULL, "says: %s", op.why);
    }
}
END_TEST

START_TEST(routes_without_a_configuration_are_told)
{
    save(ONE);
    ck_assert_int_eq(load(URL_TWO), -ENOENT);
    ck_assert_ptr_nonnull(strstr(op.why, "/the/cache lacks config.json"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kept_config");
    TCase *tc = tcase_create("kept_config");

    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, one_store_has_its_options_and_the_endpoint_that_it_had);
    tcase_add_test(tc, a_store_without_an_endpoint_stays_without);
    tcase_add_test(tc, one_store_needs_no_options);
    tcase_add_test(tc, several_stores_have_all_of_the_configuration);
    tcase_add_test(tc, one_store_under_a_policy_keeps_that);
    tcase_add_test(tc, what_was_before_is_not_taken_for_it);
    tcase_add_test(tc, another_configuration_is_refused);
    tcase_add_test(tc, routes_without_a_configuration_are_told);
    return suite_run(suite);
}
