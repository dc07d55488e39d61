/* Lets a process that may only read a path wait and look: nothing that another one may see, or
 * do, is less for it. */
#include "cache/mount.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kept_below {
    const char *path;
    bool found;
};

static int find_kept(void *arg, const struct cache_pending *p)
{
    struct kept_below *k = arg;

    k->found = strcmp(p->kind, "kept") == 0 && path_below(k->path, p->path);
    return k->found;
}

/* The cache alone has what was kept aside, however long a caller waits. */
static int check_kept(struct cache *c, const char *path, struct op *op)
{
    struct kept_below k = {.path = path};
    struct cache_stats s;

    cache_get_stats(c, &s);
    int r = s.kept_files ? cache_each_pending(c, find_kept, &k) : 0;
    if (r < 0)
        return op_fail(op, r, "%s: what was kept can't be looked at: %s", path, strerror(-r));
    return k.found ? op_fail(op, -ESTALE,
                             "%s: some content was kept in the cache, not published", path)
                   : 0;
}

static int await_path(struct cache *c, const char *path, struct op *op)
{
    int r = cache_flush_path(c, path, CACHE_FLUSH_AWAIT, op, NULL, NULL);

    if (r == 0)
        r = check_kept(c, path, op);
    return r == -ETXTBSY ? -EBUSY : r;
}

int cache_await(struct cache *c, struct node *node, struct op *op)
{
    auto_free char *path = NULL;

    for (;;) {
        char *now = cache_path(c, node);

        if (!now)
            return op_fail(op, -ENOENT, "it was removed");
        bool same = path && strcmp(path, now) == 0;
        free(path);
        path = now;
        if (same)
            return 0;
        /* A rename may come before the flush looks below the path: look once more. */
        int r = await_path(c, path, op);
        if (r < 0)
            return r;
    }
}
