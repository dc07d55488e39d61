/* One search for keys. Each place answers 1 with keys, 0 when it is not set up, or an error,
 * which ends the search: what the user set up and does not work must not be papered over by
 * keys from elsewhere. */
#include "backends/auth/aws_chain.h"

#include "backends/auth/aws_process.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DEPTH_MAX 8 /* roles that lead to roles */

struct search {
    const struct aws_profiles *profiles;
    struct aws_fetch *fetch;
    struct op *op;
};

static const char *setting(const struct search *s, const char *profile, const char *name)
{
    return aws_profile_get(s->profiles, profile, NULL, name);
}

static const char *either(const char *a, const char *b)
{
    return a ? a : b;
}

static int found(int err)
{
    return err ? err : 1;
}

static int from_environment(struct search *s, struct aws_keys *ret)
{
    const char *access = aws_env("AWS_ACCESS_KEY_ID"),
               *secret = aws_env("AWS_SECRET_ACCESS_KEY");
    int err;

    if (!access && !secret)
        return 0;
    if (!access || !secret)
        return op_fail(s->op, -EINVAL, "the environment: there is %s but no %s",
                       access ? "an access key" : "a secret key",
                       access ? "secret key" : "access key");
    err = aws_keys_set(ret, access, secret, aws_env("AWS_SESSION_TOKEN"));
    return err ? op_fail(s->op, err, "the environment has unusable keys") : 1;
}

static struct aws_role role_of(const struct search *s, const char *profile)
{
    const char *region = either(aws_env("AWS_REGION"), aws_env("AWS_DEFAULT_REGION"));

    return (struct aws_role){
        .arn = setting(s, profile, "role_arn"),
        .session_name = setting(s, profile, "role_session_name"),
        .external_id = setting(s, profile, "external_id"),
        .duration = setting(s, profile, "duration_seconds"),
        .token_file = setting(s, profile, "web_identity_token_file"),
        .region = either(region, setting(s, profile, "region")),
        .endpoint = aws_profile_endpoint(s->profiles, profile, "sts"),
    };
}

/* --- the places a profile can name --- */

static int from_profile(struct search *s, const char *profile, unsigned depth,
                        struct aws_keys *ret);

static int from_files(struct search *s, const char *profile, struct aws_keys *ret)
{
    int r = aws_profile_keys(s->profiles, profile, AWS_CREDENTIALS_FILE, s->op, ret);

    return r ? r : aws_profile_keys(s->profiles, profile, AWS_CONFIG_FILE, s->op, ret);
}

/* The keys that may take on the role: those of another profile (of this one: only those that
 * stand in the files, or it would never end). */
static int source_profile_keys(struct search *s, const char *profile, const char *source,
                               unsigned depth, struct aws_keys *ret)
{
    int r;

    if (!aws_profile_exists(s->profiles, source))
        return op_fail(s->op, -EINVAL, "AWS profile \"%s\": there is no source_profile \"%s\"",
                       profile, source);
    r = strcmp(source, profile) == 0 ? from_files(s, source, ret)
                                     : from_profile(s, source, depth + 1, ret);
    if (r)
        return r;
    return op_fail(s->op, -EACCES, "AWS profile \"%s\": source_profile \"%s\" has no keys",
                   profile, source);
}

static int credential_source_keys(struct search *s, const char *profile, const char *source,
                                  struct aws_keys *ret)
{
    int r;

    if (strcasecmp(source, "Environment") == 0)
        r = from_environment(s, ret);
    else if (strcasecmp(source, "EcsContainer") == 0)
        r = aws_fetch_container(s->fetch, s->op, ret);
    else if (strcasecmp(source, "Ec2InstanceMetadata") == 0)
        r = aws_fetch_instance(s->fetch, s->op, ret);
    else
        return op_fail(s->op, -EINVAL,
                       "AWS profile \"%s\": its credential_source is none of Environment, "
                       "EcsContainer and Ec2InstanceMetadata",
                       profile);
    if (r)
        return r;
    return op_fail(s->op, -EACCES, "AWS profile \"%s\": credential_source %s has no keys",
                   profile, source);
}

static int from_role(struct search *s, const char *profile, unsigned depth,
                     struct aws_keys *ret)
{
    const char *source = setting(s, profile, "source_profile");
    const char *place = setting(s, profile, "credential_source");
    const struct aws_role role = role_of(s, profile);
    auto_keys struct aws_keys keys = {0};
    int r;

    if (!role.arn || role.token_file)
        return 0;
    if (!source == !place)
        return op_fail(s->op, -EINVAL,
                       "AWS profile \"%s\": role_arn needs either source_profile or "
                       "credential_source",
                       profile);
    if (setting(s, profile, "mfa_serial"))
        return op_fail(s->op, -EACCES,
                       "AWS profile \"%s\" wants an MFA code, which a mount can't ask for",
                       profile);
    r = source ? source_profile_keys(s, profile, source, depth, &keys)
               : credential_source_keys(s, profile, place, &keys);
    return r < 0 ? r : found(aws_fetch_role(s->fetch, s->op, &role, &keys, ret));
}

static int from_web_identity(struct search *s, const char *profile, struct aws_keys *ret)
{
    const struct aws_role role = role_of(s, profile);

    if (!role.arn || !role.token_file)
        return 0;
    return found(aws_fetch_web_identity(s->fetch, s->op, &role, ret));
}

static int from_sso(struct search *s, const char *profile, struct aws_keys *ret)
{
    const char *session = setting(s, profile, "sso_session");
    struct aws_sso sso = {.cache_name = session,
                          .region = setting(s, profile, "sso_region"),
                          .account_id = setting(s, profile, "sso_account_id"),
                          .role_name = setting(s, profile, "sso_role_name"),
                          .endpoint = aws_profile_endpoint(s->profiles, profile, "sso")};
    char section[256];

    if (session &&
        (size_t)snprintf(section, sizeof(section), "sso-session %s", session) < sizeof(section))
        sso.region = either(setting(s, section, "sso_region"), sso.region);
    else
        sso.cache_name = setting(s, profile, "sso_start_url");
    if (!sso.cache_name)
        return 0;
    if (!sso.region || !sso.account_id || !sso.role_name)
        return op_fail(s->op, -EINVAL, "AWS profile \"%s\": SSO needs %s", profile,
                       !sso.region       ? "sso_region"
                       : !sso.account_id ? "sso_account_id"
                                         : "sso_role_name");
    return found(aws_fetch_sso(s->fetch, s->op, &sso, ret));
}

static int from_process(struct search *s, const char *profile, struct aws_keys *ret)
{
    const char *command = setting(s, profile, "credential_process");

    return command ? found(aws_fetch_process(command, s->op, ret)) : 0;
}

static int from_profile(struct search *s, const char *profile, unsigned depth,
                        struct aws_keys *ret)
{
    int r;

    if (depth > DEPTH_MAX)
        return op_fail(s->op, -EINVAL, "AWS profile \"%s\": source_profile goes in circles",
                       profile);
    r = from_role(s, profile, depth, ret);
    if (!r)
        r = from_web_identity(s, profile, ret);
    if (!r)
        r = from_sso(s, profile, ret);
    if (!r)
        r = aws_profile_keys(s->profiles, profile, AWS_CREDENTIALS_FILE, s->op, ret);
    if (!r)
        r = from_process(s, profile, ret);
    return r ? r : aws_profile_keys(s->profiles, profile, AWS_CONFIG_FILE, s->op, ret);
}

/* --- all places --- */

/* What the EKS webhook sets. */
static int from_environment_identity(struct search *s, struct aws_keys *ret)
{
    struct aws_role role = role_of(s, aws_profile_chosen(s->profiles));

    role.arn = aws_env("AWS_ROLE_ARN");
    role.token_file = aws_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    role.session_name = aws_env("AWS_ROLE_SESSION_NAME");
    role.duration = NULL;
    if (!role.token_file)
        return 0;
    if (!role.arn)
        return op_fail(s->op, -EINVAL, "AWS_WEB_IDENTITY_TOKEN_FILE needs AWS_ROLE_ARN");
    return found(aws_fetch_web_identity(s->fetch, s->op, &role, ret));
}

/* op->why holds what the instance metadata service said, or did not. */
static int nothing(struct search *s)
{
    const struct aws_profiles *p = s->profiles;
    char instance[sizeof(s->op->why)];

    memcpy(instance, s->op->why, sizeof(instance));
    return op_fail(s->op, -EACCES,
                   "no AWS keys found; looked at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                   "profile \"%s\" in %.60s%s and in %.60s%s, container and instance (%.80s); "
                   "no_sign_request is for a public bucket",
                   aws_profile_chosen(p), aws_profile_path(p, AWS_CREDENTIALS_FILE),
                   aws_profile_missing(p, AWS_CREDENTIALS_FILE),
                   aws_profile_path(p, AWS_CONFIG_FILE),
                   aws_profile_missing(p, AWS_CONFIG_FILE), instance);
}

int aws_chain_find(const struct aws_profiles *profiles, struct aws_fetch *fetch, struct op *op,
                   struct aws_keys *ret)
{
    struct search s = {.profiles = profiles, .fetch = fetch, .op = op};
    const char *profile = aws_profile_chosen(profiles);
    bool asked = aws_profile_was_asked(profiles);
    int r = asked ? 0 : from_environment(&s, ret);

    if (!r && !asked && !setting(&s, profile, "role_arn"))
        r = from_environment_identity(&s, ret);
    if (!r)
        r = from_profile(&s, profile, 1, ret);
    if (!r && asked)
        r = from_environment(&s, ret);
    if (!r)
        r = aws_fetch_container(fetch, op, ret);
    if (!r)
        r = aws_fetch_instance(fetch, op, ret);
    if (!r)
        return nothing(&s);
    return r < 0 ? r : 0;
}
