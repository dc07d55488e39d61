/* Small files, whole. Any thread. */
#ifndef RUNFS_RUNS_READ_FILE_H
#define RUNFS_RUNS_READ_FILE_H

#include "common/buf.h"

#include <sys/types.h>

/* Appends what the file holds. *ret_mode (may be NULL) is its mode. A negative errno, and
 * *ret_why says what that means; -EFBIG: it is larger than `max` or than the buffer. */
int read_small_file(const char *path, size_t max, struct buf *to, mode_t *ret_mode,
                    const char **ret_why);

#endif
