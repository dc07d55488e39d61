/* Places where the store has, or may have, something although its name is gone here. */
#include "cache/queue/queue_impl.h"

#include "common/lock.h"

#include <stdlib.h>
#include <string.h>

/* ---- tombstones ---- */

/* How long a listing may take; a younger one can't show what was removed before it. */
#define TOMBSTONE_KEEP_NS (600 * NS_PER_SEC)

unsigned tombstone_pending(struct cache *c, struct place at)
{
    struct tombstone *g;

    cache_assert_locked(c);
    HASH_FIND_STR(c->queue->own->tombstones, at.key, g);
    return g ? g->of[false].pending + g->of[true].pending : 0;
}

static bool is_pending(struct cache *c, struct place at, bool is_dir) REQUIRES(cache_mutex)
{
    struct tombstone *g;

    HASH_FIND_STR(c->queue->own->tombstones, at.key, g);
    return g && g->of[is_dir].pending > 0;
}

/* Whether what lay there was removed, or moved away with a directory above it, since. */
static bool removed_since(struct cache *c, struct place at, bool is_dir, int64_t listed_ns)
    REQUIRES(cache_mutex)
{
    for (const char *end = at.key; *end; end++) {
        struct tombstone *g;
        if (end[1] != '/' && end[1] != '\0')
            continue;
        HASH_FIND(hh, c->queue->own->tombstones, at.key, (size_t)(end + 1 - at.key), g);
        bool dir = end[1] || is_dir;
        if (g && g->of[dir].pending == 0 && g->of[dir].done_ns >= listed_ns &&
            (!end[1] || g->with_tree))
            return true;
    }
    return false;
}

bool tombstone_hides(struct cache *c, struct place at, bool is_dir, const char *path,
                     int64_t listed_ns)
{
    cache_assert_locked(c);
    if (removed_since(c, at, is_dir, listed_ns))
        return true;
    /* Without renames nothing moves: only the removal of what lies there counts. */
    return c->queue->renames == 0 ? is_pending(c, at, is_dir)
                                  : !intent_leads_to(c, at, is_dir, path);
}

static void tombstones_purge(struct cache *c) REQUIRES(cache_mutex)
{
    struct tombstone *g, *next;
    int64_t old = clock_mono_ns() - TOMBSTONE_KEEP_NS;

    HASH_ITER(hh, c->queue->own->tombstones, g, next)
    {
        bool pending = g->of[false].pending || g->of[true].pending;
        if (pending || g->of[false].done_ns > old || g->of[true].done_ns > old)
            continue;
        HASH_DEL(c->queue->own->tombstones, g);
        free(g);
    }
}

void tombstone_count_locked(struct cache *c, struct place at, enum intent_kind kind, int by)
{
    bool is_dir = intent_kind_is_of_dir(kind);
    struct tombstone *g;

    cache_assert_locked(c);
    HASH_FIND_STR(c->queue->own->tombstones, at.key, g);
    if (!g && by > 0) {
        size_t len = strlen(at.key);
        g = calloc(1, sizeof(*g) + len + 1);
        if (!g)
            return; /* a listing may show the name until the store lost it */
        memcpy(g->key, at.key, len + 1);
        if (HASH_COUNT(c->queue->own->tombstones) % 1024 == 1023)
            tombstones_purge(c);
        HASH_ADD_KEYPTR(hh, c->queue->own->tombstones, g->key, len, g);
        if (TABLE_LACKS(hh, g)) {
            free(g);
            return; /* the same */
        }
    }
    if (!g)
        return;
    g->of[is_dir].pending = (unsigned)((int)g->of[is_dir].pending + by);
    if (by > 0)
        return;
    g->of[is_dir].done_ns = clock_mono_ns();
    if (is_dir)
        g->with_tree = kind == INTENT_RENAMEDIR;
}

void tombstones_free(struct cache *c)
{
    struct tombstone *g, *next;

    cache_assert_locked(c);
    HASH_ITER(hh, c->queue->own->tombstones, g, next)
    {
        HASH_DEL(c->queue->own->tombstones, g);
        free(g);
    }
}
