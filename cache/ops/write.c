/* Writes: into the mirror file, by the daemon. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/types/range.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* `disk`: it was the disk that refused; else space_need_locked() has told why. EFBIG comes from
 * a limit of the daemon (RLIMIT_FSIZE) or of the disk: of its own the writer's kernel tells. */
static int write_failed(struct cache *c, struct node *n, uint64_t off, int err, bool disk)
{
    if (!err_is_no_space(err) && err != -EFBIG)
        return err;
    cache_lock(c);
    if (disk && err != -EFBIG)
        space_disk_full_locked(c);
    file_short_write_locked(c, n, off);
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

bool handle_look_for_short_write(struct cache *c, struct handle *h, const struct stat *st)
{
    struct file *f = h->node->file;
    struct statvfs vfs;

    cache_lock(c);
    bool untold = f->passthrough && !f->disk_lost;
    cache_unlock(c);
    if (!untold || (st->st_size && (uint64_t)st->st_size <= h->opened_size))
        return false;
    /* Others may have filled the disk within the second since it was looked at. */
    if (mirror_statvfs(&c->mirror, &vfs) < 0)
        return false;
    cache_lock(c);
    disk_seen_locked(c, &vfs);
    bool scarce =
        f->short_write || c->content->disk_free_bytes < c->config.reserve_bytes + PROBE_BYTES;
    cache_unlock(c);
    if (!scarce)
        return false;
    bool cut = disk_is_full(c);
    cache_lock(c);
    bool changed = f->short_write != cut;
    if (cut) {
        space_disk_full_locked(c);
        file_short_write_locked(c, h->node, (uint64_t)st->st_size);
    } else {
        file_repaired_locked(h->node, 0, UINT64_MAX);
    }
    cache_unlock(c);
    return changed;
}

/* ---- writing ---- */

/* Makes sure that the file is complete and there is room, or parks. */
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

/* handle_fd_get() for a caller that changes the content next. */
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
        r = file_note_change(c, n, at.fd);
        cache_lock(c);
        file_repaired_locked(n, off, off + (uint64_t)done);
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

/* A call that asks for more than there can be fails before everything else had to go. */
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
        r = file_note_change(c, n, fd);
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
                : file_note_change(c, h->node, at.fd);
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
        r = n < 0 ? -errno : file_note_change(c, out->node, target.fd);
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
    /* The caller goes on where a copy ended, and the space is looked at again. */
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

    /* The holes of a file are known once it is whole: those of a partial mirror file are not
     * its. */
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
