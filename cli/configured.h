/* From the words of a mount to what is mounted: a URL, the name of a store or a configuration
 * file, and the options. The one place where a store's options come together: those of the
 * store in the file, then the file's "options", then `-o`. One thread at a time. */
#ifndef RUNFS_CLI_CONFIGURED_H
#define RUNFS_CLI_CONFIGURED_H

#include "cli/options.h"
#include "runs/config.h"

/* `spec` is a URL, the name of the one store of the file that config= names, or CONFIG.json;
 * `list` may be NULL. Sets `options`, which holds the defaults before; the stores have their
 * options in *ret then, which is released with config_release() after success only. -EINVAL
 * with the reason in op->why: of a file with its place, FILE:LINE:COLUMN; another negative
 * errno for a file that can't be read. */
int configured(const char *spec, const char *list, struct mount_options *options, struct op *op,
               struct config *ret);

/* What is wrong with the fields of the stores and the options of a file, all of it, appended to
 * `problems`. *ret_fields_known: nothing with the fields. -ENOMEM. */
int configured_check(const struct config *config, struct op *op,
                     struct config_problems *problems, bool *ret_fields_known);
/* What configured() makes of a file that is read and was checked so: sets `options`, and hands
 * the one store what belongs to it. `config` may name no stores. Errors as configured(). */
int configured_loaded(const char *file, struct config *config, struct mount_options *options,
                      struct op *op);

/* Whether the word names a configuration file that is there. */
bool configured_is_file(const char *spec);

/* Whether it is what a URL alone mounts: one store that has everything, under the policy that
 * every mount has. */
bool configured_is_plain(const struct config *c);

#endif
