/* Who may write the files that keys come from: profile files and programs. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_OWNER_H
#define RUNFS_BACKENDS_AUTH_AWS_OWNER_H

#include <sys/stat.h>

/* Checks that only root and the caller (geteuid()) may write the file, which `st` describes; a
 * group may write it only when the caller is its only member. In a user namespace that does not
 * map the machine's root, an owner without a number there counts as root: the system's programs
 * belong to him. 0; -EPERM: it belongs to another user; -EACCES: others may write it. Any
 * thread. */
int aws_owner_check(int fd, const struct stat *st);

#endif
