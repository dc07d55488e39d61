/* Programs that still read what is about to go from the store: files that were unlinked or
 * replaced while they were open. */
#include "cache/transfer/transfer_impl.h"

#include "common/path.h"

#include <string.h>

bool readers_need_locked(struct cache *c, const char *path, bool below)
{
    bool need = false;

    cache_assert_locked(c);
    stale_readers_forget_locked(c);
    for (size_t i = 0; i < c->content->n_stale_readers; i++) {
        struct node *n = c->content->stale_readers[i];
        const char *key = n->file->orphan_key;
        if (!key || (strcmp(key, path) != 0 && !(below && path_below(path, key))))
            continue;
        need = true;
        struct waiter none = {0};
        struct waitq *q = &n->file->range_waiters;
        /* Starts the fetches; nobody waits for them here. */
        n->file->needed_whole = true;
        if (fetch_complete_locked(c, n, &none) == CACHE_PARKED) {
            struct waiter **at = &q->head;
            while (*at != &none)
                at = &(*at)->next;
            *at = NULL;
            q->tail = at;
        }
    }
    return need;
}

bool intent_waits_for_readers_locked(struct cache *c, struct intent *i, const char *path,
                                     int64_t now, int64_t *next)
{
    if (c->content->n_stale_readers == 0 || i->attempts > READERS_TRIES ||
        !readers_need_locked(c, path, i->kind == INTENT_RENAMEDIR))
        return false;
    i->attempts++;
    i->due_ns = now + READERS_NS;
    *next = i->due_ns < *next ? i->due_ns : *next;
    return true;
}
