/* Which store a cache directory belongs to, and where a cache lies when nobody says. */
#ifndef RUNFS_CLI_IDENTITY_H
#define RUNFS_CLI_IDENTITY_H

#include "common/op.h"
#include "common/settings.h"

/* JSON of what tells one store from another: its URL, its endpoint (struct store; NULL none),
 * wherever that was set, and its tree's layout; no region, no secrets. The same store always
 * gives the same text. Heap, NULL without memory. */
char *identity_make(const char *url, const char *endpoint);

/* Reads an identity back: the URL and the store options it holds. -EINVAL. */
int identity_parse(const char *text, struct op *op, char **ret_url, struct settings *ret_store);

/* Where the caches of this user lie when nobody says. Heap, NULL without memory or a home. */
char *identity_cache_home(void);

/* The cache directory of a store mounted at an absolute path: below /var/cache/runfs for root,
 * else below $XDG_CACHE_HOME or ~/.cache. Heap, NULL without memory or a
 * home. */
char *identity_default_dir(const char *identity, const char *mountpoint);

/* The one that earlier versions took for the same mount, which knew no endpoint of a profile.
 * NULL, too, when there was none but the one above. */
char *identity_former_dir(const char *url, const char *endpoint, const char *mountpoint);

/* Keeps the store options of a mount in its cache directory (store.json), of which dir_fd is
 * from door_open(), and reads them back, so that `runfs recover` can reach the store the same
 * way. None kept is no error. */
int identity_save_options(int dir_fd, const struct settings *store, struct op *op);
int identity_load_options(int dir_fd, struct op *op, struct settings *ret);

#endif
