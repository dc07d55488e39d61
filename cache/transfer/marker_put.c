/* Directories towards the store: a marker for one that stays empty, or is waited for before a
 * name in it comes, its attributes when they are not the default. Objects of our own making are
 * kept to what is needed, and a directory comes with its first name. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/crash.h"
#include "cache/tree/children.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* How long who waits for a new directory waits for a file in it to settle. */
#define SETTLES_NS (1 * NS_PER_SEC)

struct dir_job {
    struct task task;
    struct dir_job *next GUARDED_BY(cache_mutex); /* in transfers.dir_jobs */
    struct cache *cache;
    struct node *node; /* referenced */
    char *path;
    struct place at; /* of the marker; borrows the path */
    unsigned volume; /* which store that is in */
    bool real;       /* a directory there, not a marker */
    uint64_t generation;
    struct attrs attrs;
    int64_t began_ns; /* CLOCK_MONOTONIC */
};

static bool default_attrs(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    return (n->mode & 07777) == c->config.dir_mode && n->uid == c->config.uid &&
           n->gid == c->config.gid && !n->xattrs;
}

/* Whether the store must be told of the directory at all. */
static bool needs_marker(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    if (store_dir_can(c->store, place_of_path(path).key, STORE_DIRS))
        return n->dir->new_here || n->dir->mtime_set || (n->flags & NODE_ATTR_DIRTY);
    if (n->flags & NODE_ATTR_DIRTY)
        return true;
    return n->dir->new_here &&
           (!n->dir->children || n->dir->stale_marker || !default_attrs(c, n));
}

bool dir_upload_runs_at_locked(struct cache *c, struct place at, bool below)
{
    struct dir_job *j;

    cache_assert_locked(c);
    LL_FOREACH(c->transfer->dir_jobs, j)
    {
        if (place_same(j->at, at) || (below && place_below(at, j->at)))
            return true;
    }
    return false;
}

bool dir_upload_runs_above_locked(struct cache *c, struct place at, unsigned volume)
{
    struct dir_job *j;

    cache_assert_locked(c);
    LL_FOREACH(c->transfer->dir_jobs, j)
    {
        if (volumes_meet(j->volume, volume) && place_below(j->at, at))
            return true;
    }
    return false;
}

/* ---- what the store is told ---- */

/* The cache knows what it put, when the answer says which version it is. */
static void put_locked(struct dir_job *j, const struct object *obj) REQUIRES(cache_mutex)
{
    struct node *n = j->node;
    struct dir *d = n->dir;

    etag_clear(&d->put_etag);
    d->put_from_s = d->put_to_s = 0;
    if (!put_window(obj, clock_mono_ns() - j->began_ns, &d->put_from_s, &d->put_to_s))
        return;
    etag_set(&d->put_etag, obj->etag);
    n->attrs_has = (uint8_t)j->attrs.has;
    d->marker_mtime_ns = j->attrs.mtime_ns;
    index_marker_news_locked(j->cache, n);
}

/* Whether names in it are owed, whoever sends them when. */
static bool owes_names(struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if ((e->dirty && !e->scratch) || place_known(e->source) ||
            (e->node->dir && debt_is_queued(&e->node->dir->debt)))
            return true;
    }
    return false;
}

static bool is_real(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(dir);

    return path && store_dir_can(c->store, place_of_path(path).key, STORE_DIRS);
}

/* A name that comes to a real directory moves its time there. */
static void name_came_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct dir *d = dir->dir;

    if (d->debt.running && d->mtime_set && is_real(c, dir))
        d->generation++; /* what is sent may be there before the name */
    if (!d->time_early)
        return;
    d->time_early = false;
    d->mtime_set = true;
    dir_queue_locked(c, dir);
}

static void dir_done_locked(struct dir_job *j, int r, const struct object *obj,
                            const struct op *op) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct dir *d = n->dir;
    auto_free char *path = node_path(n);

    if (r == 0 && (!path || strcmp(path, j->path) != 0))
        return; /* moved or removed meanwhile: an intention deals with the old name */
    if (r == 0) {
        debt_forgive(&d->debt);
        d->has_marker = true;
        d->marker_version = 0;
        if (d->generation == j->generation) {
            d->new_here = d->stale_marker = false;
            d->time_early = (d->mtime_set || d->time_early) && j->real && owes_names(n);
            d->mtime_set = false;
            n->flags &= ~(unsigned)(NODE_ATTR_DIRTY | NODE_ATTRS_OLD);
            dir_unqueue_locked(c, n);
            d->generation++; /* earlier listings are not right about it */
            put_locked(j, obj);
        }
        entry_changed_locked(c, n->links);
        return;
    }
    /* Only the answer may have been lost, unless a refusal was it. */
    if (path && strcmp(path, j->path) == 0 && n->links &&
        (!refusal_is_one(r) || op->left_behind))
        entry_may_exist_locked(n->links);
    if (c->stopping)
        return;
    owed_failed_locked(c, &d->debt, r, op->why);
    log_later(&c->log, LOG_LEVEL_ERROR, "directory not in the store yet, tried again: %s",
              op->why);
}

static void run_dir(struct task *task)
{
    struct dir_job *j = container_of(task, struct dir_job, task);
    struct cache *c = j->cache;
    struct object obj = {0};
    struct op op;

    cache_op(c, &op);
    j->began_ns = clock_mono_ns();
    int r = store_mkdir(c->store, &op, j->at.key, &j->attrs, &obj);
    crash_point("mkdir-done");
    cache_lock(c);
    dir_done_locked(j, r, &obj, &op);
    cache_unlock(c);
    if (r == 0)
        object_release(&obj);
    if (r == 0)
        (void)node_save_stamp(c, j->node);
    cache_lock(c);
    debt_run(&j->node->dir->debt, false);
    LL_DELETE(c->transfer->dir_jobs, j);
    c->transfer->dir_uploads_running--;
    c->transfer->volumes[j->volume].markers--;
    if (r < 0)
        progress_failed_locked(c);
    else
        progress_locked(c);
    node_unref_locked(c, j->node);
    cache_unlock(c);
    attrs_release(&j->attrs);
    free(j->path);
    free(j);
}

static void start_locked(struct cache *c, struct node *n, char *path) REQUIRES(cache_mutex)
{
    struct dir_job *j = calloc(1, sizeof(*j));

    if (!j || node_attrs_locked(n, &j->attrs) < 0) {
        free(j);
        free(path);
        return;
    }
    /* A real directory has a time of its own, which its names move. */
    j->real = store_dir_can(c->store, place_of_path(path).key, STORE_DIRS);
    if (j->real && !n->dir->mtime_set)
        j->attrs.has &= ~(unsigned)ATTR_MTIME;
    else if (j->real && !n->dir->new_here && !(n->flags & NODE_ATTR_DIRTY))
        j->attrs.has &= (unsigned)ATTR_MTIME; /* the rest is the store's */
    j->task.run = run_dir;
    j->cache = c;
    j->node = n;
    j->path = path;
    j->at = place_of_path(path);
    j->generation = n->dir->generation;
    node_ref_locked(n);
    dirs_above_may_exist_locked(c, path);
    debt_run(&n->dir->debt, true);
    LL_PREPEND(c->transfer->dir_jobs, j);
    c->transfer->dir_uploads_running++;
    j->volume = node_volume(n);
    c->transfer->volumes[j->volume].markers++;
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
    cache_lock(t->cache);
    node_unref_locked(t->cache, t->node);
    cache_unlock(t->cache);
    free(t);
}

static bool dir_waits_for_rename(struct cache *c, const struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    return !n->dir->debt.wanted && !c->queue->drain && path_is_staged_dir(c, path);
}

/* Whether something sends the name without a rename. A flush waits for what it sends itself:
 * another file may be open for ever. */
static bool comes(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    struct node *n = e->node;
    const struct file *f = n->file;

    if (!n->dir && (!e->dirty || e->scratch || !f || f->debt.error))
        return false;
    if (!n->dir && e->parent->dir->debt.wanted)
        return f->debt.running ||
               (f->debt.wanted && (f->wanted_half || !file_is_half_locked(c, n)));
    if (!n->dir)
        return !file_waits_for_rename_locked(c, n);
    if (n->dir->debt.running || !debt_is_queued(&n->dir->debt))
        return n->dir->debt.running;
    auto_free char *path = entry_path(e);
    return path && !dir_waits_for_rename(c, n, path);
}

static bool moves_time(void *arg, const struct intent *i, const char *at) REQUIRES(cache_mutex)
{
    (void)arg;
    return intent_is_of_name_in(i, at);
}

/* Names that are still on their way to a real directory would move the time that it is to have.
 */
static bool names_on_their_way(struct cache *c, struct node *dir, const char *path)
    REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (!store_dir_can(c->store, place_of_path(path).key, STORE_DIRS) || !dir->dir->mtime_set)
        return false;
    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (place_known(e->source) || comes(c, e))
            return true;
    }
    return intent_below_is(c, path, moves_time, NULL) != 0;
}

static bool is_stored(const struct entry *e) REQUIRES(cache_mutex)
{
    return e->node->dir ? !e->node->dir->new_here && !dir_is_local(e->node->dir)
                        : etag_known(&e->etag);
}

static bool stands(const struct entry *e) REQUIRES(cache_mutex)
{
    return is_stored(e) && !place_known(e->source);
}

/* Whether a name in it stands for it at the store. One that a rename is yet to bring does not:
 * that may be refused for good. */
static bool child_is_stored(struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (stands(e))
            return true;
    }
    return false;
}

/* Whether somebody waits for a new directory for which no name stands at the store yet. */
static bool is_awaited(struct node *dir) REQUIRES(cache_mutex)
{
    return dir->dir->debt.wanted && dir->dir->new_here && !child_is_stored(dir);
}

/* Whether something that may take for ever comes before it: a refused rename, perhaps. */
static bool is_held(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    struct node *n = e->node;
    auto_free char *path = entry_path(e);

    if (!path)
        return true;
    return (n->dir ? order_of_marker_locked(c, path, node_volume(n), &on_its_way)
                   : order_of_upload_locked(c, path, n->file->state == FILE_DIRTY,
                                            &on_its_way)) == ORDER_WAIT;
}

/* Whether the file is closed and rests, and goes in a moment: a marker that came before it
 * would stay. Its time can be put off again and again, or be hours away. */
static bool settles(struct cache *c, const struct entry *e) REQUIRES(cache_mutex)
{
    const struct file *f = e->node->dir ? NULL : e->node->file;
    int64_t since_ns = e->parent->dir->names_ns, now = clock_mono_ns();

    if (!f || f->debt.due_ns - now > SETTLES_NS || (since_ns && now - since_ns > SETTLES_NS))
        return false;
    return e->dirty && !e->scratch && debt_is_queued(&f->debt) && !f->staged &&
           !f->write_handles && !f->short_write && !file_is_half_locked(c, e->node);
}

/* Whether a name in it comes that will stand for it, as far as is known now. */
static bool child_comes(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (!comes(c, e) && !settles(c, e))
            continue;
        const struct debt *d = e->node->dir ? &e->node->dir->debt : &e->node->file->debt;
        if (d->running || (!d->error && !is_held(c, e)))
            return true;
    }
    return false;
}

bool dir_goes_itself_locked(struct cache *c, struct node *dir, const char *path)
{
    cache_assert_locked(c);
    return needs_marker(c, dir, path) || (is_awaited(dir) && !child_comes(c, dir));
}

/* Who reads the store takes the newest directory for the newest checkpoint, also while nothing
 * is in it: it comes with its first name, however long that is on its way. */
static bool first_name_comes(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    return dir->dir->new_here && !dir->dir->stale_marker && !child_is_stored(dir) &&
           child_comes(c, dir);
}

static void stamp_later_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct stamp_task *t = calloc(1, sizeof(*t));

    if (!t)
        return;
    t->task.run = run_stamp;
    t->cache = c;
    t->node = n;
    node_ref_locked(n);
    pool_submit(c->chores, &t->task);
}

/* The names in the directory stand for it at the store. */
static void stands_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    n->dir->new_here = false;
    dir_unqueue_locked(c, n);
    n->dir->generation++;
    stamp_later_locked(c, n);
}

/* Its children stand for it: nothing to send. Until one of them is in the store it stays owed,
 * since they may be removed before. */
static void satisfied_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->dir->new_here && !child_is_stored(n)) {
        dir_unqueue_locked(c, n);
    } else {
        stands_locked(c, n);
        entry_changed_locked(c, n->links);
    }
    progress_tell_locked(c);
}

void dir_child_changed_locked(struct cache *c, struct node *dir, const struct entry *e)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (d->bare && stands(e) && dir_dress_locked(dir))
        stamp_later_locked(c, dir);
    if (!d->new_here || d->debt.running)
        return;
    /* A waiter for the child finds that nothing is owed. */
    auto_free char *path = stands(e) ? node_path(dir) : NULL;
    if (path && !needs_marker(c, dir, path)) {
        stands_locked(c, dir);
    } else if (!debt_is_queued(&d->debt)) {
        dir_queue_locked(c, dir);
    } else if (path) {
        dir_is_not_empty_locked(c, dir);
    }
}

/* What is on its way to the directory's store. */
static struct volume_tasks *volume_of(struct cache *c, const struct node *n)
    REQUIRES(cache_mutex)
{
    return &c->transfer->volumes[node_volume(n)];
}

static bool start_dir_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct node *n = debt_dir(d);

    cache_assert_locked(c);
    if (volume_of(c, n)->markers >= c->config.upload_jobs)
        return true;
    if (!n->links) {
        dir_unqueue_locked(c, n);
        return true;
    }
    auto_free char *path = node_path(n);
    bool needs = path && needs_marker(c, n, path), awaited = path && !needs && is_awaited(n);
    /* A name that comes may be long on its way, and its end makes a pass. */
    if (needs ? first_name_comes(c, n) : awaited && child_comes(c, n)) {
        if (d->wanted && !n->dir->names_ns)
            n->dir->names_ns = p->now_ns;
        return true;
    }
    if (path && names_on_their_way(c, n, path)) {
        debt_set_due(d, p->now_ns + NAMES_NS);
        (void)debt_is_due(d, p->now_ns, p->next_ns);
    } else if (path && !needs && !awaited) {
        satisfied_locked(c, n);
    } else if (path && !dir_waits_for_rename(c, n, path) && unit_lets_dir_go_locked(c, n) &&
               order_of_marker_locked(c, path, node_volume(n), &on_its_way) == ORDER_GO) {
        start_locked(c, n, take_ptr(path));
    }
    return true;
}

const struct starter dir_starter = {DEBT_DIR, NULL, start_dir_locked, NULL};

void entry_changed_locked(struct cache *c, struct entry *e)
{
    cache_assert_locked(c);
    if (e)
        name_came_locked(c, e->parent);
    for (; e; e = e->parent->links) {
        entry_changed_here_locked(e);
        dir_child_changed_locked(c, e->parent, e);
    }
}
