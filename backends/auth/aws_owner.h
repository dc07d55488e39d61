/* Who may write the files that keys come from: profile files and programs. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_OWNER_H
#define RUNFS_BACKENDS_AUTH_AWS_OWNER_H

#include <sys/stat.h>

/* Whether nobody but root and the caller (geteuid()) may write the file, of which `st` is told,
 * and a group only where the caller is alone in it. In a user namespace without root of the
 * machine, whose programs all of the system's are, who has no number there passes for him. 0;
 * -EPERM: it belongs to another user; -EACCES: others may write it. Any thread. */
int aws_owner_check(int fd, const struct stat *st);

#endif
