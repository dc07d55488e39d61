/* Uploads in parts. A session lives at the server under its UploadId; here lives what Complete
 * must repeat of each part: number, ETag and checksum. */
#include "backends/s3/s3.h"

#include "backends/http/xml.h"
#include "backends/s3/attrs.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/md5.h>
#include <stdio.h>
#include <string.h>

#define UPLOAD_ID_MAX 2048
#define SWEPT_MAX     32 /* sessions of one key that are ended at once */
/* A server's clock may differ by so much before it refuses our requests. */
#define SKEW_NS           (15 * 60 * NS_PER_SEC)
#define COMPLETE_BODY_MAX (4 * 1024 * 1024)

struct s3_upload {
    struct upload base;
    char *key;  /* the store's */
    bool slash; /* the directory marker "key/" */
    char *id;
    struct attrs attrs;    /* as sent at the start */
    bool attrs_known;      /* false in a resumed session */
    struct mutex lock;     /* guards what is marked */
    struct s3_part *parts; /* under lock; [number - 1], number 0 where none arrived */
    size_t n_parts;        /* under lock */
};

static struct s3_upload *upload_of(struct upload *up)
{
    return container_of(up, struct s3_upload, base);
}

static void upload_free(struct s3_upload *u)
{
    if (!u)
        return;
    attrs_release(&u->attrs);
    mutex_destroy(&u->lock);
    free(u->parts);
    free(u->key);
    free(u->id);
    free(u);
}

static struct s3_upload *upload_new(struct s3 *s, const char *key, bool slash, const char *id)
{
    struct s3_upload *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    mutex_init(&u->lock);
    u->base.store = &s->base;
    u->slash = slash;
    u->key = strdup(key);
    u->id = strdup(id);
    if (!u->key || !u->id) {
        upload_free(u);
        return NULL;
    }
    return u;
}

static bool id_ok(const char *id)
{
    size_t len = strlen(id);

    if (len == 0 || len > UPLOAD_ID_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)id[i] <= ' ' || (unsigned char)id[i] >= 0x7f)
            return false;
    return true;
}

static int upload_request(struct s3_upload *u, struct op *op, struct s3_request *r,
                          const char *what, const char *method)
{
    struct s3 *s = s3_of(u->base.store);
    int err = s3_request_init(s, op, r, what, method, u->key, u->slash);

    if (!err)
        s3_fields_add(&r->query, "uploadId", u->id);
    return err;
}

/* --- begin --- */

int s3_upload_begin_with(struct s3 *s, struct op *op, const char *key, bool slash,
                         const struct s3_fields *headers, struct upload **ret_up)
{
    auto_request struct s3_request r;
    auto_free char *id = NULL;
    struct s3_upload *u;
    int err = s3_request_init(s, op, &r, "begin upload", "POST", key, slash);

    if (err)
        return err;
    s3_fields_add(&r.query, "uploads", "");
    r.once = true; /* sent twice, it leaves a session that nobody knows */
    for (size_t i = 0; i < headers->n; i++)
        s3_fields_add(&r.headers, headers->items[i].name, headers->items[i].value);
    err = headers->err ? op_fail(op, headers->err, "out of memory") : s3_run(s, op, &r);
    if (err)
        return err;
    err = xml_text(r.answer.body.data, r.answer.body.len,
                   "InitiateMultipartUploadResult/UploadId", &id);
    if (!err && !id_ok(id))
        err = -EPROTO;
    if (err)
        return s3_fail(s, op, &r, err, "the answer has no usable UploadId");
    u = upload_new(s, key, slash, id);
    if (!u)
        return op_fail(op, -ENOMEM, "out of memory");
    *ret_up = &u->base;
    return 0;
}

int s3_upload_begin(struct store *st, struct op *op, const char *key, const struct attrs *attrs,
                    struct upload **ret_up)
{
    struct s3_fields headers = {0};
    struct upload *up = NULL;
    struct s3_upload *u;
    int err = 0;

    s3_fields_add(&headers, "content-type", S3_OCTET_STREAM);
    if (!atomic_load(&s3_of(st)->no_checksums)) {
        s3_fields_add(&headers, "x-amz-checksum-algorithm", "CRC32C");
        s3_fields_add(&headers, "x-amz-checksum-type", "FULL_OBJECT");
    }
    s3_add_placement(s3_of(st), &headers, true);
    if (attrs)
        err = s3_attrs_write(attrs, s3_fields_add_header, &headers);
    if (err)
        err = op_fail(op, err, "the attributes do not fit");
    else
        err = s3_upload_begin_with(s3_of(st), op, key, false, &headers, &up);
    s3_fields_release(&headers);
    if (err)
        return err;
    u = upload_of(up);
    u->attrs_known = true;
    if (attrs && attrs_copy(&u->attrs, attrs)) {
        (void)s3_upload_abort(up, op);
        return op_fail(op, -ENOMEM, "out of memory");
    }
    *ret_up = up;
    return 0;
}

/* --- parts --- */

static int keep_part(struct s3_upload *u, struct op *op, const struct s3_part *part)
{
    int err = 0;

    mutex_lock(&u->lock);
    if (part->number > u->n_parts) {
        size_t n = u->n_parts ? u->n_parts : 16;
        struct s3_part *parts;

        while (n < part->number)
            n *= 2;
        parts = reallocarray(u->parts, n, sizeof(*parts));
        if (parts) {
            memset(parts + u->n_parts, 0, (n - u->n_parts) * sizeof(*parts));
            u->parts = parts;
            u->n_parts = n;
        } else {
            err = -ENOMEM;
        }
    }
    if (!err)
        u->parts[part->number - 1] = *part;
    mutex_unlock(&u->lock);
    return err ? op_fail(op, err, "out of memory") : 0;
}

int s3_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    struct s3_upload *u = upload_of(up);
    struct s3 *s = s3_of(up->store);
    auto_request struct s3_request r;
    struct s3_part part = {.number = number, .size = src->size};
    const char *etag;
    int err = upload_request(u, op, &r, "upload part", "PUT");

    if (err)
        return err;
    s3_fields_addf(&r.query, "partNumber", "%u", number);
    err = s3_add_checksum(s, op, &r, src, part.crc32c);
    if (err)
        return err;
    r.body = src;
    err = s3_run(s, op, &r);
    if (err)
        return err;
    if (atomic_load(&s->no_checksums)) /* refused just now */
        part.crc32c[0] = '\0';
    etag = http_answer_header(&r.answer, "etag");
    if (!etag || s3_etag_copy(part.etag, etag))
        return s3_fail(s, op, &r, -EPROTO, "the answer has no usable ETag");
    return keep_part(u, op, &part);
}

int s3_upload_copy_part(struct upload *up, struct op *op, unsigned number, const char *from,
                        const struct object *source, uint64_t off, uint64_t len)
{
    struct s3_upload *u = upload_of(up);
    struct s3 *s = s3_of(up->store);
    auto_request struct s3_request r;
    auto_free char *answer_etag = NULL;
    struct s3_part part = {.number = number, .size = len};
    int err = upload_request(u, op, &r, "copy part", "PUT");

    if (err)
        return err;
    s3_fields_addf(&r.query, "partNumber", "%u", number);
    s3_fields_add(&r.headers, "x-amz-copy-source", from);
    if (len < source->size) /* AWS copies ranges only out of objects above 5 MB */
        s3_fields_addf(&r.headers, "x-amz-copy-source-range", "bytes=%" PRIu64 "-%" PRIu64, off,
                       off + len - 1);
    if (source->etag[0])
        s3_fields_addf(&r.headers, "x-amz-copy-source-if-match", "\"%s\"", source->etag);
    r.silence_ns = S3_SLOW_ANSWER;
    err = s3_run(s, op, &r);
    if (err == -ENOENT && strcmp(r.error.code, "NoSuchUpload") == 0)
        return -EAGAIN; /* not the source is gone */
    if (err)
        return s3_refused(&r) ? -EOPNOTSUPP : err;
    err = xml_text(r.answer.body.data, r.answer.body.len, "CopyPartResult/ETag", &answer_etag);
    if (!err)
        err = s3_etag_copy(part.etag, answer_etag);
    if (err)
        return s3_fail(s, op, &r, err, "the answer has no usable ETag");
    return keep_part(u, op, &part);
}

/* --- commit --- */

/* What Complete says, and what it must lead to. */
struct completion {
    struct buf body;
    uint64_t size;
    char etag[STORE_ETAG_MAX]; /* where part ETags are MD5s; else "" */
    struct checksum checksum;  /* of all parts; none when one has none */
    unsigned n;
};

static bool add_part_md5(EVP_MD_CTX *md5, const char *etag)
{
    unsigned char raw[MD5_DIGEST_LENGTH];

    for (size_t i = 0; i < sizeof(raw); i++)
        if (sscanf(etag + 2 * i, "%2hhx", &raw[i]) != 1)
            return false;
    return EVP_DigestUpdate(md5, raw, sizeof(raw));
}

/* S3's ETag of an object in parts: the MD5 of their MD5s, and how many. */
static void expect_etag_locked(struct s3_upload *u, struct completion *c) REQUIRES(&u->lock)
{
    mutex_assert_held(&u->lock);
    EVP_MD_CTX *md5 = EVP_MD_CTX_new();
    unsigned char raw[MD5_DIGEST_LENGTH];
    bool known = md5 && EVP_DigestInit_ex(md5, EVP_md5(), NULL);

    for (size_t i = 0; i < u->n_parts && known; i++)
        if (u->parts[i].number)
            known = strspn(u->parts[i].etag, "0123456789abcdef") == 32 &&
                    strlen(u->parts[i].etag) == 32 && add_part_md5(md5, u->parts[i].etag);
    if (known && EVP_DigestFinal_ex(md5, raw, NULL)) {
        for (size_t i = 0; i < sizeof(raw); i++)
            (void)sprintf(c->etag + 2 * i, "%02x", raw[i]);
        (void)sprintf(c->etag + 2 * sizeof(raw), "-%u", c->n);
    }
    EVP_MD_CTX_free(md5);
}

static int build_completion_locked(struct s3_upload *u, struct completion *c) REQUIRES(&u->lock)
{
    int err = buf_adds(&c->body, "<CompleteMultipartUpload "
                                 "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");

    mutex_assert_held(&u->lock);
    for (size_t i = 0; i < u->n_parts && !err; i++) {
        const struct s3_part *p = &u->parts[i];

        if (!p->number)
            continue;
        err = buf_addf(&c->body, "<Part><PartNumber>%u</PartNumber><ETag>\"", p->number);
        if (!err)
            err = xml_escape(&c->body, p->etag);
        if (!err)
            err = buf_adds(&c->body, "\"</ETag>");
        if (!err && p->crc32c[0])
            err = buf_addf(&c->body, "<ChecksumCRC32C>%s</ChecksumCRC32C>", p->crc32c);
        if (!err)
            err = buf_adds(&c->body, "</Part>");
        c->size += p->size;
        c->n++;
    }
    if (!err)
        err = buf_adds(&c->body, "</CompleteMultipartUpload>");
    return err;
}

static void sum_parts_locked(struct s3_upload *u, struct completion *c) REQUIRES(&u->lock)
{
    struct checksum sum = {.kind = CHECKSUM_CRC32C};

    mutex_assert_held(&u->lock);
    for (size_t i = 0; i < u->n_parts; i++) {
        struct checksum part = {0};
        if (!u->parts[i].number)
            continue;
        s3_checksum_of_text(u->parts[i].crc32c, &part);
        if (part.kind == CHECKSUM_NONE)
            return;
        checksum_append(&sum, &part, u->parts[i].size);
    }
    c->checksum = sum;
}

static int build_completion(struct s3_upload *u, struct op *op, struct completion *c)
{
    int err;

    mutex_lock(&u->lock);
    err = build_completion_locked(u, c);
    expect_etag_locked(u, c);
    sum_parts_locked(u, c);
    mutex_unlock(&u->lock);
    if (!err && c->n == 0)
        return op_fail(op, -EINVAL, "commit %s: no part was uploaded", u->key);
    return err ? op_fail(op, err, "commit %s: the request can't be built", u->key) : 0;
}

static int list_parts(struct s3_upload *u, struct op *op, unsigned marker,
                      struct s3_parts_page *ret)
{
    struct s3 *s = s3_of(u->base.store);
    auto_request struct s3_request r;
    int err = upload_request(u, op, &r, "list parts", "GET");

    if (err)
        return err;
    if (marker)
        s3_fields_addf(&r.query, "part-number-marker", "%u", marker);
    err = s3_run(s, op, &r);
    if (err)
        return err;
    err = s3_xml_parts(r.answer.body.data, r.answer.body.len, ret);
    return err ? s3_fail(s, op, &r, err, "the list of parts is no usable XML") : 0;
}

/* The same content put by somebody else has another origin. */
static bool same_origin(const struct s3_upload *u, const struct attrs *a)
{
    return !u->attrs_known || !(u->attrs.has & ATTR_ORIGIN) ||
           (a->has & ATTR_ORIGIN && a->origin == u->attrs.origin &&
            a->origin_ns == u->attrs.origin_ns);
}

/* After a Complete that found no session or a version already there: was it an earlier one of
 * ours, whose answer got lost? Only when the session is gone and the object is what ours had to
 * become. */
static bool was_committed(struct s3_upload *u, const struct op *op, const struct completion *c,
                          struct object *ret)
{
    struct op own = *op;
    struct s3_parts_page page;
    auto_request struct s3_request r;
    struct object obj;
    bool same;
    int err;

    r = (struct s3_request){0};
    if (!c->etag[0])
        return false;
    err = list_parts(u, &own, 0, &page);
    if (!err)
        s3_parts_page_release(&page);
    if (err != -ENOENT)
        return false;
    if (s3_head(s3_of(u->base.store), &own, &r, "commit", u->key, u->slash) ||
        s3_object_from_answer(&own, &r.answer, u->slash, &obj))
        return false;
    same = strcmp(obj.etag, c->etag) == 0 && obj.size == c->size && same_origin(u, &obj.attrs);
    if (same)
        *ret = obj;
    else
        object_release(&obj);
    return same;
}

static int complete(struct s3_upload *u, struct op *op, const char *etag, struct completion *c,
                    struct object *ret)
{
    struct s3 *s = s3_of(u->base.store);
    auto_request struct s3_request r;
    auto_free char *new_etag = NULL;
    struct mem_source src;
    char hash[AWS_HASH_HEX];
    int err = upload_request(u, op, &r, "commit", "POST");

    if (err)
        return err;
    mem_source_init(&src, c->body.data, c->body.len);
    err = s3_body_hash(op, &src, hash);
    if (err)
        return err;
    s3_fields_add(&r.headers, "content-type", "application/xml");
    s3_add_condition(&r, etag);
    r.once = true;
    r.payload_hash = hash;
    r.body = &src.base;
    r.silence_ns = S3_SLOW_ANSWER;
    err = s3_run(s, op, &r);
    if (err != -ENOENT || strcmp(r.error.code, "NoSuchUpload") != 0)
        err = s3_condition_error(&r, etag, err);
    if ((err == -ENOENT || err == -ESTALE) && was_committed(u, op, c, ret))
        return 0;
    if (err)
        return err;
    err = xml_text(r.answer.body.data, r.answer.body.len, "CompleteMultipartUploadResult/ETag",
                   &new_etag);
    if (err)
        return s3_fail(s, op, &r, err, "the answer has no ETag");
    err = s3_object_written(op, &r.answer, c->size, new_etag, u->attrs_known ? &u->attrs : NULL,
                            ret);
    if (err)
        return err;
    ret->attrs_known = u->attrs_known;
    ret->checksum = c->checksum;
    return 0;
}

int s3_upload_commit(struct upload *up, struct op *op, const char *etag, struct object *ret_obj)
{
    struct s3_upload *u = upload_of(up);
    struct completion c = {.body = BUF_INIT(COMPLETE_BODY_MAX)};
    struct object obj = {0};
    int err = build_completion(u, op, &c);

    if (!err)
        err = complete(u, op, etag, &c, &obj);
    buf_release(&c.body);
    if (err)
        return err;
    if (ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    upload_free(u);
    return 0;
}

/* --- the other ends of a session --- */

int s3_upload_abort(struct upload *up, struct op *op)
{
    struct s3_upload *u = upload_of(up);
    auto_request struct s3_request r;
    int err = upload_request(u, op, &r, "abort upload", "DELETE");

    if (!err)
        err = s3_run(s3_of(up->store), op, &r);
    upload_free(u);
    return err == -ENOENT ? 0 : err;
}

void s3_upload_detach(struct upload *up)
{
    upload_free(upload_of(up));
}

char *s3_upload_token(struct upload *up)
{
    return strdup(upload_of(up)->id);
}

/* One page of what the server has; *marker moves on, 0 at the end. */
static int resume_page(struct s3_upload *u, struct op *op, unsigned *marker,
                       int (*visit)(void *arg, const struct part *part), void *arg)
{
    struct s3_parts_page page;
    int err = list_parts(u, op, *marker, &page);

    if (err)
        return err;
    for (size_t i = 0; i < page.n_parts && !err; i++) {
        struct part part = {.number = page.parts[i].number, .size = page.parts[i].size};

        memcpy(part.etag, page.parts[i].etag, sizeof(part.etag));
        err = keep_part(u, op, &page.parts[i]);
        if (!err)
            err = visit(arg, &part);
    }
    if (!err && page.truncated && page.next <= *marker)
        err = op_fail(op, -EPROTO, "resume %s: the server repeats its pages", u->key);
    *marker = page.truncated ? page.next : 0;
    s3_parts_page_release(&page);
    return err;
}

int s3_upload_resume(struct store *st, struct op *op, const char *key, const char *token,
                     int (*visit)(void *arg, const struct part *part), void *arg,
                     struct upload **ret_up)
{
    struct s3_upload *u;
    unsigned marker = 0;
    int err;

    if (!id_ok(token))
        return op_fail(op, -EINVAL, "resume %s: the token is no UploadId", key);
    u = upload_new(s3_of(st), key, false, token);
    if (!u)
        return op_fail(op, -ENOMEM, "out of memory");
    do
        err = visit ? resume_page(u, op, &marker, visit, arg) : 0;
    while (!err && marker);
    if (err) {
        upload_free(u);
        return err;
    }
    *ret_up = &u->base;
    return 0;
}

int s3_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    struct s3_upload *u = upload_of(up);
    struct s3_part part = {0};

    mutex_lock(&u->lock);
    if (number >= 1 && number <= u->n_parts)
        part = u->parts[number - 1];
    mutex_unlock(&u->lock);
    return part.number && part.size == src->size ? s3_same_as_part(op, src, &part) : 0;
}

/* --- sessions nobody knows --- */

struct sweep {
    char key[S3_KEY_MAX]; /* the bucket's */
    const char *keep;
    int64_t since_ns;
    char *ids[SWEPT_MAX];
    size_t n;
};

static int take_session(void *arg, const char *key, const char *id, int64_t begun_ns)
{
    struct sweep *w = arg;

    if (strcmp(key, w->key) != 0 || begun_ns < w->since_ns || !id_ok(id) ||
        (w->keep && strcmp(id, w->keep) == 0) || w->n == SWEPT_MAX)
        return 0;
    w->ids[w->n] = strdup(id);
    return w->ids[w->n] ? (int)(++w->n * 0) : -ENOMEM;
}

static int list_sessions(struct s3 *s, struct op *op, const char *key, struct sweep *w)
{
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, "list uploads", "GET", key, false);

    if (err)
        return err;
    memcpy(w->key, r.key, sizeof(w->key));
    s3_fields_add(&r.query, "uploads", "");
    s3_fields_add(&r.query, "encoding-type", "url");
    s3_fields_add(&r.query, "prefix", w->key);
    r.key[0] = '\0';
    err = s3_run(s, op, &r);
    if (err)
        return err;
    err = s3_xml_uploads(r.answer.body.data, r.answer.body.len, take_session, w);
    return err ? s3_fail(s, op, &r, err, "the list of uploads is no usable XML") : 0;
}

/* What holds a part is in use, by whomever. */
static int end_if_empty(struct s3 *s, struct op *op, const char *key, const char *id)
{
    struct s3_upload *u = upload_new(s, key, false, id);
    struct s3_parts_page page;

    if (!u)
        return op_fail(op, -ENOMEM, "out of memory");
    int err = list_parts(u, op, 0, &page);
    if (!err && page.n_parts == 0)
        return s3_upload_abort(&u->base, op);
    if (!err)
        s3_parts_page_release(&page);
    upload_free(u);
    return err == -ENOENT ? 0 : err;
}

int s3_upload_sweep(struct store *st, struct op *op, const char *key, int64_t since_ns,
                    const char *keep)
{
    struct s3 *s = s3_of(st);
    struct sweep w = {.keep = keep, .since_ns = since_ns - SKEW_NS};
    int err = list_sessions(s, op, key, &w);

    for (size_t i = 0; i < w.n; i++) {
        if (!err)
            err = end_if_empty(s, op, key, w.ids[i]);
        free(w.ids[i]);
    }
    return err;
}
