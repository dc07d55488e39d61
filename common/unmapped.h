/* Users without a number in this process's user namespace. */
#ifndef RUNFS_COMMON_UNMAPPED_H
#define RUNFS_COMMON_UNMAPPED_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether this is the number that stands for the machine's root, and for all other users that
 * have none of their own here: they look alike. Any thread. */
bool uid_is_unmapped_root(uid_t uid);

#endif
