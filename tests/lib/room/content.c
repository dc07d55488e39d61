/* The mirror files of a cache that is made by hand. */
#include "cache/content/content.h"
#include "cache/tree/tree_impl.h"
#include "tests/lib/room/room_impl.h"

#include <stdlib.h>

static void end_file_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->file)
        file_free_locked(c, n->file);
}

static void free_content(struct cache *c)
{
    ns_write(c);
    cache_lock(c);
    while (c->content->n_stale_readers > 0)
        node_unref_locked(c, c->content->stale_readers[--c->content->n_stale_readers]);
    cache_unlock(c);
    ns_done(c);
    room_clear_tree(c);
    pool_free(c->chores);
    free(c->content->stale_readers);
    free(c->content);
}

void room_content(struct cache *c, unsigned fds)
{
    c->content = calloc(1, sizeof(*c->content));
    c->chores = pool_new("runfs-chore", 1);
    ck_assert(c->content && c->chores);
    c->tree->own->hooks.end = end_file_locked;
    fds_init(c, fds);
    room_ends_with(c, free_content);
}
