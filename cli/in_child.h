/* Questions that may wait for ever: to a mount that is stuck, or whose daemon is stopped. */
#ifndef RUNFS_CLI_IN_CHILD_H
#define RUNFS_CLI_IN_CHILD_H

#include <jansson.h>

/* What `answer`, called by a child, says of `about`: an object, or NULL for -ENODATA. The child
 * is left behind when it takes too long: -ETIMEDOUT; or another negative errno. */
int in_child(json_t *(*answer)(const void *about), const void *about, json_t **ret);

#endif
