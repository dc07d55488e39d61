/* Copies at the server, and new attributes, which on S3 are a copy onto itself.
 *
 * Three ways lead there. CopyObject takes one request, up to 5 GiB, and checks only the
 * source's version. A copy in parts takes any size, and its Complete checks the target's
 * version. An empty object has no parts: it is written anew. Where a server refuses what the
 * best way needs the next one is taken, in the end through here, and the one that worked is
 * remembered. */
#include "backends/s3/s3.h"

#include "backends/http/uri.h"
#include "backends/http/xml.h"
#include "backends/s3/attrs.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define COPY_THREADS  4
#define PART_ATTEMPTS 3
#define TAGS_MAX      (64 * 1024)
#define ABORT_NS      (10 * NS_PER_SEC)
#define SENT_PART     (16ULL * 1024 * 1024)

/* The ways in which an object with content gets new attributes, the best first. */
enum rewriting {
    REWRITING_MATCHED, /* in parts copied at the server; Complete checks the version */
    REWRITING_COPIED, /* the same, looked at before Complete; a CopyObject where that will do */
    REWRITING_SENT,   /* looked at as well, the parts being read and sent from here */
};

/* A copy on its way. */
struct copy {
    struct s3 *s;
    struct op *op;
    const char *what;
    const char *key; /* of the source */
    const char *to;
    bool slash; /* both are directory markers */
    const char *to_etag;
    const struct attrs *attrs;  /* NULL keeps the source's */
    char *source;               /* "bucket/key", encoded */
    struct object from;         /* once it was asked for */
    struct s3_fields headers;   /* what the copy shall carry; once it was asked for */
    struct s3_fields placement; /* where it shall be kept; once it was asked for */
    bool tagged;                /* the source has tags; once it was asked for */
    struct buf tags;            /* as a header takes them; empty where they can't be had */
};

static void copy_release(struct copy *c)
{
    object_release(&c->from);
    s3_fields_release(&c->headers);
    s3_fields_release(&c->placement);
    buf_release(&c->tags);
    free(c->source);
}

static int copy_init(struct copy *c, const char *from)
{
    auto_request struct s3_request r;
    auto_buf struct buf source = BUF_INIT(4 * S3_KEY_MAX);
    int err = s3_request_init(c->s, c->op, &r, c->what, "HEAD", from, c->slash);

    c->key = from;
    c->tags = (struct buf)BUF_INIT(TAGS_MAX);
    if (err)
        return err;
    err = buf_addf(&source, "%s/", c->s->bucket);
    if (!err)
        err = uri_encode(&source, r.key, strlen(r.key), true);
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
    static const char *const all[] = {"content-type",
                                      "cache-control",
                                      "content-disposition",
                                      "content-encoding",
                                      "content-language",
                                      "expires",
                                      NULL};

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

    if (strcmp(name, "x-amz-tagging-count") == 0)
        c->tagged = strcmp(value, "0") != 0;
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

static void add_all(struct s3_fields *to, const struct s3_fields *from)
{
    for (size_t i = 0; i < from->n; i++)
        s3_fields_add(to, from->items[i].name, from->items[i].value);
}

static int add_tag(void *arg, const char *key, const char *value)
{
    struct buf *tags = arg;
    int err = tags->len ? buf_addc(tags, '&') : 0;

    if (!err)
        err = uri_encode(tags, key, strlen(key), false);
    if (!err)
        err = buf_addc(tags, '=');
    return err ? err : uri_encode(tags, value, strlen(value), false);
}

/* Whether tags can't be had or given with these keys, or at this server. */
static bool tags_refused(int err)
{
    return err == -EACCES || err == -EOPNOTSUPP || err == -EINVAL;
}

/* What is written anew takes no tags over by itself. */
static int ask_tags(struct copy *c)
{
    auto_request struct s3_request r;
    int err = s3_request_init(c->s, c->op, &r, c->what, "GET", c->key, c->slash);

    if (err)
        return err;
    s3_fields_add(&r.query, "tagging", "");
    err = s3_run(c->s, c->op, &r);
    if (err)
        return tags_refused(err) ? 0 : err;
    err = s3_xml_tags(r.answer.body.data, r.answer.body.len, add_tag, &c->tags);
    return err ? s3_fail(c->s, c->op, &r, err, "the tags are no usable XML") : 0;
}

/* Puts everything that the copy carries together. */
static int gather_headers(struct copy *c, struct s3_fields *ret, bool with_tags)
{
    *ret = (struct s3_fields){0};
    add_all(ret, &c->headers);
    add_all(ret, &c->placement);
    if (with_tags)
        s3_fields_add(ret, "x-amz-tagging", c->tags.data);
    return ret->err ? op_fail(c->op, ret->err, "out of memory") : 0;
}

/* What is there afterwards, said from what went there. */
static int copied(struct copy *c, const struct http_answer *a, const char *etag,
                  struct object *ret_obj)
{
    if (!ret_obj)
        return 0;
    int err = s3_object_written(c->op, a, c->from.size, etag,
                                c->attrs ? c->attrs : &c->from.attrs, ret_obj);

    if (!err)
        ret_obj->checksum = c->from.checksum;
    return err;
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
        return s3_refused(&r) ? -EOPNOTSUPP : err;
    err = xml_text(r.answer.body.data, r.answer.body.len, "CopyObjectResult/ETag", &etag);
    if (err)
        return s3_fail(c->s, c->op, &r, err, "the answer has no ETag");
    return copied(c, &r.answer, etag, ret_obj);
}

static int put_empty(struct copy *c, bool with_tags, const char *to_etag,
                     struct object *ret_obj)
{
    auto_request struct s3_request r;
    int err = s3_request_init(c->s, c->op, &r, c->what, "PUT", c->to, c->slash);

    if (!err)
        err = gather_headers(c, &r.headers, with_tags);
    if (err)
        return err;
    s3_add_condition(&r, to_etag);
    err = s3_condition_error(&r, to_etag, s3_run(c->s, c->op, &r));
    return err ? err : copied(c, &r.answer, NULL, ret_obj);
}

/* Where the server knows no condition it has to do that the version was looked at. */
static int put_empty_looked_at(struct copy *c, bool with_tags, struct object *ret_obj)
{
    int err = c->to_etag ? s3_look_at(c->s, c->op, c->what, c->to, c->slash, c->to_etag) : 0;

    return err ? err : put_empty(c, with_tags, NULL, ret_obj);
}

static int put_empty_version(struct copy *c, bool with_tags, struct object *ret_obj)
{
    if (atomic_load(&c->s->no_empty_match))
        return put_empty_looked_at(c, with_tags, ret_obj);
    int err = put_empty(c, with_tags, c->to_etag, ret_obj);

    if (err != -EOPNOTSUPP || !c->to_etag)
        return err;
    err = put_empty_looked_at(c, with_tags, ret_obj);
    if (!err && !atomic_exchange(&c->s->no_empty_match, true)) /* that was it */
        log_warn("%s knows no condition on new attributes of an empty object: a version that "
                 "another node puts in that moment is lost",
                 c->s->base.url);
    return err;
}

static int copy_empty(struct copy *c, struct object *ret_obj)
{
    int err = c->tagged ? ask_tags(c) : 0;

    if (err)
        return err;
    err = put_empty_version(c, c->tags.len > 0, ret_obj);
    return c->tags.len && tags_refused(err) ? put_empty_version(c, false, ret_obj) : err;
}

/* --- in parts --- */

/* Some threads take one part after another. A copy of many parts takes as long as it takes:
 * each of its requests gets the patience that the whole call has left at its start. */
struct part_copy {
    struct copy *c;
    enum rewriting how;
    struct upload *up;
    int64_t patience_ns;
    uint64_t part_size;
    unsigned n_parts;
    atomic_uint next;  /* part, from 0 */
    struct mutex lock; /* guards what follows while threads copy; then it is one thread's */
    struct op failed;  /* with the reason of `err` */
    int err;           /* the first failure */
};

static void part_op(const struct part_copy *pc, struct op *op)
{
    op_init(op, pc->patience_ns);
    op->cancelled = pc->c->op->cancelled;
    op->lease_end_ns = pc->c->op->lease_end_ns;
}

static void note_failed(struct part_copy *pc, int err, const struct op *op)
{
    mutex_lock(&pc->lock);
    if (!pc->err) {
        pc->err = err;
        pc->failed = *op;
    }
    mutex_unlock(&pc->lock);
    atomic_store(&pc->next, pc->n_parts); /* no others */
}

/* A part whose bytes go through here. */
static int send_part(struct part_copy *pc, unsigned number, struct op *op, uint64_t off,
                     size_t len)
{
    struct copy *c = pc->c;
    auto_free char *bytes = malloc(len);
    struct mem_sink sink;
    struct mem_source src;

    if (!bytes)
        return op_fail(op, -ENOMEM, "%s %s: no memory for a part", c->what, c->key);
    mem_sink_init(&sink, bytes, len, off);
    ssize_t n = store_read(&c->s->base, op, c->key, c->from.etag[0] ? c->from.etag : NULL,
                           &sink.base, len, off, NULL);
    if (n < 0)
        return (int)n;
    if ((size_t)n != len)
        return op_fail(op, -ESTALE, "%s %s: the object became shorter", c->what, c->key);
    mem_source_init(&src, bytes, len);
    return s3_upload_part(pc->up, op, number, &src.base);
}

/* One part, more than once when it fails for a passing reason: thousands of others would have
 * to be copied again. */
static int copy_part(struct part_copy *pc, unsigned i, struct op *op)
{
    struct copy *c = pc->c;
    uint64_t off = i * pc->part_size, left = c->from.size - off;
    int err;

    for (unsigned attempt = 1;; attempt++) {
        op->retry_after_ns = 0;
        uint64_t len = left < pc->part_size ? left : pc->part_size;
        err = pc->how == REWRITING_SENT
                  ? send_part(pc, i + 1, op, off, (size_t)len)
                  : s3_upload_copy_part(pc->up, op, i + 1, c->source, &c->from, off, len);
        if (!err || attempt == PART_ATTEMPTS || !err_is_transient(err) || !op_left_ns(op))
            return err;
        int64_t wait = op->retry_after_ns ? op->retry_after_ns : attempt * NS_PER_SEC / 2;
        if (wait >= op_left_ns(op) || op_sleep(op, wait))
            return err;
    }
}

static void *copy_some(void *arg)
{
    struct part_copy *pc = arg;

    for (unsigned i; (i = atomic_fetch_add(&pc->next, 1)) < pc->n_parts;) {
        struct op op;

        part_op(pc, &op);
        int err = copy_part(pc, i, &op);
        if (err)
            note_failed(pc, err, &op);
    }
    return NULL;
}

/* pool_each() does not fit: the caller may be a worker of the one pool that a store could
 * share, and a copy has to go on where no other thread can be started. */
static void copy_all(struct part_copy *pc)
{
    pthread_t others[COPY_THREADS - 1];
    unsigned n = 0;

    /* What is sent from here takes memory for each part. */
    while (pc->how != REWRITING_SENT && n < COPY_THREADS - 1 && n + 1 < pc->n_parts &&
           !pthread_create(&others[n], NULL, copy_some, pc))
        n++;
    (void)copy_some(pc);
    while (n)
        (void)pthread_join(others[--n], NULL);
}

/* Nobody keeps account of a marker's session: the directory's name would name another object's.
 */
static struct store_sessions *sessions_of(const struct copy *c)
{
    return c->slash || !c->op->notes ? NULL : c->op->notes->sessions;
}

static int session_begun(struct copy *c, const char *token)
{
    struct store_sessions *s = sessions_of(c);
    int err = s ? s->begun(s, c->to, token) : 0;

    return err ? op_fail(c->op, err, "%s %s: the session can't be recorded", c->what, c->to)
               : 0;
}

static void session_ended(struct copy *c)
{
    struct store_sessions *s = sessions_of(c);

    if (s)
        s->ended(s);
}

static int note_session(struct part_copy *pc)
{
    auto_free char *token = s3_upload_token(pc->up);
    int err =
        token ? session_begun(pc->c, token) : op_fail(pc->c->op, -ENOMEM, "out of memory");

    if (err)
        note_failed(pc, err, pc->c->op);
    return err;
}

/* The target's version is checked by Complete, or looked at just before. */
static int commit(struct part_copy *pc, struct op *op, struct object *ret)
{
    struct copy *c = pc->c;

    if (pc->how == REWRITING_MATCHED || !c->to_etag)
        return s3_upload_commit(pc->up, op, c->to_etag, ret);
    int err = s3_look_at(c->s, op, c->what, c->to, c->slash, c->to_etag);
    return err ? err : s3_upload_commit(pc->up, op, NULL, ret);
}

/* The parts and their commit; a session that fails is ended, whatever became of the call. One
 * that somebody else ended is no missing source: the copy is made again. */
static int copy_session(struct part_copy *pc, struct object *ret)
{
    struct op op;

    if (note_session(pc) == 0)
        copy_all(pc);
    if (!pc->err) {
        part_op(pc, &op);
        int err = commit(pc, &op, ret);
        if (!err) {
            session_ended(pc->c);
            return 0;
        }
        note_failed(pc, err == -ENOENT ? -EAGAIN : err, &op);
    }
    op_init(&op, ABORT_NS); /* neither over nor cancelled: the parts would stay for ever */
    if (s3_upload_abort(pc->up, &op) == 0)
        session_ended(pc->c);
    pc->c->op->retry_after_ns = pc->failed.retry_after_ns;
    return op_fail(pc->c->op, pc->err, "%s", pc->failed.why);
}

static uint64_t part_size_of(const struct copy *c, enum rewriting how)
{
    uint64_t least = (c->from.size + S3_PARTS_MAX - 1) / S3_PARTS_MAX;
    uint64_t best = how == REWRITING_SENT ? SENT_PART : c->s->copy_part;

    return least > best ? least : best;
}

static int begin_session(struct copy *c, bool with_tags, struct upload **ret_up)
{
    struct s3_fields headers;
    int err = gather_headers(c, &headers, with_tags);

    if (!err)
        err = s3_upload_begin_with(c->s, c->op, c->to, c->slash, &headers, ret_up);
    s3_fields_release(&headers);
    return err;
}

static int copy_parts(struct copy *c, enum rewriting how, struct object *ret_obj)
{
    struct part_copy pc = {.c = c,
                           .how = how,
                           .patience_ns = op_left_ns(c->op),
                           .part_size = part_size_of(c, how)};
    struct object obj;
    int err;

    err = c->tagged ? ask_tags(c) : 0;
    if (err)
        return err;
    err = session_begun(c, NULL);
    if (!err)
        err = begin_session(c, c->tags.len > 0, &pc.up);
    if (c->tags.len && tags_refused(err))
        err = begin_session(c, false, &pc.up);
    if (err && err != -EINTR && !err_is_transient(err))
        session_ended(c); /* refused: there is none */
    if (err)
        return err;
    pc.n_parts = (unsigned)((c->from.size + pc.part_size - 1) / pc.part_size);
    mutex_init(&pc.lock);
    err = copy_session(&pc, &obj);
    mutex_destroy(&pc.lock);
    if (err)
        return err;
    if (ret_obj) {
        *ret_obj = obj;
        ret_obj->attrs_known = true;
        ret_obj->checksum = c->from.checksum;
        if (attrs_copy(&ret_obj->attrs, c->attrs ? c->attrs : &c->from.attrs))
            return op_fail(c->op, -ENOMEM, "out of memory");
    } else {
        object_release(&obj);
    }
    return 0;
}

static int rewrite_in(struct copy *c, enum rewriting how, struct object *ret_obj)
{
    if (how == REWRITING_COPIED && c->from.size <= c->s->copy_max)
        return copy_object(c, c->from.etag[0] ? c->from.etag : NULL, ret_obj);
    return copy_parts(c, how, ret_obj);
}

/* Content with new attributes, or of any size. What a server refuses of a large object says
 * nothing of smaller ones, for which there is a CopyObject. */
static int rewrite(struct copy *c, struct object *ret_obj)
{
    bool large = c->from.size > c->s->copy_max;
    int first = large ? REWRITING_MATCHED : atomic_load(&c->s->rewriting), how = first;
    int err = rewrite_in(c, (enum rewriting)how, ret_obj);

    while (err == -EOPNOTSUPP && how < REWRITING_SENT)
        err = rewrite_in(c, (enum rewriting)++ how, ret_obj);
    if (err || large || how == first)
        return err;
    if (atomic_exchange(&c->s->rewriting, how) != how)
        log_warn("%s can't copy an object in parts and check its version at the end: new "
                 "attributes %s, and a version that another node puts in that moment is lost",
                 c->s->base.url,
                 how == REWRITING_COPIED ? "are copied in one request"
                                         : "take the content with them through here");
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
    if (c->to_etag)
        return copy_parts(c, REWRITING_MATCHED, ret_obj);
    if (c->from.size > c->s->copy_max)
        return rewrite(c, ret_obj);
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
    return err == -ENOENT ? s3_confirm_missing(c.s, op, from) : err;
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
            err = c.from.size ? rewrite(&c, ret_obj) : copy_empty(&c, ret_obj);
        if (!err && slash && ret_obj)
            ret_obj->is_prefix = ret_obj->has_marker = true;
        copy_release(&c);
    }
    return err == -ENOENT ? s3_confirm_missing(s3_of(st), op, key) : err;
}
