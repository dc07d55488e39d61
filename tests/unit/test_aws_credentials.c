/* backends/aws_credentials.c: environment, profile files, what goes before what. */
#include "backends/aws_credentials.h"
#include "common/mem.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char home[64];
static struct op op;
static struct aws_settings s;

static void write_file(const char *name, const char *text)
{
    char path[128];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void remove_file(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    (void)unlink(path);
}

/* A fresh home without files, and no AWS_ variable. */
static void setup(void)
{
    static const char *const variables[] = {"AWS_ACCESS_KEY_ID",
                                            "AWS_SECRET_ACCESS_KEY",
                                            "AWS_SESSION_TOKEN",
                                            "AWS_PROFILE",
                                            "AWS_DEFAULT_PROFILE",
                                            "AWS_SHARED_CREDENTIALS_FILE",
                                            "AWS_CONFIG_FILE",
                                            "AWS_REGION",
                                            "AWS_DEFAULT_REGION",
                                            "AWS_ENDPOINT_URL",
                                            "AWS_ENDPOINT_URL_S3",
                                            "AWS_CA_BUNDLE",
                                            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"};
    char dir[80];

    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        unsetenv(variables[i]);
    strcpy(home, "/tmp/runfs-aws.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    (void)snprintf(dir, sizeof(dir), "%s/.aws", home);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    setenv("HOME", home, 1);
    op_init(&op, OP_FOREVER);
    s = (struct aws_settings){0};
}

static void teardown(void)
{
    char dir[80];

    aws_settings_release(&s);
    remove_file(".aws/credentials");
    remove_file(".aws/config");
    remove_file("other");
    (void)snprintf(dir, sizeof(dir), "%s/.aws", home);
    (void)rmdir(dir);
    (void)rmdir(home);
}

static int load(const char *profile)
{
    aws_settings_release(&s);
    return aws_settings_load(profile, false, &op, &s);
}

START_TEST(keys_from_the_environment)
{
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SK", 1);
    setenv("AWS_SESSION_TOKEN", "TK", 1);
    setenv("AWS_REGION", "eu-west-1", 1);
    setenv("AWS_DEFAULT_REGION", "eu-west-2", 1);
    setenv("AWS_ENDPOINT_URL", "http://a", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://b", 1);
    setenv("AWS_CA_BUNDLE", "/ca", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "AK");
    ck_assert_str_eq(s.secret_key, "SK");
    ck_assert_str_eq(s.session_token, "TK");
    ck_assert_str_eq(s.region, "eu-west-1");
    ck_assert_str_eq(s.endpoint_url, "http://b");
    ck_assert_str_eq(s.ca_bundle, "/ca");
}
END_TEST

START_TEST(half_a_pair_is_refused)
{
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    ck_assert_int_eq(load(NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "no secret key"));
    unsetenv("AWS_ACCESS_KEY_ID");
    write_file(".aws/credentials", "[default]\naws_secret_access_key = verysecret\n");
    ck_assert_int_eq(load(NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "no access key"));
    ck_assert_ptr_null(strstr(op.why, "verysecret"));
}
END_TEST

START_TEST(keys_and_settings_from_profiles)
{
    write_file(".aws/credentials", "# comment\n[default]\naws_access_key_id=AK1\n"
                                   "aws_secret_access_key = SK1\n\n"
                                   "[two]\r\naws_access_key_id = AK2\r\n"
                                   "AWS_SECRET_ACCESS_KEY = SK/2+=\r\n"
                                   "aws_session_token = TK2\r\n");
    write_file(".aws/config", "[default]\nregion = eu-central-1\n"
                              "[profile two]\nregion = us-west-2 # where it is\n"
                              "endpoint_url = https://two.example\nca_bundle = /two.pem\n"
                              "s3 =\n  addressing_style = path\n  max_queue = 3\n"
                              "output = json\n"
                              "[profile keys]\naws_access_key_id = AK3\n"
                              "aws_secret_access_key = SK3\n");
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "AK1");
    ck_assert_str_eq(s.secret_key, "SK1");
    ck_assert_ptr_null(s.session_token);
    ck_assert_str_eq(s.region, "eu-central-1");
    ck_assert_ptr_null(s.endpoint_url);
    ck_assert_ptr_null(s.addressing_style);

    ck_assert_int_eq(load("two"), 0);
    ck_assert_str_eq(s.secret_key, "SK/2+=");
    ck_assert_str_eq(s.session_token, "TK2");
    ck_assert_str_eq(s.region, "us-west-2");
    ck_assert_str_eq(s.endpoint_url, "https://two.example");
    ck_assert_str_eq(s.ca_bundle, "/two.pem");
    ck_assert_str_eq(s.addressing_style, "path");

    setenv("AWS_PROFILE", "keys", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "AK3");
}
END_TEST

START_TEST(services_sections)
{
    write_file(".aws/config", "[services mine]\nec2 =\n  endpoint_url = https://no\n"
                              "s3 =\n  endpoint_url = https://s3.mine\n"
                              "[default]\nservices = mine\nendpoint_url = https://all\n"
                              "aws_access_key_id = A\naws_secret_access_key = S\n");
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.endpoint_url, "https://s3.mine");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_ptr_null(s.endpoint_url);
}
END_TEST

/* As botocore: the environment's keys go before AWS_PROFILE's, but not before those of a
 * profile that was asked for by name. */
START_TEST(who_goes_first)
{
    write_file(".aws/credentials", "[p]\naws_access_key_id=AKP\naws_secret_access_key=SKP\n");
    setenv("AWS_ACCESS_KEY_ID", "AKE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SKE", 1);
    setenv("AWS_PROFILE", "p", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "AKE");
    ck_assert_int_eq(load("p"), 0);
    ck_assert_str_eq(s.access_key, "AKP");
}
END_TEST

START_TEST(missing_keys_name_every_place)
{
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "AWS_ACCESS_KEY_ID"));
    ck_assert_ptr_nonnull(strstr(op.why, ".aws/credentials (no such file)"));
    ck_assert_ptr_nonnull(strstr(op.why, ".aws/config (no such file)"));
    ck_assert_ptr_null(strchr(op.why, '\n'));
    ck_assert_int_eq(aws_settings_load(NULL, true, &op, &s), 0);
    ck_assert_ptr_null(s.access_key);
}
END_TEST

START_TEST(what_cannot_be_followed_is_said)
{
    write_file(".aws/config", "[default]\nrole_arn = arn:aws:iam::1:role/x\n");
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "role_arn"));
}
END_TEST

START_TEST(unknown_profiles_are_refused)
{
    write_file(".aws/credentials", "[p]\naws_access_key_id=A\naws_secret_access_key=S\n");
    ck_assert_int_eq(load("nope"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "\"nope\""));
    setenv("AWS_PROFILE", "nix", 1);
    ck_assert_int_eq(load(NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "\"nix\""));
}
END_TEST

START_TEST(files_elsewhere)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/other", home);
    write_file("other", "[default]\naws_access_key_id=A9\naws_secret_access_key=S9\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "A9");
    setenv("AWS_SHARED_CREDENTIALS_FILE", "~/other", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(s.access_key, "A9");
    setenv("AWS_SHARED_CREDENTIALS_FILE", home, 1); /* a folder */
    ck_assert_int_eq(load(NULL), -EINVAL);
}
END_TEST

START_TEST(strange_files_do_no_harm)
{
    static const char *const texts[] = {"",
                                        "[",
                                        "[]",
                                        "=",
                                        "=\n=\n",
                                        "[default\nx=y",
                                        "[default]\n = \n",
                                        "aws_access_key_id=A\naws_secret_access_key=S\n",
                                        "[default]\ns3 =\n  =\n   x",
                                        "[profile]\n[profile  ]\n",
                                        "\n\n\r\r\n;"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        write_file(".aws/credentials", texts[i]);
        write_file(".aws/config", texts[i]);
        ck_assert_msg(load(NULL) == -EACCES, "%s", texts[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("aws_credentials");
    TCase *t = tcase_create("aws_credentials");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, keys_from_the_environment);
    tcase_add_test(t, half_a_pair_is_refused);
    tcase_add_test(t, keys_and_settings_from_profiles);
    tcase_add_test(t, services_sections);
    tcase_add_test(t, who_goes_first);
    tcase_add_test(t, missing_keys_name_every_place);
    tcase_add_test(t, what_cannot_be_followed_is_said);
    tcase_add_test(t, unknown_profiles_are_refused);
    tcase_add_test(t, files_elsewhere);
    tcase_add_test(t, strange_files_do_no_harm);
    suite_add_tcase(suite, t);

    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
