/* Numbers by which the frontend, and with it the kernel, names nodes. Addresses would be
 * shorter, but anybody may ask the kernel for them (name_to_handle_at()), and a wrong one would
 * be used.
 *
 * A number is a slot of a table, and how often that was given away before. Nodes come and go
 * under the cache's lock. A caller that looks a number up takes no lock: the node stays, since
 * the caller holds a lookup of it, and parts of the table never move. */
#include "cache/tree/tree_impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PART_SLOTS (1U << 16)
#define PARTS      (1U << 16)
/* Smaller numbers are the root's and the control files'. */
#define FIRST 16

struct slot {
    _Atomic(struct node *) node;
    atomic_uint generation;                /* how many have gone that had it */
    uint32_t next GUARDED_BY(cache_mutex); /* free: the one that is free after it */
};

struct ids {
    _Atomic(struct slot *) parts[PARTS];
    uint32_t
        used GUARDED_BY(cache_mutex); /* slots that were ever given away; the first is none */
    uint32_t free GUARDED_BY(cache_mutex); /* the first that is free again; 0: none */
};

static struct slot *slot_at(struct ids *ids, uint32_t at)
{
    struct slot *part =
        atomic_load_explicit(&ids->parts[at / PART_SLOTS], memory_order_acquire);

    return part ? &part[at % PART_SLOTS] : NULL;
}

struct ids *ids_new(void)
{
    struct ids *ids = calloc(1, sizeof(*ids));

    if (ids)
        ids->used = FIRST;
    return ids;
}

void ids_free(struct ids *ids)
{
    if (!ids)
        return;
    for (uint32_t i = 0; i <= ids->used / PART_SLOTS; i++)
        free(atomic_load(&ids->parts[i]));
    free(ids);
}

/* A slot that was not used before; NULL without memory, or numbers. */
static struct slot *slot_new(struct ids *ids) REQUIRES(cache_mutex)
{
    uint32_t at = ids->used;

    if (at == UINT32_MAX)
        return NULL;
    if (!slot_at(ids, at)) {
        struct slot *part = calloc(PART_SLOTS, sizeof(*part));
        if (!part)
            return NULL;
        atomic_store_explicit(&ids->parts[at / PART_SLOTS], part, memory_order_release);
    }
    ids->used++;
    return slot_at(ids, at);
}

int ids_add(struct ids *ids, struct node *n)
{
    uint32_t at = ids->free ? ids->free : ids->used;
    struct slot *s = ids->free ? slot_at(ids, at) : slot_new(ids);

    if (!s)
        return -ENOMEM;
    if (ids->free)
        ids->free = s->next;
    n->slot = at;
    atomic_store_explicit(&s->node, n, memory_order_release);
    return 0;
}

void ids_remove(struct ids *ids, struct node *n)
{
    struct slot *s = slot_at(ids, n->slot);

    atomic_store_explicit(&s->node, NULL, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->generation, 1, memory_order_relaxed);
    s->next = ids->free;
    ids->free = n->slot;
}

uint64_t cache_node_id(struct cache *c, const struct node *n)
{
    struct slot *s = slot_at(c->tree->own->ids, n->slot);
    uint64_t generation = atomic_load_explicit(&s->generation, memory_order_relaxed);

    return generation << 32 | n->slot;
}

struct node *cache_node(struct cache *c, uint64_t id)
{
    struct slot *s = slot_at(c->tree->own->ids, (uint32_t)id);

    if (!s || atomic_load_explicit(&s->generation, memory_order_relaxed) != id >> 32)
        return NULL;
    return atomic_load_explicit(&s->node, memory_order_acquire);
}
