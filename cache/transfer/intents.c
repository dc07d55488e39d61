/* Renames: those whose turn it is are begun. */
#include "cache/transfer/transfer_impl.h"

/* Who ends a copy asks for a pass: until then the rows need not be looked at. */
static bool slot_is_free_locked(struct cache *c) REQUIRES(cache_mutex)
{
    return c->transfer->copies_running < uploads_max(c);
}

static bool renames_begin_locked(struct pass *p)
{
    cache_assert_locked(p->cache);
    return p->cache->queue->renames > 0 && slot_is_free_locked(p->cache);
}

static bool start_rename_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct intent *i = debt_row(d);

    cache_assert_locked(c);
    if (!intent_is_rename(i) ||
        c->transfer->volumes[intent_volume(c, i)].copies >= c->config.upload_jobs)
        return true;
    enum order order = order_of_row_locked(c, i, NULL, &on_its_way, p->next_ns);
    if (readers_let_go_locked(p, order, d, intent_target(i), i->kind == INTENT_RENAMEDIR))
        copy_start_locked(c, i);
    return slot_is_free_locked(c);
}

const struct starter rename_starter = {DEBT_ROW, renames_begin_locked, start_rename_locked,
                                       NULL};
