/* Fields of a policy as options of a mount, where one store has everything under `data`. Any
 * thread. */
#ifndef RUNFS_RUNS_POLICY_OPTIONS_H
#define RUNFS_RUNS_POLICY_OPTIONS_H

#include "common/op.h"
#include "common/settings.h"
#include "runs/config.h"

#include <stdbool.h>

/* The name of the policy that they make. */
#define POLICY_OF_OPTIONS "options"

/* Whether the field of that name, one of policy_fields, can have the value. -EINVAL: it can't,
 * or not yet; op->why is `option NAME=VALUE: ` and what "policies" of a configuration is told.
 * -ENOMEM. */
int policy_option_check(const char *name, const char *value, struct op *op);

/* Whether both lists, judged before, make the same of the field of that name, whatever words
 * they take for it. False without memory. */
bool policy_options_same(const struct settings *a, const struct settings *b, const char *name);

/* Puts a policy that extends `data` by the settings, of which later ones win, into a
 * configuration whose one route is under `data`, and puts that route under it. What says what
 * `data` says anyway changes nothing. Errors as policy_option_check(); `config` is as it was
 * then. */
int config_policy_options(struct config *config, const struct settings *settings,
                          struct op *op);

#endif
