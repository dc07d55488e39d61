/* Uploads in parts that were broken off: by a failure, by the end of the process.
 *
 * A session passes through: a row without token (the store is asked to begin) > a row with
 * token (parts are sent) > committed or ended at the store > no row. Until it ends, the upload
 * that sends it owns it. When that upload stops, the session lies in queue.owed until
 * an upload of the same content takes it, or until none will: then it is ended at the store.
 * docs/format.md, section 3. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/crash.h"
#include "common/crc.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ENDING_MAX 4 /* at a time */
#define NO_PARTS   0 /* part_size of a copy's: no upload resumes it */

void session_mark(struct session_mark *ret, const struct stat *st, const struct attrs *a)
{
    char text[256];
    int n = snprintf(text, sizeof(text),
                     "%x %" PRIx32 " %" PRIu32 " %" PRIu32 " %" PRIx64 " %" PRId64, a->has,
                     a->mode, a->uid, a->gid, a->rdev, a->mtime_ns);
    uint64_t hash = crc64nvme(0, text, (size_t)n);

    if (a->xattrs)
        hash = crc64nvme(hash, a->xattrs, strlen(a->xattrs));
    *ret = (struct session_mark){
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec,
        .attrs = hash,
    };
}

static struct session *of_debt(struct debt *d)
{
    return d ? container_of(d, struct session, debt) : NULL;
}

static struct session *session_first(struct cache *c) REQUIRES(cache_mutex)
{
    return of_debt(c->queue->owed[DEBT_SESSION].first);
}

static struct session *session_next(struct session *s)
{
    return of_debt(s->debt.next);
}

static void session_free(struct session *s)
{
    debt_release(&s->debt);
    place_free(&s->at);
    free(s->token);
    free(s);
}

static struct session *session_alloc(const struct journal_session *from)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    *s = (struct session){
        .at = place_dup(place_of_key(from->key)),
        .token = strdup(from->token),
        .began_ns = from->began_ns,
        .part_size = from->part_size,
        .mark = {from->ino, from->size, from->mtime_ns, from->attrs},
        .live = from->live,
        .debt.kind = DEBT_SESSION,
    };
    if (place_known(s->at) && s->token)
        return s;
    session_free(s);
    return NULL;
}

static int session_record(struct cache *c, const struct session *s)
{
    const struct journal_session row = {
        .key = s->at.key,
        .began_ns = s->began_ns,
        .token = s->token,
        .part_size = s->part_size,
        .ino = s->mark.ino,
        .size = s->mark.size,
        .mtime_ns = s->mark.mtime_ns,
        .attrs = s->mark.attrs,
        .live = s->live,
    };

    return journal_set_session(c->journal, &row, *s->token != '\0' && s->part_size != NO_PARTS);
}

/* ---- of an upload ---- */

struct session *session_take(struct cache *c, struct place at, const struct session_mark *mark)
{
    struct session *s, *next, *found = NULL;

    cache_lock(c);
    for (s = session_first(c); s; s = next) {
        next = session_next(s);
        if (s->debt.running || !place_same(s->at, at))
            continue;
        if (!found && !s->over && memcmp(&s->mark, mark, sizeof(*mark)) == 0) {
            debt_leave(&s->debt);
            found = s;
        } else {
            s->over = true;
            scheduler_kick_locked(c);
        }
    }
    cache_unlock(c);
    return found;
}

int session_open(struct cache *c, struct place at, const struct session_mark *mark,
                 uint64_t part_size, int64_t began_ns, bool live, struct session **ret)
{
    const struct journal_session row = {
        .key = at.key,
        .began_ns = began_ns,
        .token = "",
        .part_size = part_size,
        .ino = mark->ino,
        .size = mark->size,
        .mtime_ns = mark->mtime_ns,
        .attrs = mark->attrs,
        .live = live,
    };
    struct session *s = session_alloc(&row);

    int r = s ? session_record(c, s) : -ENOMEM;
    crash_point("session-noted");
    if (r == 0)
        *ret = s;
    else if (s)
        session_free(s);
    return r;
}

int session_begun(struct cache *c, struct session *s, const char *token)
{
    char *copy = token ? strdup(token) : NULL;

    if (!copy)
        return -ENOMEM;
    free(s->token);
    s->token = copy;
    return session_record(c, s);
}

void session_gone(struct cache *c, struct session *s)
{
    if (journal_remove_session(c->journal, s->at.key, s->began_ns) < 0)
        log_debug("the row of an upload of %s stays", s->at.key);
    session_free(s);
}

/* Whether all unknown sessions of the place, begun since some time, are to be ended. */
static bool sweep_at_locked(struct cache *c, struct place at, bool running)
    REQUIRES(cache_mutex)
{
    struct session *s;

    for (s = session_first(c); s; s = session_next(s)) {
        if (*s->token == '\0' && s->debt.running == running && place_same(s->at, at))
            return true;
    }
    return false;
}

bool session_blocks_upload_locked(struct cache *c, struct place at)
{
    cache_assert_locked(c);
    return sweep_at_locked(c, at, true);
}

void session_leave(struct cache *c, struct session *s, bool over)
{
    cache_lock(c);
    s->over = over || *s->token == '\0';
    bool covered = *s->token == '\0' && sweep_at_locked(c, s->at, false);
    if (!covered)
        debts_add(&c->queue->owed[DEBT_SESSION], &s->debt);
    scheduler_kick_locked(c);
    cache_unlock(c);
    if (covered)
        session_gone(c, s);
}

/* ---- of a copy ----
 *
 * Nothing resumes such a session: it is only to be ended when the copy can't do that itself. */

static int watch_begun(struct store_sessions *base, const char *key, const char *token)
{
    struct session_watch *w = container_of(base, struct session_watch, base);

    if (token) {
        crash_point("copy-session-begun");
        w->error = w->session ? session_begun(w->cache, w->session, token) : -EINVAL;
        crash_point("copy-session-recorded");
        return w->error;
    }
    if (w->session) /* an earlier attempt left it */
        session_leave(w->cache, take_ptr(w->session), true);
    w->error = session_open(w->cache, place_of_key(key), &(struct session_mark){0}, NO_PARTS,
                            clock_real_ns(), false, &w->session);
    return w->error;
}

static void watch_ended(struct store_sessions *base)
{
    struct session_watch *w = container_of(base, struct session_watch, base);

    crash_point("copy-session-ended");
    if (w->session)
        session_gone(w->cache, w->session);
    w->session = NULL;
}

void session_watch(struct session_watch *w, struct cache *c, struct op *op)
{
    *w = (struct session_watch){.base = {.begun = watch_begun, .ended = watch_ended},
                                .cache = c};
    w->notes.sessions = &w->base;
    op->notes = &w->notes;
}

int session_unwatch(struct session_watch *w, struct op *op)
{
    op->notes = NULL;
    if (w->session)
        session_leave(w->cache, w->session, true);
    return w->error;
}

/* ---- what no upload will take ---- */

struct ending {
    struct task task;
    struct cache *cache;
    struct session *session;
};

static int end_session(struct cache *c, const struct session *s, struct op *op)
{
    struct upload *up = NULL;
    int r;

    if (*s->token == '\0') {
        r = store_upload_sweep(c->store, op, s->at.key, s->began_ns, NULL);
        return r == -EOPNOTSUPP ? 0 : r;
    }
    r = store_upload_resume(c->store, op, s->at.key, s->token, NULL, NULL, &up);
    if (r == 0)
        r = store_upload_abort(up, op);
    return r == -ENOENT || r == -EINVAL ? 0 : r;
}

static void run_ending(struct task *task)
{
    struct ending *e = container_of(task, struct ending, task);
    struct cache *c = e->cache;
    struct session *s = e->session;
    struct op op;

    cache_op(c, &op);
    int r = end_session(c, s, &op);
    crash_point("session-ended");
    if (r < 0 && !atomic_load(&c->cancelled))
        log_warn("an unfinished upload of %s could not be ended, tried again: %s", s->at.key,
                 op.why);
    cache_lock(c);
    debt_run(&s->debt, false);
    if (r == 0)
        debt_leave(&s->debt);
    else
        owed_failed_locked(c, &s->debt, r, op.why);
    cache_unlock(c);
    if (r == 0)
        session_gone(c, s);
    cache_lock(c);
    c->transfer->sessions_ending--;
    if (r < 0)
        progress_failed_locked(c);
    else
        progress_locked(c);
    cache_unlock(c);
    free(e);
}

/* Whether an upload will come that can resume the session. */
static bool is_awaited(struct cache *c, const struct session *s) REQUIRES(cache_mutex)
{
    struct entry *e = NULL;
    struct node *n = s->over ? NULL : tree_find(c, place_path(s->at), &e);
    struct file *f = n && e ? n->file : NULL;

    return f && e->dirty && f->state == FILE_DIRTY && n->size == s->mark.size &&
           n->mtime_ns == s->mark.mtime_ns;
}

static bool start_session_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct session *s = of_debt(d);

    cache_assert_locked(c);
    if (c->transfer->sessions_ending == ENDING_MAX)
        return false;
    if (is_awaited(c, s))
        return true;
    s->over = true;
    /* A sweep can't tell the session that an upload has just begun from one it seeks. */
    if (*s->token == '\0' && upload_runs_at_locked(c, s->at, false))
        return true;
    struct ending *e = calloc(1, sizeof(*e));
    if (!e)
        return false;
    *e = (struct ending){.task.run = run_ending, .cache = c, .session = s};
    debt_run(d, true);
    c->transfer->sessions_ending++;
    pool_submit(c->uploaders, &e->task);
    return true;
}

const struct starter session_starter = {DEBT_SESSION, NULL, start_session_locked, NULL};

bool sessions_pending_locked(struct cache *c)
{
    struct session *s;

    cache_assert_locked(c);
    for (s = session_first(c); s; s = session_next(s)) {
        if (!s->debt.running && s->debt.attempts == 0 && !is_awaited(c, s))
            return true;
    }
    return c->transfer->sessions_ending > 0;
}

/* ---- at the mount and at its end ---- */

static int load_one(void *arg, const struct journal_session *row) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    struct store_facts facts;
    struct session *s;

    if (!path_key_ok(row->key, STORE_KEY_MAX))
        return 0;
    s = session_alloc(row);
    if (!s)
        return -ENOMEM;
    store_facts(c->store, s->at.key, &facts);
    s->over = *s->token == '\0' || s->part_size == NO_PARTS || s->part_size < facts.part_min ||
              s->part_size > facts.part_max || s->mark.size / s->part_size >= facts.parts_max;
    debts_add(&c->queue->owed[DEBT_SESSION], &s->debt);
    return 0;
}

int sessions_load(struct cache *c)
{
    return journal_each_session(c->journal, load_one, c);
}

void sessions_free(struct cache *c)
{
    struct session *s, *next;

    cache_assert_locked(c);
    for (s = session_first(c); s; s = next) {
        next = session_next(s);
        debt_leave(&s->debt);
        session_free(s);
    }
}
