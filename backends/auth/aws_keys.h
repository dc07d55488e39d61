/* One set of AWS keys. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_KEYS_H
#define RUNFS_BACKENDS_AUTH_AWS_KEYS_H

#include "common/op.h"

#include <stdbool.h>

#define AWS_KEYS_FOREVER INT64_MAX

/* All heap. */
struct aws_keys {
    char *access_key;
    char *secret_key;
    char *session_token; /* NULL: none */
    int64_t expires_ns;  /* CLOCK_REALTIME; AWS_KEYS_FOREVER: nobody said */
};

/* Fills uninitialised `ret` with copies; `token` may be NULL or empty. 0, -ENOMEM, or -EINVAL
 * when half of the pair is missing or a text could not stand in a header. */
int aws_keys_set(struct aws_keys *ret, const char *access, const char *secret,
                 const char *token);
int aws_keys_copy(struct aws_keys *ret, const struct aws_keys *from);
/* Whether a server would take them for the same; `expires_ns` does not count. */
bool aws_keys_same(const struct aws_keys *a, const struct aws_keys *b);
/* Overwrites the secrets before it frees them. */
void aws_keys_release(struct aws_keys *k);
#define auto_keys __attribute__((cleanup(aws_keys_release)))

/* Overwrites a text and frees it; accepts NULL. */
void aws_free_secret(char *text);

#endif
