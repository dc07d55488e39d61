/* How a mirror file comes into the mirror: created by a program, or made for what only a
 * listing told. The rows of docs/format.md, section 3, each in its order. */
#include "cache/content/content_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/range.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- created ---- */

int node_take_birth_time(struct node *n, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    n->mtime_ns = n->ctime_ns = n->atime_ns = stat_mtime_ns(&st);
    return 0;
}

static int take_birth_time(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    int r = node_take_birth_time(n, fd);
    cache_unlock(c);
    return r;
}

/* The inherited ACL comes first: without the other stamp nothing counts. */
int node_write_first_stamps(struct cache *c, struct node *n, int fd)
{
    cache_lock(c);
    const char *xattrs = n->xattrs; /* who else could change them does not know the node yet */
    cache_unlock(c);
    int r = xattrs ? stamp_write_xattrs(fd, xattrs) : 0;

    return r < 0 ? r : node_write_stamp(c, n, fd);
}

int file_create(struct cache *c, struct node *n, const char *path, bool keep_fd)
{
    ns_assert_written(c);
    auto_close int fd = mirror_create(&c->mirror, path);
    if (fd < 0)
        return fd;
    crash_point("create-made");
    int r = take_birth_time(c, n, fd);
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

/* Writes it whole, and its stamps. */
static int write_symlink(struct cache *c, struct node *n, const char *target, int fd)
{
    size_t len = strlen(target);
    ssize_t w = pwrite(fd, target, len, 0);
    int r = w < 0 ? -errno : (size_t)w != len ? -ENOSPC : 0;

    if (r == 0)
        r = take_birth_time(c, n, fd);
    return r == 0 ? node_write_stamp(c, n, fd) : r;
}

int file_create_symlink(struct cache *c, struct node *n, const char *path, const char *target)
{
    ns_assert_written(c);
    cache_lock(c);
    uint64_t id = file_next_id_locked(c);
    cache_unlock(c);
    auto_close int fd = mirror_create_incoming(&c->mirror, id);
    if (fd < 0)
        return fd;
    int r = write_symlink(c, n, target, fd);
    crash_point("create-stamped");
    if (r == 0)
        r = mirror_link_in(&c->mirror, id, path);
    if (r < 0)
        (void)mirror_remove_incoming(&c->mirror, id);
    return r;
}

void file_note_made(struct cache *c, struct node *n, bool queued)
{
    if (queued)
        (void)node_save_stamp(c, n); /* without it the file comes last */
    crash_point("create-placed");
}

/* ---- materialised ---- */

/* A copy of what the node's mirror file is made from: others change the node under the lock
 * alone. */
struct born {
    struct stat st;
    bool partial;
    char *target, *xattrs; /* NULL: none */
};

static void born_release(struct born *b)
{
    free(b->target);
    free(b->xattrs);
}

static int born_take(struct cache *c, struct node *n, struct born *ret)
{
    cache_lock(c);
    *ret = (struct born){.partial = n->file->state == FILE_PARTIAL};
    node_stat(n, &ret->st);
    bool links = S_ISLNK(n->mode) && n->target;
    ret->target = links ? strdup(n->target) : NULL;
    ret->xattrs = n->xattrs ? strdup(n->xattrs) : NULL;
    int r = (links && !ret->target) || (n->xattrs && !ret->xattrs) ? -ENOMEM : 0;
    cache_unlock(c);
    return r;
}

static int fill_special(const struct born *b, int fd)
{
    size_t len = b->target ? strlen(b->target) : 0;

    if (len == 0)
        return 0;
    ssize_t w = pwrite(fd, b->target, len, 0);
    return w < 0 ? -errno : (size_t)w != len ? -ENOSPC : 0;
}

static int write_born(struct cache *c, struct node *n, const struct born *b, int fd)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, b->st.st_mtim};
    const struct ranges none = {0};
    int r = S_ISREG(b->st.st_mode) ? 0 : fill_special(b, fd);

    if (r == 0 && S_ISREG(b->st.st_mode) && ftruncate(fd, b->st.st_size) < 0)
        r = -errno;
    if (r == 0 && futimens(fd, times) < 0)
        r = -errno;
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    if (r == 0)
        r = file_write_keys(c, n, fd);
    if (r == 0 && b->partial)
        r = stamp_write_ranges(fd, &none, true);
    if (r == 0 && b->xattrs)
        r = stamp_write_xattrs(fd, b->xattrs);
    return r;
}

static int write_birth_stamps(struct cache *c, struct node *n, int fd)
{
    struct born b;
    int r = born_take(c, n, &b);

    if (r == 0)
        r = write_born(c, n, &b, fd);
    born_release(&b);
    return r;
}

static int new_file_for(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e = n->links;
    auto_place struct place at = e ? entry_place(e) : NO_PLACE;
    bool empty = n->size == 0 || !S_ISREG(n->mode);

    if (!place_known(at))
        return e ? -ENOMEM : -ESTALE;
    struct file *f = file_new(n, empty ? FILE_CLEAN : FILE_PARTIAL);
    if (!f)
        return -ENOMEM;
    file_count_locked(c);
    (void)file_claim_locked(f); /* who does not take ns sees it before it is in the mirror */
    file_is_version_locked(f, mirror_time(&c->mirror, n->mtime_ns), n->size);
    f->sum = (struct checksum){(enum checksum_kind)n->sum_kind, n->sum_value};
    if (file_reads_version_locked(f, &e->etag) < 0 ||
        stamp_keys_set(&f->keys, at.key, f->etag, f->clean_mtime_ns, n->size) < 0)
        return -ENOMEM;
    return 0;
}

/* It is in the mirror, or there is none after all. Whoever came to wait for it looks again. */
static void end_birth(struct cache *c, struct node *n, bool failed) REQUIRES(cache_ns)
{
    cache_lock(c);
    struct file *f = n->file;
    if (f) {
        file_unclaim_locked(f);
        waitq_wake_locked(c, &f->range_waiters, 0);
    }
    if (f && failed)
        file_free_locked(c, f);
    cache_unlock(c);
}

int file_materialise(struct cache *c, struct node *n)
{
    ns_assert_written(c);
    cache_lock(c);
    if (n->file) {
        cache_unlock(c);
        return 0;
    }
    uint64_t id = file_next_id_locked(c);
    if (!n->named_seq)
        n->named_seq = seq_next_locked(c);
    auto_free char *path = node_path(n);
    int r = path ? new_file_for(c, n) : -ESTALE;
    cache_unlock(c);

    auto_close int fd = -1;
    if (r == 0)
        r = fd = mirror_create_incoming(&c->mirror, id);
    if (r >= 0)
        r = write_birth_stamps(c, n, fd);
    crash_point("materialise-incoming");
    if (r == 0) {
        r = mirror_link_in(&c->mirror, id, path);
        crash_point("materialise-linked");
    }
    end_birth(c, n, r < 0);
    if (r < 0) {
        (void)mirror_remove_incoming(&c->mirror, id);
        log_later(&c->log, LOG_LEVEL_ERROR, "cache %s: can't make a mirror file for %s: %s",
                  c->mirror.dir, path ? path : "a removed file", strerror(-r));
    }
    return r;
}
