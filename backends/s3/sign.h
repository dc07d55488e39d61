/* AWS Signature Version 4 and the percent-encoding it prescribes. Pure functions over text; any
 * thread. */
#ifndef RUNFS_BACKENDS_S3_SIGN_H
#define RUNFS_BACKENDS_S3_SIGN_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define S3_HASH_HEX         65 /* a SHA-256 in hexadecimal, with the NUL */
#define S3_DATE_LEN         17 /* "20130524T000000Z" with the NUL */
#define S3_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define S3_EMPTY_HASH       "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A name and its value: a query parameter or a header. Header names are lower case. */
struct s3_pair {
    const char *name;
    const char *value;
};

/* Whose signature, and for which service. */
struct s3_signer {
    const char *access_key;
    const char *secret_key;
    const char *region;
    const char *service; /* "s3" */
};

/* What is signed. */
struct s3_signed {
    const char *method;
    const char *path;              /* percent-encoded, as it is sent */
    const char *query;             /* from s3_canonical_query(); "" without one */
    const struct s3_pair *headers; /* all that are to be signed, `host` among them */
    size_t n_headers;
    const char *payload_hash; /* hexadecimal SHA-256 or S3_UNSIGNED_PAYLOAD */
    const char *date;         /* as s3_format_date() writes it; also the x-amz-date header */
};

/* Adds `len` bytes with everything but A-Z a-z 0-9 - . _ ~ (and "/" if wanted) as %XX. As
 * buf_add(). */
int s3_uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash);

/* Undoes percent-encoding in place, "+" means a space if wanted; returns the new length, or -1
 * for a broken escape. The result may hold NUL bytes; one more NUL ends it. */
ssize_t s3_uri_decode(char *text, bool plus_is_space);

/* Adds "a=1&b=" sorted by encoded name, as it is signed and as it is sent. */
int s3_canonical_query(struct buf *out, const struct s3_pair *params, size_t n);

/* Adds the canonical request, whose hash is signed; for tests. */
int s3_canonical_request(struct buf *out, const struct s3_signed *what);

/* Adds the value of the Authorization header. 0, -ENOMEM, -EFBIG, or -EIO when OpenSSL fails.
 */
int s3_sign(struct buf *out, const struct s3_signer *signer, const struct s3_signed *what);

/* "20130524T000000Z" for a CLOCK_REALTIME in ns. */
void s3_format_date(char out[S3_DATE_LEN], int64_t real_ns);

/* The SHA-256 of memory in lower-case hexadecimal. 0 or -EIO. */
int s3_sha256_hex(char out[S3_HASH_HEX], const void *data, size_t len);

#endif
