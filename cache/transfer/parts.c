/* An upload in parts: begun, resumed, committed, given up. */
#include "cache/transfer/upload.h"

#include "cache/mirror/crash.h"
#include "cache/types/sums.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>

/* How often the store may be asked for a session's parts in vain. */
#define RESUMES_MAX 3

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
    return pool_each(c->parts[p->job->volume], &p->each, op);
}

static uint64_t part_size_for(struct cache *c, struct place at, uint64_t size)
{
    struct store_facts facts;

    store_facts(c->store, at.key, &facts);
    uint64_t part = c->config.part_size, most = facts.parts_max ? facts.parts_max : 10000;
    if (part < facts.part_min)
        part = facts.part_min;
    if (part * most < size)
        part = ((size + most - 1) / most + (1 << 20) - 1) >> 20 << 20;
    return facts.part_max && part > facts.part_max ? facts.part_max : part;
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
    int r = upload_resolve_version(j, op, obj);
    j->attrs.origin_ns = origin_ns;
    return r;
}

/* Asking for the parts failed. A store that can be reached and does not tell them would be
 * asked for ever: the upload begins anew then. */
static int give_session_up(struct job *j, struct session **s, int r, const struct op *op)
{
    bool answered = !err_is_transient(r) || r == -EPROTO || r == -EIO;

    if (r == -EINTR || !answered || (err_is_transient(r) && ++(*s)->resumes < RESUMES_MAX))
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
        store_upload_resume(j->cache->store, op, j->at.key, (*s)->token, no_part, NULL, &p->up);

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
    int r = session_open(c, j->at, mark, p->part_size, j->attrs.origin_ns, j->live, ret);

    if (r < 0)
        return upload_note_failed(j, r);
    cache_op(c, op);
    r = store_upload_begin(c->store, op, j->at.key, &j->attrs, &p->up);
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
        upload_op(j, op);
        r = i > 0 || upload_is_looked_at(j) ? upload_resolve_version(j, op, obj) : 0;
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

int upload_in_parts(struct job *j, struct op *op, struct object *obj)
{
    struct cache *c = j->cache;
    struct parts p = {.job = j, .part_size = part_size_for(c, j->at, (uint64_t)j->st.st_size)};
    struct session_mark mark;

    session_mark(&mark, &j->st, &j->attrs);
    struct session *s = session_take(c, j->at, &mark);
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
