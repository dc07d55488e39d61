/* fsync() of a mirror file or directory, and the stamp that says so. */
#include "cache/content/content_impl.h"

#include "common/err.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Data first, then the note that it is synced, then the note itself. */
int node_sync(struct cache *c, struct node *n, int fd)
{
    struct stat before, after;

    cache_lock(c);
    uint64_t writes = n->file ? n->file->writes : 0;
    bool past = n->file && n->file->past;
    cache_unlock(c);
    if (fstat(fd, &before) < 0)
        return -errno;
    if (past) /* one that began before moved that time, and has bytes to come */
        file_await_writes(fd);
    if (fsync(fd) < 0) {
        int err = -errno;
        if (n->file && (err == -EIO || err_is_no_space(err)))
            file_disk_lost(c, n, fd);
        return err;
    }
    if (fstat(fd, &after) < 0)
        return -errno;
    if (n->dir)
        return 0;
    if (before.st_mtim.tv_nsec != after.st_mtim.tv_nsec ||
        before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_size != after.st_size)
        return 1;
    cache_lock(c);
    bool same = n->file && n->file->writes == writes;
    if (same)
        file_is_synced_locked(n->file, stat_mtime_ns(&after), (uint64_t)after.st_size);
    cache_unlock(c);
    int r = node_write_stamp(c, n, fd);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r < 0 ? r : !same;
}
