/* What S3 servers answer with, read within the bounds of http/xml.h; garbage is -EPROTO. Any
 * thread. */
#ifndef RUNFS_BACKENDS_S3_XML_H
#define RUNFS_BACKENDS_S3_XML_H

#include "backends/store.h"
#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_PAGE_MAX 10000 /* entries of one listing page, parts of one page of parts */

/* <Error>: texts cut to fit, control characters replaced. All empty when there is none. */
struct s3_error {
    char code[64];
    char message[200];
    char request_id[64];
    char region[64];
};

/* True when the document is an <Error>. Anything else, garbage too, is false. */
bool s3_xml_error(const char *data, size_t len, struct s3_error *ret);

/* One name of a listing page. */
struct s3_entry {
    char *name;     /* the key as it is in the bucket, decoded; may hold any byte but NUL */
    bool is_prefix; /* a common prefix, ends in "/" */
    uint64_t size;
    int64_t mtime_ns;
    char etag[STORE_ETAG_MAX];
};

/* One answer to ListObjectsV2. */
struct s3_page {
    struct s3_entry *entries;
    size_t n_entries;
    uint64_t unusable; /* names with NUL inside */
    bool truncated;
    char *token; /* for the next page; NULL without one */
};
int s3_xml_list(const char *data, size_t len, struct s3_page *ret);
void s3_page_release(struct s3_page *page);

/* One answer to ListParts. */
struct s3_part {
    unsigned number;
    uint64_t size;
    char etag[STORE_ETAG_MAX];
    char crc32c[16]; /* base64; "" when the server keeps none */
};
struct s3_parts_page {
    struct s3_part *parts;
    size_t n_parts;
    bool truncated;
    unsigned next; /* part-number-marker of the next page */
};
int s3_xml_parts(const char *data, size_t len, struct s3_parts_page *ret);
void s3_parts_page_release(struct s3_parts_page *page);

/* The uploads that an answer to ListMultipartUploads lists; encoded keys are decoded. A
 * non-zero visit ends it. */
int s3_xml_uploads(const char *data, size_t len,
                   int (*visit)(void *arg, const char *key, const char *id, int64_t begun_ns),
                   void *arg);

/* The keys that a DeleteObjects answer calls failed. A non-zero visit ends it. */
int s3_xml_delete_errors(const char *data, size_t len,
                         int (*visit)(void *arg, const char *key, const char *code), void *arg);

/* The tags of an object, from its <Tagging>. A non-zero visit ends it. */
int s3_xml_tags(const char *data, size_t len,
                int (*visit)(void *arg, const char *key, const char *value), void *arg);

/* An ETag as the server writes it, without quotes; -EPROTO when it does not fit. */
int s3_etag_copy(char out[STORE_ETAG_MAX], const char *text);

/* "2026-11-21T04:06:27.123Z" to ns, whole seconds only: HEAD has no more. -EPROTO. */
int s3_parse_time(const char *text, int64_t *ret_ns);

#endif
