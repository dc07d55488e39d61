/* What the store lacks of a node, as the attribute user.runfs.owed tells it. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

/* ---- what is owed ---- */

struct owed {
    uint64_t files, bytes, uploading, failed, staged, operations;
};

static void count_file(struct cache *c, struct owed *o, const struct file *f, const char *path)
    REQUIRES(cache_mutex)
{
    bool dirty = f->state == FILE_DIRTY;

    if ((!dirty && !(f->node->flags & NODE_ATTR_DIRTY)) || node_is_scratch(f->node) ||
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

    DL_FOREACH2(c->queue->dirty_dirs, d, dir->dirty_next)
    {
        bool concerns = node_is_named_below(c, d, path);

        o->operations += concerns;
        o->failed += concerns && d->dir->error;
    }
    DL_FOREACH(c->queue->intents, i)
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
    DL_FOREACH2(c->content->dirty, f, dirty_next)
    {
        count_file(c, &o, f, path);
    }
    DL_FOREACH2(c->content->writers, f, writer_next)
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
