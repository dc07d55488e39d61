/* Unmounting what was mounted, and nothing else. */
#ifndef RUNFS_FUSE_UNMOUNT_H
#define RUNFS_FUSE_UNMOUNT_H

#include <sys/types.h>

/* Unmounts the topmost filesystem at an absolute path without symlinks, when it has this device
 * (0: any); `flags` as for umount2(). Asks the filesystem nothing. A user who may write to one
 * of the directories above can have put a symlink there since the mount: -ELOOP then, and
 * -ESTALE when another filesystem is mounted there. Otherwise 0 or a negative errno. Any
 * thread. */
int unmount_at(const char *abs, dev_t dev, int flags);

#endif
