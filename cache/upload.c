/* Uploads: one name of one file goes to the store, as one request or in parallel parts.
 *
 * A job passes through: looked at > sent > noted here. One that the store has and the cache
 * could not note stays with its file: the next attempt only notes it.
 *
 * What is sent is a stable file: without writers a writable open stops the upload before a
 * changed byte can leave; with writers (a flush, a growing log) what the file was when it was
 * looked at is sent, and read again before it is committed. Clean is declared only when no
 * writer lived. docs/format.md, section 3. */
#include "cache/node.h"

#include "cache/crash.h"
#include "cache/intent.h"
#include "cache/origin.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* A file that changed while it was read. */
#define CHANGED (-ECANCELED)
/* A live file up to this size is read into memory and sent from there. */
#define SNAPSHOT_MAX (UINT64_C(16) << 20)
#define HELD_NS      (1 * NS_PER_SEC)
/* How often in a row a live file may be found rewritten before that counts as a failure. */
#define REWRITES_MAX  3
#define COMPARE_BYTES ((size_t)1 << 20)
/* How often the parts of a session are asked for in vain. */
#define RESUMES_MAX 3
/* So often in a row a condition must be refused before anything is sent without: what refuses
 * once may be something in between, or mean something else. */
#define REFUSALS_MAX 2

struct job {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
    char *path;
    int fd;
    bool live;         /* a writer or a mapping may change it */
    bool of_open_file; /* chosen although somebody writes: a log file, or a flush waits */
    uint64_t generation;
    uint64_t intents; /* the newest intention when the name was last seen to live */
    struct stat st;
    int64_t looked_ns; /* CLOCK_REALTIME of st */
    int64_t began_ns;  /* CLOCK_MONOTONIC of the attempt */
    bool left_behind;  /* requests of it got no answer before one that did */
    bool others_taken; /* other names were, since the store refused this one */
    struct attrs attrs;
    int64_t took_ns;   /* that it was sent in */
    char *etag;        /* the store's version that is replaced, "" none */
    bool unknown;      /* which version that is can't be told from here: it is asked */
    bool content;      /* else attributes only */
    bool recorded;     /* what the store took is known under the name that it has here */
    unsigned refusals; /* how often the store took the condition for none that it knows */
    bool sent;         /* the store has it, as this object */
    bool theirs;       /* which somebody else put there, with the same bytes */
    struct object object;
    atomic_int disk_error; /* negative errno of the cache's own disk, when that ended the
                              upload: whatever came of it, the store has not said so */
    _Atomic(const char *) disk_step; /* constant text: what failed then */
};

/* ---- sources ---- */

struct file_source {
    struct source base;
    struct job *job;
    uint64_t start;  /* of this part in the file */
    uint64_t summed; /* bytes of it that `sum` is of */
    uint32_t sum;    /* CRC-32C of what was read of it last, in order; of a live file only */
};

static int source_disk_failed(struct job *j, int err, const char *step)
{
    atomic_store(&j->disk_step, step);
    atomic_store(&j->disk_error, err);
    return err;
}

/* Drivers read a source in order, and from its beginning when they start over. */
static void sum_up(struct file_source *s, const void *buf, size_t len, uint64_t off)
{
    if (off == 0) {
        s->sum = 0;
        s->summed = 0;
    }
    if (off == s->summed) {
        s->sum = crc32c(s->sum, buf, len);
        s->summed += len;
    }
}

static int source_read_failed(struct job *j, int err)
{
    return source_disk_failed(j, err, "can't read the cache");
}

static int source_lost_here(struct job *j, int err)
{
    return source_disk_failed(j, err, "can't read the cache: its disk lost what was written");
}

static int upload_note_failed(struct job *j, int err)
{
    return source_disk_failed(j, err, "the session can't be noted in the cache");
}

static ssize_t file_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct file_source *s = container_of(src, struct file_source, base);
    struct job *j = s->job;

    if (off >= s->base.size)
        return 0;
    if (len > s->base.size - off)
        len = (size_t)(s->base.size - off);
    ssize_t n = pread(j->fd, buf, len, (off_t)(s->start + off));
    if (n < 0)
        return source_read_failed(j, -errno);
    /* Before the last bytes leave: without them there is no object. */
    if (s->start + off + (uint64_t)n >= (uint64_t)j->st.st_size &&
        file_check_kept(j->cache, j->node, j->fd) < 0)
        return source_lost_here(j, -EIO);
    /* A writer that came before these bytes were read has set the flag before it could write.
     */
    if (!j->live && atomic_load(&j->node->file->changed))
        return CHANGED;
    if (j->live)
        sum_up(s, buf, (size_t)n, off);
    return n == 0 ? CHANGED : n;
}

static void file_source_init(struct file_source *s, struct job *j, uint64_t start,
                             uint64_t size)
{
    *s = (struct file_source){
        .base = {.size = size, .pread = file_pread}, .job = j, .start = start};
}

static bool same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whether the file is still what it was when the upload began. */
static int source_still_same(struct job *j)
{
    struct stat now;

    if (fstat(j->fd, &now) < 0)
        return source_read_failed(j, -errno);
    if (file_check_kept(j->cache, j->node, j->fd) < 0)
        return source_lost_here(j, -EIO);
    /* A time may prove nothing; then writers do not come past the daemon. */
    bool told = !j->live || mirror_times_coarse(&j->cache->mirror);
    if (told && atomic_load(&j->node->file->changed))
        return CHANGED;
    return same_stat(&now, &j->st) ? 0 : CHANGED;
}

/* Whether the file has this CRC-32C at [off, end). 0, CHANGED or another error. */
static int compare_range(struct job *j, uint64_t off, uint64_t end, uint32_t sum)
{
    auto_free char *buf = malloc(COMPARE_BYTES);
    uint32_t now = 0;

    if (!buf)
        return -ENOMEM;
    while (off < end) {
        size_t want = end - off < COMPARE_BYTES ? (size_t)(end - off) : COMPARE_BYTES;
        ssize_t n = pread(j->fd, buf, want, (off_t)off);
        if (n < 0)
            return source_read_failed(j, -errno);
        if (n == 0 || atomic_load(&j->cache->cancelled))
            return n == 0 ? CHANGED : -EINTR;
        now = crc32c(now, buf, (size_t)n);
        off += (uint64_t)n;
    }
    return now == sum ? 0 : CHANGED;
}

/* Whether the file begins with what was read of it, whose sums are those of each `step` bytes.
 * Each byte of a live file was read once by now and is read again: what is the same both times
 * is what the file was at the moment in between (a content that came back aside). That it grew
 * is no matter. 0, CHANGED or another error. */
static int source_begins_the_same(struct job *j, const uint32_t *sums, uint64_t step)
{
    uint64_t size = (uint64_t)j->st.st_size;
    int r = source_still_same(j);

    if (r != CHANGED || !j->live)
        return r;
    r = 0;
    for (uint64_t off = 0; r == 0 && off < size; off += step)
        r = compare_range(j, off, size - off < step ? size : off + step, sums[off / step]);
    return r;
}

/* ---- versions ---- */

/* How often the version at the store may change under one upload. */
#define VERSIONS_MAX 8

/* Whether an upload replaces one version only. Where a put can take effect after the process
 * that made it has died, an older one of ours could land last otherwise; and what another node
 * wrote meanwhile would be lost without a word. */
static bool upload_has_version(struct job *j)
{
    unsigned caps = j->cache->store->caps;

    return j->content && (caps & STORE_IF_MATCH) && (caps & STORE_ORIGIN);
}

/* Whether the store sees to it. Where it knows no condition the version is looked at before. */
static bool upload_is_bound(struct job *j)
{
    return upload_has_version(j) && j->refusals < REFUSALS_MAX;
}

static bool upload_is_looked_at(struct job *j)
{
    return upload_has_version(j) && !upload_is_bound(j);
}

/* Whether it may have been the condition that was refused: then there is another attempt. */
static bool upload_condition_refused(struct job *j, int r)
{
    bool refused = r == -EOPNOTSUPP && upload_is_bound(j);

    j->refusals += refused;
    return refused;
}

static const char *upload_expected(struct job *j)
{
    return upload_is_bound(j) ? j->etag : NULL;
}

static int take_version(struct job *j, const struct object *obj)
{
    char *etag = strdup(obj && !obj->is_prefix ? obj->etag : "");

    if (!etag)
        return -ENOMEM;
    free(j->etag);
    j->etag = etag;
    return 0;
}

/* Whether the object there is a regular file with the bytes that are to be uploaded. 1, 0 or an
 * error; CHANGED: they are others by now. */
static int has_same_bytes(struct job *j, const struct object *there)
{
    uint64_t size = (uint64_t)j->st.st_size;
    struct checksum sum = {.kind = there->checksum.kind};
    mode_t mode = there->attrs.has & ATTR_MODE ? there->attrs.mode : S_IFREG;

    if (j->live || there->is_prefix || !S_ISREG(mode) || !S_ISREG(j->attrs.mode) ||
        there->size != size || (size && sum.kind == CHECKSUM_NONE))
        return 0;
    int r = file_sum(j->fd, size, &sum);
    if (r < 0)
        return source_read_failed(j, r);
    r = source_still_same(j);
    return r < 0 ? r : size == 0 || checksum_same(&sum, &there->checksum);
}

/* Somebody else's version is there. 1: it will do, several who write the same to one name are
 * in no conflict; -ESTALE; or another error. Takes the object over when it is 1. */
static int settle_theirs(struct job *j, struct op *op, struct object *there, struct object *ret)
{
    int r = has_same_bytes(j, there);

    if (r == 0)
        return op_fail(op, -ESTALE, "%s/%s was written by somebody else since it was read here",
                       j->cache->store->url, j->path);
    if (r < 0)
        return r;
    j->theirs = true;
    *ret = *there;
    *there = (struct object){0};
    return 1;
}

/* Another version than expected is there, or the server could not tell while another change was
 * on its way. 0: the upload may replace what is there, being as expected, ours, older, or none;
 * 1: it is the very one that was to be uploaded, whose answer was lost, or has the same bytes;
 * -ESTALE: somebody else's. */
static int upload_settle_version(struct job *j, struct op *op, struct object *obj)
{
    struct object there = {0};
    int r = store_stat(j->cache->store, op, j->path, &there);

    if (r == -ENOENT)
        return take_version(j, NULL);
    if (r < 0)
        return r;
    bool ours = origin_is_ours(j->cache, j->path, &there.attrs);
    if (ours && there.attrs.origin_ns == j->attrs.origin_ns) {
        *obj = there;
        return 1;
    }
    bool expected = j->etag && *j->etag && strcmp(there.etag, j->etag) == 0;
    r = there.is_prefix || expected || ours || j->unknown ? take_version(j, &there)
                                                          : settle_theirs(j, op, &there, obj);
    object_release(&there);
    return r;
}

/* ---- parts ---- */

struct parts {
    struct each each;
    struct job *job;
    struct upload *up;
    uint64_t part_size;
    unsigned n_parts;
    uint32_t *sums; /* CRC-32C of each as it was sent; of a live file only */
    bool resumed;   /* the store may have some of them */
};

static int send_part(struct each *each, size_t i, struct op *op)
{
    struct parts *p = container_of(each, struct parts, each);
    unsigned number = (unsigned)i + 1;
    struct file_source src;
    uint64_t start = (uint64_t)(number - 1) * p->part_size;
    uint64_t left = (uint64_t)p->job->st.st_size - start;
    uint64_t size = left < p->part_size ? left : p->part_size;

    file_source_init(&src, p->job, start, size);
    int r = p->resumed ? store_upload_has(p->up, op, number, &src.base) : 0;
    if (r == 0)
        r = store_upload_part(p->up, op, number, &src.base);
    else if (r == 1)
        r = 0;
    if (r == 0 && p->sums) {
        p->sums[number - 1] = src.sum;
        r = src.summed == size ? 0 : CHANGED;
    }
    if (r == 0) {
        cache_lock(p->job->cache);
        p->job->node->file->upload_done += size;
        cache_unlock(p->job->cache);
    }
    return r;
}

static int send_parts(struct parts *p, struct op *op)
{
    struct cache *c = p->job->cache;

    p->each = (struct each){.call = send_part,
                            .n = p->n_parts,
                            .at_once = c->config.upload_jobs,
                            .patience_ns = c->config.store_timeout_ns};
    return pool_each(c->parts, &p->each, op);
}

static uint64_t part_size_for(struct cache *c, uint64_t size)
{
    struct store *s = c->store;
    uint64_t part = c->config.part_size, most = s->parts_max ? s->parts_max : 10000;

    if (part < s->part_min)
        part = s->part_min;
    if (part * most < size)
        part = ((size + most - 1) / most + (1 << 20) - 1) >> 20 << 20;
    return s->part_max && part > s->part_max ? s->part_max : part;
}

static int no_part(void *arg, const struct part *part)
{
    (void)arg;
    (void)part;
    return 0;
}

/* The session is gone: did an earlier commit of it take effect? 1 when the store has just what
 * is to be uploaded, 0 when it is to be sent again. */
static int committed_before(struct job *j, const struct session *s, struct op *op,
                            struct object *obj)
{
    /* What was written within the clock's granularity could differ and not show it. */
    bool proven = !s->live && !j->live && !mtime_was_racy(s->mark.mtime_ns, s->began_ns);

    if (!proven || !upload_is_bound(j))
        return 0;
    int64_t origin_ns = j->attrs.origin_ns;
    j->attrs.origin_ns = s->began_ns;
    cache_op(j->cache, op);
    int r = upload_settle_version(j, op, obj);
    j->attrs.origin_ns = origin_ns;
    return r;
}

/* Asking for the parts failed. A store that can be reached and does not tell them would be
 * asked for ever: the upload begins anew then. */
static int give_session_up(struct job *j, struct session **s, int r, const struct op *op)
{
    bool answered = !err_is_transient(r) || r == -EPROTO || r == -EIO;

    if (r == -EINTR || !answered || (err_is_transient(r) && ++(*s)->attempts < RESUMES_MAX))
        return r;
    log_warn("%s: what was sent before can't be gone on with: %s", j->path, op->why);
    session_leave(j->cache, *s, true);
    *s = NULL;
    return -ENOENT;
}

/* Goes on with the session of an attempt before. 0; 1: it was committed; -ENOENT: it is gone.
 * In both *s is NULL then. */
static int resume_parts(struct job *j, struct parts *p, struct session **s, struct op *op,
                        struct object *obj)
{
    int r =
        store_upload_resume(j->cache->store, op, j->path, (*s)->token, no_part, NULL, &p->up);

    if (r == 0) {
        p->resumed = true;
        p->part_size = (*s)->part_size;
        j->attrs.origin_ns = (*s)->began_ns;
        crash_point("session-resumed");
        return 0;
    }
    if (r != -ENOENT)
        return give_session_up(j, s, r, op);
    r = committed_before(j, *s, op, obj);
    if (r >= 0) {
        session_gone(j->cache, *s);
        *s = NULL;
    }
    return r == 0 ? -ENOENT : r;
}

static int begin_parts(struct job *j, struct parts *p, const struct session_mark *mark,
                       struct session **ret, struct op *op)
{
    struct cache *c = j->cache;
    int r = session_open(c, j->path, mark, p->part_size, j->attrs.origin_ns, j->live, ret);

    if (r < 0)
        return upload_note_failed(j, r);
    cache_op(c, op);
    r = store_upload_begin(c->store, op, j->path, &j->attrs, &p->up);
    if (r < 0)
        return r;
    crash_point("session-begun");
    auto_free char *token = store_upload_token(p->up);
    r = session_begun(c, *ret, token);
    crash_point("upload-session");
    return r < 0 ? upload_note_failed(j, r) : 0;
}

/* 1: the session was not needed, an earlier commit of it had taken effect. */
static int commit_parts(struct job *j, struct upload *up, struct op *op, struct object *obj)
{
    bool again = true;
    int r = 0;

    for (int i = 0; i < VERSIONS_MAX && again; i++) {
        cache_op(j->cache, op);
        r = i > 0 || upload_is_looked_at(j) ? upload_settle_version(j, op, obj) : 0;
        if (r != 0)
            return r;
        r = store_upload_commit(up, op, upload_expected(j), obj);
        again = r == -ESTALE || upload_condition_refused(j, r);
    }
    return r;
}

/* Room for what is sent of each part. */
static int sums_new(struct parts *p)
{
    p->n_parts = (unsigned)(((uint64_t)p->job->st.st_size + p->part_size - 1) / p->part_size);
    p->sums = p->job->live ? calloc(p->n_parts, sizeof(*p->sums)) : NULL;
    return p->job->live && !p->sums ? -ENOMEM : 0;
}

/* The parts are sent and committed, or the session is left for another attempt, or ended. */
static int run_session(struct job *j, struct parts *p, struct session *s, struct op *op,
                       struct object *obj)
{
    struct cache *c = j->cache;

    int r = sums_new(p);
    if (r == 0)
        r = send_parts(p, op);
    crash_point("upload-parts");
    if (r == 0)
        r = source_begins_the_same(j, p->sums, p->part_size);
    free(p->sums);
    if (r == 0)
        r = commit_parts(j, p->up, op, obj);
    if (r == 0) {
        crash_point("session-committed");
        session_gone(c, s);
        return 0;
    }
    if (err_is_transient(r) || r == -EINTR || err_is_no_space(r)) {
        store_upload_detach(p->up);
        session_leave(c, s, false);
        return r;
    }
    struct op abort_op;
    op_init(&abort_op, 10 * NS_PER_SEC);
    if (store_upload_abort(p->up, &abort_op) == 0)
        session_gone(c, s);
    else
        session_leave(c, s, true);
    return r;
}

static int upload_in_parts(struct job *j, struct op *op, struct object *obj)
{
    struct cache *c = j->cache;
    struct parts p = {.job = j, .part_size = part_size_for(c, (uint64_t)j->st.st_size)};
    struct session_mark mark;

    session_mark(&mark, &j->st, &j->attrs);
    struct session *s = session_take(c, j->path, &mark);
    int r = s ? resume_parts(j, &p, &s, op, obj) : -ENOENT;
    if (r == -ENOENT && !s)
        r = begin_parts(j, &p, &mark, &s, op);
    if (r == 0)
        return run_session(j, &p, s, op, obj);
    if (p.up)
        store_upload_detach(p.up);
    if (s)
        session_leave(c, s, false);
    return r;
}

/* ---- whole ---- */

static int put_snapshot(struct job *j, struct op *op, struct object *obj)
{
    size_t size = (size_t)j->st.st_size;
    auto_free char *copy = malloc(size ? size : 1);
    struct mem_source src;

    if (!copy)
        return op_fail(op, -ENOMEM, "upload %s: no memory", j->path);
    ssize_t n = pread(j->fd, copy, size, 0);
    if (n < 0)
        return source_read_failed(j, -errno);
    const uint32_t sum = crc32c(0, copy, (size_t)n);
    int r = (size_t)n == size ? source_begins_the_same(j, &sum, size ? size : 1) : CHANGED;
    if (r < 0)
        return r;
    mem_source_init(&src, copy, size);
    return store_put(j->cache->store, op, j->path, upload_expected(j), &src.base, &j->attrs,
                     obj);
}

static int put_special(struct job *j, struct op *op, struct object *obj)
{
    struct mem_source src;

    mem_source_init(&src, "", 0);
    return store_put(j->cache->store, op, j->path, upload_expected(j), &src.base, &j->attrs,
                     obj);
}

static int upload_once(struct job *j, struct op *op, struct object *obj)
{
    struct store *s = j->cache->store;
    uint64_t size = (uint64_t)j->st.st_size;
    bool parts = (s->caps & STORE_PARTS) && size > j->cache->config.part_size;

    if (!S_ISREG(j->attrs.mode))
        return put_special(j, op, obj);
    if (j->live && size <= SNAPSHOT_MAX)
        return put_snapshot(j, op, obj);
    if (parts || (j->live && (s->caps & STORE_PARTS)))
        return upload_in_parts(j, op, obj);
    struct file_source src;
    file_source_init(&src, j, 0, size);
    return store_put(s, op, j->path, upload_expected(j), &src.base, &j->attrs, obj);
}

/* The store refused a condition, once and again, and then took the same without it: that was
 * it. */
static void remember_refusal(struct cache *c)
{
    if (!atomic_exchange(&c->unconditional, true))
        log_warn("%s knows no conditional uploads: what two mounts write to one name in the "
                 "same moment, one of them loses",
                 c->store->url);
}

static int upload_content(struct job *j, struct op *op, struct object *obj)
{
    j->refusals = atomic_load(&j->cache->unconditional) ? REFUSALS_MAX : 0;
    bool ask = upload_is_looked_at(j) || (upload_is_bound(j) && j->unknown);
    int r = ask ? upload_settle_version(j, op, obj) : 0;

    j->unknown = false; /* what was there then may be replaced, nothing that comes later */
    for (int i = 0; i < VERSIONS_MAX && r == 0; i++) {
        r = upload_once(j, op, obj);
        if (r == 0 && j->refusals == REFUSALS_MAX)
            remember_refusal(j->cache);
        if (!upload_condition_refused(j, r) && (r != -ESTALE || !upload_is_bound(j)))
            return r == 1 ? 0 : r; /* 1: settled as its parts were committed */
        cache_op(j->cache, op);
        r = upload_settle_version(j, op, obj);
        if (r == 0) /* another attempt: its session has its own row */
            origin_sign(j->cache, j->path, &j->attrs);
    }
    if (r == 0) /* another attempt was due, and nothing is stored */
        r = op_fail(op, -EAGAIN, "upload %s: its version at the store changes all the time",
                    j->path);
    return r == 1 ? 0 : r;
}

/* ---- beginning ---- */

/* The longest pause between two attempts. */
#define RETRY_MOST_NS (60 * NS_PER_SEC)

int64_t retry_delay_ns(const struct cache *c, unsigned attempts)
{
    unsigned doubled = attempts > 5 ? 5 : attempts - 1;
    int64_t most = c->config.retry_ns << doubled;

    if (most > RETRY_MOST_NS)
        most = RETRY_MOST_NS;

    /* Half of it at random, so that many files do not come back at once. */
    return most / 2 +
           (int64_t)((uint64_t)clock_real_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 33) %
               (most / 2 + 1);
}

int node_attrs_locked(struct node *n, struct attrs *ret)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                      .mode = n->mode,
                      .uid = n->uid,
                      .gid = n->gid,
                      .mtime_ns = n->mtime_ns};

    if (n->xattrs) {
        a.has |= ATTR_XATTRS;
        a.xattrs = strdup(n->xattrs);
    }
    if (S_ISLNK(n->mode)) {
        a.has |= ATTR_TARGET;
        a.target = strdup(n->target ? n->target : "");
    }
    if (S_ISCHR(n->mode) || S_ISBLK(n->mode)) {
        a.has |= ATTR_RDEV;
        a.rdev = n->rdev;
    }
    if ((n->xattrs && !a.xattrs) || (S_ISLNK(n->mode) && !a.target)) {
        attrs_release(&a);
        return -ENOMEM;
    }
    *ret = a;
    return 0;
}

bool upload_runs_at_locked(struct cache *c, const char *path, bool below)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < c->n_uploading; i++) {
        const char *key = c->uploading[i]->file->upload_key;
        if (strncmp(key, path, len) == 0 && (key[len] == '\0' || (below && key[len] == '/')))
            return true;
    }
    return false;
}

static struct entry *upload_entry_at(struct node *n, const char *path)
{
    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_free char *now = entry_path(e);
        if (now && strcmp(now, path) == 0)
            return e;
    }
    return NULL;
}

/* Nothing leaves before the disk knows that it is owed: after a crash the store would have what
 * nobody here remembers. A chmod may just be about to write it. */
static int note_debt(struct job *j)
{
    struct cache *c = j->cache;

    cache_lock(c);
    bool noted = j->node->file->noted & (STAMP_WRITING | STAMP_ATTR_DIRTY);
    cache_unlock(c);
    return noted ? 0 : node_write_stamp(c, j->node, j->fd);
}

/* Looks at the file. 0: there is something to send; 1: nothing; CHANGED: look again later. */
static int look(struct job *j)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    int r;

    cache_lock(c);
    atomic_store(&f->changed, false);
    bool writers = f->write_handles > 0 || f->fds[FD_WRITE].users > 0;
    bool wanted = f->wanted || j->of_open_file;
    cache_unlock(c);
    /* Someone opened it for writing since it was chosen: it is looked at when that is closed.
     */
    if (writers && !wanted)
        return CHANGED;
    bool held = !writers && file_has_writer(j->fd);
    j->live = writers || held;
    if (held && !wanted) {
        cache_lock(c);
        f->held = true;
        (void)file_look_locked(c, n, j->fd, &j->st); /* so that status tells of the change */
        cache_unlock(c);
        return CHANGED;
    }
    /* The next store to a mapped page moves mtime only after the page was cleaned. */
    if (j->live && fsync(j->fd) < 0) {
        r = -errno;
        if (r == -EIO || err_is_no_space(r))
            file_lost(c, n, j->fd);
        return source_lost_here(j, r);
    }
    cache_lock(c);
    f->held = held;
    /* Someone opened it for writing since the lease was tried. */
    struct entry *e = upload_entry_at(n, j->path); /* or the name went since it was chosen */
    r = !e || (!j->live && (f->write_handles || f->fds[FD_WRITE].users))
            ? CHANGED
            : file_look_locked(c, n, j->fd, &j->st);
    uint64_t looked = f->generation;
    /* It was written, or is being made anew, since it was chosen; or since it was looked at. */
    if (r == 0 && (upload_has_to_wait_locked(c, f, j->path) || f->generation != looked))
        r = CHANGED;
    if (r != 0) {
        cache_unlock(c);
        return r;
    }
    j->looked_ns = clock_real_ns();
    atomic_store(&f->changed, false);
    j->generation = f->generation;
    f->after_seq = 0;
    j->content = f->state == FILE_DIRTY;
    bool attrs = n->flags & NODE_ATTR_DIRTY;
    r = !j->content && !attrs ? 1 : node_attrs_locked(n, &j->attrs);
    if (r == 0) {
        bool known = etag_known(&e->etag);
        bool ghost = ghost_pending(c, j->path);
        const char *removed = ghost && !known ? intent_removes_version(c, j->path) : NULL;
        j->unknown = (ghost && !removed) || (!known && e->may_exist) || etag_is(&e->etag, "");
        j->etag = known ? etag_dup(&e->etag) : strdup(removed ? removed : "");
    }
    f->upload_done = 0;
    cache_unlock(c);
    return r;
}

/* ---- ending ---- */

static bool upload_any_dirty_name(struct node *n) REQUIRES(cache_mutex)
{
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty)
            return true;
    return false;
}

static void upload_clear_error_locked(struct file *f) REQUIRES(cache_mutex)
{
    f->attempts = 0;
    f->rewrites = 0;
    if (f->cut) /* it was while it was sent: that error stays until it is mended */
        return;
    f->error = 0;
    f->error_told = false;
    free(f->error_text);
    f->error_text = NULL;
}

/* Nothing is left to do for this file, as far as its names go. */
static void settle_locked(struct cache *c, struct job *j) REQUIRES(cache_mutex)
{
    struct node *n = j->node;
    struct file *f = n->file;

    f->wanted = false;
    f->first_seq = 0;
    upload_clear_error_locked(f);
    n->flags &= ~(unsigned)(NODE_ATTR_DIRTY | NODE_ATTRS_OLD);
    if (f->state == FILE_DIRTY)
        f->state = FILE_CLEAN;
    f->content_dirty = false;
    file_unqueue_locked(c, f);
    if (!j->live)
        f->writing_stamp = f->past = false;
    else if (f->write_handles == 0)
        file_queue_locked(c, n); /* a mapping lives: looked at again */
    if (j->live && f->write_handles == 0)
        f->due_ns = clock_mono_ns() + HELD_NS;
}

static void keep_record(struct stamp_keys *kept, const struct stamp_keys *from, const char *key,
                        bool dirty)
{
    const struct stamp_key *k = key ? stamp_keys_find(from, key) : NULL;

    if (k && dirty)
        (void)stamp_keys_expect(kept, key, k->etag);
    else if (k)
        (void)stamp_keys_set(kept, key, k->etag, k->mtime_ns, k->size);
}

/* The file has other content than what its records are of. Names that still have to get it keep
 * what it is to replace, those that have it their records. */
static void renew_records_locked(struct node *n) REQUIRES(cache_mutex)
{
    struct stamp_keys kept = {0};

    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_free char *key = entry_key(e);
        auto_free char *path = entry_path(e); /* see name_expect() */
        keep_record(&kept, &n->file->keys, key, e->dirty);
        keep_record(&kept, &n->file->keys, path, e->dirty);
    }
    stamp_keys_release(&n->file->keys);
    n->file->keys = kept;
}

static void took_content_locked(struct job *j, struct entry *e, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    int64_t mtime_ns = (int64_t)j->st.st_mtim.tv_sec * NS_PER_SEC + j->st.st_mtim.tv_nsec;

    if (f->clean_mtime_ns != mtime_ns || f->clean_size != (uint64_t)j->st.st_size ||
        f->stored_generation != j->generation)
        renew_records_locked(j->node);
    f->clean_mtime_ns = mtime_ns;
    f->clean_size = (uint64_t)j->st.st_size;
    /* Another write within the clock's granularity, after it was looked at, would not show if
     * it goes past the daemon. */
    f->suspect = j->live && f->past &&
                 (mtime_was_racy(mtime_ns, j->looked_ns) || !j->cache->mirror.mtime_trusted);
    f->stored_generation = j->generation;
    f->sum = obj->checksum;
    free(f->etag);
    f->etag = strdup(obj->etag);
    (void)stamp_keys_set(&f->keys, j->path, obj->etag, mtime_ns, (uint64_t)j->st.st_size);
    (void)e;
}

/* What is owed from now on was closed later than what the store just got. */
static void reorder_locked(struct cache *c, struct file *f, uint64_t first_seq)
    REQUIRES(cache_mutex)
{
    f->first_seq = first_seq;
    if (f->queued)
        file_place_locked(c, f);
}

/* What an upload brought to a name that was renamed meanwhile is the version that is copied:
 * who stands under the new name now, the same file or another, is to replace that one. */
static void moved_meanwhile_locked(struct job *j, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    auto_free char *at = c->renames ? intent_path_after(c->intents, j->path) : NULL;
    struct entry *e = NULL;
    struct node *n = at ? tree_find(c, at, &e) : NULL;
    auto_free char *key = n && e && !n->dir ? entry_key(e) : NULL;

    if (key && strcmp(key, j->path) == 0 && etag_known(&e->etag))
        etag_set(&e->etag, obj->etag);
}

/* The store has it. */
static void done_locked(struct job *j) REQUIRES(cache_mutex)
{
    const struct object *obj = &j->object;
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    struct entry *e = upload_entry_at(n, j->path);
    bool same = f->generation == j->generation;

    if (j->content)
        refusal_taken_locked(c, CHANGE_PUT, j->began_ns);
    if (upload_is_bound(j) && j->left_behind)
        (void)late_put_locked(c, j->path, j->etag ? j->etag : "");
    c->uploaded_files++;
    c->uploaded_bytes += j->content ? (uint64_t)j->st.st_size : 0;
    c->unreachable_ns = 0;
    c->out_of_quota = false;
    if (!e) {
        file_put_off_locked(c, f);
        moved_meanwhile_locked(j, obj);
        return; /* renamed or removed meanwhile: an intention deals with the old name */
    }
    if (j->content)
        took_content_locked(j, e, obj);
    else if (stamp_keys_find(&f->keys, j->path))
        (void)stamp_keys_set(&f->keys, j->path, obj->etag, f->clean_mtime_ns, f->clean_size);
    etag_set(&e->etag, obj->etag);
    if (!j->content && f->etag) {
        free(f->etag);
        f->etag = strdup(obj->etag);
    }
    e->may_exist = true;
    e->verified_ns = clock_mono_ns();
    entry_changed_locked(c, e);
    if (j->theirs)
        entry_distrust(e); /* the next listing brings their attributes */
    else
        entry_put(e, obj, j->took_ns);
    if (c->store->caps & STORE_ATTRS)
        n->attrs_has = j->attrs.has;
    f->uploaded_live_ns = clock_mono_ns();
    /* An ETag can come again with the content, and an older upload that is bound to it is then
     * no longer refused: whether this one lasted is seen when it can arrive no more. */
    int64_t late_ns = j->content ? late_put_until_locked(c, j->path, obj->etag) : 0;
    if (late_ns) {
        upload_clear_error_locked(f);
        f->due_ns = late_ns;
        return;
    }
    j->recorded = late_put_until_locked(c, j->path, NULL) == 0;
    e->stored_generation = j->generation;
    e->refused = false;
    e->failed = !same; /* what was written since goes there after its other names */
    if (same)
        e->dirty = false;
    if (same && !upload_any_dirty_name(n))
        settle_locked(c, j);
    else if (!same)
        reorder_locked(c, f, f->after_seq); /* 0: not closed since */
    if (file_stored_locked(n, f->wanted_generation))
        f->wanted = false; /* what was written since goes up in its own time */
    if (!f->queued || j->live)
        return;
    if (same)
        f->due_ns = clock_mono_ns();
    else
        file_put_off_locked(c, f);
}

/* Whether the failure is what the store said. */
static bool is_answer(const struct job *j)
{
    return !atomic_load(&j->disk_error);
}

/* Whether the name is refused for good, as far as that is known by now. */
static bool note_refusal_locked(struct job *j, struct entry *e, int r) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    bool refused = is_answer(j) && refusal_is_one(r);

    f->refused_ns = refused ? clock_mono_ns() : 0;
    if (!refused || !e)
        return false;
    e->refused = e->refused || j->others_taken;
    if (!e->refused)
        refusal_probe_locked(j->cache);
    return e->refused;
}

static char *refused_text(const char *path, const char *why)
{
    char *text = NULL;

    if (asprintf(
            &text,
            "%s: the store refuses the name and takes others: the file stays here until it "
            "is renamed or removed (%s)",
            path, why) < 0)
        return NULL;
    return text;
}

static void failed_locked(struct job *j, int r, const char *why) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct file *f = j->node->file;
    struct entry *e = upload_entry_at(j->node, j->path);

    bool refused = note_refusal_locked(j, e, r);
    if (e) {
        e->failed = true;
        /* Only the answer may have been lost, unless a refusal was it. */
        e->tried = e->tried || !is_answer(j) || !refusal_is_one(r) || j->left_behind;
    }
    if (upload_is_bound(j) && is_answer(j) && err_is_transient(r))
        (void)late_put_locked(c, j->path, j->etag ? j->etag : "");
    if (r == CHANGED) {
        if (j->live || f->held)
            f->due_ns = clock_mono_ns() + HELD_NS;
        else
            file_put_off_locked(c, f);
        return;
    }
    if (c->stopping)
        return;
    if (f->attempts++ == 0)
        f->failing_ns = clock_mono_ns();
    f->failed_ns = clock_mono_ns();
    f->error = r;
    f->error_told = false;
    f->error_here = !is_answer(j);
    f->due_ns = clock_mono_ns() + retry_delay_ns(c, f->attempts);
    free(f->error_text);
    f->error_text = refused ? refused_text(j->path, why) : strdup(why);
    why = f->error_text ? f->error_text : why;
    failure_note_locked(c, &c->write_failure, r, why);
    if (is_answer(j) && err_is_no_space(r))
        c->out_of_quota = true;
    if (!c->unreachable_ns)
        c->unreachable_ns = clock_mono_ns();
    log_later(&c->log, LOG_LEVEL_ERROR, "upload failed, kept in the cache and tried again: %s",
              why);
}

static void forget_running_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < c->n_uploading; i++)
        if (c->uploading[i] == n) {
            c->uploading[i] = c->uploading[--c->n_uploading];
            break;
        }
    c->uploads_running--;
    n->file->uploading = false;
    free(n->file->upload_key);
    n->file->upload_key = NULL;
}

/* The stamp: what the store has first, then that nothing is owed. */
static int write_stamps(struct job *j)
{
    crash_point("upload-committed");
    int r = file_write_keys(j->cache, j->node, j->fd);
    crash_point("upload-keys");
    if (r == 0)
        r = node_write_stamp(j->cache, j->node, j->fd);
    crash_point("upload-stamped");
    return r;
}

/* The name has no new attributes to bring to the store any more. */
static void attributes_dropped_locked(struct job *j, struct entry *e) REQUIRES(cache_mutex)
{
    struct node *n = j->node;

    e->dirty = false;
    e->verified_ns = 0; /* what is there is asked by the next who comes */
    entry_distrust(e);
    if (upload_any_dirty_name(n))
        return;
    n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    n->flags |= NODE_ATTRS_OLD;
    n->file->wanted = false;
    upload_clear_error_locked(n->file);
    file_unqueue_locked(j->cache, n->file);
    notice_locked(j->cache, n, NULL);
}

/* The version that got new attributes is at the store no more: somebody has replaced or removed
 * it. Nothing here is worth keeping, as the content is not ours. */
static int drop_attributes(struct job *j, bool replaced)
{
    struct cache *c = j->cache;
    struct op told;

    op_init(&told, OP_FOREVER);
    (void)op_fail(
        &told, -ESTALE,
        "%s/%s was %s by somebody else: the new mode, owner or times that it got here "
        "are dropped",
        c->store->url, j->path, replaced ? "replaced" : "removed");
    cache_lock(c);
    struct entry *e = upload_entry_at(j->node, j->path);
    bool drop = e && j->node->file->generation == j->generation;
    if (drop) {
        attributes_dropped_locked(j, e);
        failure_note_locked(c, &c->write_failure, -ESTALE, told.why);
    }
    cache_unlock(c);
    if (drop) {
        log_error("%s", told.why);
        (void)node_write_stamp(c, j->node, j->fd);
    }
    return CHANGED;
}

/* Whether the object has the content of which some, or none, is here. */
static bool is_same_content_locked(const struct file *f, const struct object *there)
    REQUIRES(cache_mutex)
{
    bool some = f->present.n || f->fetches || f->verify || f->open_handles;
    bool same = f->sum.kind != CHECKSUM_NONE && checksum_same(&f->sum, &there->checksum);

    return !there->is_prefix && there->size == f->clean_size && (same || !some);
}

/* A version of ours is there. What is here of another content goes up again, with everything.
 * The same content can be another version by its attributes alone, of which no answer came: it
 * is that version which gets the new ones. False when it is not known to be the same, and can't
 * go up, as not all of it is here. */
static bool settle_ours_locked(struct job *j, const struct object *there) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    struct entry *e = upload_entry_at(j->node, j->path);

    if (f->state != FILE_PARTIAL) {
        file_mark_dirty_locked(j->cache, j->node, true);
        return true;
    }
    char *etag = e && strcmp(there->etag, j->etag) != 0 && is_same_content_locked(f, there)
                     ? strdup(there->etag)
                     : NULL;
    if (!etag)
        return false;
    etag_set(&e->etag, etag);
    free(f->etag);
    f->etag = etag;
    return true;
}

/* Another version than that which gets new attributes is there, or none. */
static int settle_attributes(struct job *j, struct op *op)
{
    struct cache *c = j->cache;
    struct object there = {0};

    cache_op(c, op);
    int r = store_stat(c->store, op, j->path, &there);
    if (r < 0 && r != -ENOENT)
        return r;
    bool ours = r == 0 && origin_is_ours(c, j->path, &there.attrs);
    cache_lock(c);
    ours = ours && settle_ours_locked(j, &there);
    cache_unlock(c);
    object_release(&there);
    return ours ? CHANGED : drop_attributes(j, r == 0);
}

static int upload_send_object(struct job *j, struct op *op, struct object *obj)
{
    struct cache *c = j->cache;

    if (j->content)
        return upload_content(j, op, obj);
    if (!(c->store->caps & STORE_ATTRS)) {
        memcpy(obj->etag, j->etag,
               sizeof(obj->etag) < strlen(j->etag) + 1 ? sizeof(obj->etag) - 1
                                                       : strlen(j->etag) + 1);
        return 0;
    }
    struct session_watch watch;
    session_watch(&watch, c, op);
    int r =
        store_set_attributes(c->store, op, j->path, *j->etag ? j->etag : NULL, &j->attrs, obj);
    int noted = session_unwatch(&watch, op);
    if (op->left_behind)
        late_copy(c, j->path);
    if (r < 0 && noted < 0)
        return upload_note_failed(j, noted);
    return r == -ENOENT || r == -ESTALE ? settle_attributes(j, op) : r;
}

static bool has_other_names(const struct node *n)
{
    return n->links && n->links->next_link;
}

/* The name that lost, when it can go now; else NULL. A copy is of what was sent. */
static struct entry *loser_locked(struct job *j, bool copied) REQUIRES(cache_mutex)
{
    struct node *n = j->node;
    struct entry *e = upload_entry_at(n, j->path);
    bool free_to_go = e && e->dirty && n->file->open_handles == 0 && !n->file->fetches &&
                      has_other_names(n) == copied &&
                      (!copied || n->file->generation == j->generation);

    return free_to_go ? e : NULL;
}

/* An unnamed file with the content, on the disk. Returns its descriptor; -EBUSY: not now. */
static int copy_content(struct job *j)
{
    auto_close int to = mirror_tmpfile(&j->cache->mirror);
    off_t in = 0, out = 0;
    struct stat st;
    ssize_t n = 1;

    if (to < 0 || fstat(j->fd, &st) < 0)
        return to < 0 ? to : -errno;
    while (n > 0 && in < st.st_size && !atomic_load(&j->cache->cancelled))
        n = copy_file_range(j->fd, &in, to, &out, (size_t)(st.st_size - in), 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (n < 0 || futimens(to, times) < 0 || fsync(to) < 0)
        return -errno;
    return in < st.st_size ? -EBUSY : take_fd(to);
}

/* Other names go on with the file, and will be written: what is kept is a copy of its own.
 * After a kill in between it is owed as before, and kept once more. */
static int keep_copy(struct job *j, struct entry *e, int copy)
{
    int r = mirror_keep_fd(&j->cache->mirror, copy, j->path);

    crash_point("conflict-copied");
    return r < 0 ? r : file_leave_name(j->cache, e);
}

/* The name is out of the mirror. */
static void lost_locked(struct job *j, struct entry *e) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    log_later(&c->log, LOG_LEVEL_ERROR,
              "%s/%s was written by somebody else meanwhile: theirs stays, the content from "
              "here is kept as %s/kept/%s",
              c->store->url, j->path, c->mirror.dir, j->path);
    c->kept_files++;
    origin_settled(c, j->path);
    n->nlink--;
    stamp_keys_remove(&n->file->keys, j->path);
    name_is_the_stores_locked(c, j->path);
    entry_remove_locked(c, e);
    if (!n->links)
        file_unqueue_locked(c, n->file);
}

/* Somebody else's version has the name at the store. The content from here goes to kept/, where
 * status lists it, and the name shows theirs. */
static void upload_keep_loser(struct job *j)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    cache_lock(c);
    bool copied = has_other_names(n) && loser_locked(j, true);
    cache_unlock(c);
    auto_close int copy = copied ? copy_content(j) : -EBADF;
    ns_write(c);
    cache_lock(c);
    struct entry *e = loser_locked(j, copied);
    uint64_t seq = n->file->first_seq ? n->file->first_seq : UINT64_MAX; /* never closed */
    cache_unlock(c);
    int r = !e ? -EBUSY : copied && copy < 0 ? copy : 0;
    /* First: after a kill in between it is owed as before, and loses again. */
    if (r == 0)
        r = intents_take_back(c, seq);
    crash_point("conflict-removals");
    if (r == 0)
        r = copied ? keep_copy(j, e, copy) : mirror_keep(&c->mirror, j->path);
    crash_point("conflict-kept");
    if (r == 0) {
        cache_lock(c);
        lost_locked(j, e);
        cache_unlock(c);
    } else if (r != -EBUSY) {
        log_later(&c->log, LOG_LEVEL_ERROR, "cache %s: can't set %s aside: %s", c->mirror.dir,
                  j->path, strerror(-r));
    }
    ns_done(c);
}

static void job_free(struct job *j)
{
    object_release(&j->object);
    attrs_release(&j->attrs);
    free(j->etag);
    free(j->path);
    free(j);
}

void upload_forget(struct job *j)
{
    if (j)
        job_free(j);
}

/* Frees the job, or leaves it with its file. */
static void finish(struct job *j, int r, const char *why)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    /* A rename decides under ns whether what it moves is stored, and moves it a while later. */
    ns_read(c);
    cache_lock(c);
    if (r == 0)
        done_locked(j);
    else if (r == 1 && n->file->generation == j->generation)
        settle_locked(c, j);
    else if (r == 1) /* somebody came since it was looked at */
        file_put_off_locked(c, n->file);
    else
        failed_locked(j, r, why);
    cache_unlock(c);
    ns_done(c);
    if (r == -ESTALE && is_answer(j) && upload_has_version(j))
        upload_keep_loser(j);
    bool stamped = r >= 0 && write_stamps(j) == 0;
    if (stamped && j->recorded)
        origin_settled(c, j->path);
    if (r >= 0 && !stamped)
        log_warn("%s is in the store, but its stamp could not be written; it will be uploaded "
                 "again after a restart",
                 j->path);
    ns_read(c); /* for the next */
    cache_lock(c);
    forget_running_locked(c, n);
    struct entry *e = r == 0 ? upload_entry_at(n, j->path) : NULL;
    if (e) /* only now it is not ours any more */
        index_news_locked(c, e->parent);
    waitq_wake_locked(c, &n->file->upload_waiters, 0);
    if (j->fd >= 0)
        file_put_fd_locked(c, n->file, FD_READ);
    if (r < 0 && j->sent)
        n->file->unnoted = j;
    else
        job_free(j);
    file_lru_add_locked(c, n->file);
    upload_ended_locked(c);
    node_unref_locked(c, n);
    cache_check_locked(c);
    cache_unlock(c);
    ns_done(c);
}

/* A live file is not what was sent of it. CHANGED: once more, after a pause; -EBUSY: that was
 * so too often. */
static int rewritten(struct job *j, struct op *op)
{
    cache_lock(j->cache);
    struct file *f = j->node->file;
    bool often = ++f->rewrites >= REWRITES_MAX;
    f->rewrites = often ? 0 : f->rewrites;
    cache_unlock(j->cache);
    return often ? op_fail(op, -EBUSY,
                           "upload %s: it is rewritten each time while it is read; tried again "
                           "after a pause, and when its writers close it",
                           j->path)
                 : CHANGED;
}

/* 0: the store has it; 1: there is nothing to send. */
static int send_now(struct job *j, struct op *op)
{
    j->began_ns = clock_mono_ns();
    int r = look(j);

    if (r < 0 && r != CHANGED && is_answer(j))
        (void)source_read_failed(j, r);
    if (r == 0) {
        r = note_debt(j);
        if (r < 0)
            (void)source_disk_failed(j, r, "its stamp can't be written in the cache");
    }
    if (r == 0)
        origin_sign(j->cache, j->path, &j->attrs);
    crash_point("upload-looked");
    if (r == 0)
        r = upload_send_object(j, op, &j->object);
    if (r == CHANGED && j->live && j->content)
        r = rewritten(j, op);
    j->sent = r == 0;
    j->took_ns = clock_mono_ns() - j->began_ns;
    return r;
}

/* Older removals of the name are void, on the disk first. */
static int note_sent(struct job *j)
{
    int r = intents_retire(j->cache, INTENT_UNLINK, j->path, j->intents);

    return r < 0
               ? source_disk_failed(j, r, "it is in the store, but can't be noted in the cache")
               : 0;
}

static void run_upload(struct task *task)
{
    struct job *j = container_of(task, struct job, task);
    struct cache *c = j->cache;
    struct op op;
    int r;

    cache_op(c, &op);
    j->fd = file_get_fd(c, j->node, FD_READ);
    if (j->fd < 0)
        r = source_read_failed(j, j->fd);
    else
        r = j->sent ? 0 : send_now(j, &op);
    if (r == 0)
        r = note_sent(j);
    /* Whatever the store made of it. */
    if (r < 0 && !is_answer(j)) {
        r = atomic_load(&j->disk_error);
        (void)op_fail(&op, r, "upload %s: %s: %s", j->path, atomic_load(&j->disk_step),
                      strerror(-r));
    }
    j->left_behind = op.left_behind;
    finish(j, r, op.why);
}

static struct job *job_new_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    *j = (struct job){.task.run = run_upload,
                      .cache = c,
                      .node = n,
                      .path = strdup(path),
                      .fd = -1,
                      .of_open_file = n->file->write_handles > 0,
                      .intents = intents_newest_locked(c)};
    if (j->path)
        return j;
    job_free(j);
    return NULL;
}

/* The job of an attempt that only has to be noted: the name and the file are what they were. */
static struct job *job_unnoted_locked(struct node *n, const char *path) REQUIRES(cache_mutex)
{
    struct job *j = take_ptr(n->file->unnoted);

    if (!j)
        return NULL;
    if (strcmp(j->path, path) != 0 || j->generation != n->file->generation) {
        job_free(j);
        return NULL;
    }
    j->fd = -1;
    atomic_store(&j->disk_error, 0);
    return j;
}

void upload_start_locked(struct cache *c, struct node *n, char *path, bool own)
{
    auto_free char *key = path;
    struct job *j = job_unnoted_locked(n, path);

    if (!j && !(j = job_new_locked(c, n, path)))
        return; /* looked at again at the next pass */
    j->others_taken = refusal_others_taken_locked(c, CHANGE_PUT, n->file->refused_ns);
    node_ref_locked(n);
    n->file->uploading = true;
    n->file->upload_key = take_ptr(key);
    c->uploading[c->n_uploading++] = n;
    c->uploads_running++;
    if (own)
        pool_submit_own(c->uploaders, &j->task);
    else
        pool_submit(c->uploaders, &j->task);
}
