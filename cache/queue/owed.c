/* The walk over all that is owed, and the note of an attempt that failed. */
#include "cache/queue/queue_impl.h"

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

void owed_failed_locked(struct cache *c, struct debt *d, int err, const char *why)
{
    cache_assert_locked(c);
    debt_failed(d, clock_mono_ns(), err, why, retry_delay_ns(c, d->attempts + 1));
    failure_note_locked(c, &c->write_failure, err, why);
}
