/* The keys that requests are signed with, from where AWS's own tools find them and in their
 * order: the environment; the profile's role (role_arn with source_profile or
 * credential_source), web identity, SSO login, keys in ~/.aws/credentials, credential_process,
 * keys in ~/.aws/config; the container's endpoint; the instance metadata service. The first
 * place that is set up counts. When an option names the profile, its files come before the
 * environment.
 *
 * Keys are kept, and found anew ahead of their end, when a profile file changes, and when a
 * server refuses them. Any thread; one searches, the others wait or go on with the old keys. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_CREDENTIALS_H
#define RUNFS_BACKENDS_AUTH_AWS_CREDENTIALS_H

#include "backends/auth/aws_keys.h"
#include "backends/auth/aws_profile.h"
#include "common/op.h"

#include <stdbool.h>

struct aws_credentials;

struct aws_credentials_config {
    const char *profile;   /* the one asked for by option; may be NULL */
    const char *ca_bundle; /* for HTTPS to AWS's services; may be NULL */
    int64_t rest_ns;       /* no search so soon after one that found keys; 0: 20 s */
    int64_t retry_ns;      /* ... nor after one that failed; 0: 10 s */
};
/* Finds nothing yet. The config is borrowed for the call. -ENOMEM. */
int aws_credentials_new(const struct aws_credentials_config *config, struct op *op,
                        struct aws_credentials **ret);
/* No call may be running. Accepts NULL. */
void aws_credentials_free(struct aws_credentials *c);

/* A copy of the keys to use now; may ask services, runs programs. -EINVAL with a text for a
 * profile that does not exist, half a pair, or settings that can't be followed; -EACCES when
 * there are no keys (the text names every place that was looked at), when a service refused, or
 * when the keys have expired and no others can be had; else the errno of a failed request. */
int aws_credentials_get(struct aws_credentials *c, struct op *op, struct aws_keys *ret);

/* A server refused these keys: looks for others, at most every few seconds. With `sure` false
 * (the refusal may be about the object, not the keys) at most once a minute. True when there
 * are others now: try again. When looking failed, op->why says how; else it stays as it was. */
bool aws_credentials_refused(struct aws_credentials *c, struct op *op,
                             const struct aws_keys *keys, bool sure);

#endif
