/* What a cache directory keeps of how its stores are reached, so that `runfs recover` needs
 * nothing else: of a mount that is one store that one's options (store.json), of another one
 * the whole configuration (config.json). No secrets. One thread at a time. */
#ifndef RUNFS_CLI_KEPT_CONFIG_H
#define RUNFS_CLI_KEPT_CONFIG_H

#include "cli/identity.h"
#include "runs/config.h"

/* `dir_fd` is from door_open(). */
int kept_config_save(int dir_fd, const struct config *config, struct op *op);
/* The stores of the identity with the options that were kept, and over those the ones that the
 * identity has; `dir` is for messages. *ret is released with
 * config_release() after success only. -EINVAL also when what was kept has other stores or
 * routes than the identity. */
int kept_config_load(int dir_fd, const char *dir, const struct identity *identity,
                     struct op *op, struct config *ret);
/* Keeps the stores of which the identity says that they have no endpoint from going to one that
 * the environment or a profile names: right for a cache that this version mounted. A former
 * version did not note the endpoint of a profile. -ENOMEM. */
int kept_config_stay(const struct identity *identity, struct op *op, struct config *config);

#endif
