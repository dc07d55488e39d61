/* A configuration, and where its stores are: between the paths of a mount and the URLs of
 * objects, without asking a store. One thread at a time. */
#ifndef RUNFS_CLI_PLACED_H
#define RUNFS_CLI_PLACED_H

#include "backends/where.h"
#include "runs/config.h"

struct placed {
    struct config config;
    struct store_where *where; /* heap, of each store */
};

/* Of a configuration that is read; takes it over, also on failure. A failure names the store
 * where there are several. *ret is released with placed_release() after success only. */
int placed_of_config(struct config *config, struct op *op, struct placed *ret);
/* Of a mount of the caller's own, as its cache directory keeps it. -ENOTCONN when nobody serves
 * it. */
int placed_of_mount(const char *mountpoint, struct op *op, struct placed *ret);
void placed_release(struct placed *p);

/* The URL of what stands at a path of the mount, in the form of store_url_of(). Heap. -ENOENT:
 * no route leads there; -ENODEV: it is in no store; -EISDIR: a directory that is none of one
 * store. */
int placed_url(const struct placed *p, const char *path, enum routes_as as, const char *form,
               struct op *op, char **ret);
/* The path of a key of the store with this index, of an object if one can be there, else of a
 * directory: the root of a route is one only. Heap. -ENOENT: none. */
int placed_path_of_key(const struct placed *p, size_t store, const char *key, char **ret);
/* The path of the object, or the directory, that a URL names; heap. -ENOENT: it is
 * in none of the stores, or no path leads to it. */
int placed_path(const struct placed *p, const char *url, struct op *op, char **ret);

#endif
