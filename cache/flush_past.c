/* What a flush looks at first: files that may have changed past the daemon, through a mapping
 * or through passthrough. */
#include "cache/blocking.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>

struct unsure {
    struct cache *cache;
    const char *path;
    struct node **v; /* referenced */
    size_t n, cap;
};

/* Whether someone may have changed the file since before the mount in a way that no upload from
 * now on is certain to see. */
static bool may_be_newer(const struct file *f) REQUIRES(cache_mutex)
{
    return f->writing_stamp && !f->write_handles &&
           (f->state == FILE_CLEAN ||
            (f->state == FILE_DIRTY && (f->debt.running || f->suspect)));
}

static int gather_locked(struct unsure *u) REQUIRES(cache_mutex)
{
    struct file *f;

    OWED_FILES_FOREACH(u->cache, f)
    {
        if (!may_be_newer(f) || !node_is_named_below(u->cache, f->node, u->path))
            continue;
        if (array_grow(u->v, u->cap, u->n + 1))
            return -ENOMEM;
        node_ref_locked(f->node);
        u->v[u->n++] = f->node;
    }
    return 0;
}

static int look_past(struct cache *c, struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd < 0)
        return fd == -ESTALE ? 0 : fd; /* removed meanwhile */
    cache_lock(c);
    int r = file_look_past_locked(c, n, fd);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
    return r;
}

int flush_look_past(struct cache *c, const char *path)
{
    struct unsure u = {.cache = c, .path = path};

    cache_lock(c);
    int r = gather_locked(&u);
    cache_unlock(c);
    for (size_t i = 0; i < u.n && r == 0; i++)
        r = look_past(c, u.v[i]);
    cache_lock(c);
    while (u.n > 0)
        node_unref_locked(c, u.v[--u.n]);
    cache_unlock(c);
    free(u.v);
    return r;
}
