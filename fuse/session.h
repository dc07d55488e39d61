/* libfuse's session: its options, its log, and what is agreed on with the kernel at the start.
 */
#ifndef RUNFS_FUSE_SESSION_H
#define RUNFS_FUSE_SESSION_H

#include "common/op.h"
#include "fuse/lowlevel.h"

struct fs;

/* Makes fs->session from fs->config. 0, -EINVAL with libfuse's reason, -ENOMEM. */
int session_new(struct fs *fs, struct op *op);

/* Mounts and takes the kernel's first request, FUSE_INIT. 0 or a negative errno. */
int session_mount(struct fs *fs, struct op *op);

/* Whether this process may register backing files. */
bool session_is_privileged(void);

#endif
