/* `runfs status` without a name: all mounts of the machine, and the caches that were left. */
#ifndef RUNFS_CLI_OVERVIEW_H
#define RUNFS_CLI_OVERVIEW_H

#include <jansson.h>

/* {"mounts": [...], "caches": [...]}, as docs/status.md says. A mount that does not answer soon
 * is listed as such. NULL without memory or /proc. */
json_t *overview_json(void);

/* The same as lines. */
void overview_print(const json_t *overview);

#endif
