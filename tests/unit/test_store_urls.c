/* backends/where.c: where stores are, and URLs of keys both ways. Nobody is asked. */
#include "backends/where.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct op op;

static void setup(void)
{
    aws_clear_environment();
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    op_init(&op, OP_FOREVER);
}

static void teardown(void)
{
}

/* With one option; `name` NULL: without. */
static int where(const char *url, const char *name, const char *value, struct store_where *ret)
{
    const struct store_option option = {name, value};
    const struct store_config config = {.options = &option, .n_options = name ? 1 : 0};

    op.why[0] = '\0';
    return store_where(url, &config, &op, ret);
}

static struct store_where found(const char *url, const char *name, const char *value)
{
    struct store_where w;

    ck_assert_msg(where(url, name, value, &w) == 0, "%s: %s", url, op.why);
    return w;
}

/* ---- places ---- */

static const struct {
    const char *url, *name, *value, *server, *root, *state;
} places[] = {
    {"s3://b", NULL, NULL, "s3 https://s3.amazonaws.com/b", "", NULL},
    {"s3://b/p/q/", NULL, NULL, "s3 https://s3.amazonaws.com/b", "p/q", "p/q.runfs"},
    {"s3://b/p", "region", "eu-west-1", "s3 https://s3.amazonaws.com/b", "p", "p.runfs"},
    {"s3://b/p", "region", "cn-north-1", "s3 https://s3.amazonaws.com.cn/b", "p", "p.runfs"},
    {"s3://b/p", "region", "us-gov-west-1", "s3 https://s3.us-gov.amazonaws.com/b", "p",
     "p.runfs"},
    {"s3://b/p", "endpoint", "https://s3.eu-west-1.amazonaws.com",
     "s3 https://s3.amazonaws.com/b", "p", "p.runfs"},
    {"s3://b/p", "endpoint", "http://s3-eu-west-1.amazonaws.com/",
     "s3 https://s3.amazonaws.com/b", "p", "p.runfs"},
    {"s3://b/p", "endpoint", "https://x.s3-accesspoint.eu-west-1.amazonaws.com",
     "s3 https://x.s3-accesspoint.eu-west-1.amazonaws.com/b", "p", "p.runfs"},
    {"s3://b/p", "endpoint", "HTTPS://Minio.Example:443/", "s3 https://minio.example/b", "p",
     "p.runfs"},
    {"s3://b/p", "endpoint", "http://h:9000/base/", "s3 http://h:9000/base/b", "p", "p.runfs"},
    {"s3://b/p", "state_prefix", "off", "s3 https://s3.amazonaws.com/b", "p", NULL},
    {"s3://b/p", "state_prefix", "own/state/", "s3 https://s3.amazonaws.com/b", "p",
     "own/state"},
    {"mem:x", NULL, NULL, "mem:x", "", NULL},
    {"mem:x?s3", NULL, NULL, "mem:x", "", NULL},
    {"/no-such-folder/a/../b/./c//", NULL, NULL, "file", "no-such-folder/b/c",
     "no-such-folder/b/c.runfs"},
    {"file:/no-such-folder/x", NULL, NULL, "file", "no-such-folder/x",
     "no-such-folder/x.runfs"},
    {"file:///no-such-folder/a@b%20?", NULL, NULL, "file", "no-such-folder/a@b%20?",
     "no-such-folder/a@b%20?.runfs"},
};

START_TEST(a_place_has_one_name)
{
    struct store_where w = found(places[_i].url, places[_i].name, places[_i].value);

    ck_assert_str_eq(w.server, places[_i].server);
    ck_assert_str_eq(w.root, places[_i].root);
    ck_assert_pstr_eq(w.state, places[_i].state);
    store_where_release(&w);
}
END_TEST

START_TEST(environment_and_profiles_count)
{
    setenv("AWS_ENDPOINT_URL_S3", "http://Env:80", 1);
    struct store_where w = found("s3://b/p", NULL, NULL);
    ck_assert_str_eq(w.server, "s3 http://env/b");
    store_where_release(&w);
    w = found("s3://b/p", "endpoint", "https://told");
    ck_assert_str_eq(w.server, "s3 https://told/b");
    store_where_release(&w);
    w = found("s3://b/p", "endpoint", store_no_endpoint("s3://b/p"));
    ck_assert_str_eq(w.server, "s3 https://s3.amazonaws.com/b");
    store_where_release(&w);
    ck_assert_ptr_null(store_no_endpoint("mem:x"));
}
END_TEST

static bool meet(const char *a, const char *b)
{
    struct store_where of_a = found(a, NULL, NULL), of_b = found(b, NULL, NULL);
    bool met = store_where_meet(&of_a, &of_b);

    ck_assert_int_eq(store_where_meet(&of_b, &of_a), met);
    store_where_release(&of_a);
    store_where_release(&of_b);
    return met;
}

START_TEST(nested_and_equal_places_meet)
{
    ck_assert(meet("s3://b/p", "s3://b/p/"));
    ck_assert(meet("s3://b/p", "s3://b/p/q"));
    ck_assert(meet("s3://b", "s3://b/p"));
    ck_assert(!meet("s3://b/p", "s3://b/pq"));
    ck_assert(!meet("s3://b/p", "s3://c/p"));
    ck_assert(!meet("s3://b/no-such-folder", "/no-such-folder"));
    ck_assert(meet("/no-such-folder/x", "file:///no-such-folder/y/../x/z"));
    ck_assert(meet("mem:a", "mem:a?s3"));
    ck_assert(!meet("mem:a", "mem:b"));
    ck_assert(!meet("mem:", "mem:"));
}
END_TEST

/* dir/real is a folder, dir/link leads to it, dir/gone leads to dir/none/deep. */
START_TEST(symlinks_are_resolved_as_far_as_there_is_something)
{
    char dir[PATH_MAX], real[PATH_MAX], path[2 * PATH_MAX], wanted[2 * PATH_MAX];
    static const struct {
        const char *path, *real;
    } t[] = {
        {"real", "real"},
        {"link", "real"},
        {"link/x", "real/x"},
        {"link/x/../y", "real/y"},
        {"gone", "none/deep"},
        {"gone/x", "none/deep/x"},
        {"real/../link/./x/", "real/x"},
        {"link/..", ""},
    };

    temp_dir_make(dir, sizeof(dir));
    ck_assert_ptr_nonnull(realpath(dir, real));
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(mkdir("real", 0700), 0);
    ck_assert_int_eq(symlink("real", "link"), 0);
    ck_assert_int_eq(symlink("none/deep", "gone"), 0);
    ck_assert_int_eq(symlink("loop", "loop"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, t[i].path);
        (void)snprintf(wanted, sizeof(wanted), "%s%s%s", real + 1, *t[i].real ? "/" : "",
                       t[i].real);
        struct store_where w = found(path, NULL, NULL);
        ck_assert_str_eq(w.root, wanted);
        store_where_release(&w);
    }
    (void)snprintf(path, sizeof(path), "%s/loop/x", dir);
    struct store_where w = found(path, NULL, NULL);
    ck_assert_ptr_nonnull(strstr(w.root, "/loop/x"));
    store_where_release(&w);
    ck_assert_int_eq(chdir("/"), 0);
    temp_dir_remove(dir);
}
END_TEST

static const struct {
    const char *url, *name, *value, *says;
} wrong[] = {
    {"", NULL, NULL, "no known form"},
    {"ckpt", NULL, NULL, "no known form"},
    {"hdfs://nn/x", NULL, NULL, "no known form"},
    {"s3://", NULL, NULL, "no bucket name"},
    {"s3://b/../x", NULL, NULL, "component"},
    {"file://host/x", NULL, NULL, "file:///path"},
    {"/", NULL, NULL, "whole machine"},
    {"/no-such-folder/..", NULL, NULL, "whole machine"},
    {"mem:a?b", NULL, NULL, "mem:NAME?s3"},
    {"s3://b", "regoin", "x", "no option \"regoin\", did you mean \"region\"?"},
    {"/no-such-folder", "region", "x", "/path has no option \"region\""},
    {"s3://b", "region", "a/b", "region"},
    {"s3://b", "path_style", "maybe", "neither true nor false"},
    {"s3://b", "sse", "rot13", "AES256"},
    {"s3://b", "endpoint", "minio:9000", "TLS"},
    {"s3://b/p", "state_prefix", "p/own", "lie within each other"},
    {"s3://b", "state_prefix", "own/state", "lie within each other"},
    {"s3://b", "profile", "nobody", "\"nobody\" is neither in"},
};

START_TEST(what_a_mount_refuses_offline_is_refused)
{
    struct store_where w;

    ck_assert_int_eq(where(wrong[_i].url, wrong[_i].name, wrong[_i].value, &w), -EINVAL);
    ck_assert_msg(strstr(op.why, wrong[_i].says), "%s: %s", wrong[_i].url, op.why);
}
END_TEST

/* ---- secrets ---- */

#define SECRET "hunter2"

static const struct {
    const char *url, *endpoint;
} secrets[] = {
    {"s3://AK:" SECRET "@b/p", NULL},       {"s3:///AK:" SECRET "@b", NULL},
    {"s3:///AK:x/" SECRET "@b", NULL},      {"s3://AK:x/" SECRET "@b", NULL},
    {"s3://AK:x?" SECRET "@b", NULL},       {"s3:/AK:" SECRET "@b", NULL},
    {"s3:AK:" SECRET "@b", NULL},           {"AK:" SECRET "@b", NULL},
    {"hdfs://u:" SECRET "@nn/x", NULL},     {"file://u:" SECRET "@h/x", NULL},
    {"s3://b?secret_key=" SECRET, NULL},    {"s3://b", "https://u:" SECRET "@h"},
    {"s3://b", "https://u:x/" SECRET "@h"}, {"s3://b", "u:" SECRET "@h"},
    {"s3://b", "https://h?token=" SECRET},
};

START_TEST(no_message_shows_a_secret)
{
    const char *endpoint = secrets[_i].endpoint;
    struct store_where w;

    ck_assert_int_eq(where(secrets[_i].url, endpoint ? "endpoint" : NULL, endpoint, &w),
                     -EINVAL);
    ck_assert(op.why[0]);
    ck_assert_msg(!strstr(op.why, SECRET), "%s", op.why);
    if (!endpoint)
        return;
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    ck_assert_int_eq(where(secrets[_i].url, NULL, NULL, &w), -EINVAL);
    ck_assert_msg(!strstr(op.why, SECRET), "%s", op.why);
}
END_TEST

/* A line that slipped: what stands there may be a key. */
START_TEST(no_message_shows_what_a_profile_has)
{
    static const char *const lines[] = {"region = sl1p/" SECRET, "endpoint_url = " SECRET,
                                        "endpoint_url = ftp://" SECRET};
    char dir[PATH_MAX], path[PATH_MAX + 8];
    struct store_where w;

    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(path, sizeof(path), "%s/config", dir);
    setenv("AWS_CONFIG_FILE", path, 1);
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        FILE *f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_gt(fprintf(f, "[default]\n%s\n", lines[i]), 0);
        ck_assert_int_eq(fclose(f), 0);
        ck_assert_int_eq(where("s3://b", NULL, NULL, &w), -EINVAL);
        ck_assert_msg(strstr(op.why, "profile") && !strstr(op.why, SECRET), "%s", op.why);
    }
    temp_dir_remove(dir);
}
END_TEST

/* ---- URLs of keys ---- */

static const struct {
    const char *store, *key, *as, *url; /* `url` NULL: refused */
} urls[] = {
    {"s3://b", "k", NULL, "s3://b/k"},
    {"s3://b", "", NULL, "s3://b"},
    {"s3://b/p/", "a b/%20?#+\xff", NULL, "s3://b/p/a b/%20?#+\xff"},
    {"s3://b/p", "k", "s3", "s3://b/p/k"},
    {"s3://b/p", "k", "s3a", "s3a://b/p/k"},
    {"s3://b/p", "k", "hdfs", NULL},
    {"s3://b/p", "k", "file", NULL},
    {"s3://b/p", "k", "s4", NULL},
    {"s3://b/p", "k", "", NULL},
    {"/no-such-folder", "a/b", NULL, "file:///no-such-folder/a/b"},
    {"/no-such-folder", "", "file", "file:///no-such-folder"},
    {"/no-such-folder", "a", "dbfs", NULL},
    {"mem:x", "a/b", NULL, "mem:x/a/b"},
    {"mem:x", "a", "s3", NULL},
};

START_TEST(a_key_has_a_url)
{
    struct store_where w = found(urls[_i].store, NULL, NULL);
    auto_free char *url = NULL;
    auto_free char *again = NULL;
    auto_free char *key = NULL;

    int r = store_url_of(&w, urls[_i].key, urls[_i].as, &op, &url);
    ck_assert_int_eq(r, urls[_i].url ? 0 : -EINVAL);
    if (r == 0) {
        ck_assert_str_eq(url, urls[_i].url);
        ck_assert_int_eq(store_key_of(&w, url, &op, &key), 0);
        ck_assert_str_eq(key, urls[_i].key);
    } else {
        ck_assert_ptr_null(url);
        ck_assert(op.why[0]);
    }
    store_where_release(&w);
}
END_TEST

START_TEST(a_wrong_form_is_told)
{
    auto_free char *url = NULL;

    ck_assert_int_eq(store_url_as("s3://b/k", "hdfs", &op, &url), -EINVAL);
    ck_assert_str_eq(op.why, "an object of a store of the form s3://BUCKET/PREFIX has no "
                             "hdfs:// form; it has s3 or s3a");
    ck_assert_int_eq(store_url_as("s3://b/k", "s3b", &op, &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "did you mean \"s3"));
    ck_assert_int_eq(store_url_as("/x", "file", &op, &url), 0);
    ck_assert_str_eq(url, "file:///x");
    free(take_ptr(url));
    ck_assert_int_eq(store_url_as("file:/x", "file", &op, &url), 0);
    ck_assert_str_eq(url, "file:///x");
}
END_TEST

/* ---- keys of URLs ---- */

static const struct {
    const char *store, *endpoint, *url, *key; /* `key` NULL: not in it */
} keys[] = {
    {"s3://b/p", NULL, "s3://b/p/k", "k"},
    {"s3://b/p", NULL, "S3A://b/p/k/", "k"},
    {"s3://b/p", NULL, "s3n://b/p", ""},
    {"s3://b", NULL, "s3://b", ""},
    {"s3://b", NULL, "s3://b/%41", "%41"},
    {"s3://b/p", NULL, "s3://b/pk", NULL},
    {"s3://b/p", NULL, "s3://b", NULL},
    {"s3://b/p", NULL, "s3://bb/p/k", NULL},
    {"s3://b/p", NULL, "s3://B/p/k", NULL},
    {"s3://b/p", NULL, "s3://b/p/../k", NULL},
    {"s3://b/p", NULL, "s3://b/p//k", NULL},
    {"s3://b/p", NULL, "s3://u:x@b/p/k", NULL},
    {"s3://b/p", NULL, "/b/p/k", NULL},
    {"s3://b/p", NULL, "hdfs://b/p/k", NULL},
    {"s3://b/p", NULL, "", NULL},
    {"s3://b/p", NULL, "https://s3.amazonaws.com/b/p/k", "k"},
    {"s3://b/p", NULL, "https://s3.eu-west-1.amazonaws.com/b/p/a%20b", "a b"},
    {"s3://b/p", NULL, "https://b.s3.eu-west-1.amazonaws.com/p/k?versionId=7", "k"},
    {"s3://b/p", NULL, "https://b.s3.dualstack.eu-west-1.amazonaws.com/p/k#f", "k"},
    {"s3://b/p", NULL, "http://b.s3-eu-west-1.amazonaws.com:80/p/k", "k"},
    {"s3://my.s3.b/p", NULL, "https://my.s3.b.s3.eu-west-1.amazonaws.com/p/k", "k"},
    {"s3://b/p", NULL, "https://c.s3.eu-west-1.amazonaws.com/p/k", NULL},
    {"s3://b/p", NULL, "https://b.s3.cn-north-1.amazonaws.com.cn/p/k", NULL},
    {"s3://b/p", NULL, "https://b.s3-website.eu-west-1.amazonaws.com/p/k", NULL},
    {"s3://b/p", NULL, "https://s3.amazonaws.com.evil.example/b/p/k", NULL},
    {"s3://b/p", NULL, "https://evil.example/b/p/k", NULL},
    {"s3://b/p", NULL, "https://s3.amazonaws.com/b/p/%2e%2e/k", NULL},
    {"s3://b/p", NULL, "https://s3.amazonaws.com/b/p/a%00b", NULL},
    {"s3://b/p", NULL, "https://s3.amazonaws.com/b/p/a%2", NULL},
    {"s3://b/p", NULL, "https://", NULL},
    {"s3://b/p", NULL, "https:///b/p/k", NULL},
    {"s3://b", NULL, "https://b.s3.amazonaws.com", ""},
    {"s3://b", NULL, "https://s3.amazonaws.com/b", ""},
    {"s3://b", NULL, "https://s3.amazonaws.com/", NULL},
    {"s3://b", NULL, "https://s3.amazonaws.com/bb/k", NULL},
    {"s3://b/p", "http://h:9000/base", "http://H:9000/base/b/p/k", "k"},
    {"s3://b/p", "http://h:9000/base", "http://b.h:9000/base/p/k", "k"},
    {"s3://b/p", "http://h:9000/base", "http://h:9000/b/p/k", NULL},
    {"s3://b/p", "http://h:9000/base", "http://h:9000/bases/b/p/k", NULL},
    {"s3://b/p", "http://h:9000", "http://h:9001/b/p/k", NULL},
    {"s3://b/p", "http://h:9000", "https://h:9000/b/p/k", NULL},
    {"s3://b/p", "https://h", "https://h:443/b/p/k", "k"},
    {"s3://h/p", "https://h", "https://h/h/p/k", "k"},
    {"/no-such-folder", NULL, "file:///no-such-folder/a%20/b", "a%20/b"},
    {"/no-such-folder", NULL, "file:/no-such-folder/a/", "a"},
    {"/no-such-folder", NULL, "/no-such-folder/x/../a/./b", "a/b"},
    {"/no-such-folder", NULL, "/no-such-folder", ""},
    {"/no-such-folder", NULL, "/no-such-folders/a", NULL},
    {"/no-such-folder", NULL, "/no-such-folder/../a", NULL},
    {"/no-such-folder", NULL, "/", NULL},
    {"/no-such-folder", NULL, "no-such-folder/a", NULL},
    {"/no-such-folder", NULL, "file://no-such-folder/a", NULL},
    {"mem:x", NULL, "mem:x", ""},
    {"mem:x", NULL, "mem:xy/a", NULL},
    {"mem:x", NULL, "mem:x/../a", NULL},
};

START_TEST(a_url_names_a_key_or_none)
{
    struct store_where w =
        found(keys[_i].store, keys[_i].endpoint ? "endpoint" : NULL, keys[_i].endpoint);
    auto_free char *key = NULL;

    int r = store_key_of(&w, keys[_i].url, &op, &key);
    ck_assert_msg(r == (keys[_i].key ? 0 : -ENOENT), "%s: %d %s", keys[_i].url, r, op.why);
    ck_assert_pstr_eq(key, keys[_i].key);
    ck_assert(r == 0 || op.why[0]);
    ck_assert_ptr_null(strstr(op.why, ":x@"));
    store_where_release(&w);
}
END_TEST

/* The folder may be named by a link; a link in it is an object. */
START_TEST(a_path_through_a_link_names_a_key)
{
    char dir[PATH_MAX], path[2 * PATH_MAX];
    auto_free char *key = NULL;
    auto_free char *link = NULL;

    temp_dir_make(dir, sizeof(dir));
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(mkdir("store", 0700), 0);
    ck_assert_int_eq(symlink("store", "alias"), 0);
    ck_assert_int_eq(symlink("/etc", "store/object"), 0);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    struct store_where w = found(path, NULL, NULL);
    (void)snprintf(path, sizeof(path), "%s/alias/a/b", dir);
    ck_assert_int_eq(store_key_of(&w, path, &op, &key), 0);
    ck_assert_str_eq(key, "a/b");
    (void)snprintf(path, sizeof(path), "file://%s/alias/object", dir);
    ck_assert_int_eq(store_key_of(&w, path, &op, &link), 0);
    ck_assert_str_eq(link, "object");
    store_where_release(&w);
    ck_assert_int_eq(chdir("/"), 0);
    temp_dir_remove(dir);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store_urls");
    TCase *t = tcase_create("store_urls");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_place_has_one_name, 0, ARRAY_SIZE(places));
    tcase_add_test(t, environment_and_profiles_count);
    tcase_add_test(t, nested_and_equal_places_meet);
    tcase_add_test(t, symlinks_are_resolved_as_far_as_there_is_something);
    tcase_add_loop_test(t, what_a_mount_refuses_offline_is_refused, 0, ARRAY_SIZE(wrong));
    tcase_add_loop_test(t, no_message_shows_a_secret, 0, ARRAY_SIZE(secrets));
    tcase_add_test(t, no_message_shows_what_a_profile_has);
    tcase_add_loop_test(t, a_key_has_a_url, 0, ARRAY_SIZE(urls));
    tcase_add_test(t, a_wrong_form_is_told);
    tcase_add_loop_test(t, a_url_names_a_key_or_none, 0, ARRAY_SIZE(keys));
    tcase_add_test(t, a_path_through_a_link_names_a_key);
    suite_add_tcase(s, t);
    return suite_run(s);
}
