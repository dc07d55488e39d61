/* The invariant checker of debug builds: docs/format.md, section 3. */
#include "cache/transfer/transfer_impl.h"

#ifndef NDEBUG
void cache_check_locked(struct cache *c)
{
    cache_assert_locked(c);
    assert(c->transfer->n_uploading == c->queue->uploads_running);
    contents_check_locked(c);
    queue_check_locked(c);
}
#endif
