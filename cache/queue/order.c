/* The order at the store: which intention, and which upload, waits for which (docs/format.md,
 * section 4). */
#include "cache/queue/queue_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <stdlib.h>
#include <string.h>

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

bool intent_touches(const struct intent *i, const char *path)
{
    if (intent_is_rename(i))
        return overlap(i->from, path) || overlap(i->to, path);
    return strcmp(i->from, path) == 0;
}

/* Many stores, S3 servers among them, put nothing at or below a name of the other kind: what
 * was a file and is a directory now, or the reverse. Its removal can't wait for the uploads
 * that were closed before it: those that it is in the way of wait for it. */
static bool in_the_way(struct cache *c, const struct intent *i)
{
    auto_free char *at = strdup(i->from);
    bool was_dir = i->kind == INTENT_RMDIR;

    while (at && *at) {
        struct node *n = tree_find(c, at, NULL);
        if (n)
            return (n->dir != NULL) != was_dir;
        char *end = strrchr(at, '/');
        *(end ? end : at) = '\0';
        was_dir = true;
    }
    return false;
}

/* Whether something of the rename's kind can't be at `path` before the removal is done: what it
 * removes has the name, or one above or below it, and is of the other kind. */
static bool conflicts(const struct intent *removal, const struct intent *rename,
                      const char *path)
{
    bool dir_goes = removal->kind == INTENT_RMDIR;
    bool dir_comes = rename->kind == INTENT_RENAMEDIR;

    if (strcmp(removal->from, path) == 0)
        return dir_goes != dir_comes;
    if (path_below(removal->from, path))
        return !dir_goes;
    return path_below(path, removal->from) && !dir_comes;
}

/* A rename neither takes along what is removed first, nor finds it in its way. */
static bool waits_for(const struct intent *rename, const struct intent *removal)
    REQUIRES(cache_mutex)
{
    return conflicts(removal, rename, rename->from) || conflicts(removal, rename, rename->to) ||
           (removal->urgent && path_below(rename->to, removal->from));
}

bool intent_later_rename_waits(struct cache *c, const struct intent *removal)
{
    const struct intent *i;

    cache_assert_locked(c);
    for (i = rename_last_locked(c); i && i->seq > removal->seq; i = rename_before_locked(c, i))
        if (waits_for(i, removal))
            return true;
    return false;
}

bool intent_is_urgent(struct cache *c, const struct intent *removal)
{
    cache_assert_locked(c);
    return in_the_way(c, removal) || intent_later_rename_waits(c, removal);
}

bool intent_removal_in_the_way(struct cache *c, const struct intent *rename)
{
    const struct intent *i;

    cache_assert_locked(c);
    for (i = row_first(c); i && i != rename; i = row_next(i))
        if (!intent_is_rename(i) && !i->debt.error && waits_for(rename, i))
            return true;
    return false;
}

static bool blocks_upload(struct cache *c, const struct intent *i, const char *path, bool dir)
    REQUIRES(cache_mutex)
{
    /* A directory has room for files that come and go below it. */
    bool below = dir && i->kind == INTENT_RENAME && !path_below(i->from, path) &&
                 !path_below(i->to, path);

    if ((intent_is_rename(i) || i->debt.running) && !below && intent_touches(i, path))
        return true;
    return !intent_is_rename(i) && !i->debt.error && overlap(i->from, path) && in_the_way(c, i);
}

bool intent_blocks_upload_locked(struct cache *c, const char *path, bool dir)
{
    struct intent *i;

    cache_assert_locked(c);
    ROWS_FOREACH(c, i)
    {
        if (blocks_upload(c, i, path, dir))
            return true;
    }
    return false;
}

/* Whether the intention has to wait for `first`, which comes before it. */
static bool follows(const struct intent *i, const struct intent *first) REQUIRES(cache_mutex)
{
    if (intent_is_rename(first))
        return intent_touches(first, i->from) || (i->to && intent_touches(first, i->to));
    return intent_is_rename(i) && !first->debt.error && waits_for(i, first);
}

bool intents_look_stuck_locked(struct cache *c, int64_t since_ns)
{
    struct intent *i, *first;
    bool any = false;

    cache_assert_locked(c);
    ROWS_FOREACH(c, i)
    {
        i->stuck = i->debt.error && i->debt.failing_ns < since_ns;
        for (first = any ? row_first(c) : i; first != i && !i->stuck; first = row_next(first))
            i->stuck = first->stuck && follows(i, first);
        any = any || i->stuck;
    }
    return any;
}

bool stuck_intent_blocks_locked(struct cache *c, const char *path)
{
    struct intent *i;

    cache_assert_locked(c);
    ROWS_FOREACH(c, i)
    {
        if (i->stuck && blocks_upload(c, i, path, false))
            return true;
    }
    return false;
}

bool intent_earlier_rename_touches(struct cache *c, const struct intent *self, const char *path)
{
    const struct intent *i;

    cache_assert_locked(c);
    for (i = rename_first_locked(c); i && i->seq < self->seq; i = rename_next(i))
        if (intent_touches(i, path))
            return true;
    return false;
}

bool intent_comes_first(struct cache *c, const struct intent *i)
{
    cache_assert_locked(c);
    return !intent_earlier_rename_touches(c, i, i->from) &&
           !intent_earlier_rename_touches(c, i, i->to);
}

bool intents_before_locked(struct cache *c, uint64_t seq)
{
    cache_assert_locked(c);
    return row_first(c) && row_first(c)->seq < seq;
}
