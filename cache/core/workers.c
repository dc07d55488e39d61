/* The threads that wait for stores, apart by which stores those are. */
#include "cache/core/workers.h"

#include "cache/core/core.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* Tasks that ask several stores at once begin threads of their own, so few suffice. */
#define UNITED_MAX 16

struct team {
    struct store_set stores;
    struct pool *pool;
};

struct workers {
    char name[16];    /* constant, with what follows */
    unsigned threads; /* of a team */
    struct pool
        *pool; /* of what asks no store, or the only one; and where others can't start */
    GUARDED_BY(cache_mutex) struct {
        struct team *teams;
        size_t n, cap;
        bool ending; /* what still comes is the pool's */
    };
};

void store_set_add(struct store_set *s, unsigned store)
{
    unsigned bit = store % (64 * STORE_SET_WORDS);

    s->words[bit / 64] |= UINT64_C(1) << bit % 64;
}

static unsigned count_stores(const struct store_set *s)
{
    unsigned n = 0;

    for (size_t i = 0; i < STORE_SET_WORDS; i++)
        n += (unsigned)__builtin_popcountll(s->words[i]);
    return n;
}

struct workers *workers_new(const char *name, unsigned threads, bool one_store)
{
    struct workers *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    (void)snprintf(w->name, sizeof(w->name), "%s", name);
    w->threads = threads;
    w->pool = one_store ? pool_new(name, threads) : pool_new_growing(name, threads);
    if (!w->pool)
        free(take_ptr(w));
    return w;
}

static struct pool *new_team_locked(struct workers *w, const struct store_set *stores,
                                    unsigned n_stores) REQUIRES(cache_mutex)
{
    unsigned max = n_stores > 1 && w->threads > UNITED_MAX ? UNITED_MAX : w->threads;

    if (array_grow(w->teams, w->cap, w->n + 1) < 0)
        return w->pool;
    struct pool *pool = pool_new_growing(w->name, max);
    if (!pool)
        return w->pool;
    w->teams[w->n++] = (struct team){*stores, pool};
    return pool;
}

static struct pool *pool_of_locked(struct workers *w, const struct store_set *stores)
    REQUIRES(cache_mutex)
{
    unsigned n_stores = stores ? count_stores(stores) : 0;

    if (n_stores == 0 || w->ending)
        return w->pool;
    for (size_t i = 0; i < w->n; i++)
        if (memcmp(&w->teams[i].stores, stores, sizeof(*stores)) == 0)
            return w->teams[i].pool;
    return new_team_locked(w, stores, n_stores);
}

void workers_submit_locked(struct workers *w, const struct store_set *stores, struct task *task,
                           bool first)
{
    struct pool *pool = pool_of_locked(w, stores);

    if (first)
        pool_submit_first(pool, task);
    else
        pool_submit(pool, task);
}

void workers_free(struct cache *c, struct workers *w)
{
    if (!w)
        return;
    cache_lock(c);
    auto_free struct team *teams = take_ptr(w->teams);
    size_t n = w->n;
    w->n = w->cap = 0;
    w->ending = true;
    cache_unlock(c);
    for (size_t i = 0; i < n; i++)
        pool_free(teams[i].pool);
    pool_free(w->pool);
    free(w);
}
