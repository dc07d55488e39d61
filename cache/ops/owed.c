/* What the store lacks of a node, as the attribute user.runfs.owed tells it. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <inttypes.h>
#include <stdio.h>

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

static void count_operation(struct owed *o, const struct debt *d, bool concerns)
{
    o->operations += concerns;
    o->failed += concerns && d->error;
}

static void count_debt(struct cache *c, struct owed *o, struct debt *d, const char *path)
    REQUIRES(cache_mutex)
{
    const struct intent *i = d->kind == DEBT_ROW ? debt_row(d) : NULL;

    switch ((enum debt_kind)d->kind) {
    case DEBT_FILE:
        count_file(c, o, debt_file(d), path);
        break;
    case DEBT_DIR:
        count_operation(o, d, node_is_named_below(c, debt_dir(d), path));
        break;
    case DEBT_ROW:
        count_operation(o, d, path_below(path, i->from) || (i->to && path_below(path, i->to)));
        break;
    case DEBT_SESSION: /* its file owes the upload */
    case DEBT_NOTE:
    case DEBT_INDEX:
    case DEBT_KINDS:
        break;
    }
}

char *node_owed_text_locked(struct cache *c, struct node *n)
{
    auto_free char *path = node_path(n);
    struct owed o = {0};
    struct debt *d;
    char *text;

    cache_assert_locked(c);
    if (!path)
        return NULL;
    OWED_FOREACH(c, d)
    {
        count_debt(c, &o, d, path);
    }
    if (asprintf(&text,
                 "files=%" PRIu64 " bytes=%" PRIu64 " uploading=%" PRIu64 " failed=%" PRIu64
                 " staged=%" PRIu64 " operations=%" PRIu64,
                 o.files, o.bytes, o.uploading, o.failed, o.staged, o.operations) < 0)
        return NULL;
    return text;
}
