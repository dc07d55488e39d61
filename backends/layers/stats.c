/* The stats layer: what reached the driver, counted. */
#include "backends/layers/layer.h"
#include "backends/layers/layers.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>

struct stats {
    struct layer layer;
    atomic_ullong calls[CALL_KINDS], failures, bytes_read, bytes_written;
};

static void add(atomic_ullong *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t get(atomic_ullong *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* An answer that is no news of trouble: the key is not there, or another version is. */
static bool is_failure(int64_t r)
{
    return r < 0 && r != -ENOENT && r != -ESTALE;
}

static int64_t stats_around(struct layer *l, struct call *c)
{
    struct stats *t = container_of(l, struct stats, layer);
    uint64_t size = c->src ? c->src->size : 0;

    int64_t r = call_next(c);
    add(&t->calls[c->kind], 1);
    if (is_failure(r))
        add(&t->failures, 1);
    if (c->kind == CALL_READ && r > 0)
        add(&t->bytes_read, (uint64_t)r);
    if ((c->kind == CALL_PUT || c->kind == CALL_PART) && r == 0)
        add(&t->bytes_written, size);
    return r;
}

static void stats_add(struct store *s, struct store_stats *ret)
{
    struct stats *t = container_of(s, struct stats, layer.base);

    for (int kind = 0; kind < CALL_KINDS; kind++)
        ret->requests += get(&t->calls[kind]);
    ret->failures += get(&t->failures);
    ret->reads += get(&t->calls[CALL_READ]);
    ret->puts += get(&t->calls[CALL_PUT]);
    ret->parts += get(&t->calls[CALL_PART]);
    ret->lists += get(&t->calls[CALL_LIST]);
    ret->stats += get(&t->calls[CALL_STAT]);
    ret->removes += get(&t->calls[CALL_REMOVE]);
    ret->copies += get(&t->calls[CALL_COPY]);
    ret->bytes_read += get(&t->bytes_read);
    ret->bytes_written += get(&t->bytes_written);
}

struct store *layer_stats_new(struct store *next)
{
    struct stats *t = calloc(1, sizeof(*t));

    if (!t || layer_init(&t->layer, next, stats_around) < 0) {
        free(t);
        return NULL;
    }
    t->layer.ops.add_stats = stats_add;
    return &t->layer.base;
}
