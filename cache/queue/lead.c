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

static bool runs(void *c, struct intent *i) REQUIRES(cache_mutex)
{
    (void)c;
    return i->debt.running || i->redo;
}

static bool runs_natively(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    return runs(c, i) && store_can(c->store, intent_source(i).key, STORE_RENAME);
}

static bool is_taken_over(void *c, struct intent *i) REQUIRES(cache_mutex)
{
    (void)c;
    return i->taken_over;
}

/* Whether a rename of what lies there, or of a directory around it, is such a one. */
static bool any_rename_at(struct cache *c, struct place at,
                          bool (*is)(void *c, struct intent *i)) REQUIRES(cache_mutex)
{
    const struct row_ask ask = {
        .sets = ROWS_LEAVING, .path = place_path(at), .is = is, .arg = c};

    cache_assert_locked(c);
    return c->queue->renames && row_over_locked(c, &ask);
}

bool rename_runs_at_locked(struct cache *c, struct place at)
{
    return any_rename_at(c, at, runs);
}

bool native_rename_runs_at_locked(struct cache *c, struct place at)
{
    return any_rename_at(c, at, runs_natively);
}

bool rename_is_taken_over_at_locked(struct cache *c, struct place at)
{
    return any_rename_at(c, at, is_taken_over);
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

    for (const struct intent *i = first; at && (i = row_over_from(i, at)); i = row_next(i))
        (void)intent_forward(i, &at);
    return at;
}

char *intent_lasting_path(const struct intent *first, const char *path)
{
    auto_free char *at = strdup(path);

    for (const struct intent *i = first; at && (i = row_over_from(i, at)); i = row_next(i)) {
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
    const struct intent *i = row_first(c);

    cache_assert_locked(c);
    for (; at && (i = row_over_from(i, at)); i = row_next(i)) {
        bool removes = !intent_is_rename(i) && intent_kind_is_of_dir(i->kind) == is_dir;
        if (removes && strcmp(i->from, at) == 0)
            return false;
        (void)intent_forward(i, &at);
    }
    return at && strcmp(at, path) == 0;
}

/* ---- below a directory ---- */

/* Whether a row up to `last` has a path at or below *at, which goes back to what it was called
 * before the row that is returned: the newest that concerns what is above; NULL: there are no
 * more. */
static const struct intent *back_over(struct cache *c, const struct intent *last, char **at,
                                      bool *ret_below) REQUIRES(cache_mutex)
{
    const struct intent *i = row_over_until(last, *at);
    const struct row_ask later = {
        .sets = ROWS_ALL, .path = *at, .since = i ? i->seq + 1 : 0, .until = last->seq + 1};

    *ret_below = row_below_locked(c, &later) ||
                 (i && (path_below(*at, i->from) || (i->to && path_below(*at, i->to))));
    if (i)
        (void)intent_backward(i, at);
    return i;
}

bool intent_below(struct cache *c, const char *path)
{
    auto_free char *at = strdup(path);
    const struct intent *i = row_last(c);
    bool below = false;

    cache_assert_locked(c);
    /* Backwards, since the directory had other names when older intentions were recorded. */
    while (i && at && !below) {
        i = back_over(c, i, &at, &below);
        i = i ? row_prev(i) : NULL;
    }
    return below || (!at && row_first(c)); /* a row too many does no harm */
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
    /* The rows are asked in their order, if there are any to ask. */
    bool any = intent_below(c, path);
    auto_free char *at = any ? strdup(path) : NULL;
    struct intent *i = row_last(c); /* the last */

    cache_assert_locked(c);
    for (; i && at; i = row_prev(i)) {
        bool below = path_below(at, i->from) || (i->to && path_below(at, i->to));
        if (below && is(arg, i, at))
            return 1;
        (void)intent_backward(i, &at);
    }
    return any && !at && row_first(c) ? -ENOMEM : 0;
}
