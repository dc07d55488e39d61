/* Publish units, as commands ask about them. */
#include "cache/blocking.h"

#include "cache/queue/queue.h"
#include "common/lock.h"

#include <errno.h>

void cache_each_unit(struct cache *c, const char *path,
                     void (*visit)(void *arg, const struct cache_unit *u), void *arg)
{
    cache_lock(c);
    units_each_locked(c, path, visit, arg);
    cache_unlock(c);
}

int cache_commit(struct cache *c, const char *path, struct op *op)
{
    struct node *n;
    int r = cache_walk(c, path, op, &n);

    if (r < 0)
        return r;
    cache_lock(c);
    r = n->dir ? unit_commit_locked(c, n) : -ENOTDIR;
    cache_unlock(c);
    cache_forget(c, n, 1);
    if (r == -EINVAL)
        return op_fail(op, r,
                       "it is no directory that is published as a whole: see unit in its "
                       "policy (`runfs check CONFIG PATH` tells)");
    return r < 0 ? op_fail(op, r, "%s", strerror(-r)) : 0;
}
