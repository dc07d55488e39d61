/* Programs that still read what is about to go from the store: files that were unlinked or
 * replaced while they were open. */
#include "cache/transfer/transfer_impl.h"

/* Whether open files without a name still read what lies there (or below); their fetches are
 * started. */
static bool readers_need_locked(struct cache *c, struct place at, bool below)
    REQUIRES(cache_mutex)
{
    bool need = false;

    stale_readers_forget_locked(c);
    for (size_t i = 0; i < c->content->n_stale_readers; i++) {
        struct node *n = c->content->stale_readers[i];
        const struct place source = n->file->orphan_source;
        if (!place_known(source) ||
            (!place_same(source, at) && !(below && place_below(at, source))))
            continue;
        need = true;
        struct waiter none = {0};
        struct waitq *q = &n->file->range_waiters;
        /* Starts the fetches; nobody waits for them here. */
        n->file->needed_whole = true;
        if (fetch_complete_locked(c, n, &none) == CACHE_PARKED) {
            struct waiter **last = &q->head;
            while (*last != &none)
                last = &(*last)->next;
            *last = NULL;
            q->tail = last;
        }
    }
    return need;
}

bool debt_waits_for_readers_locked(struct cache *c, struct debt *d, struct place at, bool below,
                                   int64_t now, int64_t *next)
{
    bool needed = c->content->n_stale_readers && readers_need_locked(c, at, below);

    cache_assert_locked(c);
    return debt_waits_for_readers(d, needed, now, READERS_NS, READERS_MOST_NS, next);
}
