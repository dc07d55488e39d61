/* Opening a store from settings. */
#ifndef RUNFS_CLI_OPEN_STORE_H
#define RUNFS_CLI_OPEN_STORE_H

#include "backends/store.h"
#include "cli/options.h"

/* store_open() with settings of which the last of a name counts, with the patience that
 * `options` has for a mount. Changes op's deadline. */
int open_store(const char *url, const struct settings *settings,
               const struct mount_options *options, struct op *op, struct store **ret);

#endif
