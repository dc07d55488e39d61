/* Names from the store: listings and their merge into the tree, questions about single names
 * and attributes, lookup and readdir.
 *
 * What the store says never overrides what was done here: an entry that is ours (dirty,
 * renamed, open for writing) or that changed after the question was asked is left alone, and a
 * key that an intention is about to remove stays hidden. */
#include "cache/node.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

/* A lookup in a directory of more names than this asks for the name alone. */
#define PAGE_NAMES 1000
/* How many siblings' attributes are asked ahead for someone who stats one after the other. */
#define STAT_AHEAD 64
/* A listing answers those who waited for it, however short the time that it is believed. */
#define BELIEF_MIN_NS (200 * NS_PER_MS)
/* How long an answer from before an outage is believed while the store can't be reached. */
#define OUTAGE_NS (5 * NS_PER_SEC)
/* How long one who could be answered from memory waits for the store. */
#define OUTAGE_WAIT_NS (2 * NS_PER_SEC)

/* ---- merging ---- */

static bool anything_ours(struct node *n)
{
    struct entry *e, *next;

    if (!n->dir)
        return node_is_ours(n);
    if (n->dir->new_here || n->dir->uploading || n->dir->queued ||
        (n->flags & NODE_ATTR_DIRTY) || (n->links && n->links->src_key))
        return true;
    HASH_ITER(hh, n->dir->children, e, next)
    {
        if (anything_ours(e->node))
            return true;
    }
    return false;
}

static int gone_file(struct cache *c, struct entry *e)
{
    struct node *n = e->node;
    auto_free char *path = entry_path(e);
    int r = path ? file_discard(c, n) : -ENOMEM;

    if (r == -EBUSY)
        r = n->links->next_link ? mirror_unlink(&c->mirror, path)
                                : file_orphan(c, n, path, false);
    return r;
}

static int gone_dir(struct cache *c, struct entry *e)
{
    struct entry *child, *next;
    auto_free char *path = entry_path(e);
    int r = path ? 0 : -ENOMEM;

    HASH_ITER(hh, e->node->dir->children, child, next)
    {
        if (r == 0)
            r = entry_gone(c, child);
    }
    if (r == 0)
        r = mirror_rmdir(&c->mirror, path);
    return r == -ENOENT ? 0 : r;
}

int entry_gone(struct cache *c, struct entry *e)
{
    struct node *n = e->node;

    mutex_lock(&c->lock);
    bool ours = anything_ours(n);
    mutex_unlock(&c->lock);
    if (ours)
        return -EBUSY;
    int r = n->dir ? gone_dir(c, e) : n->file ? gone_file(c, e) : 0;
    if (r < 0)
        return r;
    mutex_lock(&c->lock);
    notice_locked(c, e->parent, e->name);
    if (!n->dir)
        n->nlink--;
    entry_remove_locked(c, e);
    mutex_unlock(&c->lock);
    return 0;
}

static int add_entry(struct cache *c, struct node *dir, const char *name, const char *key,
                     const struct object *obj, int64_t asked_ns)
{
    int r = 0;

    mutex_lock(&c->lock);
    struct node *n = node_new(c, obj->is_prefix ? S_IFDIR : S_IFREG);
    struct entry *e = n ? entry_add_locked(c, dir, name, n) : NULL;
    if (e) {
        n->ino = ino_of_key(c, key);
        n->flags |= NODE_DEFAULT_INO;
        node_apply_attrs(c, n, obj);
        e->etag = obj->is_prefix ? NULL : strdup(obj->etag);
        e->verified_ns = asked_ns;
        e->may_exist = true;
        if (n->dir)
            n->dir->has_marker = obj->has_marker;
    } else {
        r = -ENOMEM;
        if (n)
            node_collect_locked(c, n);
    }
    mutex_unlock(&c->lock);
    return r;
}

/* The store's object under a name that is known here; 1 when it stays hidden. */
static int update_entry(struct cache *c, struct entry *e, const struct object *obj,
                        int64_t asked_ns)
{
    struct node *n = e->node;

    mutex_lock(&c->lock);
    bool newer = e->changed_ns > asked_ns;
    bool ours = n->dir ? false : node_is_ours(n);
    bool same_kind = obj->is_prefix == (n->dir != NULL);
    bool same = n->dir || (e->etag && strcmp(e->etag, obj->etag) == 0);
    if (e->verified_ns < asked_ns)
        e->verified_ns = asked_ns;
    if (!newer && same_kind && same && !ours && obj->attrs_known && !n->file &&
        !(n->flags & NODE_ATTR_DIRTY))
        node_apply_attrs(c, n, obj);
    if (!newer && n->dir && same_kind && obj->has_marker)
        n->dir->has_marker = true;
    mutex_unlock(&c->lock);
    if (newer || ours)
        return ours && !same_kind;
    if (!same_kind) {
        /* "a" beside "a/": the directory is shown, since the object hides nothing else. */
        if (n->dir)
            return 1;
        struct node *dir = e->parent;
        auto_free char *name = strdup(e->name);
        mutex_lock(&c->lock);
        auto_free char *key = entry_key(e);
        mutex_unlock(&c->lock);
        int r = name && key ? entry_gone(c, e) : -ENOMEM;
        if (r == 0)
            r = add_entry(c, dir, name, key, obj, asked_ns);
        return r < 0 ? r : 1;
    }
    return same ? 0 : node_replaced(c, e, obj);
}

/* 1 when there is something of that name that is not shown. */
static int merge_one(struct cache *c, struct node *dir, const char *name,
                     const struct object *obj, int64_t asked_ns)
{
    auto_free char *at = node_path(dir);
    auto_free char *path = at ? path_join(at, name) : NULL;
    struct entry *e = entry_find(dir, name);

    mutex_lock(&c->lock); /* sources move with the end of a rename */
    auto_free char *key = child_key(dir, name);
    /* What has the name here, if anything, is not what was listed: the store has it elsewhere,
     * or does not have it yet. */
    bool other =
        key && path && (ghost_hides(c, key, path, asked_ns) || (e && e->src_key != NULL));
    if (other && e && e->verified_ns < asked_ns)
        e->verified_ns = asked_ns;
    mutex_unlock(&c->lock);
    if (!key || !path)
        return -ENOMEM;
    if (!path_name_shown(at, name, strlen(name)))
        return 1;
    if (other)
        return 0;
    return e ? update_entry(c, e, obj, asked_ns) : add_entry(c, dir, name, key, obj, asked_ns);
}

/* What a whole listing did not show is gone. */
static void drop_unlisted(struct cache *c, struct node *dir, int64_t asked_ns)
{
    struct entry *e, *next;

    HASH_ITER(hh, dir->dir->children, e, next)
    {
        if (e->verified_ns < asked_ns && e->changed_ns < asked_ns)
            (void)entry_gone(c, e);
    }
}

/* ---- listings ---- */

struct listed {
    char *name;
    struct object obj;
};

struct listing {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    bool whole;
    int64_t asked_ns;
    struct op *op;
    int64_t patience_ns; /* until its next name */
    struct listed *v;
    size_t n, cap;
};

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct listing *l = arg;

    l->op->deadline_ns = clock_mono_ns() + l->patience_ns;
    if (!l->whole && l->n >= PAGE_NAMES)
        return 1;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct listed *v = reallocarray(l->v, cap, sizeof(*v));
        if (!v)
            return -ENOMEM;
        l->v = v;
        l->cap = cap;
    }
    struct listed *item = &l->v[l->n];
    item->obj = *obj;
    item->name = strdup(name);
    if (!item->name || attrs_copy(&item->obj.attrs, &obj->attrs) < 0) {
        free(item->name);
        return -ENOMEM;
    }
    l->n++;
    return 0;
}

/* While the store itself moves a directory it can't be told whether an answer is from before or
 * after. */
static bool being_moved(struct cache *c, const char *key)
{
    mutex_lock(&c->lock);
    bool moving = (c->store->caps & STORE_RENAME) && rename_runs_at_locked(c, key);
    mutex_unlock(&c->lock);
    return moving;
}

static void merge_listing(struct listing *l, const char *key, uint64_t hidden, bool cut)
{
    struct cache *c = l->cache;
    struct node *dir = l->dir;
    bool failed = false;

    ns_write(c);
    mutex_lock(&c->lock);
    auto_free char *key_now = node_key(dir);
    mutex_unlock(&c->lock);
    /* Moved meanwhile: this is not its listing; whoever waits asks again. */
    if (!key_now || strcmp(key, key_now) != 0 || being_moved(c, key)) {
        ns_done(c);
        return;
    }
    if (!(dir->flags & NODE_LOST)) {
        for (size_t i = 0; i < l->n; i++) {
            int r = merge_one(c, dir, l->v[i].name, &l->v[i].obj, l->asked_ns);
            hidden += r > 0;
            failed = failed || r < 0;
        }
        if (!cut)
            drop_unlisted(c, dir, l->asked_ns);
    }
    mutex_lock(&c->lock);
    dir->dir->big = cut || l->n > PAGE_NAMES;
    dir->dir->listed_ns = cut ? 0 : l->asked_ns;
    c->hidden_names += hidden - dir->dir->hidden_names;
    dir->dir->hidden_names = hidden;
    dir->dir->told_ns = clock_mono_ns();
    mutex_unlock(&c->lock);
    ns_done(c);
    if (failed)
        log_warn("some names of a listing could not be taken over");
}

/* While the store can't be reached, what was known goes on. */
static int excuse_listing_locked(struct node *dir, int64_t timeout_ns, int r)
{
    if (r == -EINTR || !dir->dir->listed_ns)
        return r;
    dir->dir->told_ns = clock_mono_ns() - timeout_ns + OUTAGE_NS;
    return 0;
}

/* How long a listing is believed from its end: it may have taken longer than that itself. */
static int64_t belief_ns(struct cache *c)
{
    int64_t timeout_ns = c->config.list_timeout_ns;

    return timeout_ns > BELIEF_MIN_NS ? timeout_ns : BELIEF_MIN_NS;
}

static void run_listing(struct task *task)
{
    struct listing *l = container_of(task, struct listing, task);
    struct cache *c = l->cache;
    struct op op;

    mutex_lock(&c->lock);
    auto_free char *key = node_key(l->dir);
    bool known = l->dir->dir->listed_ns != 0;
    mutex_unlock(&c->lock);
    /* What was listed before can be shown: don't let `ls` wait long for a store that is down.
     */
    l->patience_ns = known && c->config.ask_timeout_ns > OUTAGE_WAIT_NS
                         ? OUTAGE_WAIT_NS
                         : c->config.ask_timeout_ns;
    op_init(&op, l->patience_ns);
    op.cancelled = &c->cancelled;
    l->op = &op;
    int r = key ? store_list(c->store, &op, key, 0, collect, l) : -ENOENT;
    if (r >= 0 || r == -ENOENT)
        merge_listing(l, key ? key : "", op.hidden_names, r == 1);
    else
        log_warn("listing failed: %s", op.why);
    mutex_lock(&c->lock);
    if (r == 1 || r == -ENOENT)
        r = 0;
    if (r < 0)
        r = excuse_listing_locked(l->dir, belief_ns(c), r);
    l->dir->dir->listing = false;
    waitq_wake_locked(c, &l->dir->dir->waiters, r);
    node_unref_locked(c, l->dir);
    mutex_unlock(&c->lock);
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        object_release(&l->v[i].obj);
    }
    free(l->v);
    free(l);
}

static bool listed_lately(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    return d->local_only || (d->listed_ns && clock_mono_ns() - d->told_ns < belief_ns(c));
}

int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
{
    struct dir *d = dir->dir;

    mutex_assert_held(&c->lock);
    if (dir->flags & NODE_LOST)
        return -ENOENT;
    if (listed_lately(c, dir) || (!whole && d->big))
        return 0;
    if (!d->listing) {
        struct listing *l = calloc(1, sizeof(*l));
        if (!l)
            return -ENOMEM;
        l->task.run = run_listing;
        l->cache = c;
        l->dir = dir;
        l->whole = whole;
        l->asked_ns = clock_mono_ns();
        node_ref_locked(dir);
        d->listing = true;
        pool_submit(c->askers, &l->task);
    }
    return waitq_park_locked(c, &d->waiters, w);
}

/* ---- one name ---- */

/* A name of a large directory, asked alone; all who want it meanwhile wait for the same answer.
 */
struct query {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    struct query *next;
    struct waitq waiters;
    int64_t asked_ns;
    char name[];
};

static void run_query(struct task *task)
{
    struct query *q = container_of(task, struct query, task);
    struct cache *c = q->cache;
    struct object obj = {0};
    struct op op;

    op_init(&op, c->config.ask_timeout_ns);
    op.cancelled = &c->cancelled;
    mutex_lock(&c->lock);
    auto_free char *key = child_key(q->dir, q->name);
    mutex_unlock(&c->lock);
    int r = key ? store_stat(c->store, &op, key, &obj) : -ENOENT;
    ns_write(c);
    struct entry *e = entry_find(q->dir, q->name);
    bool again = r == -ENOENT && key && being_moved(c, key);
    if (again) {
        r = 0;
    } else if (r == 0) {
        r = merge_one(c, q->dir, q->name, &obj, q->asked_ns);
        object_release(&obj);
    } else if (r == -ENOENT && e && e->changed_ns < q->asked_ns) {
        (void)entry_gone(c, e);
    }
    /* Hidden, or gone: an answer, not a reason to ask again. */
    if (r >= 0 && !again && !entry_find(q->dir, q->name))
        r = -ENOENT;
    if (r > 0)
        r = 0;
    if (r == -ENOENT && entry_find(q->dir, q->name))
        r = 0;
    e = entry_find(q->dir, q->name);
    if (r < 0 && r != -ENOENT && r != -EINTR && e) {
        mutex_lock(&c->lock);
        e->verified_ns = clock_mono_ns() - c->config.list_timeout_ns + OUTAGE_NS;
        mutex_unlock(&c->lock);
        r = 0; /* known from before the outage */
    }
    ns_done(c);
    if (r < 0 && r != -ENOENT)
        log_warn("lookup failed: %s", op.why);
    mutex_lock(&c->lock);
    LL_DELETE(q->dir->dir->queries, q);
    waitq_wake_locked(c, &q->waiters, r);
    node_unref_locked(c, q->dir);
    mutex_unlock(&c->lock);
    free(q);
}

static int ask_name_locked(struct cache *c, struct node *dir, const char *name,
                           struct waiter *w)
{
    struct query *q;

    LL_FOREACH(dir->dir->queries, q)
    {
        if (strcmp(q->name, name) == 0)
            return waitq_park_locked(c, &q->waiters, w);
    }
    size_t len = strlen(name);
    q = calloc(1, sizeof(*q) + len + 1);
    if (!q)
        return -ENOMEM;
    memcpy(q->name, name, len + 1);
    q->task.run = run_query;
    q->cache = c;
    q->dir = dir;
    q->asked_ns = clock_mono_ns();
    waitq_init(&q->waiters);
    node_ref_locked(dir);
    LL_PREPEND(dir->dir->queries, q);
    pool_submit(c->askers, &q->task);
    return waitq_park_locked(c, &q->waiters, w);
}

/* ---- attributes and versions ---- */

struct asking {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
    int64_t asked_ns;
};

/* What the store said of a node that still has the name it was asked under. */
static void take_answer(struct asking *a, int r, const struct object *obj, const char *key)
{
    struct cache *c = a->cache;
    struct node *n = a->node;

    ns_write(c);
    struct entry *e = n->links;
    bool moving = being_moved(c, key);
    mutex_lock(&c->lock);
    auto_free char *key_now = e ? entry_key(e) : NULL;
    bool current = key_now && !moving && strcmp(key, key_now) == 0 && !node_is_ours(n) &&
                   e->changed_ns < a->asked_ns;
    if (e && r == 0 && current && e->etag && strcmp(e->etag, obj->etag) == 0 && !n->dir) {
        if (!n->file && obj->attrs_known)
            node_apply_attrs(c, n, obj);
        n->flags |= NODE_ATTRS_KNOWN;
        e->verified_ns = a->asked_ns;
        current = false; /* nothing more to do */
    }
    mutex_unlock(&c->lock);
    if (current && r == 0)
        (void)update_entry(c, e, obj, a->asked_ns);
    else if (current && r == -ENOENT)
        (void)entry_gone(c, e);
    ns_done(c);
}

static void run_asking(struct task *task)
{
    struct asking *a = container_of(task, struct asking, task);
    struct cache *c = a->cache;
    struct node *n = a->node;
    struct object obj = {0};
    struct op op;

    mutex_lock(&c->lock);
    auto_free char *key = node_key(n);
    bool readable = n->file && n->file->state != FILE_PARTIAL;
    mutex_unlock(&c->lock);
    /* A complete file can be served without the store: don't let its reader wait long. */
    op_init(&op, readable ? OUTAGE_WAIT_NS : c->config.ask_timeout_ns);
    op.cancelled = &c->cancelled;
    int r = key ? store_stat(c->store, &op, key, &obj) : -ENOENT;
    if (key && (r == 0 || r == -ENOENT))
        take_answer(a, r, &obj, key);
    if (r == 0)
        object_release(&obj);
    if (r < 0 && r != -ENOENT)
        log_warn("%s", op.why);
    mutex_lock(&c->lock);
    if (r == -ENOENT)
        r = 0; /* asked again, the caller sees that the name is gone */
    if (r < 0 && r != -EINTR && readable && n->links) {
        n->links->verified_ns = clock_mono_ns() - c->config.attr_timeout_ns + OUTAGE_NS;
        r = 0;
    }
    n->flags &= ~(unsigned)NODE_STATTING;
    waitq_wake_locked(c, &n->stat_waiters, r);
    node_unref_locked(c, n);
    mutex_unlock(&c->lock);
    free(a);
}

static int ask_locked(struct cache *c, struct node *n)
{
    if (n->flags & NODE_STATTING)
        return 0;
    struct asking *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->task.run = run_asking;
    a->cache = c;
    a->node = n;
    a->asked_ns = clock_mono_ns();
    n->flags |= NODE_STATTING;
    node_ref_locked(n);
    pool_submit(c->askers, &a->task);
    return 0;
}

static bool attrs_missing(struct node *n)
{
    return !n->is_root && !(n->flags & NODE_ATTRS_KNOWN) && !n->dir && !n->file && n->links &&
           n->links->etag;
}

/* Someone stats the names of a directory one after the other: ask for the next ones at once. */
static void stat_ahead_locked(struct cache *c, struct node *n)
{
    struct node *dir = n->links->parent;

    if (++dir->dir->stat_misses < 2)
        return;
    struct entry *e = n->links->hh.next;
    for (int i = 0; e && i < STAT_AHEAD; e = e->hh.next, i++)
        if (attrs_missing(e->node))
            (void)ask_locked(c, e->node);
}

int attrs_need_locked(struct cache *c, struct node *n, struct waiter *w)
{
    mutex_assert_held(&c->lock);
    if (!attrs_missing(n))
        return 0;
    int r = ask_locked(c, n);
    if (r < 0)
        return r;
    stat_ahead_locked(c, n);
    return waitq_park_locked(c, &n->stat_waiters, w);
}

int version_need_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct entry *e = n->links;

    mutex_assert_held(&c->lock);
    if (!e || node_is_ours(n) || !e->etag)
        return 0;
    /* A directory that is being moved at the store: its children are where they were. */
    for (struct node *up = e->parent; up->links; up = up->links->parent)
        if (up->links->src_key)
            return 0;
    if (e->verified_ns && clock_mono_ns() - e->verified_ns < c->config.attr_timeout_ns)
        return 0;
    int r = ask_locked(c, n);
    return r < 0 ? r : waitq_park_locked(c, &n->stat_waiters, w);
}

/* ---- lookup ---- */

static bool entry_believed(struct cache *c, struct entry *e)
{
    return node_is_ours(e->node) ||
           e->changed_ns > clock_mono_ns() - c->config.list_timeout_ns ||
           (e->verified_ns && clock_mono_ns() - e->verified_ns < c->config.list_timeout_ns);
}

int cache_lookup(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                 struct node **ret, struct stat *st)
{
    int r = 0;

    if (!parent->dir)
        return -ENOTDIR;
    if (strlen(name) > PATH_NAME_MAX)
        return -ENAMETOOLONG;
    mutex_lock(&c->lock);
    struct entry *e = entry_find(parent, name);
    if (!e || !entry_believed(c, e))
        r = dir_need_locked(c, parent, false, w);
    if (r == 0)
        e = entry_find(parent, name);
    if (r == 0 && (!e || !entry_believed(c, e)) && !listed_lately(c, parent))
        r = ask_name_locked(c, parent, name, w);
    if (r == 0)
        r = e ? attrs_need_locked(c, e->node, w) : -ENOENT;
    if (r == 0) {
        node_look_locked(c, e->node);
        e->node->nlookup++;
        node_stat(e->node, st);
        *ret = e->node;
    }
    mutex_unlock(&c->lock);
    return r;
}

void cache_forget(struct cache *c, struct node *node, uint64_t nlookup)
{
    mutex_lock(&c->lock);
    if (!node->is_root) {
        node->nlookup -= nlookup < node->nlookup ? nlookup : node->nlookup;
        node_collect_locked(c, node);
    }
    mutex_unlock(&c->lock);
}

/* ---- reading directories ---- */

struct shown {
    char *name;
    struct node *node; /* referenced */
};

struct dirhandle {
    struct node *dir; /* referenced */
    struct shown *v;
    size_t n;
    bool read; /* something was read: offset 0 means rewinddir() */
};

static void drop_snapshot_locked(struct cache *c, struct dirhandle *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->v[i].name);
        node_unref_locked(c, d->v[i].node);
    }
    free(d->v);
    d->v = NULL;
    d->n = 0;
}

static int take_snapshot_locked(struct cache *c, struct dirhandle *d)
{
    struct entry *e, *next;
    size_t n = HASH_COUNT(d->dir->dir->children);

    drop_snapshot_locked(c, d);
    d->v = calloc(n ? n : 1, sizeof(*d->v));
    if (!d->v)
        return -ENOMEM;
    HASH_ITER(hh, d->dir->dir->children, e, next)
    {
        d->v[d->n].name = strdup(e->name);
        if (!d->v[d->n].name)
            return -ENOMEM;
        d->v[d->n].node = e->node;
        node_ref_locked(e->node);
        d->n++;
    }
    return 0;
}

/* An empty object may be a symlink or a fifo: only its attributes tell. */
static int types_need_locked(struct cache *c, struct node *dir, struct waiter *w)
{
    struct entry *e, *next;
    struct node *first = NULL;

    HASH_ITER(hh, dir->dir->children, e, next)
    {
        struct node *n = e->node;
        if (n->size > 0 || !attrs_missing(n))
            continue;
        int r = ask_locked(c, n);
        if (r < 0)
            return r;
        first = first ? first : n;
    }
    return first ? waitq_park_locked(c, &first->stat_waiters, w) : 0;
}

static int listing_need_locked(struct cache *c, struct node *dir, struct waiter *w)
{
    int r = dir_need_locked(c, dir, true, w);

    return r == 0 ? types_need_locked(c, dir, w) : r;
}

int cache_opendir(struct cache *c, struct node *dir, struct waiter *w, struct dirhandle **ret)
{
    if (!dir->dir)
        return -ENOTDIR;
    struct dirhandle *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    mutex_lock(&c->lock);
    int r = dir->flags & NODE_LOST ? 0 : listing_need_locked(c, dir, w);
    if (r == 0) {
        d->dir = dir;
        r = take_snapshot_locked(c, d);
    }
    if (r == 0) {
        node_ref_locked(dir);
        *ret = d;
    } else {
        drop_snapshot_locked(c, d);
        free(d);
    }
    mutex_unlock(&c->lock);
    return r;
}

static int show(struct dirhandle *d, size_t i, bool plus, cache_visit visit, void *arg)
{
    struct node *parent = d->dir->links ? d->dir->links->parent : d->dir;
    struct node *n = i == 0 ? d->dir : i == 1 ? parent : d->v[i - 2].node;
    const char *name = i == 0 ? "." : i == 1 ? ".." : d->v[i - 2].name;
    bool known = plus && i >= 2 && n->links && !attrs_missing(n);
    struct stat st;

    node_stat(n, &st);
    int r = visit(arg, name, known ? n : NULL, &st, i + 1);
    if (r == 0 && known)
        n->nlookup++;
    return r;
}

int cache_readdir(struct cache *c, struct dirhandle *d, uint64_t off, bool plus,
                  struct waiter *w, cache_visit visit, void *arg)
{
    int r = 0;

    mutex_lock(&c->lock);
    if (off == 0 && d->read && !(d->dir->flags & NODE_LOST)) {
        r = listing_need_locked(c, d->dir, w);
        if (r == 0)
            r = take_snapshot_locked(c, d);
    }
    if (r == 0) {
        d->read = true;
        for (uint64_t i = off; i < d->n + 2 && r == 0; i++)
            r = show(d, (size_t)i, plus, visit, arg);
        r = 0;
    }
    mutex_unlock(&c->lock);
    return r;
}

void cache_releasedir(struct cache *c, struct dirhandle *d)
{
    mutex_lock(&c->lock);
    drop_snapshot_locked(c, d);
    node_unref_locked(c, d->dir);
    mutex_unlock(&c->lock);
    free(d);
}
