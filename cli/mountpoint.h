/* The directory that is mounted upon: checks before, unmounting after. */
#ifndef RUNFS_CLI_MOUNTPOINT_H
#define RUNFS_CLI_MOUNTPOINT_H

#include "common/op.h"

#include <stdbool.h>
#include <sys/types.h>

/* Checks that `path` can be mounted upon and returns its absolute path (heap). What a dead
 * runfs left there is unmounted, and *ret_dead tells. -ENOENT missing, -ENOTDIR, -EBUSY
 * something is mounted there. */
int mountpoint_prepare(const char *path, struct op *op, char **ret_abs, bool *ret_dead);

/* Unmounts what has this device; as root with umount2(), else through fusermount3. `lazy`: also
 * while it is in use. -EBUSY while it is in use. */
int mountpoint_unmount(const char *abs, dev_t dev, bool lazy, struct op *op);

/* Whether `path` is `dir` or below it; both absolute and without "..". */
bool mountpoint_path_within(const char *path, const char *dir);

#endif
