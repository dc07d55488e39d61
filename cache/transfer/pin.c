/* Paths that are kept from eviction. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/journal.h"
#include "common/lock.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A path that is kept from eviction, with all below it. */
struct pin {
    UT_hash_handle hh;
    char path[];
};

bool path_is_pinned(struct cache *c, const char *path)
{
    struct pin *p, *next;

    cache_assert_locked(c);
    HASH_ITER(hh, c->transfer->pins, p, next)
    {
        if (path_below(p->path, path))
            return true;
    }
    return false;
}

static int pin_add(void *arg, const char *path) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    size_t len = strlen(path);
    struct pin *p;

    HASH_FIND_STR(c->transfer->pins, path, p);
    if (p)
        return 0;
    p = calloc(1, sizeof(*p) + len + 1);
    if (!p)
        return -ENOMEM;
    memcpy(p->path, path, len + 1);
    HASH_ADD_KEYPTR(hh, c->transfer->pins, p->path, len, p);
    if (TABLE_LACKS(hh, p)) {
        free(p);
        return -ENOMEM;
    }
    return 0;
}

static void pin_remove(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    struct pin *p;

    HASH_FIND_STR(c->transfer->pins, path, p);
    if (!p)
        return;
    HASH_DEL(c->transfer->pins, p);
    free(p);
}

int pins_load(struct cache *c)
{
    return journal_each_pin(c->journal, pin_add, c);
}

void pins_free(struct cache *c)
{
    struct pin *p, *next;

    cache_assert_locked(c);
    HASH_ITER(hh, c->transfer->pins, p, next)
    {
        HASH_DEL(c->transfer->pins, p);
        free(p);
    }
}

uint64_t pins_count_locked(struct cache *c)
{
    cache_assert_locked(c);
    return HASH_COUNT(c->transfer->pins);
}

static int back_to_lru(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    if (n->file && !n->file->in_lru)
        file_lru_add_locked(c, n->file);
    return 0;
}

int cache_pin(struct cache *c, const char *path, bool pinned)
{
    int r = journal_set_pin(c->journal, path, pinned);

    if (r < 0)
        return r;
    cache_lock(c);
    if (pinned) {
        r = pin_add(c, path);
    } else {
        pin_remove(c, path);
        struct node *n = tree_find(c, path, NULL);
        if (n)
            (void)tree_each(n, back_to_lru, c);
    }
    cache_unlock(c);
    return r;
}
