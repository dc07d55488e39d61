/* Keys from services: STS, SSO, container endpoints and the instance metadata service, each a
 * scripted server, whose requests are looked at; and when keys are asked for anew. */
#include "backends/auth/aws_credentials.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static char home[64];
static struct op op;
static struct aws_keys keys;
static struct aws_credentials *credentials;
static struct aws_credentials_config config;
static struct scripted *server;

static void write_file(const char *name, const char *text)
{
    char path[192];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void make_dir(const char *name)
{
    char path[192];

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void setup(void)
{
    aws_clear_environment();
    strcpy(home, "/tmp/runfs-aws.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    make_dir(".aws");
    setenv("HOME", home, 1);
    op_init(&op, 20 * NS_PER_SEC);
    keys = (struct aws_keys){0};
    config = (struct aws_credentials_config){0};
    credentials = NULL;
    server = NULL;
}

static void teardown(void)
{
    char command[128];

    aws_keys_release(&keys);
    aws_credentials_free(credentials);
    if (server)
        scripted_free(server);
    (void)snprintf(command, sizeof(command), "rm -r %s", home);
    ck_assert_int_eq(system(command), 0);
}

/* Sets a variable to the server's URL with `path` behind it. */
static void point(const char *variable, const char *path)
{
    char url[128];

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", scripted_port(server), path);
    setenv(variable, url, 1);
}

#define SERVE(...)                                                                             \
    static const struct scripted_answer script[] = {__VA_ARGS__};                              \
    server = scripted_new(script, ARRAY_SIZE(script))
#define SAYS(status, body)                                                                     \
    {                                                                                          \
        .text = "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n" body, .close = true         \
    }
#define STS(action, name, expiry)                                                              \
    SAYS("200 OK", "<" action "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"  \
                   "<" action "Result><Credentials><AccessKeyId>AK" name "</AccessKeyId>"      \
                   "<SecretAccessKey>SK" name "</SecretAccessKey><SessionToken>TK" name        \
                   "</SessionToken><Expiration>" expiry "</Expiration></Credentials>"          \
                   "</" action "Result></" action "Response>")
#define ROLE(name)     STS("AssumeRole", name, "2100-01-01T00:00:00Z")
#define IDENTITY(name) STS("AssumeRoleWithWebIdentity", name, "2100-01-01T00:00:00Z")
#define JSON(name)                                                                             \
    SAYS("200 OK", "{\"Code\": \"Success\", \"AccessKeyId\": \"AK" name                        \
                   "\", \"SecretAccessKey\": \"SK" name "\", \"Token\": \"TK" name             \
                   "\", \"Expiration\": \"2100-01-01T00:00:00Z\"}")

static int find(void)
{
    aws_credentials_free(credentials);
    aws_keys_release(&keys);
    ck_assert_int_eq(aws_credentials_new(&config, &op, &credentials), 0);
    return aws_credentials_get(credentials, &op, &keys);
}

static int get(void)
{
    aws_keys_release(&keys);
    return aws_credentials_get(credentials, &op, &keys);
}

static void has_keys(int r, const char *name)
{
    char text[32];

    ck_assert_msg(r == 0, "%d %s", r, op.why);
    (void)snprintf(text, sizeof(text), "AK%s", name);
    ck_assert_str_eq(keys.access_key, text);
    text[0] = 'S';
    ck_assert_str_eq(keys.secret_key, text);
    text[0] = 'T';
    ck_assert_str_eq(keys.session_token, text);
}

static void sent(size_t i, const char *text)
{
    ck_assert_msg(strstr(scripted_request(server, i), text) != NULL,
                  "request %zu: %s\nhas no %s", i, scripted_request(server, i), text);
}

static void not_sent(size_t i, const char *text)
{
    ck_assert_msg(!strcasestr(scripted_request(server, i), text), "request %zu has %s", i,
                  text);
}

/* ---- roles ---- */

START_TEST(a_role_is_assumed)
{
    SERVE(ROLE("R"));
    point("AWS_ENDPOINT_URL_STS", "");
    write_file(".aws/config", "[default]\nrole_arn = arn:aws:iam::1:role/x y\n"
                              "source_profile = base\nexternal_id = e/1\nregion = eu-west-1\n"
                              "role_session_name = me@home\nduration_seconds = 900\n");
    write_file(".aws/credentials",
               "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = SKBASE\n");
    has_keys(find(), "R");
    ck_assert_int_eq(keys.expires_ns, INT64_C(4102444800) * NS_PER_SEC);
    sent(0, "POST / HTTP/1.1\r\n");
    sent(0, "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx%20y"
            "&RoleSessionName=me%40home&DurationSeconds=900&ExternalId=e%2F1");
    sent(0, "Credential=AKBASE/");
    sent(0, "/eu-west-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date,");
    not_sent(0, "SKBASE");
}
END_TEST

START_TEST(roles_lead_to_roles)
{
    SERVE(ROLE("1"), ROLE("2"));
    point("AWS_ENDPOINT_URL_STS", "/base");
    write_file(".aws/config", "[profile two]\nrole_arn = r2\nsource_profile = one\n"
                              "[profile one]\nrole_arn = r1\nsource_profile = one\n"
                              "aws_access_key_id = AK0\naws_secret_access_key = SK0\n");
    config.profile = "two";
    has_keys(find(), "2");
    sent(0, "RoleArn=r1&RoleSessionName=runfs-");
    sent(0, "Credential=AK0/");
    sent(0, "/us-east-1/sts/aws4_request");
    sent(1, "POST /base HTTP/1.1\r\n");
    sent(1, "RoleArn=r2&");
    sent(1, "Credential=AK1/");
    sent(1, "x-amz-security-token: TK1\r\n");
    sent(1, "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,");
}
END_TEST

START_TEST(a_role_with_keys_of_the_environment)
{
    SERVE(ROLE("R"));
    point("AWS_ENDPOINT_URL", ""); /* of all services */
    setenv("AWS_ACCESS_KEY_ID", "AKE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SKE", 1);
    write_file(".aws/config", "[profile p]\nrole_arn = r\ncredential_source = Environment\n");
    config.profile = "p";
    has_keys(find(), "R");
    sent(0, "Credential=AKE/");
}
END_TEST

START_TEST(a_role_with_keys_of_the_container)
{
    SERVE(JSON("C"), ROLE("R"));
    point("AWS_ENDPOINT_URL_STS", "");
    point("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/creds");
    write_file(".aws/config", "[default]\nrole_arn = r\ncredential_source = EcsContainer\n");
    has_keys(find(), "R");
    sent(0, "GET /creds HTTP/1.1\r\n");
    sent(1, "Credential=AKC/");
}
END_TEST

START_TEST(a_web_identity)
{
    SERVE(IDENTITY("W1"), IDENTITY("W2"), IDENTITY("W3"));
    char path[128];

    point("AWS_ENDPOINT_URL_STS", "");
    (void)snprintf(path, sizeof(path), "%s/token", home);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    setenv("AWS_ROLE_ARN", "arn:r", 1);
    setenv("AWS_ROLE_SESSION_NAME", "pod", 1);
    write_file("token", "eyJ.first\n");
    has_keys(find(), "W1");
    sent(0, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Ar"
            "&RoleSessionName=pod&WebIdentityToken=eyJ.first");
    not_sent(0, "authorization");
    write_file("token", "eyJ.second\n"); /* Kubernetes rotates it */
    ck_assert(aws_credentials_refused(credentials, &op, &keys, true));
    has_keys(get(), "W2");
    sent(1, "WebIdentityToken=eyJ.second");

    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE"); /* the same by profile */
    write_file(".aws/config", "[default]\nrole_arn = arn:p\nrole_session_name = s\n"
                              "web_identity_token_file = /dev/null/../x\n");
    ck_assert_int_eq(find(), -EACCES);
    (void)snprintf(path, sizeof(path),
                   "[default]\nrole_arn = arn:p\nweb_identity_token_file = %s/token\n", home);
    write_file(".aws/config", path);
    has_keys(find(), "W3");
    sent(2, "RoleArn=arn%3Ap&RoleSessionName=runfs-");
}
END_TEST

/* ---- SSO ---- */

#define SHA1_MINE "8034c43d15bb7ef42e2cc24255217acfc5f4b2f4" /* of "mine" */

static void write_login(const char *cache, const char *token, const char *expiry)
{
    char path[96], text[160];

    (void)snprintf(path, sizeof(path), ".aws/sso/cache/%s.json", cache);
    (void)snprintf(text, sizeof(text), "{\"accessToken\": \"%s\", \"expiresAt\": \"%s\"}",
                   token, expiry);
    write_file(path, text);
}

START_TEST(a_login_of_sso)
{
    SERVE(SAYS("200 OK",
               "{\"roleCredentials\": {\"accessKeyId\": \"AKS\", \"secretAccessKey\": "
               "\"SKS\", \"sessionToken\": \"TKS\", \"expiration\": 4102444800000}}"),
          SAYS("401 Unauthorized", "{\"message\": \"Session token not found or invalid\"}"));

    point("AWS_ENDPOINT_URL_SSO", "");
    make_dir(".aws/sso");
    make_dir(".aws/sso/cache");
    write_file(".aws/config", "[default]\nsso_session = mine\nsso_account_id = 12\n"
                              "sso_role_name = a role\n"
                              "[sso-session mine]\nsso_region = eu-west-1\n"
                              "sso_start_url = https://x.awsapps.com/start\n");
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "aws sso login"));
    write_login(SHA1_MINE, "verysecret", "2020-01-01T00:00:00UTC");
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "ended at 2020-01-01"));
    write_login(SHA1_MINE, "verysecret", "2100-01-01T00:00:00Z");
    has_keys(find(), "S");
    ck_assert_int_eq(keys.expires_ns, INT64_C(4102444800) * NS_PER_SEC);
    sent(0, "GET /federation/credentials?account_id=12&role_name=a%20role HTTP/1.1\r\n");
    sent(0, "x-amz-sso_bearer_token: verysecret\r\n");
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_null(strstr(op.why, "verysecret"));
}
END_TEST

/* ---- containers ---- */

START_TEST(a_container_with_a_token_file)
{
    SERVE(JSON("1"), JSON("2"),
          SAYS("400 Bad Request", "{\"code\": \"NoWay\", \"message\": \"not for you\"}"));
    char path[128];

    point("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/v1/credentials?a=b");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "unused", 1);
    (void)snprintf(path, sizeof(path), "%s/token", home);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
    ck_assert_int_eq(find(), -EACCES);
    write_file("token", "first\n");
    has_keys(find(), "1");
    sent(0, "GET /v1/credentials?a=b HTTP/1.1\r\n");
    sent(0, "Authorization: first\r\n");
    write_file("token", "second");
    ck_assert(aws_credentials_refused(credentials, &op, &keys, true));
    has_keys(get(), "2");
    sent(1, "Authorization: second\r\n");
    write_file("token", "a\nb");
    ck_assert_int_eq(find(), -EINVAL);
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    ck_assert_int_eq(find(), -EACCES);
    sent(2, "Authorization: unused\r\n");
    ck_assert_ptr_nonnull(strstr(op.why, "NoWay: not for you"));
    ck_assert_ptr_null(strstr(op.why, "unused"));
}
END_TEST

/* Tokens go in plain text only to this machine. */
START_TEST(containers_elsewhere_are_refused)
{
    static const char *const urls[] = {
        "http://example.com/x",       "http://127.0.0.1@example.com/",
        "http://10.0.0.1/",           "http://127.0.0.1.nip.io/x",
        "ftp://127.0.0.1/",           "http:/",
        "http://169.254.170.2@evil/", "/relative",
        "http://[fd00::1]/"};

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
        ck_assert_msg(find() == -EINVAL, "%s: %s", urls[i], op.why);
    }
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil/", 1);
    ck_assert_int_eq(find(), -EINVAL);
}
END_TEST

/* ---- instances ---- */

START_TEST(an_instance_with_a_role)
{
    SERVE({.text = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nAQAAtoken"},
          SAYS("200 OK", "my-role\n"), JSON("I"));

    unsetenv("AWS_EC2_METADATA_DISABLED");
    point("AWS_EC2_METADATA_SERVICE_ENDPOINT", "/");
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* is not for this */
    has_keys(find(), "I");
    unsetenv("http_proxy");
    sent(0, "PUT /latest/api/token HTTP/1.1\r\n");
    sent(0, "X-aws-ec2-metadata-token-ttl-seconds: 300\r\n");
    sent(1, "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1\r\n");
    sent(1, "X-aws-ec2-metadata-token: AQAAtoken\r\n");
    sent(2, "GET /latest/meta-data/iam/security-credentials/my-role HTTP/1.1\r\n");
    sent(2, "X-aws-ec2-metadata-token: AQAAtoken\r\n");
}
END_TEST

START_TEST(an_instance_in_trouble)
{
    SERVE(SAYS("403 Forbidden", ""), SAYS("200 OK", "token"), SAYS("404 Not Found", ""),
          SAYS("200 OK", "token"), SAYS("200 OK", "../../x"), SAYS("200 OK", "token"),
          SAYS("200 OK", "role"),
          SAYS("200 OK", "{\"Code\": \"AssumeRoleUnauthorizedAccess\", \"Message\": \"no\"}"),
          SAYS("200 OK", "token"), SAYS("200 OK", "role"),
          SAYS("200 OK",
               "{\"Code\": \"Success\", \"AccessKeyId\": \"AKI\", \"SecretAccessKey\": "
               "\"SKI\", \"Token\": \"TKI\", \"Expiration\": \"2020-01-01T00:00:00Z\"}"));

    unsetenv("AWS_EC2_METADATA_DISABLED");
    point("AWS_EC2_METADATA_SERVICE_ENDPOINT", "");
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "status 403"));
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "no role"));
    ck_assert_int_eq(find(), -EPROTO);
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "AssumeRoleUnauthorizedAccess"));
    has_keys(find(), "I"); /* an outage there: old keys, good for a while */
    ck_assert_int_gt(keys.expires_ns, clock_real_ns());
    ck_assert_uint_eq(scripted_count(server), 11);
}
END_TEST

START_TEST(nobody_answers_for_the_instance)
{
    int64_t start = clock_mono_ns();

    SERVE({.text = NULL});
    unsetenv("AWS_EC2_METADATA_DISABLED");
    point("AWS_EC2_METADATA_SERVICE_ENDPOINT", "");
    ck_assert_int_eq(find(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "no AWS keys found"));
    ck_assert_int_lt(clock_mono_ns() - start, 8 * NS_PER_SEC);
}
END_TEST

/* ---- services in trouble ---- */

/* What STS answers first, from so many seconds away; then it gives keys. */
static int find_with_skew(int64_t seconds, const char *body)
{
    static struct scripted_answer script[] = {{.close = true}, ROLE("R")};
    static char text[512];
    char date[SCRIPTED_DATE];

    scripted_date(seconds, date);
    (void)snprintf(text, sizeof(text),
                   "HTTP/1.1 403 Forbidden\r\nDate: %s\r\nConnection: close\r\n\r\n%s", date,
                   body);
    script[0].text = text;
    server = scripted_new(script, ARRAY_SIZE(script));
    point("AWS_ENDPOINT_URL_STS", "");
    write_file(".aws/config", "[default]\nrole_arn = r\nsource_profile = default\n"
                              "aws_access_key_id = AK0\naws_secret_access_key = SK0\n");
    return find();
}

#define EXPIRED                                                                                \
    "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>Signature expired"       \
    "</Message></Error></ErrorResponse>"

START_TEST(the_clock_of_sts_is_adopted)
{
    has_keys(find_with_skew(-3 * 3600, EXPIRED), "R");
    ck_assert_int_eq(scripted_signed_minutes(server, 0), 0);
    ck_assert_int_eq(scripted_signed_minutes(server, 1), -180);
}
END_TEST

START_TEST(a_bare_403_is_not_sts_clock)
{
    ck_assert_int_eq(find_with_skew(3 * 3600, ""), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 1);
}
END_TEST

START_TEST(no_clock_of_sts_is_far_off)
{
    ck_assert_int_eq(find_with_skew(INT64_C(366) * 86400, EXPIRED), -EACCES);
    ck_assert_uint_eq(scripted_count(server), 1);
}
END_TEST

static const struct {
    struct scripted_answer answers[3];
    int err;
    const char *text;
} troubles[] = {
    {{SAYS("403 Forbidden", "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not yours"
                            "</Message></Error></ErrorResponse>")},
     -EACCES,
     "STS AssumeRole of arn:r: 403 AccessDenied: not yours"},
    {{SAYS("503 Busy", ""), SAYS("503 Busy", ""), SAYS("503 Busy", "")}, -EAGAIN, "503"},
    {{SAYS("503 Busy", ""), {.text = "", .reset = true}, ROLE("R")}, 0, NULL},
    {{SAYS("200 OK", "<html>")}, -EPROTO, "no keys in the answer"},
    {{SAYS("200 OK", "")}, -EPROTO, "no keys in the answer"},
    {{STS("AssumeRole", "R", "soon")}, -EPROTO, "no keys in the answer"},
    {{STS("AssumeRole", " ", "2100-01-01T00:00:00Z")}, -EPROTO, "no keys in the answer"},
    {{SAYS("307 Elsewhere\r\nLocation: http://127.0.0.1:1/", "")}, -EPROTO, "307"},
    {{SAYS("400 Bad", "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>")},
     -EAGAIN,
     "Throttling"},
};

START_TEST(a_service_in_trouble)
{
    int r;

    server = scripted_new(troubles[_i].answers, 3);
    point("AWS_ENDPOINT_URL_STS", "");
    write_file(".aws/config", "[default]\nrole_arn = arn:r\nsource_profile = default\n"
                              "aws_access_key_id = AK0\naws_secret_access_key = SK0\n");
    r = find();
    ck_assert_msg(r == troubles[_i].err, "%d, not %d: %s", r, troubles[_i].err, op.why);
    if (troubles[_i].text)
        ck_assert_msg(strstr(op.why, troubles[_i].text) != NULL, "%s", op.why);
}
END_TEST

/* ---- when keys are asked for anew ---- */

/* A container's answer whose keys live so long. */
static void set_json(struct scripted_answer *a, char text[400], const char *name, unsigned ms)
{
    int64_t end = clock_real_ns() + ms * NS_PER_MS;
    time_t seconds = (time_t)(end / NS_PER_SEC) + 1;
    char expiry[32];
    struct tm tm;

    strftime(expiry, sizeof(expiry), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
    (void)snprintf(
        text, 400,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"AccessKeyId\": \"AK%s\", "
        "\"SecretAccessKey\": \"SK%s\", \"Token\": \"TK%s\", \"Expiration\": \"%s\"}",
        name, name, name, expiry);
    a->text = text;
    a->close = true;
}

static void *get_in_thread(void *arg)
{
    struct op own;

    op_init(&own, 20 * NS_PER_SEC);
    ck_assert_int_eq(aws_credentials_get(credentials, &own, arg), 0);
    return NULL;
}

START_TEST(many_threads_cause_one_request)
{
    struct aws_keys all[8] = {0};
    pthread_t threads[ARRAY_SIZE(all)];

    SERVE({.text = "HTTP/1.1 200 OK\r\nContent-Length: 121\r\n\r\n{\"AccessKeyId\": \"AKC\", "
                   "\"SecretAccessKey\": \"SKC\", \"Token\": \"TKC\", \"Expiration\": "
                   "\"2100-01-01T00:00:00Z\"}                    ",
           .stall_ms = 200});
    point("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    ck_assert_int_eq(aws_credentials_new(&config, &op, &credentials), 0);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, get_in_thread, &all[i]), 0);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        pthread_join(threads[i], NULL);
        ck_assert_str_eq(all[i].access_key, "AKC");
        aws_keys_release(&all[i]);
    }
    ck_assert_uint_eq(scripted_count(server), 1);
}
END_TEST

START_TEST(keys_are_renewed_ahead_of_their_end)
{
    static struct scripted_answer script[2];
    static char text[2][400];
    struct aws_keys other = {0};
    pthread_t thread;

    config.rest_ns = NS_PER_MS;
    set_json(&script[0], text[0], "1", 6000);
    set_json(&script[1], text[1], "2", 3600 * 1000);
    script[1].stall_ms = 600;
    server = scripted_new(script, 2);
    point("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    has_keys(find(), "1");
    has_keys(get(), "1");
    ck_assert_uint_eq(scripted_count(server), 1);
    while (keys.expires_ns - clock_real_ns() >
           1200 * NS_PER_MS) /* a quarter is 1.25 s or more */
        ck_assert_int_eq(op_sleep(&op, 20 * NS_PER_MS), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, get_in_thread, &other), 0);
    while (scripted_count(server) < 2)
        ck_assert_int_eq(op_sleep(&op, NS_PER_MS), 0);
    has_keys(get(), "1"); /* nobody waits for the new ones yet */
    pthread_join(thread, NULL);
    ck_assert_str_eq(other.access_key, "AK2");
    aws_keys_release(&other);
    has_keys(get(), "2");
    ck_assert_uint_eq(scripted_count(server), 2);
}
END_TEST

START_TEST(keys_that_ended_are_not_used)
{
    static struct scripted_answer script[4];
    static char text[2][400];

    config.rest_ns = config.retry_ns = NS_PER_MS;
    set_json(&script[0], text[0], "1", 3000);
    script[1] = script[2] = (struct scripted_answer)SAYS("403 Forbidden", "");
    set_json(&script[3], text[1], "2", 3600 * 1000);
    server = scripted_new(script, 4);
    point("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    has_keys(find(), "1");
    while (keys.expires_ns - clock_real_ns() > 600 * NS_PER_MS)
        ck_assert_int_eq(op_sleep(&op, 20 * NS_PER_MS), 0);
    has_keys(get(), "1"); /* refused new ones, but the old are still good */
    while (keys.expires_ns - clock_real_ns() > -10 * NS_PER_MS)
        ck_assert_int_eq(op_sleep(&op, 20 * NS_PER_MS), 0);
    ck_assert_int_eq(get(), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "the keys ended"));
    ck_assert_ptr_nonnull(strstr(op.why, "status 403"));
    ck_assert_int_eq(op_sleep(&op, 5 * NS_PER_MS), 0);
    has_keys(get(), "2"); /* given back */
}
END_TEST

START_TEST(a_changed_file_is_noticed)
{
    config.rest_ns = NS_PER_MS;
    write_file(".aws/credentials", "[default]\naws_access_key_id = AK1\n"
                                   "aws_secret_access_key = SK1\naws_session_token = TK1\n");
    has_keys(find(), "1");
    write_file(".aws/credentials", "[default]\naws_access_key_id = AK22\n"
                                   "aws_secret_access_key = SK22\naws_session_token = TK22\n");
    ck_assert_int_eq(op_sleep(&op, 5 * NS_PER_MS), 0);
    has_keys(get(), "22");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("aws_services");
    TCase *t = tcase_create("aws_services");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_role_is_assumed);
    tcase_add_test(t, roles_lead_to_roles);
    tcase_add_test(t, a_role_with_keys_of_the_environment);
    tcase_add_test(t, a_role_with_keys_of_the_container);
    tcase_add_test(t, a_web_identity);
    tcase_add_test(t, a_login_of_sso);
    tcase_add_test(t, a_container_with_a_token_file);
    tcase_add_test(t, containers_elsewhere_are_refused);
    tcase_add_test(t, an_instance_with_a_role);
    tcase_add_test(t, an_instance_in_trouble);
    tcase_add_test(t, nobody_answers_for_the_instance);
    tcase_add_test(t, the_clock_of_sts_is_adopted);
    tcase_add_test(t, a_bare_403_is_not_sts_clock);
    tcase_add_test(t, no_clock_of_sts_is_far_off);
    tcase_add_loop_test(t, a_service_in_trouble, 0, ARRAY_SIZE(troubles));
    tcase_add_test(t, many_threads_cause_one_request);
    tcase_add_test(t, keys_are_renewed_ahead_of_their_end);
    tcase_add_test(t, keys_that_ended_are_not_used);
    tcase_add_test(t, a_changed_file_is_noticed);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
