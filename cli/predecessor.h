/* The runfs that still has the cache of a new mount. */
#ifndef RUNFS_CLI_PREDECESSOR_H
#define RUNFS_CLI_PREDECESSOR_H

#include "common/op.h"

#include <stdbool.h>

/* Zeroed before the first call. */
struct predecessor {
    bool told;
    /* CLOCK_MONOTONIC, 0: not so. */
    int64_t silent_ns;  /* since when nothing answers */
    int64_t serving_ns; /* since when it says that it is mounted */
};

/* Called when the cache is found in use, until it is free or this fails. 0 after a moment: try
 * again. A runfs whose mount is gone uploads what is left and then ends: the call waits for it
 * until op's deadline, and says so once on stderr. Otherwise -EBUSY with what has the cache in
 * op->why, or -EINTR. A program that does not answer, or a runfs that is mounted where it is
 * not seen, is given two seconds; of the former op->why stays as it was. */
int predecessor_await(const char *cache_dir, struct predecessor *p, struct op *op);

#endif
