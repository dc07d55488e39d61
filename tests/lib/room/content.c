/* The mirror files of a cache that is made by hand. */
#include "cache/content/content.h"
#include "cache/tree/tree_impl.h"
#include "tests/lib/room/room_impl.h"

static void end_file_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->file)
        file_free_locked(c, n->file);
}

static void free_content(struct cache *c)
{
    ns_write(c);
    cache_lock(c);
    stale_readers_end_locked(c);
    cache_unlock(c);
    ns_done(c);
    room_clear_tree(c);
    pool_free(c->chores);
    contents_free(c);
}

void room_content(struct cache *c, unsigned fds)
{
    ck_assert_int_eq(contents_new(c), 0);
    c->chores = pool_new("runfs-chore", 1);
    ck_assert_ptr_nonnull(c->chores);
    c->tree->own->hooks.end = end_file_locked;
    fds_init(c, fds);
    room_ends_with(c, free_content);
}
