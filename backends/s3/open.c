/* Opening a bucket's prefix: from the URL, the options and AWS's settings to a struct s3. */
#include "backends/s3/s3.h"

#include "backends/drivers.h"
#include "common/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_REGION "us-east-1"

/* 1 for yes, 0 for no, -1 when not given; -EINVAL with a text otherwise. */
static int option_bool(const struct store_config *config, const char *name, struct op *op)
{
    static const char *const yes[] = {"", "1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    const char *value = store_config_get(config, name);

    if (!value || strcasecmp(value, "auto") == 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (strcasecmp(value, yes[i]) == 0)
            return 1;
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (strcasecmp(value, no[i]) == 0)
            return 0;
    return op_fail(op, -EINVAL, "%s: \"%.40s\" is neither true nor false", name, value);
}

static const char *given(const char *option, const char *setting)
{
    return option && *option ? option : setting;
}

static int open_region(struct s3 *s, const struct store_config *config, struct op *op)
{
    const char *told = store_config_get(config, "region");
    const char *region = given(given(told, s->aws.region), DEFAULT_REGION);

    if (!aws_region_ok(region) && region == told)
        return op_fail(op, -EINVAL, "region: \"%.80s\" can't be one", region);
    if (!aws_region_ok(region)) /* what a profile has there may be a key in the wrong line */
        return op_fail(op, -EINVAL,
                       "the region that the environment or the AWS profile names can't be one");
    (void)snprintf(s->region, sizeof(s->region), "%s", region);
    return 0;
}

/* Where new objects are kept: what AWS's tools call sse, sse_kms_key_id and storage_class. */

static int header_option(const struct store_config *config, const char *name, struct op *op,
                         char **ret)
{
    const char *value = store_config_get(config, name);

    if (!value || !*value)
        return 0;
    for (const char *c = value; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return op_fail(op, -EINVAL, "%s: \"%.80s\" can't be one", name, value);
    *ret = strdup(value);
    return *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static int open_placement(struct s3 *s, const struct store_config *config, struct op *op)
{
    static const char *const kinds[] = {"AES256", "aws:kms", "aws:kms:dsse"};
    const char *payer = store_config_get(config, "request_payer");
    bool known = false;
    int err = header_option(config, "sse", op, &s->sse);

    if (!err)
        err = header_option(config, "sse_kms_key_id", op, &s->sse_kms_key_id);
    if (!err)
        err = header_option(config, "storage_class", op, &s->storage_class);
    if (err)
        return err;
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && s->sse; i++)
        known |= strcmp(kinds[i], s->sse) == 0;
    if (s->sse && !known)
        return op_fail(op, -EINVAL, "sse: \"%.40s\" is none of AES256, aws:kms, aws:kms:dsse",
                       s->sse);
    if (s->sse_kms_key_id && (!s->sse || strncmp(s->sse, "aws:kms", 7) != 0))
        return op_fail(op, -EINVAL, "sse_kms_key_id needs sse=aws:kms");
    if (payer && strcmp(payer, "requester") != 0)
        return op_fail(op, -EINVAL, "request_payer: \"%.40s\" is not \"requester\"", payer);
    s->request_payer = payer != NULL;
    return 0;
}

/* Path style: as the option says, else as the profile says, else for a custom endpoint and for
 * a bucket name that can be no host's label. */
static int open_style(struct s3 *s, const struct store_config *config, struct op *op)
{
    const char *style = s->aws.addressing_style ? s->aws.addressing_style : "auto";
    bool label = s3_bucket_is_label(s->bucket, s->endpoint.https);
    int told = option_bool(config, "path_style", op);

    if (told == -EINVAL)
        return told;
    if (told == 0 && !s3_bucket_is_label(s->bucket, false))
        return op_fail(op, -EINVAL,
                       "path_style=false: bucket \"%s\" can't be part of a host name",
                       s->bucket);
    if (told >= 0)
        s->path_style = told;
    else if (strcasecmp(style, "path") == 0)
        s->path_style = true;
    else if (strcasecmp(style, "virtual") == 0 && label)
        s->path_style = false;
    else
        s->path_style = s->endpoint.custom || !label;
    return 0;
}

/* Where objects of our own go: a sibling of the prefix, unless an option says another. A bucket
 * without a prefix has no place outside of the root. */
static int open_state(struct s3 *s, const struct store_config *config, struct op *op)
{
    const char *told = store_config_get(config, "state_prefix");
    auto_free char *prefix = NULL;

    if (told ? strcasecmp(told, "off") == 0 : !*s->prefix)
        return 0;
    if (asprintf(&prefix, "%s%s", told ? told : s->prefix, told ? "" : ".runfs") < 0) {
        prefix = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    for (size_t end = strlen(prefix); end > 0 && prefix[end - 1] == '/';)
        prefix[--end] = '\0';
    if (!*prefix || !path_key_ok(prefix, STORE_KEY_MAX))
        return op_fail(
            op, -EINVAL,
            "state_prefix: \"%.80s\" is no key of the bucket; expected \"a/b\" or off", prefix);
    if (path_below(s->prefix, prefix) || path_below(prefix, s->prefix))
        return op_fail(
            op, -EINVAL,
            "state_prefix: \"%.80s\" and the mounted prefix \"%.80s\" lie within each "
            "other",
            prefix, s->prefix);
    /* Several prefixes of the bucket may have one. */
    s->base.root_key = strdup(s->prefix);
    if (!s->base.root_key)
        return op_fail(op, -ENOMEM, "out of memory");
    s->state_prefix = take_ptr(prefix);
    s->base.facts.caps |= STORE_STATE;
    return 0;
}

/* Bytes that the prefix leaves for a key. */
static void set_key_max(struct s3 *s)
{
    size_t taken = *s->prefix ? strlen(s->prefix) + 1 : 0;

    s->base.facts.key_max = taken < S3_KEY_BYTES ? (unsigned)(S3_KEY_BYTES - taken) : 1;
}

static const char *ca_of(const struct s3 *s, const struct store_config *config)
{
    return given(store_config_get(config, "ca_bundle"),
                 given(store_config_get(config, "ca_file"), s->aws.ca_bundle));
}

static int open_endpoint(struct s3 *s, const struct store_config *config, struct op *op)
{
    const char *told = store_config_get(config, "endpoint");
    const char *url = given(told, s->aws.endpoint_url);

    if (told && strcasecmp(told, S3_NO_ENDPOINT) == 0)
        url = NULL;
    s->base.endpoint = url && *url ? strdup(url) : NULL;
    if (url && *url && !s->base.endpoint)
        return op_fail(op, -ENOMEM, "out of memory");
    int err = aws_endpoint_parse(url, op, &s->endpoint);
    return err == -EINVAL && url != told
               ? op_fail(op, err,
                         "the endpoint_url that the environment or the AWS profile names: "
                         "expected https://HOST[:PORT] or http://HOST[:PORT] without a user "
                         "name or password")
               : err;
}

/* Adds a line to the store's advice. */
static int advise(struct s3 *s, struct op *op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int advise(struct s3 *s, struct op *op, const char *fmt, ...)
{
    auto_buf struct buf b = BUF_INIT(16 * 1024);
    va_list ap;

    int err = s->base.advice ? buf_addf(&b, "%s\n", s->base.advice) : 0;
    va_start(ap, fmt);
    if (!err)
        err = buf_vaddf(&b, fmt, ap);
    va_end(ap);
    char *text = err ? NULL : buf_take(&b);
    if (!text)
        return op_fail(op, -ENOMEM, "out of memory");
    free(s->base.advice);
    s->base.advice = text;
    return 0;
}

static int open_settings(struct s3 *s, const struct store_config *config, struct op *op)
{
    struct aws_profiles *profiles;
    int err = aws_profiles_load(store_config_get(config, "profile"), op, &profiles);

    if (err)
        return err;
    err = aws_settings_load(profiles, op, &s->aws);
    const char *exposed = aws_profiles_exposed(profiles);
    if (!err && exposed)
        err = advise(s, op, "AWS profile file %s can be read by every user: chmod 600 '%s'",
                     exposed, exposed);
    aws_profiles_free(profiles);
    return err;
}

/* Asks for the keys at once, so that the mount says when there are none. */
static int open_credentials(struct s3 *s, const struct store_config *config, struct op *op)
{
    auto_keys struct aws_keys keys = {0};
    struct aws_credentials_config credentials = {.profile = store_config_get(config, "profile"),
                                                 .ca_bundle = ca_of(s, config)};
    int err;

    if (s->anonymous)
        return 0;
    err = aws_credentials_new(&credentials, op, &s->credentials);
    return err ? err : aws_credentials_get(s->credentials, op, &keys);
}

static int open_http(struct s3 *s, const struct store_config *config, struct op *op)
{
    struct http_config http = {.allow_plain = !s->endpoint.https,
                               .ca_file = ca_of(s, config),
                               .idle_max = config ? config->connections : 0};

    return http_new(&http, op, &s->http);
}

/* A host[:port] of this machine: what goes there is on no wire. */
static bool is_near(const char *host)
{
    char name[AWS_HOST_MAX];
    struct in_addr addr;

    (void)snprintf(name, sizeof(name), "%s", host);
    if (strncmp(name, "[::1]", 5) == 0)
        return true;
    name[strcspn(name, ":")] = '\0';
    if (inet_pton(AF_INET, name, &addr) == 1)
        return ntohl(addr.s_addr) >> 24 == IN_LOOPBACKNET;
    size_t len = strlen(name);
    return strcmp(name, "localhost") == 0 ||
           (len > 10 && strcmp(name + len - 10, ".localhost") == 0);
}

static int advise_of_wire(struct s3 *s, struct op *op)
{
    if (s->endpoint.https || is_near(s->endpoint.host))
        return 0;
    return advise(s, op,
                  "http://%s is plain http: who is on the way reads all that is stored and can "
                  "change what is read; what is written is signed%s. Use an https:// endpoint",
                  s->endpoint.host,
                  s->anonymous ? " by nobody" : ", so that it arrives as it is");
}

int s3_configure(struct s3 *s, const char *url, const struct store_config *config,
                 struct op *op)
{
    int anonymous = option_bool(config, "no_sign_request", op);
    int err = s3_url_parse(url, op, s->bucket, &s->prefix);

    if (anonymous == -EINVAL)
        err = anonymous;
    if (err)
        return err;
    s->anonymous = anonymous == 1;
    set_key_max(s);
    err = open_state(s, config, op);
    if (!err)
        err = open_settings(s, config, op);
    if (!err)
        err = open_endpoint(s, config, op);
    if (!err)
        err = open_region(s, config, op);
    if (!err)
        err = open_placement(s, config, op);
    return err ? err : open_style(s, config, op);
}

int s3_open(struct s3 *s, const char *url, const struct store_config *config, struct op *op)
{
    int err = s3_configure(s, url, config, op);

    if (!err)
        err = open_http(s, config, op);
    if (!err)
        err = advise_of_wire(s, op);
    if (!err)
        err = open_credentials(s, config, op);
    if (!err && asprintf(&s->base.url, "s3://%s%s%s", s->bucket, *s->prefix ? "/" : "",
                         s->prefix) < 0) {
        s->base.url = NULL;
        err = op_fail(op, -ENOMEM, "out of memory");
    }
    return err;
}

const char *const s3_store_options[] = {"endpoint",   "region",          "profile",
                                        "path_style", "no_sign_request", "request_payer",
                                        "sse",        "sse_kms_key_id",  "storage_class",
                                        "ca_bundle",  "ca_file",         "state_prefix",
                                        NULL};
