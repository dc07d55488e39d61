/* The constructors of the drivers, one for each kind of store; open.c's table names them.
 *
 * `url` is as the user wrote it and `config` is borrowed for the call. A driver opens without
 * asking the server when it can: store_open() asks for the root right after. -EINVAL for a URL
 * of the wrong form, with what was found and what was expected in op->why. */
#ifndef RUNFS_BACKENDS_DRIVERS_H
#define RUNFS_BACKENDS_DRIVERS_H

#include "backends/store.h"

typedef int (*driver_new)(const char *url, const struct store_config *config, struct op *op,
                          struct store **ret);

/* mem: and mem:NAME; see mem/mem.c. */
int mem_store_new(const char *url, const struct store_config *config, struct op *op,
                  struct store **ret);

/* file:///path and /path; see local/local.c. */
int local_store_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret);

/* s3://BUCKET/PREFIX; see s3/s3.c. */
int s3_store_new(const char *url, const struct store_config *config, struct op *op,
                 struct store **ret);
extern const char *const s3_store_options[];

#endif
