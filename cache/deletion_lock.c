/* Deletion locks as commands take them, give them back and list them (docs/locks.md). */
#include "cache/blocking.h"

#include "cache/ops/ops.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <stdio.h>
#include <utlist.h>

#define LOOK_NS (100 * NS_PER_MS) /* between two looks at what is in the way */

struct asking {
    struct cache *cache;
    const char *path;
    bool refuse;
    const struct process *holder; /* its descriptor goes with the lock */
    const char *command;
    struct process_line who;
};

/* A lock of somebody else that refuses removals there. What stands for the file of a program
 * leaves others to read: only who is to refuse removals himself minds it. */
static struct deletion_lock *in_the_way_locked(const struct asking *a) REQUIRES(cache_mutex)
{
    struct deletion_lock *l;

    locks_reap_locked(a->cache);
    DL_FOREACH(a->cache->queue->locks, l)
    {
        if (l->refuse && lock_meets_locked(l, a->path) && (a->refuse || !l->node) &&
            !process_line_has(&a->who, &l->holder))
            return l;
    }
    return NULL;
}

static int fail_by_lock_locked(const struct deletion_lock *l, struct op *op)
    REQUIRES(cache_mutex)
{
    return op_fail(op, -EBUSY, "%s is locked by process %ld (%s), which refuses removals there",
                   l->paths[0], (long)l->holder.pid, l->command);
}

/* 0 with *ret, or why not, in words, too. */
static int try_once(const struct asking *a, bool there, struct op *op, uint64_t *ret)
{
    struct cache *c = a->cache;
    int r = 0;

    ns_read(c); /* the name neither comes nor goes */
    cache_lock(c);
    const struct deletion_lock *other = in_the_way_locked(a);
    if (c->queue->no_locks)
        r = op_fail(op, -ENOTCONN, "it is not mounted any more");
    else if (other)
        r = fail_by_lock_locked(other, op);
    else if (there && !tree_find(c, a->path, NULL))
        r = -EAGAIN;
    else if (!there && path_is_leaving_locked(c, a->path))
        r = op_fail(op, -EBUSY, "%s is just being removed at the store", a->path);
    else if (!there)
        r = op_fail(op, -ENOENT, "%s: there is no such file or directory", a->path);
    struct deletion_lock *l =
        r == 0 ? lock_add_locked(c, a->path, a->refuse, a->holder, a->command) : NULL;
    if (l)
        *ret = l->id;
    else if (r == 0)
        r = op_fail(op, -ENOMEM, "out of memory");
    cache_unlock(c);
    ns_done(c);
    return r;
}

static int ask_for(struct asking *a, struct op *op, uint64_t *ret)
{
    struct cache *c = a->cache;
    int r;

    for (;;) {
        struct node *n;
        struct op walking; /* the store has its time, however short that for the lock is */
        cache_op(c, &walking);
        walking.cancelled = op->cancelled;
        r = cache_walk(c, a->path, &walking, &n);
        bool there = r == 0;
        if (there)
            cache_forget(c, n, 1);
        else if (r != -ENOENT)
            return op_fail(op, r, "%s: %s", a->path, *walking.why ? walking.why : strerror(-r));
        r = try_once(a, there, op, ret);
        if (r == -EAGAIN)
            continue;
        if (r != -EBUSY || op_left_ns(op) == 0)
            return r;
        char why[sizeof(op->why)];
        memcpy(why, op->why, sizeof(why));
        int64_t left_ns = op_left_ns(op);
        if (op_sleep(op, left_ns < LOOK_NS ? left_ns : LOOK_NS) && op_left_ns(op) > 0)
            return -EINTR;
        memcpy(op->why, why, sizeof(why));
    }
}

int cache_deletion_lock(struct cache *c, const char *path, bool refuse, pid_t pid,
                        const char *command, struct op *op, uint64_t *ret)
{
    struct process holder;
    struct asking a = {
        .cache = c, .path = path, .refuse = refuse, .holder = &holder, .command = command};
    int r = process_watch(pid, &holder, NULL);

    if (r < 0)
        return op_fail(op, r, "process %ld, which is to have the lock, can't be found: %s",
                       (long)pid, strerror(-r));
    process_line(pid, &a.who);
    r = ask_for(&a, op, ret);
    if (r < 0)
        process_release(&holder);
    return r;
}

void cache_deletion_unlock(struct cache *c, uint64_t id)
{
    cache_lock(c);
    struct deletion_lock *l = lock_find_locked(c, id);
    if (l) {
        lock_remove_locked(c, l);
        progress_locked(c);
    }
    cache_unlock(c);
    deletion_sweep(c);
}

void cache_deletion_unlock_all(struct cache *c)
{
    cache_lock(c);
    c->queue->no_locks = true;
    while (c->queue->locks)
        lock_remove_locked(c, c->queue->locks);
    progress_locked(c);
    cache_unlock(c);
    deletion_sweep(c);
}

static uint64_t count_held_locked(struct cache *c, const struct deletion_lock *l)
    REQUIRES(cache_mutex)
{
    struct intent *i;
    uint64_t n = 0;

    ROWS_FOREACH(c, i)
    {
        n += !l->refuse && i->seq > l->since_seq && !intent_is_rename(i) &&
             lock_covers_locked(l, i->from);
    }
    return n;
}

int cache_each_deletion_lock(struct cache *c, const char *path,
                             int (*visit)(void *arg, const struct cache_deletion_lock *l),
                             void *arg)
{
    const struct deletion_lock *l;
    int r = 0;

    cache_lock(c);
    locks_reap_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        const struct cache_deletion_lock shown = {.id = l->id,
                                                  .path = l->paths[0],
                                                  .refuse = l->refuse,
                                                  .is_file = l->node != NULL,
                                                  .pid = l->holder.pid,
                                                  .command = l->command,
                                                  .since_ns = l->since_ns,
                                                  .held = count_held_locked(c, l)};
        if (r == 0 && lock_meets_locked(l, path))
            r = visit(arg, &shown);
    }
    cache_unlock(c);
    return r;
}
