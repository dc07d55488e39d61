/* Names made, moved and removed, and directories read. */
#include "common/mem.h"
#include "fuse/control.h"
#include "fuse/fs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- new names ---- */

/* The end of every operation that makes a name. */
static int answer_new(struct pending *p, int r, struct node *node)
{
    if (r)
        return r;
    if (answer_entry(p, node, &p->st) < 0)
        cache_forget(p->fs->cache, node, 1);
    return 0;
}

static int run_mknod(struct pending *p)
{
    struct cache_cred cred = pending_cred(p);
    struct node *node = NULL;
    int r = cache_mknod(p->fs->cache, p->node, p->name, p->mode, p->rdev, &cred, &p->waiter,
                        &node, &p->st);

    return answer_new(p, r, node);
}

static int run_mkdir(struct pending *p)
{
    struct cache_cred cred = pending_cred(p);
    struct node *node = NULL;
    int r =
        cache_mkdir(p->fs->cache, p->node, p->name, p->mode, &cred, &p->waiter, &node, &p->st);

    return answer_new(p, r, node);
}

static int run_symlink(struct pending *p)
{
    struct cache_cred cred = pending_cred(p);
    struct node *node = NULL;
    int r = cache_symlink(p->fs->cache, p->node, p->name, p->name2, &cred, &p->waiter, &node,
                          &p->st);

    return answer_new(p, r, node);
}

static int run_link(struct pending *p)
{
    struct node *node = NULL;
    int r = cache_link(p->fs->cache, p->node, p->node2, p->name, &p->waiter, &node, &p->st);

    return answer_new(p, r, node);
}

/* A request about `name` in `parent`; NULL when it was answered: nothing can be done to the
 * control directory's names. */
static struct pending *named_request(fuse_req_t req, fuse_ino_t parent, const char *name,
                                     int (*run)(struct pending *p))
{
    if (control_claims(parent, name)) {
        (void)fuse_reply_err(req, EPERM);
        return NULL;
    }
    struct pending *p = pending_new(req, run, NULL);
    if (!p)
        return NULL;
    p->node = pending_node(p, parent);
    p->name = name;
    return p;
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct pending *p = named_request(req, parent, name, run_mknod);

    if (!p)
        return;
    p->mode = mode;
    p->rdev = rdev;
    pending_start(p);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct pending *p = named_request(req, parent, name, run_mkdir);

    if (!p)
        return;
    p->mode = S_IFDIR | (mode & 07777);
    pending_start(p);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct pending *p = named_request(req, parent, name, run_symlink);

    if (!p)
        return;
    p->name2 = target;
    pending_start(p);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
    if (ino_is_control(ino)) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = named_request(req, newparent, newname, run_link);
    if (!p)
        return;
    p->node2 = p->node;
    p->node = pending_node(p, ino);
    pending_start(p);
}

/* ---- names removed and moved ---- */

static int run_unlink(struct pending *p)
{
    return answer_done(p, cache_unlink(p->fs->cache, p->node, p->name, &p->waiter));
}

static int run_rmdir(struct pending *p)
{
    return answer_done(p, cache_rmdir(p->fs->cache, p->node, p->name, &p->waiter));
}

static int run_rename(struct pending *p)
{
    return answer_done(p, cache_rename(p->fs->cache, p->node, p->name, p->node2, p->name2,
                                       p->flags, &p->waiter));
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct pending *p = named_request(req, parent, name, run_unlink);

    if (p)
        pending_start(p);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct pending *p = named_request(req, parent, name, run_rmdir);

    if (p)
        pending_start(p);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
               const char *newname, unsigned int flags)
{
    if (control_claims(newparent, newname)) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = named_request(req, parent, name, run_rename);
    if (!p)
        return;
    p->node2 = pending_node(p, newparent);
    p->name2 = newname;
    p->flags = flags;
    pending_start(p);
}

/* ---- directories read ---- */

int opendir_run(struct pending *p)
{
    struct dirhandle *d;
    int r = cache_opendir(p->fs->cache, p->node, &p->waiter, &d);

    if (r)
        return r;
    struct open_file *f = open_file_new(p->fs);
    if (!f) {
        cache_releasedir(p->fs->cache, d);
        return -ENOMEM;
    }
    f->dir = d;
    p->fi.fh = (uintptr_t)f;
    if (answer_open(p) < 0)
        open_file_free(p->fs, f);
    return 0;
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino_is_control(ino)) {
        control_opendir(req, ino, fi);
        return;
    }
    struct pending *p = pending_new(req, opendir_run, fi);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    pending_start(p);
}

/* An answer to readdir in the making. */
struct listing {
    struct pending *p;
    char *buf;
    size_t used;
};

static size_t add_plain(struct listing *l, const char *name, const struct stat *st,
                        uint64_t next)
{
    return fuse_add_direntry(l->p->req, l->buf + l->used, l->p->size - l->used, name, st,
                             (off_t)next);
}

static size_t add_plus(struct listing *l, const char *name, struct node *node,
                       const struct stat *st, uint64_t next)
{
    struct fuse_entry_param e = {0};

    /* Node id 0: a name without attributes, which the kernel asks for when it wants them. */
    if (node)
        entry_fill(l->p->fs, node, st, &e);
    else
        e.attr = *st;
    return fuse_add_direntry_plus(l->p->req, l->buf + l->used, l->p->size - l->used, name, &e,
                                  (off_t)next);
}

static int visit_entry(void *arg, const char *name, struct node *node, const struct stat *st,
                       uint64_t next)
{
    struct listing *l = arg;
    struct pending *p = l->p;

    size_t need = p->flags ? add_plus(l, name, node, st, next) : add_plain(l, name, st, next);
    if (need > p->size - l->used)
        return 1;
    l->used += need;
    return 0;
}

static int run_readdir(struct pending *p)
{
    struct listing l = {.p = p, .buf = thread_buffer(p->size)};

    if (!l.buf)
        return -ENOMEM;
    int r = cache_readdir(p->fs->cache, p->file->dir, p->off, p->flags != 0, &p->waiter,
                          visit_entry, &l);
    if (r)
        return r;
    /* An answer that the kernel does not take belongs to a mount that is ending: the lookups
     * it counted go with it. */
    (void)answer_buf(p, l.buf, l.used);
    return 0;
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi, bool plus)
{
    struct pending *p = pending_new(req, run_readdir, fi);

    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->size = size;
    p->off = (uint64_t)off;
    p->flags = plus;
    pending_start(p);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                struct fuse_file_info *fi)
{
    if (ino_is_control(ino))
        control_readdir(req, ino, size, off, fi, false);
    else
        read_directory(req, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    if (ino_is_control(ino))
        control_readdir(req, ino, size, off, fi, true);
    else
        read_directory(req, ino, size, off, fi, true);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    open_file_free(fs_of(req), open_file_of(fi));
    (void)fuse_reply_err(req, 0);
}

static int run_fsyncdir(struct pending *p)
{
    return answer_done(p, cache_fsyncdir(p->fs->cache, p->node, &p->waiter));
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)datasync;
    (void)fi;
    if (ino_is_control(ino)) {
        (void)fuse_reply_err(req, 0);
        return;
    }
    struct pending *p = pending_new(req, run_fsyncdir, NULL);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    pending_start(p);
}
