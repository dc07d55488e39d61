/* Policies: what happens to what lies below a route: when it goes up, what is staged, what is a
 * log, who wins when two nodes write one name. Presets and those of a configuration. Constant
 * once made; any thread. */
#ifndef RUNFS_RUNS_POLICY_H
#define RUNFS_RUNS_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum policy_upload {
    UPLOAD_CLOSE,  /* when it is closed; logs each interval too */
    UPLOAD_RENAME, /* a new file when it, or a directory above, is renamed; else as UPLOAD_CLOSE
                    */
    UPLOAD_INTERVAL, /* all files as logs: each interval while they are open */
    UPLOAD_NEVER,    /* in no store, gone at the unmount */
};

enum policy_conflict {
    CONFLICT_KEEP, /* another's version stays, ours is kept aside */
    CONFLICT_LAST, /* the last writer's stays */
};

#define POLICY_UNSET (-1)

/* A field that says nothing takes the mount's option of that name: NULL, POLICY_UNSET. */
struct policy {
    char *name;         /* heap */
    const char *preset; /* its own name, or the preset that it extends; constant */
    char *staging; /* heap; fnmatch patterns of components joined by ":"; NULL: the mount's */
    char *logs;    /* the same, of files that are uploaded while they are open */
    enum policy_upload upload;
    enum policy_conflict conflict;
    int64_t interval_ns;
    int64_t settle_ns;
    int durability; /* 0 cache, 1 store */
    /* What is due goes up before others. No field: a preset's, and that of what extends it. */
    bool urgent;
    /* What is published as a whole (runs/unit.h), and when that is complete. unit_max, locks,
     * expect and keep_last are parsed, shown, and not built yet. */
    char *unit, *unit_names, *unit_done, *unit_pointer, *locks;
    int64_t unit_idle_ns, unit_max_ns, lock_ttl_ns;
    int64_t expect, keep_last;
    int del_locks; /* 0 off, 1 on */
};

struct policies {
    struct policy *items; /* heap; the presets in use first */
    size_t n, cap;
};

void policies_release(struct policies *p);

#endif
