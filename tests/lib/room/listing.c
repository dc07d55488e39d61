/* What is asked of a store, of a cache that is made by hand. */
#include "cache/listing/listing.h"
#include "cache/tree/tree_impl.h"
#include "tests/lib/room/room_impl.h"

static void end_node_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->dir)
        list_ahead_free(n->dir->ahead);
    if (n->file)
        file_free_locked(c, n->file);
}

void room_listing(struct cache *c)
{
    ck_assert_int_eq(listings_new(c), 0);
    c->tree->own->hooks.end = end_node_locked;
    room_ends_with(c, listings_free);
}
