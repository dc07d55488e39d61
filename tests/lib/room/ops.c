/* What programs have open, of a cache that is made by hand. */
#include "cache/ops/ops.h"
#include "tests/lib/room/room_impl.h"

void room_ops(struct cache *c)
{
    ck_assert_int_eq(opened_new(c), 0);
    room_ends_with(c, opened_free);
}
