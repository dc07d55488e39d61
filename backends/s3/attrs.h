/* Attributes as object metadata, in the form s3fs keeps them: x-amz-meta-mode (st_mode in
 * decimal), -uid, -gid, -mtime ("seconds.nanoseconds", nine digits), -rdev, -xattr (percent-
 * encoded JSON), and -symlink-target (percent-encoded; s3fs keeps that one in the body). What
 * comes from a server is checked and what is broken is ignored. Any thread. */
#ifndef RUNFS_BACKENDS_S3_ATTRS_H
#define RUNFS_BACKENDS_S3_ATTRS_H

#include "backends/http/http.h"
#include "backends/store.h"

#include <stdbool.h>

#define S3_META_PREFIX "x-amz-meta-"

/* Calls `add` with each header. A non-zero answer ends it and is returned. */
int s3_attrs_write(const struct attrs *a,
                   int (*add)(void *arg, const char *name, const char *value), void *arg);

/* Reads them from an answer's headers into a fresh struct; `is_dir` says what the key's form
 * demands, and wins over a mode that says otherwise. 0 or -ENOMEM. */
int s3_attrs_read(const struct http_answer *answer, bool is_dir, struct attrs *ret);

/* Whether a metadata header is one of ours, which s3_attrs_write() replaces. */
bool s3_attrs_owns(const char *header);

#endif
