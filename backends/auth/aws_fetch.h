/* Keys from AWS's services over HTTP: STS, the SSO portal, container endpoints, and the
 * instance metadata service (version 2). Each call makes its requests with a few attempts and a
 * patience of its own within the op's. No text carries a secret. One thread at a time. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_FETCH_H
#define RUNFS_BACKENDS_AUTH_AWS_FETCH_H

#include "backends/auth/aws_keys.h"
#include "backends/http/http.h"

/* Zeroed is ready; the clients come into being when they are needed. */
struct aws_fetch {
    const char *ca_bundle; /* borrowed; may be NULL */
    struct http *near;     /* of this machine: plain HTTP, no proxy, quick to give up */
    struct http *far;
    int64_t clock_skew_ns; /* STS's clock less ours, when it complained */
};
void aws_fetch_release(struct aws_fetch *f);

/* A role to take on at STS; what is NULL takes a default. */
struct aws_role {
    const char *arn;
    const char *session_name;
    const char *external_id;
    const char *duration;   /* seconds, as the profile says */
    const char *token_file; /* of a web identity; read anew by each call */
    const char *region;
    const char *endpoint; /* URL instead of AWS's own */
};

/* All fill *ret and return 0, or a negative errno with a text: -EACCES when the service
 * refused, -EINVAL for settings that can't be followed, else what http/http.h says of a failed
 * request. */

/* AssumeRole, signed with the keys `source`. */
int aws_fetch_role(struct aws_fetch *f, struct op *op, const struct aws_role *role,
                   const struct aws_keys *source, struct aws_keys *ret);
/* AssumeRoleWithWebIdentity. */
int aws_fetch_web_identity(struct aws_fetch *f, struct op *op, const struct aws_role *role,
                           struct aws_keys *ret);

/* The keys of a role for whom `aws sso login` was run. */
struct aws_sso {
    const char *cache_name; /* session name or start URL: what the login is filed under */
    const char *region, *account_id, *role_name;
    const char *endpoint; /* URL instead of AWS's own; may be NULL */
};
int aws_fetch_sso(struct aws_fetch *f, struct op *op, const struct aws_sso *sso,
                  struct aws_keys *ret);

/* AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI: ECS, EKS Pod Identity. 1 when there are
 * keys, 0 when no variable asks for it. */
int aws_fetch_container(struct aws_fetch *f, struct op *op, struct aws_keys *ret);

/* The instance's role. 0 also when AWS_EC2_METADATA_DISABLED says so or when nobody answers,
 * then with the reason in op->why; 1 with keys. */
int aws_fetch_instance(struct aws_fetch *f, struct op *op, struct aws_keys *ret);

#endif
