/* The runfs that still has the cache of a new mount. */
#ifndef RUNFS_CLI_PREDECESSOR_H
#define RUNFS_CLI_PREDECESSOR_H

#include "common/op.h"

#include <stdbool.h>

/* Zeroed before the first call. */
struct predecessor {
    bool told;
    int64_t silent_ns; /* CLOCK_MONOTONIC: since when nothing answers; 0: it does */
};

/* Called when the cache is found in use, until it is free or this fails. 0 after a moment: try
 * again. A runfs whose mount is gone uploads what is left and then ends: it is waited for until
 * op's deadline, and stderr is told once. Otherwise -EBUSY with what has the cache in op->why,
 * or -EINTR. What does not answer is waited for two seconds; op->why stays as it was then. */
int predecessor_await(const char *cache_dir, struct predecessor *p, struct op *op);

#endif
