/* Where the stores of a configuration are, without asking any of them. Any thread. */
#ifndef RUNFS_CLI_STORE_PLACES_H
#define RUNFS_CLI_STORE_PLACES_H

#include "backends/where.h"
#include "runs/config.h"

/* store_where() of one store with its options. */
int store_place(const struct config_store *store, struct op *op, struct store_where *ret);

/* What is wrong of all of them together: config_check_roots(). -EINVAL with the place in
 * op->why, also for a URL or an option that store_open() would refuse. */
int store_places_check(const struct config *config, struct op *op,
                       struct config_problems *problems);

#endif
