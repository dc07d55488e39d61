/* Keys and settings from the environment and AWS's profile files: what goes before what, and
 * what is found again after a change. What needs a service is in test_aws_services.c. */
#include "backends/auth/aws_credentials.h"
#include "backends/auth/aws_process.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char home[64];
static struct op op;
static struct aws_settings s;
static struct aws_keys keys;
static struct aws_credentials *credentials;

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
    char dir[80];

    aws_clear_environment();
    strcpy(home, "/tmp/runfs-aws.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    (void)snprintf(dir, sizeof(dir), "%s/.aws", home);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    setenv("HOME", home, 1);
    op_init(&op, OP_FOREVER);
    s = (struct aws_settings){0};
    keys = (struct aws_keys){0};
    credentials = NULL;
}

static void teardown(void)
{
    char dir[80];

    aws_settings_release(&s);
    aws_keys_release(&keys);
    aws_credentials_free(credentials);
    remove_file(".aws/credentials");
    remove_file(".aws/config");
    remove_file(".aws/tool");
    remove_file("other");
    (void)snprintf(dir, sizeof(dir), "%s/.aws", home);
    (void)rmdir(dir);
    (void)rmdir(home);
}

static int load_settings(const char *profile)
{
    struct aws_profiles *profiles;
    int err = aws_profiles_load(profile, &op, &profiles);

    aws_settings_release(&s);
    if (err)
        return err;
    err = aws_settings_load(profiles, &op, &s);
    aws_profiles_free(profiles);
    return err;
}

/* Settings and keys, found afresh. */
static int load(const char *profile)
{
    struct aws_credentials_config config = {.profile = profile};
    int err = load_settings(profile);

    if (err)
        return err;
    aws_credentials_free(credentials);
    aws_keys_release(&keys);
    ck_assert_int_eq(aws_credentials_new(&config, &op, &credentials), 0);
    return aws_credentials_get(credentials, &op, &keys);
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
    ck_assert_str_eq(keys.access_key, "AK");
    ck_assert_str_eq(keys.secret_key, "SK");
    ck_assert_str_eq(keys.session_token, "TK");
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
    ck_assert_str_eq(keys.access_key, "AK1");
    ck_assert_str_eq(keys.secret_key, "SK1");
    ck_assert_ptr_null(keys.session_token);
    ck_assert_str_eq(s.region, "eu-central-1");
    ck_assert_ptr_null(s.endpoint_url);
    ck_assert_ptr_null(s.addressing_style);

    ck_assert_int_eq(load("two"), 0);
    ck_assert_str_eq(keys.secret_key, "SK/2+=");
    ck_assert_str_eq(keys.session_token, "TK2");
    ck_assert_str_eq(s.region, "us-west-2");
    ck_assert_str_eq(s.endpoint_url, "https://two.example");
    ck_assert_str_eq(s.ca_bundle, "/two.pem");
    ck_assert_str_eq(s.addressing_style, "path");

    setenv("AWS_PROFILE", "keys", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(keys.access_key, "AK3");
}
END_TEST

static void refuses(const char *name, mode_t mode, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    ck_assert_int_eq(chmod(path, mode), 0);
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, path) && strstr(op.why, text), "%s", op.why);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_int_eq(load(NULL), 0);
}

/* A profile names programs to run, and servers that get what is signed. */
START_TEST(profiles_that_others_write_are_refused)
{
    char path[128];

    write_file(".aws/credentials", "[default]\naws_access_key_id=A\naws_secret_access_key=S\n");
    write_file(".aws/config", "[default]\nregion = r\n");
    refuses(".aws/config", 0646, "chmod go-w '");
    refuses(".aws/credentials", 0622, "chmod go-w '");
    if (geteuid() != 0)
        return;
    (void)snprintf(path, sizeof(path), "%s/.aws/config", home);
    ck_assert_int_eq(chown(path, 0, 4711), 0);
    refuses(".aws/config", 0664, "chmod go-w '");
    ck_assert_int_eq(chown(path, 0, 0), 0);
    ck_assert_int_eq(chmod(path, 0664), 0); /* the umask of who has a group of his own */
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_int_eq(chown(path, 4711, 0), 0);
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, path) && strstr(op.why, "belongs to user 4711"), "%s", op.why);
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
    ck_assert_str_eq(keys.access_key, "AKE");
    ck_assert_int_eq(load("p"), 0);
    ck_assert_str_eq(keys.access_key, "AKP");
}
END_TEST

START_TEST(missing_keys_name_every_place)
{
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "AWS_ACCESS_KEY_ID"));
    ck_assert_ptr_nonnull(strstr(op.why, ".aws/credentials (no such file)"));
    ck_assert_ptr_nonnull(strstr(op.why, ".aws/config (no such file)"));
    ck_assert_ptr_null(strchr(op.why, '\n'));
    ck_assert_ptr_nonnull(strstr(op.why, "the instance metadata service is turned off"));
    ck_assert_int_eq(load_settings(NULL), 0);
}
END_TEST

static const struct {
    const char *config;
    int err;
    const char *text;
} unusable[] = {
    {"role_arn = arn:aws:iam::1:role/x\n", -EINVAL, "source_profile"},
    {"role_arn = r\nsource_profile = a\ncredential_source = Environment\n", -EINVAL, "either"},
    {"role_arn = r\nsource_profile = nope\n", -EINVAL, "\"nope\""},
    {"role_arn = r\nsource_profile = default\n", -EACCES, "has no keys"},
    {"role_arn = r\nsource_profile = two\n[profile two]\nrole_arn = r\nsource_profile = "
     "default\n",
     -EINVAL, "circles"},
    {"role_arn = r\ncredential_source = Moon\n", -EINVAL, "EcsContainer"},
    {"role_arn = r\ncredential_source = Environment\n", -EACCES, "has no keys"},
    {"role_arn = r\nsource_profile = default\nmfa_serial = arn:mfa\n", -EACCES, "MFA"},
    {"role_arn = r\nweb_identity_token_file = /nonexistent/token\n", -EACCES,
     "/nonexistent/token"},
    {"sso_session = s\n", -EINVAL, "sso_region"},
    {"sso_session = s\nsso_account_id = 1\nsso_role_name = r\n[sso-session s]\nsso_region = "
     "eu-west-1\n",
     -EACCES, "aws sso login"},
    {"sso_start_url = https://x\nsso_region = eu-west-1\nsso_account_id = 1\n", -EINVAL,
     "sso_role_name"},
    {"credential_process = 'open quote\n", -EINVAL, "can't be read"},
    {"credential_process = /nonexistent/program\n", -EACCES, "/nonexistent/program"},
    {"credential_process = /bin/false\n", -EACCES, "exit status 1"},
    {"credential_process = /bin/echo hello\n", -EACCES, "Version"},
    {"credential_process = /bin/echo '{\"Version\": 1, \"AccessKeyId\": \"verysecret\"}'\n",
     -EPROTO, "no keys"},
    {"credential_process = /bin/sh -c 'kill -9 $$'\n", -EACCES, "signal 9"},
};

START_TEST(what_cannot_be_followed_is_said)
{
    char text[512];
    int r;

    (void)snprintf(text, sizeof(text), "[default]\n%s", unusable[_i].config);
    write_file(".aws/config", text);
    r = load(NULL);
    ck_assert_msg(r == unusable[_i].err, "%d, not %d: %s", r, unusable[_i].err, op.why);
    ck_assert_msg(strstr(op.why, unusable[_i].text) != NULL, "%s", op.why);
    ck_assert_ptr_null(strstr(op.why, "verysecret"));
}
END_TEST

START_TEST(keys_from_a_program)
{
    write_file(".aws/config", "[default]\ncredential_process = /bin/echo '{\"Version\": 1, "
                              "\"AccessKeyId\": \"AKP\", \"SecretAccessKey\": \"SK P\"}'\n"
                              "[profile two]\n"
                              "credential_process = sh -c \"printf '%s' '{\\\"Version\\\": 1, "
                              "\\\"AccessKeyId\\\": \\\"AKP2\\\", \\\"SecretAccessKey\\\": "
                              "\\\"SKP2\\\", \\\"SessionToken\\\": \\\"TKP2\\\", "
                              "\\\"Expiration\\\": \\\"2100-01-01T00:00:00Z\\\"}'\"\n");
    ck_assert_int_eq(load(NULL), -EPROTO); /* a blank in a key */
    ck_assert_msg(load("two") == 0, "%s", op.why);
    ck_assert_str_eq(keys.access_key, "AKP2");
    ck_assert_str_eq(keys.secret_key, "SKP2");
    ck_assert_str_eq(keys.session_token, "TKP2");
    ck_assert_int_eq(keys.expires_ns, INT64_C(4102444800) * NS_PER_SEC);
}
END_TEST

/* Whoever may replace the program has our rights, and the keys. */
START_TEST(programs_that_others_write_are_refused)
{
    static const char keys_of[] = "#!/bin/sh\necho '{\"Version\": 1, \"AccessKeyId\": \"A\", "
                                  "\"SecretAccessKey\": \"S\"}'\n";
    const char *had = getenv("PATH");
    auto_free char *dirs = strdup(had ? had : "/usr/bin:/bin");
    char line[256], path[128], dir[128];

    ck_assert_ptr_nonnull(dirs);
    (void)snprintf(dir, sizeof(dir), "%s/.aws", home);
    (void)snprintf(path, sizeof(path), "%s/.aws/tool", home);
    (void)snprintf(line, sizeof(line), "[default]\ncredential_process = tool\n");
    write_file(".aws/tool", keys_of);
    write_file(".aws/config", line);
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_assert_int_eq(setenv("PATH", dir, 1), 0);
    int found = load(NULL), refused = chmod(path, 0757) == 0 ? load(NULL) : 0;
    ck_assert_int_eq(setenv("PATH", dirs, 1), 0);
    ck_assert_int_eq(found, 0);
    ck_assert_int_eq(refused, -EACCES);
    ck_assert_msg(strstr(op.why, path) && strstr(op.why, "chmod go-w"), "%s", op.why);
    (void)snprintf(line, sizeof(line), "[default]\ncredential_process = %s\n", path);
    write_file(".aws/config", line);
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, "can be replaced by others"), "%s", op.why);
    ck_assert_int_eq(chmod(dir, 01777), 0);
    ck_assert_int_eq(load(NULL), 0);
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chown(path, 4711, 0), 0);
    ck_assert_int_eq(load(NULL), -EACCES);
    ck_assert_msg(strstr(op.why, "belongs to user 4711"), "%s", op.why);
}
END_TEST

START_TEST(a_program_inherits_no_descriptor)
{
    char text[512];
    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = fcntl(null, F_DUPFD, 50); /* none that the shell has for itself */

    ck_assert_int_ge(fd, 0);
    (void)snprintf(
        text, sizeof(text),
        "[default]\ncredential_process = sh -c '[ ! -e /proc/self/fd/%d ] || exit 7; "
        "echo \"{\\\"Version\\\": 1, \\\"AccessKeyId\\\": \\\"AKP\\\", "
        "\\\"SecretAccessKey\\\": \\\"SKP\\\"}\"'\n",
        fd);
    write_file(".aws/config", text);
    ck_assert_msg(load(NULL) == 0, "%s", op.why);
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* It neither outlives the wait nor hangs us. */
START_TEST(a_program_that_hangs_is_ended)
{
    int64_t start = clock_mono_ns();

    write_file(".aws/config", "[default]\ncredential_process = sh -c 'sleep 60; echo'\n");
    op_init(&op, NS_PER_SEC / 2);
    ck_assert_int_eq(load(NULL), -ETIMEDOUT);
    ck_assert_int_lt(clock_mono_ns() - start, 10 * NS_PER_SEC);
}
END_TEST

START_TEST(a_command_line)
{
    static const struct {
        const char *line;
        const char *words[5];
    } t[] = {
        {"a", {"a"}},
        {"  a  b\tc ", {"a", "b", "c"}},
        {"a 'b c' \"d e\"f", {"a", "b c", "d ef"}},
        {"a '' \"\"", {"a", "", ""}},
        {"a\\ b 'c\\d' \"e\\f\\\"g\"", {"a b", "c\\d", "e\\f\"g"}},
        {"a $HOME * `id`", {"a", "$HOME", "*", "`id`"}},
    };
    static const char *const bad[] = {"", "  ", "a 'b", "a \"b", "a 'b\""};
    char **words;

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        size_t n = 0;

        ck_assert_int_eq(aws_split_command(t[i].line, &words), 0);
        for (; t[i].words[n]; n++)
            ck_assert_str_eq(words[n], t[i].words[n]);
        ck_assert_ptr_null(words[n]);
        aws_free_command(words);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_int_eq(aws_split_command(bad[i], &words), -EINVAL);
}
END_TEST

/* What another program writes into the file while we run. */
START_TEST(refused_keys_are_read_again)
{
    write_file(".aws/credentials",
               "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n");
    ck_assert_int_eq(load(NULL), 0);
    ck_assert(!aws_credentials_refused(credentials, &op, &keys, true)); /* the same ones */
    ck_assert_int_eq(load(NULL), 0);
    write_file(".aws/credentials",
               "[default]\naws_access_key_id=A2\naws_secret_access_key=S2\n");
    ck_assert(aws_credentials_refused(credentials, &op, &keys, true));
    ck_assert(aws_credentials_refused(credentials, &op, &keys, true)); /* another request's */
    aws_keys_release(&keys);
    ck_assert_int_eq(aws_credentials_get(credentials, &op, &keys), 0);
    ck_assert_str_eq(keys.access_key, "A2");
    write_file(".aws/credentials",
               "[default]\naws_access_key_id=A3\naws_secret_access_key=S3\n");
    ck_assert(!aws_credentials_refused(credentials, &op, &keys, true)); /* too soon */
}
END_TEST

START_TEST(a_failed_search_leaves_the_old_keys)
{
    write_file(".aws/credentials",
               "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n");
    ck_assert_int_eq(load(NULL), 0);
    write_file(".aws/credentials", "[default]\naws_access_key_id=A1\n");
    op.why[0] = '\0';
    ck_assert(!aws_credentials_refused(credentials, &op, &keys, true));
    ck_assert_ptr_nonnull(strstr(op.why, "no secret key"));
    aws_keys_release(&keys);
    ck_assert_int_eq(aws_credentials_get(credentials, &op, &keys), 0);
    ck_assert_str_eq(keys.access_key, "A1");
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
    ck_assert_str_eq(keys.access_key, "A9");
    setenv("AWS_SHARED_CREDENTIALS_FILE", "~/other", 1);
    ck_assert_int_eq(load(NULL), 0);
    ck_assert_str_eq(keys.access_key, "A9");
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
    tcase_add_test(t, profiles_that_others_write_are_refused);
    tcase_add_test(t, services_sections);
    tcase_add_test(t, who_goes_first);
    tcase_add_test(t, missing_keys_name_every_place);
    tcase_add_loop_test(t, what_cannot_be_followed_is_said, 0, ARRAY_SIZE(unusable));
    tcase_add_test(t, keys_from_a_program);
    tcase_add_test(t, programs_that_others_write_are_refused);
    tcase_add_test(t, a_program_inherits_no_descriptor);
    tcase_add_test(t, a_program_that_hangs_is_ended);
    tcase_add_test(t, a_command_line);
    tcase_add_test(t, refused_keys_are_read_again);
    tcase_add_test(t, a_failed_search_leaves_the_old_keys);
    tcase_add_test(t, unknown_profiles_are_refused);
    tcase_add_test(t, files_elsewhere);
    tcase_add_test(t, strange_files_do_no_harm);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
