/* Content that is not what its writer meant: a write found no room, or the disk lost pages. */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool fd_lost_pages(int fd)
{
    return sync_file_range(fd, INT64_MAX / 2, 1, SYNC_FILE_RANGE_WAIT_BEFORE) < 0 &&
           (errno == EIO || err_is_no_space(-errno));
}

/* ---- writes that found no room ---- */

/* Tells waiters for the upload that the file goes to the store no more. */
static void hold_back_locked(struct cache *c, struct file *f, int err, const char *why)
    REQUIRES(cache_mutex)
{
    f->short_write = true;
    debt_hold_back(&f->debt, err, why);
    f->error_told = false;
    waitq_wake_locked(c, &f->upload_waiters, 0);
    progress_tell_locked(c);
}

void file_short_write_locked(struct cache *c, struct node *n, uint64_t off)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    if (f->disk_lost)
        return;
    if (!f->short_write) {
        auto_free char *path = node_path(n);
        log_later(&c->log, LOG_LEVEL_ERROR,
                  "%s: no room in the cache for a write at byte %" PRIu64
                  "; it is kept, and not "
                  "published before that is written again",
                  path ? path : "a removed file", off);
    }
    f->short_at = off;
    hold_back_locked(c, f, -ENOSPC,
                     "the cache had no room for a write: not published before it is written "
                     "again");
}

void file_disk_lost_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    auto_free char *path = node_path(n);

    cache_assert_locked(c);
    if (!f->disk_lost)
        log_later(
            &c->log, LOG_LEVEL_ERROR,
            "%s: the disk of the cache lost what was written to it; what is left is kept, "
            "and not published before the file is written anew",
            path ? path : "a removed file");
    f->disk_lost = true;
    f->short_at = 0;
    hold_back_locked(c, f, -EIO,
                     "the disk of the cache lost what was written: not published before the "
                     "file is written anew");
}

void file_disk_lost_clean_locked(struct file *f)
{
    f->disk_lost = true;
}

void file_disk_lost(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    file_disk_lost_locked(c, n);
    cache_unlock(c);
    (void)node_write_stamp(c, n, fd);
}

int file_check_kept(struct cache *c, struct node *n, int fd)
{
    if (!fd_lost_pages(fd))
        return 0;
    file_disk_lost(c, n, fd);
    return -EIO;
}

void file_repaired_locked(struct node *n, uint64_t off, uint64_t end)
{
    struct file *f = n->file;

    if (!f->short_write || off > f->short_at || end <= f->short_at ||
        (f->disk_lost && end != UINT64_MAX))
        return;
    f->short_write = f->disk_lost = false;
    debt_let_go(&f->debt);
}
