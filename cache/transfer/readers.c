/* Programs that still read what is about to go from the store: files that were unlinked or
 * replaced while they were open. */
#include "cache/transfer/transfer_impl.h"

/* Whether the open file without a name reads what lies there (or below). */
static bool reads_there(const struct node *n, struct place at, bool below) REQUIRES(cache_mutex)
{
    const struct place source = n->file->orphan_source;

    return place_known(source) &&
           (place_same(source, at) || (below && place_below(at, source)));
}

bool readers_need_locked(struct cache *c, struct place at, bool below)
{
    cache_assert_locked(c);
    stale_readers_forget_locked(c);
    for (size_t i = 0; i < c->content->n_stale_readers; i++)
        if (reads_there(c->content->stale_readers[i], at, below))
            return true;
    return false;
}

/* Starts the fetch of all of it; nobody waits for that here. */
static void fetch_for_reader(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct waiter none = {0};
    struct waitq *q = &n->file->range_waiters;

    n->file->needed_whole = true;
    if (fetch_complete_locked(c, n, &none) != CACHE_PARKED)
        return;
    struct waiter **last = &q->head;
    while (*last != &none)
        last = &(*last)->next;
    *last = NULL;
    q->tail = last;
}

bool readers_let_go_locked(struct pass *p, enum order order, struct debt *d, struct place at,
                           bool below)
{
    struct cache *c = p->cache;
    bool needed = order == ORDER_READERS;

    cache_assert_locked(c);
    if (order == ORDER_WAIT)
        return false;
    for (size_t i = 0; needed && i < c->content->n_stale_readers; i++)
        if (reads_there(c->content->stale_readers[i], at, below))
            fetch_for_reader(c, c->content->stale_readers[i]);
    return !debt_waits_for_readers(d, needed, p->now_ns, READERS_NS, READERS_MOST_NS,
                                   p->next_ns);
}
