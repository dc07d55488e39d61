/* What fstat() says of a mirror file: did somebody write past the daemon? */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "common/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ---- stat ---- */

void node_look_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    struct stat st;

    cache_assert_locked(c);
    if (!f || f->write_handles == 0)
        return;
    /* While the descriptor is closed, nobody but the daemon writes. */
    if (f->fds[FD_WRITE].fd >= 0)
        (void)file_look_locked(c, n, f->fds[FD_WRITE].fd, &st);
}

/* A stamp is believed only when its mtime is older than the clock's granularity. */
#define RACY_NS (20 * NS_PER_MS)

int64_t stat_mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
}

static void file_saw_locked(struct cache *c, struct node *n, const struct stat *st)
    REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    bool moved = n->size != (uint64_t)st->st_size ||
                 mirror_time(&c->mirror, n->mtime_ns) != stat_mtime_ns(st);
    int64_t changed_ns = n->ctime_ns;

    file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    if (f->state == FILE_PARTIAL || !S_ISREG(n->mode))
        return;
    if (moved) {
        n->size = (uint64_t)st->st_size;
        n->mtime_ns = stat_mtime_ns(st);
        n->ctime_ns = clock_real_ns();
    }
    /* Of a dirty file that may have changed unseen each name gets what is here when the writers
     * are gone, or when none owes anything: before that each upload would send it again to the
     * names that have it. */
    bool written = f->write_handles || f->mapped_writer;
    bool unseen = f->suspect && !(written && names_owe(n));
    if (f->clean_size != n->size || f->clean_mtime_ns != stat_mtime_ns(st) || f->suspect) {
        if (moved || f->state != FILE_DIRTY || unseen)
            file_mark_dirty_locked(c, n, true);
    }
    if (moved && n->mtime_ns >= changed_ns)
        n->ctime_ns = n->mtime_ns; /* a write sets both to one time */
}

int file_look_locked(struct cache *c, struct node *n, int fd, struct stat *ret_st)
{
    cache_assert_locked(c);
    if (fstat(fd, ret_st) < 0)
        return -errno;
    file_saw_locked(c, n, ret_st);
    return 0;
}

bool file_says_synced(const struct file *f, const struct stat *now)
{
    return f->synced_mtime_ns && f->synced_mtime_ns == stat_mtime_ns(now) &&
           f->synced_size == (uint64_t)now->st_size;
}

bool file_has_writer(int fd)
{
    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
        return errno == EAGAIN; /* a filesystem without leases can't tell: mtime has to do */
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

/* A write() holds the inode's lock from before it moves the time until its last byte is in the
 * file. removexattr() takes that lock, too (Linux, fs/xattr.c, vfs_removexattr()); it changes
 * nothing when the attribute is not there. */
void file_await_writes(int fd)
{
    (void)fremovexattr(fd, "user.runfs.none");
}

int file_look_past_locked(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;
    struct stat st;

    cache_assert_locked(c);
    if (!f->writing_stamp || f->write_handles || f->state == FILE_PARTIAL)
        return 0;
    int r = file_look_locked(c, n, fd, &st);
    f->mapped_writer = file_has_writer(fd);
    if (f->mapped_writer && f->state == FILE_DIRTY && names_all_owe(n))
        file_counts_as_changed_locked(f);
    else if (f->mapped_writer)
        file_mark_dirty_locked(c, n, true);
    return r;
}

bool mtime_was_racy(int64_t mtime_ns, int64_t then_ns)
{
    return then_ns - mtime_ns < RACY_NS;
}

bool mtime_is_racy(int64_t mtime_ns)
{
    return mtime_was_racy(mtime_ns, clock_real_ns());
}

void node_stat(struct node *n, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_ino = n->ino;
    st->st_mode = n->mode;
    st->st_nlink = n->nlink;
    st->st_uid = n->uid;
    st->st_gid = n->gid;
    st->st_rdev = n->rdev;
    st->st_size = (off_t)n->size;
    /* A file that is not whole here would look sparse to tar and cp. */
    bool whole = n->file && n->file->state != FILE_PARTIAL && S_ISREG(n->mode);
    /* Stdio and Python read as much at once, after each seek, too: where bytes must come from
     * the store, no more than is fetched anyway. */
    st->st_blksize = whole || !S_ISREG(n->mode) ? 1 << 20 : 32 << 10;
    st->st_blocks = (blkcnt_t)((whole ? n->file->blocks_bytes : n->size + 511) / 512);
    st->st_mtim = timespec_of(n->mtime_ns);
    st->st_ctim = timespec_of(n->ctime_ns);
    st->st_atim = timespec_of(n->atime_ns);
}
