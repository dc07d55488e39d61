/* What the files of the S3 driver share: the open store, one signed request, and answers as
 * objects. open.c opens, request.c signs and sends, object.c says what requests and answers
 * mean for an object, s3.c reads, write.c writes objects and directories, upload.c uploads in
 * parts, checksum.c verifies, copy.c copies at the server. */
#ifndef RUNFS_BACKENDS_S3_S3_H
#define RUNFS_BACKENDS_S3_S3_H

#include "backends/auth/aws_credentials.h"
#include "backends/auth/aws_sign.h"
#include "backends/http/http.h"
#include "backends/s3/url.h"
#include "backends/s3/xml.h"
#include "backends/store.h"
#include "common/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define S3_KEY_MAX       (STORE_KEY_MAX + 1024) /* a full key: prefix, "/", key, "/" */
#define S3_KEY_BYTES     1024                   /* what the service takes */
#define S3_XML_BODY_MAX  (16 * 1024 * 1024)     /* bytes of an XML answer */
#define S3_PART_SIZE     (16ULL * 1024 * 1024)
#define S3_PART_MIN      (5ULL * 1024 * 1024)
#define S3_PART_MAX      (5ULL * 1024 * 1024 * 1024)
#define S3_PARTS_MAX     10000
#define S3_COPY_PART     (128ULL * 1024 * 1024)
#define S3_PUT_MAX       (5ULL * 1024 * 1024 * 1024)
#define S3_SLOW_ANSWER   (10 * 60 * NS_PER_SEC) /* Complete and copies may think so long */
#define S3_OCTET_STREAM  "application/octet-stream"
#define S3_CHECKSUM_MAX  16
#define S3_VERIFY_MAX    (8ULL * 1024 * 1024) /* larger objects are read without verification */
#define S3_SIZES         4096                 /* versions whose size is remembered */
#define S3_SSE           "x-amz-server-side-encryption"
#define S3_SSE_KEY       "x-amz-server-side-encryption-aws-kms-key-id"
#define S3_STORAGE_CLASS "x-amz-storage-class"
#define S3_DIRECTORY     "application/x-directory"

/* Bytes of the largest object: AWS has 48.8 TiB, or 10,000 parts of 5 GiB (User Guide, "Amazon
 * S3 multipart upload limits"; 5 TiB before December 2025), other servers up to 50 TiB. */
#define S3_SIZE_MAX (50ULL << 40)

struct s3 {
    struct store base;
    struct http *http;
    char bucket[S3_BUCKET_MAX];
    char *prefix;       /* of all keys, "" or "a/b" */
    char *state_prefix; /* of those below STORE_STATE_DIR; NULL: they are like all others */
    struct aws_endpoint endpoint;
    bool path_style;
    bool anonymous;
    bool request_payer;
    char *sse, *sse_kms_key_id, *storage_class; /* of new objects; NULL: the bucket's default */
    struct aws_settings aws;
    struct aws_credentials *credentials; /* NULL: anonymous */
    struct mutex lock;                   /* guards what is marked */
    char region[AWS_REGION_MAX];         /* under lock: the server may correct it */
    bool region_corrected;               /* under lock: once is enough */
    uint64_t copy_max;           /* bytes of one CopyObject; above it a copy goes in parts */
    uint64_t copy_part;          /* bytes of each, or more where the parts would be too many */
    atomic_bool no_checksums;    /* the server refused them */
    atomic_bool no_delete_match; /* the server refused conditional deletes */
    atomic_bool no_empty_match;  /* and conditions of what is written anew as it is empty */
    atomic_int rewriting;        /* enum rewriting: how new attributes get to an object */
    atomic_ullong sizes[S3_SIZES]; /* s3_size_note()'s */
    atomic_llong clock_skew_ns;    /* the server's clock less ours, when it complained */
};

/* Fills a zeroed store, whose lock is ready, from a URL, options and AWS's settings, without
 * keys and without asking anybody; -EINVAL with a text for what can't be. What is half open is
 * closed as an open one. */
int s3_configure(struct s3 *s, const char *url, const struct store_config *config,
                 struct op *op);
/* The same, and ready for requests: also what aws_credentials_get() says of the keys. */
int s3_open(struct s3 *s, const char *url, const struct store_config *config, struct op *op);

/* Pairs that own their texts; an error sticks and is returned by s3_run(). */
struct s3_fields {
    struct aws_pair *items;
    size_t n;
    int err;
};
void s3_fields_release(struct s3_fields *f);
void s3_fields_add(struct s3_fields *f, const char *name, const char *value);
void s3_fields_addf(struct s3_fields *f, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* For s3_attrs_write(): `arg` is the s3_fields. */
int s3_fields_add_header(void *arg, const char *name, const char *value);

/* One request and its answer; release it with s3_request_release(). */
struct s3_request {
    const char *what; /* for messages: "put" */
    const char *method;
    char key[S3_KEY_MAX]; /* in the bucket; "" is the bucket itself */
    struct s3_fields query;
    struct s3_fields headers; /* lower-case names; host, date and hash are added */
    struct source *body;
    const char *payload_hash;     /* NULL: not signed, or that of nothing without a body */
    char body_hash[AWS_HASH_HEX]; /* s3_add_checksum()'s, to which payload_hash points then */
    struct http_body_sink *to_sink;
    int64_t silence_ns;
    bool once; /* as in struct http_request */
    /* The answer. */
    struct http_answer answer;
    struct s3_error error; /* code "" when the server gave none */
};

/* The key in the bucket, with `slash` of the directory's marker; -ENAMETOOLONG. */
int s3_full_key(const struct s3 *s, const char *key, bool slash, char ret[S3_KEY_MAX]);

/* Starts a request on `key` of the store; with `slash` on the directory marker "key/".
 * -ENAMETOOLONG with a text. */
int s3_request_init(struct s3 *s, struct op *op, struct s3_request *r, const char *what,
                    const char *method, const char *key, bool slash);
void s3_request_release(struct s3_request *r);
#define auto_request __attribute__((cleanup(s3_request_release)))

/* Signs, sends, and judges the answer: 0 for 2xx without an <Error> inside, else a negative
 * errno with op->why and op->retry_after_ns. Corrects region and clock once by itself. */
int s3_run(struct s3 *s, struct op *op, struct s3_request *r);

/* The errno of an S3 error code, 0 for one that is not known. */
int s3_code_error(const char *code);

/* Adds If-Match or If-None-Match for `etag` as in store.h (NULL: neither). */
void s3_add_condition(struct s3_request *r, const char *etag);
/* The errno of a conditional write: an object that is gone is not the version asked for, and a
 * server that does not know the condition can't. */
int s3_condition_error(const struct s3_request *r, const char *etag, int err);
/* Whether an answer may mean that the server knows no such request, or condition. Only S3 says
 * so: what merely stands in between refuses with other words, and some other time. */
bool s3_refused(const struct s3_request *r);

/* Adds the encryption that new objects get and, for `content` (markers cost less without), the
 * storage class; what `headers` names already stays. */
void s3_add_placement(const struct s3 *s, struct s3_fields *headers, bool content);

/* Signs the body's hash rather than leaving it unsigned; for small bodies in memory. */
int s3_body_hash(struct op *op, const struct mem_source *body, char ret_hash[AWS_HASH_HEX]);
/* Adds the checksum of a source, which costs one reading of it, and over plain http signs the
 * content; ret is "" where the server refuses checksums. `r` must not move after. */
int s3_add_checksum(struct s3 *s, struct op *op, struct s3_request *r, struct source *src,
                    char ret[S3_CHECKSUM_MAX]);
/* Whether a source is what the server keeps as this part: compared by CRC-32C, else by MD5
 * where the ETag is one. 1, 0 (also when it told neither) or a negative errno. */
int s3_same_as_part(struct op *op, struct source *src, const struct s3_part *part);
/* Whether the answer may mean that the server does not know the checksums that were sent. */
bool s3_checksum_refused(const struct s3_request *r);
/* Takes them out again, for another attempt. */
int s3_drop_checksum(struct op *op, struct s3_request *r);

/* Remembers for a while how large a version of an object is; whether a version is known to have
 * at most `max` bytes. */
void s3_size_note(struct s3 *s, const char *etag, uint64_t size);
bool s3_size_within(struct s3 *s, const char *etag, uint64_t max);

/* Buffers a whole object until its checksum is verified. Zeroed is ready; free `data`. */
struct s3_buffered {
    struct sink base;
    struct sink *to;
    char *data; /* NULL: nothing is buffered, there is no checksum */
    uint64_t size;
    struct checksum expected;
};
/* The checksum of the whole object that an answer names, none without. */
void s3_checksum_of_answer(const struct http_answer *a, struct checksum *ret);
/* That of one part, or of a whole put, as s3_add_checksum() gave it. */
void s3_checksum_of_text(const char *crc32c, struct checksum *ret);
/* The text of a CRC-32C. */
void s3_checksum_text(const struct checksum *sum, char ret[S3_CHECKSUM_MAX]);
/* With an answer of `size` bytes that names a checksum, puts itself before *sink. */
int s3_buffer_begin(struct s3_buffered *h, const struct http_answer *a, uint64_t size,
                    struct op *op, struct sink **sink);
/* Delivers what was buffered; -EIO when it is damaged. */
int s3_buffer_end(struct s3_buffered *h, struct op *op);

/* Fills size (the Content-Length), etag, time and attributes from an answer about an object. */
int s3_object_from_answer(struct op *op, const struct http_answer *a, bool is_dir,
                          struct object *ret);
/* The object that a write made: `size` and attrs as sent, the rest from the answer. */
int s3_object_written(struct op *op, const struct http_answer *a, uint64_t size,
                      const char *etag, const struct attrs *attrs, struct object *ret);
/* HEAD; the request's answer stays for the caller to look at. */
int s3_head(struct s3 *s, struct op *op, struct s3_request *r, const char *what,
            const char *key, bool slash);

/* What has to do where a condition is refused: a HEAD just before. `etag` as in store.h;
 * -ESTALE when another version is there. */
int s3_look_at(struct s3 *s, struct op *op, const char *what, const char *key, bool slash,
               const char *etag);

/* After a HEAD's 404, which does not tell a missing bucket from a missing key: -ENOENT with the
 * text that is there when the bucket still answers and has no such object now either; -EAGAIN
 * when it has one; else why not. */
int s3_confirm_missing(struct s3 *s, struct op *op, const char *key);

/* Fails with "what s3://bucket/key: text". */
int s3_fail(struct s3 *s, struct op *op, const struct s3_request *r, int err, const char *text);

/* store_ops of the other files. */
void s3_close(struct store *st);
int s3_put(struct store *st, struct op *op, const char *key, const char *etag,
           struct source *src, const struct attrs *attrs, struct object *ret_obj);
int s3_remove(struct store *st, struct op *op, const char *const *keys,
              const char *const *etags, size_t n, int *errs);
int s3_mkdir(struct store *st, struct op *op, const char *key, const struct attrs *attrs,
             struct object *ret_obj);
int s3_rmdir(struct store *st, struct op *op, const char *key);
int s3_upload_begin(struct store *st, struct op *op, const char *key, const struct attrs *attrs,
                    struct upload **ret_up);
int s3_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src);
int s3_upload_commit(struct upload *up, struct op *op, const char *etag,
                     struct object *ret_obj);
int s3_upload_abort(struct upload *up, struct op *op);
void s3_upload_detach(struct upload *up);
char *s3_upload_token(struct upload *up);
int s3_upload_resume(struct store *st, struct op *op, const char *key, const char *token,
                     int (*visit)(void *arg, const struct part *part), void *arg,
                     struct upload **ret_up);
int s3_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src);
int s3_upload_sweep(struct store *st, struct op *op, const char *key, int64_t since_ns,
                    const char *keep);
int s3_copy(struct store *st, struct op *op, const char *from, const char *from_etag,
            const char *to, const char *to_etag, const struct attrs *attrs,
            struct object *ret_obj);
int s3_set_attributes(struct store *st, struct op *op, const char *key, const char *etag,
                      const struct attrs *attrs, struct object *ret_obj);

/* For copy.c, which copies large objects in parts. */
struct s3_upload;
/* As s3_upload_begin(), with content type and foreign metadata already in `headers`. */
int s3_upload_begin_with(struct s3 *s, struct op *op, const char *key, bool slash,
                         const struct s3_fields *headers, struct upload **ret_up);
/* One part taken from bytes [off, off+len) of object `from` ("bucket/key", encoded), which is
 * `source`: its size and, where it has an ETag, its version. */
int s3_upload_copy_part(struct upload *up, struct op *op, unsigned number, const char *from,
                        const struct object *source, uint64_t off, uint64_t len);

static inline struct s3 *s3_of(struct store *st)
{
    return (struct s3 *)(void *)((char *)st - offsetof(struct s3, base));
}

#endif
