/* What other programs that we start get to see of this process. Any thread. */
#ifndef RUNFS_COMMON_INHERIT_H
#define RUNFS_COMMON_INHERIT_H

/* No program started from now on inherits a descriptor that is open by now, but for stdin,
 * stdout and stderr (Linux 5.11). For what libraries open, and what we inherited ourselves: our
 * own descriptors are born that way. */
void inherit_no_descriptors(void);

#endif
