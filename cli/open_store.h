/* Opening the stores of a configuration, and the one store that a cache works with. */
#ifndef RUNFS_CLI_OPEN_STORE_H
#define RUNFS_CLI_OPEN_STORE_H

#include "backends/store.h"
#include "cli/options.h"
#include "runs/config.h"

/* The options of a store as settings, of which the last of a name counts: *ret_list is heap,
 * and *ret_config has it. -ENOMEM. */
int store_settings(const struct settings *settings, struct op *op,
                   struct store_option **ret_list, struct store_config *ret_config);

struct open_stores {
    struct store *top;        /* over all of them; the only store itself where all is in that */
    struct store **stores;    /* heap, in the order of the configuration; `top` owns them */
    const char **names;       /* heap, of those; the texts are the configuration's */
    struct cache_store *told; /* heap; the same with URL and endpoint, for a cache */
    size_t n;
};

/* Opens them all, several at once, with settings of which the last of a name counts, and with
 * the patience that `options` has for a mount. The configuration must outlive them. Changes
 * op's deadline. A failure names the store where there are several. *ret is released with
 * open_stores_close() after success only. */
int open_stores(const struct config *config, const struct mount_options *options, struct op *op,
                struct open_stores *ret);
/* Tells a cache of the stores, the routes and the policies; nothing where a URL alone would
 * mount the same. The cache borrows them. */
void open_stores_tell(const struct open_stores *s, const struct config *config,
                      struct cache_config *ret);
/* Whether all is in one store, without routes. */
bool open_stores_is_one(const struct open_stores *s);
/* Accepts what is all zero. */
void open_stores_close(struct open_stores *s);

#endif
