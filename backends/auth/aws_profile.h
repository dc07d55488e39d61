/* AWS's profile files, ~/.aws/credentials and ~/.aws/config, and the settings that they and the
 * environment name. A struct aws_profiles is constant once loaded: any thread. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_PROFILE_H
#define RUNFS_BACKENDS_AUTH_AWS_PROFILE_H

#include "backends/auth/aws_keys.h"
#include "common/op.h"

#include <stdbool.h>
#include <stddef.h>

struct aws_profiles;

/* Reads both files, where there are any. `asked` (may be NULL) is the profile that the user
 * named by option; else AWS_PROFILE or "default" is the chosen one. -EINVAL with a text for a
 * profile that does not exist and for an unreadable file. */
int aws_profiles_load(const char *asked, struct op *op, struct aws_profiles **ret);
/* The same from texts in memory (NULL: no such file); for tests. */
int aws_profiles_parse(const char *asked, const char *credentials, const char *config,
                       struct op *op, struct aws_profiles **ret);
/* Overwrites the secrets. Accepts NULL. */
void aws_profiles_free(struct aws_profiles *p);

/* What identifies the content of both files without reading them. */
struct aws_profiles_stamp {
    struct {
        int64_t mtime_ns;
        int64_t size; /* -1: there is no such file */
        uint64_t ino;
    } file[2];
};
/* The path of a credentials file that every user can read; else NULL. */
const char *aws_profiles_exposed(const struct aws_profiles *p);
/* As the files were when they were read. */
const struct aws_profiles_stamp *aws_profiles_stamp(const struct aws_profiles *p);
/* As they are now. */
void aws_profiles_stamp_now(struct aws_profiles_stamp *ret);

/* The chosen profile, and whether the user named it by option. */
const char *aws_profile_chosen(const struct aws_profiles *p);
bool aws_profile_was_asked(const struct aws_profiles *p);
bool aws_profile_exists(const struct aws_profiles *p, const char *profile);

/* A setting of a profile; NULL when it is not there or empty. `parent` names the setting it is
 * nested in ("s3"), or is NULL. Valid as long as `p`. */
const char *aws_profile_get(const struct aws_profiles *p, const char *profile,
                            const char *parent, const char *name);

/* The keys that stand in one of the files themselves: 1 when there are some, 0 when not,
 * -EINVAL with a text for half a pair. */
enum aws_profile_file { AWS_CREDENTIALS_FILE, AWS_CONFIG_FILE };
int aws_profile_keys(const struct aws_profiles *p, const char *profile,
                     enum aws_profile_file file, struct op *op, struct aws_keys *ret);
/* Where the file is, and " (no such file)" or "". */
const char *aws_profile_path(const struct aws_profiles *p, enum aws_profile_file file);
const char *aws_profile_missing(const struct aws_profiles *p, enum aws_profile_file file);

/* The endpoint that environment or profile name for a service ("s3", "sts", "sso"), or NULL. */
const char *aws_profile_endpoint(const struct aws_profiles *p, const char *profile,
                                 const char *service);

/* What was found of the settings; NULL where nothing was said. All heap. */
struct aws_settings {
    char *region;
    char *endpoint_url;
    char *ca_bundle;
    char *addressing_style; /* "path", "virtual" or "auto" */
};
/* 0 or -ENOMEM. */
int aws_settings_load(const struct aws_profiles *p, struct op *op, struct aws_settings *ret);
void aws_settings_release(struct aws_settings *s);

/* An environment variable; NULL when it is not set or empty. */
const char *aws_env(const char *name);
/* Whether a variable says "true". */
bool aws_env_true(const char *name);
/* A path below the home directory as the shell knows it. Heap; NULL without memory. */
char *aws_home_path(const char *name);

#endif
