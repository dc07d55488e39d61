/* Calls that block until the store has answered: they wait as a parked request would. */
#include "cache/blocking.h"

#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* A pause is so many times as long as the look before it. */
#define LOOK_SHARE 16

static void blocking_wake(struct waiter *w, int err)
{
    struct blocking *b = container_of(w, struct blocking, w);

    cache_lock(b->cache);
    b->woken = true;
    b->err = err;
    (void)pthread_cond_broadcast(&b->cache->progress);
    cache_unlock(b->cache);
}

void blocking_init(struct blocking *b, struct cache *c, struct listener *listener)
{
    *b = (struct blocking){.w.wake = blocking_wake, .cache = c, .listener = listener};
}

void blocking_tell(struct listener *l)
{
    if (!l || !l->progress || clock_mono_ns() - l->told_ns < TICK_NS)
        return;
    l->told_ns = clock_mono_ns();
    l->progress(l->arg, l->done, l->total);
}

int blocking_wait(struct blocking *b, struct op *op)
{
    struct cache *c = b->cache;
    int r = 0;

    cache_lock(c);
    while (!b->woken && (r = op_check(op)) == 0) {
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
        cache_unlock(c);
        blocking_tell(b->listener);
        cache_lock(c);
    }
    bool woken = b->woken;
    cache_unlock(c);
    if (!woken && !cache_cancel(c, &b->w)) {
        /* A waker has the waiter in hand: it is ours once that is over. */
        cache_lock(c);
        while (!b->woken)
            cache_wait(c, &c->progress);
        cache_unlock(c);
    }
    if (r == 0)
        r = b->err == CACHE_DONE ? 0 : b->err;
    b->woken = false;
    return r;
}

int64_t blocking_pause_ns(int64_t took_ns, int64_t least_ns)
{
    int64_t pause_ns = took_ns < TICK_NS / LOOK_SHARE ? took_ns * LOOK_SHARE : TICK_NS;

    return pause_ns > least_ns ? pause_ns : least_ns;
}

int blocking_walk(struct cache *c, const char *path, struct op *op, struct listener *listener,
                  struct node **ret)
{
    struct node *n = c->tree->root;
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;
    struct blocking b;
    int r = 0;

    if (!copy)
        return -ENOMEM;
    blocking_init(&b, c, listener);
    while (r == 0 && (name = strsep(&rest, "/"))) {
        struct node *child = NULL;
        struct stat st;
        if (*name == '\0')
            continue;
        BLOCK(b, op, r, cache_lookup(c, n, name, &b.w, &child, &st));
        if (n != c->tree->root)
            cache_forget(c, n, 1);
        n = child;
    }
    if (r < 0)
        return op->why[0] ? r : op_fail(op, r, "%s: %s", path, strerror(-r));
    if (n == c->tree->root) {
        *ret = n;
        return 0;
    }
    *ret = n;
    return 0;
}

int cache_walk(struct cache *c, const char *path, struct op *op, struct node **ret)
{
    return blocking_walk(c, path, op, NULL, ret);
}
