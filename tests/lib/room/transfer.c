/* What is on its way to a store, of a cache that is made by hand. */
#include "cache/transfer/transfer.h"
#include "tests/lib/room/room_impl.h"

void room_transfer(struct cache *c)
{
    ck_assert_int_eq(transfers_new(c), 0);
    ck_assert_int_eq(transfers_open(c), 0);
    room_ends_with(c, transfers_free);
}
