/* Publish units (docs/units.md): which directory of a path goes to the store as a whole, as the
 * policy of its route says. Texts in, answers out. Any thread. */
#ifndef RUNFS_RUNS_UNIT_H
#define RUNFS_RUNS_UNIT_H

#include "runs/policy.h"
#include "runs/routes.h"

#include <stdbool.h>
#include <stddef.h>

enum unit_kind {
    UNIT_NONE, /* nothing of it waits for anything else, and nothing waits for it as a whole */
    UNIT_FILE, /* the file is a unit by nature: a store replaces an object whole */
    UNIT_DIR,  /* a directory, with all that is below it */
};

struct unit_at {
    enum unit_kind kind;
    size_t len; /* UNIT_DIR: so many bytes of the path are the directory's; it may be all of it,
                   or none: the mount's root */
};

/* Whether directories can be units by it. */
bool unit_policy_groups(const struct policy *p);
/* What the path belongs to by its names. `root`: so many bytes of it are the root of its route,
 * without the "/" behind them. `dir`: it is a directory's path. Staging names say nothing
 * here. */
struct unit_at unit_of_path(const struct policy *p, size_t root, const char *path, bool dir);

/* How long the lease of a mount counts in the state of a store after it was renewed
 * (docs/units.md, 4): the shortest `lock_ttl` of the policies whose routes lead there, 60 s
 * where none says one; never less than a second or more than a day. */
int64_t unit_lease_ttl_ns(const struct routes *routes, const struct policy *policies,
                          unsigned store);

/* Whether a file of this name, in a unit's directory, says that the unit is complete. */
bool unit_name_is_done(const struct policy *p, const char *name);
/* Whether a file of this name, beside units, says which of them counts. */
bool unit_name_is_pointer(const struct policy *p, const char *name);

/* Whether one of the patterns, joined by ":", takes the first `len` bytes of `name`. They are
 * those of fnmatch(3), where "#" stands for one decimal digit or more. NULL takes nothing;
 * without memory nothing is taken. */
bool unit_patterns_take(const char *patterns, const char *name, size_t len);

#endif
