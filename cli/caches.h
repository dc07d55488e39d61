/* The cache directories in the default places that belong to the caller. */
#ifndef RUNFS_CLI_CACHES_H
#define RUNFS_CLI_CACHES_H

#include "cli/identity.h"
#include "common/op.h"

struct cache_place {
    const char *dir;               /* absolute */
    const char *identity;          /* JSON, as identity_of() wrote it */
    const struct identity *parsed; /* the same, read */
};

/* Visits the caches of this user, each valid during its visit; none is locked or written.
 * Returns what a visit returned that ended it, else 0. */
int caches_each(int (*visit)(void *arg, const struct cache_place *p), void *arg);

/* The cache that `name` means: a cache directory itself, a mountpoint, or a store (its URL, or
 * a folder, or all stores of a mount as "runfs:a+b"). Heap. A name that means none is returned
 * as it is, for the message of the caller that opens it. -ENOTUNIQ with all of them in op->why
 * when it is several. */
int caches_find(const char *name, struct op *op, char **ret);

/* A store's name as the URL that its identity has: "s3://b/p/" and a folder, too; "runfs:a+b"
 * as it is. Heap; NULL: none of these, or no memory. */
char *caches_store_url(const char *name);

#endif
