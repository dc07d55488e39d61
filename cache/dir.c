/* Names from the store: listings and their merge into the tree, questions about single names
 * and attributes, lookup and readdir.
 *
 * What the store says never overrides what was done here: an entry that is ours (dirty,
 * renamed, open for writing) or that changed after the question was asked is left alone, and a
 * key that an intention is about to remove stays hidden. */
#include "cache/listing.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

/* A lookup in a directory of more names than this asks for the name alone. */
#define PAGE_NAMES 1000
/* How many siblings' attributes are asked ahead for someone who stats one after the other: at
 * first, and when he goes on. */
#define STAT_AHEAD     64
#define STAT_AHEAD_MAX 1024
/* A listing answers those who waited for it, however short the time that it is believed. */
#define BELIEF_MIN_NS (200 * NS_PER_MS)
/* How long an answer from before an outage is believed while the store can't be reached. */
#define OUTAGE_NS (5 * NS_PER_SEC)
/* How long one who could be answered from memory waits for the store. */
#define OUTAGE_WAIT_NS (2 * NS_PER_SEC)
/* Listings under way may take so many times `list_memory`. The first `list_memory` of each is
 * not refused: a directory without end hurts no others. */
#define LISTED_TIMES 16
/* How often a listing looks whether anybody waits for it still. */
#define LEFT_NS (100 * NS_PER_MS)

/* How long an answer is believed from its end: it may have taken longer than that itself, and
 * whoever asked must come to see it. */
static int64_t listing_belief_in(int64_t timeout_ns)
{
    return timeout_ns > BELIEF_MIN_NS ? timeout_ns : BELIEF_MIN_NS;
}

static int64_t listing_belief_ns(struct cache *c)
{
    return listing_belief_in(c->config.list_timeout_ns);
}

/* ---- merging ---- */

static bool anything_ours(struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (!n->dir)
        return node_is_ours(n);
    if (n->dir->new_here || n->dir->uploading || n->dir->queued ||
        (n->flags & NODE_ATTR_DIRTY) || (n->links && n->links->src_key))
        return true;
    CHILDREN_FOREACH(n->dir->children, e, at)
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

    if (n->links->next_link)
        return file_leave_name(c, e);
    int r = path ? file_discard(c, n) : -ENOMEM;
    return r == -EBUSY ? file_orphan(c, n, path) : r;
}

static int gone_dir(struct cache *c, struct entry *e)
{
    struct entry *child;
    size_t at;
    auto_free char *path = entry_path(e);
    int r = path ? 0 : -ENOMEM;

    CHILDREN_FOREACH(e->node->dir->children, child, at)
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

    cache_lock(c);
    bool ours = anything_ours(n);
    cache_unlock(c);
    if (ours)
        return -EBUSY;
    int r = n->dir ? gone_dir(c, e) : n->file ? gone_file(c, e) : 0;
    if (r < 0)
        return r;
    cache_lock(c);
    notice_locked(c, e->parent, e->name);
    if (!n->dir) {
        n->flags |= NODE_REPLACED;
        n->nlink--;
    }
    entry_remove_locked(c, e);
    cache_unlock(c);
    return 0;
}

static int add_entry(struct cache *c, struct node *dir, const char *name, const char *key,
                     const struct object *obj, int64_t asked_ns)
{
    int r = 0;

    cache_lock(c);
    struct node *n = node_new(c, obj->is_prefix ? S_IFDIR : S_IFREG);
    struct entry *e = n ? entry_add_locked(c, dir, name, n) : NULL;
    if (e) {
        absent_forget_locked(c, dir, name);
        dir->dir->local_only = false;
        n->ino = ino_of_found_locked(c, key);
        n->flags |= NODE_DEFAULT_INO;
        node_apply_attrs(c, n, obj);
        etag_set(&e->etag, obj->is_prefix ? NULL : obj->etag);
        e->verified_ns = asked_ns;
        e->may_exist = true;
        if (n->dir)
            n->dir->has_marker = obj->has_marker;
        else if (obj->attrs_known)
            entry_told(e, obj);
    } else {
        r = -ENOMEM;
        if (n)
            node_collect_locked(c, n);
    }
    cache_unlock(c);
    return r;
}

/* Whether the object's metadata say what is shown here of a file with content in the cache. */
static bool listing_attrs_agree(struct node *n, const struct object *obj) REQUIRES(cache_mutex)
{
    const struct attrs *a = &obj->attrs;
    const char *xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? a->xattrs : "";
    auto_free char *followed = NULL;

    if (acl_follow_mode(xattrs, a->has & ATTR_MODE ? a->mode : n->mode, &followed) == 0 &&
        followed)
        xattrs = followed;
    return (!(a->has & ATTR_MODE) || (a->mode & 07777) == (n->mode & 07777)) &&
           (!(a->has & ATTR_OWNER) || (a->uid == n->uid && a->gid == n->gid)) &&
           (!(a->has & ATTR_MTIME) || a->mtime_ns == n->mtime_ns) &&
           (!(a->has & ATTR_TARGET) || !n->target || strcmp(a->target, n->target) == 0) &&
           strcmp(xattrs, n->xattrs ? n->xattrs : "") == 0;
}

/* The store has the version after all that an earlier answer to a read denied. */
static void listing_file_is_there_locked(struct file *f, const char *etag) REQUIRES(cache_mutex)
{
    if (!f || !f->gone || !f->etag || strcmp(f->etag, etag) != 0)
        return;
    f->gone = false;
    f->failed.err = 0;
}

/* The store says what an index had told. */
static void attrs_hear_locked(struct cache *c, struct node *n, const struct object *obj)
    REQUIRES(cache_mutex)
{
    const struct attrs *a = &obj->attrs;

    if (!(n->flags & NODE_ATTRS_HEARSAY) || !obj->attrs_known || obj->attrs_hearsay)
        return;
    n->flags &= ~(unsigned)NODE_ATTRS_HEARSAY;
    if (!n->file || (n->flags & NODE_ATTR_DIRTY))
        return; /* all is taken, or ours */
    node_default_attrs(c, n);
    if (a->has & ATTR_MODE)
        n->mode = (n->mode & S_IFMT) | (a->mode & 07777);
    if (a->has & ATTR_OWNER) {
        n->uid = a->uid;
        n->gid = a->gid;
    }
    free(n->xattrs);
    n->xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? strdup(a->xattrs) : NULL;
    node_acl_follow(n);
}

/* The version that is known was seen again. Its attributes may be others than those that were
 * told with it, since they are no part of an etag. */
static void seen_again_locked(struct cache *c, struct entry *e, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    /* It may be there by what is below it, while its own attributes are owed. */
    if (n->dir && node_is_ours(n))
        return;
    attrs_hear_locked(c, n, obj);
    if (obj->attrs_known && !n->file && !(n->flags & NODE_ATTR_DIRTY)) {
        node_apply_attrs(c, n, obj);
        if (!n->dir)
            entry_told(e, obj);
    } else if (n->dir || (c->store->caps & STORE_LIST_ATTRS)) {
        return;
    } else if (obj->attrs_known && listing_attrs_agree(n, obj)) {
        n->attrs_has = obj->attrs.has;
        node_attrs_are_known(n);
        entry_told(e, obj);
    } else if (obj->attrs_known || entry_moved(e, obj)) {
        entry_distrust(e);
        n->flags |= NODE_ATTRS_OLD;
    } else {
        entry_seen(e, obj);
    }
}

/* The store's object under a name that is known here; 1 when it stays hidden. */
static int listing_update_entry(struct cache *c, struct entry *e, const struct object *obj,
                                int64_t asked_ns)
{
    struct node *n = e->node;

    cache_lock(c);
    bool newer = e->changed_ns > asked_ns;
    bool ours = n->dir ? false : node_is_ours(n);
    bool same_kind = obj->is_prefix == (n->dir != NULL);
    bool same = n->dir || etag_is(&e->etag, obj->etag);
    if (e->verified_ns < asked_ns)
        e->verified_ns = asked_ns;
    if (!newer && same_kind && same && !ours)
        seen_again_locked(c, e, obj);
    if (!newer && !n->dir && same)
        listing_file_is_there_locked(n->file, obj->etag);
    if (!newer && n->dir && same_kind && obj->has_marker)
        n->dir->has_marker = true;
    cache_unlock(c);
    if (newer || ours)
        return ours && !same_kind;
    if (!same_kind) {
        /* "a" beside "a/": the directory is shown, since the object hides nothing else. */
        if (n->dir)
            return 1;
        struct node *dir = e->parent;
        auto_free char *name = strdup(e->name);
        cache_lock(c);
        auto_free char *key = entry_key(e);
        cache_unlock(c);
        int r = name && key ? entry_gone(c, e) : -ENOMEM;
        if (r == 0)
            r = add_entry(c, dir, name, key, obj, asked_ns);
        return r < 0 ? r : 1;
    }
    return same ? 0 : node_replaced(c, e, obj);
}

/* Whether a directory that is known here has the object's name: it is shown, and the object is
 * not, for as long as the listing has the directory, too. */
static bool covered(struct cache *c, const struct entry *e, const struct object *obj,
                    int64_t asked_ns)
{
    cache_lock(c);
    bool r = e->node->dir && !obj->is_prefix && e->changed_ns <= asked_ns;
    cache_unlock(c);
    return r;
}

/* 1 when there is something of that name that is not shown. */
static int listing_merge_one(struct cache *c, struct node *dir, const char *name,
                             const struct object *obj, int64_t asked_ns)
{
    auto_free char *at = node_path(dir);
    auto_free char *path = at ? path_join(at, name) : NULL;
    struct entry *e = entry_find(dir, name);

    cache_lock(c); /* sources move with the end of a rename */
    auto_free char *key = child_key(dir, name);
    /* What has the name here, if anything, is not what was listed: the store has it elsewhere,
     * or does not have it yet. */
    bool other =
        key && path && (ghost_hides(c, key, path, asked_ns) || (e && e->src_key != NULL));
    if (other && e && e->verified_ns < asked_ns)
        e->verified_ns = asked_ns;
    cache_unlock(c);
    if (!key || !path)
        return -ENOMEM;
    if (!path_name_shown(at, name, strlen(name)))
        return 1;
    if (other)
        return 0;
    if (e && covered(c, e, obj, asked_ns))
        return 1;
    return e ? listing_update_entry(c, e, obj, asked_ns)
             : add_entry(c, dir, name, key, obj, asked_ns);
}

/* What a whole listing did not show is gone. */
static void drop_unlisted(struct cache *c, struct node *dir, int64_t asked_ns)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        cache_lock(c);
        bool unlisted = e->verified_ns < asked_ns && e->changed_ns < asked_ns;
        cache_unlock(c);
        if (unlisted)
            (void)entry_gone(c, e);
    }
}

/* ---- listings ---- */

int listing_add(struct listing *l, const char *name, size_t len, const struct object *obj)
{
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
    item->name = strndup(name, len);
    if (!item->name || attrs_copy(&item->obj.attrs, &obj->attrs) < 0) {
        free(item->name);
        return -ENOMEM;
    }
    l->n++;
    return 0;
}

void listing_clear(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        object_release(&l->v[i].obj);
    }
    free(l->v);
    object_release(&l->marker);
    l->v = NULL;
    l->n = l->cap = 0;
}

uint64_t listed_max(const struct cache *c)
{
    return c->config.list_memory_bytes > UINT64_MAX / LISTED_TIMES
               ? UINT64_MAX
               : c->config.list_memory_bytes * LISTED_TIMES;
}

int listed_too_much(struct cache *c, struct op *op, const char *key, uint64_t names)
{
    return op_fail(op, -ENOMEM,
                   "%s/%s: the store tells of more than %" PRIu64 " names there, which is more "
                   "than %d times list_memory: look at the store, or raise that option",
                   c->store->url, key, names, LISTED_TIMES);
}

/* A server can go on for ever. */
static int take_memory(struct listing *l, const char *name)
{
    struct cache *c = l->cache;
    uint64_t more = sizeof(*l->v) + NODE_BYTES + strlen(name);
    uint64_t all = atomic_fetch_add(&c->listed_bytes, more) + more;

    l->bytes += more;
    if (all <= listed_max(c) || l->bytes <= c->config.list_memory_bytes)
        return 0;
    return listed_too_much(c, l->op, l->key, l->n);
}

static bool is_left(struct listing *l, int64_t now)
{
    if (now - l->looked_ns < LEFT_NS)
        return false;
    l->looked_ns = now;
    cache_lock(l->cache);
    l->left = l->dir->dir->waiters.head == NULL;
    cache_unlock(l->cache);
    return l->left;
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct listing *l = arg;
    int64_t now = clock_mono_ns();

    l->op->deadline_ns = now + l->patience_ns;
    if (is_left(l, now))
        return -EINTR;
    if (!*name) {
        l->has_marker = true;
        l->marker = *obj;
        l->marker.attrs = (struct attrs){0};
        return 0;
    }
    if (!l->whole && l->n >= PAGE_NAMES)
        return 1;
    int r = take_memory(l, name);
    return r < 0 ? r : listing_add(l, name, strlen(name), obj);
}

static struct place listing_place_locked(struct cache *c, char *key) REQUIRES(cache_mutex)
{
    return (struct place){key, c->dir_moves};
}

/* While the store moves a directory it can't be told whether an answer is from before or after;
 * and two moves may bring a key back to what had it when it was asked. */
static bool listing_may_have_moved(struct cache *c, const struct place *p)
{
    cache_lock(c);
    bool moved = c->dir_moves != p->moves || ((c->store->caps & STORE_RENAME) && p->key &&
                                              rename_runs_at_locked(c, p->key));
    cache_unlock(c);
    return moved;
}

/* Takes over what was listed; how many names are not shown. False when something failed. */
static bool merge_names(struct listing *l, bool whole, uint64_t *hidden)
{
    struct cache *c = l->cache;
    struct node *dir = l->dir;
    bool ok = true;
    uint64_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        int r = listing_merge_one(c, dir, l->v[i].name, &l->v[i].obj, l->asked_ns);
        n += r > 0;
        ok = ok && r >= 0;
    }
    if (whole)
        drop_unlisted(c, dir, l->asked_ns);
    /* Objects that take the names of directories which went. */
    for (size_t i = 0; i < l->n && whole && n; i++) {
        if (l->v[i].obj.is_prefix || entry_find(dir, l->v[i].name))
            continue;
        int r = listing_merge_one(c, dir, l->v[i].name, &l->v[i].obj, l->asked_ns);
        n -= r == 0 && entry_find(dir, l->v[i].name);
        ok = ok && r >= 0;
    }
    *hidden += n;
    return ok;
}

void listing_merge(struct listing *l, const struct place *p, uint64_t hidden, bool cut)
{
    struct cache *c = l->cache;
    struct node *dir = l->dir;
    bool ok = true;

    ns_write(c);
    cache_lock(c);
    auto_free char *key_now = node_key(dir);
    bool lost = dir->flags & NODE_LOST;
    cache_unlock(c);
    /* Moved meanwhile: this is not its listing; whoever waits asks again. */
    if (!key_now || !p->key || strcmp(p->key, key_now) != 0 || listing_may_have_moved(c, p)) {
        ns_done(c);
        return;
    }
    if (!lost)
        ok = merge_names(l, !cut, &hidden);
    cache_lock(c);
    if (l->has_marker || !cut)
        dir_listed_locked(c, dir, l->has_marker ? &l->marker : NULL, l->generation);
    dir->dir->stat_misses = 0;
    walk_listed_locked(dir);
    dir->dir->big = cut || l->n > PAGE_NAMES;
    dir->dir->listed_ns = cut ? 0 : l->asked_ns;
    c->hidden_names += hidden - dir->dir->hidden_names;
    dir->dir->hidden_names = hidden;
    dir->dir->told_ns = clock_mono_ns();
    dir->dir->told_there = l->has_marker || l->n > 0;
    cache_unlock(c);
    ns_done(c);
    if (!ok)
        log_warn("some names of a listing could not be taken over");
}

/* While the store can't be reached, what was known goes on. */
static int excuse_listing_locked(struct node *dir, int64_t timeout_ns, int r)
    REQUIRES(cache_mutex)
{
    if (r == -EINTR || !dir->dir->listed_ns)
        return r;
    dir->dir->told_ns = clock_mono_ns() - timeout_ns + OUTAGE_NS;
    return 0;
}

static int list_one(struct listing *l)
{
    struct cache *c = l->cache;
    struct op_notes notes = {0};
    struct op op;

    cache_lock(c);
    auto_free char *key = node_key(l->dir);
    const struct place place = listing_place_locked(c, key);
    bool known = l->dir->dir->listed_ns != 0;
    cache_unlock(c);
    /* What was listed before can be shown: don't let `ls` wait long for a store that is down.
     */
    l->patience_ns = known && c->config.ask_timeout_ns > OUTAGE_WAIT_NS
                         ? OUTAGE_WAIT_NS
                         : c->config.ask_timeout_ns;
    cache_op_within(c, &op, l->patience_ns);
    op.notes = &notes;
    l->op = &op;
    l->key = key;
    l->looked_ns = clock_mono_ns();
    int r = key ? store_list(c->store, &op, key, LIST_SELF, collect, l) : -ENOENT;
    if (r == 0 && l->n)
        index_fill(c, l->dir, key, l->v, l->n);
    if (r >= 0 || r == -ENOENT)
        listing_merge(l, &place, notes.hidden_names, r == 1);
    else
        read_failed(c, "listing", r, op.why);
    atomic_fetch_sub(&c->listed_bytes, l->bytes);
    return r == 1 || r == -ENOENT ? 0 : r;
}

bool listing_told_since(struct cache *c, struct node *dir, int64_t asked_ns)
{
    cache_lock(c);
    bool told = dir->dir->listed_ns >= asked_ns;
    cache_unlock(c);
    return told;
}

static void run_listing(struct task *task)
{
    struct listing *l = container_of(task, struct listing, task);
    struct cache *c = l->cache;

    if (l->ahead)
        walk_ahead(c, l->dir, l->asked_ns);
    if (l->around)
        walk_around(c, l->dir, l->asked_ns);
    bool told = (l->ahead || l->around) && listing_told_since(c, l->dir, l->asked_ns);
    int r = told ? 0 : list_one(l);
    cache_lock(c);
    if (r < 0)
        r = l->left
                ? 0
                : excuse_listing_locked(l->dir, listing_belief_ns(c), r); /* who came asks */
    l->dir->dir->listing = false;
    waitq_wake_locked(c, &l->dir->dir->waiters, r);
    node_unref_locked(c, l->dir);
    cache_unlock(c);
    listing_clear(l);
    free(l);
}

bool listing_is_believed(struct cache *c, struct node *dir)
{
    return dir->dir->listed_ns && clock_mono_ns() - dir->dir->told_ns < listing_belief_ns(c);
}

/* The store can have nothing below a directory that it was not told of. One that was made here
 * is asked for like any other then, since other nodes see it; but who fills it with more names
 * than one question tells does not wait for the store at each of them. */
static bool listing_is_recent(struct cache *c, struct node *dir, bool whole)
    REQUIRES(cache_mutex)
{
    struct dir *d = dir->dir;

    if (d->local_only && (d->new_here || (!whole && children_count(d->children) > PAGE_NAMES)))
        return true;
    return listing_is_believed(c, dir);
}

int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (dir->flags & NODE_LOST)
        return -ENOENT;
    walk_step_locked(c, dir);
    walk_on_locked(c, dir);
    if (listing_is_recent(c, dir, whole) || (!whole && d->big))
        return 0;
    if (!d->listing) {
        int r = walk_wait_locked(c, dir, w);
        if (r != 0)
            return r;
        struct listing *l = calloc(1, sizeof(*l));
        if (!l)
            return -ENOMEM;
        l->task.run = run_listing;
        l->cache = c;
        l->dir = dir;
        l->whole = whole;
        l->ahead = walk_may_pay_locked(c, dir) && walk_is_on_locked(c, dir);
        l->around = !l->ahead && walk_apart_locked(c, dir);
        l->asked_ns = clock_mono_ns();
        l->generation = d->generation;
        node_ref_locked(dir);
        d->listing = true;
        pool_submit_first(c->askers, &l->task);
    }
    return waitq_park_locked(c, &d->waiters, w);
}

bool dir_may_hold_locked(struct cache *c, const struct node *dir, const char *name)
{
    return !dir->dir->local_only && !dir->dir->listed_ns &&
           !absent_is_locked(c, dir, name, listing_belief_ns(c));
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

    cache_op_within(c, &op, c->config.ask_timeout_ns);
    cache_lock(c);
    auto_free char *key = child_key(q->dir, q->name);
    const struct place place = listing_place_locked(c, key);
    cache_unlock(c);
    int r = key ? store_stat(c->store, &op, key, &obj) : -ENOENT;
    ns_write(c);
    cache_lock(c);
    struct entry *e = entry_find(q->dir, q->name);
    bool older = e && e->changed_ns < q->asked_ns;
    cache_unlock(c);
    bool again = (r == 0 || r == -ENOENT) && key && listing_may_have_moved(c, &place);
    if (again) {
        if (r == 0)
            object_release(&obj);
        r = 0;
    } else if (r == 0) {
        r = listing_merge_one(c, q->dir, q->name, &obj, q->asked_ns);
        object_release(&obj);
    } else if (r == -ENOENT && older) {
        (void)entry_gone(c, e);
    }
    if (r == -ENOENT && key && !again && !e) {
        cache_lock(c);
        absent_note_locked(c, q->dir, q->name, q->asked_ns);
        cache_unlock(c);
    }
    /* Hidden, or gone: an answer, not a reason to ask again. */
    if (r >= 0 && !again && !entry_find(q->dir, q->name))
        r = -ENOENT;
    if (r > 0)
        r = 0;
    if (r == -ENOENT && entry_find(q->dir, q->name))
        r = 0;
    e = entry_find(q->dir, q->name);
    bool excused = r < 0 && r != -ENOENT && r != -EINTR && e;
    cache_lock(c);
    if (excused) /* known from before the outage */
        e->verified_ns = clock_mono_ns() - listing_belief_ns(c) + OUTAGE_NS;
    else if (r == 0 && !again && e)
        e->verified_ns = clock_mono_ns();
    cache_unlock(c);
    if (excused)
        r = 0;
    ns_done(c);
    if (r < 0 && r != -ENOENT)
        read_failed(c, "lookup", r, op.why);
    cache_lock(c);
    LL_DELETE(q->dir->dir->queries, q);
    waitq_wake_locked(c, &q->waiters, r);
    node_unref_locked(c, q->dir);
    cache_unlock(c);
    free(q);
}

static int name_ask_locked(struct cache *c, struct node *dir, const char *name,
                           struct waiter *w) REQUIRES(cache_mutex)
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
    pool_submit_first(c->askers, &q->task);
    return waitq_park_locked(c, &q->waiters, w);
}

/* ---- attributes and versions ---- */

struct asking {
    struct task task;
    UT_hash_handle hh; /* in cache.askings, by node: its flag NODE_STATTING */
    struct cache *cache;
    struct node *node; /* referenced */
    int64_t asked_ns;
    uint64_t generation; /* of a directory, when it was asked */
    struct waitq waiters;
};

/* The version that is known was told with its attributes; false when they are others than those
 * of the file that is here, which has to go for them. */
static bool take_attrs_locked(struct cache *c, struct entry *e, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    node_attrs_are_known(n);
    attrs_hear_locked(c, n, obj);
    if (!obj->attrs_known || (n->file && (c->store->caps & STORE_LIST_ATTRS)))
        return true;
    if (n->file && !listing_attrs_agree(n, obj))
        return false;
    if (n->file)
        n->attrs_has = obj->attrs.has; /* a stamp doesn't say which the store has */
    else
        node_apply_attrs(c, n, obj);
    entry_told(e, obj);
    if (e->settled)
        index_news_locked(c, e->parent);
    return true;
}

/* What the store said of a node that still has the name it was asked under. */
static void take_answer(struct asking *a, int r, const struct object *obj,
                        const struct place *p)
{
    struct cache *c = a->cache;
    struct node *n = a->node;

    ns_write(c);
    bool moved = listing_may_have_moved(c, p);
    cache_lock(c);
    struct entry *e = node_name_at(n, p->key);
    bool current = e && !moved && !node_is_ours(n) && e->changed_ns < a->asked_ns;
    bool other = false;
    if (r == 0 && current && etag_is(&e->etag, obj->etag) && !n->dir) {
        other = !take_attrs_locked(c, e, obj);
        if (obj->checksum.kind == CHECKSUM_NONE)
            n->flags |= NODE_NO_SUM;
        e->verified_ns = clock_mono_ns();
        listing_file_is_there_locked(n->file, obj->etag);
        current = false; /* nothing more to do */
        if (other && n->file->open_handles) {
            entry_distrust(e); /* later; until then as it was opened */
            other = false;
        }
    }
    cache_unlock(c);
    if (other)
        (void)node_replaced(c, e, obj);
    else if (current && r == 0)
        (void)listing_update_entry(c, e, obj, a->asked_ns);
    else if (current && r == -ENOENT)
        (void)entry_gone(c, e);
    ns_done(c);
}

/* The same of a directory's marker. */
static void take_marker(struct asking *a, int r, const struct object *obj,
                        const struct place *p)
{
    struct cache *c = a->cache;
    struct node *n = a->node;

    ns_read(c);
    bool moved = listing_may_have_moved(c, p);
    cache_lock(c);
    auto_free char *key_now = node_key(n);
    if (key_now && !moved && strcmp(p->key, key_now) == 0)
        dir_told_locked(c, n, r == 0 ? obj : NULL, a->generation);
    if (r == 0 && n->dir->marker_version && node_attrs_known(n))
        index_marker_news_locked(c, n);
    cache_unlock(c);
    ns_done(c);
}

/* Each name of a file is an object of its own: the one that the store confirmed the longest
 * ago.
 */
static struct entry *stalest_name(struct node *n) REQUIRES(cache_mutex)
{
    struct entry *stalest = n->links;

    for (struct entry *e = stalest; e; e = e->next_link)
        if (e->verified_ns < stalest->verified_ns)
            stalest = e;
    return stalest;
}

/* While the store can't be reached, attributes stay as they were; the next listing has them
 * asked again. */
static bool excuse_attrs_locked(struct node *n) REQUIRES(cache_mutex)
{
    if (!n->links)
        return false;
    node_attrs_are_known(n);
    if (n->dir)
        n->dir->marker_version = 0;
    else
        entry_distrust(n->links);
    return true;
}

/* What decides whom the kernel lets in, where it is hearsay. */
struct rights {
    uint32_t mode, uid, gid;
    bool hearsay;
    char *xattrs; /* ACLs are among them */
};

static struct rights rights_of(const struct node *n) REQUIRES(cache_mutex)
{
    return (struct rights){n->mode, n->uid, n->gid, n->flags & NODE_ATTRS_HEARSAY,
                           n->flags & NODE_ATTRS_HEARSAY ? strdup(n->xattrs ? n->xattrs : "")
                                                         : NULL};
}

/* An index had told other rights than the object has: who waits was let in by them, and has to
 * come again. */
static bool were_wrong(const struct cache *c, const struct rights *before, const struct node *n)
    REQUIRES(cache_mutex)
{
    return c->config.shared && before->hearsay && !(n->flags & NODE_ATTRS_HEARSAY) &&
           (n->mode != before->mode || n->uid != before->uid || n->gid != before->gid ||
            !before->xattrs || strcmp(before->xattrs, n->xattrs ? n->xattrs : "") != 0);
}

static void run_asking(struct task *task)
{
    struct asking *a = container_of(task, struct asking, task);
    struct cache *c = a->cache;
    struct node *n = a->node;
    struct object obj = {0};
    struct op op;

    cache_lock(c);
    struct entry *e = stalest_name(n);
    auto_free char *key = e ? entry_key(e) : NULL;
    const struct place place = listing_place_locked(c, key);
    bool readable = n->file && n->file->state != FILE_PARTIAL;
    bool old = (n->flags & NODE_ATTRS_KNOWN) && (n->flags & NODE_ATTRS_OLD);
    const struct rights before = rights_of(n);
    cache_unlock(c);
    /* A complete file can be served without the store, attributes that were told before can be
     * shown: don't let who wants them wait long. */
    cache_op_within(c, &op, readable || old ? OUTAGE_WAIT_NS : c->config.ask_timeout_ns);
    int r = !key     ? -ENOENT
            : n->dir ? store_stat_dir(c->store, &op, key, &obj)
                     : store_stat(c->store, &op, key, &obj);
    if (key && n->dir && (r == 0 || r == -ENOENT))
        take_marker(a, r, &obj, &place);
    else if (key && (r == 0 || r == -ENOENT))
        take_answer(a, r, &obj, &place);
    if (r == 0)
        object_release(&obj);
    if (r < 0 && r != -ENOENT)
        read_failed(c, "a look at a file", r, op.why);
    cache_lock(c);
    if (r == -ENOENT)
        r = 0; /* asked again, the caller sees that the name is gone */
    bool failed = r < 0 && r != -EINTR;
    e = key ? node_name_at(n, key) : NULL;
    if (failed && readable && e && !(c->config.shared && (n->flags & NODE_ATTRS_HEARSAY))) {
        e->verified_ns =
            clock_mono_ns() - listing_belief_in(c->config.attr_timeout_ns) + OUTAGE_NS;
        r = 0;
    }
    if (failed && old && !node_attrs_known(n) && excuse_attrs_locked(n))
        r = 0;
    if (r == 0 && were_wrong(c, &before, n)) {
        if (n->links)
            notice_locked(c, n->links->parent, n->links->name);
        r = -ESTALE;
    }
    n->flags &= ~(unsigned)NODE_STATTING;
    waitq_wake_locked(c, &a->waiters, r);
    HASH_DEL(c->askings, a);
    node_unref_locked(c, n);
    cache_unlock(c);
    free(before.xattrs);
    free(a);
}

/* `ahead`: nobody waits for it yet. */
static int attrs_ask_locked(struct cache *c, struct node *n, bool ahead) REQUIRES(cache_mutex)
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
    a->generation = n->dir ? n->dir->generation : 0;
    waitq_init(&a->waiters);
    HASH_ADD_PTR(c->askings, node, a);
    n->flags |= NODE_STATTING;
    node_ref_locked(n);
    if (ahead)
        pool_submit(c->askers, &a->task);
    else
        pool_submit_first(c->askers, &a->task);
    return 0;
}

/* To what attrs_ask_locked() has asked. */
static int attrs_wait_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex)
{
    struct asking *a;

    HASH_FIND_PTR(c->askings, &n, a);
    return waitq_park_locked(c, &a->waiters, w);
}

void askings_stop_locked(struct cache *c)
{
    struct asking *a, *next;

    HASH_ITER(hh, c->askings, a, next)
    {
        waitq_wake_locked(c, &a->waiters, -EINTR);
    }
}

static bool attrs_missing(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->is_root || node_attrs_known(n) || !n->links)
        return false;
    return n->dir ? c->asks_dirs && !dir_attrs_are_ours(n)
                  : etag_known(&n->links->etag) && (!n->file || !node_is_ours(n));
}

/* A directory's listing tells whether it has attributes to ask for. */
static bool listing_tells_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    return n->dir && !n->dir->told_ns && !(n->flags & (NODE_STATTING | NODE_ATTRS_KNOWN)) &&
           walk_may_pay_locked(c, n);
}

/* From place `at` on at most `window` names, with all below them if `deep`; how many are left.
 */
static int stat_from_locked(struct cache *c, struct node *dir, size_t at, bool deep, int window)
    REQUIRES(cache_mutex)
{
    struct entry *e;

    while (window > 0 && (e = children_next(dir->dir->children, &at))) {
        window--;
        if (attrs_missing(c, e->node) && !listing_tells_locked(c, e->node))
            (void)attrs_ask_locked(c, e->node, true);
        if (deep && e->node->dir)
            window = stat_from_locked(c, e->node, 0, true, window);
    }
    return window;
}

static int stat_behind_locked(struct cache *c, const struct entry *e, bool deep, int window)
    REQUIRES(cache_mutex)
{
    size_t at = children_behind(e->parent->dir->children, e);

    return stat_from_locked(c, e->parent, at, deep, window);
}

/* The directory, at or above `dir`, that somebody came to through its siblings, or NULL. */
static struct node *walked_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    while (dir->links && !walk_is_on_locked(c, dir))
        dir = dir->links->parent;
    return dir->links ? dir : NULL;
}

/* Someone stats the names of a directory one after the other: ask for the next ones at once;
 * with all below the next directories when he walks through them. */
static void stat_ahead_locked(struct cache *c, struct node *n, struct node *walked)
    REQUIRES(cache_mutex)
{
    unsigned misses = n->links->parent->dir->stat_misses;
    int window = walked || misses > 5 ? STAT_AHEAD_MAX : STAT_AHEAD << (misses - 2);

    window = stat_behind_locked(c, n->links, false, window);
    if (walked)
        (void)stat_behind_locked(c, walked->links, true, window);
}

int attrs_need_locked(struct cache *c, struct node *n, struct waiter *w)
{
    cache_assert_locked(c);
    if (!attrs_missing(c, n))
        return 0;
    struct node *from = n->dir ? NULL : walked_locked(c, n->links->parent);
    bool walked = ++n->links->parent->dir->stat_misses >= 2 || from;
    /* Who looks a directory up goes in, mostly: its listing tells whether there is a marker to
     * ask for. Who walks its siblings does not; but one listing may tell of many. */
    bool alone = n->dir && !walked && !n->dir->told_ns &&
                 !(n->flags & (NODE_STATTING | NODE_ATTRS_KNOWN));
    int r = alone || listing_tells_locked(c, n) ? dir_need_locked(c, n, false, w) : 0;
    if (r != 0)
        return r;
    r = attrs_ask_locked(c, n, false);
    if (r < 0)
        return r;
    if (walked)
        stat_ahead_locked(c, n, from);
    return attrs_wait_locked(c, n, w);
}

int attrs_confirm_locked(struct cache *c, struct node *n, struct waiter *w)
{
    cache_assert_locked(c);
    if (!c->config.shared || !(n->flags & NODE_ATTRS_HEARSAY) || !n->links || node_is_ours(n))
        return 0;
    int r = attrs_ask_locked(c, n, false);
    return r < 0 ? r : attrs_wait_locked(c, n, w);
}

int version_need_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct entry *e = stalest_name(n);

    cache_assert_locked(c);
    if (!e || node_is_ours(n) || !etag_known(&e->etag))
        return 0;
    /* A directory that is being moved at the store: its children are where they were. */
    for (struct node *up = e->parent; up->links; up = up->links->parent)
        if (up->links->src_key)
            return 0;
    if (e->verified_ns &&
        clock_mono_ns() - e->verified_ns < listing_belief_in(c->config.attr_timeout_ns))
        return 0;
    int r = attrs_ask_locked(c, n, false);
    return r < 0 ? r : attrs_wait_locked(c, n, w);
}

/* ---- lookup ---- */

/* A directory whose own listing showed something is there as well. */
static bool listing_shows_it(struct cache *c, const struct dir *d) REQUIRES(cache_mutex)
{
    return d && d->told_there && clock_mono_ns() - d->told_ns < listing_belief_ns(c);
}

static bool entry_believed(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    return listing_shows_it(c, e->node->dir) || node_is_ours(e->node) ||
           e->changed_ns > clock_mono_ns() - c->config.list_timeout_ns ||
           (e->verified_ns && clock_mono_ns() - e->verified_ns < listing_belief_ns(c));
}

int cache_lookup(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                 struct node **ret, struct stat *st)
{
    int r = 0;

    if (!parent->dir)
        return -ENOTDIR;
    if (strlen(name) > PATH_NAME_MAX)
        return -ENAMETOOLONG;
    cache_lock(c);
    struct entry *e = entry_find(parent, name);
    if (!e || !entry_believed(c, e))
        r = dir_need_locked(c, parent, false, w);
    if (r == 0)
        e = entry_find(parent, name);
    if (r == 0 && e && e->node->dir)
        walk_on_locked(c, e->node);
    bool told =
        e ? entry_believed(c, e) : absent_is_locked(c, parent, name, listing_belief_ns(c));
    if (r == 0 && !told && !listing_is_recent(c, parent, false))
        r = name_ask_locked(c, parent, name, w);
    if (r == 0)
        r = e ? attrs_need_locked(c, e->node, w) : -ENOENT;
    if (r == 0) {
        node_look_locked(c, e->node);
        e->node->nlookup++;
        node_stat(e->node, st);
        *ret = e->node;
    }
    cache_unlock(c);
    return r;
}

void cache_forget(struct cache *c, struct node *node, uint64_t nlookup)
{
    cache_lock(c);
    if (!node->is_root) {
        node->nlookup -= nlookup < node->nlookup ? nlookup : node->nlookup;
        node_collect_locked(c, node);
    }
    cache_unlock(c);
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

static void drop_snapshot_locked(struct cache *c, struct dirhandle *d) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->v[i].name);
        node_unref_locked(c, d->v[i].node);
    }
    free(d->v);
    d->v = NULL;
    d->n = 0;
}

static int take_snapshot_locked(struct cache *c, struct dirhandle *d) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;
    size_t n = children_count(d->dir->dir->children);

    drop_snapshot_locked(c, d);
    d->v = calloc(n ? n : 1, sizeof(*d->v));
    if (!d->v)
        return -ENOMEM;
    CHILDREN_FOREACH(d->dir->dir->children, e, at)
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
    REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;
    struct node *first = NULL;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        struct node *n = e->node;
        if (n->dir || n->size > 0 || !attrs_missing(c, n))
            continue;
        int r = attrs_ask_locked(c, n, false);
        if (r < 0)
            return r;
        first = first ? first : n;
    }
    return first ? attrs_wait_locked(c, first, w) : 0;
}

static int listing_need_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex)
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
    cache_lock(c);
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
    cache_unlock(c);
    return r;
}

static int show(struct cache *c, struct dirhandle *d, size_t i, bool plus, cache_visit visit,
                void *arg) REQUIRES(cache_mutex)
{
    struct node *parent = d->dir->links ? d->dir->links->parent : d->dir;
    struct node *n = i == 0 ? d->dir : i == 1 ? parent : d->v[i - 2].node;
    const char *name = i == 0 ? "." : i == 1 ? ".." : d->v[i - 2].name;
    bool known = plus && i >= 2 && n->links && !attrs_missing(c, n);
    struct stat st;

    node_stat(n, &st);
    int r = visit(arg, name, known ? n : NULL, &st, i + 1);
    if (r == 0 && known)
        n->nlookup++;
    return r;
}

/* The kernel goes on with attributes only when those of the names before were wanted. */
static void show_ahead_locked(struct cache *c, struct dirhandle *d, size_t off)
    REQUIRES(cache_mutex)
{
    for (size_t i = off > 2 ? off - 2 : 0, n = 0; i < d->n && n < STAT_AHEAD; i++, n++)
        if (attrs_missing(c, d->v[i].node) && !listing_tells_locked(c, d->v[i].node))
            (void)attrs_ask_locked(c, d->v[i].node, true);
}

int cache_readdir(struct cache *c, struct dirhandle *d, uint64_t off, bool plus,
                  struct waiter *w, cache_visit visit, void *arg)
{
    int r = 0;

    cache_lock(c);
    if (off == 0 && d->read && !(d->dir->flags & NODE_LOST)) {
        r = listing_need_locked(c, d->dir, w);
        if (r == 0)
            r = take_snapshot_locked(c, d);
    }
    if (r == 0) {
        d->read = true;
        for (uint64_t i = off; i < d->n + 2 && r == 0; i++)
            r = show(c, d, (size_t)i, plus, visit, arg);
        if (plus && off > 0)
            show_ahead_locked(c, d, (size_t)off);
        r = 0;
    }
    cache_unlock(c);
    return r;
}

void cache_releasedir(struct cache *c, struct dirhandle *d)
{
    cache_lock(c);
    drop_snapshot_locked(c, d);
    node_unref_locked(c, d->dir);
    cache_unlock(c);
    free(d);
}
