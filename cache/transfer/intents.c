/* The intentions' turns: which rename or removal may start now, and when one that failed is
 * tried again. */
#include "cache/transfer/transfer_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <stdlib.h>
#include <string.h>

static bool running_removal_touches(struct cache *c, const char *path, bool below)
    REQUIRES(cache_mutex)
{
    struct intent *i;

    if (c->transfer->removals_running == 0)
        return false;
    ROWS_FOREACH(c, i)
    {
        if (i->debt.running && !intent_is_rename(i) &&
            (strcmp(i->from, path) == 0 || (below && path_below(path, i->from))))
            return true;
    }
    return false;
}

static bool rename_ready_locked(struct cache *c, struct intent *i, int64_t now, int64_t *next)
    REQUIRES(cache_mutex)
{
    const struct place from = intent_source(i), to = intent_target(i);
    bool below = i->kind == INTENT_RENAMEDIR;

    if (doubt_blocks_intent_locked(c, i))
        return false;
    if (upload_runs_at_locked(c, from, below) || upload_runs_at_locked(c, to, below))
        return false;
    if (dir_upload_runs_at_locked(c, from, below) || dir_upload_runs_at_locked(c, to, below))
        return false;
    /* The marker of a directory that is replaced is removed. */
    if (below && dir_upload_runs_above_locked(c, to, intent_lone_volume(c, i)))
        return false;
    if (running_removal_touches(c, i->from, below) || running_removal_touches(c, i->to, below))
        return false;
    if (below && rmdir_runs_above_locked(c, i->to)) /* it brings markers */
        return false;
    if (!intent_comes_first(c, i))
        return false;
    if (intent_removal_in_the_way(c, i))
        return false;
    return !debt_waits_for_readers_locked(c, &i->debt, to, below, now, next);
}

/* What arrives late below the old name must be listed: the copies begin when nothing can. */
static int64_t rename_due_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    int64_t due_ns = i->debt.due_ns;

    if (i->kind != INTENT_RENAMEDIR)
        return due_ns;
    int64_t until_ns = doubt_puts_below_until_locked(c, intent_source(i));
    if (due_ns < doubt_until_locked(c))
        due_ns = doubt_until_locked(c);
    return due_ns < until_ns ? until_ns : due_ns;
}

static bool renames_begin_locked(struct pass *p)
{
    cache_assert_locked(p->cache);
    return p->cache->queue->renames > 0;
}

static bool start_rename_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct intent *i = debt_row(d);

    cache_assert_locked(c);
    if (!intent_is_rename(i) ||
        c->transfer->volumes[intent_volume(c, i)].copies >= c->config.upload_jobs)
        return true;
    int64_t due_ns = rename_due_locked(c, i);
    if (due_ns > p->now_ns)
        *p->next_ns = due_ns < *p->next_ns ? due_ns : *p->next_ns;
    else if (rename_ready_locked(c, i, p->now_ns, p->next_ns))
        copy_start_locked(c, i);
    return true;
}

const struct starter rename_starter = {DEBT_ROW, renames_begin_locked, start_rename_locked,
                                       NULL};
