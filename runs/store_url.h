/* URLs of stores as a configuration has them: paths that a default filesystem completes, and
 * secrets that have no place there. Any thread, unless said. */
#ifndef RUNFS_RUNS_STORE_URL_H
#define RUNFS_RUNS_STORE_URL_H

#include <stdbool.h>
#include <stddef.h>

/* What completes a URL; all heap, NULL at first. The user and the working directory are asked
 * for once, when a URL needs them: who keeps the users may be far away. One thread at a time.
 */
struct url_base {
    char *fs;     /* "hdfs://host:8020", "file://": without a "/" at its end */
    char *user;   /* whose home a relative path is below */
    char *folder; /* the working directory: the same for folders */
};

void url_base_release(struct url_base *b);
/* Sets the default filesystem. -EINVAL: *ret_why (constant) says why. */
int url_base_set(struct url_base *b, const char *fs, const char **ret_why);

/* The whole URL, heap. `host_given`: the store's settings name the host, which then isn't the
 * default filesystem's. -EINVAL as above; -ENOMEM. */
int url_resolve(struct url_base *b, const char *url, bool host_given, char **ret,
                const char **ret_why);

/* Bytes of the scheme, without ":"; 0: it has none. */
size_t url_scheme_len(const char *url);
/* Whether a URL holds a password, or something else that is nobody's business. */
bool url_has_secret(const char *url);

#endif
