/* What the parts of `runfs check` share. */
#ifndef RUNFS_CLI_CHECK_H
#define RUNFS_CLI_CHECK_H

#include "cli/options.h"
#include "cli/placed.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A configuration without mistakes, as a mount would have it. */
struct checked {
    const char *file; /* as it was named */
    struct mount_options options;
    struct placed placed;
};

/* Reads a file. -EINVAL: *problems has what is wrong, all of it; another negative errno: so it
 * has of a file that can't be read; -ENOMEM: op->why. *ret is released with checked_release()
 * after success only. */
int check_load(const char *file, struct op *op, struct config_problems *problems,
               struct checked *ret);
void checked_release(struct checked *c);
/* Prints problems, a line each on stderr or with `json` as one document on stdout. EXIT_USAGE.
 */
int check_problems(const char *file, const struct config_problems *problems, bool json);
/* The name of a policy's route, of a route's store, of where the route is written. */
const char *check_store_name(const struct checked *c, const struct route *route);
const struct policy *check_policy(const struct checked *c, const struct route *route);
/* A line for each store that no route leads to. */
void check_say_unused(const struct checked *c);

/* ---- check_path.c ---- */

/* What a mount does with each path. EXIT_FAILED when one has no route. */
int check_paths(const struct checked *c, char *const *paths, size_t n, bool json);
/* The path of a key. EXIT_FAILED when there is none, EXIT_USAGE for an unknown store. */
int check_key(const struct checked *c, const char *store, const char *key, bool json);

/* ---- check_reach.c ---- */

/* Opens each store that a route leads to, and tries it. EXIT_FAILED when one is out of reach,
 * or does not what it should. */
int check_reach(const struct checked *c, bool json);

/* ---- check_same.c ---- */

/* Whether the two are the same mount; EXIT_FAILED when not. */
int check_same(const struct checked *a, const struct checked *b, bool json);

#endif
