/* The room's part of a cache: made, counted, freed. */
#include "cache/content/content_impl.h"

#include <errno.h>
#include <stdlib.h>

struct contents_part {
    struct contents contents; /* first: it is freed as this */
    struct contents_own own;
};

int contents_new(struct cache *c)
{
    struct contents_part *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->contents.own = &p->own;
    c->content = &p->contents;
    return 0;
}

void contents_free(struct cache *c)
{
    if (!c->content)
        return;
    cache_lock(c);
    free(c->content->stale_readers);
    cache_unlock(c);
    free(c->content);
    c->content = NULL;
}

void contents_stats_locked(struct cache *c, struct cache_stats *ret)
{
    const struct contents *t = c->content;
    const struct fd_cache *fds = &t->own->fds;

    cache_assert_locked(c);
    ret->used_bytes = t->used_bytes;
    ret->disk_free_bytes = t->disk_free_bytes;
    ret->mirror_files = t->own->mirror_files;
    ret->fds_open = fds->open;
    ret->fds_limit = fds->limit;
    ret->fds_refused = fds->refused;
}
