/* What /proc tells of callers: whether a thread that waits in the kernel is about to end, and
 * whether an open file is its own. */
#ifndef RUNFS_FUSE_DYING_H
#define RUNFS_FUSE_DYING_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the thread `tid` has a signal pending that will end it, or is exiting. False for what
 * can't be known: 0, the id of a caller in another pid namespace. A thread that is gone counts
 * as dying. */
bool caller_is_dying(pid_t tid);
/* Whether a caller has an open file by fork() from the process of `opener`, a thread that still
 * lives. False for what can't be known. */
bool caller_inherited(pid_t opener, pid_t caller);

/* The same from the text of /proc/<tid>/status. */
bool status_says_dying(const char *status);
/* Whether the text of /proc/<tid>/stat is of a thread that is exiting. */
bool stat_says_exiting(const char *stat);

#endif
