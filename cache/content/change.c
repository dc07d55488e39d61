/* What a change of a file's content writes: the rows of docs/format.md, section 3, that are
 * more than memory, each in its order. */
#include "cache/content/content_impl.h"

#include "cache/mirror/crash.h"
#include "common/lock.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- before and after a write ---- */

int file_stamp_writing(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;

    cache_lock(c);
    bool there = (f->noted & STAMP_WRITING) && file_begun_is_noted(f);
    bool first = file_will_change_locked(f);
    cache_unlock(c);
    int r = there ? 0 : node_write_stamp(c, n, fd);
    if (r < 0) {
        cache_lock(c);
        if (first && f->write_handles + f->truncates == 1)
            file_will_not_change_locked(f);
        cache_unlock(c);
    }
    crash_point("open-stamped");
    return r;
}

int file_note_change(struct cache *c, struct node *n, int fd)
{
    struct stat st;

    cache_lock(c);
    int r = file_look_locked(c, n, fd, &st);
    /* Two changes within one tick of the clock: the second moves nothing that can be seen. */
    if (n->file->state != FILE_DIRTY || !names_all_owe(n))
        file_mark_dirty_locked(c, n, true);
    else
        file_changed_again_locked(n->file);
    n->file->kept_generation = n->file->generation;
    n->file->writes++;
    /* A change within the same tick would count as synced. */
    bool outlived = r == 0 && file_says_synced(n->file, &st);
    if (outlived)
        file_is_not_synced_locked(n->file);
    cache_unlock(c);
    return outlived ? node_write_stamp(c, n, fd) : r;
}

/* ---- truncated ---- */

int file_truncate_complete(struct cache *c, struct node *n, int fd, uint64_t size)
{
    struct file *f = n->file;

    /* A truncation acts like a writer that opens: an upload that reads the file stops before it
     * can change, and declares neither file nor stamp clean, however far it is. */
    cache_lock(c);
    file_changed_again_locked(f);
    (void)file_unsay_whole_locked(f);
    cache_unlock(c);
    int r = file_stamp_writing(c, n, fd);
    if (r == 0 && ftruncate(fd, (off_t)size) < 0)
        r = -errno;
    if (r == 0)
        r = file_note_change(c, n, fd);
    if (r < 0)
        return r;
    cache_lock(c);
    bool cut = f->short_write;
    file_repaired_locked(n, size, UINT64_MAX);
    bool mended = cut && !f->short_write;
    cache_unlock(c);
    return mended ? node_write_stamp(c, n, fd) : 0;
}

static int empty_partial(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;
    struct ranges none = {0};

    cache_lock(
        c); /* an upload of its attributes that ends from now on declares nothing clean */
    file_changed_again_locked(f);
    cache_unlock(c);
    int r = stamp_write_ranges(fd, &none, true);
    if (r == 0 && ftruncate(fd, 0) < 0)
        r = -errno;
    crash_point("truncate-emptied");
    cache_lock(c);
    file_forget_ranges_locked(f);
    (void)file_will_change_locked(f);
    cache_unlock(c);
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    crash_point("truncate-stamped");
    if (r == 0)
        r = stamp_remove_ranges(fd);
    crash_point("truncate-complete");
    return r;
}

int file_empty_partial(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;
    int r = empty_partial(c, n, fd);

    cache_lock(c);
    if (r < 0)
        file_unclaim_locked(f);
    if (r == 0) {
        file_completed_locked(f);
        n->size = 0;
        file_mark_dirty_locked(c, n, true);
    }
    waitq_wake_locked(c, &f->range_waiters, 0);
    cache_unlock(c);
    return r < 0 ? r : file_note_change(c, n, fd);
}

int file_note_truncated(struct cache *c, struct node *n, bool queued)
{
    int r = queued ? node_save_stamp(c, n) : 0;

    crash_point("truncate-placed");
    return r;
}

/* ---- exchanged ---- */

int file_prepare_exchange(struct cache *c, struct node *n)
{
    int r = file_materialise(c, n);

    ns_assert_written(c);
    cache_lock(c);
    if (r == 0 && n->file->state == FILE_PARTIAL)
        r = -EAGAIN; /* became partial again since the check: ask again */
    if (r == 0)
        (void)file_will_change_locked(n->file);
    cache_unlock(c);
    return r < 0 ? r : node_renumber(c, n);
}

void files_note_exchanged(struct cache *c, struct node *const nodes[2])
{
    for (int i = 0; i < 2; i++)
        (void)node_write_stamp_ns_locked(c, nodes[i]);
    crash_point("exchange-placed");
}

/* ---- closed ---- */

int file_note_closed(struct cache *c, struct node *n, int fd, bool news)
{
    int r = news ? node_write_stamp(c, n, fd) : 0;

    crash_point("close-stamped");
    return r;
}

/* ---- all is here ---- */

int file_complete(struct cache *c, struct node *n, int fd, const struct checksum *sum)
{
    crash_point("complete-data");
    cache_lock(c); /* a busy file gets no other time meanwhile */
    n->file->sum = *sum;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      timespec_of(n->file->clean_mtime_ns)};
    cache_unlock(c);
    int r = file_write_keys(c, n, fd);
    if (r == 0 && futimens(fd, times) < 0)
        r = -errno;
    if (r < 0)
        return r;
    crash_point("complete-mtime");
    return stamp_remove_ranges(fd);
}

/* ---- stored ---- */

int file_note_stored(struct cache *c, struct node *n, int fd)
{
    crash_point("upload-committed");
    int r = file_write_keys(c, n, fd);
    crash_point("upload-keys");
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    crash_point("upload-stamped");
    return r;
}
