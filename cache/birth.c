/* What a user makes comes into being: the node with what its directory hands on to it (group,
 * set-group-id bit, default ACL), then its place in the mirror with its stamps. */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void begin_dir_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    n->dir->local_only = n->dir->new_here = true;
    n->dir->listed_ns = n->dir->told_ns = clock_mono_ns(); /* it is empty */
    n->dir->stale_marker = ghost_pending(c, path);
}

static int begin_file_locked(struct cache *c, struct node *n, bool begins) REQUIRES(cache_mutex)
{
    struct file *f = file_new(n, FILE_DIRTY);

    if (!f)
        return -ENOMEM;
    c->mirror_files++;
    f->content_dirty = f->writing_stamp = true;
    f->generation = 1;
    f->beginners = begins;
    return 0;
}

struct node *node_make_locked(struct cache *c, const struct making *m, const char *path)
{
    struct node *n = node_new(c, m->mode);
    bool inherit = m->parent && (m->parent->mode & S_ISGID);

    if (!n)
        return NULL;
    n->uid = m->cred->uid;
    n->gid = inherit ? m->parent->gid : m->cred->gid;
    if (inherit && S_ISDIR(n->mode))
        n->mode |= S_ISGID;
    n->rdev = (uint32_t)m->rdev;
    n->ino = ino_fresh(c, path);
    n->birth = seq_next_locked(c);
    n->flags = NODE_ATTRS_KNOWN;
    n->mtime_ns = n->ctime_ns = n->atime_ns = clock_real_ns();
    int r = node_inherit_acl_locked(c, n, m->parent, m->cred->umask);
    if (m->target) {
        n->target = strdup(m->target);
        n->size = strlen(m->target);
        r = n->target ? r : -ENOMEM;
    }
    if (n->dir)
        begin_dir_locked(c, n, path);
    else if (r == 0)
        r = begin_file_locked(c, n, m->begins);
    if (r == 0)
        return n;
    node_collect_locked(c, n);
    return NULL;
}

int node_write_first_stamps(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    const char *xattrs = n->xattrs; /* who else could change them does not know the node yet */
    cache_unlock(c);
    /* What it inherited comes first: without the other stamp nothing counts. */
    int r = xattrs ? stamp_write_xattrs(fd, xattrs) : 0;

    return r < 0 ? r : node_write_stamp(c, n, fd);
}

static int take_birth_time(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    int r = node_take_birth_time(n, fd);
    cache_unlock(c);
    return r;
}

/* A symlink's content is its target: it comes into the mirror with both content and stamp,
 * since content without a stamp would be taken for a file's. */
static int make_symlink(struct cache *c, struct node *n, const char *path, const char *target)
{
    cache_lock(c);
    uint64_t id = ++c->next_id;
    cache_unlock(c);
    size_t len = strlen(target);
    auto_close int fd = mirror_create_incoming(&c->mirror, id);
    if (fd < 0)
        return fd;
    ssize_t w = pwrite(fd, target, len, 0);
    int r = w < 0 ? -errno : (size_t)w != len ? -ENOSPC : 0;
    if (r == 0)
        r = take_birth_time(c, n, fd);
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    crash_point("create-stamped");
    if (r == 0)
        r = mirror_link_in(&c->mirror, id, path);
    if (r < 0)
        (void)mirror_remove_incoming(&c->mirror, id);
    return r;
}

static int make_directory(struct cache *c, struct node *n, const char *path)
{
    int r = mirror_mkdirs(&c->mirror, path);
    auto_close int fd = r < 0 ? r : mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY);

    if (r == 0)
        r = fd < 0 ? fd : node_write_first_stamps(c, n, fd);
    if (r < 0)
        (void)mirror_rmdir(&c->mirror, path); /* it would keep its parent from being removed */
    return r;
}

int node_make_in_mirror(struct cache *c, struct node *n, const char *path, bool keep_fd)
{
    auto_close int fd = -1;
    int r;

    if (n->dir)
        return make_directory(c, n, path);
    cache_lock(c);
    const char *target = n->target; /* a symlink's stays */
    cache_unlock(c);
    if (target)
        return make_symlink(c, n, path, target);
    fd = mirror_create(&c->mirror, path);
    if (fd < 0)
        return fd;
    crash_point("create-made");
    r = take_birth_time(c, n, fd);
    if (r == 0)
        r = node_write_first_stamps(c, n, fd);
    crash_point("create-stamped");
    if (r < 0)
        (void)mirror_unlink(&c->mirror, path);
    if (r < 0 || !keep_fd)
        return r;
    cache_lock(c);
    file_take_fd_locked(c, n->file, FD_WRITE, take_fd(fd));
    cache_unlock(c);
    return 0;
}
