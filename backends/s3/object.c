/* Objects in requests and answers: what a request demands of one and makes of it, and what an
 * answer tells of it. */
#include "backends/s3/s3.h"

#include "backends/s3/attrs.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

/* --- conditions --- */

void s3_add_condition(struct s3_request *r, const char *etag)
{
    /* Sent twice, a write meets its own result and fails: whoever repeats it must know. */
    r->once = etag && strcmp(r->method, "GET") != 0;
    if (etag && !*etag)
        s3_fields_add(&r->headers, "if-none-match", "*");
    else if (etag)
        s3_fields_addf(&r->headers, "if-match", "\"%s\"", etag);
}

static void add_default(struct s3_fields *f, const char *name, const char *value)
{
    if (!value)
        return;
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0)
            return;
    s3_fields_add(f, name, value);
}

void s3_add_placement(const struct s3 *s, struct s3_fields *headers, bool content)
{
    add_default(headers, S3_SSE, s->sse);
    add_default(headers, S3_SSE_KEY, s->sse_kms_key_id);
    if (content)
        add_default(headers, S3_STORAGE_CLASS, s->storage_class);
}

bool s3_refused(const struct s3_request *r)
{
    static const char *const codes[] = {"InvalidArgument", "InvalidRequest",   "MalformedXML",
                                        "NotImplemented",  "MethodNotAllowed", "NotSupported"};

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(r->error.code, codes[i]) == 0)
            return true;
    return false;
}

int s3_condition_error(const struct s3_request *r, const char *etag, int err)
{
    if (err && etag && s3_refused(r))
        return -EOPNOTSUPP;
    return err == -ENOENT && etag && *etag ? -ESTALE : err;
}

int s3_body_hash(struct op *op, const struct mem_source *body, char ret_hash[AWS_HASH_HEX])
{
    int err = aws_sha256_hex(ret_hash, body->data, body->base.size);

    return err ? op_fail(op, err, "OpenSSL has no SHA-256") : 0;
}

/* --- objects --- */

static int etag_and_time(struct op *op, const struct http_answer *a, const char *date,
                         struct object *obj)
{
    const char *etag = http_answer_header(a, "etag");
    int64_t seconds = http_date_seconds(a, date);

    if (etag && s3_etag_copy(obj->etag, etag))
        return op_fail(op, -EPROTO, "unusable ETag");
    if (seconds >= 0 && seconds < INT64_MAX / NS_PER_SEC)
        obj->mtime_ns = seconds * NS_PER_SEC;
    return 0;
}

int s3_object_from_answer(struct op *op, const struct http_answer *a, bool is_dir,
                          struct object *ret)
{
    int64_t size = http_content_length(a);
    struct object obj = {.is_prefix = is_dir, .has_marker = is_dir, .attrs_known = true};
    int64_t told = http_date_seconds(a, "date");
    int err = etag_and_time(op, a, "last-modified", &obj);

    if (err)
        return err;
    /* versitygw has no ETag for files that came into its folder by other ways. */
    if (!obj.etag[0] && !http_answer_header(a, "x-amz-request-id"))
        return op_fail(op, -EPROTO, "not S3's answer: neither ETag nor request id");
    if (told > 0 && told < INT64_MAX / NS_PER_SEC)
        obj.told_ns = told * NS_PER_SEC;
    if (size < 0)
        return op_fail(op, -EPROTO, "no usable Content-Length");
    obj.size = is_dir ? 0 : (uint64_t)size;
    s3_checksum_of_answer(a, &obj.checksum);
    err = s3_attrs_read(a, is_dir, &obj.attrs);
    if (err)
        return op_fail(op, err, "out of memory");
    *ret = obj;
    return 0;
}

int s3_object_written(struct op *op, const struct http_answer *a, uint64_t size,
                      const char *etag, const struct attrs *attrs, struct object *ret)
{
    struct object obj = {.size = size, .attrs_known = true};
    int err = etag_and_time(op, a, "date", &obj);

    if (!err && etag && s3_etag_copy(obj.etag, etag))
        err = op_fail(op, -EPROTO, "unusable ETag");
    if (!err && attrs && attrs_copy(&obj.attrs, attrs))
        err = op_fail(op, -ENOMEM, "out of memory");
    if (!err)
        *ret = obj;
    return err;
}

int s3_head(struct s3 *s, struct op *op, struct s3_request *r, const char *what,
            const char *key, bool slash)
{
    int err = s3_request_init(s, op, r, what, "HEAD", key, slash);

    if (err)
        return err;
    if (!slash && !atomic_load(&s->no_checksums))
        s3_fields_add(&r->headers, "x-amz-checksum-mode", "ENABLED");
    return s3_run(s, op, r);
}

int s3_look_at(struct s3 *s, struct op *op, const char *what, const char *key, bool slash,
               const char *etag)
{
    auto_request struct s3_request r = {0};
    struct object there = {0};
    int err = s3_head(s, op, &r, what, key, slash);

    if (!err)
        err = s3_object_from_answer(op, &r.answer, slash, &there);
    bool same = strcmp(there.etag, etag) == 0;
    object_release(&there);
    if (err == -ENOENT && !*etag)
        return 0;
    if (err)
        return err == -ENOENT ? -ESTALE : err;
    return same && *etag ? 0 : s3_fail(s, op, &r, -ESTALE, "the object was replaced");
}
