/* Percent-encoding. Pure functions over text; any thread. */
#ifndef RUNFS_BACKENDS_HTTP_URI_H
#define RUNFS_BACKENDS_HTTP_URI_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Adds `len` bytes with everything but A-Z a-z 0-9 - . _ ~ (and "/" if wanted) as %XX. As
 * buf_add(). */
int uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash);

/* Undoes percent-encoding in place, "+" means a space if wanted; returns the new length, or -1
 * for a broken escape. The result may hold NUL bytes; one more NUL ends it. */
ssize_t uri_decode(char *text, bool plus_is_space);

#endif
