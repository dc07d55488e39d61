/* Which processes use a mount. */
#ifndef RUNFS_CLI_USERS_H
#define RUNFS_CLI_USERS_H

#include "common/buf.h"

#include <sys/types.h>

/* Appends "1234 (python3), 5678 (bash)" for the processes that have a file, a working directory
 * or a mapping on the device; at most 20 are named. Asks the mount nothing. Returns how many
 * there are, those that /proc hides from the caller not counted. */
unsigned mount_users(dev_t dev, struct buf *names);

#endif
