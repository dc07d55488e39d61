/* Opens and closes files, and chooses their mode: passthrough, where the kernel reads and
 * writes the mirror file itself, or normal, with the kernel's page cache or without (direct).
 * The cache says which inodes are opened passthrough, with one answer for all opens of an inode
 * that live at the same time; this file makes it so. It falls back for good when the kernel
 * refuses passthrough, and for one open when something was lacking for it. */
#include "common/log.h"
#include "fuse/control.h"
#include "fuse/fs_impl.h"
#include "fuse/setid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>

/* Opens that meet while the kernel refuses passthrough for the first time try again. */
#define OPEN_TRIES 64

/* Whether the kernel would answer so for any file of the cache. */
static bool is_refusal(int err)
{
    return err == -EPERM || err == -EOPNOTSUPP || err == -EINVAL || err == -ENOTTY ||
           err == -ELOOP; /* its filesystem lies on top of another one */
}

static void refuse_passthrough(struct fs *fs, int err)
{
    if (atomic_exchange(&fs->passthrough, false))
        log_warn("the kernel refuses passthrough (%s): files are read and written through the "
                 "daemon from now on",
                 strerror(-err));
}

/* Makes the open file passthrough if its handle must be. 0; -EAGAIN: the handle must be given
 * back and opened again; or another error. */
static int choose_mode(struct pending *p, struct open_file *f)
{
    struct fs *fs = p->fs;
    unsigned slot;
    int id, r;

    if (!handle_passthrough(f->handle))
        return 0;
    /* A file that is open passthrough can be opened so once more, whatever was refused since.
     */
    bool fresh = atomic_load(&fs->passthrough);
    r = backing_get(&fs->backings, fs->session, fs->cache, f->handle, fresh, &slot, &id);
    if (fresh && is_refusal(r))
        refuse_passthrough(fs, r);
    if (r) {
        r = cache_no_passthrough(fs->cache, f->handle);
        return r == -EBUSY ? -EAGAIN : r;
    }
    f->backing = slot;
#ifdef HAVE_FUSE_PASSTHROUGH
    p->fi.backing_id = id;
#endif
    return 0;
}

/* The handle's open file, with `fi` filled in. Takes the handle over, also on failure. */
static int open_file_make(struct pending *p, struct handle *h, struct open_file **ret)
{
    struct fs *fs = p->fs;
    struct open_file *f = open_file_new(fs);

    if (!f) {
        cache_release(fs->cache, h);
        return -ENOMEM;
    }
    f->handle = h;
    f->opener = fuse_req_ctx(p->req)->pid;
    int r = choose_mode(p, f);
    if (r) {
        open_file_free(fs, f);
        return r;
    }
    p->fi.fh = (uintptr_t)f;
    p->fi.keep_cache = f->backing == 0 && handle_keep_cache(fs->cache, h);
    p->fi.direct_io =
        f->backing == 0 && atomic_load(&fs->direct) && handle_reads_direct(fs->cache, h);
    atomic_fetch_add(f->backing ? &fs->opens_passthrough : &fs->opens_normal, 1);
    *ret = f;
    return 0;
}

/* Opens `node`; CACHE_PARKED, an error, or 0 with the open file. */
static int open_node(struct pending *p, struct node *node, int flags, struct open_file **ret)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    int r = 0;

    /* The set-id bits fall at the open: no passthrough write comes by here, and O_TRUNC is a
     * change by itself. Also when the kernel refuses passthrough by now, as the file may still
     * be open so. */
    if (writes && ((flags & O_TRUNC) || atomic_load(&p->fs->passthrough) ||
                   atomic_load(&p->fs->opens_passthrough) > 0))
        r = setid_fall(p, node);
    if (r)
        return r;
    r = -EAGAIN;
    for (int i = 0; i < OPEN_TRIES && r == -EAGAIN; i++) {
        struct handle *h;
        if (i > 0)
            (void)sched_yield();
        r = cache_open(p->fs->cache, node, flags, &p->waiter, &h);
        if (r)
            return r;
        r = open_file_make(p, h, ret);
    }
    /* The open has waited for the store to name the version, and that may be a new one. The
     * kernel knows the size of the old one, and the notification may come after this answer. */
    if (r == 0 && p->listed)
        kernel_forget_attr(p->fs, node);
    return r == -EAGAIN ? -EIO : r;
}

static int run_open(struct pending *p)
{
    struct open_file *f;
    int r = open_node(p, p->node, (int)p->flags, &f);

    if (r)
        return r;
    if (answer_open(p) < 0)
        open_file_free(p->fs, f);
    return 0;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino_is_control(ino)) {
        control_open(req, ino, fi);
        return;
    }
    struct pending *p = pending_new(req, run_open, fi);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->flags = (unsigned)fi->flags;
    pending_start(p);
}

/* ---- create ---- */

static int answer_created(struct pending *p, struct open_file *f)
{
    if (answer_create(p, p->made, &p->st) < 0) {
        open_file_free(p->fs, f);
        cache_forget(p->fs->cache, p->made, 1);
    }
    return 0;
}

/* The node is there, its handle could not be used: somebody opened it at the same time in the
 * other mode. */
static int run_open_created(struct pending *p)
{
    struct open_file *f;
    int r = open_node(p, p->made, (int)p->flags & ~(O_EXCL | O_CREAT | O_TRUNC), &f);

    return r ? r : answer_created(p, f);
}

/* The end of create and tmpfile. Takes the node's lookup and the handle over. */
static int created(struct pending *p, struct node *node, struct handle *h)
{
    struct open_file *f;

    p->made = node;
    int r = open_file_make(p, h, &f);
    if (r == 0)
        return answer_created(p, f);
    if (r == -EAGAIN) {
        p->run = run_open_created;
        return run_open_created(p);
    }
    return r;
}

static int run_create(struct pending *p)
{
    struct cache_cred cred = pending_cred(p);
    struct node *node;
    struct handle *h;
    int r = cache_create(p->fs->cache, p->node, p->name, p->mode, (int)p->flags, &cred,
                         &p->waiter, &node, &p->st, &h);

    return r ? r : created(p, node, h);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
    if (control_claims(parent, name)) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = pending_new(req, run_create, fi);
    if (!p)
        return;
    p->file = NULL; /* `fi` has no handle yet */
    p->node = pending_node(p, parent);
    p->name = name;
    p->mode = S_IFREG | (mode & 07777);
    p->flags = (unsigned)fi->flags;
    pending_start(p);
}

static int run_tmpfile(struct pending *p)
{
    struct cache_cred cred = pending_cred(p);
    struct node *node;
    struct handle *h;
    int r = cache_tmpfile(p->fs->cache, p->node, p->mode, (int)p->flags, &cred, &p->waiter,
                          &node, &p->st, &h);

    return r ? r : created(p, node, h);
}

void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    if (ino_is_control(parent)) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = pending_new(req, run_tmpfile, fi);
    if (!p)
        return;
    p->file = NULL;
    p->node = pending_node(p, parent);
    p->mode = S_IFREG | (mode & 07777);
    p->flags = (unsigned)fi->flags;
    pending_start(p);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    open_file_free(fs_of(req), open_file_of(fi));
    (void)fuse_reply_err(req, 0);
}
