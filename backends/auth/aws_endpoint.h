/* Where a service is: an endpoint's scheme, host and path, and a region. Pure functions; any
 * thread. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_ENDPOINT_H
#define RUNFS_BACKENDS_AUTH_AWS_ENDPOINT_H

#include "common/op.h"

#include <stdbool.h>

#define AWS_REGION_MAX 64
#define AWS_HOST_MAX   512
#define AWS_LABEL_MAX                                                                          \
    256 /* of what a service puts in front of an endpoint's host: a bucket                     \
         */

/* A server of one's own, or AWS's. */
struct aws_endpoint {
    bool custom; /* false: AWS, and the host depends on the region */
    bool https;
    char host[AWS_HOST_MAX]; /* host[:port] of a custom one, without a standard port */
    char base[AWS_HOST_MAX]; /* path before the bucket, "" or "/x" */
};

/* Takes "https://host:port/base" apart. NULL or "" is AWS. -EINVAL with a text, also for user
 * names, queries, and an endpoint without a scheme. */
int aws_endpoint_parse(const char *url, struct op *op, struct aws_endpoint *ret);

/* Whether a string can be a region, as it becomes part of a host name. */
bool aws_region_ok(const char *region);

#endif
