/* Who may write the files that keys come from: profile files and programs. */
#ifndef RUNFS_BACKENDS_AWS_OWNER_H
#define RUNFS_BACKENDS_AWS_OWNER_H

#include <sys/stat.h>

/* Whether nobody but root and the caller (geteuid()) may write the file, of which `st` is told,
 * and a group only where the caller is alone in it. 0; -EPERM: it belongs to another user;
 * -EACCES: others may write it. Any thread. */
int aws_owner_check(int fd, const struct stat *st);

#endif
