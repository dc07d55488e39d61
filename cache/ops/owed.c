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
    o->uploading += f->debt.running;
    o->failed += f->debt.error != 0;
    o->staged += f->staged;
}

static void count_operations(struct cache *c, struct owed *o, const char *path)
    REQUIRES(cache_mutex)
{
    struct intent *i;
    struct node *d;

    for (d = debt_dir(c->queue->owed[DEBT_DIR].first); d; d = debt_dir(d->dir->debt.next)) {
        bool concerns = node_is_named_below(c, d, path);

        o->operations += concerns;
        o->failed += concerns && d->dir->debt.error;
    }
    ROWS_FOREACH(c, i)
    {
        bool concerns = path_below(path, i->from) || (i->to && path_below(path, i->to));

        o->operations += concerns;
        o->failed += concerns && i->debt.error;
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
    OWED_FILES_FOREACH(c, f)
    {
        count_file(c, &o, f, path);
    }
    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        if (!debt_is_queued(&f->debt))
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
