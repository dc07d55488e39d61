/* close(), fsync() and the last close: what a program may rely on after them. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- closing ---- */

/* An error that will not go away by itself, or with the close, is told once to each handle. */
static int tell_error_locked(struct handle *h) REQUIRES(cache_mutex)
{
    struct file *f = h->node->file;

    if (!f->debt.error || f->error_told || h->told)
        return 0;
    bool of_store = !f->short_write && !f->error_here;
    if (of_store && (err_is_transient(f->debt.error) || f->debt.error == -EBUSY))
        return 0;
    h->told = f->error_told = true;
    return f->debt.error;
}

/* Parks until the store has what the file was when this was called first: what others write
 * meanwhile could go on for ever. */
static int store_has_locked(struct cache *c, struct handle *h, struct waiter *w)
    REQUIRES(cache_mutex)
{
    struct node *n = h->node;
    struct file *f = n->file;

    bool first = !w->generation;
    if (first)
        w->generation = f->generation;
    int r = durable_file_locked(c, n, w);
    if (r != 0)
        return r;
    if (!n->links || file_stored_locked(n, w->generation) ||
        (f->state != FILE_DIRTY && !(n->flags & NODE_ATTR_DIRTY))) {
        file_unwant_locked(f);
        return 0;
    }
    /* A file cut off is not uploaded: nothing would end the waiting. */
    if (f->debt.error && (f->short_write || (!f->debt.running && !h->told))) {
        h->told = true;
        file_unwant_locked(f);
        return f->debt.error;
    }
    h->told = false;
    file_want_locked(f, w->generation);
    if (first) /* what is tried again makes its pause */
        debt_set_due(&f->debt, 0);
    scheduler_kick_locked(c);
    return waitq_park_locked(c, &f->upload_waiters, w);
}

/* Each close has its number, also while a flush has the file sent; but one that waits and is
 * tried again has it already, and what was written since has none. */
static void number_locked(struct cache *c, struct node *n, const struct waiter *w)
    REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    uint64_t generation = w->generation ? w->generation : f->generation;

    if (n->links && f->state == FILE_DIRTY && !file_stored_locked(n, generation) &&
        (!w->generation || !debt_is_queued(&f->debt)))
        file_queue_locked(c, n);
}

/* A close gives the file its number in the order. */
static int number_close(struct cache *c, struct handle *h, int fd, bool inherited,
                        const struct waiter *w)
{
    struct node *n = h->node;
    struct file *f = n->file;
    struct stat st;

    cache_lock(c);
    int r = file_look_locked(c, n, fd, &st);
    /* What is closed is another content than one that a name got before it may have changed
     * unseen: that name has it not. */
    if (r == 0 && f->suspect && f->state == FILE_DIRTY)
        file_mark_dirty_locked(c, n, true);
    bool whole = r == 0 && !inherited && handle_declare_whole_locked(h, &st);
    cache_unlock(c);
    /* This comes before it is queued: it may go up from then on. */
    bool looked = r == 0 && handle_look_for_short_write(c, h, &st);
    cache_lock(c);
    uint64_t before = f->seq;
    number_locked(c, n, w);
    bool numbered = f->seq != before;
    cache_unlock(c);
    int noted = file_note_closed(c, n, fd, r == 0 && (numbered || looked || whole));
    return r < 0 ? r : noted;
}

/* The last descriptor was closed. A mapping may still change it: that is a change of something
 * whole. Without this stamp the one of the close() counts. */
static void note_ended(struct cache *c, struct handle *h)
{
    struct handle_fd fd;

    if (handle_fd_get(c, h, &fd) < 0)
        return;
    (void)node_write_stamp(c, h->node, fd.fd);
    handle_fd_put(c, &fd);
}

void cache_release(struct cache *c, struct handle *h)
{
    struct node *n = h->node;

    cache_lock(c);
    struct file *f = n->file;
    if (h->writable)
        node_look_locked(c, n);
    f->kept_generation = f->passthrough ? UINT64_MAX : f->generation;
    bool ended = handle_end_begun_locked(h) && n->links;
    cache_unlock(c);
    if (ended)
        note_ended(c, h);
    cache_lock(c);
    handle_leave_locked(c, h);
    cache_check_locked(c);
    cache_unlock(c);
}

void cache_abandon(struct cache *c, struct handle *h)
{
    cache_lock(c);
    h->begins = false; /* and stays among the beginners: no close() comes any more */
    cache_unlock(c);
}

/* ---- syncing ---- */

struct sync {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
    int dir_fd;        /* of a directory; or -1 */
    bool writable;     /* of a file: whose handle it was */
    struct waitq waiters;
};

/* The bytes are the store's. What the disk loses of them the kernel tells once, and not here:
 * to who looks when they are all here. */
static int sync_partial(int fd)
{
    return syncfs(fd) < 0 ? -errno : 0;
}

/* The rows come first: syncing anything makes the disk's filesystem keep what was renamed or
 * removed before, as when a log is rotated, and without its row a name that moved would be
 * taken for another file. */
static int sync_handle(struct cache *c, struct sync *s)
{
    enum file_fd which = s->writable ? FD_WRITE : FD_READ;
    int fd = file_get_fd(c, s->node, which);
    int r = fd < 0 ? fd : journal_sync_intents(c->journal);
    cache_lock(c);
    bool partial = fd >= 0 && s->node->file->state == FILE_PARTIAL;
    cache_unlock(c);
    if (r == 0)
        r = partial ? sync_partial(fd) : node_sync(c, s->node, fd);

    cache_lock(c);
    if (fd >= 0)
        file_put_fd_locked(c, s->node->file, which);
    cache_unlock(c);
    return r;
}

static int sync_dir(struct cache *c, struct sync *s)
{
    int r = journal_sync_intents(c->journal);

    if (r == 0 && s->dir_fd >= 0)
        r = node_sync(c, s->node, s->dir_fd);
    if (s->dir_fd >= 0)
        (void)close(s->dir_fd);
    return r;
}

static void run_sync(struct task *task)
{
    struct sync *s = container_of(task, struct sync, task);
    struct cache *c = s->cache;
    int r = s->node->dir ? sync_dir(c, s) : sync_handle(c, s);

    cache_lock(c);
    waitq_wake_locked(c, &s->waiters, r < 0 ? r : CACHE_DONE);
    node_unref_locked(c, s->node);
    cache_unlock(c);
    free(s);
}

/* Takes `dir_fd` over; of a file it is -1. */
static int start_sync(struct cache *c, struct node *n, int dir_fd, bool writable,
                      struct waiter *w)
{
    struct sync *s = calloc(1, sizeof(*s));
    int r = s ? 0 : -ENOMEM;

    cache_lock(c);
    if (s) {
        *s = (struct sync){.task.run = run_sync,
                           .cache = c,
                           .node = n,
                           .dir_fd = dir_fd,
                           .writable = writable};
        waitq_init(&s->waiters);
        r = waitq_park_locked(c, &s->waiters, w);
    }
    if (r == CACHE_PARKED) {
        node_ref_locked(n);
        pool_submit(c->chores, &s->task);
    }
    cache_unlock(c);
    if (r != CACHE_PARKED) {
        free(s);
        if (dir_fd >= 0)
            (void)close(dir_fd);
    }
    return r;
}

static int flush_handle(struct cache *c, struct handle *h, bool inherited, struct waiter *w)
{
    struct handle_fd fd;

    if (!h->writable)
        return 0;
    int r = handle_fd_get(c, h, &fd);
    if (r < 0)
        return r;
    r = number_close(c, h, fd.fd, inherited, w);
    handle_fd_put(c, &fd);
    cache_lock(c);
    /* A child can't wait for content that its writer has not ended. */
    bool waits =
        node_waits_for_store(c, h->node) && !(inherited && file_is_half_locked(c, h->node));
    if (r == 0 && waits)
        r = store_has_locked(c, h, w);
    else if (r == 0)
        r = tell_error_locked(h);
    /* Another program had the file open in passthrough already. */
    bool synced = h->node->file->passthrough && handle_writes_synced(h);
    cache_unlock(c);
    return r == 0 && synced ? start_sync(c, h->node, -1, true, w) : r;
}

int cache_flush(struct cache *c, struct handle *h, struct waiter *w)
{
    return flush_handle(c, h, false, w);
}

int cache_flush_inherited(struct cache *c, struct handle *h, struct waiter *w)
{
    return flush_handle(c, h, true, w);
}

/* Notes, before a sync, what the file is now: its writer says that it is whole. */
static int look_through(struct cache *c, struct handle *h)
{
    struct handle_fd fd;
    struct stat st;
    int r = handle_fd_get(c, h, &fd);

    if (r < 0)
        return r;
    cache_lock(c);
    r = file_look_locked(c, h->node, fd.fd, &st);
    bool whole = r == 0 && handle_end_begun_locked(h);
    cache_unlock(c);
    if (whole)
        r = node_write_stamp(c, h->node, fd.fd);
    handle_fd_put(c, &fd);
    return r;
}

int cache_fsync(struct cache *c, struct handle *h, bool datasync, struct waiter *w)
{
    struct node *n = h->node;

    (void)datasync; /* the stamp must be synced as well */
    int r = look_through(c, h);
    cache_lock(c);
    /* Of what is here in part only the attributes can be ours. */
    bool ours = n->file->state != FILE_PARTIAL || (n->flags & NODE_ATTR_DIRTY);
    if (r == 0 && node_waits_for_store(c, n)) {
        number_locked(c, n, w);
        r = store_has_locked(c, h, w);
    } else if (r == 0) {
        r = tell_error_locked(h);
    }
    cache_unlock(c);
    return r != 0 || !ours ? r : start_sync(c, n, -1, h->writable, w);
}

int cache_fsyncdir(struct cache *c, struct node *dir, struct waiter *w)
{
    cache_lock(c);
    unit_ask_locked(c, dir);
    int r = node_waits_for_store(c, dir) ? durable_dir_locked(c, dir, w) : 0;
    cache_unlock(c);
    if (r != 0)
        return r;
    ns_read(c);
    cache_lock(c);
    auto_free char *path = node_path(dir);
    cache_unlock(c);
    int fd = path ? mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY) : -ENOENT;
    ns_done(c);
    if (fd < 0 && fd != -ENOENT)
        return fd;
    /* Only the listing knows it: nothing is ours but the journal. */
    return start_sync(c, dir, fd < 0 ? -1 : fd, false, w);
}
