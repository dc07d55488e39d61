/* Whether the store has what a mount says: for `runfs verify` and `runfs flush --level
 * verified`.
 */
#ifndef RUNFS_CLI_VERIFY_H
#define RUNFS_CLI_VERIFY_H

#include "cache/cache.h"

#include <jansson.h>

/* What was found of all paths together. */
struct verified {
    struct cache_verify_total total;
    json_t *problems; /* NULL: nobody wants them */
    int err;          /* negative: of what could not be asked, or read */
    int64_t deadline_ns;
    bool flushed; /* only what the mount has put */
    bool late;    /* the deadline came first */
};

/* Asks the daemon of the mount that has the path; also what a symlink there leads to. A line on
 * stderr for each file that is not right, and for what went wrong. */
void verify_path(struct verified *v, const char *path);
/* The line that sums it up, on stdout. */
void verify_report(const struct verified *v);
/* The exit code: EXIT_FAILED when something is not what it should be. */
int verify_code(const struct verified *v);

#endif
