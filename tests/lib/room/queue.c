/* What a store is owed, of a cache that is made by hand. */
#include "cache/queue/queue.h"
#include "tests/lib/room/room_impl.h"

#include <stdlib.h>

static void free_queue(struct cache *c)
{
    ns_write(c);
    cache_lock(c);
    while (c->queue->dirty_dirs)
        dir_unqueue_locked(c, c->queue->dirty_dirs);
    while (c->queue->intents)
        intent_remove_locked(c, c->queue->intents);
    doubt_free(c);
    tombstones_free(c);
    free(c->queue->waits);
    cache_unlock(c);
    ns_done(c);
    free(c->queue);
}

void room_queue(struct cache *c)
{
    c->queue = calloc(1, sizeof(*c->queue));
    ck_assert_ptr_nonnull(c->queue);
    room_ends_with(c, free_queue);
}
