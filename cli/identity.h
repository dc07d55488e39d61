/* Which stores a cache directory belongs to, and where a cache lies when nobody says. */
#ifndef RUNFS_CLI_IDENTITY_H
#define RUNFS_CLI_IDENTITY_H

#include "cli/open_store.h"
#include "common/op.h"
#include "common/settings.h"

#define IDENTITY_TITLE "runfs:" /* what the title of several stores begins with */

/* JSON of what tells one store from another: its URL, its endpoint (struct store; NULL none),
 * wherever that was set, and its tree's layout; no region, no secrets. The same store always
 * gives the same text. Heap, NULL without memory. */
char *identity_make(const char *url, const char *endpoint);

/* The same of what a configuration mounts: that of its only store where all is in that one;
 * else of all stores their names, URLs as they were opened, endpoints and users, and the
 * routes.
 */
char *identity_of(const struct config *config, const struct open_stores *stores);

/* The routes alone, as `routes` of an identity has them. Heap, NULL without memory. */
char *identity_routes(const struct config *config);

/* One store as an identity knows it. */
struct identity_store {
    char *name;               /* NULL: the only one, which has all */
    char *url;                /* as it was opened */
    struct settings settings; /* options that tell it from others: "endpoint", "user" */
};
struct identity {
    char *title;  /* the only store's URL, or as routed_title() */
    char *routes; /* JSON; NULL: all is in the only store */
    struct identity_store *stores;
    size_t n;
};

/* Reads an identity back. *ret is released with identity_release() after success only. -EINVAL.
 */
int identity_parse(const char *text, struct op *op, struct identity *ret);
/* Accepts what is all zero. */
void identity_release(struct identity *identity);

/* The first difference between two identities, in words: what the cache is of, and what `who`
 * ("the mount") has. Heap; NULL without memory, or when either can't be read. */
char *identity_difference(const char *of_cache, const char *of_other, const char *who);

/* Where the caches of this user lie when nobody says. Heap, NULL without memory or a home. */
char *identity_cache_home(void);

/* The cache directory of a store mounted at an absolute path: below /var/cache/runfs for root,
 * else below $XDG_CACHE_HOME or ~/.cache. Heap, NULL without memory or a
 * home. */
char *identity_default_dir(const char *identity, const char *mountpoint);

/* The one that earlier versions took for the same mount, which knew no endpoint of a profile.
 * NULL, too, when there was none but the one above. */
char *identity_former_dir(const char *url, const char *endpoint, const char *mountpoint);

#endif
