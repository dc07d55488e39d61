/* The walk over all that is owed, and the note of an attempt that failed. */
#include "cache/queue/queue_impl.h"

/* The longest step between two points of time at which something that failed comes due. */
#define GRID_MOST_NS (250 * NS_PER_MS)

/* The first one from there on that is open for writing and no queue has, or NULL. */
static struct debt *open_from(struct file *f) REQUIRES(cache_mutex)
{
    while (f && (debt_is_queued(&f->debt) || node_is_scratch(f->node)))
        f = f->writer_next;
    return f ? &f->debt : NULL;
}

/* The first one of the kinds from this one on. */
static struct debt *first_from(struct cache *c, int kind) REQUIRES(cache_mutex)
{
    struct debt *d = NULL;

    for (; kind < DEBT_INDEX && !d; kind++) {
        d = c->queue->owed[kind].first;
        if (!d && kind == DEBT_FILE)
            d = open_from(c->content->writers);
    }
    return d;
}

struct debt *owed_first_locked(struct cache *c)
{
    cache_assert_locked(c);
    return first_from(c, DEBT_FILE);
}

struct debt *owed_next_locked(struct cache *c, const struct debt *d)
{
    struct debt *next = d->next;

    cache_assert_locked(c);
    if (!next && d->kind == DEBT_FILE)
        next = open_from(debt_is_queued(d) ? c->content->writers
                                           : container_of(d, struct file, debt)->writer_next);
    return next ? next : first_from(c, d->kind + 1);
}

/* What failed comes due at few points of time: a pass looks at all that is owed, and one for
 * each of some thousand that fail would be a load. */
static int64_t pause_on_grid(const struct cache *c, int64_t now, int64_t pause_ns)
{
    int64_t eighth = c->config.retry_ns / 8;
    int64_t grid = eighth < GRID_MOST_NS ? eighth : GRID_MOST_NS;
    int64_t beyond = grid > 0 ? (now + pause_ns) % grid : 0;

    return beyond ? pause_ns + grid - beyond : pause_ns;
}

void owed_failed_locked(struct cache *c, struct debt *d, int err, const char *why)
{
    int64_t now = clock_mono_ns(), pause_ns = retry_delay_ns(c, d->attempts + 1);

    cache_assert_locked(c);
    debt_failed(d, now, err, why, pause_on_grid(c, now, pause_ns));
    failure_note_locked(c, &c->write_failure, err, why);
}
