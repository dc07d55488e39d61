/* Waiting and looking for who may only read a path: nothing that another may see or do less of
 * comes from it. */
#include "cache/node.h"

#include "cache/intent.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

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

/* What was kept aside is in the cache only, however long one waits. */
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
        /* A rename may come before the flush looks what is below the path: once more. */
        int r = await_path(c, path, op);
        if (r < 0)
            return r;
    }
}

/* ---- what is owed ---- */

struct owed {
    uint64_t files, bytes, uploading, failed, staged, operations;
};

static void count_file(struct cache *c, struct owed *o, const struct file *f, const char *path)
    REQUIRES(cache_mutex)
{
    bool dirty = f->state == FILE_DIRTY;

    if ((!dirty && !(f->node->flags & NODE_ATTR_DIRTY)) ||
        !node_is_named_below(c, f->node, path))
        return;
    o->files++;
    o->bytes += dirty ? f->node->size : 0;
    o->uploading += f->uploading;
    o->failed += f->error != 0;
    o->staged += f->staged;
}

static void count_operations(struct cache *c, struct owed *o, const char *path)
    REQUIRES(cache_mutex)
{
    struct intent *i;
    struct node *d;

    DL_FOREACH2(c->dirty_dirs, d, dir->dirty_next)
    {
        bool concerns = node_is_named_below(c, d, path);

        o->operations += concerns;
        o->failed += concerns && d->dir->error;
    }
    DL_FOREACH(c->intents, i)
    {
        bool concerns = path_below(path, i->from) || (i->to && path_below(path, i->to));

        o->operations += concerns;
        o->failed += concerns && i->error;
    }
}

char *node_owed_text_locked(struct cache *c, struct node *n)
{
    auto_free char *path = node_path(n);
    struct owed o = {0};
    struct file *f;
    char *text;

    cache_assert_locked(c);
    if (!path)
        return NULL;
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        count_file(c, &o, f, path);
    }
    DL_FOREACH2(c->writers, f, writer_next)
    {
        if (!f->queued)
            count_file(c, &o, f, path);
    }
    count_operations(c, &o, path);
    if (asprintf(&text,
                 "files=%" PRIu64 " bytes=%" PRIu64 " uploading=%" PRIu64 " failed=%" PRIu64
                 " staged=%" PRIu64 " operations=%" PRIu64,
                 o.files, o.bytes, o.uploading, o.failed, o.staged, o.operations) < 0)
        return NULL;
    return text;
}
