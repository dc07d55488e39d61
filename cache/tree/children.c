/* The names in a directory; see children.h. */
#include "cache/tree/children.h"

#include "cache/tree/tree_impl.h"
#include "common/hash.h"

#include <errno.h>
#include <string.h>

/* Up to so many names a search compares each: they fit into a few cache lines. */
#define FEW 16

struct children {
    uint32_t n;    /* names */
    uint32_t used; /* places taken, by names that went, too */
    uint32_t cap;
    uint32_t mask; /* of the table; 0: there is none */
    struct entry *v[];
    /* Then mask + 1 places from 1, 0 where none is. A place whose name went stays in the table
     * until it is made anew. */
};

uint32_t children_hash(const char *name)
{
    return (uint32_t)hash_bytes(name, strlen(name));
}

static uint32_t *table_of(const struct children *v)
{
    return (uint32_t *)(void *)&((struct children *)(uintptr_t)v)->v[v->cap];
}

size_t children_count(const struct children *v)
{
    return v ? v->n : 0;
}

static bool matches(const struct entry *e, uint32_t hash, const char *name)
{
    return e && e->hash == hash && strcmp(e->name, name) == 0;
}

/* The place of a name, from 1; 0 when it is not there. */
static uint32_t place_of(const struct children *v, uint32_t hash, const char *name)
{
    if (!v)
        return 0;
    if (!v->mask) {
        for (uint32_t i = 0; i < v->used; i++)
            if (matches(v->v[i], hash, name))
                return i + 1;
        return 0;
    }
    const uint32_t *table = table_of(v);
    for (uint32_t i = hash & v->mask; table[i]; i = (i + 1) & v->mask)
        if (matches(v->v[table[i] - 1], hash, name))
            return table[i];
    return 0;
}

struct entry *children_find(const struct children *v, const char *name)
{
    uint32_t place = place_of(v, children_hash(name), name);

    return place ? v->v[place - 1] : NULL;
}

static void note_place(struct children *v, uint32_t hash, uint32_t place)
{
    uint32_t *table = table_of(v), i = hash & v->mask;

    while (table[i])
        i = (i + 1) & v->mask;
    table[i] = place;
}

static void put(struct children *v, struct entry *e)
{
    v->v[v->used++] = e;
    v->n++;
    if (v->mask)
        note_place(v, e->hash, v->used);
}

/* One without names that has room for the old one's and more; for just as many when a quarter
 * of them went. */
static struct children *larger(const struct children *old)
{
    uint32_t n = old ? old->n : 0, cap = 4;

    if (old)
        cap = n > old->cap - old->cap / 4 ? old->cap + old->cap / 2 : old->cap;
    if (cap > UINT32_MAX / 4)
        return NULL;
    uint32_t slots = cap > FEW ? 2 * FEW : 0;
    while (slots && slots < cap + cap / 3)
        slots *= 2;
    struct children *v =
        calloc(1, sizeof(*v) + cap * sizeof(struct entry *) + slots * sizeof(uint32_t));
    if (!v)
        return NULL;
    v->cap = cap;
    v->mask = slots ? slots - 1 : 0;
    return v;
}

int children_room(const struct children *v, struct children **ret)
{
    bool full = !v || v->used == v->cap, last = v && v->n == 1;

    *ret = full ? larger(v) : last ? larger(NULL) : NULL;
    return (full || last) && !*ret ? -ENOMEM : 0;
}

void children_add(struct children **v, struct children **room, struct entry *e)
{
    struct children *old = *v;

    if (!old || old->used == old->cap) {
        assert(*room);
        *v = *room;
        *room = NULL;
        for (uint32_t i = 0; old && i < old->used; i++)
            if (old->v[i])
                put(*v, old->v[i]);
        free(old);
    }
    put(*v, e);
}

void children_remove(struct children **v, struct entry *e)
{
    uint32_t place = place_of(*v, e->hash, e->name);

    assert(place && (*v)->v[place - 1] == e);
    (*v)->v[place - 1] = NULL;
    if (--(*v)->n)
        return;
    free(*v);
    *v = NULL;
}

struct entry *children_next(const struct children *v, size_t *at)
{
    while (v && *at < v->used) {
        struct entry *e = v->v[(*at)++];
        if (e)
            return e;
    }
    return NULL;
}

size_t children_behind(const struct children *v, const struct entry *e)
{
    return place_of(v, e->hash, e->name);
}
