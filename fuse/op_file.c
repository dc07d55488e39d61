/* The content of open files. Passthrough files come here for all but read and write. */
#include "fuse/control.h"
#include "fuse/dying.h"
#include "fuse/fs_impl.h"
#include "fuse/setid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Smaller answers are copied: a pipe costs as much. */
#define SPLICE_MIN ((size_t)128 << 10)

/* The request for an open file; NULL when it was answered. */
static struct pending *file_request(fuse_req_t req, const struct fuse_file_info *fi,
                                    int (*run)(struct pending *p))
{
    const struct open_file *f = open_file_of(fi);

    if (!f || !f->handle) { /* a control file */
        (void)fuse_reply_err(req, EINVAL);
        return NULL;
    }
    return pending_new(req, run, fi);
}

static ssize_t read_all(int fd, char *buf, size_t len, uint64_t off)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, buf + done, len - done, (off_t)(off + done));
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Through a buffer. */
static int answer_copied(struct pending *p, int fd)
{
    char *buf = thread_buffer(p->size);

    if (!buf)
        return -ENOMEM;
    ssize_t n = read_all(fd, buf, p->size, p->off);
    if (n < 0)
        return (int)n;
    (void)answer_buf(p, buf, (size_t)n);
    return 0;
}

static int run_read(struct pending *p)
{
    struct cache *cache = p->fs->cache; /* the answer ends `p` */
    struct handle *h = p->file->handle;
    struct handle_fd fd;
    int r = cache_prepare_read(cache, h, p->off, p->size, &p->waiter);

    if (r == 0)
        r = handle_fd_get(cache, h, &fd);
    if (r)
        return r;
    if (p->size >= SPLICE_MIN && p->size <= p->fs->splice_max)
        (void)answer_fd(p, fd.fd, p->off, p->size);
    else
        r = answer_copied(p, fd.fd);
    handle_fd_put(cache, &fd);
    return r;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    if (ino_is_control(ino) && !open_file_of(fi)->handle) {
        control_read(req, fi, size, off);
        return;
    }
    struct pending *p = file_request(req, fi, run_read);
    if (!p)
        return;
    p->size = size;
    p->off = (uint64_t)off;
    pending_start(p);
}

static int run_write(struct pending *p)
{
    int r = setid_fall(p, handle_node(p->file->handle));

    if (r)
        return r;
    ssize_t n = cache_write(p->fs->cache, p->file->handle, p->data, p->size, p->off,
                            p->flags & O_APPEND, &p->waiter);

    if (n < 0 || n == CACHE_PARKED)
        return (int)n;
    (void)answer_write(p, (size_t)n);
    return 0;
}

/* The program may believe that these bytes are written: without them the file must not be
 * uploaded. */
static void write_refused(struct pending *p, int err)
{
    cache_write_refused(p->fs->cache, p->file->handle, p->off, err);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
              struct fuse_file_info *fi)
{
    struct pending *p = file_request(req, fi, run_write);

    (void)ino;
    if (!p)
        return;
    if (fi->writepage)
        cache_note_mapped(p->fs->cache, p->file->handle);
    p->data = data;
    p->size = size;
    p->must_keep = fi->writepage;
    p->refused = write_refused;
    p->off = (uint64_t)off;
    /* The flags as fcntl() has set them by now. A page of a mapping goes where it belongs, also
     * with O_APPEND. */
    p->flags = fi->writepage ? 0 : (unsigned)fi->flags;
    pending_start(p);
}

static int run_flush(struct pending *p)
{
    struct cache *c = p->fs->cache;
    struct handle *h = p->file->handle;

    return answer_done(p, p->flags ? cache_flush_inherited(c, h, &p->waiter)
                                   : cache_flush(c, h, &p->waiter));
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino_is_control(ino)) {
        (void)fuse_reply_err(req, 0);
        return;
    }
    struct pending *p = file_request(req, fi, run_flush);
    if (!p)
        return;
    p->flags = caller_inherited(p->file->opener, fuse_req_ctx(req)->pid);
    /* The kernel sends no interrupt for the close of a process that is exiting. */
    atomic_store(&p->interrupted, true);
    pending_start(p);
}

static int run_fsync(struct pending *p)
{
    return answer_done(p,
                       cache_fsync(p->fs->cache, p->file->handle, p->flags != 0, &p->waiter));
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct pending *p = file_request(req, fi, run_fsync);

    (void)ino;
    if (!p)
        return;
    p->flags = (unsigned)datasync;
    pending_start(p);
}

static int run_fallocate(struct pending *p)
{
    int r = setid_fall(p, handle_node(p->file->handle));

    if (r)
        return r;
    return answer_done(p, cache_fallocate(p->fs->cache, p->file->handle, (int)p->flags, p->off,
                                          p->size, &p->waiter));
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                  struct fuse_file_info *fi)
{
    struct pending *p = file_request(req, fi, run_fallocate);

    (void)ino;
    if (!p)
        return;
    p->flags = (unsigned)mode;
    p->off = (uint64_t)off;
    p->size = (size_t)len;
    pending_start(p);
}

static int run_copy_file_range(struct pending *p)
{
    int r = setid_fall(p, handle_node(p->file2->handle));

    if (r)
        return r;
    ssize_t n = cache_copy_file_range(p->fs->cache, p->file->handle, p->off, p->file2->handle,
                                      p->off2, p->size, &p->waiter);

    if (n < 0 || n == CACHE_PARKED)
        return (int)n;
    (void)answer_write(p, (size_t)n);
    return 0;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
                        struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
                        struct fuse_file_info *fi_out, size_t len, int flags)
{
    struct open_file *out = open_file_of(fi_out);

    (void)ino_in;
    (void)ino_out;
    if (flags != 0 || !out || !out->handle) {
        (void)fuse_reply_err(req, EINVAL);
        return;
    }
    struct pending *p = file_request(req, fi_in, run_copy_file_range);
    if (!p)
        return;
    p->file2 = out;
    p->off = (uint64_t)off_in;
    p->off2 = (uint64_t)off_out;
    p->size = len;
    pending_start(p);
}

static int run_lseek(struct pending *p)
{
    uint64_t off;
    int r = cache_lseek(p->fs->cache, p->file->handle, p->off, (int)p->flags, &p->waiter, &off);

    if (r)
        return r;
    (void)answer_lseek(p, off);
    return 0;
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    struct pending *p = file_request(req, fi, run_lseek);

    (void)ino;
    if (!p)
        return;
    p->off = (uint64_t)off;
    p->flags = (unsigned)whence;
    pending_start(p);
}
