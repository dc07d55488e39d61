/* Writing to S3 in one request: objects, directory markers, removal. */
#include "backends/s3/s3.h"

#include "backends/http/xml.h"
#include "backends/s3/attrs.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/md5.h>
#include <stdio.h>
#include <string.h>

#define DELETE_BATCH 1000
/* Only AWS itself is known to look at the ETags of a batch: elsewhere so few keys go one by
 * one. */
#define SINGLY_MAX      8
#define DELETE_BODY_MAX (8 * 1024 * 1024)

int s3_put(struct store *st, struct op *op, const char *key, const char *etag,
           struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    struct s3 *s = s3_of(st);
    auto_request struct s3_request r;
    char checksum[S3_CHECKSUM_MAX];
    int err = s3_request_init(s, op, &r, "put", "PUT", key, false);

    if (err)
        return err;
    s3_fields_add(&r.headers, "content-type", S3_OCTET_STREAM);
    s3_add_condition(&r, etag);
    s3_add_placement(s, &r.headers, true);
    if (attrs)
        (void)s3_attrs_write(attrs, s3_fields_add_header, &r.headers);
    err = s3_add_checksum(s, op, &r, src, checksum);
    if (err)
        return err;
    r.body = src;
    err = s3_condition_error(&r, etag, s3_run(s, op, &r));
    if (err || !ret_obj)
        return err;
    if (atomic_load(&s->no_checksums)) /* refused just now */
        checksum[0] = '\0';
    err = s3_object_written(op, &r.answer, src->size, NULL, attrs, ret_obj);
    if (err)
        return err;
    s3_checksum_of_text(checksum, &ret_obj->checksum);
    s3_size_note(s, ret_obj->etag, src->size);
    return 0;
}

int s3_mkdir(struct store *st, struct op *op, const char *key, const struct attrs *attrs,
             struct object *ret_obj)
{
    struct s3 *s = s3_of(st);
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, "mkdir", "PUT", key, true);

    if (err)
        return err;
    if (ret_obj)
        *ret_obj = (struct object){.is_prefix = true};
    if (!r.key[0]) /* a bucket is there */
        return 0;
    s3_fields_add(&r.headers, "content-type", S3_DIRECTORY);
    s3_add_placement(s, &r.headers, false);
    if (attrs)
        (void)s3_attrs_write(attrs, s3_fields_add_header, &r.headers);
    err = s3_run(s, op, &r);
    return err || !ret_obj ? err : s3_object_written(op, &r.answer, 0, NULL, attrs, ret_obj);
}

/* The server says in so many words that it has no conditions, and took the same without. */
static void remember_refusal(struct s3 *s)
{
    if (!atomic_exchange(&s->no_delete_match, true))
        log_warn("%s knows no conditional removals: a version that another node puts in the "
                 "moment before one is removed with it",
                 s->base.url);
}

enum refusal {
    REFUSAL_NONE,
    REFUSAL_MAYBE, /* of the condition, or of something else */
    REFUSAL_SURE,  /* of something that the server does not know */
};

/* ret_refused may be NULL. */
static int remove_one(struct s3 *s, struct op *op, const char *what, const char *key,
                      bool slash, const char *etag, enum refusal *ret_refused)
{
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, what, "DELETE", key, slash);

    if (err)
        return err;
    s3_add_condition(&r, etag);
    err = s3_run(s, op, &r);
    if (ret_refused && err && s3_refused(&r))
        *ret_refused =
            strcmp(r.error.code, "NotImplemented") == 0 ? REFUSAL_SURE : REFUSAL_MAYBE;
    if (err != -ENOENT)
        return err;
    /* Only this means that what shall go is not there. */
    return strcmp(r.error.code, "NoSuchKey") == 0 ? 0
                                                  : s3_fail(s, op, &r, -EPROTO, r.error.code);
}

/* Without a condition only what was looked at just before. */
static int remove_looked_at(struct s3 *s, struct op *op, const char *key, const char *etag)
{
    int err = s3_look_at(s, op, "remove", key, false, etag);

    return err ? err : remove_one(s, op, "remove", key, false, NULL, NULL);
}

static int remove_version(struct s3 *s, struct op *op, const char *key, const char *etag)
{
    enum refusal refused = REFUSAL_NONE;

    if (!etag)
        return remove_one(s, op, "remove", key, false, NULL, NULL);
    if (atomic_load(&s->no_delete_match))
        return remove_looked_at(s, op, key, etag);
    int err = remove_one(s, op, "remove", key, false, etag, &refused);
    if (refused == REFUSAL_NONE)
        return err;
    err = remove_looked_at(s, op, key, etag);
    if (!err && refused == REFUSAL_SURE)
        remember_refusal(s);
    return err;
}

int s3_rmdir(struct store *st, struct op *op, const char *key)
{
    return remove_one(s3_of(st), op, "rmdir", key, true, NULL, NULL);
}

/* --- many at once --- */

struct batch {
    struct s3 *s;
    struct op *op;
    const char *const *keys;
    const char *const *etags; /* NULL: none */
    int *errs;                /* one for each key; not NULL */
    size_t n;
};

static int add_key(struct batch *b, struct buf *body, const char *key, const char *etag)
{
    auto_buf struct buf escaped = BUF_INIT(DELETE_BODY_MAX);
    int err = b->s->state_prefix && path_below(STORE_STATE_DIR, key) ? -EINVAL : 0;

    if (!err && *b->s->prefix)
        err = xml_escape(&escaped, b->s->prefix);
    if (!err && *b->s->prefix)
        err = buf_addc(&escaped, '/');
    if (!err)
        err = xml_escape(&escaped, key);
    if (!err)
        err = buf_addf(body, "<Object><Key>%s</Key>", escaped.data);
    if (!err && etag && (err = buf_adds(body, "<ETag>\"")) == 0)
        err = xml_escape(body, etag);
    if (!err && etag)
        err = buf_adds(body, "\"</ETag>");
    return err ? err : buf_adds(body, "</Object>");
}

/* The request's text; *ret_batched says how many keys are in it. The others can't be written in
 * XML, or are not below the prefix that all of it shares, and go one by one. */
static int build_delete(struct batch *b, struct buf *body, bool *in_xml, size_t *ret_batched)
{
    int err = buf_adds(body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
                             "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                             "<Quiet>true</Quiet>");

    *ret_batched = 0;
    for (size_t i = 0; i < b->n && !err; i++) {
        size_t len = body->len;
        int r = add_key(b, body, b->keys[i], b->etags ? b->etags[i] : NULL);

        in_xml[i] = r == 0;
        *ret_batched += r == 0;
        if (r && r != -EINVAL)
            err = r;
        else if (r)
            body->len = len;
    }
    if (!err)
        err = buf_adds(body, "</Delete>");
    return err ? op_fail(b->op, err, "remove: the request can't be built") : 0;
}

static int note_failure(void *arg, const char *key, const char *code)
{
    struct batch *b = arg;
    const char *below = key;
    size_t len = strlen(b->s->prefix);

    if (strcmp(code, "NoSuchKey") == 0)
        return 0;
    if (len) {
        if (strncmp(key, b->s->prefix, len) != 0 || key[len] != '/')
            return -EPROTO;
        below = key + len + 1;
    }
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->keys[i], below) == 0) {
            int err = s3_code_error(code);

            b->errs[i] = err ? err : -EIO;
            (void)op_fail(b->op, b->errs[i], "remove s3://%s/%.160s: %.60s", b->s->bucket, key,
                          code);
            return 0;
        }
    return -EPROTO;
}

static int add_md5(struct op *op, struct s3_request *r, const struct buf *body)
{
    unsigned char hash[MD5_DIGEST_LENGTH], text[32];

    if (!EVP_Digest(body->data, body->len, hash, NULL, EVP_md5(), NULL))
        return op_fail(op, -EIO, "OpenSSL has no MD5");
    EVP_EncodeBlock(text, hash, sizeof(hash));
    s3_fields_add(&r->headers, "content-md5", (const char *)text);
    return 0;
}

static int send_delete(struct batch *b, const struct buf *body, bool *ret_refused)
{
    auto_request struct s3_request r;
    struct mem_source src;
    char hash[AWS_HASH_HEX];
    int err = s3_request_init(b->s, b->op, &r, "remove", "POST", "", false);

    if (err)
        return err;
    r.key[0] = '\0';
    mem_source_init(&src, body->data, body->len);
    s3_fields_add(&r.query, "delete", "");
    s3_fields_add(&r.headers, "content-type", "application/xml");
    err = add_md5(b->op, &r, body);
    if (!err)
        err = s3_body_hash(b->op, &src, hash);
    if (err)
        return err;
    r.payload_hash = hash;
    r.body = &src.base;
    err = s3_run(b->s, b->op, &r);
    *ret_refused = err && s3_refused(&r);
    if (err)
        return err;
    err = s3_xml_delete_errors(r.answer.body.data, r.answer.body.len, note_failure, b);
    return err ? s3_fail(b->s, b->op, &r, err, "the answer is no usable XML") : 0;
}

static int remove_singly(struct batch *b, const bool *skip)
{
    for (size_t i = 0; i < b->n; i++)
        if (!skip || !skip[i])
            b->errs[i] = remove_version(b->s, b->op, b->keys[i], b->etags ? b->etags[i] : NULL);
    return 0;
}

/* Sends one request with all keys that fit into it. -EOPNOTSUPP also where the server may have
 * refused the versions in it: requests for one key each show which. */
static int send_batch(struct batch *b, bool *in_xml, size_t *ret_batched)
{
    auto_buf struct buf body = BUF_INIT(DELETE_BODY_MAX);
    bool refused = false;
    int err = build_delete(b, &body, in_xml, ret_batched);

    if (!err && *ret_batched)
        err = send_delete(b, &body, &refused);
    return b->etags && refused ? -EOPNOTSUPP : err;
}

/* Sets errs[] of up to DELETE_BATCH keys. */
static void remove_batch(struct batch *b)
{
    bool in_xml[DELETE_BATCH] = {false};
    size_t batched;
    int err;

    memset(b->errs, 0, b->n * sizeof(*b->errs));
    if (b->n == 1 || (b->etags && b->n <= SINGLY_MAX && b->s->endpoint.custom)) {
        (void)remove_singly(b, NULL);
        return;
    }
    err = send_batch(b, in_xml, &batched);
    if (err == -EOPNOTSUPP) { /* Google's S3 has no batches */
        (void)remove_singly(b, NULL);
        return;
    }
    for (size_t i = 0; i < b->n && err; i++)
        b->errs[i] = err;
    if (!err && batched < b->n)
        (void)remove_singly(b, in_xml);
}

int s3_remove(struct store *st, struct op *op, const char *const *keys,
              const char *const *etags, size_t n, int *errs)
{
    auto_free int *own = errs ? NULL : calloc(n ? n : 1, sizeof(*own));
    int *all = errs ? errs : own;

    if (!all)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t at = 0; at < n; at += DELETE_BATCH) {
        struct batch b = {.s = s3_of(st),
                          .op = op,
                          .keys = keys + at,
                          .etags = etags ? etags + at : NULL,
                          .errs = all + at,
                          .n = n - at < DELETE_BATCH ? n - at : DELETE_BATCH};

        remove_batch(&b);
    }
    for (size_t i = 0; i < n; i++)
        if (all[i])
            return all[i];
    return 0;
}
