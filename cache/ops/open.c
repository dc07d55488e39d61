/* Opening: all handles of an inode in one mode, for reading and writing, anew or as it is. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <utlist.h>

/* ---- opening ---- */

static bool wants_write(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

int node_is_replaced_locked(struct node *n)
{
    if (!(n->flags & NODE_REPLACED))
        return 0;
    if (n->links)
        n->flags &= ~(unsigned)NODE_REPLACED;
    return -ESTALE;
}

/* Everything that opening may have to wait for. */
static int open_ready_locked(struct cache *c, struct node *n, int flags, struct waiter *w)
    REQUIRES(cache_mutex)
{
    if (n->dir)
        return -EISDIR;
    int r = node_is_replaced_locked(n);
    if (r < 0)
        return r;
    if (!n->links && !n->file)
        return -ESTALE;
    if (wants_write(flags) && c->config.read_only)
        return -EROFS;
    r = attrs_need_locked(c, n, w);
    if (r == 0)
        r = attrs_confirm_locked(c, n, w);
    if (r == 0)
        r = version_need_locked(c, n, w);
    if (r != 0)
        return r;
    if (!S_ISREG(n->mode))
        return -EINVAL;
    struct file *f = n->file;
    if (f && f->busy)
        return waitq_park_locked(c, &f->range_waiters, w);
    /* A truncation makes room. */
    return wants_write(flags) && !(flags & O_TRUNC) ? space_need_locked(c, f, w) : 0;
}

bool handle_writes_synced(const struct handle *h)
{
    return h->writable && (h->flags & O_DSYNC); /* O_SYNC has that bit, too */
}

static bool may_pass_through_locked(struct cache *c, struct file *f, const struct handle *h)
    REQUIRES(cache_mutex)
{
    return c->config.passthrough && f->state != FILE_PARTIAL && !handle_writes_synced(h) &&
           (!h->writable || (space_for_passthrough_locked(c) && fds_plenty_locked(c)));
}

/* A passthrough writer's file is looked at under the lock: its descriptor stays open. */
static int keep_fd_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex)
{
    struct mirror_fd *m = &h->node->file->fds[FD_WRITE];
    /* A caller that emptied the file was let in before that (may_empty_locked()); two at once
     * are one too many, which the reserve bears. */
    int r = h->flags & O_TRUNC ? 0 : fds_room_locked(c);

    if (r < 0)
        return r;
    fds_keep_anyway_locked(c);
    h->keeps_fd = true;
    m->users++;
    return 0;
}

void handle_unkeep_fd_locked(struct cache *c, struct handle *h)
{
    cache_assert_locked(c);
    if (!h->keeps_fd)
        return;
    h->keeps_fd = false;
    fds_unkeep_locked(c);
    file_put_fd_locked(c, h->node->file, FD_WRITE);
}

/* For writing, and shared. */
static bool may_be_mapped(const struct handle *h)
{
    return (h->flags & O_ACCMODE) == O_RDWR;
}

/* The handle's descriptor is in use. 0 or -ENFILE. */
static int enter_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex)
{
    struct file *f = h->node->file;

    if (f->open_handles == 0)
        f->passthrough = may_pass_through_locked(c, f, h);
    int r = h->writable && f->passthrough ? keep_fd_locked(c, h) : 0;
    if (r < 0)
        return r;
    f->open_handles++;
    c->ops->open_handles++;
    node_ref_locked(h->node);
    file_lru_remove_locked(c, f);
    if (h->flags & CACHE_OPEN_EXEC)
        f->exec_handles++;
    if (!h->writable)
        return 0;
    f->write_handles++;
    f->map_handles += may_be_mapped(h);
    bool past = f->passthrough; /* else each write comes by here, and marks the file */
    bool unsure = past && (mtime_is_racy(f->clean_mtime_ns) ||
                           (!c->mirror.mtime_trusted && (h->flags & O_ACCMODE) == O_RDWR));
    file_has_writer_locked(f, past, h->flags & O_DIRECT, unsure);
    if (!f->is_writer) {
        DL_APPEND2(c->content->writers, f, writer_prev, writer_next);
        f->is_writer = true;
    }
    return 0;
}

/* Every file that was open for writing is looked at once more: a mapping may still write. */
static void last_writer_left_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (f->is_writer) {
        DL_DELETE2(c->content->writers, f, writer_prev, writer_next);
        f->is_writer = false;
    }
    if (!n->links || (!f->writing_stamp && f->state != FILE_DIRTY))
        return;
    if (f->unit_generation == f->generation) /* its close came before */
        file_queue_again_locked(c, n);
    else
        file_queue_locked(c, n);
}

void handle_leave_locked(struct cache *c, struct handle *h)
{
    struct node *n = h->node;
    struct file *f = n->file;

    cache_assert_locked(c);
    f->open_handles--;
    c->ops->open_handles--;
    if (h->flags & CACHE_OPEN_EXEC)
        f->exec_handles--;
    if (may_be_mapped(h) && --f->map_handles == 0)
        f->was_mapped = false;
    if (h->writable && --f->write_handles == 0)
        last_writer_left_locked(c, n);
    if (f->open_handles == 0) {
        f->passthrough = false;
        free(take_ptr(f->streams));
    }
    handle_unkeep_fd_locked(c, h);
    file_close_spare_fds_locked(c, f);
    if (f->open_handles == 0)
        file_lru_add_locked(c, f);
    node_unref_locked(c, n);
    free(h);
}

/* ---- half files ---- */

bool handle_begin_anew(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;

    cache_lock(c);
    bool begins = !h->begins;
    if (begins)
        file_begin_anew_locked(f);
    else
        (void)file_unsay_whole_locked(f);
    h->begins = true;
    cache_unlock(c);
    return begins;
}

bool handle_end_begun_locked(struct handle *h)
{
    if (!h->begins)
        return false;
    h->begins = false;
    file_end_anew_locked(h->node->file);
    return true;
}

bool handle_declare_whole_locked(struct handle *h, const struct stat *st)
{
    struct file *f = h->node->file;

    if (!h->begins || file_is_said_whole(f, stat_mtime_ns(st), (uint64_t)st->st_size))
        return false;
    file_say_whole_locked(f, stat_mtime_ns(st), (uint64_t)st->st_size);
    return true;
}

int handle_withdraw_whole(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    bool said = file_unsay_whole_locked(n->file);
    cache_unlock(c);
    return said ? node_write_stamp(c, n, fd) : 0;
}

int handle_open_file(struct cache *c, struct node *n, int flags, struct handle **ret)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->node = n;
    h->flags = flags;
    h->writable = wants_write(flags);
    enum file_fd which = handle_fd_of(h);
    int fd = file_need_fd(c, n, which);
    if (fd < 0) {
        free(h);
        return fd;
    }
    ns_read(c); /* a listing takes the name away from who is not a writer yet */
    cache_lock(c);
    h->opened_size = n->size;
    int r = node_is_replaced_locked(n);
    if (r == 0)
        r = enter_locked(c, h);
    bool entered = r == 0;
    cache_unlock(c);
    ns_done(c);
    if (r == 0 && h->writable)
        r = file_stamp_writing(c, n, fd);
    cache_lock(c);
    file_put_fd_locked(c, n->file, which);
    if (r == 0)
        *ret = h;
    else if (entered)
        handle_leave_locked(c, h);
    else
        free(h);
    cache_unlock(c);
    return r;
}

int file_open_made(struct cache *c, struct node *n, int flags, struct handle **ret)
{
    return handle_open_file(c, n, flags, ret);
}

/* The file has a writer all the while: nothing is uploaded of it in between. */
static int open_emptied(struct cache *c, struct node *n, int flags, struct waiter *w,
                        struct handle **ret)
{
    int fd = file_need_fd(c, n, FD_WRITE);

    if (fd < 0)
        return fd;
    int r = file_truncate_anew(c, n, flags, w, ret);
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_WRITE);
    if (r != 0 && n->file->open_handles == 0)
        file_lru_add_locked(c, n->file);
    cache_unlock(c);
    return r;
}

/* All that would refuse the open is checked before anything is lost. */
static int may_empty_locked(struct cache *c, const struct file *f) REQUIRES(cache_mutex)
{
    if (!f)
        return 0;
    /* Of an open for reading the kernel finds out too late that the file is being executed. */
    if (f->exec_handles)
        return -ETXTBSY;
    return f->passthrough ? fds_room_locked(c) : 0;
}

int cache_open(struct cache *c, struct node *node, int flags, struct waiter *w,
               struct handle **ret)
{
    cache_lock(c);
    int r = open_ready_locked(c, node, flags, w);
    if (r == 0 && (flags & O_TRUNC))
        r = may_empty_locked(c, node->file);
    cache_unlock(c);
    if (r != 0)
        return r;
    r = flags & O_TRUNC ? open_emptied(c, node, flags, w, ret)
                        : handle_open_file(c, node, flags, ret);
    if (r == 0 && wants_write(flags))
        lock_file_opened(c, node, w);
    return r;
}
