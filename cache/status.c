/* What a mount tells of itself: numbers, and what it owes the store. */
#include "cache/blocking.h"

#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <utlist.h>

static void note_age(struct cache_stats *s, const struct node *n) REQUIRES(cache_mutex)
{
    if (!s->oldest_ns || n->ctime_ns < s->oldest_ns)
        s->oldest_ns = n->ctime_ns;
}

static void count_file_locked(struct cache_stats *s, const struct file *f) REQUIRES(cache_mutex)
{
    bool dirty = f->state == FILE_DIRTY, queued = debt_is_queued(&f->debt);

    if (!f->node->links && !queued)
        return;
    if (!dirty && !(queued && (f->node->flags & NODE_ATTR_DIRTY)))
        return;
    s->dirty_files++;
    s->dirty_bytes += dirty ? f->node->size : 0;
    note_age(s, f->node);
    s->uploading_files += queued && f->debt.running;
    s->failed_files += queued && f->debt.error != 0;
    s->staged_files += queued && f->staged;
}

static void count_owed_locked(struct cache *c, struct cache_stats *s) REQUIRES(cache_mutex)
{
    struct debt *d;

    OWED_FOREACH(c, d)
    {
        switch ((enum debt_kind)d->kind) {
        case DEBT_FILE:
            count_file_locked(s, debt_file(d));
            break;
        case DEBT_DIR:
        case DEBT_ROW:
            s->pending_ops++;
            break;
        case DEBT_SESSION: /* its file owes the upload */
        case DEBT_NOTE:
        case DEBT_INDEX:
        case DEBT_KINDS:
            break;
        }
    }
}

static void copy_text(char ret[320], const char *text)
{
    if (text)
        (void)snprintf(ret, 320, "%s", text);
}

static uint64_t count_waiters_locked(struct cache *c, const struct waitq *q)
    REQUIRES(cache_mutex)
{
    uint64_t n = 0;

    cache_assert_locked(c);
    for (const struct waiter *w = q->head; w; w = w->next)
        n++;
    return n;
}

void cache_get_stats(struct cache *c, struct cache_stats *ret)
{
    cache_lock(c);
    *ret = (struct cache_stats){.size_bytes = c->config.size_bytes,
                                .copied = c->mirror.copied,
                                .waiting_writers = count_waiters_locked(c, &c->space_waiters),
                                .last_error = c->write_failure.err,
                                .last_read_error = c->read_failure.err};
    tree_stats_locked(c, ret);
    contents_stats_locked(c, ret);
    transfers_stats_locked(c, ret);
    opened_stats_locked(c, ret);
    count_owed_locked(c, ret);
    copy_text(ret->last_error_text, c->write_failure.text);
    copy_text(ret->last_read_error_text, c->read_failure.text);
    cache_unlock(c);
}

/* ---- pending ---- */

typedef int (*pending_visit)(void *arg, const struct cache_pending *p);

static int show_file(struct cache *c, struct file *f, pending_visit visit, void *arg)
    REQUIRES(cache_mutex)
{
    struct node *n = f->node;
    auto_free char *path = node_path(n);

    if (!path || node_is_scratch(n) ||
        (f->state != FILE_DIRTY && !(n->flags & NODE_ATTR_DIRTY)))
        return 0;
    bool half = file_is_half_locked(c, n), waits = file_waits_for_rename_locked(c, n);
    const struct cache_pending p = {
        .kind = f->state == FILE_DIRTY ? "write" : "setattr",
        .path = path,
        .state = f->debt.running    ? "uploading"
                 : f->debt.error    ? "failed"
                 : half             ? "open"
                 : waits            ? "staged"
                 : f->mapped_writer ? "mapped"
                                    : "dirty",
        .error = f->debt.why,
        .routed = path_routed(c, path, false),
        .bytes = f->state == FILE_DIRTY ? n->size : 0,
        .bytes_done = f->debt.running ? f->upload_done : 0,
        .short_write = f->short_write,
        .waits = waits,
    };
    return visit(arg, &p);
}

static int show_dir(struct cache *c, struct node *n, pending_visit visit, void *arg)
    REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(n);

    if (!path)
        return 0;
    bool waits = path_is_staged_dir(c, path);
    const struct cache_pending p = {
        .kind = "mkdir",
        .path = path,
        .state = n->dir->debt.running ? "uploading"
                 : n->dir->debt.error ? "failed"
                 : waits              ? "staged"
                                      : "waiting",
        .error = n->dir->debt.why,
        .routed = path_routed(c, path, true),
        .waits = waits,
    };

    return visit(arg, &p);
}

/* What is of a directory concerns each store that has something below it. */
static struct cache_routed intent_routed(struct cache *c, const struct intent *i, bool dir)
{
    const char *path = i->to ? i->to : i->from;

    return dir && !dir_lone_volume(c, path) ? (struct cache_routed){0}
                                            : path_routed(c, path, dir);
}

static int show_intent(struct cache *c, struct intent *i, pending_visit visit, void *arg)
    REQUIRES(cache_mutex)
{
    static const char *const kinds[] = {[INTENT_UNLINK] = "unlink",
                                        [INTENT_RMDIR] = "rmdir",
                                        [INTENT_RENAME] = "rename",
                                        [INTENT_RENAMEDIR] = "rename"};
    bool dir = i->kind == INTENT_RMDIR || i->kind == INTENT_RENAMEDIR;
    const struct cache_pending p = {
        .kind = kinds[i->kind],
        .path = i->from,
        .path2 = i->to,
        .state = i->debt.running               ? "uploading"
                 : i->debt.error               ? "failed"
                 : lock_holds_row_locked(c, i) ? "locked"
                                               : "waiting",
        .error = i->debt.why,
        .routed = intent_routed(c, i, dir),
    };

    return visit(arg, &p);
}

struct kept_visit {
    pending_visit visit;
    void *arg;
};

static int show_kept(void *arg, const char *path, int fd, const struct stat *st)
{
    const struct kept_visit *k = arg;
    const struct cache_pending p = {
        .kind = "kept", .path = path, .state = "kept", .bytes = (uint64_t)st->st_size};

    (void)fd;
    return S_ISREG(st->st_mode) ? k->visit(k->arg, &p) : 0;
}

static int show_debt(struct cache *c, struct debt *d, pending_visit visit, void *arg)
    REQUIRES(cache_mutex)
{
    switch ((enum debt_kind)d->kind) {
    case DEBT_FILE:
        return show_file(c, debt_file(d), visit, arg);
    case DEBT_DIR:
        return show_dir(c, debt_dir(d), visit, arg);
    case DEBT_ROW:
        return show_intent(c, debt_row(d), visit, arg);
    case DEBT_SESSION: /* its file owes the upload */
    case DEBT_NOTE:
    case DEBT_INDEX:
    case DEBT_KINDS:
        break;
    }
    return 0;
}

int cache_each_pending(struct cache *c, pending_visit visit, void *arg)
{
    struct debt *d;
    int r = 0;

    cache_lock(c);
    OWED_FOREACH(c, d)
    {
        if (r == 0)
            r = show_debt(c, d, visit, arg);
    }
    bool kept = transfers_kept_locked(c) > 0;
    cache_unlock(c);
    struct kept_visit k = {visit, arg};
    if (r == 0 && kept)
        r = mirror_walk(c->mirror.kept_fd, show_kept, &k);
    return r < 0 ? r : 0;
}

void cache_each_mapped(struct cache *c, const char *path,
                       void (*visit)(void *arg, const char *path, bool mapped), void *arg)
{
    struct file *f;

    cache_lock(c);
    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        bool ours = f->map_handles && !f->passthrough;
        auto_free char *name = ours ? node_path(f->node) : NULL;
        if (name && path_below(path, name))
            visit(arg, name, f->was_mapped);
    }
    cache_unlock(c);
}
