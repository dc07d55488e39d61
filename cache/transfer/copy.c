/* Renames at the store: natively where the store can, else copies that become visible before
 * the old names go. What was copied is then removed by intentions of its own, in one
 * transaction. Here are files and the end of each rename; directories are in copy_tree.c. */
#include "cache/transfer/copy.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/types/etag.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one file ---- */
bool copy_is_owed(const struct copying *k, const struct node *n, const struct entry *e)
{
    const struct file *f = n->file;

    return e->dirty && f && f->state == FILE_DIRTY && !f->staged &&
           upload_comes_first(f, k->intent->seq);
}

/* The live file under the new name is complete and changed: its upload makes the copy useless.
 * But where the old name is needed before, the store would have no version of it for a while.
 */
static bool overwritten(struct cache *c, struct copying *k)
{
    struct entry *e = NULL;

    cache_lock(c);
    const struct intent removal = {
        .kind = INTENT_UNLINK, .from = k->from, .seq = k->intent->seq};
    struct node *n = tree_find(c, k->to, &e);
    bool yes = n && e && copy_is_owed(k, n, e) && place_known(e->source) &&
               place_same(e->source, place_of_path(k->from)) && !intent_is_urgent(c, &removal);
    cache_unlock(c);
    return yes;
}

void copy_forget_version_locked(struct copying *k, const char *from, const char *to)
{
    struct entry *e = NULL;

    if (!copy_reader_locked(k->cache, k->intent, from, to, &e))
        return;
    entry_version_lost_locked(e);
}

/* The row turns into the removal of the old name, in the version that was copied; `remove`
 * false: nothing is left to remove. */
static int finish_row(struct copying *k, bool remove, const char *copied)
{
    struct cache *c = k->cache;
    const struct journal_row row = {
        .seq = k->intent->seq, .kind = INTENT_UNLINK, .from = k->from, .etag = copied};
    int r = journal_done_and_told(c->journal, &k->intent->seq, 1, &row, remove ? 1 : 0, k->told,
                                  k->n_told);

    crash_point("rename-noted");
    return r;
}

static void finish_intent_locked(struct copying *k, bool remove, char **copied)
    REQUIRES(cache_mutex)
{
    struct cache *c = k->cache;
    struct intent *i = k->intent;

    debt_run(&i->debt, false);
    if (!remove) {
        intent_remove_locked(c, i);
        return;
    }
    intent_becomes_removal_locked(c, i, take_ptr(*copied));
}

/* The store has lost the source: what is complete here is uploaded, the rest is lost there. */
static void source_gone_locked(struct copying *k) REQUIRES(cache_mutex)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    /* Another file may have taken the name since. */
    struct node *n = copy_reader_locked(c, k->intent, k->from, k->to, &e);

    if (!n)
        return;
    place_free(&e->source);
    entry_version_lost_locked(e);
    if (n->file && n->file->state != FILE_PARTIAL) {
        file_mark_dirty_locked(c, n, true);
        if (n->file->write_handles == 0)
            file_queue_locked(c, n);
        return;
    }
    log_later(&c->log, LOG_LEVEL_ERROR,
              "%s/%s was renamed here to %s, but it has been removed from the store by someone "
              "else before it could be copied",
              c->store->url, k->from, k->to);
    entry_verified_locked(e, 0);
}

/* The version that the entry reads, or of one that is gone since the version that was renamed,
 * heap; "" when nothing is known of it. */
static char *known_version(struct copying *k)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = copy_reader_locked(c, k->intent, k->from, k->to, &e);
    char *etag =
        n && etag_known(&e->etag) ? etag_dup(&e->etag) : strdup(n ? "" : k->intent->etag);
    cache_unlock(c);
    return etag;
}

int copy_ask_version(struct cache *c, struct op *op, struct place at, char **etag, bool *own)
{
    struct object there = {0};
    int r = store_stat(c->store, op, at.key, &there);
    char *now = r == 0 && !there.is_prefix ? strdup(there.etag) : NULL;

    if (r == 0 && !now)
        r = there.is_prefix ? -ENOENT : -ENOMEM;
    if (r == 0) {
        *own = origin_is_ours(c, at, &there.attrs);
        free(*etag);
        *etag = now;
    }
    object_release(&there);
    return r;
}

static int set_any(char **etag)
{
    free(*etag);
    *etag = strdup(INTENT_ANY);
    return *etag ? 0 : -ENOMEM;
}

int copy_rename(struct cache *c, struct op *op, struct place from, struct place to)
{
    struct object there = {0};
    int r = store_rename(c->store, op, from.key, to.key);

    if (r != -ENOENT)
        return r;
    r = store_stat(c->store, op, from.key, &there);
    object_release(&there);
    return r ? r
             : op_fail(op, -EAGAIN,
                       "rename %s to %s: the store finds none, and has it: does it take the "
                       "new name?",
                       from.key, to.key);
}

/* A store that renames by itself keeps the version. Where there is nothing to rename it was
 * repeated, or somebody has removed it: what is under the new name tells. */
static int rename_object(struct copying *k, struct op *op, char **copied, struct object *obj)
{
    const struct place from = place_of_path(k->from), to = place_of_path(k->to);
    struct store *s = k->cache->store;
    int renamed = copy_rename(k->cache, op, from, to);

    if (renamed < 0 && renamed != -ENOENT)
        return renamed;
    int r = store_stat(s, op, to.key, obj);
    bool other = r == 0 && **copied && strcmp(*copied, INTENT_ANY) != 0 &&
                 strcmp(*copied, obj->etag) != 0;
    if (!other)
        return r;
    k->own = origin_is_ours(k->cache, from, &obj->attrs);
    return renamed < 0 ? -ENOENT : set_any(copied);
}

int copy_not_noted(struct op *op, const char *from, const char *to, int err)
{
    return op_fail(op, err, "rename %s to %s: it can't be noted in the cache: %s", from, to,
                   strerror(-err));
}

static int copy_at_store(struct cache *c, struct op *op, struct place from,
                         const char *from_etag, struct place to, struct object *obj)
{
    struct session_watch watch;

    session_watch(&watch, c, op);
    int r = store_copy(c->store, op, from.key, from_etag, to.key, NULL, NULL, obj);
    int noted = session_unwatch(&watch, op);
    if (op->left_behind)
        doubt_copy(c, to);
    return r < 0 && noted < 0 ? copy_not_noted(op, place_path(from), place_path(to), noted) : r;
}

int copy_latest(struct cache *c, struct op *op, struct place from, char **etag, bool *own,
                struct place to, struct object *obj)
{
    bool ask = !**etag && store_can(c->store, from.key, STORE_IF_MATCH);
    int r = -ESTALE;

    for (int tries = 0; r == -ESTALE && tries < VERSIONS_MAX; tries++) {
        r = ask ? copy_ask_version(c, op, from, etag, own) : 0;
        if (r == 0)
            r = copy_at_store(c, op, from, **etag ? *etag : NULL, to, obj);
        ask = true;
    }
    return r != -ESTALE ? r
                        : op_fail(op, -EAGAIN,
                                  "%s/%s can't be copied to %s: somebody else replaces it all "
                                  "the time",
                                  c->store->url, from.key, to.key);
}

/* The attributes that the thing owes, and the version of it that is known at its old place,
 * heap; 1: it owes none alone. */
static int owed_attributes(struct copying *k, const char *from, const char *to,
                           const char *listed, struct attrs *ret, char **ret_etag)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = copy_reader_locked(c, k->intent, from, to, &e);
    const bool owes = n && n->file && e->dirty && n->file->state != FILE_DIRTY &&
                      etag_known(&e->etag) && !(listed && etag_is(&e->etag, listed));
    int r = owes ? node_attrs_locked(n, ret) : 1;
    if (r == 0 && !(*ret_etag = etag_dup(&e->etag)))
        r = -ENOMEM;
    cache_unlock(c);
    return r;
}

/* What the attributes made of the version that is known: what the file's readers ask for, too,
 * until it is copied. */
static void note_repeated(struct copying *k, const char *from, const char *to, const char *etag,
                          const char *now)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = copy_reader_locked(c, k->intent, from, to, &e);
    bool same = n && n->file && etag_is(&e->etag, etag);
    if (same) {
        struct file *f = n->file;
        const struct stamp_key *record = stamp_keys_find(&f->keys, place_of_path(from).key);
        entry_version_went_on_locked(e, now);
        if (record && !stamp_key_is_expected(record))
            (void)stamp_keys_set(&f->keys, place_of_path(from).key, now, f->clean_mtime_ns,
                                 f->clean_size);
        if (f->etag && strcmp(f->etag, etag) == 0)
            file_is_stored_as_locked(f, strdup(now));
        listing_file_is_there_locked(f, now);
        node_ref_locked(n);
    }
    cache_unlock(c);
    if (same)
        copy_write_keys(c, n);
}

int copy_repeat_attributes(struct copying *k, struct op *op, const char *from, const char *to,
                           const char *listed)
{
    const struct place at = place_of_path(from);
    struct cache *c = k->cache;
    struct object obj = {0};
    struct attrs attrs = {0};
    auto_free char *etag = NULL;

    if (!store_can(c->store, at.key, STORE_PROMPT) ||
        !store_can(c->store, at.key, STORE_ATTRS | STORE_IF_MATCH))
        return 0;
    int r = owed_attributes(k, from, to, listed, &attrs, &etag);
    if (r == 0)
        r = store_set_attributes(c->store, op, at.key, etag, &attrs, &obj);
    if (op->left_behind)
        doubt_copy(c, at);
    op->left_behind = false; /* what follows has another name */
    if (r == 0)
        note_repeated(k, from, to, etag, obj.etag);
    attrs_release(&attrs);
    object_release(&obj);
    /* It is not that version; or the store takes no such attributes, now or ever. */
    return err_is_transient(r) || r == -ENOMEM ? r : 0;
}

bool copy_is_taken(const struct intent *removal, const char *there, bool own)
{
    return own || !*removal->etag || strcmp(removal->etag, INTENT_ANY) == 0 ||
           strcmp(removal->etag, there) == 0;
}

/* Whether a removal of the old name comes before the rename: one of all, or one that takes away
 * what is there. */
static bool removed_before(struct copying *k, const char *there, bool own)
{
    struct cache *c = k->cache;
    struct intent *i;
    bool ret = false;

    cache_lock(c);
    for (i = row_of_name_locked(c, k->from); i && i->seq < k->intent->seq && !ret;
         i = row_of_name_next(i))
        ret = i->kind == INTENT_UNLINK && (!there || copy_is_taken(i, there, own));
    cache_unlock(c);
    return ret;
}

/* As long as a removal of the old name comes before, nothing has been published there since.
 * What the store has there is not what was renamed, but goes with that removal, unless it is of
 * the version that was renamed, or somebody else's. */
static int is_about_to_go(struct copying *k, struct op *op, const char *renamed, bool *ret)
{
    auto_free char *there = strdup("");
    bool own = false;

    *ret = false;
    if (!there)
        return op_fail(op, -ENOMEM, "rename %s: no memory", k->from);
    if (!removed_before(k, NULL, false))
        return 0;
    int r = copy_ask_version(k->cache, op, place_of_path(k->from), &there, &own);
    *ret = r == 0 && strcmp(there, renamed) != 0 && removed_before(k, there, own);
    return r == -ENOENT ? 0 : r; /* it may have been renamed already */
}

/* Moves the object that has the name now; *copied becomes its version. -ENOENT: there is none
 * that the rename could mean. */
static int move_object(struct copying *k, struct op *op, char **copied, struct object *obj)
{
    const struct place from = place_of_path(k->from);
    struct cache *c = k->cache;
    bool stale;

    int r = is_about_to_go(k, op, *copied, &stale);
    if (r < 0 || stale)
        return r < 0 ? r : -ENOENT;
    return store_can(c->store, from.key, STORE_RENAME)
               ? rename_object(k, op, copied, obj)
               : copy_latest(c, op, from, copied, &k->own, place_of_path(k->to), obj);
}

/* Whether what was copied is somebody else's, and is about to be replaced, unseen: something
 * was renamed over it here. It stays under the old name, too. Where nothing tells whose a
 * version is it may as well be what a daemon that was killed had put, and goes as with any
 * removal there. */
static bool is_left_to_them(struct copying *k, const char *known, const char *copied)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    if (k->own || !*known || strcmp(known, copied) == 0 || !removal_is_bound(c, k->intent))
        return false;
    cache_lock(c);
    bool ret =
        !copy_reader_locked(c, k->intent, k->from, k->to, &e) && copy_is_replaced_locked(k);
    cache_unlock(c);
    return ret;
}

static void leave_to_them_locked(struct copying *k) REQUIRES(cache_mutex)
{
    struct cache *c = k->cache;
    struct op op = {0};
    int r = op_fail(&op, -ESTALE,
                    "%s/%s was renamed here to %s, and something else over that, but somebody "
                    "else had replaced it: their version stays",
                    c->store->url, k->from, k->to);

    log_later(&c->log, LOG_LEVEL_ERROR, "%s", op.why);
    failure_note_locked(c, &c->write_failure, r, op.why);
    name_is_the_stores_locked(c, k->from);
}

/* Nothing is copied over what somebody else put there. The file stays where the store has it;
 * or goes there, if nothing here reads it any more: it was removed since, or replaced. */
static int leave_target(struct copying *k, struct op *op, const char *known)
{
    struct cache *c = k->cache;
    struct copy_readers changed = {0};
    auto_free char *version = strdup(known);
    struct entry *e = NULL;

    if (!version)
        return copy_not_noted(op, k->from, k->to, -ENOMEM);
    cache_lock(c);
    bool remove = !copy_reader_locked(c, k->intent, k->from, k->to, &e);
    cache_unlock(c);
    copy_note_version(k, k->from, k->to, known, known, false);
    int r = finish_row(k, remove, known);
    if (r < 0)
        return copy_not_noted(op, k->from, k->to, r);
    cache_lock(c);
    struct node *n = copy_take_version_locked(k, k->from, k->to, known, known, false);
    if (remove)
        copy_over_goes_on_locked(k);
    else
        copy_leave_locked(k);
    copy_sources_locked(c, k->intent, &changed);
    finish_intent_locked(k, remove, &version);
    cache_unlock(c);
    if (n)
        copy_write_keys(c, n);
    copy_write_readers(c, &changed);
    return 0;
}

static int copy_file(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool native = store_can(c->store, place_of_path(k->from).key, STORE_RENAME);
    bool useless = overwritten(c, k);
    int r = native || useless ? 0 : copy_repeat_attributes(k, op, k->from, k->to, NULL);
    if (r < 0)
        return r;
    auto_free char *copied = known_version(k), *known = copied ? strdup(copied) : NULL;
    struct object obj = {0};
    bool theirs = false;
    r = known ? copy_finds_theirs(k, op, known, &theirs) : -ENOMEM;
    if (r == 0 && theirs && !useless)
        return leave_target(k, op, known);
    if (r == 0 && !useless)
        r = move_object(k, op, &copied, &obj);
    bool gone = r == -ENOENT;

    crash_point("rename-copied");
    if (r < 0 && !gone)
        return r;
    r = 0;
    bool left = !useless && !gone && !native && is_left_to_them(k, known, copied);
    if (!useless && !gone) {
        copy_note_version(k, k->from, k->to, copied, obj.etag, k->own);
        r = intents_retire(c, INTENT_UNLINK, k->to, k->intent->seq);
        if (r == 0)
            r = copy_gather_told(k, k->to, copied, obj.etag, k->own);
    } else {
        copy_note_version(k, k->from, k->to, copied, NULL, false);
        if (gone)
            r = copy_gather_told(k, k->to, known, INTENT_ANY, false);
    }
    bool remove = !gone && !left && (useless || !native);
    struct copy_readers changed = {0};
    struct node *n = NULL;
    if (r == 0)
        r = finish_row(k, remove, copied);
    /* The intention stays as its row is: it is made again. */
    if (r == 0) {
        k->n_told = 0;
        cache_lock(c);
        if (!gone && !useless)
            copy_tell_next_locked(k, k->to, copied, obj.etag, k->own);
        if (gone)
            copy_tell_next_locked(k, k->to, known, INTENT_ANY, false);
        if (gone)
            source_gone_locked(k);
        else if (useless && theirs)
            copy_expect_over_locked(k);
        else if (useless)
            copy_forget_version_locked(k, k->from, k->to);
        else
            n = copy_take_version_locked(k, k->from, k->to, copied, obj.etag, k->own);
        if (left)
            leave_to_them_locked(k);
        copy_sources_locked(c, k->intent, &changed);
        if (!gone && !useless)
            copy_readers_follow_locked(k, copied, obj.etag);
        finish_intent_locked(k, remove, &copied);
        cache_unlock(c);
        copy_write_told(k);
        if (n)
            copy_write_keys(c, n);
        copy_write_readers(c, &changed);
    }
    object_release(&obj);
    return r < 0 ? copy_not_noted(op, k->from, k->to, r) : 0;
}

/* ---- running ---- */

static void copying_free(struct copying *k)
{
    copy_items_release(k);
    free(k->v);
    free(k->told);
    free(k->from);
    free(k->to);
    free(k);
}

static void run_copying(struct task *task)
{
    struct copying *k = container_of(task, struct copying, task);
    struct cache *c = k->cache;
    struct op op;

    cache_op(c, &op);
    bool joined = false; /* the intention is no more */
    int r = copy_give_up_name(k, &op, &joined);
    if (r == 0 && !joined)
        r = moved_make_durable(c, &op, k->to, k->dir, k->intent->seq);
    /* A power loss is not to leave copies without the row. Where the disk takes nothing more,
     * the store goes on nevertheless. */
    if (r == 0 && !joined)
        (void)journal_sync_intents(c->journal);
    if (r == 0 && !joined)
        r = k->dir ? copy_dir(k, &op) : copy_file(k, &op);
    cache_lock(c);
    c->transfer->copies_running--;
    c->transfer->volumes[k->volume].copies--;
    if (r < 0 || r == COPY_WAITS)
        debt_run(&k->intent->debt, false);
    if (r < 0) {
        copy_note_refusal_locked(k, r);
        owed_failed_locked(c, &k->intent->debt, r, op.why);
        progress_failed_locked(c);
    } else {
        progress_locked(c);
    }
    cache_check_locked(c);
    cache_unlock(c);
    if (r < 0)
        log_warn("rename at the store failed, tried again: %s", op.why);
    copying_free(k);
}

void copy_start_locked(struct cache *c, struct intent *i)
{
    struct copying *k = calloc(1, sizeof(*k));

    cache_assert_locked(c);
    if (!k)
        return;
    *k = (struct copying){.task.run = run_copying,
                          .cache = c,
                          .intent = i,
                          .from = strdup(i->from),
                          .to = strdup(i->to),
                          .volume = intent_volume(c, i),
                          .refuser = intent_lone_volume(c, i),
                          .dir = i->kind == INTENT_RENAMEDIR};
    if (!k->from || !k->to) {
        copying_free(k);
        return;
    }
    debt_run(&i->debt, true);
    i->redo = false;
    i->others_taken =
        refusal_others_taken_locked(c, i->refuser, CHANGE_PUT, i->debt.refused_ns);
    c->transfer->copies_running++;
    c->transfer->volumes[k->volume].copies++;
    pool_submit(c->uploaders, &k->task);
}
