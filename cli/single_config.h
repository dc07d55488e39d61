/* The configuration file: JSON that names one store, the cache and the mount's options.
 *
 *   {"stores":  {"ckpt": {"url": "s3://training/ckpt", "region": "eu-west-1"}},
 *    "routes":  [{"path": "**", "store": "ckpt"}],
 *    "cache":   {"dir": "/var/cache/runfs", "size": "200GiB"},
 *    "options": {"durability": "store", "upload_jobs": 8, "allow_other": true}}
 *
 * This file knows the form, not the options: "cache" {"dir", "size", "reserve"} become the
 * options cache_dir, cache_size and cache_reserve, everything else is name and text. Any
 * thread.
 */
#ifndef RUNFS_CLI_SINGLE_CONFIG_H
#define RUNFS_CLI_SINGLE_CONFIG_H

#include "common/op.h"
#include "common/settings.h"

#include <stddef.h>

struct single_config {
    char *store_name;        /* NULL when the file names no store */
    char *url;               /* of the store; NULL without one */
    struct settings store;   /* the store's other fields */
    struct settings options; /* "cache" and "options", in the file's order */
};

/* Reads a configuration; `origin` names it in messages. *ret is released with
 * single_config_release() after success only. -EINVAL with the place and the reason in op->why.
 * Unknown fields, a second store, and routes other than "**" are refused by name. */
int single_config_parse(const char *text, size_t len, const char *origin, struct op *op,
                        struct single_config *ret);
/* The same from a file of at most 1 MiB. */
int single_config_load(const char *path, struct op *op, struct single_config *ret);
void single_config_release(struct single_config *c);

#endif
