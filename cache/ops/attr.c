/* Attributes: stat, chmod, chown, utimens, readlink, statfs. They live in the node and its
 * stamp; what the store must learn makes the name dirty without its content. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int cache_getattr(struct cache *c, struct node *node, struct waiter *w, struct stat *st)
{
    cache_lock(c);
    int r = attrs_need_locked(c, node, w);
    if (r == 0) {
        node_look_locked(c, node);
        node_stat(node, st);
    }
    cache_unlock(c);
    return r;
}

/* ---- setattr ---- */

static void set_fields_locked(struct node *n, unsigned set, const struct stat *st)
    REQUIRES(cache_mutex)
{
    if (set & CACHE_SET_MODE) {
        n->mode = (n->mode & S_IFMT) | (st->st_mode & 07777);
        node_acl_follow(n);
    }
    if (set & CACHE_SET_UID)
        n->uid = st->st_uid;
    if (set & CACHE_SET_GID)
        n->gid = st->st_gid;
    if (set & CACHE_SET_ATIME)
        n->atime_ns = (int64_t)st->st_atim.tv_sec * NS_PER_SEC + st->st_atim.tv_nsec;
    if (set & CACHE_SET_MTIME)
        n->mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    n->ctime_ns = clock_real_ns();
}

static bool fields_differ(struct node *n, unsigned set, const struct stat *st)
    REQUIRES(cache_mutex)
{
    return ((set & CACHE_SET_MODE) && (n->mode & 07777) != (st->st_mode & 07777)) ||
           ((set & CACHE_SET_UID) && n->uid != st->st_uid) ||
           ((set & CACHE_SET_GID) && n->gid != st->st_gid) || (set & CACHE_SET_MTIME);
}

static int set_dir(struct cache *c, struct node *n, unsigned set, const struct stat *st)
{
    int r = 0;

    ns_write(c);
    cache_lock(c);
    /* Times that names in it come and go are not worth an object of its own in the store; a
     * time that a user gives to it is. */
    int64_t before_ns = n->mtime_ns;
    bool differ = fields_differ(n, set & ~(unsigned)CACHE_SET_MTIME, st);
    set_fields_locked(n, set, st);
    auto_free char *path = node_path(n);
    bool mtime_set = (set & CACHE_SET_MTIME) && n->mtime_ns != before_ns;
    bool owed = (differ || mtime_set) && path && *path; /* the root's are the mount's own */
    if (owed) {
        n->flags |= NODE_ATTR_DIRTY;
        n->dir->mtime_set = n->dir->mtime_set || mtime_set;
        dir_queue_locked(c, n);
    }
    cache_unlock(c);
    if (owed)
        r = dir_write_stamps(c, n, path);
    ns_done(c);
    return r;
}

/* 0, CACHE_PARKED, MARK_OUTLIVED or an error. */
static int set_mtime_locked(struct cache *c, struct node *n, int fd, const struct stat *st,
                            struct waiter *w) REQUIRES(cache_mutex)
{
    /* A file that just turns complete gets the time of its version. */
    if (n->file->busy)
        return waitq_park_locked(c, &n->file->range_waiters, w);
    /* The new time takes the place of the one that tells of a change. */
    int r = file_look_past_locked(c, n, fd);
    return r < 0 ? r : file_move_mtime_locked(c, n->file, fd, st);
}

static int set_file_locked(struct cache *c, struct node *n, int fd, unsigned set,
                           const struct stat *st, struct waiter *w) REQUIRES(cache_mutex)
{
    node_look_locked(c, n);
    int r = set & CACHE_SET_MTIME ? set_mtime_locked(c, n, fd, st, w) : 0;
    if (r != 0)
        return r;
    set_fields_locked(n, set, st);
    n->flags |= NODE_ATTR_DIRTY;
    file_mark_dirty_locked(c, n, false);
    if (set & CACHE_SET_MTIME)
        file_mtime_moved_locked(c, n);
    if (n->links && n->file->write_handles == 0)
        file_queue_again_locked(c, n);
    return 0;
}

static int set_fields(struct cache *c, struct node *n, int fd, unsigned set,
                      const struct stat *st, struct waiter *w)
{
    int r;

    do {
        cache_lock(c);
        r = set_file_locked(c, n, fd, set, st, w);
        cache_unlock(c);
        if (r != MARK_OUTLIVED)
            return r;
        r = node_write_stamp(c, n, fd);
    } while (r == 0);
    return r;
}

static int set_file(struct cache *c, struct node *n, unsigned set, const struct stat *st,
                    struct waiter *w)
{
    int fd = file_need_fd(c, n, FD_READ);

    if (fd < 0)
        return fd;
    int r = set_fields(c, n, fd, set, st, w);
    int noted = file_note_attrs(c, n, fd, r == 0 ? set : 0);
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
    return r != 0 ? r : noted;
}

int cache_setattr(struct cache *c, struct node *node, struct handle *h, unsigned set,
                  struct waiter *w, struct stat *st)
{
    unsigned fields = set & ~(unsigned)CACHE_SET_SIZE;

    if (c->config.read_only)
        return -EROFS;
    if ((set & CACHE_SET_SIZE) && node->dir)
        return -EISDIR;
    cache_lock(c);
    int r = attrs_need_locked(c, node, w);
    if (r == 0)
        r = attrs_confirm_locked(c, node, w);
    if (r == 0 && (set & CACHE_SET_SIZE) && !h)
        r = version_need_locked(c, node, w);
    cache_unlock(c);
    if (r == 0 && (set & CACHE_SET_SIZE))
        r = h && st->st_size == 0 ? file_empty_open(c, h, w)
                                  : file_truncate(c, node, (uint64_t)st->st_size, w);
    if (r != 0)
        return r;
    cache_lock(c);
    bool differ = fields_differ(node, fields, st);
    cache_unlock(c);
    if (node->dir && fields)
        r = set_dir(c, node, fields, st);
    else if (differ)
        r = set_file(c, node, fields, st, w);
    if (r != 0)
        return r;
    cache_lock(c);
    if (fields & CACHE_SET_ATIME)
        set_fields_locked(node, CACHE_SET_ATIME, st);
    node_look_locked(c, node);
    node_stat(node, st);
    cache_unlock(c);
    return 0;
}

int cache_readlink(struct cache *c, struct node *node, struct waiter *w, char **ret)
{
    cache_lock(c);
    int r = attrs_need_locked(c, node, w);
    if (r == 0 && !S_ISLNK(node->mode))
        r = -EINVAL;
    char *target = r == 0 && node->target ? strdup(node->target) : NULL;
    cache_unlock(c);
    if (r != 0)
        return r;
    if (!target)
        return -ENOMEM;
    *ret = target;
    return 0;
}

/* ---- statfs ---- */

/* A store has no end: a size that no program finds too small, and what the cache can take at
 * once. */
#define STATFS_BYTES (UINT64_C(1) << 50)

void cache_statfs(struct cache *c, struct statvfs *ret)
{
    cache_lock(c);
    uint64_t used = c->content->used_bytes, nodes = c->tree->nodes;
    cache_unlock(c);
    *ret = (struct statvfs){.f_bsize = 4096,
                            .f_frsize = 4096,
                            .f_blocks = STATFS_BYTES / 4096,
                            .f_bfree = (STATFS_BYTES - used) / 4096,
                            .f_bavail = (STATFS_BYTES - used) / 4096,
                            .f_files = UINT32_MAX,
                            .f_ffree = UINT32_MAX - nodes,
                            .f_favail = UINT32_MAX - nodes,
                            .f_namemax = 255};
}
