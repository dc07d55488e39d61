/* One search for keys, from the first place to the last. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_CHAIN_H
#define RUNFS_BACKENDS_AUTH_AWS_CHAIN_H

#include "backends/auth/aws_fetch.h"
#include "backends/auth/aws_profile.h"

/* Fills *ret and returns 0; else as aws_credentials_get(). */
int aws_chain_find(const struct aws_profiles *profiles, struct aws_fetch *fetch, struct op *op,
                   struct aws_keys *ret);

#endif
