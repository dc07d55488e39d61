/* End-to-end checksums: CRC-32C of what is sent, which the server compares and keeps, and of
 * whole objects that are read. A server that refuses them gets Content-MD5, which every one
 * knows, and is not asked again. */
#include "backends/s3/s3.h"

#include "common/crc32c.h"
#include "common/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/md5.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define CHUNK  (256 * 1024)
#define PREFIX "x-amz-checksum-"

/* --- sending --- */

/* Visits the content from first byte to last. */
static int read_source(struct op *op, struct source *src,
                       int (*visit)(void *arg, const void *data, size_t len), void *arg)
{
    auto_free char *chunk = malloc(CHUNK);

    if (!chunk)
        return op_fail(op, -ENOMEM, "out of memory");
    for (uint64_t off = 0; off < src->size;) {
        uint64_t left = src->size - off;
        ssize_t got = src->pread(src, chunk, left < CHUNK ? left : CHUNK, off);
        int err;

        if (got <= 0)
            return op_fail(op, got ? (int)got : -EBUSY, "the content ends at byte %llu",
                           (unsigned long long)off);
        err = visit(arg, chunk, (size_t)got);
        if (err)
            return op_fail(op, err, "OpenSSL can't hash");
        off += (uint64_t)got;
    }
    return 0;
}

/* What one reading makes of a content: its CRC-32C and, where they are asked for, digests. */
struct sums {
    struct checksum crc;
    EVP_MD_CTX *md5, *sha256;
};

static int add_to_sums(void *arg, const void *data, size_t len)
{
    struct sums *s = arg;

    checksum_add(&s->crc, data, len);
    if (s->md5 && !EVP_DigestUpdate(s->md5, data, len))
        return -EIO;
    return s->sha256 && !EVP_DigestUpdate(s->sha256, data, len) ? -EIO : 0;
}

static bool digest_begin(EVP_MD_CTX **ctx, const EVP_MD *kind)
{
    *ctx = EVP_MD_CTX_new();
    return *ctx && EVP_DigestInit_ex(*ctx, kind, NULL);
}

static bool digest_end(EVP_MD_CTX *ctx, unsigned char *ret)
{
    return !ctx || EVP_DigestFinal_ex(ctx, ret, NULL);
}

/* `md5` and `sha256` may be NULL. */
static int sum_source(struct op *op, struct source *src, struct checksum *crc,
                      unsigned char md5[MD5_DIGEST_LENGTH],
                      unsigned char sha256[SHA256_DIGEST_LENGTH])
{
    struct sums s = {.crc = {.kind = CHECKSUM_CRC32C}};
    bool ready = (!md5 || digest_begin(&s.md5, EVP_md5())) &&
                 (!sha256 || digest_begin(&s.sha256, EVP_sha256()));
    int err = ready ? read_source(op, src, add_to_sums, &s) : -EIO;

    if (!err && (!digest_end(s.md5, md5) || !digest_end(s.sha256, sha256)))
        ready = false;
    if (!ready)
        err = op_fail(op, -EIO, "OpenSSL has no MD5 or SHA-256");
    EVP_MD_CTX_free(s.md5);
    EVP_MD_CTX_free(s.sha256);
    *crc = s.crc;
    return err;
}

static void add_md5(struct s3_request *r, const unsigned char hash[MD5_DIGEST_LENGTH])
{
    unsigned char text[32];

    EVP_EncodeBlock(text, hash, MD5_DIGEST_LENGTH);
    s3_fields_add(&r->headers, "content-md5", (const char *)text);
}

void s3_checksum_text(const struct checksum *sum, char ret[S3_CHECKSUM_MAX])
{
    unsigned char big_endian[4];

    for (int i = 0; i < 4; i++)
        big_endian[i] = (unsigned char)(sum->value >> (24 - 8 * i));
    EVP_EncodeBlock((unsigned char *)ret, big_endian, sizeof(big_endian));
}

static void hash_text(const unsigned char hash[SHA256_DIGEST_LENGTH], char ret[AWS_HASH_HEX])
{
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

int s3_add_checksum(struct s3 *s, struct op *op, struct s3_request *r, struct source *src,
                    char ret[S3_CHECKSUM_MAX])
{
    unsigned char md5[MD5_DIGEST_LENGTH] = {0}, sha256[SHA256_DIGEST_LENGTH] = {0};
    bool old = atomic_load(&s->no_checksums);
    /* TLS says who sends the content; without it the signature has to, as botocore's does. */
    bool signs = !s->endpoint.https && !s->anonymous;
    struct checksum crc;
    int err = sum_source(op, src, &crc, old ? md5 : NULL, signs ? sha256 : NULL);

    ret[0] = '\0';
    if (err)
        return err;
    if (signs) {
        hash_text(sha256, r->body_hash);
        r->payload_hash = r->body_hash;
    }
    if (old) {
        add_md5(r, md5);
        return 0;
    }
    s3_checksum_text(&crc, ret);
    s3_fields_add(&r->headers, PREFIX "crc32c", ret);
    return 0;
}

int s3_same_as_part(struct op *op, struct source *src, const struct s3_part *part)
{
    unsigned char hash[MD5_DIGEST_LENGTH];
    char text[S3_CHECKSUM_MAX], hex[2 * MD5_DIGEST_LENGTH + 1];
    struct checksum crc;
    int err;

    if (!part->crc32c[0] && strlen(part->etag) != 2 * sizeof(hash))
        return 0;
    err = sum_source(op, src, &crc, part->crc32c[0] ? NULL : hash, NULL);
    if (err)
        return err;
    if (part->crc32c[0]) {
        s3_checksum_text(&crc, text);
        return strcmp(text, part->crc32c) == 0;
    }
    for (size_t i = 0; i < sizeof(hash); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    return strcmp(hex, part->etag) == 0;
}

/* --- refusals --- */

static bool is_checksum(const char *name)
{
    return strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0;
}

bool s3_checksum_refused(const struct s3_request *r)
{
    static const char *const codes[] = {"InvalidArgument", "InvalidRequest", "NotImplemented",
                                        "NotSupported", "UnsupportedHeader"};
    bool sent = false, may = r->answer.status == 501;

    for (size_t i = 0; i < r->headers.n; i++)
        sent |= is_checksum(r->headers.items[i].name);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        may |= strcmp(r->error.code, codes[i]) == 0;
    return sent && may;
}

int s3_drop_checksum(struct op *op, struct s3_request *r)
{
    struct s3_fields *f = &r->headers;
    size_t kept = 0;

    for (size_t i = 0; i < f->n; i++) {
        if (is_checksum(f->items[i].name)) {
            free((char *)f->items[i].name);
            free((char *)f->items[i].value);
        } else {
            f->items[kept++] = f->items[i];
        }
    }
    f->n = kept;
    if (!r->body || strcmp(r->method, "PUT") != 0)
        return 0;
    struct checksum crc;
    unsigned char md5[MD5_DIGEST_LENGTH];
    int err = sum_source(op, r->body, &crc, md5, NULL);
    if (!err)
        add_md5(r, md5);
    return err;
}

/* --- reading --- */

/* How large the objects were whose versions were met lately: "version: size" in a table where
 * the next one of the same slot wins. Being wrong costs a request. */

static uint32_t etag_hash(const char *etag)
{
    return crc32c(0, etag, strlen(etag));
}

void s3_size_note(struct s3 *s, const char *etag, uint64_t size)
{
    uint32_t hash = etag_hash(etag);

    if (etag[0] && size < UINT32_MAX)
        atomic_store_explicit(&s->sizes[hash % S3_SIZES], (uint64_t)hash << 32 | (size + 1),
                              memory_order_relaxed);
}

bool s3_size_within(struct s3 *s, const char *etag, uint64_t max)
{
    uint32_t hash = etag_hash(etag);
    uint64_t slot = atomic_load_explicit(&s->sizes[hash % S3_SIZES], memory_order_relaxed);

    return slot >> 32 == hash && (uint32_t)slot > 0 && (uint32_t)slot - 1 <= max;
}

/* The checksums that servers keep of whole objects, the best first. */

static const struct {
    const char *header;
    size_t bytes;
    enum checksum_kind kind;
} algorithms[] = {
    {PREFIX "crc32c", 4, CHECKSUM_CRC32C},
    {PREFIX "crc64nvme", 8, CHECKSUM_CRC64NVME},
    {PREFIX "crc32", 4, CHECKSUM_CRC32},
};

/* A big-endian number in base64; composites of parts' checksums ("...-3") are none. */
static bool parse_sum(const char *text, size_t bytes, uint64_t *ret)
{
    unsigned char raw[16];
    size_t len = (bytes + 2) / 3 * 4;

    if (!text || strlen(text) != len ||
        EVP_DecodeBlock(raw, (const unsigned char *)text, (int)len) < (int)bytes)
        return false;
    *ret = 0;
    for (size_t i = 0; i < bytes; i++)
        *ret = *ret << 8 | raw[i];
    return true;
}

void s3_checksum_of_answer(const struct http_answer *a, struct checksum *ret)
{
    const char *type = http_answer_header(a, PREFIX "type");

    *ret = (struct checksum){0};
    if (type && strcasecmp(type, "COMPOSITE") == 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++)
        if (parse_sum(http_answer_header(a, algorithms[i].header), algorithms[i].bytes,
                      &ret->value)) {
            ret->kind = algorithms[i].kind;
            return;
        }
}

void s3_checksum_of_text(const char *crc32c, struct checksum *ret)
{
    *ret = (struct checksum){0};
    if (parse_sum(crc32c, 4, &ret->value))
        ret->kind = CHECKSUM_CRC32C;
}

static int hold_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct s3_buffered *h = container_of(sink, struct s3_buffered, base);

    if (off + len > h->size)
        return -EPROTO;
    memcpy(h->data + off, data, len);
    return 0;
}

int s3_buffer_begin(struct s3_buffered *h, const struct http_answer *a, uint64_t size,
                    struct op *op, struct sink **sink)
{
    s3_checksum_of_answer(a, &h->expected);
    if (size == 0 || size > S3_VERIFY_MAX || h->expected.kind == CHECKSUM_NONE)
        return 0;
    free(h->data);
    h->data = malloc(size);
    if (!h->data)
        return op_fail(op, -ENOMEM, "out of memory");
    h->base.write = hold_write;
    h->size = size;
    h->to = *sink;
    *sink = &h->base;
    return 0;
}

int s3_buffer_end(struct s3_buffered *h, struct op *op)
{
    struct checksum sum = {.kind = h->expected.kind};

    if (!h->data)
        return 0;
    checksum_add(&sum, h->data, h->size);
    if (!checksum_same(&sum, &h->expected))
        return op_fail(op, -EIO, "the content does not match its checksum");
    return h->to->write(h->to, h->data, h->size, 0);
}
