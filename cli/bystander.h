/* Asks for a user who may read a path of a mount, and not talk to its daemon: another user, or
 * a program in a container that has the mount alone. The mount's extended attributes answer,
 * and the kernel has looked at the permissions. */
#ifndef RUNFS_CLI_BYSTANDER_H
#define RUNFS_CLI_BYSTANDER_H

#include "common/op.h"

#include <jansson.h>
#include <stdbool.h>

/* Whether a caller can still ask this way after client_open() has failed with `err`. */
bool bystander_may_ask(const char *path, int err);

/* Blocks until the store has what the path, and all below it, was at the call, or op's
 * deadline; hurries nothing. 0 or a negative errno with op->why. */
int bystander_await(const char *path, struct op *op);
/* {"path", "state", "url", "version", "owed": {"files", "bytes", "uploading", "failed",
 * "staged", "operations"}}, and what of "store", "route" and "policy" the path has. */
int bystander_status(const char *path, struct op *op, json_t **ret);
/* Where a path of a mount with routes goes: {"path", "state", "store", "route", "policy"},
 * without what it has not. NULL: the mount has no routes, the path is its root, on the way to
 * what is in stores, a symlink or not there; or root may not ask the mount itself. */
json_t *bystander_routed(const char *path);

#endif
