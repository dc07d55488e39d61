/* What programs stored through mappings, and the kernel has not told the daemon of. One thread.
 */
#ifndef RUNFS_CLI_WRITEBACK_H
#define RUNFS_CLI_WRITEBACK_H

#include "common/op.h"

#include <jansson.h>

/* Has the kernel write the dirty pages of these files (an array of encoded paths below the
 * mountpoint) back to the daemon, and blocks for that until op's deadline. One that is gone
 * is left out. 0; -EACCES: all are, but for those that may not be opened; -ETIMEDOUT, or
 * another negative errno; op->why tells. */
int writeback_files(const char *mountpoint, const json_t *paths, struct op *op);

#endif
