/* The answer of a mount to `runfs units`. */
#ifndef RUNFS_CLI_UNITS_ANSWER_H
#define RUNFS_CLI_UNITS_ANSWER_H

#include "cache/cache.h"

#include <jansson.h>

/* {"ok": true, "units": [{"path", "state", "declared", "lacks", "idle_s", "why"}]} of those at
 * or below the path; the paths as control_io.h has them. The caller's; NULL without memory. */
json_t *units_answer(struct cache *c, const char *path);

#endif
