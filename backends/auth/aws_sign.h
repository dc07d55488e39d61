/* AWS Signature Version 4. Pure functions over text; any thread. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_SIGN_H
#define RUNFS_BACKENDS_AUTH_AWS_SIGN_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AWS_HASH_HEX         65 /* a SHA-256 in hexadecimal, with the NUL */
#define AWS_DATE_LEN         17 /* "20130524T000000Z" with the NUL */
#define AWS_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define AWS_EMPTY_HASH       "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A name and its value: a query parameter or a header. Header names are lower case. */
struct aws_pair {
    const char *name;
    const char *value;
};

/* Whose signature, and for which service. */
struct aws_signer {
    const char *access_key;
    const char *secret_key;
    const char *region;
    const char *service; /* "s3" */
};

/* What is signed. */
struct aws_signed {
    const char *method;
    const char *path;               /* percent-encoded, as it is sent */
    const char *query;              /* from aws_canonical_query(); "" without one */
    const struct aws_pair *headers; /* all that are to be signed, `host` among them */
    size_t n_headers;
    const char *payload_hash; /* hexadecimal SHA-256 or AWS_UNSIGNED_PAYLOAD */
    const char *date;         /* as aws_format_date() writes it; also the x-amz-date header */
};

/* Adds "a=1&b=" sorted by encoded name, as it is signed and as it is sent. */
int aws_canonical_query(struct buf *out, const struct aws_pair *params, size_t n);

/* Adds the canonical request, whose hash is signed; for tests. */
int aws_canonical_request(struct buf *out, const struct aws_signed *what);

/* Adds the value of the Authorization header. 0, -ENOMEM, -EFBIG, or -EIO when OpenSSL fails.
 */
int aws_sign(struct buf *out, const struct aws_signer *signer, const struct aws_signed *what);

/* "20130524T000000Z" for a CLOCK_REALTIME in ns. */
void aws_format_date(char out[AWS_DATE_LEN], int64_t real_ns);

/* The SHA-256 of memory in lower-case hexadecimal. 0 or -EIO. */
int aws_sha256_hex(char out[AWS_HASH_HEX], const void *data, size_t len);

#endif
