/* What a change of attributes writes: the last rows of docs/format.md, section 3, from the
 * attributes themselves on, each in its order. In between the caller changes the node, and has
 * it queued. */
#include "cache/content/content_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- times ---- */

void file_mtime_moved_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (f->state == FILE_DIRTY)
        return;
    /* A partial file has no change: it is complete before it gets one. A write that comes by
     * the daemon marks the file whatever its time is. */
    if (f->state == FILE_CLEAN && ((f->write_handles && f->past) || f->suspect)) {
        file_mark_dirty_locked(c, n, true);
        return;
    }
    file_is_version_locked(f, mirror_time(&c->mirror, n->mtime_ns), f->clean_size);
    for (size_t i = 0; i < f->keys.n; i++)
        f->keys.v[i].mtime_ns = f->clean_mtime_ns;
}

/* Whether all of the content is on the disk, as its mtime says: nobody writes meanwhile. */
static bool is_synced(const struct file *f, const struct stat *now) REQUIRES(cache_mutex)
{
    return !f->write_handles && !f->suspect && !f->mapped_writer && file_says_synced(f, now);
}

int file_move_mtime_locked(struct cache *c, struct file *f, int fd, const struct stat *st)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    struct stat now;

    if (fstat(fd, &now) < 0)
        return -errno;
    bool synced = is_synced(f, &now);
    if (!synced && (f->synced_mtime_ns || (f->noted & STAMP_SYNCED))) {
        file_is_not_synced_locked(f);
        return MARK_OUTLIVED;
    }
    bool whole = file_is_said_whole(f, stat_mtime_ns(&now), (uint64_t)now.st_size);
    if (file_time_moves_locked(f, whole))
        return MARK_OUTLIVED;
    if (futimens(fd, times) < 0)
        return -errno;
    if (synced)
        file_is_synced_locked(f, mirror_time(&c->mirror, stat_mtime_ns(st)), f->synced_size);
    if (whole)
        file_say_whole_locked(f, mirror_time(&c->mirror, stat_mtime_ns(st)), f->whole_size);
    return 0;
}

/* ---- attributes ---- */

int file_note_attrs(struct cache *c, struct node *n, int fd, unsigned set)
{
    crash_point("utimens-moved");
    cache_lock(c);
    file_time_moved_locked(n->file);
    bool behind = !file_begun_is_noted(n->file);
    cache_unlock(c);
    int r = set || behind ? node_write_stamp(c, n, fd) : 0;
    crash_point("setattr-stamped");
    return r == 0 && (set & CACHE_SET_MTIME) ? file_write_keys(c, n, fd) : r;
}

/* ---- extended attributes ---- */

int node_write_xattrs(int fd, const char *json)
{
    int r = stamp_write_xattrs(fd, json);

    crash_point("xattrs-written");
    return r;
}

static int narrow_mode(struct cache *c, struct node *n, int fd, uint32_t mode,
                       struct narrowed *ret)
{
    cache_lock(c);
    *ret = (struct narrowed){n->mode & mode, n->mode, n->flags & NODE_ATTR_DIRTY};
    n->mode = ret->mode;
    n->flags |= NODE_ATTR_DIRTY;
    cache_unlock(c);
    int r = ret->mode != ret->before ? node_write_stamp(c, n, fd) : 0;
    crash_point("acl-narrowed");
    return r;
}

int node_write_access_acl(struct cache *c, struct node *n, int fd, const char *json,
                          uint32_t mode, struct narrowed *ret)
{
    int r = narrow_mode(c, n, fd, mode, ret);

    if (r == 0)
        r = stamp_write_xattrs(fd, json);
    crash_point("xattrs-written");
    return r;
}
