/* Where a bucket is: from "s3://bucket/prefix" and an endpoint to host, path and scheme. Pure
 * functions; any thread. */
#ifndef RUNFS_BACKENDS_S3_URL_H
#define RUNFS_BACKENDS_S3_URL_H

#include "backends/auth/aws_endpoint.h"
#include "common/op.h"

#include <stdbool.h>

#define S3_BUCKET_MAX AWS_LABEL_MAX

/* Takes "s3://bucket/pre/fix/" apart. *ret_prefix is heap, without "/" at its ends. -EINVAL
 * with what was found and what was expected. */
int s3_url_parse(const char *url, struct op *op, char ret_bucket[S3_BUCKET_MAX],
                 char **ret_prefix);

/* Whether the bucket's name can be a host's first label under this endpoint's certificate. */
bool s3_bucket_is_label(const char *bucket, bool https);

/* The Host header's value for a bucket. -EINVAL when it does not fit. */
int s3_host(const struct aws_endpoint *e, const char *region, const char *bucket,
            bool path_style, char ret[AWS_HOST_MAX]);

#endif
