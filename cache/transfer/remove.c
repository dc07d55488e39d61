/* Removals at the store: batches of those whose turn it is, and what their answers mean. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define BATCH_MAX 1000

struct removal {
    struct task task;
    struct removal *next; /* while the pass gathers */
    struct cache *cache;
    struct intent *v[BATCH_MAX];
    bool skip[BATCH_MAX]; /* done, or published again meanwhile: only the row goes */
    char *why[BATCH_MAX]; /* it failed, heap; NULL without memory */
    size_t n;
    unsigned volume; /* which store all of them are in */
    bool removed;    /* the store removed something */
};

/* What an upload had put there, and could not note, may go with it. */
static void send_again_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    struct node *n = tree_find(c, i->from, NULL);

    if (n)
        upload_forget_unnoted_locked(n);
}

/* The version at the store that an intention means is not the one that is there. Its own later
 * version is meant, too, and of one whose version was not known here, whatever is there. 1: its
 * version was removed, or never was; -ESTALE: somebody else's stays. */
static int resolve_removal(struct cache *c, const struct intent *i, struct op *op, bool known)
{
    const struct place at = intent_source(i);

    for (int tries = 0; tries < VERSIONS_MAX; tries++) {
        struct object there = {0};
        int r = store_stat(c->store, op, at.key, &there);
        if (r == -ENOENT)
            return 0;
        if (r < 0)
            return r;
        const char *etag = there.etag;
        bool meant =
            !known || origin_is_ours(c, at, &there.attrs) || strcmp(etag, i->etag) == 0;
        r = there.is_prefix ? 0
            : meant         ? store_remove(c->store, op, &at.key, &etag, 1, NULL)
                            : op_fail(op, -ESTALE,
                                      "%s/%s was removed here, but somebody else had replaced it: "
                                              "their version stays",
                                      c->store->url, at.key);
        object_release(&there);
        if (r != -ESTALE || !meant)
            return r;
    }
    return op_fail(op, -EAGAIN, "remove %s: its version changes all the time", i->from);
}

/* One removal, of a version that must be asked for. A second removal of what may have come back
 * late takes only what this cache put. */
static int remove_unknown(struct cache *c, const struct intent *i, struct op *op)
{
    cache_lock(c);
    bool ours = i->removed_before || intent_means_ours(i);
    cache_unlock(c);
    return resolve_removal(c, i, op, ours);
}

/* Each removal keeps its own reason: the next request overwrites op->why. */
static void keep_why(struct removal *r, size_t i, int err, const struct op *op)
{
    if (err < 0 && !r->why[i])
        r->why[i] = strdup(op->why);
}

static const char *removal_why(const struct removal *r, size_t i, int err)
{
    return r->why[i] ? r->why[i] : strerror(-err);
}

/* Whether the removal is one of a batch, which is to run; else errs[i] says what came of it. */
static bool goes_in_batch(struct removal *r, size_t i, struct op *op, int *errs)
{
    struct cache *c = r->cache;
    const struct intent *v = r->v[i];
    const struct place at = intent_source(v);

    errs[i] = 0;
    if (r->skip[i])
        return false;
    if (v->kind == INTENT_RMDIR) {
        errs[i] = store_rmdir(c->store, op, at.key);
        /* Others have something in it: it stays a directory, which is no failure of ours. */
        if (errs[i] == -ENOTEMPTY || errs[i] == -ENOENT)
            errs[i] = 0;
        return false;
    }
    errs[i] = moved_make_durable(c, op, v->from, false, v->seq);
    if (errs[i] < 0 || !removal_is_bound(c, v) || intent_version_is_known(v))
        return errs[i] == 0;
    errs[i] = remove_unknown(c, v, op);
    return false;
}

static void run_store_removals(struct removal *r, struct op *op, int *errs)
{
    struct cache *c = r->cache;
    const char *keys[BATCH_MAX], *etags[BATCH_MAX];
    size_t index[BATCH_MAX], n = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (!goes_in_batch(r, i, op, errs)) {
            keep_why(r, i, errs[i], op);
            continue;
        }
        const struct place at = intent_source(r->v[i]);
        keys[n] = at.key;
        etags[n] = removal_is_bound(c, r->v[i]) ? r->v[i]->etag : NULL;
        index[n++] = i;
    }
    int results[BATCH_MAX] = {0};
    int all = n ? store_remove(c->store, op, keys, etags, n, results) : 0;
    bool told = false; /* which keys failed; else nothing was tried */
    for (size_t i = 0; i < n; i++)
        told = told || results[i] != 0;
    for (size_t i = 0; i < n; i++) {
        errs[index[i]] = told ? results[i] : all;
        r->removed = r->removed || errs[index[i]] == 0;
        if (errs[index[i]] != -ESTALE)
            keep_why(r, index[i], errs[index[i]], op);
    }
    for (size_t i = 0; i < n; i++) {
        if (errs[index[i]] == -ESTALE) {
            errs[index[i]] = resolve_removal(c, r->v[index[i]], op, true);
            keep_why(r, index[i], errs[index[i]], op);
        }
    }
}

/* What the store has under the name stays: the next listing shows it. */
static void removal_given_up(struct cache *c, const struct intent *i, int err, const char *why)
{
    log_error("%s", why);
    cache_lock(c);
    failure_note_locked(c, &c->write_failure, err, why);
    name_is_the_stores_locked(c, i->from);
    cache_unlock(c);
}

/* A file that was made under the name since then expects nothing there. It is to replace the
 * version that was to go. */
static void replace_what_stays(struct cache *c, const struct intent *i)
{
    struct entry *e = NULL;
    auto_close int fd = -1;

    ns_read(c);
    cache_lock(c);
    struct node *n = tree_find(c, i->from, &e);
    bool known = intent_version_is_known(i);
    bool made = n && e && n->file && e->dirty && !etag_known(&e->etag) &&
                !place_known(e->source) && !intent_means_ours(i);
    if (made && known)
        entry_is_noted_locked(e, i->etag);
    else if (made)
        entry_may_exist_locked(e);
    cache_unlock(c);
    if (made)
        fd = mirror_open_path(&c->mirror, i->from, O_RDONLY);
    if (fd >= 0) /* the namespace lock keeps the node */
        file_expect(c, n, fd, intent_source(i), known ? i->etag : STAMP_ANY_VERSION);
    ns_done(c);
}

/* A removal is over: carried out or not, its row gone (noted 0) or not. */
static void removal_over_locked(struct cache *c, struct intent *i, int err, int noted,
                                const char *why) REQUIRES(cache_mutex)
{
    struct op op = {0};

    if (err == 0 && noted == 0) {
        bool dir = i->kind == INTENT_RMDIR;
        auto_free char *path = strdup(i->from);
        intent_remove_locked(c, i);
        if (path)
            note_unseal_locked(c, path, dir);
        return;
    }
    i->done = err == 0;
    debt_set_refused(&i->debt, refusal_is_one(err) ? clock_mono_ns() : 0);
    if (i->debt.refused_ns) {
        i->refuser = intent_lone_volume(c, i);
        refusal_probe_locked(c, i->refuser);
    }
    if (i->done) {
        err = op_fail(&op, noted, "remove %s: it is done, but can't be noted in the cache: %s",
                      i->from, strerror(-noted));
        why = op.why;
    }
    debt_run(&i->debt, false);
    owed_failed_locked(c, &i->debt, err, why);
    log_later(&c->log, LOG_LEVEL_WARN, "delete failed, tried again: %s", why);
}

/* Whether another attempt would be no better: somebody else's version has the name, or the
 * store refuses that, and removes others. */
static bool is_in_vain(const struct intent *i, int err) REQUIRES(cache_mutex)
{
    return err == -ESTALE || (refusal_is_one(err) && i->others_taken);
}

static void give_up(struct cache *c, const struct intent *i, int err, const char *why)
{
    struct op op = {0};

    if (err != -ESTALE) {
        (void)op_fail(
            &op, err,
            "%s was removed here, but the store refuses the name and removes others: what "
            "it has there stays in the store (%s)",
            i->from, why);
        why = op.why;
        replace_what_stays(c, i);
    }
    removal_given_up(c, i, err, why);
}

/* Whether nothing that this cache has put there is left, or on its way. The removal of a
 * directory, or of one version, says nothing of what was put since. */
static bool took_all_of_ours(struct removal *r, size_t i, int err) REQUIRES(cache_mutex)
{
    return err == 0 && !r->skip[i] && r->v[i]->kind == INTENT_UNLINK &&
           !intent_version_is_known(r->v[i]);
}

static void run_removal(struct task *task)
{
    struct removal *r = container_of(task, struct removal, task);
    struct cache *c = r->cache;
    int64_t began_ns = clock_mono_ns();
    uint64_t seqs[BATCH_MAX];
    int errs[BATCH_MAX];
    bool any = false; /* was removed */
    size_t n = 0;
    struct op op;

    cache_op(c, &op);
    run_store_removals(r, &op, errs);
    crash_point("delete-done");
    int64_t again[BATCH_MAX] = {0}; /* when; 0 not */
    bool resolved[BATCH_MAX];
    for (size_t i = 0; i < r->n; i++) {
        cache_lock(c);
        bool vain = is_in_vain(r->v[i], errs[i]);
        resolved[i] = took_all_of_ours(r, i, errs[i]);
        if (vain)
            r->v[i]->removed_before = true; /* nothing to repeat */
        else if (errs[i] == 0 && !r->skip[i])
            again[i] = comes_back_locked(c, r->v[i]);
        cache_unlock(c);
        if (vain) {
            give_up(c, r->v[i], errs[i], removal_why(r, i, errs[i]));
            errs[i] = 0;
        }
        any = any || errs[i] == 0;
        if (errs[i] == 0 && !again[i])
            seqs[n++] = r->v[i]->seq;
    }
    int jr = journal_done(c->journal, seqs, n, NULL, 0);
    crash_point("delete-noted");
    cache_lock(c);
    if (r->removed)
        refusal_taken_locked(c, r->volume, CHANGE_REMOVE, began_ns);
    for (size_t i = 0; i < r->n; i++) {
        if (op.left_behind && !r->skip[i])
            (void)doubt_removal_locked(c, intent_source(r->v[i]));
        if (again[i]) {
            debt_run(&r->v[i]->debt, false);
            r->v[i]->removed_before = true;
            debt_forgive(&r->v[i]->debt); /* else a waiter would have it tried at once */
            debt_set_due(&r->v[i]->debt, again[i]);
            continue;
        }
        if (resolved[i])
            origin_resolved(c, intent_source(r->v[i]));
        removal_over_locked(c, r->v[i], errs[i], jr, removal_why(r, i, errs[i]));
    }
    c->queue->removals_running--;
    c->transfer->volumes[r->volume].removals--;
    if (any)
        progress_locked(c);
    else
        progress_failed_locked(c);
    cache_unlock(c);
    for (size_t i = 0; i < r->n; i++)
        free(r->why[i]);
    free(r);
}

/* A name that the server has no form for makes it refuse a whole request: a refused name gets a
 * request of its own. Not while everything is refused, where that can be found out. */
static bool goes_alone_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    i->others_taken =
        refusal_others_taken_locked(c, i->refuser, CHANGE_REMOVE, i->debt.refused_ns);
    return i->others_taken || (i->debt.refused_ns && !refusal_has_probe(c));
}

/* Whether something is being removed from each store: who ends that asks for a pass. */
static bool all_are_removing_locked(struct cache *c) REQUIRES(cache_mutex)
{
    return c->queue->removals_running >= volumes_count(c);
}

static bool removals_begin_locked(struct pass *p)
{
    struct cache *c = p->cache;

    cache_assert_locked(c);
    if (!row_first(c) || all_are_removing_locked(c))
        return false;
    barrier_init_locked(c, &p->barrier);
    return true;
}

static struct removal *gathered_locked(const struct pass *p, unsigned volume)
    REQUIRES(cache_mutex)
{
    struct removal *r = p->removals;

    while (r && r->volume != volume)
        r = r->next;
    return r;
}

static struct removal *removal_new_locked(struct pass *p, unsigned volume) REQUIRES(cache_mutex)
{
    struct removal *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->task.run = run_removal;
    r->cache = p->cache;
    r->volume = volume;
    LL_PREPEND(p->removals, r);
    return r;
}

static void removal_go_locked(struct pass *p, struct removal *r) REQUIRES(cache_mutex)
{
    struct cache *c = p->cache;

    LL_DELETE(p->removals, r);
    c->queue->removals_running++;
    c->transfer->volumes[r->volume].removals++;
    pool_submit(c->uploaders, &r->task);
}

/* Gathers what may go from the stores where nothing is being removed. */
static bool start_removal_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct intent *i = debt_row(d);

    cache_assert_locked(c);
    if (intent_is_rename(i))
        return true;
    unsigned volume = intent_volume(c, i);
    struct removal *r = gathered_locked(p, volume);
    if (c->transfer->volumes[volume].removals)
        return true;
    enum order order = order_of_row_locked(c, i, &p->barrier, &on_its_way, p->next_ns);
    if (!readers_let_go_locked(p, order, d, intent_source(i), false))
        return true;
    enum live live = intent_live_at(c, i);
    if (live == LIVE_WAIT)
        send_again_locked(c, i);
    bool alone = goes_alone_locked(c, i);
    if (alone && r)
        return true;
    if (!r && !(r = removal_new_locked(p, volume)))
        return false;
    r->skip[r->n] = live == LIVE_STORED || i->done;
    r->v[r->n++] = i;
    debt_run(&i->debt, true);
    if (alone || r->n == BATCH_MAX)
        removal_go_locked(p, r);
    return !all_are_removing_locked(c);
}

static void removals_end_locked(struct pass *p)
{
    cache_assert_locked(p->cache);
    while (p->removals)
        removal_go_locked(p, p->removals);
    barrier_release(&p->barrier);
}

const struct starter removal_starter = {DEBT_ROW, removals_begin_locked, start_removal_locked,
                                        removals_end_locked};
