/* Writing to S3 in one request: objects, directory markers, removal. */
#include "backends/s3.h"

#include "backends/s3_attrs.h"
#include "common/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/md5.h>
#include <stdio.h>
#include <string.h>

#define DELETE_BATCH    1000
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
    err = s3_condition_error(etag, s3_run(s, op, &r));
    if (err || !ret_obj)
        return err;
    err = s3_object_written(op, &r.answer, src->size, NULL, attrs, ret_obj);
    if (!err)
        s3_size_note(s, ret_obj->etag, src->size);
    return err;
}

int s3_mkdir(struct store *st, struct op *op, const char *key, const struct attrs *attrs)
{
    struct s3 *s = s3_of(st);
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, "mkdir", "PUT", key, true);

    if (err)
        return err;
    if (!r.key[0]) /* a bucket is there */
        return 0;
    s3_fields_add(&r.headers, "content-type", S3_DIRECTORY);
    s3_add_placement(s, &r.headers, false);
    if (attrs)
        (void)s3_attrs_write(attrs, s3_fields_add_header, &r.headers);
    return s3_run(s, op, &r);
}

static int remove_one(struct s3 *s, struct op *op, const char *what, const char *key,
                      bool slash)
{
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, what, "DELETE", key, slash);

    if (!err)
        err = s3_run(s, op, &r);
    return err == -ENOENT ? 0 : err;
}

int s3_rmdir(struct store *st, struct op *op, const char *key)
{
    return remove_one(s3_of(st), op, "rmdir", key, true);
}

/* --- many at once --- */

struct batch {
    struct s3 *s;
    struct op *op;
    const char *const *keys;
    int *errs; /* one for each key; not NULL */
    size_t n;
};

static int add_key(struct batch *b, struct buf *body, const char *key)
{
    auto_buf struct buf escaped = BUF_INIT(DELETE_BODY_MAX);
    int err = 0;

    if (*b->s->prefix)
        err = s3_xml_escape(&escaped, b->s->prefix);
    if (!err && *b->s->prefix)
        err = buf_addc(&escaped, '/');
    if (!err)
        err = s3_xml_escape(&escaped, key);
    if (err)
        return err;
    return buf_addf(body, "<Object><Key>%s</Key></Object>", escaped.data);
}

/* The request's text; *ret_batched says how many keys are in it. The others can't be written in
 * XML and go one by one. */
static int build_delete(struct batch *b, struct buf *body, bool *in_xml, size_t *ret_batched)
{
    int err = buf_adds(body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
                             "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                             "<Quiet>true</Quiet>");

    *ret_batched = 0;
    for (size_t i = 0; i < b->n && !err; i++) {
        int r = add_key(b, body, b->keys[i]);

        in_xml[i] = r == 0;
        *ret_batched += r == 0;
        if (r && r != -EINVAL)
            err = r;
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

static int send_delete(struct batch *b, const struct buf *body)
{
    auto_request struct s3_request r;
    struct mem_source src;
    char hash[S3_HASH_HEX];
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
    if (err)
        return err;
    err = s3_xml_delete_errors(r.answer.body.data, r.answer.body.len, note_failure, b);
    return err ? s3_fail(b->s, b->op, &r, err, "the answer is no usable XML") : 0;
}

static int remove_singly(struct batch *b, const bool *skip)
{
    for (size_t i = 0; i < b->n; i++)
        if (!skip || !skip[i])
            b->errs[i] = remove_one(b->s, b->op, "remove", b->keys[i], false);
    return 0;
}

/* Sets errs[] of up to DELETE_BATCH keys. */
static void remove_batch(struct batch *b)
{
    auto_buf struct buf body = BUF_INIT(DELETE_BODY_MAX);
    bool in_xml[DELETE_BATCH];
    size_t batched;
    int err;

    memset(b->errs, 0, b->n * sizeof(*b->errs));
    if (b->n == 1) {
        (void)remove_singly(b, NULL);
        return;
    }
    err = build_delete(b, &body, in_xml, &batched);
    if (!err && batched)
        err = send_delete(b, &body);
    if (err == -EOPNOTSUPP) { /* Google's S3 has no batches */
        (void)remove_singly(b, NULL);
        return;
    }
    for (size_t i = 0; i < b->n && err; i++)
        b->errs[i] = err;
    if (!err && batched < b->n)
        (void)remove_singly(b, in_xml);
}

int s3_remove(struct store *st, struct op *op, const char *const *keys, size_t n, int *errs)
{
    auto_free int *own = errs ? NULL : calloc(n ? n : 1, sizeof(*own));
    int *all = errs ? errs : own;

    if (!all)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t at = 0; at < n; at += DELETE_BATCH) {
        struct batch b = {.s = s3_of(st),
                          .op = op,
                          .keys = keys + at,
                          .errs = all + at,
                          .n = n - at < DELETE_BATCH ? n - at : DELETE_BATCH};

        remove_batch(&b);
    }
    for (size_t i = 0; i < n; i++)
        if (all[i])
            return all[i];
    return 0;
}
