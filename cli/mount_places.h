/* Where the folders of a mount lie: a mount that holds its own store or cache would wait for
 * itself, and a cache within a store would be uploaded. Any thread. */
#ifndef RUNFS_CLI_MOUNT_PLACES_H
#define RUNFS_CLI_MOUNT_PLACES_H

#include "runs/config.h"

/* Whether no store and no cache lies within the mountpoint, and neither the cache nor the
 * mountpoint within a store that is a folder. Makes nothing; what is not there yet counts where
 * it would be made. `mountpoint` is absolute and without symlinks. -EINVAL with both folders in
 * op->why; -ENOMEM. */
int mount_places_check(const char *mountpoint, const char *cache_dir, const struct config *c,
                       struct op *op);

#endif
