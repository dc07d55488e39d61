/* One set of AWS keys. */
#include "backends/auth/aws_keys.h"

#include "common/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void aws_free_secret(char *text)
{
    secret_free(text);
}

/* They travel in headers. */
static bool text_ok(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f)
            return false;
    return true;
}

int aws_keys_set(struct aws_keys *ret, const char *access, const char *secret,
                 const char *token)
{
    struct aws_keys k = {.expires_ns = AWS_KEYS_FOREVER};

    if (!access || !*access || !secret || !*secret || !text_ok(access) || !text_ok(secret))
        return -EINVAL;
    if (token && !text_ok(token))
        return -EINVAL;
    k.access_key = strdup(access);
    k.secret_key = strdup(secret);
    k.session_token = token && *token ? strdup(token) : NULL;
    if (!k.access_key || !k.secret_key || (token && *token && !k.session_token)) {
        aws_keys_release(&k);
        return -ENOMEM;
    }
    *ret = k;
    return 0;
}

int aws_keys_copy(struct aws_keys *ret, const struct aws_keys *from)
{
    int err = aws_keys_set(ret, from->access_key, from->secret_key, from->session_token);

    if (!err)
        ret->expires_ns = from->expires_ns;
    return err;
}

bool aws_keys_same(const struct aws_keys *a, const struct aws_keys *b)
{
    const char *x = a->session_token ? a->session_token : "";
    const char *y = b->session_token ? b->session_token : "";

    return a->access_key && b->access_key && strcmp(a->access_key, b->access_key) == 0 &&
           strcmp(a->secret_key, b->secret_key) == 0 && strcmp(x, y) == 0;
}

void aws_keys_release(struct aws_keys *k)
{
    free(k->access_key);
    aws_free_secret(k->secret_key);
    aws_free_secret(k->session_token);
    *k = (struct aws_keys){0};
}
