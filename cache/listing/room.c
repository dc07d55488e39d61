/* The room's part of a cache: made, opened, freed. */
#include "cache/listing/index.h"

#include <errno.h>
#include <stdlib.h>

int listings_new(struct cache *c)
{
    c->listing = calloc(1, sizeof(*c->listing));
    return c->listing ? 0 : -ENOMEM;
}

/* Whether only a request of its own tells a directory's attributes. */
static bool asks_dirs(unsigned caps)
{
    return (caps & (STORE_ATTRS | STORE_LIST_ATTRS | STORE_DIRS)) == STORE_ATTRS;
}

int listings_open(struct cache *c, unsigned caps)
{
    bool asks = (caps & STORE_ATTRS) && !(caps & STORE_LIST_ATTRS);

    /* Of several stores some may: each is looked at where it is. */
    c->listing->asks_dirs = asks_dirs(caps) || c->config.routes;
    c->listing->has_index = asks && (caps & STORE_STATE);
    return c->listing->has_index && (caps & STORE_ORDER) ? index_tree_init(c) : 0;
}

void listings_free(struct cache *c)
{
    if (!c->listing)
        return;
    cache_lock(c);
    index_tree_free(c);
    noted_forget_locked(c);
    cache_unlock(c);
    free(c->listing);
    c->listing = NULL;
}

bool listing_asks_dir(struct cache *c, struct place at)
{
    struct store_facts facts;

    if (!c->listing->asks_dirs || !c->config.routes || !place_known(at))
        return c->listing->asks_dirs;
    store_dir_facts(c->store, at.key, &facts);
    return asks_dirs(facts.caps);
}

void listing_dir_moved_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->listing->dir_moves++;
}
