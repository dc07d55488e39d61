/* The directory that is mounted upon: checks before, unmounting after. */
#ifndef RUNFS_CLI_MOUNTPOINT_H
#define RUNFS_CLI_MOUNTPOINT_H

#include "common/op.h"

#include <stdbool.h>
#include <sys/types.h>

/* realpath() that also takes a path whose last directory is a dead mount; *ret is heap. A slash
 * at the end has no automount mount. 0 or a negative errno. */
int mountpoint_resolve(const char *path, char **ret);

/* Checks that `path` can be mounted upon and returns its absolute path (heap). What a dead
 * runfs left there is unmounted, and *ret_dead tells. -ENOENT missing, -ENOTDIR, -EBUSY
 * something is mounted there. */
int mountpoint_prepare(const char *path, struct op *op, char **ret_abs, bool *ret_dead);

/* Unmounts what has this device; as root with umount2(), else through fusermount3. `lazy`: also
 * while it is in use. -EBUSY while it is in use. */
int mountpoint_unmount(const char *abs, dev_t dev, bool lazy, struct op *op);

/* -ENOTEMPTY when the directory holds something, which it names. */
int mountpoint_check_empty(const char *abs, struct op *op);

/* Unmounts; as root `dir` or below it; both absolute and without "..". */
bool mountpoint_path_within(const char *path, const char *dir);

#endif
