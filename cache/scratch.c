/* What is in no store by its route ends with the mount: it leaves the mirror then, or, when the
 * mount was killed, before the next one looks into it. */
#include "cache/mount.h"

#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/mem.h"
#include "runs/routes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct scratch {
    struct cache *cache;
    struct scratch_path {
        char *path;
        bool dir;
    } * v; /* parents first */
    size_t n, cap;
};

/* The directory of scratch is in no store. One that other routes lead through is, unless its
 * stamp says that no store has anything below it. */
static bool is_local(struct cache *c, const char *path, int fd)
{
    const struct route *route = path_route(c, path, true);
    struct stamp_attrs a;

    if (path_dir_kind(c, path) == DIR_SCRATCH)
        return true;
    return route && route->scratch && stamp_read_attrs(fd, &a) == 0 && (a.flags & STAMP_BARE);
}

static int collect(void *arg, const char *path, int fd, const struct stat *st)
{
    struct scratch *s = arg;
    bool dir = S_ISDIR(st->st_mode);

    if (dir ? !is_local(s->cache, path, fd) : !path_is_scratch(s->cache, path))
        return 0;
    if (array_grow(s->v, s->cap, s->n + 1))
        return -ENOMEM;
    s->v[s->n].path = strdup(path);
    s->v[s->n].dir = dir;
    return s->v[s->n].path ? (int)(++s->n * 0) : -ENOMEM;
}

static int remove_one(struct cache *c, const struct scratch_path *p)
{
    int r = p->dir ? mirror_rmdir(&c->mirror, p->path) : mirror_unlink(&c->mirror, p->path);

    /* What an earlier route has may lie below it. */
    return r == -ENOENT || r == -ENOTEMPTY || r == -EEXIST ? 0 : r;
}

/* Another mount's cache may owe what has such a path to a store. */
static bool is_same_mount(struct cache *c)
{
    auto_free char *then = NULL;

    return mirror_read_text(&c->mirror, "identity", &then) == 0 &&
           strcmp(then, c->config.identity) == 0;
}

int scratch_clear(struct cache *c, struct op *op)
{
    struct scratch s = {.cache = c};
    int r = 0;

    if (!routes_have_scratch(c) || !is_same_mount(c))
        return 0;
    r = mirror_walk(c->mirror.tree_fd, collect, &s);
    for (size_t i = s.n; i-- > 0 && r == 0;)
        r = remove_one(c, &s.v[i]);
    for (size_t i = 0; i < s.n; i++)
        free(s.v[i].path);
    free(s.v);
    return r < 0 ? op_fail(op, r, "cache %s: can't remove what belongs to no store: %s",
                           c->mirror.dir, strerror(-r))
                 : 0;
}
