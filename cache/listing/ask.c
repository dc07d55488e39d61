/* Questions for one name, for attributes and for versions: many are asked at once. */
#include "cache/listing/listing_impl.h"

#include "cache/tree/children.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define STAT_AHEAD_MAX 1024

/* How long a question for a name waits for a listing that is under way, and how often it looks.
 */
#define LISTED_NS (100 * NS_PER_MS)
#define LOOK_NS   (2 * NS_PER_MS)

/* ---- one name ---- */

/* A name of a directory that is not listed for it, asked alone; all who want it meanwhile wait
 * for the same answer.
 */
struct query {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    struct query *next GUARDED_BY(cache_mutex);
    struct waitq waiters GUARDED_BY(cache_mutex);
    int64_t asked_ns;
    char name[];
};

/* Several stores may have it, and one that could does not answer. What the listing before that
 * did not show is not there, as that listing is shown meanwhile. */
static bool unlisted_locked(struct cache *c, struct query *q) REQUIRES(cache_mutex)
{
    if (!q->dir->dir->listed_ns || !dir_is_joint_locked(c, q->dir))
        return false;
    negative_note_locked(c, q->dir, q->name,
                         clock_mono_ns() - listing_validity_ns(c) + OUTAGE_NS);
    return true;
}

/* How long the answer is waited for: not so long where memory has one. */
static int64_t query_patience_locked(struct cache *c, struct query *q, bool joint)
    REQUIRES(cache_mutex)
{
    bool known = entry_find(q->dir, q->name) || q->dir->dir->listed_ns;
    int64_t ns = c->config.ask_timeout_ns;

    return known && ns > OUTAGE_WAIT_NS && joint ? OUTAGE_WAIT_NS : ns;
}

/* Where the directory is just being listed for all of its names, one question does for many. */
static bool listing_tells_name(struct query *q, struct op *op)
{
    struct cache *c = q->cache;
    int64_t end = clock_mono_ns() + LISTED_NS;
    bool told = false, goes_on = true;

    while (!told && goes_on) {
        cache_lock(c);
        told = listing_is_valid(c, q->dir);
        goes_on = q->dir->dir->listing && clock_mono_ns() < end;
        cache_unlock(c);
        if (!told && goes_on && op_sleep(op, LOOK_NS) < 0)
            break;
    }
    return told;
}

/* Asks the store, and takes what it says into the tree. */
static int ask_name(struct query *q, struct op *op)
{
    struct cache *c = q->cache;
    struct object obj = {0};

    cache_lock(c);
    auto_place struct place at = child_place(q->dir, q->name);
    const struct asked asked = listing_asked_locked(c, at);
    cache_unlock(c);
    int r = place_known(at) ? store_stat(c->store, op, at.key, &obj) : -ENOENT;
    int hidden = r == 0 ? hidden_name(c, op, q->dir, q->name, at, &obj) : 0;
    if (hidden) {
        object_release(&obj);
        r = hidden < 0 ? hidden : -ENOENT;
    }
    ns_write(c);
    cache_lock(c);
    struct entry *e = entry_find(q->dir, q->name);
    bool older = e && e->changed_ns < q->asked_ns;
    cache_unlock(c);
    bool again =
        (r == 0 || r == -ENOENT) && place_known(at) && listing_may_have_moved(c, &asked);
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
    if (r == -ENOENT && place_known(at) && !again && !e) {
        cache_lock(c);
        negative_note_locked(c, q->dir, q->name, q->asked_ns);
        cache_unlock(c);
    }
    /* Hidden or gone names are an answer, no reason to ask again. */
    if (r >= 0 && !again && !entry_find(q->dir, q->name))
        r = -ENOENT;
    if (r > 0)
        r = 0;
    if (r == -ENOENT && entry_find(q->dir, q->name))
        r = 0;
    e = entry_find(q->dir, q->name);
    bool failed = r < 0 && r != -ENOENT && r != -EINTR;
    bool excused = failed && e;
    cache_lock(c);
    if (excused) /* known from before the outage */
        entry_verified_locked(e, clock_mono_ns() - listing_validity_ns(c) + OUTAGE_NS);
    else if (r == 0 && !again && e)
        entry_verified_locked(e, clock_mono_ns());
    bool unlisted = failed && !e && unlisted_locked(c, q);
    cache_unlock(c);
    ns_done(c);
    listing_pause_while_it_moves(c, &asked);
    if (r < 0 && r != -ENOENT && !excused)
        read_failed(c, "lookup", r, op->why);
    return excused ? 0 : unlisted ? -ENOENT : r;
}

static void run_query(struct task *task)
{
    struct query *q = container_of(task, struct query, task);
    struct cache *c = q->cache;
    struct op op;

    cache_lock(c);
    bool joint = dir_is_joint_locked(c, q->dir);
    cache_op_within(c, &op, query_patience_locked(c, q, joint));
    cache_unlock(c);
    op.hasty = joint;
    bool told = joint && listing_tells_name(q, &op);
    int r = told ? 0 : ask_name(q, &op);
    cache_lock(c);
    LL_DELETE(q->dir->dir->queries, q);
    waitq_wake_locked(c, &q->waiters, r);
    node_unref_locked(c, q->dir);
    cache_unlock(c);
    free(q);
}

int name_ask_locked(struct cache *c, struct node *dir, const char *name, struct waiter *w)
{
    struct query *q;

    cache_assert_locked(c);
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
    auto_place struct place at = c->config.routes ? child_place(dir, name) : NO_PLACE;
    const struct store_set stores = stores_asked(c, at, QUESTION_STAT);
    workers_submit_locked(c->askers, &stores, &q->task, true);
    return waitq_park_locked(c, &q->waiters, w);
}

/* ---- attributes and versions ---- */

struct asking {
    struct task task;
    UT_hash_handle hh; /* in listings.askings, by node: its flag NODE_STATTING */
    struct cache *cache;
    struct node *node; /* referenced */
    int64_t asked_ns;
    uint64_t generation; /* of a directory, when it was asked */
    struct waitq waiters GUARDED_BY(cache_mutex);
};

/* The version that is known was told with its attributes; false when they are others than those
 * of the file that is here, which has to go for them. */
static bool take_attrs_locked(struct cache *c, struct entry *e, struct place at,
                              const struct object *obj) REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    if (!obj->attrs_known || n->file)
        node_attrs_are_known(n); /* else below, by what they are */
    attrs_hear_locked(c, n, obj);
    if (!obj->attrs_known || (n->file && store_can(c->store, at.key, STORE_LIST_ATTRS)))
        return true;
    if (n->file && !listing_attrs_agree(n, obj))
        return false;
    if (n->file)
        n->attrs_has = obj->attrs.has; /* a stamp doesn't say which the store has */
    else
        node_apply_attrs(c, n, obj);
    entry_told(e, obj);
    if (e->stable)
        index_news_locked(c, e->parent);
    return true;
}

/* The store has it no more, and the name stays, as its unit needs it: it is taken as known
 * until it is due to be asked for again. Else who waits for it would be sent to ask on and on.
 */
static void stays_without_locked(struct entry *e) REQUIRES(cache_mutex)
{
    entry_verified_locked(e, clock_mono_ns());
    if (e->node->flags & NODE_ATTRS_KNOWN)
        node_attrs_are_known(e->node);
}

/* Takes what the store said of a node that still has the name it was asked under. Whether that
 * stays although the store has it no more. */
static bool take_answer(struct asking *a, int r, const struct object *obj,
                        const struct asked *asked)
{
    struct cache *c = a->cache;
    struct node *n = a->node;
    bool stays = false;

    ns_write(c);
    bool moved = listing_may_have_moved(c, asked);
    cache_lock(c);
    struct entry *e = node_name_at(n, asked->at);
    bool current = e && !moved && !node_is_ours(n) && e->changed_ns < a->asked_ns;
    bool other = false;
    if (r == 0 && current && etag_is(&e->etag, obj->etag) && !n->dir) {
        other = !take_attrs_locked(c, e, asked->at, obj);
        if (obj->checksum.kind == CHECKSUM_NONE)
            n->flags |= NODE_NO_SUM;
        entry_verified_locked(e, clock_mono_ns());
        listing_file_is_there_locked(n->file, obj->etag);
        current = false; /* nothing more to do */
        if (other && n->file->open_handles) {
            entry_expire(e); /* later; until then as it was opened */
            other = false;
        }
    }
    cache_unlock(c);
    if (other)
        (void)node_replaced(c, e, obj);
    else if (current && r == 0)
        (void)listing_update_entry(c, e, asked->at, obj, a->asked_ns);
    else if (current && r == -ENOENT)
        stays = entry_gone(c, e) < 0;
    if (stays) {
        cache_lock(c);
        stays_without_locked(e);
        cache_unlock(c);
    }
    ns_done(c);
    return stays;
}

/* Takes what it said of a directory's marker. */
static void take_marker(struct asking *a, int r, const struct object *obj,
                        const struct asked *asked)
{
    struct cache *c = a->cache;
    struct node *n = a->node;

    ns_read(c);
    bool moved = listing_may_have_moved(c, asked);
    cache_lock(c);
    auto_place struct place now = node_place(n);
    if (place_known(now) && !moved && place_same(asked->at, now)) {
        bool has = r == 0 && !dir_marker_goes_locked(c, n, now, a->asked_ns);
        dir_told_locked(c, n, has ? obj : NULL, a->generation);
    }
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
static bool extend_attrs_locked(struct node *n) REQUIRES(cache_mutex)
{
    if (!n->links)
        return false;
    node_attrs_are_known(n);
    if (n->dir)
        n->dir->marker_version = 0;
    else
        entry_expire(n->links);
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

/* An index had told other rights than the object has: they let the waiters in, who have to come
 * again. */
static bool were_wrong(const struct cache *c, const struct rights *before, const struct node *n)
    REQUIRES(cache_mutex)
{
    return c->config.shared && before->hearsay && !(n->flags & NODE_ATTRS_HEARSAY) &&
           (n->mode != before->mode || n->uid != before->uid || n->gid != before->gid ||
            !before->xattrs || strcmp(before->xattrs, n->xattrs ? n->xattrs : "") != 0);
}

/* Of a directory that several stores make, the one that may keep its attributes may not answer:
 * what others have in it is reached all the same, where that gives nobody rights. */
static bool has_default_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    return n->dir && !c->config.shared && dir_is_joint_locked(c, n);
}

static bool show_default_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    const struct object none = {.is_prefix = true, .mtime_ns = n->mtime_ns};

    if (!has_default_locked(c, n) || dir_attrs_are_ours(n))
        return false;
    if (!(n->flags & NODE_ATTRS_KNOWN))
        node_apply_attrs(c, n, &none);
    return extend_attrs_locked(n);
}

static void run_asking(struct task *task)
{
    struct asking *a = container_of(task, struct asking, task);
    struct cache *c = a->cache;
    struct node *n = a->node;
    struct object obj = {0};
    bool stays = false; /* the name does, although the store has it no more */
    struct op op;

    cache_lock(c);
    struct entry *e = stalest_name(n);
    auto_place struct place at = e ? entry_place(e) : NO_PLACE;
    const struct asked asked = listing_asked_locked(c, at);
    bool readable = n->file && n->file->state != FILE_PARTIAL;
    bool old = (n->flags & NODE_ATTRS_KNOWN) && (n->flags & NODE_ATTRS_OLD);
    bool patient = !readable && !old && !has_default_locked(c, n);
    const struct rights before = rights_of(n);
    cache_unlock(c);
    /* A complete file can be served without the store, attributes that were told before can be
     * shown: don't let who wants them wait long. */
    cache_op_within(c, &op, patient ? c->config.ask_timeout_ns : OUTAGE_WAIT_NS);
    op.hasty = c->config.routes != NULL;
    int r = !place_known(at) ? -ENOENT
            : n->dir         ? store_stat_dir(c->store, &op, at.key, &obj)
                             : store_stat(c->store, &op, at.key, &obj);
    if (place_known(at) && n->dir && (r == 0 || r == -ENOENT))
        take_marker(a, r, &obj, &asked);
    else if (place_known(at) && (r == 0 || r == -ENOENT))
        stays = take_answer(a, r, &obj, &asked);
    if (r == 0)
        object_release(&obj);
    if (r < 0 && r != -ENOENT)
        read_failed(c, "a look at a file", r, op.why);
    listing_pause_while_it_moves(c, &asked);
    cache_lock(c);
    if (r == -ENOENT)
        r = 0; /* asked again, the caller sees that the name is gone */
    bool failed = r < 0 && r != -EINTR;
    e = place_known(at) ? node_name_at(n, at) : NULL;
    if (failed && readable && e && !(c->config.shared && (n->flags & NODE_ATTRS_HEARSAY))) {
        entry_verified_locked(
            e, clock_mono_ns() - listing_validity_in(c->config.attr_timeout_ns) + OUTAGE_NS);
        r = 0;
    }
    if (failed && old && !node_attrs_known(n) && extend_attrs_locked(n))
        r = 0;
    if (failed && !node_attrs_known(n) && show_default_locked(c, n))
        r = 0;
    if (r == 0 && were_wrong(c, &before, n)) {
        if (n->links)
            notice_locked(c, n->links->parent, n->links->name);
        r = -ESTALE;
    }
    if (stays && attrs_missing(c, n))
        r = -ENOENT; /* nobody knows its attributes any more */
    n->flags &= ~(unsigned)NODE_STATTING;
    waitq_wake_locked(c, &a->waiters, r);
    HASH_DEL(c->listing->askings, a);
    node_unref_locked(c, n);
    cache_unlock(c);
    free(before.xattrs);
    free(a);
}

int attrs_ask_locked(struct cache *c, struct node *n, bool ahead)
{
    cache_assert_locked(c);
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
    HASH_ADD_PTR(c->listing->askings, node, a);
    if (TABLE_LACKS(hh, a)) {
        free(a);
        return -ENOMEM;
    }
    n->flags |= NODE_STATTING;
    node_ref_locked(n);
    struct entry *e = c->config.routes ? stalest_name(n) : NULL;
    auto_place struct place at = e ? entry_place(e) : NO_PLACE;
    const struct store_set stores =
        stores_asked(c, at, n->dir ? QUESTION_STAT_DIR : QUESTION_STAT);
    workers_submit_locked(c->askers, &stores, &a->task, !ahead);
    return 0;
}

int attrs_wait_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct asking *a;

    cache_assert_locked(c);
    HASH_FIND_PTR(c->listing->askings, &n, a);
    return waitq_park_locked(c, &a->waiters, w);
}

void askings_stop_locked(struct cache *c)
{
    struct asking *a, *next;

    cache_assert_locked(c);
    HASH_ITER(hh, c->listing->askings, a, next)
    {
        waitq_wake_locked(c, &a->waiters, -EINTR);
    }
}

bool attrs_missing(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    if (n->is_root || node_attrs_known(n) || !n->links)
        return false;
    return n->dir ? !dir_attrs_are_ours(n) && dir_asks_locked(c, n)
                  : etag_known(&n->links->etag) && (!n->file || !node_is_ours(n));
}

bool listing_tells_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    return n->dir && !n->dir->told_ns && !(n->flags & (NODE_STATTING | NODE_ATTRS_KNOWN)) &&
           list_ahead_may_pay_locked(c, n);
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
    while (dir->links && !list_ahead_is_on_locked(c, dir))
        dir = dir->links->parent;
    return dir->links ? dir : NULL;
}

/* A program stats the names of a directory one after the other: ask for the next ones at once;
 * with all below the next directories when it walks through them. */
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
    /* A lookup of a directory mostly goes in: its listing tells whether there is a marker to
     * ask for. A walk of its siblings does not; but one listing may tell of many. */
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
        if (place_known(up->links->source))
            return 0;
    if (e->verified_ns &&
        clock_mono_ns() - e->verified_ns < listing_validity_in(c->config.attr_timeout_ns))
        return 0;
    int r = attrs_ask_locked(c, n, false);
    return r < 0 ? r : attrs_wait_locked(c, n, w);
}
