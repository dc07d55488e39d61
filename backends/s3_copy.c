/* Copies at the server, and new attributes, which on S3 are a copy onto itself.
 *
 * Three ways lead there. CopyObject takes one request, up to 5 GiB, and checks only the
 * source's version. A copy in parts takes any size, and its Complete checks the target's
 * version. An empty object has no parts: it is written anew. */
#include "backends/s3.h"

#include "backends/s3_attrs.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A copy on its way. */
struct copy {
    struct s3 *s;
    struct op *op;
    const char *what;
    const char *to;
    bool slash; /* both are directory markers */
    const char *to_etag;
    const struct attrs *attrs;  /* NULL keeps the source's */
    char *source;               /* "bucket/key", encoded */
    struct object from;         /* once it was asked for */
    struct s3_fields headers;   /* what the copy shall carry; once it was asked for */
    struct s3_fields placement; /* where it shall be kept; once it was asked for */
};

static void copy_release(struct copy *c)
{
    object_release(&c->from);
    s3_fields_release(&c->headers);
    s3_fields_release(&c->placement);
    free(c->source);
}

static int copy_init(struct copy *c, const char *from)
{
    auto_request struct s3_request r;
    auto_buf struct buf source = BUF_INIT(4 * S3_KEY_MAX);
    int err = s3_request_init(c->s, c->op, &r, c->what, "HEAD", from, c->slash);

    if (err)
        return err;
    err = buf_addf(&source, "%s/", c->s->bucket);
    if (!err)
        err = s3_uri_encode(&source, r.key, strlen(r.key), true);
    if (!err && !(c->source = buf_take(&source)))
        err = -ENOMEM;
    return err ? op_fail(c->op, err, "%s: the request can't be built", c->what) : 0;
}

static bool is_one_of(const char *name, const char *const *all)
{
    for (; *all; all++)
        if (strcmp(name, *all) == 0)
            return true;
    return false;
}

/* Headers that describe the content and are lost unless they are repeated. */
static bool describes_content(const char *name)
{
    static const char *const all[] = {"content-type",        "cache-control",
                                      "content-disposition", "content-encoding",
                                      "content-language",    NULL};

    return is_one_of(name, all);
}

/* Where the source is kept, which no copy takes over by itself. What was asked for by option
 * goes before it. */
static bool describes_placement(const struct s3 *s, const char *name)
{
    static const char *const encryption[] = {S3_SSE, S3_SSE_KEY, NULL};

    return is_one_of(name, encryption)
               ? !s->sse
               : strcmp(name, S3_STORAGE_CLASS) == 0 && !s->storage_class;
}

static int carry_header(void *arg, const char *name, const char *value)
{
    struct copy *c = arg;
    bool meta = strncmp(name, S3_META_PREFIX, sizeof(S3_META_PREFIX) - 1) == 0;

    if (describes_placement(c->s, name))
        return s3_fields_add_header(&c->placement, name, value);
    if (describes_content(name) || (meta && !(c->attrs && s3_attrs_owns(name))))
        return s3_fields_add_header(&c->headers, name, value);
    return 0;
}

/* Asks what the source is and gathers the headers of the copy. */
static int ask_source(struct copy *c, const char *from, const char *from_etag)
{
    auto_request struct s3_request r;
    int err = s3_head(c->s, c->op, &r, c->what, from, c->slash);

    if (!err)
        err = s3_object_from_answer(c->op, &r.answer, c->slash, &c->from);
    if (err)
        return err;
    if (from_etag && strcmp(from_etag, c->from.etag) != 0)
        return s3_fail(c->s, c->op, &r, -ESTALE, "the object was replaced");
    err = http_answer_each(&r.answer, carry_header, c);
    s3_add_placement(c->s, &c->placement, !c->slash);
    if (!err)
        err = c->placement.err;
    if (!err && c->attrs)
        err = s3_attrs_write(c->attrs, s3_fields_add_header, &c->headers);
    return err ? op_fail(c->op, err, "%s: the attributes do not fit", c->what) : 0;
}

/* What is there afterwards, said from what went there. */
static int copied(struct copy *c, const struct http_answer *a, const char *etag,
                  struct object *ret_obj)
{
    if (!ret_obj)
        return 0;
    return s3_object_written(c->op, a, c->from.size, etag, c->attrs ? c->attrs : &c->from.attrs,
                             ret_obj);
}

static void add_all(struct s3_fields *to, const struct s3_fields *from)
{
    for (size_t i = 0; i < from->n; i++)
        s3_fields_add(to, from->items[i].name, from->items[i].value);
}

static int copy_object(struct copy *c, const char *from_etag, struct object *ret_obj)
{
    auto_request struct s3_request r;
    auto_free char *etag = NULL;
    int err = s3_request_init(c->s, c->op, &r, c->what, "PUT", c->to, c->slash);

    if (err)
        return err;
    s3_fields_add(&r.headers, "x-amz-copy-source", c->source);
    if (from_etag)
        s3_fields_addf(&r.headers, "x-amz-copy-source-if-match", "\"%s\"", from_etag);
    s3_fields_add(&r.headers, "x-amz-metadata-directive", c->attrs ? "REPLACE" : "COPY");
    if (c->attrs)
        add_all(&r.headers, &c->headers);
    add_all(&r.headers, &c->placement);
    r.silence_ns = S3_SLOW_ANSWER;
    err = s3_run(c->s, c->op, &r);
    if (err)
        return err;
    err = s3_xml_text(r.answer.body.data, r.answer.body.len, "CopyObjectResult/ETag", &etag);
    if (err)
        return s3_fail(c->s, c->op, &r, err, "the answer has no ETag");
    return copied(c, &r.answer, etag, ret_obj);
}

static int copy_empty(struct copy *c, struct object *ret_obj)
{
    auto_request struct s3_request r;
    int err = s3_request_init(c->s, c->op, &r, c->what, "PUT", c->to, c->slash);

    if (err)
        return err;
    s3_add_condition(&r, c->to_etag);
    add_all(&r.headers, &c->headers);
    add_all(&r.headers, &c->placement);
    err = s3_condition_error(c->to_etag, s3_run(c->s, c->op, &r));
    return err ? err : copied(c, &r.answer, NULL, ret_obj);
}

static int copy_parts(struct copy *c, struct object *ret_obj)
{
    struct upload *up;
    unsigned number = 1;
    struct object obj;
    int err;

    add_all(&c->headers, &c->placement);
    err = s3_upload_begin_with(c->s, c->op, c->to, c->slash, &c->headers, &up);

    for (uint64_t off = 0; !err && off < c->from.size; off += c->s->copy_part) {
        uint64_t left = c->from.size - off;

        err = s3_upload_copy_part(up, c->op, number++, c->source, c->from.etag, off,
                                  left < c->s->copy_part ? left : c->s->copy_part);
        if (err)
            break;
    }
    if (number == 1)
        return err;
    if (!err)
        err = s3_upload_commit(up, c->op, c->to_etag, &obj);
    if (err) {
        struct op own = *c->op; /* the reason of the failure stays */

        (void)s3_upload_abort(up, &own);
        return err;
    }
    if (ret_obj) {
        *ret_obj = obj;
        ret_obj->attrs_known = true;
        if (attrs_copy(&ret_obj->attrs, c->attrs ? c->attrs : &c->from.attrs))
            return op_fail(c->op, -ENOMEM, "out of memory");
    } else {
        object_release(&obj);
    }
    return 0;
}

static int copy_run(struct copy *c, const char *from, const char *from_etag,
                    struct object *ret_obj)
{
    int err = ask_source(c, from, from_etag);

    if (err)
        return err;
    if (c->from.size == 0 && (c->attrs || c->to_etag))
        return copy_empty(c, ret_obj);
    if (c->from.size > c->s->copy_max || c->to_etag)
        return copy_parts(c, ret_obj);
    return copy_object(c, c->from.etag[0] ? c->from.etag : NULL, ret_obj);
}

int s3_copy(struct store *st, struct op *op, const char *from, const char *from_etag,
            const char *to, const char *to_etag, const struct attrs *attrs,
            struct object *ret_obj)
{
    struct copy c = {
        .s = s3_of(st), .op = op, .what = "copy", .to = to, .to_etag = to_etag, .attrs = attrs};
    int err = copy_init(&c, from);

    if (!err)
        err = copy_run(&c, from, from_etag, ret_obj);
    copy_release(&c);
    return err;
}

/* The object itself, and where there is none the directory's marker. A writer between the two
 * halves of a CopyObject would lose its content, so the version is checked at the end: in
 * parts, or by writing what is empty. */
int s3_set_attributes(struct store *st, struct op *op, const char *key, const char *etag,
                      const struct attrs *attrs, struct object *ret_obj)
{
    int err = -ENOENT;

    for (int slash = *key ? 0 : 1; slash <= 1 && err == -ENOENT; slash++) {
        struct copy c = {.s = s3_of(st),
                         .op = op,
                         .what = "set attributes",
                         .to = key,
                         .slash = slash,
                         .attrs = attrs};

        err = copy_init(&c, key);
        if (!err)
            err = ask_source(&c, key, etag);
        c.to_etag = c.from.etag[0] ? c.from.etag : NULL;
        if (!err)
            err = c.from.size ? copy_parts(&c, ret_obj) : copy_empty(&c, ret_obj);
        if (!err && slash && ret_obj)
            ret_obj->is_prefix = ret_obj->has_marker = true;
        copy_release(&c);
    }
    return err;
}
