/* The constructors of the drivers, one for each kind of store; open.c's table names them.
 *
 * `url` is as the user wrote it and `config` is borrowed for the call. A driver opens without
 * asking the server when it can: store_open() asks for the root right after. -EINVAL for a URL
 * of the wrong form, with what was found and what was expected in op->why. */
#ifndef RUNFS_BACKENDS_DRIVERS_H
#define RUNFS_BACKENDS_DRIVERS_H

#include "backends/store.h"
#include "backends/where.h"

typedef int (*driver_new)(const char *url, const struct store_config *config, struct op *op,
                          struct store **ret);
/* store_where() of its stores; the names of the options are known. On failure what is in *ret
 * is released by the caller. */
typedef int (*driver_where)(const char *url, const struct store_config *config, struct op *op,
                            struct store_where *ret);
/* store_key_of() for its stores. */
typedef int (*driver_key_of)(const struct store_where *w, const char *url, struct op *op,
                             char **ret_key);

/* A kind of store. */
struct driver {
    const char *prefix; /* of the URL */
    const char *form;   /* for messages */
    driver_new new;
    const char *const *options; /* NULL-terminated */
    driver_where where;
    const char *server;    /* how struct store_where's begins */
    const char *const *as; /* the forms of its URLs, NULL-terminated; the first is runfs's */
    driver_key_of key_of;
    const char *no_endpoint; /* store_no_endpoint() of its stores */
    driver_new trial;        /* store_open_trial() of its stores, without layers; NULL: none */
};
/* That of a URL; NULL: none. */
const struct driver *driver_find(const char *url);
/* That of a place. */
const struct driver *driver_of(const struct store_where *w);
/* -EINVAL for an option that stores of this kind don't have, with the nearest that they have.
 */
int driver_check_options(const struct driver *d, const struct store_config *config,
                         struct op *op);
/* -EINVAL with the forms that there are. */
int driver_unknown_url(const char *url, struct op *op);

/* mem: and mem:NAME; see mem/mem.c. */
int mem_store_new(const char *url, const struct store_config *config, struct op *op,
                  struct store **ret);
int mem_where(const char *url, const struct store_config *config, struct op *op,
              struct store_where *ret);
int mem_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key);

/* file:///path and /path; see local/local.c. */
int local_store_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret);
/* See local/trial.c. */
int local_trial_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret);
int local_where(const char *url, const struct store_config *config, struct op *op,
                struct store_where *ret);
int local_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key);

/* s3://BUCKET/PREFIX; see s3/s3.c. */
int s3_store_new(const char *url, const struct store_config *config, struct op *op,
                 struct store **ret);
int s3_where(const char *url, const struct store_config *config, struct op *op,
             struct store_where *ret);
int s3_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key);
extern const char *const local_store_options[];
extern const char *const s3_store_options[];
#define S3_NO_ENDPOINT "aws"

#endif
