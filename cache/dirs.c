/* Directories towards the store: a marker for one that stays empty, its attributes when they
 * are not the default. Objects of our own making are kept to what is needed. */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

struct dir_job {
    struct task task;
    struct dir_job *next; /* in cache.dir_jobs */
    struct cache *cache;
    struct node *node; /* referenced */
    char *path;
    uint64_t generation;
    struct attrs attrs;
};

static bool default_attrs(struct cache *c, struct node *n)
{
    return (n->mode & 07777) == c->config.dir_mode && n->uid == c->config.uid &&
           n->gid == c->config.gid && !n->xattrs;
}

/* Whether the store must be told of it at all. */
static bool needs_marker(struct cache *c, struct node *n)
{
    if (c->store->caps & STORE_DIRS)
        return n->dir->new_here || (n->flags & NODE_ATTR_DIRTY);
    if (n->flags & NODE_ATTR_DIRTY)
        return true;
    return n->dir->new_here &&
           (!n->dir->children || n->dir->stale_marker || !default_attrs(c, n));
}

bool dir_upload_runs_at_locked(struct cache *c, const char *path, bool below)
{
    struct dir_job *j;

    LL_FOREACH(c->dir_jobs, j)
    {
        if (strcmp(j->path, path) == 0 || (below && path_below(path, j->path)))
            return true;
    }
    return false;
}

static void dir_done_locked(struct dir_job *j, int r, const char *why)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct dir *d = n->dir;
    auto_free char *path = node_path(n);

    if (r == 0 && (!path || strcmp(path, j->path) != 0))
        return; /* moved or removed meanwhile: an intention deals with the old name */
    if (r == 0) {
        d->error = 0;
        d->attempts = 0;
        d->has_marker = true;
        entry_changed_locked(c, n->links);
        if (d->generation == j->generation) {
            d->new_here = d->stale_marker = false;
            n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
            dir_unqueue_locked(c, n);
        }
        return;
    }
    if (c->stopping)
        return;
    d->error = r;
    d->attempts++;
    d->due_ns = clock_mono_ns() + retry_delay_ns(d->attempts);
    free(d->error_text);
    d->error_text = strdup(why);
    log_error("directory not in the store yet, tried again: %s", why);
}

static void run_dir(struct task *task)
{
    struct dir_job *j = container_of(task, struct dir_job, task);
    struct cache *c = j->cache;
    struct op op;

    op_init(&op, c->config.store_timeout_ns);
    op.cancelled = &c->cancelled;
    int r = store_mkdir(c->store, &op, j->path, &j->attrs);
    crash_point("mkdir-done");
    mutex_lock(&c->lock);
    dir_done_locked(j, r, op.why);
    mutex_unlock(&c->lock);
    if (r == 0)
        (void)node_save_stamp(c, j->node);
    mutex_lock(&c->lock);
    j->node->dir->uploading = false;
    LL_DELETE(c->dir_jobs, j);
    c->uploads_running_dirs--;
    progress_locked(c);
    node_unref_locked(c, j->node);
    mutex_unlock(&c->lock);
    attrs_release(&j->attrs);
    free(j->path);
    free(j);
}

static void start_locked(struct cache *c, struct node *n, char *path)
{
    struct dir_job *j = calloc(1, sizeof(*j));

    if (!j || node_attrs_locked(n, &j->attrs) < 0) {
        free(j);
        free(path);
        return;
    }
    /* Times of directories are not kept at the store. */
    j->attrs.has &= ~(unsigned)ATTR_MTIME;
    j->task.run = run_dir;
    j->cache = c;
    j->node = n;
    j->path = path;
    j->generation = n->dir->generation;
    node_ref_locked(n);
    n->dir->uploading = true;
    LL_PREPEND(c->dir_jobs, j);
    c->uploads_running_dirs++;
    pool_submit(c->uploaders, &j->task);
}

struct stamp_task {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
};

static void run_stamp(struct task *task)
{
    struct stamp_task *t = container_of(task, struct stamp_task, task);

    (void)node_save_stamp(t->cache, t->node);
    mutex_lock(&t->cache->lock);
    node_unref_locked(t->cache, t->node);
    mutex_unlock(&t->cache->lock);
    free(t);
}

static bool child_is_stored(struct node *dir)
{
    struct entry *e, *next;

    HASH_ITER(hh, dir->dir->children, e, next)
    {
        if (e->node->dir ? !e->node->dir->new_here : e->etag != NULL)
            return true;
    }
    return false;
}

/* Its children stand for it: nothing to send. Until one of them is in the store it stays owed,
 * since they may be removed before. */
static void satisfied_locked(struct cache *c, struct node *n)
{
    if (n->dir->new_here && !child_is_stored(n)) {
        dir_unqueue_locked(c, n);
        return;
    }
    struct stamp_task *t = calloc(1, sizeof(*t));

    n->dir->new_here = false;
    entry_changed_locked(c, n->links);
    dir_unqueue_locked(c, n);
    if (!t)
        return;
    t->task.run = run_stamp;
    t->cache = c;
    t->node = n;
    node_ref_locked(n);
    pool_submit(c->chores, &t->task);
}

void dirs_start_locked(struct cache *c, int64_t now, int64_t *next_due)
{
    struct node *n, *after;

    DL_FOREACH_SAFE2(c->dirty_dirs, n, after, dirty_next)
    {
        if (n->dir->uploading || c->uploads_running_dirs >= c->config.upload_jobs)
            continue;
        if (n->dir->due_ns > now) {
            *next_due = n->dir->due_ns < *next_due ? n->dir->due_ns : *next_due;
            continue;
        }
        if (!n->links) {
            dir_unqueue_locked(c, n);
            continue;
        }
        if (!needs_marker(c, n)) {
            satisfied_locked(c, n);
            continue;
        }
        char *path = node_path(n);
        if (path && !intent_blocks_upload_locked(c, path, 0) && !removal_pending(c, path) &&
            (c->drain || !path_is_staged(c, path)))
            start_locked(c, n, path);
        else
            free(path);
    }
}
