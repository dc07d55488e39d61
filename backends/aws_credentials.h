/* Keys and settings from where AWS's own tools keep them: the environment, ~/.aws/credentials
 * and
 * ~/.aws/config. Reads files and environment; call it before threads change either. */
#ifndef RUNFS_BACKENDS_AWS_CREDENTIALS_H
#define RUNFS_BACKENDS_AWS_CREDENTIALS_H

#include "common/op.h"

#include <stdbool.h>

/* What was found; NULL where nothing was said. All heap. */
struct aws_settings {
    char *access_key;
    char *secret_key;
    char *session_token;
    char *region;
    char *endpoint_url;
    char *ca_bundle;
    char *addressing_style; /* "path", "virtual" or "auto" */
};

/* Overwrites the secrets before it frees them. */
void aws_settings_release(struct aws_settings *s);

/* `profile` (may be NULL) is the one the user asked for by option; then its keys go before
 * those of the environment. `anonymous` asks for no keys. -EINVAL with a text for a profile
 * that does not exist, half a key pair, or an unreadable file; -EACCES when there are no keys:
 * the text names every place that was looked at. */
int aws_settings_load(const char *profile, bool anonymous, struct op *op,
                      struct aws_settings *ret);

#endif
