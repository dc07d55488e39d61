/* What is asked of a store, of a cache that is made by hand. */
#include "cache/listing/listing.h"
#include "tests/lib/room/room_impl.h"

void room_listing(struct cache *c)
{
    ck_assert_int_eq(listings_new(c), 0);
    room_ends_with(c, listings_free);
}
