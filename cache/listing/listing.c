/* Names from the store: when a directory is listed, and how long a listing is valid.
 *
 * What the store says never overrides what was done here: an entry that is ours (dirty,
 * renamed, open for writing) or that changed after the question was asked is left alone, and a
 * key that an intention is about to remove stays hidden. */
#include "cache/listing/listing_impl.h"

#include "cache/tree/children.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A listing answers those who waited for it, however short the time that it is believed. */
#define VALIDITY_MIN_NS (200 * NS_PER_MS)

/* Listings under way may take so many times `list_memory`. The first `list_memory` of each is
 * not refused: a directory without end hurts no others. */
#define LISTED_TIMES 16

/* How often a listing looks whether anybody waits for it still. */
#define LEFT_NS (100 * NS_PER_MS)

int64_t listing_validity_in(int64_t timeout_ns)
{
    return timeout_ns > VALIDITY_MIN_NS ? timeout_ns : VALIDITY_MIN_NS;
}

int64_t listing_validity_ns(struct cache *c)
{
    return listing_validity_in(c->config.list_timeout_ns);
}

uint64_t listed_max(const struct cache *c)
{
    return c->config.list_memory_bytes > UINT64_MAX / LISTED_TIMES
               ? UINT64_MAX
               : c->config.list_memory_bytes * LISTED_TIMES;
}

int listed_too_much(struct cache *c, struct op *op, struct place at, uint64_t names)
{
    return op_fail(op, -ENOMEM,
                   "%s/%s: the store tells of more than %" PRIu64 " names there, which is more "
                   "than %d times list_memory: look at the store, or raise that option",
                   c->store->url, at.key, names, LISTED_TIMES);
}

/* A server can go on for ever. */
static int take_memory(struct listing *l, const char *name)
{
    struct cache *c = l->cache;
    uint64_t more = sizeof(*l->v) + NODE_BYTES + strlen(name);
    uint64_t all = atomic_fetch_add(&c->listing->listed_bytes, more) + more;

    l->bytes += more;
    if (all <= listed_max(c) || l->bytes <= c->config.list_memory_bytes)
        return 0;
    return listed_too_much(c, l->op, l->at, l->n);
}

static bool is_left(struct listing *l, int64_t now)
{
    if (l->behind || now - l->looked_ns < LEFT_NS)
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

/* While the store can't be reached, what was known goes on. */
static int extend_listing_locked(struct node *dir, int64_t timeout_ns, int r)
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
    auto_place struct place at = node_place(l->dir);
    const struct asked asked = listing_asked_locked(c, at);
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
    l->at = at;
    l->looked_ns = clock_mono_ns();
    int merged = 0, r = place_known(at)
                            ? store_list(c->store, &op, at.key, LIST_SELF, collect, l)
                            : -ENOENT;
    op.notes = NULL;
    op.deadline_ns = clock_mono_ns() + l->patience_ns;
    int seen = r >= 0 ? hidden_mark(l, &op, at, clock_mono_ns()) : 0;
    if (seen < 0)
        r = seen;
    if (r == 0 && l->n)
        index_fill(c, l->dir, at, l->v, l->n);
    if (r >= 0 || r == -ENOENT)
        merged = listing_merge(l, &asked, notes.hidden_names, r == 1);
    else
        read_failed(c, "listing", r, op.why);
    if (merged < 0)
        r = merged;
    listing_pause_while_it_moves(c, &asked);
    atomic_fetch_sub(&c->listing->listed_bytes, l->bytes);
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
        list_ahead_run(c, l->dir, l->asked_ns);
    if (l->around)
        list_around(c, l->dir, l->asked_ns);
    bool told = (l->ahead || l->around) && listing_told_since(c, l->dir, l->asked_ns);
    int r = told ? 0 : list_one(l);
    bool failed = r < 0;
    cache_lock(c);
    if (r < 0)
        r = l->left
                ? 0
                : extend_listing_locked(l->dir, listing_validity_ns(c), r); /* who came asks */
    l->dir->dir->listing = false;
    l->dir->dir->unlisted_ns = failed ? clock_mono_ns() : 0;
    waitq_wake_locked(c, &l->dir->dir->waiters, r);
    node_unref_locked(c, l->dir);
    cache_unlock(c);
    listing_clear(l);
    free(l);
}

bool listing_is_valid(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    return dir->dir->listed_ns && clock_mono_ns() - dir->dir->told_ns < listing_validity_ns(c);
}

bool listing_is_recent(struct cache *c, struct node *dir, bool whole)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (d->kind == DIR_SCRATCH)
        return true;
    if (d->local_only && (d->new_here || (!whole && children_count(d->children) > PAGE_NAMES)))
        return true;
    return listing_is_valid(c, dir);
}

bool dir_is_joint_locked(struct cache *c, struct node *dir)
{
    auto_free char *path = c->config.routes ? node_path(dir) : NULL;

    cache_assert_locked(c);
    return path && path_is_joint(c, path);
}

static int listing_begin_locked(struct cache *c, struct node *dir, bool whole, bool behind)
    REQUIRES(cache_mutex)
{
    struct listing *l = calloc(1, sizeof(*l));

    if (!l)
        return -ENOMEM;
    l->task.run = run_listing;
    l->cache = c;
    l->dir = dir;
    l->whole = whole;
    l->behind = behind;
    l->ahead = list_ahead_may_pay_locked(c, dir) && list_ahead_is_on_locked(c, dir);
    l->around = !l->ahead && list_ahead_apart_locked(c, dir);
    l->asked_ns = clock_mono_ns();
    l->generation = dir->dir->generation;
    node_ref_locked(dir);
    dir->dir->listing = true;
    auto_place struct place at = c->config.routes ? node_place(dir) : NO_PLACE;
    const struct store_set stores = stores_asked(c, at, QUESTION_LIST);
    workers_submit_locked(c->askers, &stores, &l->task, true);
    return 0;
}

/* A store that does not answer would keep what others have from being found: names are asked
 * one by one until the listing is there, for which nobody waits. */
static void list_behind_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct dir *d = dir->dir;
    bool failed = d->unlisted_ns && clock_mono_ns() - d->unlisted_ns < OUTAGE_NS;

    if (!d->listing && !failed)
        (void)listing_begin_locked(c, dir, false, true);
}

int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (dir->flags & NODE_REMOVED)
        return -ENOENT;
    list_ahead_step_locked(c, dir);
    list_ahead_on_locked(c, dir);
    if (listing_is_recent(c, dir, whole) || (!whole && d->big))
        return 0;
    if (!whole && dir_is_joint_locked(c, dir)) {
        list_behind_locked(c, dir);
        return 0;
    }
    if (!d->listing) {
        int r = list_ahead_wait_locked(c, dir, w);
        if (r == 0)
            r = listing_begin_locked(c, dir, whole, false);
        if (r != 0)
            return r;
    }
    return waitq_park_locked(c, &d->waiters, w);
}

bool dir_may_hold_locked(struct cache *c, struct node *dir, const char *name)
{
    cache_assert_locked(c);
    bool listed =
        dir->dir->listed_ns && (listing_is_valid(c, dir) || !dir_is_joint_locked(c, dir));
    return !dir->dir->local_only && !listed && dir->dir->kind != DIR_SCRATCH &&
           !negative_is_locked(c, dir, name, listing_validity_ns(c));
}
