/* Open files: opening in one mode per inode, reading, writing, truncating, flushing, syncing,
 * closing. */
#include "cache/node.h"

#include "cache/ahead.h"
#include "cache/crash.h"
#include "cache/durable.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

/* How often a file that eviction took away at the wrong moment is made again. */
#define NEED_TRIES 8

/* ---- opening ---- */

static bool wants_write(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

/* A name of it leads to another version, or to none, by now. */
static int node_is_replaced_locked(struct node *n) REQUIRES(cache_mutex)
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
    /* Who truncates makes room. */
    return wants_write(flags) && !(flags & O_TRUNC) ? space_need_locked(c, f, w) : 0;
}

/* What it writes is to be on the disk when that is answered. The kernel sees to it by an
 * fsync() of each write that came by the daemon; past it the data is synced, and no stamp says
 * so. */
static bool handle_writes_synced(const struct handle *h)
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
    /* Who emptied the file was let in before that (may_empty_locked()); two who were at once
     * are one too many, which the reserve bears. */
    int r = h->flags & O_TRUNC ? 0 : fds_room_locked(c);

    if (r < 0)
        return r;
    c->fds.kept++;
    h->keeps_fd = true;
    m->users++;
    return 0;
}

static void handle_unkeep_fd_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex)
{
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
    c->open_handles++;
    node_ref_locked(h->node);
    file_lru_remove_locked(c, f);
    if (h->flags & CACHE_OPEN_EXEC)
        f->exec_handles++;
    if (!h->writable)
        return 0;
    f->write_handles++;
    f->map_handles += may_be_mapped(h);
    atomic_store(&f->changed, true);
    f->generation++;
    f->past = f->past || f->passthrough;
    /* Else each write comes by here, and marks the file. */
    if (f->passthrough && f->state != FILE_DIRTY &&
        (mtime_is_racy(f->clean_mtime_ns) ||
         (!c->mirror.mtime_trusted && (h->flags & O_ACCMODE) == O_RDWR)))
        f->suspect = true;
    if (!f->is_writer) {
        DL_APPEND2(c->writers, f, writer_prev, writer_next);
        f->is_writer = true;
    }
    return 0;
}

/* Every file that was open for writing is looked at once more: a mapping may still write. */
static void last_writer_left_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (f->is_writer) {
        DL_DELETE2(c->writers, f, writer_prev, writer_next);
        f->is_writer = false;
    }
    if (n->links && (f->writing_stamp || f->state == FILE_DIRTY))
        file_queue_locked(c, n);
}

static void handle_leave_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex)
{
    struct node *n = h->node;
    struct file *f = n->file;

    f->open_handles--;
    c->open_handles--;
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
    file_settle_fds_locked(c, f);
    if (f->open_handles == 0)
        file_lru_add_locked(c, f);
    node_unref_locked(c, n);
    free(h);
}

/* Whether the kernel tells that pages of the file could not be written, which it does once.
 * Asked of a range far behind the end, so that nothing is waited for. */
static bool file_disk_lost(int fd)
{
    return sync_file_range(fd, INT64_MAX / 2, 1, SYNC_FILE_RANGE_WAIT_BEFORE) < 0 &&
           (errno == EIO || err_is_no_space(-errno));
}

/* ---- half files ---- */

void handle_begin_anew(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;

    cache_lock(c);
    f->beginners += !h->begins;
    h->begins = true;
    f->whole_mtime_ns = 0;
    cache_unlock(c);
}

/* What is there from now on is a change of something whole. Whether the stamp must learn it. */
static bool handle_end_begun_locked(struct handle *h) REQUIRES(cache_mutex)
{
    if (!h->begins)
        return false;
    h->begins = false;
    h->node->file->beginners--;
    return true;
}

/* A close() by who made the content anew: it is whole as it is now. He may have more
 * descriptors of it, so that this holds until the next write only; when the last one is closed
 * it holds for good. Whether the stamp must learn it. */
static bool handle_declare_whole_locked(struct handle *h, const struct stat *st)
    REQUIRES(cache_mutex)
{
    struct file *f = h->node->file;
    int64_t mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;

    if (!h->begins || (f->whole_mtime_ns == mtime_ns && f->whole_size == (uint64_t)st->st_size))
        return false;
    f->whole_mtime_ns = mtime_ns;
    f->whole_size = (uint64_t)st->st_size;
    return true;
}

/* Before it changes again. A write past the daemon moves its mtime or size instead. */
static int handle_withdraw_whole(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;

    cache_lock(c);
    bool said = f->beginners && f->whole_mtime_ns;
    if (said)
        f->whole_mtime_ns = 0;
    cache_unlock(c);
    return said ? node_write_stamp(c, n, fd) : 0;
}

bool file_is_half_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    if (!f || !f->beginners)
        return false;
    node_look_locked(c, n);
    if (f->whole_mtime_ns == mirror_time(&c->mirror, n->mtime_ns) && f->whole_size == n->size)
        return false;
    auto_free char *path = node_path(n);
    return !path || !path_is_log(c, path);
}

/* STAMP_WRITING is on the disk before a writable open is answered, or a truncate begins; both
 * are among the writers by now. So is STAMP_BEGUN before the content is made anew. Another one
 * may just be writing it: that is not waited for. */
static int file_stamp_writing(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;

    cache_lock(c);
    bool begun_there = (f->noted & (STAMP_BEGUN | STAMP_WHOLE)) == file_stamp_begun(f);
    bool there = (f->noted & STAMP_WRITING) && begun_there;
    f->writing_stamp = true;
    cache_unlock(c);
    int r = there ? 0 : node_write_stamp(c, n, fd);
    if (r < 0) {
        cache_lock(c);
        if (f->write_handles + f->truncates == 1 && f->state != FILE_DIRTY)
            f->writing_stamp = false;
        cache_unlock(c);
    }
    crash_point("open-stamped");
    return r;
}

/* What a failing disk did to a file that the store has as well: it is taken from there again.
 * 0; 1: it was taken away; -EIO: it can't be, being in use, or for the disk. Unless it is 0 the
 * descriptor is given back. */
static int drop_if_lost(struct cache *c, struct node *n, int fd, enum file_fd which)
{
    cache_lock(c);
    bool clean = n->file && n->file->state == FILE_CLEAN, known = clean && n->file->lost;
    cache_unlock(c);
    if (!clean || (!known && !file_disk_lost(fd)))
        return 0;
    ns_write(c);
    cache_lock(c);
    struct file *f = n->file;
    bool stored = f->state == FILE_CLEAN && n->links && !n->links->next_link &&
                  !node_is_ours(n) && f->open_handles == 0 && file_fd_users(f) == 1;
    if (f->state == FILE_DIRTY) /* written meanwhile: the store does not have that */
        file_lost_locked(c, n);
    else
        f->lost = true;
    file_put_fd_locked(c, f, which);
    auto_free char *path = node_path(n);
    cache_unlock(c);
    int r = stored ? file_discard(c, n) : -EBUSY;
    ns_done(c);
    log_warn("cache %s: its disk lost content of %s; %s", c->mirror.dir, path ? path : "a file",
             r == 0        ? "it is read from the store again"
             : r == -EBUSY ? "it can't be read while it is in use"
                           : "it can't be read, and not be taken away");
    return r == 0 ? 1 : -EIO;
}

/* Only what is in use is safe from eviction: it can take the file between the two steps. */
int file_need_fd(struct cache *c, struct node *n, enum file_fd which)
{
    int r = -ESTALE;

    for (int i = 0; i < NEED_TRIES && r == -ESTALE; i++) {
        r = file_need(c, n);
        if (r < 0)
            break; /* -ESTALE, too: it has no name any more */
        r = file_get_fd(c, n, which);
        int lost = r < 0 ? 0 : drop_if_lost(c, n, r, which);
        if (lost != 0)
            r = lost < 0 ? lost : -ESTALE;
    }
    return r;
}

static enum file_fd handle_fd_of(const struct handle *h)
{
    return h->writable ? FD_WRITE : FD_READ;
}

static int handle_open_file(struct cache *c, struct node *n, int flags, struct handle **ret)
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

/* Without an open writer, now or at once, nobody else would queue what was truncated, also when
 * that could not be noted. Whether it is queued by this. */
static bool queue_truncated_locked(struct cache *c, struct node *n, int r) REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    bool owed = r == 0 || (r < 0 && f->state == FILE_DIRTY && !f->queued);

    if (!owed || f->write_handles || f->beginners || !n->links)
        return false;
    file_queue_locked(c, n);
    return true;
}

/* Who makes the content anew is counted from before that. */
static int file_truncate_anew(struct cache *c, struct node *n, int flags, struct waiter *w,
                              struct handle **ret)
{
    struct file *f = n->file;

    cache_lock(c);
    f->beginners++;
    f->whole_mtime_ns = 0;
    cache_unlock(c);
    int r = file_truncate(c, n, 0, w);
    bool emptied = r == 0;
    if (r == 0)
        r = handle_open_file(c, n, flags, ret);
    cache_lock(c);
    if (r == 0)
        (*ret)->begins = true;
    else
        f->beginners--;
    if (r < 0) /* no close will do it */
        (void)queue_truncated_locked(c, n, emptied ? 0 : r);
    cache_unlock(c);
    return r;
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

/* What would refuse the open does so before anything is lost. */
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
    return flags & O_TRUNC ? open_emptied(c, node, flags, w, ret)
                           : handle_open_file(c, node, flags, ret);
}

struct node *handle_node(struct handle *h)
{
    return h->node;
}

static int get_fd(struct cache *c, struct handle *h, enum file_fd which, struct handle_fd *ret)
{
    int fd = file_get_fd(c, h->node, which);

    if (fd < 0)
        return fd;
    *ret = (struct handle_fd){.fd = fd, .writable = which == FD_WRITE, .node = h->node};
    cache_lock(c);
    node_ref_locked(h->node); /* it may be used until after the answer, and the release */
    cache_unlock(c);
    return 0;
}

int handle_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret)
{
    return get_fd(c, h, handle_fd_of(h), ret);
}

int handle_backing_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret)
{
    return get_fd(c, h, FD_READ, ret);
}

void handle_fd_put(struct cache *c, struct handle_fd *fd)
{
    cache_lock(c);
    file_put_fd_locked(c, fd->node->file, fd->writable ? FD_WRITE : FD_READ);
    node_unref_locked(c, fd->node);
    cache_unlock(c);
}

bool handle_passthrough(struct handle *h)
{
    return atomic_load(&h->node->file->passthrough);
}

int *handle_backing_slot(struct handle *h)
{
    return &h->node->file->backing_slot;
}

int cache_no_passthrough(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;
    int r = 0;

    cache_lock(c);
    if (f->open_handles > 1 && f->passthrough)
        r = -EBUSY;
    else
        f->passthrough = false;
    if (r == 0)
        handle_unkeep_fd_locked(c, h);
    cache_unlock(c);
    return r;
}

bool handle_keep_cache(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;

    cache_lock(c);
    /* Opens through the daemon see every write, so the kernel's pages are right as long as the
     * content did not change behind them; a passthrough write leaves them stale. */
    bool keep = f->kept_generation == f->generation && !f->passthrough;
    cache_unlock(c);
    return keep;
}

/* Smaller ones are fetched as a whole. */
#define DIRECT_MIN (UINT64_C(1) << 20)

bool handle_reads_direct(struct cache *c, struct handle *h)
{
    struct node *n = h->node;

    cache_lock(c);
    bool direct = !h->writable && n->file->state == FILE_PARTIAL && n->size >= DIRECT_MIN;
    cache_unlock(c);
    return direct;
}

/* ---- reading ---- */

int cache_prepare_read(struct cache *c, struct handle *h, uint64_t off, size_t len,
                       struct waiter *w)
{
    struct node *n = h->node;
    int r = 0;

    cache_lock(c);
    struct file *f = n->file;
    if (f->state == FILE_PARTIAL) {
        uint64_t end = off + len < n->size ? off + len : n->size;
        uint64_t ahead = ahead_of(&f->streams, off, len);
        r = off < end ? fetch_need_locked(c, n, off, end, ahead, w) : 0;
    }
    cache_unlock(c);
    return r;
}

/* ---- writes that found no room ---- */

/* Who waits until the store has it learns that it goes there no more. */
static void hold_back_locked(struct cache *c, struct file *f, int err, const char *why)
    REQUIRES(cache_mutex)
{
    f->cut = true;
    f->error = err;
    f->error_told = false;
    free(f->error_text);
    f->error_text = strdup(why);
    waitq_wake_locked(c, &f->upload_waiters, 0);
    progress_tell_locked(c);
}

void file_cut_locked(struct cache *c, struct node *n, uint64_t off)
{
    struct file *f = n->file;

    if (f->lost)
        return;
    if (!f->cut) {
        auto_free char *path = node_path(n);
        log_later(&c->log, LOG_LEVEL_ERROR,
                  "%s: no room in the cache for a write at byte %" PRIu64
                  "; it is kept, and not "
                  "published before that is written again",
                  path ? path : "a removed file", off);
    }
    f->cut_at = off;
    hold_back_locked(c, f, -ENOSPC,
                     "the cache had no room for a write: not published before it is written "
                     "again");
}

void file_lost_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    auto_free char *path = node_path(n);

    if (!f->lost)
        log_later(
            &c->log, LOG_LEVEL_ERROR,
            "%s: the disk of the cache lost what was written to it; what is left is kept, "
            "and not published before the file is written anew",
            path ? path : "a removed file");
    f->lost = true;
    f->cut_at = 0;
    hold_back_locked(c, f, -EIO,
                     "the disk of the cache lost what was written: not published before the "
                     "file is written anew");
}

void file_lost(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    file_lost_locked(c, n);
    cache_unlock(c);
    (void)node_write_stamp(c, n, fd);
}

int file_check_kept(struct cache *c, struct node *n, int fd)
{
    if (!file_disk_lost(fd))
        return 0;
    file_lost(c, n, fd);
    return -EIO;
}

/* Bytes were written at [off, end), or nothing is meant to be behind `off`. */
static void file_mend_locked(struct node *n, uint64_t off, uint64_t end) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (!f->cut || off > f->cut_at || end <= f->cut_at || (f->lost && end != UINT64_MAX))
        return;
    f->cut = f->lost = false;
    f->error = 0;
    free(f->error_text);
    f->error_text = NULL;
}

/* `disk`: it was the disk that refused; else space_need_locked() has told why. EFBIG comes from
 * a limit of the daemon (RLIMIT_FSIZE) or of the disk: of its own the writer's kernel tells. */
static int write_failed(struct cache *c, struct node *n, uint64_t off, int err, bool disk)
{
    if (!err_is_no_space(err) && err != -EFBIG)
        return err;
    cache_lock(c);
    if (disk && err != -EFBIG)
        space_disk_full_locked(c);
    file_cut_locked(c, n, off);
    cache_unlock(c);
    (void)node_save_stamp(c, n);
    return err;
}

#define PROBE_BYTES (1 << 20)
#define COPY_MAX    ((size_t)64 << 20) /* by one copy_file_range() */

/* Whether the disk has no room for even a small write. */
static bool disk_is_full(struct cache *c)
{
    auto_close int fd = mirror_tmpfile(&c->mirror);

    if (fd < 0)
        return err_is_no_space(fd);
    return fallocate(fd, 0, 0, PROBE_BYTES) < 0 && err_is_no_space(-errno);
}

/* Nobody tells of a passthrough write that failed. A file that grew, or is empty, and is closed
 * while the disk has no room is taken for one: rather late than half. */
static bool handle_look_for_cut(struct cache *c, struct handle *h, const struct stat *st)
{
    struct file *f = h->node->file;
    struct statvfs vfs;

    cache_lock(c);
    bool untold = f->passthrough && !f->lost;
    cache_unlock(c);
    if (!untold || (st->st_size && (uint64_t)st->st_size <= h->opened_size))
        return false;
    /* Others may have filled the disk within the second since it was looked at. */
    if (mirror_statvfs(&c->mirror, &vfs) < 0)
        return false;
    cache_lock(c);
    c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    bool scarce = f->cut || c->disk_free_bytes < c->config.reserve_bytes + PROBE_BYTES;
    cache_unlock(c);
    if (!scarce)
        return false;
    bool cut = disk_is_full(c);
    cache_lock(c);
    bool changed = f->cut != cut;
    if (cut) {
        space_disk_full_locked(c);
        file_cut_locked(c, h->node, (uint64_t)st->st_size);
    } else {
        file_mend_locked(h->node, 0, UINT64_MAX);
    }
    cache_unlock(c);
    return changed;
}

/* ---- writing ---- */

/* The file is complete and there is room, or it parks. */
static int write_ready(struct cache *c, struct node *n, struct waiter *w)
{
    cache_lock(c);
    struct file *f = n->file;
    int r = fetch_complete_locked(c, n, w);
    if (r == 0)
        r = space_need_locked(c, f, w);
    cache_unlock(c);
    return r;
}

/* After the daemon itself changed the content through `fd`. */
static int handle_note_change(struct cache *c, struct node *n, int fd)
{
    struct stat st;

    cache_lock(c);
    int r = file_look_locked(c, n, fd, &st);
    /* Two changes within one tick of the clock: the second moves nothing that can be seen. */
    if (n->file->state != FILE_DIRTY || !n->file->content_dirty)
        file_mark_dirty_locked(c, n, true);
    else
        n->file->generation++;
    atomic_store(&n->file->changed, true);
    n->file->kept_generation = n->file->generation;
    n->file->writes++;
    /* Within the same tick it would count as synced. */
    bool outlived = r == 0 && file_says_synced(n->file, &st);
    if (outlived)
        n->file->synced_mtime_ns = 0;
    cache_unlock(c);
    return outlived ? node_write_stamp(c, n, fd) : r;
}

/* Writes as much as there is room for. */
static ssize_t write_some(int fd, const void *buf, size_t len, uint64_t off)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && done == 0)
            return -errno;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* handle_fd_get() for who changes the content next. */
static int change_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret)
{
    int r = handle_fd_get(c, h, ret);

    if (r < 0)
        return r;
    r = handle_withdraw_whole(c, h->node, ret->fd);
    if (r < 0)
        handle_fd_put(c, ret);
    return r;
}

/* Where the file ends, which the kernel takes to be at `*off`. */
static int find_end(int fd, uint64_t *off)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *off = (uint64_t)st.st_size;
    return 0;
}

/* What the kernel noted of a write is at another place. */
static void kernel_was_wrong_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    n->file->kept_generation = UINT64_MAX;
    notice_locked(c, n, NULL);
}

ssize_t cache_write(struct cache *c, struct handle *h, const void *buf, size_t len,
                    uint64_t off, bool append, struct waiter *w)
{
    const uint64_t told_off = off;
    struct node *n = h->node;
    struct handle_fd at;
    int r = write_ready(c, n, w);

    if (r != 0)
        return write_failed(c, n, off, r, false);
    r = change_fd_get(c, h, &at);
    if (r < 0)
        return r;
    r = append ? find_end(at.fd, &off) : 0;
    ssize_t done = r < 0 ? r : write_some(at.fd, buf, len, off);
    if (done >= 0) {
        r = handle_note_change(c, n, at.fd);
        cache_lock(c);
        file_mend_locked(n, off, off + (uint64_t)done);
        if (off != told_off)
            kernel_was_wrong_locked(c, n);
        cache_unlock(c);
    }
    handle_fd_put(c, &at);
    if (done < 0)
        return write_failed(c, n, off, (int)done, true);
    return r < 0 ? r : done;
}

void cache_write_refused(struct cache *c, struct handle *h, uint64_t off, int err)
{
    cache_lock(c);
    bool partial = h->node->file->state == FILE_PARTIAL; /* the store has all that it holds */
    cache_unlock(c);
    if (!partial)
        (void)write_failed(c, h->node, off, err, false);
}

void cache_note_mapped(struct cache *c, struct handle *h)
{
    struct file *f = h->node->file;

    cache_lock(c);
    /* Else it was the last of them, who is gone. */
    f->was_mapped = f->map_handles > 0;
    cache_unlock(c);
}

/* Who asks for more than there can be is told before everything else had to go. */
static int may_allocate(struct cache *c, struct node *n, uint64_t len, struct waiter *w)
{
    int r = write_ready(c, n, w);

    cache_lock(c);
    if (r == 0 && space_is_never_there_locked(c, n->file, len))
        r = -ENOSPC;
    cache_unlock(c);
    return r;
}

/* As if it was written bit by bit: the kernel would give all that the disk has, root's blocks
 * included. What was taken before it parks is there when it comes again. */
static int allocate(struct cache *c, struct node *n, int fd, struct range range,
                    struct waiter *w)
{
    while (range.off < range.end) {
        uint64_t some;
        cache_lock(c);
        int r = space_take_locked(c, n->file, range.end - range.off, w, &some);
        cache_unlock(c);
        if (r != 0)
            return r;
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)range.off, (off_t)some) < 0)
            return -errno;
        r = handle_note_change(c, n, fd);
        if (r < 0)
            return r;
        range.off += some;
    }
    return 0;
}

int cache_fallocate(struct cache *c, struct handle *h, int mode, uint64_t off, uint64_t len,
                    struct waiter *w)
{
    bool takes = !(mode & FALLOC_FL_PUNCH_HOLE);
    struct handle_fd at;
    int r = takes ? may_allocate(c, h->node, len, w) : write_ready(c, h->node, w);

    if (r == 0)
        r = change_fd_get(c, h, &at);
    if (r != 0)
        return r;
    if (takes)
        r = allocate(c, h->node, at.fd, (struct range){off, off + len}, w);
    if (r == 0)
        r = fallocate(at.fd, mode, (off_t)off, (off_t)len) < 0
                ? -errno
                : handle_note_change(c, h->node, at.fd);
    handle_fd_put(c, &at);
    return r;
}

static ssize_t copy_range(struct cache *c, struct handle *in, uint64_t off_in,
                          struct handle *out, uint64_t off_out, size_t len)
{
    off_t from = (off_t)off_in, to = (off_t)off_out;
    struct handle_fd source, target;
    int r = handle_fd_get(c, in, &source);

    if (r < 0)
        return r;
    r = change_fd_get(c, out, &target);
    if (r == 0) {
        ssize_t n = copy_file_range(source.fd, &from, target.fd, &to, len, 0);
        r = n < 0 ? -errno : handle_note_change(c, out->node, target.fd);
        len = n < 0 ? 0 : (size_t)n;
        handle_fd_put(c, &target);
    }
    handle_fd_put(c, &source);
    return r < 0 ? r : (ssize_t)len;
}

ssize_t cache_copy_file_range(struct cache *c, struct handle *in, uint64_t off_in,
                              struct handle *out, uint64_t off_out, size_t len,
                              struct waiter *w)
{
    /* Who copies goes on where a copy ended, and the space is looked at again. */
    if (len > COPY_MAX)
        len = COPY_MAX;
    int r = cache_prepare_read(c, in, off_in, len, w);
    if (r == 0)
        r = write_ready(c, out->node, w);
    if (r != 0)
        return r;
    ssize_t n = copy_range(c, in, off_in, out, off_out, len);
    return n < 0 ? write_failed(c, out->node, off_out, (int)n, true) : n;
}

int cache_lseek(struct cache *c, struct handle *h, uint64_t off, int whence, struct waiter *w,
                uint64_t *ret)
{
    struct handle_fd fd;
    int r;

    /* Where the holes are is known once the file is whole; sparse mirror files would lie. */
    cache_lock(c);
    r = fetch_complete_locked(c, h->node, w);
    cache_unlock(c);
    if (r == 0)
        r = handle_fd_get(c, h, &fd);
    if (r != 0)
        return r;
    off_t at = lseek(fd.fd, (off_t)off, whence);
    r = at < 0 ? -errno : 0;
    handle_fd_put(c, &fd);
    if (r == 0)
        *ret = (uint64_t)at;
    return r;
}

/* ---- truncating ---- */

/* Claims a partial file for becoming complete and empty: nobody fetches meanwhile. */
static int claim_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(cache_mutex)
{
    if (f->busy || f->fetches)
        return waitq_park_locked(c, &f->range_waiters, w);
    f->busy = true;
    return 0;
}

/* A partial file to length 0; docs/format.md has the order. */
static int empty_partial(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;
    struct ranges none = {0};

    int r = stamp_write_ranges(fd, &none, true);
    if (r == 0 && ftruncate(fd, 0) < 0)
        r = -errno;
    crash_point("truncate-emptied");
    cache_lock(c);
    ranges_clear(&f->present);
    sums_clear(&f->sums);
    f->writing_stamp = true;
    cache_unlock(c);
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    if (r == 0)
        r = stamp_remove_ranges(fd);
    crash_point("truncate-complete");
    return r;
}

static int truncate_partial(struct cache *c, struct node *n, int fd)
{
    int r = empty_partial(c, n, fd);
    struct file *f = n->file;

    cache_lock(c);
    f->busy = false;
    if (r == 0) {
        f->state = FILE_DIRTY;
        n->size = 0;
        file_mark_dirty_locked(c, n, true);
    }
    waitq_wake_locked(c, &f->range_waiters, 0);
    cache_unlock(c);
    return r < 0 ? r : handle_note_change(c, n, fd);
}

static int truncate_ready(struct cache *c, struct node *n, uint64_t size, bool *ret_partial,
                          struct waiter *w)
{
    int r = 0;

    cache_lock(c);
    struct file *f = n->file;
    *ret_partial = false;
    if (f->state == FILE_PARTIAL && size == 0) {
        r = claim_locked(c, f, w);
        *ret_partial = r == 0;
    } else {
        r = fetch_complete_locked(c, n, w);
    }
    cache_unlock(c);
    return r;
}

static int truncate_fd(struct cache *c, struct node *n, int fd, uint64_t size, bool partial)
{
    if (partial)
        return truncate_partial(c, n, fd);
    /* As a writer that opens does: an upload that reads the file stops before it can change,
     * and does not declare it clean, nor its stamp, however far it is. */
    cache_lock(c);
    atomic_store(&n->file->changed, true);
    n->file->generation++;
    n->file->whole_mtime_ns = 0;
    cache_unlock(c);
    int r = file_stamp_writing(c, n, fd);
    if (r == 0 && ftruncate(fd, (off_t)size) < 0)
        r = -errno;
    if (r == 0)
        r = handle_note_change(c, n, fd);
    if (r < 0)
        return r;
    cache_lock(c);
    bool cut = n->file->cut;
    file_mend_locked(n, size, UINT64_MAX);
    bool mended = cut && !n->file->cut;
    cache_unlock(c);
    return mended ? node_write_stamp(c, n, fd) : 0;
}

/* From then on it is a change from here, as a writer's: no listing takes the name away. */
static int begin_truncate(struct cache *c, struct node *n)
{
    ns_read(c);
    cache_lock(c);
    n->file->truncates++;
    int r = node_is_replaced_locked(n);
    cache_unlock(c);
    ns_done(c);
    return r;
}

int file_truncate(struct cache *c, struct node *n, uint64_t size, struct waiter *w)
{
    bool partial;

    if (c->config.read_only)
        return -EROFS;
    /* The descriptor first: what is in use is not evicted between the look and the change. */
    int fd = file_need_fd(c, n, FD_WRITE);
    if (fd < 0)
        return fd;
    int r = begin_truncate(c, n);
    if (r == 0)
        r = truncate_ready(c, n, size, &partial, w);
    if (r == 0)
        r = truncate_fd(c, n, fd, size, partial);
    cache_lock(c);
    n->file->truncates--;
    file_put_fd_locked(c, n->file, FD_WRITE);
    bool closed = queue_truncated_locked(c, n, r);
    if (r != 0 && n->file->open_handles == 0)
        file_lru_add_locked(c, n->file);
    cache_unlock(c);
    int placed = closed ? node_save_stamp(c, n) : 0; /* as at a close: its place in the order */
    crash_point("truncate-placed");
    return r != 0 ? r : placed;
}

/* ---- closing ---- */

/* An error that will not go away by itself, or with the close, is told once to each handle. */
static int tell_error_locked(struct handle *h) REQUIRES(cache_mutex)
{
    struct file *f = h->node->file;

    if (!f->error || f->error_told || h->told)
        return 0;
    bool of_store = !f->cut && !f->error_here;
    if (of_store && (err_is_transient(f->error) || f->error == -EBUSY))
        return 0;
    h->told = f->error_told = true;
    return f->error;
}

void file_unwant_locked(struct file *f)
{
    f->wanted = f->wanted && f->upload_waiters.head;
    f->wanted_half = false;
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
    /* What was cut off is not uploaded: nothing would end the waiting. */
    if (f->error && (f->cut || (!f->uploading && !h->told))) {
        h->told = true;
        file_unwant_locked(f);
        return f->error;
    }
    h->told = false;
    file_want_locked(f, w->generation);
    if (first) /* what is tried again makes its pause */
        f->due_ns = 0;
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
        (!w->generation || !f->queued))
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
    bool whole = r == 0 && !inherited && handle_declare_whole_locked(h, &st);
    cache_unlock(c);
    /* Before it is queued: it may go up from then on. */
    bool looked = r == 0 && handle_look_for_cut(c, h, &st);
    cache_lock(c);
    uint64_t before = f->seq;
    number_locked(c, n, w);
    bool numbered = f->seq != before;
    cache_unlock(c);
    return r == 0 && (numbered || looked || whole) ? node_write_stamp(c, n, fd) : r;
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

/* Data first, then the note that it is synced, then the note itself. */
static int sync_file(struct cache *c, struct node *n, int fd)
{
    struct stat before, after;

    cache_lock(c);
    uint64_t writes = n->file ? n->file->writes : 0;
    cache_unlock(c);
    if (fstat(fd, &before) < 0)
        return -errno;
    if (fsync(fd) < 0) {
        int err = -errno;
        if (n->file && (err == -EIO || err_is_no_space(err)))
            file_lost(c, n, fd);
        return err;
    }
    if (fstat(fd, &after) < 0)
        return -errno;
    if (n->dir || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec ||
        before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_size != after.st_size)
        return 0;
    cache_lock(c);
    if (n->file && n->file->writes == writes) {
        n->file->synced_mtime_ns =
            (int64_t)after.st_mtim.tv_sec * NS_PER_SEC + after.st_mtim.tv_nsec;
        n->file->synced_size = (uint64_t)after.st_size;
    }
    cache_unlock(c);
    int r = node_write_stamp(c, n, fd);
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

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
        r = partial ? sync_partial(fd) : sync_file(c, s->node, fd);

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
        r = sync_file(c, s->node, s->dir_fd);
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
    crash_point("close-stamped");
    cache_lock(c);
    /* What who makes it anew has not ended is nothing that a child could wait for. */
    bool waits = c->config.durability == DURABILITY_STORE &&
                 !(inherited && file_is_half_locked(c, h->node));
    if (r == 0 && waits)
        r = store_has_locked(c, h, w);
    else if (r == 0)
        r = tell_error_locked(h);
    /* Beside somebody who had it open in passthrough already. */
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

/* Before a sync: what the file is now, which is whole, as its writer says. */
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
    if (r == 0 && c->config.durability == DURABILITY_STORE) {
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
    int r = c->config.durability == DURABILITY_STORE ? durable_dir_locked(c, dir, w) : 0;
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
    /* Known from the listing only: there is nothing of ours but the journal. */
    return start_sync(c, dir, fd < 0 ? -1 : fd, false, w);
}
