/* Where a bucket is: from "s3://bucket/prefix" and an endpoint to host, path and scheme. Pure
 * functions; any thread. */
#ifndef RUNFS_BACKENDS_S3_URL_H
#define RUNFS_BACKENDS_S3_URL_H

#include "common/op.h"

#include <stdbool.h>

#define S3_BUCKET_MAX 256
#define S3_REGION_MAX 64
#define S3_HOST_MAX   512

/* Takes "s3://bucket/pre/fix/" apart. *ret_prefix is heap, without "/" at its ends. -EINVAL
 * with what was found and what was expected. */
int s3_url_parse(const char *url, struct op *op, char ret_bucket[S3_BUCKET_MAX],
                 char **ret_prefix);

/* A server of one's own, or AWS's. */
struct s3_endpoint {
    bool custom; /* false: AWS, and the host depends on the region */
    bool https;
    char host[S3_HOST_MAX]; /* host[:port] of a custom one, without a standard port */
    char base[S3_HOST_MAX]; /* path before the bucket, "" or "/x" */
};

/* Takes "https://host:port/base" apart; without a scheme it is https. NULL or "" is AWS.
 * -EINVAL with a text, also for user names and queries. */
int s3_endpoint_parse(const char *url, struct op *op, struct s3_endpoint *ret);

/* Whether a string can be a region, as it becomes part of a host name. */
bool s3_region_ok(const char *region);

/* Whether the bucket's name can be a host's first label under this endpoint's certificate. */
bool s3_bucket_is_label(const char *bucket, bool https);

/* The Host header's value for a bucket. -EINVAL when it does not fit. */
int s3_host(const struct s3_endpoint *e, const char *region, const char *bucket,
            bool path_style, char ret[S3_HOST_MAX]);

#endif
