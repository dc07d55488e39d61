/* The limit layer: at most N requests at a time; the others wait in order of arrival.
 *
 * Each waiter has a place in a queue and a condition of its own, so that a freed slot goes to
 * the oldest and to nobody else. A cancel flag has no condition: waiters look at it now and
 * then. */
#include "backends/layers/layer.h"
#include "backends/layers/layers.h"
#include "common/lock.h"
#include "common/mem.h"

#include <stdlib.h>

#define POLL_NS (10 * NS_PER_MS)

struct limit_waiter {
    struct limit_waiter *next;
    pthread_cond_t turn;
    bool served;
};

struct limit {
    struct layer layer;
    struct mutex lock; /* guards what follows */
    unsigned free_slots;
    struct limit_waiter *first, **last;
};

static void unlink_waiter_locked(struct limit *m, struct limit_waiter *w) REQUIRES(&m->lock)
{
    struct limit_waiter **at = &m->first;

    mutex_assert_held(&m->lock);
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (m->last == &w->next)
        m->last = at;
}

/* Hands a slot to the oldest waiter, or keeps it. */
static void give_slot_locked(struct limit *m) REQUIRES(&m->lock)
{
    struct limit_waiter *w = m->first;

    mutex_assert_held(&m->lock);
    if (!w) {
        m->free_slots++;
        return;
    }
    unlink_waiter_locked(m, w);
    w->served = true;
    pthread_cond_signal(&w->turn);
}

static int wait_turn_locked(struct limit *m, struct op *op) REQUIRES(&m->lock)
{
    struct limit_waiter w = {.served = false};
    int r = 0;

    mutex_assert_held(&m->lock);
    cond_init(&w.turn);
    *m->last = &w;
    m->last = &w.next;
    while (!w.served && !(r = op_check(op))) {
        int64_t until = clock_mono_ns() + POLL_NS;
        (void)mutex_wait_until(&m->lock, &w.turn,
                               until < op->deadline_ns ? until : op->deadline_ns);
    }
    if (!w.served)
        unlink_waiter_locked(m, &w);
    pthread_cond_destroy(&w.turn);
    return w.served ? 0 : r;
}

static int take_slot(struct limit *m, struct op *op)
{
    int r = 0;

    mutex_lock(&m->lock);
    if (m->free_slots > 0)
        m->free_slots--;
    else
        r = wait_turn_locked(m, op);
    mutex_unlock(&m->lock);
    return r;
}

static int64_t limit_around(struct layer *l, struct call *c)
{
    struct limit *m = container_of(l, struct limit, layer);

    int64_t r = take_slot(m, c->op);
    if (r < 0)
        return r;
    r = call_next(c);
    mutex_lock(&m->lock);
    give_slot_locked(m);
    mutex_unlock(&m->lock);
    return r;
}

static void limit_release(struct layer *l)
{
    mutex_destroy(&container_of(l, struct limit, layer)->lock);
}

struct store *layer_limit_new(struct store *next, unsigned max)
{
    struct limit *m = calloc(1, sizeof(*m));

    if (!m || layer_init(&m->layer, next, limit_around) < 0) {
        free(m);
        return NULL;
    }
    m->layer.release = limit_release;
    mutex_init(&m->lock);
    m->free_slots = max;
    m->last = &m->first;
    return &m->layer.base;
}
