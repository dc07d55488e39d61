/* Clean content leaves the cache because somebody says so. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/mirror.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>

#define END_TICK_NS (200 * NS_PER_MS) /* between two looks at the client who waits */

struct evicting {
    struct cache *cache;
    struct node **nodes; /* heap; each referenced */
    size_t n, cap;
    cache_stays stays; /* NULL: nobody asks */
    void *arg;
    struct cache_evicted *result;
};

static int take_node(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct evicting *e = arg;

    if (!n->file)
        return 0;
    if (array_grow(e->nodes, e->cap, e->n + 1))
        return -ENOMEM;
    node_ref_locked(n);
    e->nodes[e->n++] = n;
    return 0;
}

/* Why its content can't go; CACHE_EVICTED: it can. */
static enum cache_stay judge_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    const struct file *f = n->file;

    if (node_is_scratch(n))
        return CACHE_STAYS_LOCAL;
    if (node_is_ours(n))
        return CACHE_STAYS_DIRTY;
    if (path_is_pinned(c, path))
        return CACHE_STAYS_PINNED;
    return f->open_handles || n->links->next_link || path_is_locked(c, path) ? CACHE_STAYS_USED
                                                                             : CACHE_EVICTED;
}

/* Whether only a look is left of what is owed, which sends nothing: of a file that was open
 * when it went up, and is not now. One that a mapping may write, or that is half, is looked at
 * for as long as it is that. */
static bool is_only_looked_at_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->file;

    return debt_is_queued(&f->debt) && !f->debt.error && upload_is_done_locked(n) &&
           !f->write_handles && !f->mapped_writer && !file_is_half_locked(c, n);
}

static bool ends_soon_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (!f || f->state != FILE_CLEAN || (n->flags & NODE_ATTR_DIRTY))
        return false;
    if (f->debt.running)
        return true;
    if (!is_only_looked_at_locked(c, n))
        return false;
    debt_set_due(&f->debt, 0);
    scheduler_kick_locked(c);
    return true;
}

/* An upload that has put all there is on its last steps, or is looked at once more for that it
 * was open. */
static void await_end(struct cache *c, struct node *n, struct op *op)
{
    cache_lock(c);
    while (ends_soon_locked(c, n) && op_check(op) == 0)
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + END_TICK_NS);
    cache_unlock(c);
}

static void tell(struct evicting *e, const char *path, enum cache_stay stay, uint64_t bytes)
{
    if (stay == CACHE_EVICTED) {
        e->result->files++;
        e->result->bytes += bytes;
        return;
    }
    e->result->stay[stay]++;
    if (e->stays)
        e->stays(e->arg, path, stay);
}

/* What a use began since it was judged makes of it what is in use. */
static enum cache_stay evict_node(struct cache *c, struct node *n, enum cache_stay stay)
    REQUIRES(cache_ns)
{
    int r = stay == CACHE_EVICTED ? file_evict(c, n) : 0;

    return r < 0 ? CACHE_STAYS_USED : stay;
}

static void evict_taken(struct evicting *e, struct node *n)
{
    struct cache *c = e->cache;
    auto_free char *path = NULL;
    enum cache_stay stay = CACHE_EVICTED;
    uint64_t bytes = 0;

    ns_write(c);
    cache_lock(c);
    path = n->file ? node_path(n) : NULL;
    if (path) {
        bytes = n->file->blocks_bytes;
        stay = judge_locked(c, n, path);
    }
    /* A stub has nothing to give; but an empty file that no store has looks like one. */
    if (path && file_is_stub(n) && stay != CACHE_STAYS_DIRTY && stay != CACHE_STAYS_LOCAL)
        free(take_ptr(path));
    cache_unlock(c);
    if (path)
        stay = evict_node(c, n, stay);
    ns_done(c);
    if (path)
        tell(e, path, stay, bytes);
}

int cache_evict_path(struct cache *c, const char *path, struct op *op, cache_stays stays,
                     void *arg, struct cache_evicted *ret)
{
    struct evicting e = {.cache = c, .stays = stays, .arg = arg, .result = ret};

    *ret = (struct cache_evicted){0};
    cache_lock(c);
    struct node *top = tree_find(c, path, NULL);
    int r = top ? tree_each(top, take_node, &e) : 0; /* what is not known here has no content */
    cache_unlock(c);
    for (size_t i = 0; i < e.n; i++) {
        if (r == 0)
            r = op_check(op);
        if (r == 0) {
            await_end(c, e.nodes[i], op);
            evict_taken(&e, e.nodes[i]);
        }
    }
    cache_lock(c);
    for (size_t i = 0; i < e.n; i++)
        node_unref_locked(c, e.nodes[i]);
    waitq_wake_locked(c, &c->space_waiters, 0);
    cache_unlock(c);
    free(e.nodes);
    return r < 0 && !op->why[0] ? op_fail(op, r, "evict %s: %s", path, strerror(-r)) : r;
}
