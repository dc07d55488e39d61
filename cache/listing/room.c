/* The room's part of a cache: made, opened, freed. */
#include "cache/listing/index.h"

#include <errno.h>
#include <stdlib.h>

int listings_new(struct cache *c)
{
    c->listing = calloc(1, sizeof(*c->listing));
    return c->listing ? 0 : -ENOMEM;
}

int listings_open(struct cache *c, unsigned caps)
{
    bool asks = (caps & STORE_ATTRS) && !(caps & STORE_LIST_ATTRS);

    c->listing->asks_dirs = asks && !(caps & STORE_DIRS);
    c->listing->has_index = asks && (caps & STORE_STATE);
    return c->listing->has_index && (caps & STORE_ORDER) ? index_tree_init(c) : 0;
}

void listings_free(struct cache *c)
{
    if (!c->listing)
        return;
    cache_lock(c);
    index_tree_free(c);
    cache_unlock(c);
    free(c->listing);
    c->listing = NULL;
}

bool listing_asks_dirs(const struct cache *c)
{
    return c->listing->asks_dirs;
}

void listing_dir_moved_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->listing->dir_moves++;
}
