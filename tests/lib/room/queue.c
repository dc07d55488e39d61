/* What a store is owed, of a cache that is made by hand. */
#include "cache/queue/queue.h"
#include "tests/lib/room/room_impl.h"

static void free_queue(struct cache *c)
{
    ns_write(c);
    cache_lock(c);
    while (c->queue->owed[DEBT_FILE].first)
        file_unqueue_locked(c, debt_file(c->queue->owed[DEBT_FILE].first));
    while (c->queue->owed[DEBT_DIR].first)
        dir_unqueue_locked(c, debt_dir(c->queue->owed[DEBT_DIR].first));
    while (row_first(c))
        intent_remove_locked(c, row_first(c));
    cache_unlock(c);
    ns_done(c);
    queue_free(c);
}

void room_queue(struct cache *c)
{
    ck_assert_int_eq(queue_new(c), 0);
    ck_assert_int_eq(queue_open(c), 0);
    ck_assert_int_eq(origins_open(c), 0);
    room_ends_with(c, free_queue);
}
