/* Where rows lead what the store has: which path is which place before, while and after they
 * are carried out. */
#include "cache/queue/queue_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- while they run ---- */

static bool rename_runs(const struct intent *i, struct place at) REQUIRES(cache_mutex)
{
    return (i->debt.running || i->redo) && place_below(intent_source(i), at);
}

bool rename_runs_at_locked(struct cache *c, struct place at)
{
    struct intent *i;

    cache_assert_locked(c);
    RENAMES_FOREACH(c, i)
    {
        if (rename_runs(i, at))
            return true;
    }
    return false;
}

bool native_rename_runs_at_locked(struct cache *c, struct place at)
{
    struct intent *i;

    cache_assert_locked(c);
    RENAMES_FOREACH(c, i)
    {
        if (rename_runs(i, at) && store_can(c->store, intent_source(i).key, STORE_RENAME))
            return true;
    }
    return false;
}

bool rename_is_taken_over_at_locked(struct cache *c, struct place at)
{
    struct intent *i;

    cache_assert_locked(c);
    if (c->queue->renames == 0)
        return false;
    ROWS_FOREACH(c, i)
    {
        if (i->taken_over && place_below(intent_source(i), at))
            return true;
    }
    return false;
}

/* ---- paths ---- */

static char *take_moved(char *at, const char *to, const char *rest)
{
    char *moved = path_join(to, rest);

    free(at);
    return moved;
}

bool intent_forward(const struct intent *i, char **at)
{
    const char *rest = intent_is_rename(i) ? path_below(i->from, *at) : NULL;

    if (!rest || (*rest && i->kind != INTENT_RENAMEDIR))
        return false;
    *at = take_moved(*at, i->to, rest);
    return true;
}

enum intent_back intent_backward(const struct intent *i, char **at)
{
    bool dir = i->kind == INTENT_RENAMEDIR;
    const char *came = intent_is_rename(i) ? path_below(i->to, *at) : NULL;
    const char *left = intent_is_rename(i) ? path_below(i->from, *at) : NULL;

    if (came && (dir || !*came)) {
        *at = take_moved(*at, i->from, came);
        return INTENT_CAME;
    }
    return left && (dir || !*left) ? INTENT_LEFT : INTENT_STAYS;
}

char *intent_path_after(const struct intent *first, const char *path)
{
    char *at = strdup(path);

    for (const struct intent *i = first; at && i; i = row_next(i))
        (void)intent_forward(i, &at);
    return at;
}

char *intent_lasting_path(const struct intent *first, const char *path)
{
    auto_free char *at = strdup(path);

    for (const struct intent *i = first; at && i; i = row_next(i)) {
        bool moved = intent_forward(i, &at);
        const char *taken = intent_is_rename(i) ? i->to : i->from;
        if (!moved && strcmp(taken, at) == 0)
            return NULL;
    }
    return take_ptr(at);
}

bool intent_leads_to(struct cache *c, struct place from, bool is_dir, const char *path)
{
    /* Before the first of them a path and its place are one. What a rename replaces has its
     * name until then. */
    auto_free char *at = strdup(place_path(from));

    cache_assert_locked(c);
    for (const struct intent *i = row_first(c); at && i; i = row_next(i)) {
        bool removes = !intent_is_rename(i) && intent_kind_is_of_dir(i->kind) == is_dir;
        if (removes && strcmp(i->from, at) == 0)
            return false;
        (void)intent_forward(i, &at);
    }
    return at && strcmp(at, path) == 0;
}

/* ---- below a directory ---- */

static bool any(void *arg, const struct intent *i, const char *at)
{
    (void)arg;
    (void)i;
    (void)at;
    return true;
}

bool intent_below(struct cache *c, const char *path)
{
    return intent_below_is(c, path, any, NULL) != 0; /* a row too many does no harm */
}

static bool is_in(const char *dir, const char *path)
{
    const char *rest = path_below(dir, path);

    return rest && !strchr(rest, '/');
}

bool intent_is_of_name_in(const struct intent *i, const char *dir)
{
    return is_in(dir, i->from) || (i->to && is_in(dir, i->to));
}

int intent_below_is(struct cache *c, const char *path,
                    bool (*is)(void *arg, const struct intent *i, const char *at), void *arg)
{
    auto_free char *at = strdup(path);
    struct intent *i = row_last(c); /* the last */

    cache_assert_locked(c);
    /* Backwards, since the directory had other names when older intentions were recorded. */
    for (; i && at; i = row_prev(i)) {
        bool below = path_below(at, i->from) || (i->to && path_below(at, i->to));
        if (below && is(arg, i, at))
            return 1;
        (void)intent_backward(i, &at);
    }
    return !at && row_first(c) ? -ENOMEM : 0;
}
