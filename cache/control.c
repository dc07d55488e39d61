/* What people and commands ask of the cache: numbers, what is pending, flush, fetch, walking a
 * path. These calls may block; the frontend's do not. */
#include "cache/intent.h"

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define TICK_NS        (200 * NS_PER_MS)
#define PAUSE_NS       (5 * NS_PER_MS)
#define AWAIT_PAUSE_NS (50 * NS_PER_MS)

/* ---- blocking ---- */

/* Whom a transfer tells how far it is, also while nothing comes. */
struct listener {
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* NULL: nobody */
    void *arg;
    uint64_t done, total;
    int64_t told_ns;
};

struct blocking {
    struct waiter w;
    struct cache *cache;
    struct listener *listener; /* may be NULL */
    bool woken;
    int err;
};

static void blocking_wake(struct waiter *w, int err)
{
    struct blocking *b = container_of(w, struct blocking, w);

    cache_lock(b->cache);
    b->woken = true;
    b->err = err;
    (void)pthread_cond_broadcast(&b->cache->progress);
    cache_unlock(b->cache);
}

static void blocking_init(struct blocking *b, struct cache *c, struct listener *listener)
{
    *b = (struct blocking){.w.wake = blocking_wake, .cache = c, .listener = listener};
}

static void blocking_tell(struct listener *l)
{
    if (!l || !l->progress || clock_mono_ns() - l->told_ns < TICK_NS)
        return;
    l->told_ns = clock_mono_ns();
    l->progress(l->arg, l->done, l->total);
}

/* Waits for a parked call; 0 to make it again, else its errno or the deadline's. */
static int blocking_wait(struct blocking *b, struct op *op)
{
    struct cache *c = b->cache;
    int r = 0;

    cache_lock(c);
    while (!b->woken && (r = op_check(op)) == 0) {
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
        cache_unlock(c);
        blocking_tell(b->listener);
        cache_lock(c);
    }
    bool woken = b->woken;
    cache_unlock(c);
    if (!woken && !cache_cancel(c, &b->w)) {
        /* Being woken just now: the waiter is ours until that is over. */
        cache_lock(c);
        while (!b->woken)
            cache_wait(c, &c->progress);
        cache_unlock(c);
    }
    if (r == 0)
        r = b->err == CACHE_DONE ? 0 : b->err;
    b->woken = false;
    return r;
}

/* Calls `step` until it neither parks nor fails. */
#define BLOCK(b, op, r, step)                                                                  \
    do {                                                                                       \
        (r) = (step);                                                                          \
        if ((r) != CACHE_PARKED)                                                               \
            break;                                                                             \
        (r) = blocking_wait(&(b), (op));                                                       \
    } while ((r) == 0)

static int blocking_walk(struct cache *c, const char *path, struct op *op,
                         struct listener *listener, struct node **ret)
{
    struct node *n = c->root;
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;
    struct blocking b;
    int r = 0;

    if (!copy)
        return -ENOMEM;
    blocking_init(&b, c, listener);
    while (r == 0 && (name = strsep(&rest, "/"))) {
        struct node *child = NULL;
        struct stat st;
        if (*name == '\0')
            continue;
        BLOCK(b, op, r, cache_lookup(c, n, name, &b.w, &child, &st));
        if (n != c->root)
            cache_forget(c, n, 1);
        n = child;
    }
    if (r < 0)
        return op->why[0] ? r : op_fail(op, r, "%s: %s", path, strerror(-r));
    if (n == c->root) {
        *ret = n;
        return 0;
    }
    *ret = n;
    return 0;
}

int cache_walk(struct cache *c, const char *path, struct op *op, struct node **ret)
{
    return blocking_walk(c, path, op, NULL, ret);
}

/* ---- numbers ---- */

void failure_note_locked(struct cache *c, struct failure *f, int err, const char *why)
{
    cache_assert_locked(c);
    f->err = err;
    free(f->text);
    f->text = strdup(why);
}

void read_failed(struct cache *c, const char *what, int err, const char *why)
{
    if (err == -EINTR)
        return;
    log_warn("%s failed: %s", what, why);
    cache_lock(c);
    failure_note_locked(c, &c->read_failure, err, why);
    cache_unlock(c);
}

static void note_age(struct cache_stats *s, const struct node *n) REQUIRES(cache_mutex)
{
    if (!s->oldest_ns || n->ctime_ns < s->oldest_ns)
        s->oldest_ns = n->ctime_ns;
}

static void count_dirty_locked(struct cache *c, struct cache_stats *s) REQUIRES(cache_mutex)
{
    struct file *f;
    struct intent *i;
    struct node *d;

    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        bool owes = f->state == FILE_DIRTY || (f->node->flags & NODE_ATTR_DIRTY);
        if (!owes)
            continue;
        s->dirty_files++;
        s->dirty_bytes += f->state == FILE_DIRTY ? f->node->size : 0;
        s->uploading_files += f->uploading;
        s->failed_files += f->error != 0;
        s->staged_files += f->staged;
        note_age(s, f->node);
    }
    DL_FOREACH2(c->writers, f, writer_next)
    {
        if (f->queued || f->state != FILE_DIRTY || !f->node->links)
            continue;
        s->dirty_files++;
        s->dirty_bytes += f->node->size;
        note_age(s, f->node);
    }
    DL_FOREACH(c->intents, i)
    {
        s->pending_ops++;
    }
    DL_FOREACH2(c->dirty_dirs, d, dir->dirty_next)
    {
        s->pending_ops++;
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
                                .used_bytes = c->used_bytes,
                                .disk_free_bytes = c->disk_free_bytes,
                                .uploaded_files = c->uploaded_files,
                                .uploaded_bytes = c->uploaded_bytes,
                                .downloaded_bytes = c->downloaded_bytes,
                                .open_handles = c->open_handles,
                                .nodes = c->nodes,
                                .mirror_files = c->mirror_files,
                                .pinned_files = HASH_COUNT(c->pins),
                                .hidden_names = c->hidden_names,
                                .kept_files = c->kept_files,
                                .unstamped_files = c->unstamped_files,
                                .copied = c->mirror.copied,
                                .fds_open = c->fds.open,
                                .fds_limit = c->fds.limit,
                                .fds_refused = c->fds.refused,
                                .waiting_writers = count_waiters_locked(c, &c->space_waiters),
                                .space_trouble = space_trouble_text(c->space),
                                .last_error = c->write_failure.err,
                                .last_read_error = c->read_failure.err};
    count_dirty_locked(c, ret);
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

    if (!path || (f->state != FILE_DIRTY && !(n->flags & NODE_ATTR_DIRTY)))
        return 0;
    bool half = file_is_half_locked(c, n);
    const struct cache_pending p = {
        .kind = f->state == FILE_DIRTY ? "write" : "setattr",
        .path = path,
        .state = f->uploading ? "uploading"
                 : f->error   ? "failed"
                 : half       ? "open"
                 : f->staged  ? "staged"
                 : f->held    ? "mapped"
                              : "dirty",
        .error = f->error_text,
        .bytes = f->state == FILE_DIRTY ? n->size : 0,
        .bytes_done = f->uploading ? f->upload_done : 0,
        .cut = f->cut,
    };
    return visit(arg, &p);
}

static int show_dir(struct node *n, pending_visit visit, void *arg) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(n);
    const struct cache_pending p = {
        .kind = "mkdir",
        .path = path,
        .state = n->dir->uploading ? "uploading"
                 : n->dir->error   ? "failed"
                                   : "waiting",
        .error = n->dir->error_text,
    };

    return path ? visit(arg, &p) : 0;
}

static int show_intent(struct intent *i, pending_visit visit, void *arg) REQUIRES(cache_mutex)
{
    static const char *const kinds[] = {[INTENT_UNLINK] = "unlink",
                                        [INTENT_RMDIR] = "rmdir",
                                        [INTENT_RENAME] = "rename",
                                        [INTENT_RENAMEDIR] = "rename"};
    const struct cache_pending p = {
        .kind = kinds[i->kind],
        .path = i->from,
        .path2 = i->to,
        .state = i->running ? "uploading"
                 : i->error ? "failed"
                            : "waiting",
        .error = i->error_text,
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

int cache_each_pending(struct cache *c, pending_visit visit, void *arg)
{
    struct file *f;
    struct intent *i;
    struct node *d;
    int r = 0;

    cache_lock(c);
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (r == 0)
            r = show_file(c, f, visit, arg);
    }
    DL_FOREACH2(c->writers, f, writer_next)
    {
        if (r == 0 && !f->queued)
            r = show_file(c, f, visit, arg);
    }
    DL_FOREACH2(c->dirty_dirs, d, dir->dirty_next)
    {
        if (r == 0)
            r = show_dir(d, visit, arg);
    }
    DL_FOREACH(c->intents, i)
    {
        if (r == 0)
            r = show_intent(i, visit, arg);
    }
    bool kept = c->kept_files > 0;
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
    DL_FOREACH2(c->writers, f, writer_next)
    {
        bool ours = f->map_handles && !f->passthrough;
        auto_free char *name = ours ? node_path(f->node) : NULL;
        if (name && path_below(path, name))
            visit(arg, name, f->was_mapped);
    }
    cache_unlock(c);
}

/* ---- flush ---- */

struct target {
    struct node *node; /* referenced */
    uint64_t generation;
    unsigned attempts; /* that failed before the flush began */
};

struct flush {
    struct cache *cache;
    const char *path;
    unsigned flags; /* enum cache_flush_flags */
    struct target *v;
    size_t n, cap;
    size_t left;   /* not in the store, at the last look */
    bool hurried;  /* that look found something to hurry */
    char *in_vain; /* path of a removal that it found to wait for ever, perhaps, or NULL */
    char *half;    /* path of a file that it found half, or NULL */
    uint64_t seq;  /* intentions up to this one */
    struct rounds rounds;
    int64_t began_ns;
};

static bool node_owes(struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (!n->links)
        return false;
    if (n->dir)
        return n->dir->queued;
    if (!f)
        return false;
    if (f->state == FILE_DIRTY || (n->flags & NODE_ATTR_DIRTY))
        return true;
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty)
            return true;
    return false;
}

static int push_target_locked(struct flush *fl, struct node *n) REQUIRES(cache_mutex)
{
    if (fl->n == fl->cap) {
        size_t cap = fl->cap ? fl->cap * 2 : 64;
        struct target *v = reallocarray(fl->v, cap, sizeof(*v));
        if (!v)
            return -ENOMEM;
        fl->v = v;
        fl->cap = cap;
    }
    node_ref_locked(n);
    fl->v[fl->n++] = (struct target){n, n->dir ? n->dir->generation : n->file->generation,
                                     n->dir ? n->dir->attempts : n->file->attempts};
    return 0;
}

static int add_target_locked(struct flush *fl, struct node *n) REQUIRES(cache_mutex)
{
    return node_owes(n) && node_is_named_below(fl->cache, n, fl->path)
               ? push_target_locked(fl, n)
               : 0;
}

/* Whether someone may have changed the file past the daemon, through a mapping or through
 * passthrough since before the mount, in a way that no upload from now on is certain to see. */
static bool may_be_newer(const struct file *f) REQUIRES(cache_mutex)
{
    return f->writing_stamp && !f->write_handles &&
           (f->state == FILE_CLEAN || (f->state == FILE_DIRTY && f->uploading));
}

static int gather_doubts_locked(struct flush *fl) REQUIRES(cache_mutex)
{
    struct file *f;
    int r = 0;

    DL_FOREACH2(fl->cache->dirty, f, dirty_next)
    {
        if (r == 0 && may_be_newer(f) && node_is_named_below(fl->cache, f->node, fl->path))
            r = push_target_locked(fl, f->node);
    }
    return r;
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

static void drop_targets_locked(struct flush *fl) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < fl->n; i++)
        node_unref_locked(fl->cache, fl->v[i].node);
    fl->n = 0;
}

/* What may have changed without anybody's telling owes an upload after this, if it has. */
static int settle_doubts(struct flush *fl)
{
    struct cache *c = fl->cache;

    cache_lock(c);
    int r = gather_doubts_locked(fl);
    cache_unlock(c);
    for (size_t i = 0; i < fl->n && r == 0; i++)
        r = look_past(c, fl->v[i].node);
    cache_lock(c);
    drop_targets_locked(fl);
    cache_unlock(c);
    return r;
}

static int gather_locked(struct flush *fl) REQUIRES(cache_mutex)
{
    struct cache *c = fl->cache;
    struct file *f;
    struct node *d;
    int r = 0;

    DL_FOREACH2(c->writers, f, writer_next)
    {
        node_look_locked(c, f->node);
        if (r == 0 && !f->queued)
            r = add_target_locked(fl, f->node);
    }
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (r == 0 && ((fl->flags & (CACHE_FLUSH_STAGED | CACHE_FLUSH_AWAIT)) || !f->staged))
            r = add_target_locked(fl, f->node);
    }
    DL_FOREACH2(c->dirty_dirs, d, dir->dirty_next)
    {
        if (r == 0)
            r = add_target_locked(fl, d);
    }
    fl->seq = seq_now_locked(c);
    rounds_init(c, &fl->rounds, fl->seq);
    return r;
}

static bool target_done(const struct target *t) REQUIRES(cache_mutex)
{
    struct node *n = t->node;

    if (!node_owes(n))
        return true;
    return n->dir ? false : file_stored_locked(n, t->generation);
}

/* No settling, no waiting for a close: now. A directory is put off again with each change below
 * it, as when its files come to be stored; what failed waits for its next attempt. */
static void hurry_locked(struct flush *fl, const struct target *t, bool first)
    REQUIRES(cache_mutex)
{
    struct cache *c = fl->cache;
    struct node *n = t->node;
    struct file *f = n->file;

    if (fl->flags & CACHE_FLUSH_AWAIT)
        return;
    if (n->dir) {
        if (first || !n->dir->error) {
            fl->hurried |= n->dir->due_ns != 0;
            n->dir->due_ns = 0;
        }
        return;
    }
    assert(f); /* what owes something and is no directory has a file */
    fl->hurried |= !f->wanted;
    file_want_locked(f, t->generation);
    f->wanted_half = f->wanted_half || (fl->flags & CACHE_FLUSH_HALF);
    if (first)
        f->due_ns = 0;
    if (!f->queued) {
        file_place_locked(c, f);
        file_lru_remove_locked(c, f);
        fl->hurried = true;
    }
}

/* What is left out without a path to tell of it would be taken for done. */
static void tell_of(char **what, char *path, int *error, struct op *op)
{
    free(*what);
    *what = path;
    if (!path)
        *error = op_fail(op, -ENOMEM, "there is no memory to say what is not in the store");
}

/* A removal waits for what was closed before it, also when that is made anew now: its writer
 * may take for ever. */
static struct node *first_half_locked(const struct flush *fl) REQUIRES(cache_mutex)
{
    struct cache *c = fl->cache;
    struct file *f;

    if ((fl->flags & CACHE_FLUSH_HALF) || !c->intents)
        return NULL;
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (!f->first_seq || f->first_seq > barrier_seq_locked(c, c->intents->prev->seq))
            return NULL;
        if (file_is_half_locked(c, f->node))
            return f->node;
    }
    return NULL;
}

static bool waits_for_locked(struct cache *c, const struct intent *i, const struct node *half)
    REQUIRES(cache_mutex)
{
    return half && !intent_is_rename(i) &&
           barrier_seq_locked(c, i->seq) > half->file->first_seq;
}

/* What is renamed above the path has it with it. */
static bool concerns(const struct flush *fl, const struct intent *i) REQUIRES(cache_mutex)
{
    const char *path = fl->path;

    return intent_since(i) <= fl->seq &&
           (path_below(path, i->from) ||
            (i->to && (path_below(path, i->to) || path_below(i->to, path) ||
                       path_below(i->from, path))));
}

/* True when all of them are done; else what is known of a failure, as look_locked(). */
static bool look_at_intents_locked(struct flush *fl, bool first, int *error, bool *final,
                                   struct op *op) REQUIRES(cache_mutex)
{
    bool done = true;
    struct node *half = first_half_locked(fl);
    struct intent *i;

    DL_FOREACH(fl->cache->intents, i)
    {
        if (!concerns(fl, i))
            continue;
        if (waits_for_locked(fl->cache, i, half)) {
            tell_of(&fl->half, node_path(half), error, op);
            continue;
        }
        if (!intent_is_rename(i) && rounds_are_over_locked(fl->cache, &fl->rounds, i)) {
            tell_of(&fl->in_vain, strdup(i->from), error, op);
            continue;
        }
        done = false;
        if (first && i->error && !(fl->flags & CACHE_FLUSH_AWAIT))
            i->due_ns = 0;
        if (i->error && i->failed_ns >= fl->began_ns && (*error == 0 || !*final)) {
            const char *text = i->error_text && *i->error_text ? i->error_text : NULL;
            *error = op_fail(op, i->error, "%s", text ? text : strerror(-i->error));
            *final = !err_is_transient(i->error) && !(intent_is_in_the_way(i->error) &&
                                                      intents_before_locked(fl->cache, i->seq));
        }
    }
    return done;
}

/* Whether what failed for something in its way is worth another attempt: while there are
 * intentions, and once after the last of them. */
static bool clears_up_locked(struct flush *fl, struct target *t, int err, unsigned attempts)
    REQUIRES(cache_mutex)
{
    if (!intent_is_in_the_way(err))
        return false;
    if (intents_before_locked(fl->cache, UINT64_MAX)) {
        t->attempts = attempts;
        return true;
    }
    if (attempts > t->attempts + 1)
        return false;
    if (fl->flags & CACHE_FLUSH_AWAIT)
        return true;
    *(t->node->dir ? &t->node->dir->due_ns : &t->node->file->due_ns) = 0;
    fl->hurried = true;
    return true;
}

/* Nothing sends it but its writer's close or rename, or who may ask for more than to wait. */
static bool waits_for_writer_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->dir ? NULL : n->file;

    if (f && !f->write_handles)
        return f->staged;
    auto_free char *path = node_path(n);
    return path && (f ? f->staged || !path_is_log(c, path) : path_is_staged(c, path));
}

/* A half file is waited for by nobody: its writer may take for ever. */
static bool skip_half_locked(struct flush *fl, struct node *n, int *error, struct op *op)
    REQUIRES(cache_mutex)
{
    bool half = !(fl->flags & CACHE_FLUSH_HALF) && !n->dir && file_is_half_locked(fl->cache, n);

    if (!half && !((fl->flags & CACHE_FLUSH_AWAIT) && waits_for_writer_locked(fl->cache, n)))
        return false;
    tell_of(&fl->half, node_path(n), error, op);
    return true;
}

/* What was to be stored lost against another node's version: it is kept aside, and the name
 * owes nothing any more. Other names of the file may. */
static bool has_lost(const struct target *t) REQUIRES(cache_mutex)
{
    const struct file *f = t->node->dir ? NULL : t->node->file;

    return f && f->error == -ESTALE && (!t->node->links || f->attempts != t->attempts);
}

/* How the last attempt failed, if it did. */
struct failed {
    int err;          /* negative errno; 0 it did not */
    const char *text; /* or NULL; of the node */
    unsigned attempts;
    bool cut; /* a full disk cut the content off */
};

static struct failed failed_now(const struct node *n) REQUIRES(cache_mutex)
{
    const struct dir *d = n->dir;
    const struct file *f = n->file;

    if (d)
        return (struct failed){d->error, d->error_text, d->attempts, false};
    assert(f); /* what owes something and is no directory has a file */
    return (struct failed){f->error, f->error_text, f->attempts, f->cut};
}

/* True when nothing is left to wait for; beside that what is known of the progress and of a
 * failure, and whether that stays. */
static bool look_locked(struct flush *fl, bool first, uint64_t *done, uint64_t *total,
                        int *error, bool *final, struct op *op) REQUIRES(cache_mutex)
{
    bool all = true;

    *done = *total = 0;
    fl->left = 0;
    fl->hurried = first;
    free(take_ptr(fl->in_vain));
    free(take_ptr(fl->half));
    for (size_t i = 0; i < fl->n; i++) {
        struct node *n = fl->v[i].node;
        uint64_t size = n->dir ? 0 : n->size;
        bool ok = target_done(&fl->v[i]);
        *total += size;
        *done += ok ? size : n->file && n->file->uploading ? n->file->upload_done : 0;
        if (ok && has_lost(&fl->v[i]))
            *error = op_fail(op, -ESTALE, "%s", n->file->error_text ? n->file->error_text : "");
        if (ok || skip_half_locked(fl, n, error, op))
            continue;
        all = false;
        fl->left++;
        hurry_locked(fl, &fl->v[i], first);
        /* A failure from before the flush says nothing of the attempt that it asks for. */
        struct failed now = failed_now(n);
        if (!now.err || (!now.cut && now.attempts == fl->v[i].attempts))
            continue;
        bool stays = now.cut || !(err_is_transient(now.err) ||
                                  clears_up_locked(fl, &fl->v[i], now.err, now.attempts));
        if (*error == 0 || (stays && !*final)) {
            auto_free char *path = now.cut ? node_path(n) : NULL;
            *error = op_fail(op, now.err, "%s%s%s", path ? path : "", path ? ": " : "",
                             now.text ? now.text : strerror(-now.err));
            *final = stays;
        }
    }
    all = look_at_intents_locked(fl, first, error, final, op) && all;
    return all && (*fl->path != '\0' || !sessions_pending_locked(fl->cache));
}

/* Whether each upload would be progress: who looks at so many then takes the lock, and the
 * processor, from those who upload. He looks from time to time. */
static bool much_is_left(const struct flush *fl)
{
    return (fl->flags & CACHE_FLUSH_AWAIT) ||
           fl->left > (size_t)fl->cache->config.upload_jobs * 4;
}

/* All else is in the store. */
static int tell_rest(const struct flush *fl, struct op *op)
{
    if (fl->half)
        return op_fail(op, -ETXTBSY,
                       "%s is being written, and not published half: close or fsync() it, "
                       "or publish it as it is with `runfs flush --open`",
                       fl->half);
    return fl->in_vain
               ? op_fail(
                     op, -EBUSY,
                     "%s was removed here, and stays in the store until what was closed before "
                     "is there, but that is removed or replaced again and again: flush once "
                     "more when its writers pause",
                     fl->in_vain)
               : 0;
}

static int wait_flushed(struct flush *fl, struct op *op,
                        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    const bool awaits = fl->flags & CACHE_FLUSH_AWAIT; /* anybody may, often */
    const struct timespec pause = {.tv_nsec = awaits ? AWAIT_PAUSE_NS : PAUSE_NS};
    struct cache *c = fl->cache;
    bool first = true;
    int r = 0;

    for (;;) {
        uint64_t done, total;
        int error = 0;
        cache_lock(c);
        bool final = false;
        bool all = look_locked(fl, first, &done, &total, &error, &final, op);
        bool much = much_is_left(fl);
        if (!all && fl->hurried)
            scheduler_kick_locked(c);
        if (!all && !much)
            (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
        bool stopping = c->stopping;
        cache_unlock(c);
        if (much && !all)
            (void)nanosleep(&pause, NULL);
        first = false;
        if (progress)
            progress(arg, done, total);
        if (all || (awaits && fl->half))
            return error ? error : tell_rest(fl, op);
        if (final)
            return error;
        struct op probe = *op;
        r = stopping ? -EINTR : op_check(&probe);
        if (r < 0)
            return error ? r : op_fail(op, r, "not everything is in the store yet");
    }
}

int cache_flush_path(struct cache *c, const char *path, unsigned flags, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg)
{
    struct flush fl = {.cache = c, .path = path, .flags = flags, .began_ns = clock_mono_ns()};

    int r = settle_doubts(&fl);
    cache_lock(c);
    bool drains = (flags & CACHE_FLUSH_STAGED) && *path == '\0';
    c->drain += drains;
    if (r == 0)
        r = gather_locked(&fl);
    cache_unlock(c);
    if (r == 0)
        r = wait_flushed(&fl, op, progress, arg);
    else
        (void)op_fail(op, r, "flush: %s", strerror(-r));
    cache_lock(c);
    c->drain -= drains;
    for (size_t i = 0; i < fl.n; i++)
        if (fl.v[i].node->file && !(flags & CACHE_FLUSH_AWAIT))
            file_unwant_locked(fl.v[i].node->file);
    drop_targets_locked(&fl);
    cache_unlock(c);
    free(fl.v);
    free(fl.half);
    free(fl.in_vain);
    return r;
}

/* ---- fetch ---- */

struct fetching {
    struct cache *cache;
    struct op *op;
    struct listener listener;
};

static int fetch_file(struct fetching *f, struct node *n)
{
    struct cache *c = f->cache;
    struct handle *h = NULL;
    struct blocking b;
    uint64_t size;
    int r;

    blocking_init(&b, c, &f->listener);
    BLOCK(b, f->op, r, cache_open(c, n, O_RDONLY, &b.w, &h));
    if (r == -EINVAL)
        return 0; /* a symlink or fifo */
    if (r < 0)
        return r;
    do {
        cache_lock(c);
        r = fetch_complete_locked(c, n, &b.w);
        size = n->size;
        cache_unlock(c);
        if (r == CACHE_PARKED)
            r = blocking_wait(&b, f->op);
        else
            break;
    } while (r == 0);
    f->listener.done += size;
    cache_release(c, h);
    blocking_tell(&f->listener);
    return r;
}

struct names {
    char **v;
    size_t n, cap;
};

static int take_name(void *arg, const char *name, struct node *node, const struct stat *st,
                     uint64_t next)
{
    struct names *names = arg;

    (void)node;
    (void)st;
    (void)next;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (names->n == names->cap) {
        size_t cap = names->cap ? names->cap * 2 : 32;
        char **v = reallocarray(names->v, cap, sizeof(*v));
        if (!v)
            return -ENOMEM;
        names->v = v;
        names->cap = cap;
    }
    names->v[names->n] = strdup(name);
    if (!names->v[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int fetch_node(struct fetching *f, struct node *n);

static int fetch_child(struct fetching *f, struct node *dir, const char *name)
{
    struct node *child = NULL;
    struct blocking b;
    struct stat st;
    int r;

    blocking_init(&b, f->cache, &f->listener);
    BLOCK(b, f->op, r, cache_lookup(f->cache, dir, name, &b.w, &child, &st));
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    f->listener.total += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    r = fetch_node(f, child);
    cache_forget(f->cache, child, 1);
    return r;
}

static int fetch_dir(struct fetching *f, struct node *dir)
{
    struct names names = {0};
    struct dirhandle *d = NULL;
    struct blocking b;
    int r;

    blocking_init(&b, f->cache, &f->listener);
    BLOCK(b, f->op, r, cache_opendir(f->cache, dir, &b.w, &d));
    if (r < 0)
        return r;
    r = cache_readdir(f->cache, d, 0, false, NULL, take_name, &names);
    cache_releasedir(f->cache, d);
    for (size_t i = 0; i < names.n; i++) {
        if (r == 0)
            r = fetch_child(f, dir, names.v[i]);
        free(names.v[i]);
    }
    free(names.v);
    return r;
}

static int fetch_node(struct fetching *f, struct node *n)
{
    if (n->dir)
        return fetch_dir(f, n);
    cache_lock(f->cache);
    bool regular = S_ISREG(n->mode);
    cache_unlock(f->cache);
    return regular ? fetch_file(f, n) : 0;
}

int cache_fetch_path(struct cache *c, const char *path, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg)
{
    struct fetching f = {.cache = c, .op = op, .listener = {.progress = progress, .arg = arg}};
    struct node *n = NULL;
    int r = blocking_walk(c, path, op, &f.listener, &n);

    if (r < 0)
        return r;
    cache_lock(c);
    f.listener.total = n->dir ? 0 : n->size;
    cache_unlock(c);
    r = fetch_node(&f, n);
    if (n != c->root)
        cache_forget(c, n, 1);
    if (r < 0 && !op->why[0])
        (void)op_fail(op, r, "fetch %s: %s", path, strerror(-r));
    return r;
}
