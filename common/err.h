/* What an errno means to runfs. Functions return 0, a count, or a negative errno. */
#ifndef RUNFS_COMMON_ERR_H
#define RUNFS_COMMON_ERR_H

#include <stdbool.h>
#include <stdint.h>

/* Whether trying the same request again can help: -EAGAIN, -EIO, -EPROTO, -EHOSTUNREACH,
 * -ECONNRESET, -ECONNREFUSED, -ETIMEDOUT of one attempt and their like. The only judge of this.
 */
bool err_is_transient(int64_t result);

/* Whether the network gave no whole answer: nobody can be reached, or the connection broke, or
 * the time was over. */
bool err_is_network(int64_t result);

/* Whether nobody can be reached: of these, no connection came about at all. */
bool err_is_unreachable(int64_t result);

/* Whether a disk or a store had no room for what it was given: -ENOSPC, or -EDQUOT, which is
 * the same to one user. The only judge of this. */
bool err_is_no_space(int64_t result);

/* "ENOENT"-like name for messages and JSON; a constant string. */
const char *err_name(int err);
/* The errno of that name; 0 when none has it. */
int err_by_name(const char *name);

#endif
