/* The room's part of a cache: made, counted, freed. */
#include "cache/ops/ops_impl.h"

#include <errno.h>
#include <stdlib.h>

int opened_new(struct cache *c)
{
    c->ops = calloc(1, sizeof(*c->ops));
    return c->ops ? 0 : -ENOMEM;
}

void opened_free(struct cache *c)
{
    free(c->ops);
    c->ops = NULL;
}

void opened_stats_locked(struct cache *c, struct cache_stats *ret)
{
    cache_assert_locked(c);
    ret->open_handles = c->ops->open_handles;
}
