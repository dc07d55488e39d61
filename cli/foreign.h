/* The daemon of another user's mount, as root finds it. */
#ifndef RUNFS_CLI_FOREIGN_H
#define RUNFS_CLI_FOREIGN_H

#include <stdbool.h>
#include <sys/types.h>

/* Visits the directories with a control socket that programs of this user have open, beside
 * /dev/fuse, until a visit returns true. The descriptor (O_PATH) is good for the visit. Touches
 * no FUSE mount. Returns whether a visit returned true. */
bool foreign_each_dir(uid_t owner, bool (*visit)(void *arg, pid_t pid, int dir_fd), void *arg);

#endif
