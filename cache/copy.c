/* Renames at the store: natively where the store can, else copies that become visible before
 * the old names go. What was copied is then removed by intentions of its own, in one
 * transaction. */
#include "cache/intent.h"

#include "cache/crash.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

/* One object of a directory that is copied. */
struct item {
    char *from, *to;
    char *etag, *new_etag;
    bool is_dir;
    bool skip; /* not copied: written anew under its new name, or about to be removed */
};

struct copying {
    struct task task;
    struct cache *cache;
    struct intent *intent;
    char *from, *to; /* the intent's, constant while it runs */
    bool dir;
    struct item *v;
    size_t n, cap;
    /* parallel copies */
    atomic_size_t next;
    atomic_int result;
    unsigned running; /* under cache.lock */
    pthread_cond_t done;
    char why[320];
};

static void op_begin(struct cache *c, struct op *op)
{
    op_init(op, c->config.store_timeout_ns);
    op->cancelled = &c->cancelled;
}

/* ---- where things are afterwards ---- */

/* `path` with the prefix `from` replaced by `to`, heap; NULL when it is not below, or no
 * memory. */
static char *moved_path(const char *path, const char *from, const char *to)
{
    const char *rest = path_below(from, path);

    return rest ? path_join(to, rest) : NULL;
}

/* Where later renames took `path`. */
static char *final_path(struct intent *after, const char *path)
{
    char *at = strdup(path);

    for (struct intent *i = after; at && i; i = i->next) {
        if (!intent_is_rename(i))
            continue;
        char *moved = i->kind == INTENT_RENAMEDIR ? moved_path(at, i->from, i->to)
                      : strcmp(i->from, at) == 0  ? strdup(i->to)
                                                  : NULL;
        if (moved) {
            free(at);
            at = moved;
        }
    }
    return at;
}

/* The source of an entry that stood at or below `from` is now at or below `to`. */
static void move_source_locked(struct cache *c, struct entry *e, const char *from,
                               const char *to)
{
    if (!e || !e->src_key)
        return;
    char *key = moved_path(e->src_key, from, to);
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
static bool moves_on(struct intent *done, struct intent *i)
{
    auto_free char *at = strdup(i->from);

    for (struct intent *j = i->prev; at && j != done; j = j->prev) {
        if (!intent_is_rename(j))
            continue;
        bool dir = j->kind == INTENT_RENAMEDIR;
        const char *came = path_below(j->to, at);
        const char *left = path_below(j->from, at);
        if (came && (dir || !*came)) {
            char *before = path_join(j->from, came);
            free(at);
            at = before;
        } else if (left && (dir || !*left)) {
            return false;
        }
    }
    return at && path_below(done->to, at);
}

/* Only entries that some rename of the list moved have a source of their own. */
static void move_sources_locked(struct cache *c, struct intent *done)
{
    assert(done);
    for (struct intent *i = done; i; i = i->next) {
        if (!intent_is_rename(i) || (i != done && !moves_on(done, i)))
            continue;
        auto_free char *at = final_path(i->next, i->to);
        struct entry *e = NULL;
        if (at && tree_find(c, at, &e))
            move_source_locked(c, e, done->from, done->to);
    }
    for (size_t i = 0; i < c->n_orphans; i++) {
        struct file *f = c->orphans[i]->file;
        char *key = f->orphan_key ? moved_path(f->orphan_key, done->from, done->to) : NULL;
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
{
    auto_free char *at = final_path(i->next, to);
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
                                 const char *new_etag)
{
    return *copied_etag && strcmp(e->etag, copied_etag) != 0 ? e->etag : new_etag;
}

static void write_keys(struct cache *c, struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd >= 0)
        (void)file_write_keys(c, n, fd);
    mutex_lock(&c->lock);
    if (fd >= 0)
        file_put_fd_locked(c, n->file, FD_READ);
    node_unref_locked(c, n);
    mutex_unlock(&c->lock);
}

/* Records in the stamp what the store has under the new key, beside the old one: whether the
 * row is gone or not, one of them holds. */
static void note_version(struct copying *k, const char *from, const char *to,
                         const char *copied_etag, const char *new_etag)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    mutex_lock(&c->lock);
    struct node *n = reader_locked(c, k->intent, from, to, &e);
    struct file *f = n ? n->file : NULL;
    bool ours = f && !e->dirty && e->etag &&
                stamp_keys_set(&f->keys, to, version_after(e, copied_etag, new_etag),
                               f->clean_mtime_ns, f->clean_size) == 0;
    if (ours)
        node_ref_locked(n);
    mutex_unlock(&c->lock);
    if (ours)
        write_keys(c, n);
}

/* The same in memory, once the row is gone. The node is returned, referenced, when its stamp
 * has a record to lose. */
static struct node *take_version_locked(struct copying *k, const char *from, const char *to,
                                        const char *copied_etag, const char *new_etag)
{
    struct entry *e = NULL;
    struct node *n = reader_locked(k->cache, k->intent, from, to, &e);

    if (!n || !e->etag)
        return NULL;
    bool replaced = strcmp(version_after(e, copied_etag, new_etag), new_etag) != 0;
    if (!replaced) {
        free(e->etag);
        e->etag = strdup(new_etag);
    }
    e->verified_ns = replaced ? 0 : clock_mono_ns();
    entry_changed_locked(k->cache, e);
    auto_free char *path = entry_path(e);
    if (path && strcmp(path, to) == 0)
        e->may_exist = true;
    struct file *f = n->file;
    if (!f || e->dirty)
        return NULL;
    free(f->etag);
    f->etag = strdup(e->etag ? e->etag : "");
    stamp_keys_remove(&f->keys, from);
    node_ref_locked(n);
    return n;
}

/* ---- one file ---- */

/* The live file under the new name is complete and changed: its upload makes the copy useless.
 */
static bool overwritten(struct cache *c, struct copying *k)
{
    struct entry *e = NULL;

    mutex_lock(&c->lock);
    struct node *n = tree_find(c, k->to, &e);
    bool yes = n && e && !n->dir && n->file && n->file->state == FILE_DIRTY && e->dirty &&
               e->src_key && strcmp(e->src_key, k->from) == 0;
    mutex_unlock(&c->lock);
    return yes;
}

/* Nothing was copied: what the store has under the new name is not the version that was
 * renamed, and the upload asks for it. */
static void forget_version_locked(struct copying *k)
{
    struct entry *e = NULL;

    if (!reader_locked(k->cache, k->intent, k->from, k->to, &e))
        return;
    free(e->etag);
    e->etag = NULL;
    e->may_exist = true;
}

/* The row turns into the removal of the old name; `remove` false: nothing is left to remove. */
static int finish_row(struct copying *k, bool remove)
{
    struct cache *c = k->cache;
    const struct journal_row row = {
        .seq = k->intent->seq, .kind = INTENT_UNLINK, .from = k->from, .etag = ""};
    int r = journal_done(c->journal, &k->intent->seq, 1, &row, remove ? 1 : 0);

    crash_point("rename-noted");
    return r;
}

static void finish_intent_locked(struct copying *k, bool remove)
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
    i->attempts = 0;
    i->error = 0;
    i->due_ns = 0;
}

/* The source is gone from the store: what is complete here is uploaded, the rest is lost there.
 */
static void source_gone_locked(struct copying *k)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    auto_free char *at = final_path(k->intent->next, k->to);
    struct node *n = at ? tree_find(c, at, &e) : NULL;

    if (!n || !e || !e->src_key)
        return;
    free(e->src_key);
    e->src_key = NULL;
    free(e->etag);
    e->etag = NULL;
    e->may_exist = true;
    if (n->file && n->file->state != FILE_PARTIAL) {
        file_mark_dirty_locked(c, n, true);
        file_queue_locked(c, n);
        return;
    }
    log_error("%s/%s was renamed here to %s, but it has been removed from the store by someone "
              "else before it could be copied",
              c->store->url, k->from, k->to);
    e->verified_ns = 0;
}

/* The version that the entry reads, heap; "" when nothing is known of it. */
static char *known_version(struct copying *k)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    mutex_lock(&c->lock);
    struct node *n = reader_locked(c, k->intent, k->from, k->to, &e);
    char *etag = strdup(n && e->etag ? e->etag : "");
    mutex_unlock(&c->lock);
    return etag;
}

/* Moves whatever has the name now: *copied becomes "?" when that is another version. */
static int copy_object(struct cache *c, struct op *op, const char *from, char **copied,
                       const char *to, struct object *obj)
{
    if (c->store->caps & STORE_RENAME) {
        int r = store_rename(c->store, op, from, to);
        if (r == 0 || r == -ENOENT) {
            int r2 = store_stat(c->store, op, to, obj);
            return r2; /* gone here and there: a repeat of a rename that had happened */
        }
        return r;
    }
    int r = store_copy(c->store, op, from, **copied ? *copied : NULL, to, NULL, NULL, obj);
    if (r != -ESTALE)
        return r;
    free(*copied);
    *copied = strdup("?");
    return *copied ? store_copy(c->store, op, from, NULL, to, NULL, NULL, obj) : -ENOMEM;
}

static int copy_file(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool native = c->store->caps & STORE_RENAME;
    bool useless = overwritten(c, k);
    auto_free char *copied = known_version(k);
    struct object obj = {0};
    int r = !copied ? -ENOMEM : useless ? 0 : copy_object(c, op, k->from, &copied, k->to, &obj);
    bool gone = r == -ENOENT;

    crash_point("rename-copied");
    if (r < 0 && !gone)
        return r;
    r = 0;
    if (!useless && !gone) {
        note_version(k, k->from, k->to, copied, obj.etag);
        r = intents_retire(c, INTENT_UNLINK, k->to, k->intent->seq);
    }
    bool remove = !gone && (useless || !native);
    struct node *n = NULL;
    if (r == 0) {
        r = finish_row(k, remove);
        mutex_lock(&c->lock);
        if (gone)
            source_gone_locked(k);
        else if (useless)
            forget_version_locked(k);
        else
            n = take_version_locked(k, k->from, k->to, copied, obj.etag);
        move_sources_locked(c, k->intent);
        finish_intent_locked(k, remove);
        mutex_unlock(&c->lock);
        if (n)
            write_keys(c, n);
    }
    object_release(&obj);
    return r;
}

/* ---- a directory ---- */

static bool removal_pending_before(struct cache *c, const struct intent *self, const char *key)
{
    for (struct intent *i = c->intents; i && i != self; i = i->next)
        if (!intent_is_rename(i) && strcmp(i->from, key) == 0)
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

static void items_release(struct copying *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->v[i].from);
        free(k->v[i].to);
        free(k->v[i].etag);
        free(k->v[i].new_etag);
    }
    k->n = 0;
}

/* Whether a name below the new directory is uploaded anew anyway. */
static bool written_anew(struct cache *c, struct copying *k, const char *to)
{
    auto_free char *at = final_path(k->intent->next, to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(c, at, &e) : NULL;

    return n && e && e->dirty && n->file && n->file->state == FILE_DIRTY;
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct copying *k = arg;
    struct cache *c = k->cache;

    if (!path_key_ok(name, STORE_KEY_MAX))
        return 0;
    struct item *it = item_add(k);
    if (!it)
        return -ENOMEM;
    *it = (struct item){.from = path_join(k->from, name),
                        .to = path_join(k->to, name),
                        .etag = strdup(obj->etag),
                        .is_dir = obj->is_prefix};
    if (!it->from || !it->to || !it->etag)
        return -ENOMEM;
    mutex_lock(&c->lock);
    bool removed = removal_pending_before(c, k->intent, it->from);
    it->skip = removed || (!it->is_dir && written_anew(c, k, it->to));
    mutex_unlock(&c->lock);
    return 0;
}

static int copy_item(struct copying *k, struct item *it, struct op *op)
{
    struct cache *c = k->cache;
    struct object obj = {0};
    int r;

    if (it->skip)
        return 0;
    if (it->is_dir) {
        r = store_stat(c->store, op, it->from, &obj);
        if (r == 0)
            r = store_mkdir(c->store, op, it->to, obj.attrs_known ? &obj.attrs : NULL);
    } else {
        r = store_copy(c->store, op, it->from, *it->etag ? it->etag : NULL, it->to, NULL, NULL,
                       &obj);
        if (r == 0)
            it->new_etag = strdup(obj.etag);
    }
    object_release(&obj);
    /* Removed by someone else since it was listed. */
    if (r == -ENOENT || r == -ESTALE) {
        it->skip = true;
        r = 0;
    }
    return r;
}

struct copy_task {
    struct task task;
    struct copying *k;
};

static void run_items(struct task *task)
{
    struct copying *k = container_of(task, struct copy_task, task)->k;
    struct cache *c = k->cache;
    struct op op;
    int r = 0;

    while (r == 0 && atomic_load(&k->result) == 0) {
        size_t i = atomic_fetch_add(&k->next, 1);
        if (i >= k->n)
            break;
        op_begin(c, &op);
        r = copy_item(k, &k->v[i], &op);
    }
    mutex_lock(&c->lock);
    int none = 0;
    if (r < 0 && atomic_compare_exchange_strong(&k->result, &none, r))
        memcpy(k->why, op.why, sizeof(k->why));
    k->running--;
    (void)pthread_cond_signal(&k->done);
    mutex_unlock(&c->lock);
}

static int copy_items(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    struct copy_task tasks[16];
    unsigned n = c->config.upload_jobs < ARRAY_SIZE(tasks) ? c->config.upload_jobs
                                                           : (unsigned)ARRAY_SIZE(tasks);

    cond_init(&k->done);
    k->running = n;
    for (unsigned i = 0; i < n; i++) {
        tasks[i] = (struct copy_task){.task.run = run_items, .k = k};
        pool_submit(c->parts, &tasks[i].task);
    }
    mutex_lock(&c->lock);
    while (k->running)
        mutex_wait(&c->lock, &k->done);
    mutex_unlock(&c->lock);
    (void)pthread_cond_destroy(&k->done);
    int r = atomic_load(&k->result);
    return r < 0 ? op_fail(op, r, "%s", k->why) : 0;
}

/* Children before their directories. */
static int by_path_down(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    return strcmp(b->from, a->from);
}

/* Rows and intentions that remove what was copied, children first. They take the place of the
 * rename in the order, so that later intentions see the same store. */
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
        plan[n] = intent_new(++seq, dir ? INTENT_RMDIR : INTENT_UNLINK,
                             last ? k->from : k->v[i].from, NULL, 0, last ? "" : k->v[i].etag);
        if (!plan[n])
            return -ENOMEM;
        n++;
    }
    *ret_n = n;
    return 0;
}

static int note_copied(struct copying *k, struct intent **plan, size_t n)
{
    struct journal_row *rows = calloc(n ? n : 1, sizeof(*rows));

    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].new_etag)
            note_version(k, k->v[i].from, k->v[i].to, k->v[i].etag, k->v[i].new_etag);
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
        if (!it->new_etag)
            continue;
        mutex_lock(&c->lock);
        struct node *changed = take_version_locked(k, it->from, it->to, it->etag, it->new_etag);
        mutex_unlock(&c->lock);
        if (changed)
            write_keys(c, changed);
    }
    mutex_lock(&c->lock);
    move_sources_locked(c, k->intent);
    intent_remove_locked(c, k->intent);
    for (size_t i = 0; i < n; i++)
        intent_add_locked(c, plan[i]);
    mutex_unlock(&c->lock);
}

/* A directory's own marker is not part of the listing below it. */
static int copy_marker(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    struct object obj = {0};
    int r = store_stat(c->store, op, k->from, &obj);

    if (r == 0 && obj.is_prefix && obj.has_marker)
        r = store_mkdir(c->store, op, k->to, obj.attrs_known ? &obj.attrs : NULL);
    object_release(&obj);
    return r == -ENOENT ? 0 : r;
}

static int copy_tree(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    size_t n = 0;
    int r = store_list(c->store, op, k->from, LIST_RECURSIVE, collect, k);

    if (r == -ENOENT)
        r = 0;
    if (r == 0)
        r = copy_marker(k, op);
    if (r == 0)
        r = copy_items(k, op);
    crash_point("renamedir-copied");
    if (r < 0)
        return r;
    for (size_t i = 0; i < k->n && r == 0; i++)
        if (!k->v[i].skip)
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
    if (r == 0)
        take_over(k, plan, n);
    for (size_t i = 0; r < 0 && i < k->n + 1; i++)
        intent_free(plan[i]);
    free(plan);
    return r;
}

static bool removals_pending_below(struct cache *c, const char *a, const char *b)
{
    for (struct intent *i = c->intents; i; i = i->next)
        if (!intent_is_rename(i) && (path_below(a, i->from) || path_below(b, i->from)))
            return true;
    return false;
}

/* Files of the mirror whose stamps name a key below the directory that moves. */
static int collect_stamped(void *arg, struct node *n)
{
    struct copying *k = arg;

    for (struct entry *e = n->file ? n->links : NULL; e; e = e->next_link) {
        auto_free char *key = e->dirty ? NULL : entry_key(e);
        char *to = key && e->etag ? moved_path(key, k->from, k->to) : NULL;
        struct item *it = to ? item_add(k) : NULL;
        if (!it) {
            free(to);
            continue;
        }
        it->from = take_ptr(key);
        it->to = to;
        it->etag = strdup(e->etag);
        it->new_etag = strdup(e->etag);
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

    mutex_lock(&c->lock);
    bool unsafe = removals_pending_below(c, k->from, k->to);
    auto_free char *at = final_path(k->intent->next, k->to);
    struct node *dir = at && !unsafe ? tree_find(c, at, NULL) : NULL;
    int cr = dir ? tree_each(dir, collect_stamped, k) : 0;
    mutex_unlock(&c->lock);
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
    if (r == 0)
        r = note_copied(k, NULL, 0);
    if (r == 0)
        take_over(k, NULL, 0);
    return r;
}

static int copy_dir(struct copying *k, struct op *op)
{
    int r = k->cache->store->caps & STORE_RENAME ? rename_tree(k, op) : -EOPNOTSUPP;

    if (r != -EOPNOTSUPP)
        return r;
    items_release(k);
    return copy_tree(k, op);
}

/* ---- running ---- */

static void copying_free(struct copying *k)
{
    items_release(k);
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

    op_begin(c, &op);
    int r = k->dir ? copy_dir(k, &op) : copy_file(k, &op);
    mutex_lock(&c->lock);
    c->copies_running--;
    if (r < 0) {
        struct intent *i = k->intent;
        i->running = false;
        i->attempts++;
        i->error = r;
        free(i->error_text);
        i->error_text = strdup(op.why);
        i->due_ns = clock_mono_ns() + retry_delay_ns(i->attempts);
    }
    progress_locked(c);
    cache_check_locked(c);
    mutex_unlock(&c->lock);
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
    c->copies_running++;
    pool_submit(c->uploaders, &k->task);
}
