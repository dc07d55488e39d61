/* The mount's options: `-o name=value,...`, fstab and the configuration file say the same
 * names.
 */
#ifndef RUNFS_CLI_OPTIONS_H
#define RUNFS_CLI_OPTIONS_H

#include "cache/cache.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/settings.h"

#include <stdbool.h>

enum { PASSTHROUGH_AUTO, PASSTHROUGH_OFF };
enum { INCOMPLETE_HIDE, INCOMPLETE_SHOW };

#define MASK_AS_UMASK (~0U)

struct mount_options {
    /* Numbers and policies go straight where they are used. dir, identity, mountpoint and
     * staging are filled in by the mount; `passthrough` by the frontend. */
    struct cache_config cache;
    char *cache_dir; /* NULL: derived from store and mountpoint */
    char *staging;   /* patterns joined by ":"; NULL: the cache's defaults */
    char *config;    /* file to read settings from, NULL without */
    char *layout;    /* its name; NULL: none was given */
    int64_t entry_timeout_ns;
    int64_t mount_timeout_ns; /* how long the mount waits for the store to answer */
    int64_t drain_timeout_ns; /* of the daemon's last uploads; OP_FOREVER: no limit */
    unsigned connections;     /* to the store; 0 takes the store's default */
    int passthrough;          /* PASSTHROUGH_* */
    int incomplete;           /* INCOMPLETE_*: units that other mounts have not finished */
    int durability;           /* enum durability */
    int log_level;            /* enum log_level */
    unsigned umask;           /* taken from the modes of objects that say none */
    unsigned fmask, dmask;    /* of files and of directories instead; MASK_AS_UMASK: not set */
    bool allow_other;
    bool acl, noacl; /* asked for; neither: as allow_other */
    bool read_only;
    bool nonempty;          /* what the mountpoint holds may be hidden */
    struct settings store;  /* options of the store's driver */
    struct settings policy; /* fields of a policy that have no member here; each was judged */
    struct buf kernel;      /* "nosuid,nodev": passed on to the mount; data NULL when empty */
};

/* Whether there are ACLs. Where nobody else gets in they would only cost: `ls -l` asks for the
 * ACL of each file. */
bool mount_options_acl(const struct mount_options *o);
/* What is taken from the mode of files, or of directories, that say none. */
unsigned mount_options_mask(const struct mount_options *o, bool directory);

/* The defaults. */
void mount_options_init(struct mount_options *o);
void mount_options_release(struct mount_options *o);

/* Sets one option; `value` NULL when there was no "=". Later settings win. -EINVAL with the
 * name, what it takes, or the nearest known name in op->why. A value never shows in messages
 * unless the option is known and holds no secret. */
int mount_options_set(struct mount_options *o, const char *name, const char *value,
                      struct op *op);
/* Sets the options of a "a=b,c,d" list; "\," is a comma within a value, and so is one in
 * x="a,b". */
int mount_options_parse(struct mount_options *o, const char *list, struct op *op);
/* Calls visit for each option of such a list until that returns another value than 0, which is
 * returned; -ENOMEM. */
int mount_options_each(const char *list,
                       int (*visit)(void *arg, const char *name, const char *value), void *arg);
/* Whether both say the same of the option with this name. */
bool mount_options_same(const struct mount_options *a, const struct mount_options *b,
                        const char *name);
/* An option that mount(8) and fstab carry for every filesystem and that means nothing here. */
bool mount_options_ignored(const char *name);
/* A word of -o and fstab alone: what is ignored, what the kernel's mount takes, a remount. */
bool mount_options_is_words(const char *name);
/* A field of a policy that is an option where one store has everything under `data`. */
bool mount_options_is_policy_field(const char *name);
/* An option that some kind of store has. */
bool mount_options_is_stores(const char *name);
/* 0; or -EINVAL with the nearest option of a store in op->why. */
int mount_options_check_stores(const char *name, struct op *op);

/* Prints the options with their meaning, for --help. */
void mount_options_help(void);

/* Splits `staging` into a NULL-terminated heap list whose texts point into the string. NULL
 * without memory. */
const char **mount_options_split_staging(char *staging);

#endif
