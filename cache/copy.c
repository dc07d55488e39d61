/* Renames at the store: natively where the store can, else copies that become visible before
 * the old names go. What was copied is then removed by intentions of its own, in one
 * transaction. */
#include "cache/intent.h"

#include "cache/crash.h"
#include "cache/listing.h"
#include "cache/origin.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* Nothing was done: something is to be removed first. */
#define COPY_WAITS 1

/* How often a copy follows a source that others replace. */
#define VERSIONS_MAX 8

/* How many objects of one directory. */
#define COPIES_AT_ONCE 16

/* What becomes of an object in a directory that is renamed. */
enum item_fate {
    ITEM_COPIED, /* and then removed under its old name */
    ITEM_OUT,    /* removed without a copy: it is written anew under its new name */
    ITEM_LEFT, /* neither: it is gone, or somebody else's, or an earlier intention removes it */
};

/* One object of a directory that is copied. */
struct item {
    char *from, *to;
    char *etag, *new_etag; /* the version that is copied or removed; that of the copy */
    enum item_fate fate;
    bool is_dir;
    bool own; /* what was copied was put there by this cache */
};

struct copying {
    struct task task;
    struct cache *cache;
    struct intent *intent;
    char *from, *to; /* the intent's, constant while it runs */
    bool dir;
    bool own;       /* a file's source was replaced by a later version of this cache */
    struct op *op;  /* of the listing */
    uint64_t bytes; /* that what it tells of takes */
    struct item *v;
    size_t n, cap;
    struct each each; /* copies the items */
};

/* ---- where things are afterwards ---- */

/* `path` with the prefix `from` replaced by `to`, heap; NULL when it is not below, or no
 * memory. */
static char *copy_moved_path(const char *path, const char *from, const char *to)
{
    const char *rest = path_below(from, path);

    return rest ? path_join(to, rest) : NULL;
}

/* The source of an entry that stood at or below `from` is now at or below `to`. */
static void copy_source_locked(struct cache *c, struct entry *e, const char *from,
                               const char *to) REQUIRES(cache_mutex)
{
    auto_free char *key_now = e->src_key ? strdup(e->src_key) : entry_key(e);
    char *key = key_now ? copy_moved_path(key_now, from, to) : NULL;
    if (!key)
        return;
    free(e->src_key);
    e->src_key = NULL;
    entry_changed_locked(c, e);
    /* Where its directory is at the store it needs no source of its own, and moves with it. */
    auto_free char *inherited = entry_key(e);
    if (inherited && strcmp(inherited, key) == 0)
        free(key);
    else
        e->src_key = key;
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

/* Only entries that some rename of the list moved have a source of their own. */
static void copy_sources_locked(struct cache *c, struct intent *done) REQUIRES(cache_mutex)
{
    assert(done);
    c->dir_moves += done->kind == INTENT_RENAMEDIR;
    for (struct intent *i = done; i; i = i->next) {
        if (!intent_is_rename(i) || (i != done && !moves_on(done, i)))
            continue;
        auto_free char *at = intent_path_after(i->next, i->to);
        struct entry *e = NULL;
        /* One that stands where it will be in the end has no source of its own, as one that was
         * made there since. */
        if (at && tree_find(c, at, &e) && e && (e->src_key || e->node->ino == i->ino))
            copy_source_locked(c, e, done->from, done->to);
    }
    for (size_t i = 0; i < c->n_orphans; i++) {
        struct file *f = c->orphans[i]->file;
        char *key = f->orphan_key ? copy_moved_path(f->orphan_key, done->from, done->to) : NULL;
        if (key) {
            free(f->orphan_key);
            f->orphan_key = key;
        }
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
    auto_free char *key = n && e && !n->dir ? entry_key(e) : NULL;

    if (!key || strcmp(key, from) != 0)
        return NULL;
    *ret_entry = e;
    return n;
}

/* What the entry is a version of from now on. When somebody else had replaced the source, the
 * entry keeps its version, which is found to be gone at the next look. */
static const char *version_after(const struct entry *e, const char *copied_etag,
                                 const char *new_etag, char buf[ETAG_TEXT_MAX])
{
    return *copied_etag && !etag_is(&e->etag, copied_etag) ? etag_text(&e->etag, buf)
                                                           : new_etag;
}

static void copy_write_keys(struct cache *c, struct node *n)
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
static bool expect_locked(struct file *f, const struct entry *e, const char *to,
                          const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    if (!etag_known(&e->etag) || !new_etag)
        return stamp_keys_expect(&f->keys, to, STAMP_ANY_VERSION);
    return stamp_keys_expect(
        &f->keys, to,
        was_replaced(e, copied_etag, new_etag, own) ? etag_text(&e->etag, buf) : new_etag);
}

/* Records in the stamp what the store has under the new key, beside the old one: whether the
 * row is gone or not, one of them holds. `new_etag` NULL: which version that is nobody knows.
 */
static void copy_note_version(struct copying *k, const char *from, const char *to,
                              const char *copied_etag, const char *new_etag, bool own)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    char buf[ETAG_TEXT_MAX];
    bool ours = false;

    cache_lock(c);
    struct node *n = reader_locked(c, k->intent, from, to, &e);
    struct file *f = n ? n->file : NULL;
    if (f && (e->dirty || !new_etag))
        ours = expect_locked(f, e, to, copied_etag, new_etag, own);
    else if (f && etag_known(&e->etag))
        ours = stamp_keys_set(&f->keys, to, version_after(e, copied_etag, new_etag, buf),
                              f->clean_mtime_ns, f->clean_size) == 0;
    if (ours)
        node_ref_locked(n);
    cache_unlock(c);
    if (ours)
        copy_write_keys(c, n);
}

/* The first of the intentions from `i` on that concerns the file's name, or NULL. */
static struct intent *next_at(struct intent *i, const char *path) REQUIRES(cache_mutex)
{
    while (i && !path_below(i->from, path) && !(i->to && path_below(i->to, path)))
        i = i->next;
    return i;
}

/* What takes from there next, and means the version that was copied, or what this cache put,
 * means the copy: its origin is that of the old name. So does what takes it on from where that
 * brings it. In memory only. */
static void copy_tell_next_locked(struct copying *k, const char *to, const char *copied_etag,
                                  const char *new_etag, bool own) REQUIRES(cache_mutex)
{
    bool known = *copied_etag && strcmp(copied_etag, INTENT_ANY) != 0;
    struct intent *i = next_at(k->intent->next, to);

    while (i && *new_etag && strcmp(i->from, to) == 0 &&
           (i->kind == INTENT_UNLINK || i->kind == INTENT_RENAME)) {
        bool ours = own && i->kind == INTENT_UNLINK && strcmp(i->etag, INTENT_OURS) == 0;
        char *etag =
            ours || (known && strcmp(i->etag, copied_etag) == 0) ? strdup(new_etag) : NULL;
        if (!etag)
            return;
        free(i->etag);
        i->etag = etag;
        to = i->to;
        i = to ? next_at(i->next, to) : NULL;
    }
}

/* The same in memory, once the row is gone. The node is returned, referenced, when its stamp
 * has a record to lose. */
static struct node *copy_take_version_locked(struct copying *k, const char *from,
                                             const char *to, const char *copied_etag,
                                             const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    struct entry *e = NULL;
    struct node *n = reader_locked(k->cache, k->intent, from, to, &e);

    if (!n)
        return NULL;
    auto_free char *path = entry_path(e);
    if (path && strcmp(path, to) == 0)
        e->may_exist = true; /* an upload asks for it where its version is not known */
    if (!etag_known(&e->etag))
        return NULL;
    bool replaced = was_replaced(e, copied_etag, new_etag, own);
    if (!replaced)
        etag_set(&e->etag, new_etag);
    e->verified_ns = replaced ? 0 : clock_mono_ns();
    entry_forget_version(e);
    entry_changed_locked(k->cache, e);
    struct file *f = n->file;
    if (!f || e->dirty)
        return NULL;
    free(f->etag);
    f->etag = etag_known(&e->etag) ? etag_dup(&e->etag) : strdup("");
    stamp_keys_remove(&f->keys, from);
    node_ref_locked(n);
    return n;
}

/* ---- one file ---- */

/* Whether the live name is uploaded before the old name is removed at the store: that waits
 * for it. What was closed later, or is open, comes after it, and is copied first. */
static bool copy_is_owed(const struct copying *k, const struct node *n, const struct entry *e)
    REQUIRES(cache_mutex)
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
    bool yes = n && e && copy_is_owed(k, n, e) && e->src_key &&
               strcmp(e->src_key, k->from) == 0 && !intent_is_urgent(c, &removal);
    cache_unlock(c);
    return yes;
}

/* Nothing was copied: what the store has under the new name is not the version that was
 * renamed, and the upload asks for it. */
static void copy_forget_version_locked(struct copying *k, const char *from, const char *to)
    REQUIRES(cache_mutex)
{
    struct entry *e = NULL;

    if (!reader_locked(k->cache, k->intent, from, to, &e))
        return;
    etag_clear(&e->etag);
    e->may_exist = true;
}

/* The row turns into the removal of the old name, in the version that was copied; `remove`
 * false: nothing is left to remove. */
static int finish_row(struct copying *k, bool remove, const char *copied)
{
    struct cache *c = k->cache;
    const struct journal_row row = {
        .seq = k->intent->seq, .kind = INTENT_UNLINK, .from = k->from, .etag = copied};
    int r = journal_done(c->journal, &k->intent->seq, 1, &row, remove ? 1 : 0);

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
    c->renames--;
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

/* The source is gone from the store: what is complete here is uploaded, the rest is lost there.
 */
static void source_gone_locked(struct copying *k) REQUIRES(cache_mutex)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    /* Not what took the name since. */
    struct node *n = reader_locked(c, k->intent, k->from, k->to, &e);

    if (!n)
        return;
    free(e->src_key);
    e->src_key = NULL;
    etag_clear(&e->etag);
    e->may_exist = true;
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

/* Which version is there, and whether this cache put it: an upload that ended when the name had
 * been given away. */
static int copy_ask_version(struct cache *c, struct op *op, const char *key, char **etag,
                            bool *own)
{
    struct object there = {0};
    int r = store_stat(c->store, op, key, &there);
    char *now = r == 0 && !there.is_prefix ? strdup(there.etag) : NULL;

    if (r == 0 && !now)
        r = there.is_prefix ? -ENOENT : -ENOMEM;
    if (r == 0) {
        *own = origin_is_ours(c, key, &there.attrs);
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
    struct store *s = k->cache->store;
    int renamed = store_rename(s, op, k->from, k->to);

    if (renamed < 0 && renamed != -ENOENT)
        return renamed;
    int r = store_stat(s, op, k->to, obj);
    bool other = r == 0 && **copied && strcmp(*copied, INTENT_ANY) != 0 &&
                 strcmp(*copied, obj->etag) != 0;
    if (!other)
        return r;
    return renamed < 0 ? -ENOENT : set_any(copied);
}

/* The cache itself failed, whatever was said of it before. */
static int copy_not_noted(struct op *op, const char *from, const char *to, int err)
{
    return op_fail(op, err, "rename %s to %s: it can't be noted in the cache: %s", from, to,
                   strerror(-err));
}

static int copy_at_store(struct cache *c, struct op *op, const char *from,
                         const char *from_etag, const char *to, struct object *obj)
{
    struct session_watch watch;

    session_watch(&watch, c, op);
    int r = store_copy(c->store, op, from, from_etag, to, NULL, NULL, obj);
    int noted = session_unwatch(&watch, op);
    if (op->left_behind)
        late_copy(c, to);
    return r < 0 && noted < 0 ? copy_not_noted(op, from, to, noted) : r;
}

/* Copies what has the name now. *etag is the version that is expected there ("" any), and then
 * the one that was copied ("" where the store keeps none): that one alone may be removed. */
static int copy_latest(struct cache *c, struct op *op, const char *from, char **etag, bool *own,
                       const char *to, struct object *obj)
{
    bool ask = !**etag && (c->store->caps & STORE_IF_MATCH);
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
                                  c->store->url, from, to);
}

/* Moves whatever has the name now; *copied becomes its version. */
static int move_object(struct copying *k, struct op *op, char **copied, struct object *obj)
{
    struct cache *c = k->cache;

    return c->store->caps & STORE_RENAME
               ? rename_object(k, op, copied, obj)
               : copy_latest(c, op, k->from, copied, &k->own, k->to, obj);
}

static int copy_file(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool native = c->store->caps & STORE_RENAME;
    bool useless = overwritten(c, k);
    auto_free char *copied = known_version(k);
    struct object obj = {0};
    int r = !copied ? -ENOMEM : useless ? 0 : move_object(k, op, &copied, &obj);
    bool gone = r == -ENOENT;

    crash_point("rename-copied");
    if (r < 0 && !gone)
        return r;
    r = 0;
    if (!useless && !gone) {
        copy_note_version(k, k->from, k->to, copied, obj.etag, k->own);
        r = intents_retire(c, INTENT_UNLINK, k->to, k->intent->seq);
    } else {
        copy_note_version(k, k->from, k->to, copied, NULL, false);
    }
    bool remove = !gone && (useless || !native);
    struct node *n = NULL;
    if (r == 0)
        r = finish_row(k, remove, copied);
    /* The intention stays what its row is: it is made again. */
    if (r == 0) {
        cache_lock(c);
        if (!gone && !useless)
            copy_tell_next_locked(k, k->to, copied, obj.etag, k->own);
        if (gone)
            source_gone_locked(k);
        else if (useless)
            copy_forget_version_locked(k, k->from, k->to);
        else
            n = copy_take_version_locked(k, k->from, k->to, copied, obj.etag, k->own);
        copy_sources_locked(c, k->intent);
        finish_intent_locked(k, remove, &copied);
        cache_unlock(c);
        if (n)
            copy_write_keys(c, n);
    }
    object_release(&obj);
    return r < 0 ? copy_not_noted(op, k->from, k->to, r) : 0;
}

/* ---- a directory ---- */

/* Of a directory, or of what is none: one can have taken the place of the other since. */
static bool removal_pending_before(struct cache *c, const struct intent *self, const char *key,
                                   bool is_dir) REQUIRES(cache_mutex)
{
    enum intent_kind kind = is_dir ? INTENT_RMDIR : INTENT_UNLINK;

    for (struct intent *i = c->intents; i && i != self; i = i->next)
        if (i->kind == kind && strcmp(i->from, key) == 0)
            return true;
    return false;
}

static struct item *item_add(struct copying *k)
{
    if (k->n == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 64;
        struct item *v = reallocarray(k->v, cap, sizeof(*v));
        if (!v)
            return NULL;
        k->v = v;
        k->cap = cap;
    }
    k->v[k->n] = (struct item){0};
    return &k->v[k->n++];
}

static void copy_items_release(struct copying *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->v[i].from);
        free(k->v[i].to);
        free(k->v[i].etag);
        free(k->v[i].new_etag);
    }
    k->n = 0;
}

/* A name that is uploaded anew below the new directory, in time, is not copied. What is removed
 * under its old name then is the version that the upload was to replace, or what came there of
 * an attempt, if there was any: not one that somebody else has put there since. */
static int settle_written_anew_locked(struct copying *k, struct item *it) REQUIRES(cache_mutex)
{
    auto_free char *at = intent_path_after(k->intent->next, it->to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(k->cache, at, &e) : NULL;

    if (!n || !e || !copy_is_owed(k, n, e))
        return 0;
    bool known = etag_known(&e->etag);
    it->fate = known || e->may_exist || e->tried ? ITEM_OUT : ITEM_LEFT;
    if (!known && (e->may_exist || !e->tried))
        return 0;
    free(it->etag);
    it->etag = known ? etag_dup(&e->etag) : strdup(INTENT_OURS);
    return it->etag ? 0 : -ENOMEM;
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct copying *k = arg;
    struct cache *c = k->cache;

    if (!path_key_ok(name, STORE_KEY_MAX))
        return 0;
    k->bytes += sizeof(*k->v) + strlen(k->from) + strlen(k->to) + 2 * strlen(name);
    if (k->bytes > listed_max(c))
        return listed_too_much(c, k->op, k->from, k->n);
    struct item *it = item_add(k);
    if (!it)
        return -ENOMEM;
    *it = (struct item){.from = path_join(k->from, name),
                        .to = path_join(k->to, name),
                        .etag = strdup(obj->etag),
                        .is_dir = obj->is_prefix};
    if (!it->from || !it->to || !it->etag)
        return -ENOMEM;
    int r = 0;
    cache_lock(c);
    if (removal_pending_before(c, k->intent, it->from, it->is_dir))
        it->fate = ITEM_LEFT;
    else if (!it->is_dir)
        r = settle_written_anew_locked(k, it);
    cache_unlock(c);
    return r;
}

static int copy_item_dir(struct copying *k, struct item *it, struct op *op)
{
    struct store *s = k->cache->store;
    struct object obj = {0};
    int r = store_stat(s, op, it->from, &obj);

    if (r == 0)
        r = store_mkdir(s, op, it->to, obj.attrs_known ? &obj.attrs : NULL, NULL);
    object_release(&obj);
    return r;
}

static int copy_item_file(struct copying *k, struct item *it, struct op *op)
{
    struct cache *c = k->cache;
    struct object obj = {0};
    int r = copy_latest(c, op, it->from, &it->etag, &it->own, it->to, &obj);

    if (r == 0) {
        it->new_etag = strdup(obj.etag);
        it->own = it->own || (obj.attrs_known && origin_is_ours(c, it->from, &obj.attrs));
        r = it->new_etag ? 0 : -ENOMEM;
    }
    object_release(&obj);
    return r;
}

static int copy_item(struct each *each, size_t i, struct op *op)
{
    struct copying *k = container_of(each, struct copying, each);
    struct item *it = &k->v[i];

    if (it->fate != ITEM_COPIED)
        return 0;
    int r = it->is_dir ? copy_item_dir(k, it, op) : copy_item_file(k, it, op);
    if (r != -ENOENT)
        return r;
    /* Removed by someone else since it was listed. A directory may be there without a marker
     * of its own, and goes with what is below it. */
    it->fate = it->is_dir ? ITEM_OUT : ITEM_LEFT;
    return 0;
}

static int copy_items(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    unsigned jobs = c->config.upload_jobs;

    k->each = (struct each){.call = copy_item,
                            .n = k->n,
                            .at_once = jobs < COPIES_AT_ONCE ? jobs : COPIES_AT_ONCE,
                            .patience_ns = c->config.store_timeout_ns};
    return pool_each(c->parts, &k->each, op);
}

/* Children before their directories. */
static int by_path_down(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    return strcmp(b->from, a->from);
}

/* Whether the item lies below the directory whose path is the first `len` bytes of `path`. */
static bool lies_below(const struct item *it, const char *path, size_t len)
{
    return strncmp(it->from, path, len) == 0 && it->from[len] == '/';
}

static bool has_marker(const struct copying *k, size_t n, const char *path)
{
    const struct item wanted = {.from = (char *)path};
    const struct item *found = bsearch(&wanted, k->v, n, sizeof(*k->v), by_path_down);

    return found && found->is_dir;
}

/* Directories that have no object of their own show in listings as long as something below them
 * is there: until it is removed they are about to go, as their content is. */
static int add_implied_dirs(struct copying *k)
{
    size_t n = k->n;

    if (n)
        qsort(k->v, n, sizeof(*k->v), by_path_down);
    for (size_t i = 0; i < n; i++) {
        const char *path = k->v[i].from;
        for (size_t len = strlen(k->from) + 1; path[len]; len++) {
            if (path[len] != '/' || (i > 0 && lies_below(&k->v[i - 1], path, len)))
                continue;
            auto_free char *dir = strndup(path, len);
            if (dir && has_marker(k, n, dir))
                continue;
            struct item *it = dir ? item_add(k) : NULL;
            if (!it)
                return -ENOMEM;
            it->from = take_ptr(dir);
            it->to = copy_moved_path(it->from, k->from, k->to);
            it->etag = strdup("");
            it->is_dir = true;
            it->fate = ITEM_OUT;
            if (!it->to || !it->etag)
                return -ENOMEM;
        }
    }
    return 0;
}

/* Rows and intentions that remove what was copied, or is written anew, children first. They
 * take the place of the rename in the order, so that later intentions see the same store. */
static int plan_removals(struct copying *k, struct intent **plan, size_t *ret_n)
{
    uint64_t seq = k->intent->seq;
    size_t n = 0;

    if (k->n + 2 >= SEQ_STEP)
        return -EFBIG;
    if (k->n)
        qsort(k->v, k->n, sizeof(*k->v), by_path_down);
    for (size_t i = 0; i <= k->n; i++) {
        bool last = i == k->n;
        bool dir = last || k->v[i].is_dir;
        if (!last && k->v[i].fate == ITEM_LEFT)
            continue;
        plan[n] = intent_new(++seq, dir ? INTENT_RMDIR : INTENT_UNLINK,
                             last ? k->from : k->v[i].from, NULL, 0, last ? "" : k->v[i].etag);
        if (!plan[n])
            return -ENOMEM;
        n++;
    }
    *ret_n = n;
    return 0;
}

static bool is_written_anew(const struct item *it)
{
    return it->fate == ITEM_OUT && !it->is_dir;
}

/* Of what is not copied now a killed mount may have made a copy: which version that is nobody
 * knows. */
static void note_item(struct copying *k, const struct item *it)
{
    if (it->new_etag)
        copy_note_version(k, it->from, it->to, it->etag, it->new_etag, it->own);
    else if (is_written_anew(it))
        copy_note_version(k, it->from, it->to, it->etag, NULL, false);
}

static int note_copied(struct copying *k, struct intent **plan, size_t n)
{
    struct journal_row *rows = calloc(n ? n : 1, sizeof(*rows));

    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < k->n; i++)
        note_item(k, &k->v[i]);
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct journal_row){.seq = plan[i]->seq,
                                       .kind = plan[i]->kind,
                                       .from = plan[i]->from,
                                       .etag = plan[i]->etag};
    int r = journal_done(k->cache->journal, &k->intent->seq, 1, rows, n);
    free(rows);
    crash_point("renamedir-noted");
    return r;
}

static void take_over(struct copying *k, struct intent **plan, size_t n)
{
    struct cache *c = k->cache;

    for (size_t i = 0; i < k->n; i++) {
        const struct item *it = &k->v[i];
        struct node *changed = NULL;
        cache_lock(c);
        if (it->new_etag)
            copy_tell_next_locked(k, it->to, it->etag, it->new_etag, it->own);
        if (it->new_etag)
            changed =
                copy_take_version_locked(k, it->from, it->to, it->etag, it->new_etag, it->own);
        else if (is_written_anew(it))
            copy_forget_version_locked(k, it->from, it->to);
        cache_unlock(c);
        if (changed)
            copy_write_keys(c, changed);
    }
    cache_lock(c);
    copy_sources_locked(c, k->intent);
    intent_remove_locked(c, k->intent);
    for (size_t i = 0; i < n; i++)
        intent_add_locked(c, plan[i]);
    cache_unlock(c);
}

/* ---- what is in its way ---- */

/* The first item, in the order of by_path_down(), that does not come before `path`. */
static size_t item_at(const struct copying *k, const char *path)
{
    size_t from = 0, to = k->n;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (strcmp(k->v[mid].from, path) > 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* Whether something is copied to a place below `path` (where it comes from, not its own). */
static bool copied_below(const struct copying *k, const char *path)
{
    auto_free char *dir = NULL;

    if (asprintf(&dir, "%s/", path) < 0)
        return true; /* waits for more than it must */
    for (size_t i = item_at(k, dir); i-- > 0 && strncmp(k->v[i].from, dir, strlen(dir)) == 0;)
        if (k->v[i].fate == ITEM_COPIED)
            return true;
    return false;
}

/* Whether a file (or a directory) of just this name is copied. */
static bool copied_at(const struct copying *k, const char *path, bool dir)
{
    size_t i = item_at(k, path);

    return i < k->n && strcmp(k->v[i].from, path) == 0 && k->v[i].fate == ITEM_COPIED &&
           k->v[i].is_dir == dir;
}

/* Whether what the earlier intention removes, below the new name, is of another kind than what
 * is copied there, or to a place above or below it. */
static bool is_in_the_way(const struct copying *k, const struct intent *removal)
{
    auto_free char *path = copy_moved_path(removal->from, k->to, k->from);
    size_t len = strlen(k->from);
    bool dir = removal->kind == INTENT_RMDIR;

    if (!path || strlen(path) <= len)
        return false; /* its own name was waited for */
    if (copied_at(k, path, !dir) || (!dir && copied_below(k, path)))
        return true;
    for (char *end; (end = strrchr(path, '/')) && end > path + len;) {
        *end = '\0';
        if (copied_at(k, path, false))
            return true;
    }
    return false;
}

/* Many stores hold nothing at or below a name of the other kind: what was removed before, and
 * is one, goes first. Whether there is something to wait for. */
static bool must_wait(struct copying *k)
{
    struct cache *c = k->cache;
    bool found = false;

    if (k->n)
        qsort(k->v, k->n, sizeof(*k->v), by_path_down);
    cache_lock(c);
    for (struct intent *i = c->intents; i && i != k->intent; i = i->next)
        if (!intent_is_rename(i) && !i->error && is_in_the_way(k, i))
            found = i->urgent = true;
    cache_unlock(c);
    return found;
}

/* A directory's own marker is not part of the listing below it. *ret tells whether it has one.
 */
static int copy_marker(struct copying *k, struct op *op, bool *ret)
{
    struct cache *c = k->cache;
    struct object obj = {0};
    int r = store_stat(c->store, op, k->from, &obj);

    *ret = r == 0 && obj.is_prefix && obj.has_marker;
    if (*ret)
        r = store_mkdir(c->store, op, k->to, obj.attrs_known ? &obj.attrs : NULL, NULL);
    object_release(&obj);
    return r == -ENOENT ? 0 : r;
}

/* Without a marker to take its place, that of the directory which this one replaced would lend
 * it its attributes. Nothing else depends on it, and there are servers that remove none which
 * has something below it, as one has after a copy that was broken off. */
static void remove_replaced_marker(struct copying *k, struct op *op)
{
    struct store *s = k->cache->store;

    if (!(s->caps & STORE_DIRS) && store_rmdir(s, op, k->to) < 0)
        log_debug("the marker of a directory that %s replaced stays: %s", k->to, op->why);
}

static int copy_tree(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool has_marker = false;
    size_t n = 0;

    k->op = op;
    int r = store_list(c->store, op, k->from, LIST_RECURSIVE, collect, k);

    if (r == -ENOENT)
        r = 0;
    if (r == 0 && must_wait(k))
        return COPY_WAITS;
    if (r == 0)
        r = copy_marker(k, op, &has_marker);
    if (r == 0 && !has_marker)
        remove_replaced_marker(k, op);
    if (r == 0)
        r = copy_items(k, op);
    crash_point("renamedir-copied");
    if (r == 0)
        r = add_implied_dirs(k);
    if (r < 0)
        return r;
    for (size_t i = 0; i < k->n && r == 0; i++)
        if (k->v[i].fate == ITEM_COPIED)
            r = intents_retire(c, k->v[i].is_dir ? INTENT_RMDIR : INTENT_UNLINK, k->v[i].to,
                               k->intent->seq);
    if (r == 0)
        r = intents_retire(c, INTENT_RMDIR, k->to, k->intent->seq);
    struct intent **plan = calloc(k->n + 1, sizeof(*plan));
    if (!plan)
        return -ENOMEM;
    if (r == 0)
        r = plan_removals(k, plan, &n);
    if (r == 0)
        r = note_copied(k, plan, n);
    if (r < 0)
        (void)copy_not_noted(op, k->from, k->to, r);
    if (r == 0)
        take_over(k, plan, n);
    for (size_t i = 0; r < 0 && i < k->n + 1; i++)
        intent_free(plan[i]);
    free(plan);
    return r;
}

static bool removals_pending_below(struct cache *c, const char *a, const char *b)
    REQUIRES(cache_mutex)
{
    for (struct intent *i = c->intents; i; i = i->next)
        if (!intent_is_rename(i) && (path_below(a, i->from) || path_below(b, i->from)))
            return true;
    return false;
}

/* Files of the mirror whose stamps name a key below the directory that moves. */
static int collect_stamped(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct copying *k = arg;

    for (struct entry *e = n->file ? n->links : NULL; e; e = e->next_link) {
        auto_free char *key = e->dirty ? NULL : entry_key(e);
        char *to = key && etag_known(&e->etag) ? copy_moved_path(key, k->from, k->to) : NULL;
        struct item *it = to ? item_add(k) : NULL;
        if (!it) {
            free(to);
            continue;
        }
        it->from = take_ptr(key);
        it->to = to;
        it->etag = etag_dup(&e->etag);
        it->new_etag = etag_dup(&e->etag);
        if (!it->etag || !it->new_etag)
            return -ENOMEM;
    }
    return 0;
}

/* A native rename takes everything along, so nothing below may be about to go. */
static int rename_tree(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    struct object obj = {0};

    cache_lock(c);
    bool unsafe = removals_pending_below(c, k->from, k->to);
    auto_free char *at = intent_path_after(k->intent->next, k->to);
    struct node *dir = at && !unsafe ? tree_find(c, at, NULL) : NULL;
    int cr = dir ? tree_each(dir, collect_stamped, k) : 0;
    cache_unlock(c);
    if (cr < 0)
        return cr;
    if (unsafe)
        return -EOPNOTSUPP;
    int r = store_rename(c->store, op, k->from, k->to);
    if (r == -ENOENT) {
        /* Never there, or a repeat of a rename that had happened. */
        r = store_stat(c->store, op, k->to, &obj) == 0 ? 0 : -EOPNOTSUPP;
        object_release(&obj);
    }
    if (r == -ENOTEMPTY || r == -EEXIST)
        return -EOPNOTSUPP;
    crash_point("renamedir-native");
    if (r < 0)
        return r;
    r = note_copied(k, NULL, 0);
    if (r < 0)
        return copy_not_noted(op, k->from, k->to, r);
    take_over(k, NULL, 0);
    return 0;
}

static int copy_dir(struct copying *k, struct op *op)
{
    int r = k->cache->store->caps & STORE_RENAME ? rename_tree(k, op) : -EOPNOTSUPP;

    if (r != -EOPNOTSUPP)
        return r;
    copy_items_release(k);
    return copy_tree(k, op);
}

/* ---- another name for what the store refuses ---- */

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

static bool concerns(const struct intent *i, const char *path)
{
    return overlap(i->from, path) || (i->to && overlap(i->to, path));
}

static bool leads_back(const struct intent *i, const struct intent *end)
{
    return end->to && strcmp(end->to, i->from) == 0;
}

/* Whether `end` takes away all that `i` brings, to somewhere that the store can hold beside the
 * old name. */
static bool takes_all(const struct intent *i, const struct intent *end)
{
    if (strcmp(end->from, i->to) != 0)
        return false;
    if (!intent_is_rename(end))
        return (end->kind == INTENT_RMDIR) == (i->kind == INTENT_RENAMEDIR);
    return end->kind == i->kind && end->ino == i->ino &&
           (leads_back(i, end) || !overlap(end->to, i->from));
}

/* The later intention that ends the rename. With those in between, which concern neither of its
 * names, the rename could change places. */
static struct intent *ended_by_locked(const struct intent *i) REQUIRES(cache_mutex)
{
    struct intent *end = i->next;

    while (end && !concerns(end, i->from) && !concerns(end, i->to))
        end = end->next;
    return end && !end->running && takes_all(i, end) ? end : NULL;
}

/* A removal waits for what the store refuses in its own directory only. One that is moved to
 * another directory waits here for what may yet be refused in this one. */
static bool waits_beside_locked(struct cache *c, const struct intent *i,
                                const struct intent *end) REQUIRES(cache_mutex)
{
    auto_free char *old = path_parent(i->from), *dir = path_parent(end->from);
    struct file *f;

    if (intent_is_rename(end) || (old && dir && strcmp(old, dir) == 0))
        return false;
    struct node *beside = dir ? tree_find(c, dir, NULL) : NULL;
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (!f->first_seq || f->first_seq > barrier_seq_locked(c, end->seq))
            continue;
        for (struct entry *e = f->node->links; e; e = e->next_link)
            if (!dir || (e->dirty && e->parent == beside))
                return true;
    }
    return false;
}

/* Recovery knows what a row moved by its inode, unless that was linked or moved later than the
 * row was made (format.md, 4): a link that came to the old name between the two rows would be
 * taken for what the joined one is still to move. */
static bool is_linked_there_locked(struct cache *c, const struct intent *i,
                                   const struct intent *end) REQUIRES(cache_mutex)
{
    struct node *n =
        intent_is_rename(end) && !leads_back(i, end) ? tree_find(c, i->from, NULL) : NULL;

    return n && n->ino == i->ino && n->birth < end->seq;
}

/* What was sent to the refused name before may still arrive there, and would be left. */
static bool may_arrive_locked(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    return late_copies_below_locked(c, path) ||
           late_puts_below_until_locked(c, path) > clock_mono_ns();
}

/* The one intention that does what the two do, in the place of the later one; *ret NULL: the
 * two do nothing. `version` is what a removal takes away. 0 or -ENOMEM. */
static int join(const struct intent *i, const struct intent *end, const char *version,
                struct intent **ret) REQUIRES(cache_mutex)
{
    bool moves = intent_is_rename(end);

    *ret = NULL;
    if (leads_back(i, end))
        return 0;
    /* Of a removal without the inode's number recovery makes nothing: its step was made. */
    *ret = intent_new(end->seq, end->kind, i->from, end->to, moves ? end->ino : 0,
                      moves && *end->etag ? end->etag : version);
    if (!*ret)
        return -ENOMEM;
    (*ret)->moved_ino = end->moved_ino;
    (*ret)->since = intent_since(i);
    return 0;
}

static int note_joined(struct cache *c, const struct intent *i, const struct intent *end,
                       const struct intent *one)
{
    const uint64_t seqs[2] = {i->seq, end->seq};
    struct journal_row row = {0};

    if (one)
        row = (struct journal_row){.seq = one->seq,
                                   .kind = one->kind,
                                   .from = one->from,
                                   .to = one->to,
                                   .ino = one->ino,
                                   .etag = one->etag};
    int r = journal_done(c->journal, seqs, 2, &row, one ? 1 : 0);

    crash_point("rename-joined");
    return r;
}

/* What came back, wherever it was moved since, is not told from what stands at its own name. */
static void came_back_locked(struct cache *c, const struct intent *i, const struct intent *end)
    REQUIRES(cache_mutex)
{
    auto_free char *at = intent_path_after(end->next, i->from);
    struct entry *e = NULL;

    if (at && tree_find(c, at, &e) && e && e->src_key)
        copy_source_locked(c, e, i->from, i->from);
}

static void take_joined_locked(struct cache *c, struct intent *i, struct intent *end,
                               struct intent *one) REQUIRES(cache_mutex)
{
    c->dir_moves += i->kind == INTENT_RENAMEDIR;
    if (leads_back(i, end))
        came_back_locked(c, i, end);
    intent_remove_locked(c, end);
    if (one)
        intent_add_locked(c, one);
    intent_remove_locked(c, i);
}

/* ns held for writing: the later intention is not taken back meanwhile, nor does another come
 * before it. It does not run either, since it waits for the rename, which this is the run of.
 */
static int join_held(struct copying *k, const char *version, bool *ret)
{
    struct cache *c = k->cache;
    struct intent *i = k->intent, *one = NULL;

    cache_lock(c);
    struct intent *end = ended_by_locked(i);
    bool may = end && !waits_beside_locked(c, i, end) && !is_linked_there_locked(c, i, end) &&
               !may_arrive_locked(c, k->to);
    may = may && (intent_is_rename(end) || version);
    int r = may ? join(i, end, version ? version : i->etag, &one) : 0;
    cache_unlock(c);
    if (!may)
        return 0;
    if (r == 0)
        r = note_joined(c, i, end, one);
    if (r < 0) {
        intent_free(one);
        return r;
    }
    cache_lock(c);
    take_joined_locked(c, i, end, one);
    cache_unlock(c);
    *ret = true;
    return 0;
}

/* What the removal of the old name takes away, heap: not what somebody else puts there. */
static int version_to_remove(struct copying *k, struct op *op, char **ret)
{
    struct cache *c = k->cache;
    bool own;

    *ret = strdup(k->intent->etag);
    if (!*ret)
        return -ENOMEM;
    if (**ret || k->dir || !(c->store->caps & STORE_IF_MATCH))
        return 0;
    int r = copy_ask_version(c, op, k->from, ret, &own);
    if (r != -ENOENT)
        return r;
    free(*ret);
    *ret = strdup(INTENT_OURS);
    return *ret ? 0 : -ENOMEM;
}

/* A name that the store refuses is given up by the next rename of what has it, or by its
 * removal: the two become one, which does not pass through that name. Not if the store has, or
 * may come to have, something there, which would be replaced, or removed. */
static int copy_give_up_name(struct copying *k, struct op *op, bool *ret)
{
    struct cache *c = k->cache;
    auto_free char *version = NULL;
    struct object there = {0};

    cache_lock(c);
    struct intent *end = k->intent->refused ? ended_by_locked(k->intent) : NULL;
    bool removes = end && !intent_is_rename(end);
    cache_unlock(c);
    int r = end ? store_stat(c->store, op, k->to, &there) : 0;
    object_release(&there);
    if (!end || r != -ENOENT)
        return 0;
    r = removes ? version_to_remove(k, op, &version) : 0;
    if (r < 0)
        return r;
    ns_write(c);
    r = join_held(k, version, ret);
    ns_done(c);
    return r < 0 ? copy_not_noted(op, k->from, k->to, r) : 0;
}

/* As with uploads (refusal.c): refused, and again after another name was taken. */
static void copy_note_refusal_locked(struct cache *c, struct intent *i, int err)
    REQUIRES(cache_mutex)
{
    bool refused = refusal_is_one(err);

    i->refused = refused && (i->refused || i->others_taken);
    i->refused_ns = refused ? clock_mono_ns() : 0;
    if (refused && !i->refused)
        refusal_probe_locked(c);
}

/* ---- running ---- */

static void copying_free(struct copying *k)
{
    copy_items_release(k);
    free(k->v);
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
        r = k->dir ? copy_dir(k, &op) : copy_file(k, &op);
    cache_lock(c);
    c->copies_running--;
    if (r == COPY_WAITS)
        k->intent->running = false;
    if (r < 0) {
        copy_note_refusal_locked(c, k->intent, r);
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

    if (!k)
        return;
    *k = (struct copying){.task.run = run_copying,
                          .cache = c,
                          .intent = i,
                          .from = strdup(i->from),
                          .to = strdup(i->to),
                          .dir = i->kind == INTENT_RENAMEDIR};
    if (!k->from || !k->to) {
        copying_free(k);
        return;
    }
    i->running = true;
    i->redo = false;
    i->others_taken = refusal_others_taken_locked(c, CHANGE_PUT, i->refused_ns);
    c->copies_running++;
    pool_submit(c->uploaders, &k->task);
}
