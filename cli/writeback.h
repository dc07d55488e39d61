/* What programs stored through mappings, and the kernel has not told the daemon of. One thread.
 */
#ifndef RUNFS_CLI_WRITEBACK_H
#define RUNFS_CLI_WRITEBACK_H

#include "common/buf.h"
#include "common/op.h"

#include <sys/types.h>

/* Of all paths together. */
#define WRITEBACK_MAX (64 * 1024 * 1024)

/* Has the kernel write the dirty pages of these files back to the daemon, and blocks for that
 * until op's deadline. `paths` are those below the mountpoint, each with the NUL that ends it.
 * `dev` is the filesystem's, 0 when it may be any. A file that is gone is left out. 0; -EACCES:
 * all are, but for those that may not be opened; -ETIMEDOUT, or another negative errno; op->why
 * tells. A daemon may call it, too, while other threads of it serve the mount. */
int writeback_files(const char *mountpoint, dev_t dev, const struct buf *paths, struct op *op);

#endif
