/* The room's part of a cache: made, checked, freed. */
#include "cache/queue/queue_impl.h"

#include <errno.h>
#include <stdlib.h>

struct queue_part {
    struct queue queue; /* first: it is freed as this */
    struct queue_own own;
};

int queue_new(struct cache *c)
{
    struct queue_part *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->queue.own = &p->own;
    c->queue = &p->queue;
    return 0;
}

int queue_open(struct cache *c)
{
    c->queue->volumes = calloc(volumes_count(c), sizeof(*c->queue->volumes));
    return c->queue->volumes ? 0 : -ENOMEM;
}

bool stores_take_conditions(struct cache *c)
{
    bool all = true;

    cache_lock(c);
    for (unsigned i = 0; i < volumes_count(c); i++)
        all = all && !c->queue->volumes[i].unconditional;
    cache_unlock(c);
    return all;
}

void queue_free(struct cache *c)
{
    if (!c->queue)
        return;
    cache_lock(c);
    for (int kind = 0; kind < DEBT_KINDS; kind++)
        assert(!c->queue->owed[kind].first); /* what stands there would outlive it */
    while (c->queue->locks)
        lock_remove_locked(c, c->queue->locks);
    doubt_free(c);
    tombstones_free(c);
    assert(!c->queue->own->units);
    free(c->queue->own->waits);
    cache_unlock(c);
    for (unsigned i = 0; c->queue->volumes && i < volumes_count(c); i++)
        lease_free(c->queue->volumes[i].lease);
    origins_free(c);
    free(c->queue->volumes);
    free(c->queue);
    c->queue = NULL;
}

#ifndef NDEBUG
/* Walking all of a long queue at each change would be felt: it is cut short. */
#define LOOK_AT 200
/* Rows that are looked up by their paths, which takes longer. */
#define LOOK_UP 20

void queue_check_locked(struct cache *c)
{
    struct intent *i;
    unsigned renames = 0, moved = 0;
    struct file *f;
    uint64_t first = 0;
    int n = 0, rows = 0;

    cache_assert_locked(c);
    OWED_FILES_FOREACH(c, f)
    {
        assert(debt_is_queued(&f->debt) && !f->in_lru);
        file_check_locked(c, f);
        assert(!f->debt.seq || f->debt.seq > first);
        first = f->debt.seq ? f->debt.seq : first;
        if (++n > LOOK_AT)
            break;
    }
    ROWS_FOREACH(c, i)
    {
        renames += i->kind == INTENT_RENAME || i->kind == INTENT_RENAMEDIR;
        moved += i->moved_to != NULL;
        if (++rows <= LOOK_UP)
            row_check_locked(c, i);
    }
    assert(renames == c->queue->renames && moved == c->queue->moved);
}
#endif
