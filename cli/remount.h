/* mount -o remount. */
#ifndef RUNFS_CLI_REMOUNT_H
#define RUNFS_CLI_REMOUNT_H

#include "common/op.h"

#include <stdbool.h>

/* Whether a list of options asks to change a mount that is there. */
bool remount_is_asked(const char *list);

/* Changes the mount of runfs at `dir` to what the list says. What the kernel keeps can change:
 * ro and rw, suid, dev, exec and their opposites, sync and dirsync; any other option must say
 * what the mount has, else -EINVAL names it and nothing changes. An option that is not in the
 * list stays, these of the kernel excepted, for which no word means nosuid, nodev, exec, async.
 * Asks the daemon what it was given. */
int remount(const char *dir, const char *list, struct op *op);

#endif
