/* One store over several, by routes. (The other branch's header, until the merge.) */
#ifndef RUNFS_BACKENDS_ROUTED_H
#define RUNFS_BACKENDS_ROUTED_H

#include "backends/store.h"
#include "runs/routes.h"

int routed_store_new(const struct routes *routes, struct store *const *stores,
                     const char *const *names, size_t n, struct op *op, struct store **ret);

#endif
