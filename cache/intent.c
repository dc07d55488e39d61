/* Intentions in memory: their list, what each has to wait for, and how removals run. Copies are
 * in copy.c. docs/format.md, section 4, has the table of who waits for whom. */
#include "cache/intent.h"

#include "cache/crash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#define BATCH_MAX 1000
/* How long a removal waits until open readers have fetched what they may still need. */
#define READERS_NS    (200 * NS_PER_MS)
#define READERS_TRIES 300

struct intent *intent_new(uint64_t seq, enum intent_kind kind, const char *from, const char *to,
                          uint64_t ino, const char *etag)
{
    struct intent *i = calloc(1, sizeof(*i));

    if (!i)
        return NULL;
    i->seq = seq;
    i->kind = kind;
    i->ino = ino;
    i->from = strdup(from);
    i->to = to ? strdup(to) : NULL;
    i->etag = strdup(etag ? etag : "");
    if (i->from && i->etag && (i->to || !to))
        return i;
    intent_free(i);
    return NULL;
}

void intent_free(struct intent *i)
{
    if (!i)
        return;
    free(i->from);
    free(i->to);
    free(i->etag);
    free(i->error_text);
    free(i);
}

bool intent_is_rename(const struct intent *i)
{
    return i->kind == INTENT_RENAME || i->kind == INTENT_RENAMEDIR;
}

void intent_add_locked(struct cache *c, struct intent *i)
{
    struct intent *before = c->intents ? c->intents->prev : NULL; /* the last */

    while (before && before->seq > i->seq)
        before = before == c->intents ? NULL : before->prev;
    if (before)
        DL_APPEND_ELEM(c->intents, before, i);
    else
        DL_PREPEND(c->intents, i);
    ghost_count_locked(c, i->from, 1, false);
    if (intent_is_rename(i))
        c->renames++;
}

void intent_remove_locked(struct cache *c, struct intent *i)
{
    DL_DELETE(c->intents, i);
    ghost_count_locked(c, i->from, -1, i->kind == INTENT_RENAMEDIR);
    if (intent_is_rename(i))
        c->renames--;
    intent_free(i);
}

int intent_record(struct cache *c, const struct intent *i)
{
    const struct journal_row row = {.seq = i->seq,
                                    .kind = i->kind,
                                    .from = i->from,
                                    .to = i->to,
                                    .ino = i->ino,
                                    .etag = i->etag};

    return journal_add(c->journal, &row, 1);
}

uint64_t intents_newest_locked(struct cache *c)
{
    return c->intents ? c->intents->prev->seq : 0;
}

int intents_retire(struct cache *c, enum intent_kind kind, const char *path, uint64_t seq)
{
    uint64_t seqs[16];
    size_t n = 0;
    struct intent *i, *next;

    mutex_lock(&c->lock);
    if (c->intents)
        DL_FOREACH_SAFE(c->intents, i, next)
        {
            if (i->kind == kind && i->seq <= seq && !i->running && n < ARRAY_SIZE(seqs) &&
                strcmp(i->from, path) == 0) {
                seqs[n++] = i->seq;
                intent_remove_locked(c, i);
            }
        }
    mutex_unlock(&c->lock);
    return journal_done(c->journal, seqs, n, NULL, 0);
}

/* ---- waiting for each other ---- */

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

/* Whether the intention reads or writes `path`, something below it, or something above it. */
static bool touches(const struct intent *i, const char *path)
{
    if (i->kind == INTENT_RENAMEDIR)
        return overlap(i->from, path) || overlap(i->to, path);
    return strcmp(i->from, path) == 0 || (i->to && strcmp(i->to, path) == 0);
}

bool intent_blocks_upload_locked(struct cache *c, const char *path, uint64_t seq)
{
    struct intent *i;

    (void)seq;
    if (c->renames == 0 && c->deletes_running == 0)
        return false;
    DL_FOREACH(c->intents, i)
    {
        if ((intent_is_rename(i) || i->running) && touches(i, path))
            return true;
    }
    return false;
}

/* A rename that comes first and touches the path. */
static bool earlier_rename_touches(struct cache *c, const struct intent *self, const char *path)
{
    struct intent *i;

    if (c->renames == 0)
        return false;
    DL_FOREACH(c->intents, i)
    {
        if (i == self)
            return false;
        if (intent_is_rename(i) &&
            (touches(i, path) || (self->kind == INTENT_RENAMEDIR &&
                                  (overlap(path, i->from) || overlap(path, i->to)))))
            return true;
    }
    return false;
}

static bool running_removal_touches(struct cache *c, const char *path, bool below)
{
    struct intent *i;

    if (c->deletes_running == 0)
        return false;
    DL_FOREACH(c->intents, i)
    {
        if (i->running && !intent_is_rename(i) &&
            (strcmp(i->from, path) == 0 || (below && path_below(path, i->from))))
            return true;
    }
    return false;
}

/* Nameless files that are complete or closed need the store no more. */
static void forget_orphans_locked(struct cache *c)
{
    for (size_t i = 0; i < c->n_orphans;) {
        struct node *n = c->orphans[i];
        if (n->file->state == FILE_PARTIAL && n->file->open_handles && !n->file->gone) {
            i++;
            continue;
        }
        c->orphans[i] = c->orphans[--c->n_orphans];
        node_unref_locked(c, n);
    }
}

bool readers_need_locked(struct cache *c, const char *path, bool below)
{
    bool need = false;

    forget_orphans_locked(c);
    for (size_t i = 0; i < c->n_orphans; i++) {
        struct node *n = c->orphans[i];
        const char *key = n->file->orphan_key;
        if (!key || (strcmp(key, path) != 0 && !(below && path_below(path, key))))
            continue;
        need = true;
        struct waiter none = {0};
        struct waitq *q = &n->file->range_waiters;
        /* Starts the fetches; nobody waits for them here. */
        if (fetch_complete_locked(c, n, &none) == CACHE_PARKED) {
            struct waiter **at = &q->head;
            while (*at != &none)
                at = &(*at)->next;
            *at = NULL;
            q->tail = at;
        }
    }
    return need;
}

/* Readers of the old version come first, for a bounded time. */
static bool wait_for_readers_locked(struct cache *c, struct intent *i, const char *path,
                                    int64_t now, int64_t *next)
{
    if (c->n_orphans == 0 || i->attempts > READERS_TRIES ||
        !readers_need_locked(c, path, i->kind == INTENT_RENAMEDIR))
        return false;
    i->attempts++;
    i->due_ns = now + READERS_NS;
    *next = i->due_ns < *next ? i->due_ns : *next;
    return true;
}

bool rename_runs_at_locked(struct cache *c, const char *key)
{
    struct intent *i;

    if (c->renames == 0)
        return false;
    DL_FOREACH(c->intents, i)
    {
        if (i->running && intent_is_rename(i) && path_below(i->from, key))
            return true;
    }
    return false;
}

bool intent_leads_to(struct cache *c, const char *key, const char *path)
{
    auto_free char *at = NULL;
    struct intent *i;

    /* Without renames nothing moves: only the key's own removal counts. */
    if (c->renames == 0)
        return !ghost_pending(c, key);
    DL_FOREACH(c->intents, i)
    {
        const char *now = at ? at : key;
        const char *rest = path_below(i->from, now);
        if (!rest || (*rest && i->kind != INTENT_RENAMEDIR))
            continue;
        if (!intent_is_rename(i))
            return false;
        char *moved = path_join(i->to, rest);
        free(at);
        at = moved;
    }
    return strcmp(at ? at : key, path) == 0;
}

bool intent_below(struct cache *c, const char *path)
{
    struct intent *i;

    DL_FOREACH(c->intents, i)
    {
        if (path_below(path, i->from) || (i->to && path_below(path, i->to)))
            return true;
    }
    return false;
}

bool removal_pending(struct cache *c, const char *path)
{
    struct intent *i;

    DL_FOREACH(c->intents, i)
    {
        if (i->kind == INTENT_RMDIR && strcmp(i->from, path) == 0)
            return true;
    }
    return false;
}

/* ---- removals ---- */

struct removal {
    struct task task;
    struct cache *cache;
    struct intent *v[BATCH_MAX];
    bool skip[BATCH_MAX]; /* published again meanwhile: only the row goes */
    size_t n;
};

/* What a live name says about an intended removal of its key. */
enum live { LIVE_NONE, LIVE_WAIT, LIVE_STORED };

static enum live live_at(struct cache *c, const struct intent *i)
{
    struct entry *e;
    struct node *n = tree_find(c, i->from, &e);

    if (!n || !e)
        return LIVE_NONE;
    if (n->dir || i->kind == INTENT_RMDIR)
        return LIVE_NONE; /* the object beside a directory goes; a directory that was made again
                             is told to the store after this removal */
    return e->dirty || e->src_key || !e->etag ? LIVE_WAIT : LIVE_STORED;
}

/* A directory goes after what is below it. */
static bool removals_below(struct cache *c, const struct intent *self)
{
    struct intent *i;

    DL_FOREACH(c->intents, i)
    {
        if (i == self)
            return false;
        if (path_below(self->from, i->from))
            return true;
    }
    return false;
}

static bool removal_ready_locked(struct cache *c, struct intent *i, int64_t now, int64_t *next,
                                 bool *ret_skip)
{
    enum live live = live_at(c, i);

    *ret_skip = live == LIVE_STORED;
    if (live == LIVE_WAIT || upload_runs_at_locked(c, i->from, false) ||
        dir_upload_runs_at_locked(c, i->from, false))
        return false;
    if (earlier_rename_touches(c, i, i->from))
        return false;
    if (i->kind == INTENT_RMDIR && removals_below(c, i))
        return false;
    return !wait_for_readers_locked(c, i, i->from, now, next);
}

static void run_store_removals(struct removal *r, struct op *op, int *errs)
{
    struct cache *c = r->cache;
    const char *keys[BATCH_MAX];
    size_t index[BATCH_MAX], n = 0;

    for (size_t i = 0; i < r->n; i++) {
        errs[i] = 0;
        if (r->skip[i])
            continue;
        if (r->v[i]->kind == INTENT_RMDIR) {
            errs[i] = store_rmdir(c->store, op, r->v[i]->from);
            /* Something of others is in it: it stays a directory, which is no failure of ours.
             */
            if (errs[i] == -ENOTEMPTY || errs[i] == -ENOENT)
                errs[i] = 0;
        } else {
            keys[n] = r->v[i]->from;
            index[n++] = i;
        }
    }
    int results[BATCH_MAX] = {0};
    int all = n ? store_remove(c->store, op, keys, n, results) : 0;
    bool told = false; /* which keys failed; else nothing was tried */
    for (size_t i = 0; i < n; i++)
        told = told || results[i] != 0;
    for (size_t i = 0; i < n; i++)
        errs[index[i]] = told ? results[i] : all;
}

/* A put that the daemon before was killed over may arrive after the removal, of a name of which
 * the store had no version that the put was bound to: it is removed once more. */
static bool may_come_back(struct cache *c, const struct intent *i)
{
    return *i->etag == '\0' && clock_mono_ns() < c->late_until_ns;
}

static void removal_failed_locked(struct cache *c, struct intent *i, int err, const char *why)
{
    i->running = false;
    if (c->stopping)
        return;
    i->attempts++;
    i->error = err;
    free(i->error_text);
    i->error_text = strdup(why);
    i->due_ns = clock_mono_ns() + retry_delay_ns(i->attempts);
}

static void run_removal(struct task *task)
{
    struct removal *r = container_of(task, struct removal, task);
    struct cache *c = r->cache;
    uint64_t seqs[BATCH_MAX];
    int errs[BATCH_MAX];
    size_t n = 0;
    struct op op;

    op_init(&op, c->config.store_timeout_ns);
    op.cancelled = &c->cancelled;
    run_store_removals(r, &op, errs);
    crash_point("delete-done");
    bool again[BATCH_MAX];
    for (size_t i = 0; i < r->n; i++) {
        again[i] = errs[i] == 0 && !r->skip[i] && may_come_back(c, r->v[i]);
        if (errs[i] == 0 && !again[i])
            seqs[n++] = r->v[i]->seq;
    }
    int jr = journal_done(c->journal, seqs, n, NULL, 0);
    if (jr < 0)
        log_error("cache %s: can't note that deletes are done: %s", c->mirror.dir,
                  strerror(-jr));
    crash_point("delete-noted");
    mutex_lock(&c->lock);
    for (size_t i = 0; i < r->n; i++) {
        if (again[i]) {
            r->v[i]->running = false;
            r->v[i]->due_ns = c->late_until_ns;
            continue;
        }
        if (errs[i] == 0 && jr == 0) {
            intent_remove_locked(c, r->v[i]);
            continue;
        }
        removal_failed_locked(c, r->v[i], errs[i] ? errs[i] : jr, op.why);
        log_warn("delete failed, tried again: %s", op.why);
    }
    c->deletes_running--;
    progress_locked(c);
    mutex_unlock(&c->lock);
    free(r);
}

/* Gathers removals that may go now and starts them as one task. */
static void start_removals_locked(struct cache *c, int64_t now, int64_t *next)
{
    uint64_t barrier = barrier_seq_locked(c);
    struct removal *r = NULL;
    struct intent *i;
    bool skip;

    DL_FOREACH(c->intents, i)
    {
        if (intent_is_rename(i) || i->running)
            continue;
        if (i->seq > barrier)
            break;
        if (i->due_ns > now) {
            *next = i->due_ns < *next ? i->due_ns : *next;
            continue;
        }
        if (!removal_ready_locked(c, i, now, next, &skip))
            continue;
        if (!r && !(r = calloc(1, sizeof(*r))))
            return;
        r->skip[r->n] = skip;
        r->v[r->n++] = i;
        i->running = true;
        if (r->n == BATCH_MAX)
            break;
    }
    if (!r)
        return;
    r->task.run = run_removal;
    r->cache = c;
    c->deletes_running++;
    pool_submit(c->uploaders, &r->task);
}

static bool rename_ready_locked(struct cache *c, struct intent *i, int64_t now, int64_t *next)
{
    bool below = i->kind == INTENT_RENAMEDIR;

    if (upload_runs_at_locked(c, i->from, below) || upload_runs_at_locked(c, i->to, below))
        return false;
    if (dir_upload_runs_at_locked(c, i->from, below) ||
        dir_upload_runs_at_locked(c, i->to, below))
        return false;
    if (running_removal_touches(c, i->from, below) || running_removal_touches(c, i->to, below))
        return false;
    if (earlier_rename_touches(c, i, i->from) || earlier_rename_touches(c, i, i->to))
        return false;
    return !wait_for_readers_locked(c, i, i->to, now, next);
}

void intents_start_locked(struct cache *c, int64_t now, int64_t *next_due)
{
    struct intent *i;

    if (!c->intents)
        return;
    if (c->deletes_running == 0)
        start_removals_locked(c, now, next_due);
    if (c->renames == 0)
        return;
    DL_FOREACH(c->intents, i)
    {
        if (!intent_is_rename(i) || i->running || c->copies_running >= c->config.upload_jobs)
            continue;
        /* What arrives late below the old name must be listed. */
        int64_t due_ns = i->kind == INTENT_RENAMEDIR && i->due_ns < c->late_until_ns
                             ? c->late_until_ns
                             : i->due_ns;
        if (due_ns > now)
            *next_due = due_ns < *next_due ? due_ns : *next_due;
        else if (rename_ready_locked(c, i, now, next_due))
            copy_start_locked(c, i);
    }
}
