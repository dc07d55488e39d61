/* The S3 driver: stat, listings and reads. An object is a key; a directory is the keys below
 * it, with or without a marker object "dir/" that carries its attributes. */
#include "backends/s3/s3.h"

#include "backends/drivers.h"
#include "backends/http/xml.h"
#include "backends/s3/attrs.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define LINK_TARGET_MAX 4096 /* bytes of a symlink's target with its NUL */
/* Pages without a name in a row before a listing is called endless. */
#define EMPTY_PAGES_MAX 1000

/* --- stat --- */

/* s3fs keeps a symlink's target in the body. */
static int read_link_body(struct s3 *s, struct op *op, const char *key, struct object *obj)
{
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, "stat", "GET", key, false);

    if (err)
        return err;
    if (obj->etag[0])
        s3_add_condition(&r, obj->etag);
    err = s3_run(s, op, &r);
    if (err)
        return err;
    if (r.answer.body.len == 0 || r.answer.body.len >= LINK_TARGET_MAX ||
        memchr(r.answer.body.data, '\0', r.answer.body.len))
        return 0;
    obj->attrs.target = buf_take(&r.answer.body);
    if (!obj->attrs.target)
        return op_fail(op, -ENOMEM, "out of memory");
    obj->attrs.has |= ATTR_TARGET;
    obj->size = 0;
    return 0;
}

static bool is_link_without_target(const struct object *obj)
{
    return obj->attrs.has & ATTR_MODE && S_ISLNK(obj->attrs.mode) &&
           !(obj->attrs.has & ATTR_TARGET);
}

/* A link that leads nowhere is shown as the plain file that it is in the store. */
static void demote_link(struct object *obj)
{
    if (is_link_without_target(obj))
        obj->attrs.mode = S_IFREG | (obj->attrs.mode & 07777);
}

struct page_query {
    bool recursive;
    bool exact;        /* keys that begin with the prefix, not with it and "/" */
    unsigned max_keys; /* 0: as many as the server gives */
    const char *token; /* NULL: the first page, which begins behind: */
    const char *after; /* below the prefix, or NULL */
};

/* One page of keys. */
static int list_page(struct s3 *s, struct op *op, const char *what, const char *prefix,
                     const struct page_query *q, struct s3_page *ret)
{
    auto_request struct s3_request r;
    char full[S3_KEY_MAX];
    int err = s3_request_init(s, op, &r, what, "GET", prefix, !q->exact);

    if (err)
        return err;
    memcpy(full, r.key, sizeof(full));
    s3_fields_add(&r.query, "list-type", "2");
    s3_fields_add(&r.query, "encoding-type", "url");
    if (*full)
        s3_fields_add(&r.query, "prefix", full);
    if (!q->recursive)
        s3_fields_add(&r.query, "delimiter", "/");
    if (q->max_keys)
        s3_fields_addf(&r.query, "max-keys", "%u", q->max_keys);
    if (q->token)
        s3_fields_add(&r.query, "continuation-token", q->token);
    else if (q->after)
        s3_fields_addf(&r.query, "start-after", "%s%s", full, q->after);
    r.key[0] = '\0';
    err = s3_run(s, op, &r);
    if (err)
        return err;
    err = s3_xml_list(r.answer.body.data, r.answer.body.len, ret);
    memcpy(r.key, full, sizeof(full));
    return err ? s3_fail(s, op, &r, err, "the listing is no usable XML") : 0;
}

/* MinIO keeps names as UTF-8 and takes the signature of another one for a wrong one, to which a
 * HEAD has no code: a listing says what it is. What can't be there is not there. */
static bool has_no_form(struct s3 *s, const struct op *op, const char *key)
{
    auto_buf struct buf text = BUF_INIT(8 * S3_KEY_MAX);
    const struct page_query one = {.recursive = true, .max_keys = 1};
    struct op own = *op;
    struct s3_page page;

    if (xml_escape(&text, key) != -EINVAL)
        return false;
    int err = list_page(s, &own, "stat", key, &one, &page);
    if (!err)
        s3_page_release(&page);
    return err == -EILSEQ;
}

/* The object of that name, or the marker of the directory (`slash`). With -ENOENT *ret_told,
 * which may be NULL, says whether S3 said so: the answer to a HEAD has no code, and any
 * server can answer 404. */
static int stat_object(struct s3 *s, struct op *op, const char *key, bool slash,
                       struct object *ret, bool *ret_told)
{
    auto_request struct s3_request r;
    struct object obj;
    int err = s3_head(s, op, &r, "stat", key, slash);

    if (ret_told)
        *ret_told = r.error.request_id[0] != '\0';
    if (err == -EACCES && has_no_form(s, op, key))
        err = s3_fail(s, op, &r, -ENOENT, "the server has no form for the name");
    if (!err)
        err = s3_object_from_answer(op, &r.answer, slash, &obj);
    if (err)
        return err;
    if (is_link_without_target(&obj) && obj.size > 0 && obj.size < LINK_TARGET_MAX)
        err = read_link_body(s, op, key, &obj);
    if (err) {
        object_release(&obj);
        return err;
    }
    demote_link(&obj);
    s3_size_note(s, obj.etag, obj.size);
    *ret = obj;
    return 0;
}

/* Whether anything is below the directory, and whether that is its own marker. */
static int probe_directory(struct s3 *s, struct op *op, const char *key, bool *ret_exists,
                           bool *ret_marker)
{
    struct s3_page page;
    char full[S3_KEY_MAX];
    const struct page_query one = {.recursive = true, .max_keys = 1};
    int err = list_page(s, op, "stat", key, &one, &page);

    *ret_exists = *ret_marker = false;
    if (err)
        return err == -EILSEQ && *key ? 0 : err;
    *ret_exists = page.n_entries > 0;
    *ret_marker = page.n_entries > 0 && s3_full_key(s, key, true, full) == 0 &&
                  strcmp(page.entries[0].name, full) == 0;
    s3_page_release(&page);
    return 0;
}

/* After a 404 that S3 did not say: 0 if a listing has the object, -ENOENT if not. Of the keys
 * that begin so, the key itself comes first. */
static int look_for_listed(struct s3 *s, struct op *op, const char *key)
{
    struct s3_page page;
    char full[S3_KEY_MAX];
    const struct page_query one = {.recursive = true, .exact = true, .max_keys = 1};
    int err = list_page(s, op, "stat", key, &one, &page);

    if (err)
        return err == -EILSEQ ? -ENOENT : err;
    bool listed = page.n_entries > 0 && s3_full_key(s, key, false, full) == 0 &&
                  strcmp(page.entries[0].name, full) == 0;
    s3_page_release(&page);
    return listed ? 0 : -ENOENT;
}

int s3_confirm_missing(struct s3 *s, struct op *op, const char *key)
{
    bool exists, marker, told = true;
    struct object obj = {0};
    char why[sizeof(op->why)];

    memcpy(why, op->why, sizeof(why));
    int err = probe_directory(s, op, key, &exists, &marker);
    if (!err) /* the root is no object of its own */
        err = *key ? stat_object(s, op, key, false, &obj, &told) : -ENOENT;
    if (err == -ENOENT && !told)
        err = look_for_listed(s, op, key);
    object_release(&obj);
    if (err)
        return err == -ENOENT ? op_fail(op, err, "%s", why) : err;
    return op_fail(op, -EAGAIN, "%s; it is there now", why);
}

/* The answer to a HEAD of what a listing has: a 404 is not S3's, or it is just removed. */
static int not_missing(struct op *op, int err)
{
    char why[sizeof(op->why)];

    if (err != -ENOENT)
        return err;
    memcpy(why, op->why, sizeof(why));
    return op_fail(op, -EAGAIN, "%s, and a listing has it", why);
}

static int stat_directory(struct s3 *s, struct op *op, const char *key, struct object *ret)
{
    bool exists, marker;
    int err = probe_directory(s, op, key, &exists, &marker);

    if (err)
        return err;
    if (!exists && *key)
        return op_fail(op, -ENOENT, "stat s3://%s/%.120s%s%.120s: no such key", s->bucket,
                       s->prefix, *s->prefix ? "/" : "", key);
    if (marker) {
        bool told;
        err = stat_object(s, op, key, true, ret, &told);
        if (err != -ENOENT || !told)
            return not_missing(op, err);
    }
    *ret = (struct object){.is_prefix = true, .attrs_known = true};
    return 0;
}

static int s3_stat(struct store *st, struct op *op, const char *key, struct object *ret_obj)
{
    struct s3 *s = s3_of(st);
    bool told = true;
    int err = *key ? stat_object(s, op, key, false, ret_obj, &told) : -ENOENT;

    if (err != -ENOENT)
        return err;
    err = stat_directory(s, op, key, ret_obj);
    if (err != -ENOENT || told)
        return err;
    int listed = look_for_listed(s, op, key);
    if (listed && listed != -ENOENT)
        return listed;
    /* What said so may have gone since. */
    err = stat_object(s, op, key, false, ret_obj, NULL);
    return listed ? err : not_missing(op, err);
}

static int s3_stat_dir(struct store *st, struct op *op, const char *key, struct object *ret_obj)
{
    return stat_object(s3_of(st), op, key, true, ret_obj, NULL);
}

/* --- list --- */

struct listing {
    struct s3 *s;
    struct op *op;
    bool recursive;
    const char *after;       /* recursive: keys up to this one are left out */
    bool self;               /* the marker of the listed directory is wanted */
    char prefix[S3_KEY_MAX]; /* of every key that belongs here, "" or "a/b/" */
    size_t prefix_len;
    store_visit visit;
    void *arg;
    char *first; /* first name of page `mark`: a server that comes to it again is stopped */
    char *token;
    unsigned pages, mark;
    unsigned empty_pages;
};

static int visit_entry(struct listing *l, struct s3_entry *e)
{
    struct object obj = {.size = e->size, .mtime_ns = e->mtime_ns};
    char *name = e->name + l->prefix_len;
    size_t len;

    if (strncmp(e->name, l->prefix, l->prefix_len) != 0)
        return op_fail(l->op, -EPROTO, "list s3://%s/%.100s: the answer has a key outside",
                       l->s->bucket, l->prefix);
    len = strlen(name);
    if (len == 0 && !l->self) /* the marker of the listed directory itself */
        return 0;
    memcpy(obj.etag, e->etag, sizeof(obj.etag));
    s3_size_note(l->s, e->etag, e->size);
    if (len == 0 || name[len - 1] == '/') {
        name[len ? len - 1 : 0] = '\0';
        obj.is_prefix = true;
        obj.has_marker = !e->is_prefix;
        obj.size = 0;
    }
    return l->visit(l->arg, name, &obj);
}

/* No page comes twice. The mark moves on whenever the way from it has doubled (Brent's method),
 * so that a circle of any length is found, and nothing but one name is kept. */
static int check_progress(struct listing *l, const struct s3_page *page)
{
    bool looping = page->truncated && l->token && strcmp(page->token, l->token) == 0;

    l->empty_pages = page->n_entries ? 0 : l->empty_pages + 1;
    if (page->n_entries && l->first && strcmp(l->first, page->entries[0].name) == 0)
        looping = true;
    if (looping || l->empty_pages > EMPTY_PAGES_MAX)
        return op_fail(l->op, -EPROTO, "list s3://%s/%.100s: the server repeats its pages",
                       l->s->bucket, l->prefix);
    if (!page->n_entries)
        return 0;
    if (++l->pages >= 2 * l->mark) {
        l->mark = l->pages;
        free(l->first);
        l->first = strdup(page->entries[0].name);
        if (!l->first)
            return op_fail(l->op, -ENOMEM, "out of memory");
    }
    return 0;
}

/* 1 when another page follows, 0 at the end. */
static int visit_page(struct listing *l, struct s3_page *page)
{
    int err = check_progress(l, page);

    for (size_t i = 0; i < page->unusable && !err; i++)
        err = l->visit(l->arg, STORE_NO_NAME, &(struct object){0});
    for (size_t i = 0; i < page->n_entries && !err; i++)
        err = visit_entry(l, &page->entries[i]);
    if (err)
        return err;
    free(l->token);
    l->token = take_ptr(page->token);
    return page->truncated ? 1 : 0;
}

static int list_all(struct listing *l, const char *prefix, int *ret_visit)
{
    struct s3_page page;
    int r = 1;

    while (r == 1) {
        const struct page_query q = {
            .recursive = l->recursive, .token = l->token, .after = l->after};
        r = list_page(l->s, l->op, "list", prefix, &q, &page);
        if (r)
            return r;
        r = visit_page(l, &page);
        s3_page_release(&page);
        if (*ret_visit)
            return *ret_visit;
    }
    return r;
}

/* Keeps a visitor's answer apart from the listing's own. */
struct guarded_visit {
    store_visit visit;
    void *arg;
    int result;
};

static int call_visit(void *arg, const char *name, const struct object *obj)
{
    struct guarded_visit *g = arg;

    g->result = g->visit(g->arg, name, obj);
    return g->result ? -ECANCELED : 0;
}

static int s3_list(struct store *st, struct op *op, const char *prefix, unsigned flags,
                   const char *after, store_visit visit, void *arg)
{
    struct s3 *s = s3_of(st);
    struct guarded_visit guarded = {.visit = visit, .arg = arg};
    struct listing l = {.s = s,
                        .op = op,
                        .recursive = flags & LIST_RECURSIVE,
                        .after = after,
                        .self = (flags & LIST_SELF) && (*s->prefix || *prefix),
                        .visit = call_visit,
                        .arg = &guarded};
    int err = s3_full_key(s, prefix, true, l.prefix);

    if (err)
        return op_fail(op, err, "list %s: the key is too long", st->url);
    l.prefix_len = strlen(l.prefix);
    err = list_all(&l, prefix, &guarded.result);
    free(l.token);
    free(l.first);
    if (err == -EILSEQ && *prefix) /* nothing can be there */
        err = 0;
    return guarded.result ? guarded.result : err;
}

/* --- read --- */

struct ranged_read {
    struct http_body_sink base;
    const char *etag;
    uint64_t off, len;
    bool whole; /* asked for without a range, to get the checksum */
    struct s3_buffered held;
    struct object obj; /* filled once the headers are known */
    bool known;
};

/* "bytes 0-9/100"; false for anything else, "*" among it. */
static bool parse_content_range(const char *text, uint64_t *first, uint64_t *last,
                                uint64_t *size)
{
    int end = 0;

    return text &&
           sscanf(text, "bytes %19" SCNu64 "-%19" SCNu64 "/%19" SCNu64 "%n", first, last, size,
                  &end) == 3 &&
           text[end] == '\0' && *first <= *last && *last < *size;
}

static int check_version(struct ranged_read *rr, const struct http_answer *a, struct op *op)
{
    int err = s3_object_from_answer(op, a, false, &rr->obj);

    if (err)
        return err;
    rr->known = true;
    demote_link(&rr->obj);
    if (rr->etag && *rr->etag && strcmp(rr->etag, rr->obj.etag) != 0)
        return op_fail(op, -ESTALE, "the object is version \"%s\", not \"%s\"", rr->obj.etag,
                       rr->etag);
    return 0;
}

static int read_begin(struct http_body_sink *bs, const struct http_answer *a, struct op *op,
                      uint64_t *ret_off, uint64_t *ret_len)
{
    struct ranged_read *rr = container_of(bs, struct ranged_read, base);
    uint64_t first, last, size, wanted;
    int err = check_version(rr, a, op);

    if (err)
        return err;
    if (a->status == 200) { /* the whole object: what some servers send for a whole range */
        first = 0;
        size = rr->obj.size;
        last = size - 1;
    } else if (!parse_content_range(http_answer_header(a, "content-range"), &first, &last,
                                    &size)) {
        return op_fail(op, -EPROTO, "status %d without a usable Content-Range", a->status);
    } else if (rr->obj.size != last - first + 1) {
        return op_fail(op, -EPROTO, "Content-Length and Content-Range disagree");
    }
    if (rr->whole && size > rr->len)
        return op_fail(op, -EMSGSIZE, "the object has %" PRIu64 " bytes", size);
    wanted = rr->off >= size ? 0 : rr->len < size - rr->off ? rr->len : size - rr->off;
    if (size && (first != rr->off || last - first + 1 != wanted))
        return op_fail(op, -EPROTO, "the server sent another range than it was asked for");
    rr->obj.size = size;
    *ret_off = first;
    *ret_len = wanted;
    return wanted == size ? s3_buffer_begin(&rr->held, a, size, op, &bs->sink) : 0;
}

/* The offset is at or behind the end: no bytes, but which version says so? */
static ssize_t read_at_end(struct s3 *s, struct op *op, const char *key, struct ranged_read *rr,
                           struct object *ret_obj)
{
    struct object obj;
    int err = stat_object(s, op, key, false, &obj, NULL);

    if (err)
        return err;
    if (rr->etag && *rr->etag && strcmp(rr->etag, obj.etag) != 0)
        err = op_fail(op, -ESTALE, "read s3://%s/%.120s: the object was replaced", s->bucket,
                      key);
    else if (rr->off < obj.size)
        err =
            op_fail(op, -EPROTO, "read s3://%s/%.120s: 416 within the object", s->bucket, key);
    if (err || !ret_obj)
        object_release(&obj);
    else
        *ret_obj = obj;
    return err;
}

static void read_end(struct ranged_read *rr, bool keep)
{
    free(rr->held.data);
    if (rr->known && !keep)
        object_release(&rr->obj);
}

/* One GET. Small objects are asked for as a whole, because AWS and MinIO tell no checksum of a
 * range. */
static ssize_t read_once(struct s3 *s, struct op *op, const char *key, struct ranged_read *rr,
                         struct object *ret_obj)
{
    auto_request struct s3_request r;
    int err = s3_request_init(s, op, &r, "read", "GET", key, false);

    if (err)
        return err;
    if (rr->whole)
        s3_fields_add(&r.headers, "x-amz-checksum-mode", "ENABLED");
    else
        s3_fields_addf(&r.headers, "range", "bytes=%" PRIu64 "-%" PRIu64, rr->off,
                       rr->off + rr->len - 1);
    if (rr->etag && *rr->etag)
        s3_add_condition(&r, rr->etag);
    r.to_sink = &rr->base;
    err = s3_run(s, op, &r);
    if (!err && rr->held.data) {
        err = s3_buffer_end(&rr->held, op);
        if (err == -EIO)
            err = s3_fail(s, op, &r, err, "the content does not match its checksum");
        rr->obj.checksum = rr->held.expected;
    }
    if (!err && ret_obj)
        *ret_obj = rr->obj;
    if (!err)
        s3_size_note(s, rr->obj.etag, rr->obj.size);
    read_end(rr, !err && ret_obj);
    return err ? err : (ssize_t)r.answer.sunk;
}

static ssize_t s3_read(struct store *st, struct op *op, const char *key, const char *etag,
                       struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    struct s3 *s = s3_of(st);
    const struct ranged_read fresh = {
        .base = {.sink = sink, .begin = read_begin}, .etag = etag, .off = off, .len = len};
    struct ranged_read rr = fresh;
    ssize_t n;

    rr.whole = off == 0 && etag && *etag && !atomic_load(&s->no_checksums) &&
               s3_size_within(s, etag, len < S3_VERIFY_MAX ? len : S3_VERIFY_MAX);
    n = read_once(s, op, key, &rr, ret_obj);
    if (n == -EMSGSIZE) { /* it is larger than was remembered */
        rr = fresh;
        n = read_once(s, op, key, &rr, ret_obj);
    }
    return n == -ERANGE ? read_at_end(s, op, key, &rr, ret_obj) : n;
}

/* --- open --- */

void s3_close(struct store *st)
{
    struct s3 *s = s3_of(st);

    http_free(s->http);
    aws_credentials_free(s->credentials);
    aws_settings_release(&s->aws);
    mutex_destroy(&s->lock);
    free(s->prefix);
    free(s->state_prefix);
    free(s->sse);
    free(s->sse_kms_key_id);
    free(s->storage_class);
    free(s->base.url);
    free(s->base.endpoint);
    free(s->base.advice);
    free(s->base.root_key);
    free(s);
}

static const struct store_ops s3_ops = {
    .name = "s3",
    .stat = s3_stat,
    .stat_dir = s3_stat_dir,
    .list = s3_list,
    .read = s3_read,
    .put = s3_put,
    .upload_begin = s3_upload_begin,
    .upload_part = s3_upload_part,
    .upload_commit = s3_upload_commit,
    .upload_abort = s3_upload_abort,
    .upload_detach = s3_upload_detach,
    .upload_token = s3_upload_token,
    .upload_resume = s3_upload_resume,
    .upload_has = s3_upload_has,
    .upload_sweep = s3_upload_sweep,
    .copy = s3_copy,
    .remove = s3_remove,
    .mkdir = s3_mkdir,
    .rmdir = s3_rmdir,
    .set_attributes = s3_set_attributes,
    .close = s3_close,
};

int s3_store_new(const char *url, const struct store_config *config, struct op *op,
                 struct store **ret)
{
    struct s3 *s = calloc(1, sizeof(*s));
    int err;

    if (!s)
        return op_fail(op, -ENOMEM, "out of memory");
    mutex_init(&s->lock);
    s->base.ops = &s3_ops;
    s->base.facts.caps = STORE_IF_MATCH | STORE_PARTS | STORE_COPY | STORE_ATTRS |
                         STORE_ORIGIN | STORE_CHECKSUM | STORE_ORDER | STORE_ACLS;
    s->base.facts.part_size = S3_PART_SIZE;
    s->base.facts.part_min = S3_PART_MIN;
    s->base.facts.part_max = S3_PART_MAX;
    s->base.facts.parts_max = S3_PARTS_MAX;
    s->base.facts.put_max = S3_PUT_MAX;
    s->base.facts.size_max = S3_SIZE_MAX;
    s->copy_max = S3_PUT_MAX;
    s->copy_part = S3_COPY_PART;
    err = s3_open(s, url, config, op);
    if (err) {
        s3_close(&s->base);
        return err;
    }
    *ret = &s->base;
    return 0;
}
