/* What a removal means: which version of the object, whether the name is of use again, and
 * until when it has to be repeated. */
#include "cache/queue/queue_impl.h"

#include "cache/mirror/journal.h"
#include "cache/types/etag.h"
#include "common/mem.h"
#include "common/path.h"

#include <string.h>

bool removal_pending(struct cache *c, const char *path)
{
    const struct intent *i = row_of_name_locked(c, path);

    while (i && i->kind != INTENT_RMDIR)
        i = row_of_name_next(i);
    return i != NULL;
}

bool intent_means_ours(const struct intent *i)
{
    return strcmp(i->etag, INTENT_OURS) == 0;
}

bool intent_version_is_known(const struct intent *i)
{
    return *i->etag && strcmp(i->etag, INTENT_ANY) != 0 && !intent_means_ours(i);
}

const char *intent_removes_version(struct cache *c, const char *path)
{
    const char *version = NULL;
    struct intent *i;

    cache_assert_locked(c);
    for (i = row_of_name_locked(c, path); i; i = row_of_name_next(i)) {
        if (i->kind != INTENT_UNLINK || !(intent_version_is_known(i) || intent_means_ours(i)))
            return NULL;
        /* The oldest says what the store has: later ones are of what came there since. */
        if (!version || !*version)
            version = intent_means_ours(i) ? "" : i->etag;
    }
    return version;
}

enum live intent_live_at(struct cache *c, const struct intent *i)
{
    struct entry *e;
    struct node *n = tree_find(c, i->from, &e);

    cache_assert_locked(c);
    if (!n || !e)
        return LIVE_NONE;
    if (n->dir || i->kind == INTENT_RMDIR)
        return LIVE_NONE; /* the object beside a directory goes; a directory that was made again
                             is told to the store after this removal */
    /* Or a rename is still to bring it here, or a directory above it. */
    auto_place struct place at = entry_place(e);
    bool here = place_known(at) && place_same(at, intent_source(i));
    return e->dirty || !here || !etag_known(&e->etag) ? LIVE_WAIT : LIVE_STORED;
}

bool removal_is_bound(struct cache *c, const struct intent *i)
{
    const char *key = intent_source(i).key;

    if (!store_can(c->store, key, STORE_IF_MATCH))
        return false;
    return store_can(c->store, key, STORE_PROMPT) ? intent_was_found(c, i)
                                                  : store_can(c->store, key, STORE_ORIGIN);
}

int64_t comes_back_locked(struct cache *c, const struct intent *i)
{
    int64_t now = clock_mono_ns();

    cache_assert_locked(c);
    if (i->removed_before)
        return 0;
    int64_t until_ns = doubt_put_until_locked(c, intent_source(i), "");
    if ((*i->etag == '\0' || intent_means_ours(i)) && c->queue->own->doubt_until_ns > now &&
        c->queue->own->doubt_until_ns > until_ns)
        until_ns = c->queue->own->doubt_until_ns;
    return until_ns;
}
