/* Renames: those whose turn it is are begun. */
#include "cache/transfer/transfer_impl.h"

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
    enum order order = order_of_row_locked(c, i, NULL, &on_its_way, p->next_ns);
    if (readers_let_go_locked(p, order, d, intent_target(i), i->kind == INTENT_RENAMEDIR))
        copy_start_locked(c, i);
    return true;
}

const struct starter rename_starter = {DEBT_ROW, renames_begin_locked, start_rename_locked,
                                       NULL};
