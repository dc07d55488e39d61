/* Renames at the store: natively where the store can, else copies that become visible before
 * the old names go. What was copied is then removed by intentions of its own, in one
 * transaction. Here are files and the end of each rename; directories are in copy_tree.c. */
#include "cache/transfer/copy.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/stamp.h"
#include "cache/tree/children.h"
#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "common/path.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- where things are afterwards ---- */
char *copy_moved_path(const char *path, const char *from, const char *to)
{
    const char *rest = path_below(from, path);

    return rest ? path_join(to, rest) : NULL;
}

void copy_source_locked(struct cache *c, struct entry *e, struct place from, struct place to)
{
    cache_assert_locked(c);
    auto_place struct place now = entry_place(e);
    auto_place struct place moved = place_known(now) ? place_moved(now, from, to) : NO_PLACE;
    if (!place_known(moved))
        return;
    place_free(&e->source);
    entry_changed_locked(c, e);
    /* An entry in its directory's place needs no source of its own, and moves with it. */
    auto_place struct place inherited = entry_place(e);
    if (!place_known(inherited) || !place_same(inherited, moved))
        e->source = place_take(&moved);
}

/* Whether what `i` moves is something that `done`, an earlier one, had brought there: not what
 * was made under the old name later. */
static bool moves_on(struct intent *done, struct intent *i) REQUIRES(cache_mutex)
{
    auto_free char *at = strdup(i->from);

    for (struct intent *j = i->prev; at && j != done; j = j->prev)
        if (intent_backward(j, &at) == INTENT_LEFT)
            return false;
    return at && path_below(done->to, at);
}

struct moving {
    struct intent *done;
    struct copy_readers *changed;
};

static void changed_add_locked(struct copy_readers *l, struct node *n) REQUIRES(cache_mutex)
{
    if (array_grow(l->v, l->cap, l->n + 1) < 0)
        return; /* the records in memory are right */
    l->v[l->n++] = n;
    node_ref_locked(n);
}

/* A mirror file that was made while the place was still the old one, after the version of that
 * had been told, or where nobody told one, has a record of the old place alone. */
static void record_follows(const struct moving *m, struct entry *e) REQUIRES(cache_mutex)
{
    const struct place from = intent_source(m->done), to = intent_target(m->done);
    struct stamp_keys *keys = e->node->file ? &e->node->file->keys : NULL;

    if (!keys || !keys->n)
        return;
    auto_place struct place now = entry_place(e);
    auto_place struct place old = place_known(now) ? place_moved(now, to, from) : NO_PLACE;
    struct stamp_key *k = place_known(old) ? stamp_keys_find(keys, old.key) : NULL;
    if (!k || !etag_is(&e->etag, k->etag))
        return;
    /* One that was left from when it stood there before does not count. */
    const struct stamp_key *there = stamp_keys_find(keys, now.key);
    if (there && (stamp_key_is_expected(there) || etag_is(&e->etag, there->etag)))
        return;
    auto_free char *etag = strdup(k->etag); /* the next call may move the record */
    if (!etag || stamp_keys_set(keys, now.key, etag, k->mtime_ns, k->size) < 0)
        return;
    stamp_keys_remove(keys, old.key);
    changed_add_locked(m->changed, e->node);
}

static int records_in_follow(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (!n->dir)
        return 0;
    CHILDREN_FOREACH(n->dir->children, e, at)
    record_follows(arg, e);
    return 0;
}

void copy_sources_locked(struct cache *c, struct intent *done, struct copy_readers *changed)
{
    struct moving m = {.done = done, .changed = changed};

    cache_assert_locked(c);
    assert(done);
    if (done->kind == INTENT_RENAMEDIR)
        listing_dir_moved_locked(c);
    for (struct intent *i = done; i; i = i->next) {
        if (!intent_is_rename(i) || (i != done && !moves_on(done, i)))
            continue;
        auto_free char *at = intent_path_after(i->next, i->to);
        struct entry *e = NULL;
        /* An entry that stands at its final place has no source of its own, as one that was
         * made there since. */
        struct node *n = at ? tree_find(c, at, &e) : NULL;
        if (n && e && (place_known(e->source) || n->ino == i->ino))
            copy_source_locked(c, e, intent_source(done), intent_target(done));
        if (n && e)
            record_follows(&m, e);
        if (n)
            (void)tree_each(n, records_in_follow, &m);
    }
}

void copy_reader_follows(struct file *f, const char *to, const char *copied_etag,
                         const char *new_etag)
{
    const char *has = f->etag ? f->etag : "";
    bool same = strcmp(has, copied_etag) == 0;

    if (!same && *has && *copied_etag && strcmp(has, new_etag) != 0)
        return;
    auto_place struct place moved = place_dup(place_of_path(to));
    auto_free char *etag = strdup(same ? new_etag : has);
    if (!place_known(moved) || !etag)
        return;
    SWAP(f->orphan_source, moved);
    SWAP(f->etag, etag);
}

/* The same of all that read what was moved. */
static void readers_follow_locked(struct copying *k, const char *copied_etag,
                                  const char *new_etag) REQUIRES(cache_mutex)
{
    const struct contents *t = k->cache->content;

    for (size_t i = 0; i < t->n_stale_readers; i++) {
        struct file *f = t->stale_readers[i]->file;
        if (place_known(f->orphan_source) &&
            place_same(f->orphan_source, place_of_path(k->from)))
            copy_reader_follows(f, k->to, copied_etag, new_etag);
    }
}

/* The live entry that reads from `from` and that the intention brings to `to`; later ones may
 * have moved it on. */
static struct node *reader_locked(struct cache *c, struct intent *i, const char *from,
                                  const char *to, struct entry **ret_entry)
    REQUIRES(cache_mutex)
{
    auto_free char *at = intent_path_after(i->next, to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(c, at, &e) : NULL;
    auto_place struct place now = n && e && !n->dir ? entry_place(e) : NO_PLACE;

    if (!place_known(now) || !place_same(now, place_of_path(from)))
        return NULL;
    *ret_entry = e;
    return n;
}

/* Says which version the entry has from now on. When somebody else had replaced the source, the
 * entry keeps its version, which is found to be gone at the next look. */
static const char *version_after(const struct entry *e, const char *copied_etag,
                                 const char *new_etag, char buf[ETAG_TEXT_MAX])
{
    return *copied_etag && !etag_is(&e->etag, copied_etag) ? etag_text(&e->etag, buf)
                                                           : new_etag;
}

void copy_write_keys(struct cache *c, struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd >= 0)
        (void)file_write_keys(c, n, fd);
    cache_lock(c);
    if (fd >= 0)
        file_put_fd_locked(c, n->file, FD_READ);
    node_unref_locked(c, n);
    cache_unlock(c);
}

void copy_write_readers(struct cache *c, struct copy_readers *l)
{
    for (size_t i = 0; i < l->n; i++)
        copy_write_keys(c, l->v[i]);
    free(l->v);
    *l = (struct copy_readers){0};
}

/* Whether somebody else had replaced what the entry was a version of. What is uploaded here may
 * replace what this cache put before. */
static bool was_replaced(const struct entry *e, const char *copied_etag, const char *new_etag,
                         bool own) REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    return strcmp(version_after(e, copied_etag, new_etag, buf), new_etag) != 0 &&
           !(own && e->dirty);
}

/* Of a file that is to be uploaded under the new name, what that replaces. */
static bool expect_locked(struct file *f, const struct entry *e, struct place to,
                          const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    if (!etag_known(&e->etag) || !new_etag)
        return stamp_keys_expect(&f->keys, to.key, STAMP_ANY_VERSION);
    return stamp_keys_expect(
        &f->keys, to.key,
        was_replaced(e, copied_etag, new_etag, own) ? etag_text(&e->etag, buf) : new_etag);
}

/* Whether the copy has the content, though it may lack attributes: it is of the version that is
 * known here, and nothing was written since. */
static bool has_content(const struct file *f, const struct entry *e, const char *copied_etag)
    REQUIRES(cache_mutex)
{
    if (!e->dirty)
        return etag_known(&e->etag);
    return etag_known(&e->etag) && f->state != FILE_DIRTY && !f->content_dirty &&
           (!*copied_etag || etag_is(&e->etag, copied_etag));
}

/* What the store has at the new place; whether there is something new to write. */
static bool record_locked(struct file *f, const struct entry *e, struct place to,
                          const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    if (!new_etag || (e->dirty && !has_content(f, e, copied_etag)))
        return expect_locked(f, e, to, copied_etag, new_etag, own);
    return etag_known(&e->etag) &&
           stamp_keys_set(&f->keys, to.key, version_after(e, copied_etag, new_etag, buf),
                          f->clean_mtime_ns, f->clean_size) == 0;
}

void copy_note_version(struct copying *k, const char *from, const char *to,
                       const char *copied_etag, const char *new_etag, bool own)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = reader_locked(c, k->intent, from, to, &e);
    bool ours = n && n->file &&
                record_locked(n->file, e, place_of_path(to), copied_etag, new_etag, own);
    if (ours)
        node_ref_locked(n);
    cache_unlock(c);
    if (ours)
        copy_write_keys(c, n);
}

/* It bears the number of the path that it left: only its version tells it from another node's.
 * Without memory it is taken for that. */
static void note_copied_locked(struct file *f, const char *etag) REQUIRES(cache_mutex)
{
    if (!f)
        return;
    free(f->copied_etag);
    f->copied_etag = strdup(etag);
}

/* The caller writes the records of what is returned. */
static struct node *written_locked(struct node *n, bool write) REQUIRES(cache_mutex)
{
    if (!write)
        return NULL;
    node_ref_locked(n);
    return n;
}

/* Another file has the name by now, and what the store has there is what was copied over it:
 * nothing else than that version is ours. Nor is that, if somebody else had replaced what was
 * to be copied. */
static void note_brought_over_locked(struct copying *k, const char *to, const char *copied_etag,
                                     const char *etag, bool own) REQUIRES(cache_mutex)
{
    const struct intent *i = k->intent;

    if (!own &&
        (i->kind != INTENT_RENAME || !*copied_etag || strcmp(i->etag, copied_etag) != 0))
        return;

    auto_free char *at = intent_path_after(k->intent->next, to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(k->cache, at, &e) : NULL;
    auto_place struct place now = n && e && !n->dir ? entry_place(e) : NO_PLACE;

    if (n && place_known(now) && place_same(now, place_of_path(to)) && n->file &&
        n->file->copied_etag)
        note_copied_locked(n->file, etag);
}

struct node *copy_take_version_locked(struct copying *k, const char *from, const char *to,
                                      const char *copied_etag, const char *new_etag, bool own)
{
    struct entry *e = NULL;
    struct node *n = reader_locked(k->cache, k->intent, from, to, &e);

    if (!n) {
        note_brought_over_locked(k, to, copied_etag, new_etag, own);
        return NULL;
    }
    struct file *f = n->file;
    /* Its mirror file may have been made since the version was noted. */
    bool write = f && record_locked(f, e, place_of_path(to), copied_etag, new_etag, own);
    bool same = f && has_content(f, e, copied_etag);
    auto_free char *path = entry_path(e);
    if (path && strcmp(path, to) == 0)
        e->may_exist = true; /* an upload asks for it where its version is not known */
    e->tried_before = false;
    if (!etag_known(&e->etag)) {
        note_copied_locked(f, new_etag);
        return written_locked(n, write);
    }
    bool replaced = was_replaced(e, copied_etag, new_etag, own);
    if (!replaced)
        etag_set(&e->etag, new_etag);
    e->verified_ns = replaced ? 0 : clock_mono_ns();
    entry_forget_version(e);
    entry_changed_locked(k->cache, e);
    if (!same)
        return written_locked(n, write);
    free(f->etag);
    f->etag = etag_known(&e->etag) ? etag_dup(&e->etag) : strdup("");
    if (!e->dirty) /* else it is needed where a power loss brings the row back */
        stamp_keys_remove(&f->keys, place_of_path(from).key);
    return written_locked(n, true);
}

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
        .kind = INTENT_UNLINK, .from = k->from, .next = k->intent->next};
    struct node *n = tree_find(c, k->to, &e);
    bool yes = n && e && copy_is_owed(k, n, e) && place_known(e->source) &&
               place_same(e->source, place_of_path(k->from)) && !intent_is_urgent(c, &removal);
    cache_unlock(c);
    return yes;
}

void copy_forget_version_locked(struct copying *k, const char *from, const char *to)
{
    struct entry *e = NULL;

    if (!reader_locked(k->cache, k->intent, from, to, &e))
        return;
    etag_clear(&e->etag);
    entry_may_exist_locked(e);
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

    i->running = false;
    if (!remove) {
        intent_remove_locked(c, i);
        return;
    }
    c->queue->renames--;
    i->kind = INTENT_UNLINK;
    free(i->to);
    i->to = NULL;
    free(i->etag);
    i->etag = take_ptr(*copied);
    i->attempts = 0;
    i->error = 0;
    i->refused_ns = 0;
    i->others_taken = i->refused = false;
    i->due_ns = 0;
}

/* The store has lost the source: what is complete here is uploaded, the rest is lost there. */
static void source_gone_locked(struct copying *k) REQUIRES(cache_mutex)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    /* Another file may have taken the name since. */
    struct node *n = reader_locked(c, k->intent, k->from, k->to, &e);

    if (!n)
        return;
    place_free(&e->source);
    etag_clear(&e->etag);
    entry_may_exist_locked(e);
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
    e->verified_ns = 0;
}

/* The version that the entry reads, or of one that is gone since the version that was renamed,
 * heap; "" when nothing is known of it. */
static char *known_version(struct copying *k)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = reader_locked(c, k->intent, k->from, k->to, &e);
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

/* A store that renames by itself keeps the version. Where there is nothing to rename it was
 * repeated, or somebody has removed it: what is under the new name tells. */
static int rename_object(struct copying *k, struct op *op, char **copied, struct object *obj)
{
    const struct place from = place_of_path(k->from), to = place_of_path(k->to);
    struct store *s = k->cache->store;
    int renamed = store_rename(s, op, from.key, to.key);

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

/* Moves the object that has the name now; *copied becomes its version. */
static int move_object(struct copying *k, struct op *op, char **copied, struct object *obj)
{
    struct cache *c = k->cache;

    const struct place from = place_of_path(k->from);

    return store_can(c->store, from.key, STORE_RENAME)
               ? rename_object(k, op, copied, obj)
               : copy_latest(c, op, from, copied, &k->own, place_of_path(k->to), obj);
}

/* Whether what was copied is somebody else's, and is about to be replaced, unseen: something
 * was renamed over it here. It stays under the old name, too. */
static bool is_left_to_them(struct copying *k, const char *known, const char *copied)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    if (k->own || !*known || strcmp(known, copied) == 0)
        return false;
    cache_lock(c);
    bool ret = !reader_locked(c, k->intent, k->from, k->to, &e) && copy_is_replaced_locked(k);
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

static int copy_file(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool native = store_can(c->store, place_of_path(k->from).key, STORE_RENAME);
    bool useless = overwritten(c, k);
    auto_free char *copied = known_version(k), *known = copied ? strdup(copied) : NULL;
    struct object obj = {0};
    int r = !known ? -ENOMEM : useless ? 0 : move_object(k, op, &copied, &obj);
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
        else if (useless)
            copy_forget_version_locked(k, k->from, k->to);
        else
            n = copy_take_version_locked(k, k->from, k->to, copied, obj.etag, k->own);
        if (left)
            leave_to_them_locked(k);
        copy_sources_locked(c, k->intent, &changed);
        if (!gone && !useless)
            readers_follow_locked(k, copied, obj.etag);
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
    if (r == 0 && !joined)
        r = k->dir ? copy_dir(k, &op) : copy_file(k, &op);
    cache_lock(c);
    c->transfer->copies_running--;
    c->transfer->volumes[k->volume].copies--;
    if (r == COPY_WAITS)
        k->intent->running = false;
    if (r < 0) {
        copy_note_refusal_locked(k, r);
        intent_failed_locked(c, k->intent, r, op.why);
        failure_note_locked(c, &c->write_failure, r, op.why);
    }
    progress_locked(c);
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
    i->running = true;
    i->redo = false;
    i->others_taken = refusal_others_taken_locked(c, i->refuser, CHANGE_PUT, i->refused_ns);
    c->transfer->copies_running++;
    c->transfer->volumes[k->volume].copies++;
    pool_submit(c->uploaders, &k->task);
}
