/* Which processes use a mount. */
#ifndef RUNFS_CLI_USERS_H
#define RUNFS_CLI_USERS_H

#include "common/buf.h"

#include <sys/types.h>

#define USERS_MAX 4096

/* How long one process may keep the search. */
#define USERS_PATIENCE_MS 1000

struct mount_users {
    unsigned count;          /* those that /proc hides from the caller not counted */
    struct buf names;        /* "1234 (python3), 5678 (bash)", at most 20 of them */
    unsigned passed_over;    /* whose mappings nobody could look at: they wait in the kernel */
    struct buf passed_names; /* the same of these; not of all when there are many */
    unsigned stuck;          /* of these: how many were waited for in vain */
};

/* Finds the processes that have a file, a working directory or a mapping on the device, by the
 * /proc at `root`. Asks the mount nothing. It waits for a process that is stuck in the kernel
 * `patience_ms` at most, and for five such processes at most. */
void mount_users_find(const char *root, dev_t dev, int patience_ms, struct mount_users *ret);
void mount_users_release(struct mount_users *users);

#endif
