/* A path that a user gave, as a mount of runfs and a path below its root. */
#ifndef RUNFS_CLI_TARGET_H
#define RUNFS_CLI_TARGET_H

#include "common/op.h"

#include <sys/types.h>

struct target {
    char *mountpoint; /* where the root of the filesystem is mounted; heap */
    char *rel;        /* below it, "" for the root; heap */
    uid_t owner;      /* who serves it, as the kernel says */
};

void target_release(struct target *t);

/* Finds the mount that `path` is on. A symlink within a mount stays itself, one that leads into
 * a mount is followed; a last component that does not exist is allowed. -EINVAL when the path
 * is on no runfs. */
int target_resolve(const char *path, struct op *op, struct target *ret);
/* Where the path leads if its last component is a symlink within a mount: `latest` names the
 * checkpoint, too, and not the link alone. Heap; NULL: nowhere else, or not to a mount. */
char *target_led_to(const char *path);

#endif
