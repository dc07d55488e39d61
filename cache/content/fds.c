/* The descriptors on mirror files.
 *
 * Each is closed, in use (a call works with it, or it is kept: below), or idle: a handle lives
 * that may ask for it again. Programs may have any number of files open; the daemon has as many
 * descriptors as the system lets it have, of which it reserves some for itself: its
 * connections, the journal, the control socket. So idle ones are closed when there are too
 * many, and opened again by the path that the file has then; a removed file has one in
 * orphans/. Calls and uploads that work at the same time may need more than that for a moment,
 * since none waits for another: then each closes its descriptor when it is done.
 *
 * Two kinds are kept for as long as a program has the file open: those of a file that has no
 * name at all (O_TMPFILE), and of one that is written in passthrough, which is looked at under
 * the lock. Where there are many of these, no more files are opened passthrough for writing. */
#include "cache/content/content_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <utlist.h>

/* Descriptors for the daemon itself: threads of FUSE with their pipes, connections, walks of
 * the mirror. When the system grants few, the daemon itself gets half of them. */
#define RESERVE 1024u

void fds_init(struct cache *c, unsigned limit)
{
    struct rlimit lim = {.rlim_cur = 2 * RESERVE};

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
        (void)getrlimit(RLIMIT_NOFILE, &lim);
    }
    unsigned all = lim.rlim_cur < INT_MAX ? (unsigned)lim.rlim_cur : INT_MAX;
    cache_lock(c);
    c->content->own->fds.limit = limit ? limit : all - (all / 2 < RESERVE ? all / 2 : RESERVE);
    cache_unlock(c);
}

/* ---- open and closed ---- */

static void leave_idle_locked(struct cache *c, struct mirror_fd *m) REQUIRES(cache_mutex)
{
    if (!m->idle)
        return;
    DL_DELETE(c->content->own->fds.idle, m);
    m->idle = false;
}

/* Gives the descriptor away; the caller that closes it counts it off. */
static int release_locked(struct cache *c, struct mirror_fd *m) REQUIRES(cache_mutex)
{
    leave_idle_locked(c, m);
    return take_fd(m->fd);
}

static void close_locked(struct cache *c, struct mirror_fd *m) REQUIRES(cache_mutex)
{
    (void)close(release_locked(c, m));
    c->content->own->fds.open--;
}

/* Counts one more, and closes idle ones for it; the caller opens it next. */
static void make_room_locked(struct cache *c) REQUIRES(cache_mutex)
{
    while (c->content->own->fds.idle && c->content->own->fds.open >= c->content->own->fds.limit)
        close_locked(c, c->content->own->fds.idle);
    c->content->own->fds.open++;
}

struct drop {
    struct task task;
    struct cache *cache;
    int fds[2];
    uint64_t orphan_id;
};

static void run_drop(struct task *task)
{
    struct drop *d = container_of(task, struct drop, task);
    struct cache *c = d->cache;
    unsigned closed = 0;

    if (d->orphan_id)
        file_drop_orphan(c, d->orphan_id);
    for (int i = 0; i < 2; i++)
        if (d->fds[i] >= 0) {
            (void)close(d->fds[i]);
            closed++;
        }
    cache_lock(c);
    c->content->own->fds.open -= closed;
    cache_unlock(c);
    free(d);
}

/* A chore removes the file, since a large one takes the disk a while. Without memory the next
 * mount removes the orphan. */
static void drop_later_locked(struct cache *c, struct file *f, bool read, bool write)
    REQUIRES(cache_mutex)
{
    struct drop *d = calloc(1, sizeof(*d));

    for (int i = 0; i < 2; i++)
        if (!d && f->fds[i].fd >= 0 && (i == FD_READ ? read : write))
            close_locked(c, &f->fds[i]);
    if (!d)
        return;
    d->task.run = run_drop;
    d->cache = c;
    d->fds[0] = read ? release_locked(c, &f->fds[FD_READ]) : -1;
    d->fds[1] = write ? release_locked(c, &f->fds[FD_WRITE]) : -1;
    d->orphan_id = read && write ? f->orphan_id : 0;
    pool_submit(c->chores, &d->task);
}

void file_drop_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (f->unnamed)
        fds_unkeep_locked(c);
    if (f->orphan_id || f->fds[FD_READ].fd >= 0 || f->fds[FD_WRITE].fd >= 0)
        drop_later_locked(c, f, true, true);
}

/* ---- use ---- */

unsigned file_fd_users(const struct file *f)
{
    return f->fds[FD_READ].users + f->fds[FD_WRITE].users;
}

/* Whether a handle may ask for it. */
static bool is_wanted(const struct file *f, enum file_fd which) REQUIRES(cache_mutex)
{
    return which == FD_WRITE ? f->write_handles > 0 : f->open_handles > f->write_handles;
}

static void settle_locked(struct cache *c, struct file *f, enum file_fd which)
    REQUIRES(cache_mutex)
{
    struct mirror_fd *m = &f->fds[which];

    if (m->fd < 0 || m->users > 0)
        return;
    leave_idle_locked(c, m);
    if (is_wanted(f, which) && c->content->own->fds.open <= c->content->own->fds.limit) {
        DL_APPEND(c->content->own->fds.idle, m);
        m->idle = true;
    } else if (f->orphan_id || f->unnamed) {
        drop_later_locked(c, f, which == FD_READ, which == FD_WRITE);
    } else {
        close_locked(c, m);
    }
}

void file_close_spare_fds_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    settle_locked(c, f, FD_READ);
    settle_locked(c, f, FD_WRITE);
}

void file_put_fd_locked(struct cache *c, struct file *f, enum file_fd which)
{
    cache_assert_locked(c);
    assert(f->fds[which].users > 0);
    f->fds[which].users--;
    settle_locked(c, f, which);
}

static int use_locked(struct cache *c, struct mirror_fd *m) REQUIRES(cache_mutex)
{
    leave_idle_locked(c, m);
    m->users++;
    return m->fd;
}

void file_take_fd_locked(struct cache *c, struct file *f, enum file_fd which, int fd)
{
    cache_assert_locked(c);
    assert(f->fds[which].fd < 0);
    make_room_locked(c);
    f->fds[which].fd = fd;
    (void)use_locked(c, &f->fds[which]);
}

/* A file without a name is reached through a descriptor that has it. */
static int reopen(int fd, int flags)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    return again < 0 ? -errno : again;
}

/* Where the mirror file is to be found. */
struct whereabouts {
    uint64_t orphan_id;
    char *path;
    int unnamed_fd;
};

static int open_there(struct cache *c, const struct whereabouts *at, enum file_fd which)
{
    int flags = which == FD_WRITE ? O_RDWR : O_RDONLY;

    return at->unnamed_fd >= 0 ? reopen(at->unnamed_fd, flags)
           : at->orphan_id     ? mirror_open_orphan(&c->mirror, at->orphan_id, flags)
           : at->path          ? mirror_open_path(&c->mirror, at->path, flags)
                               : -ESTALE;
}

/* Gives the new descriptor to the file, unless another thread was faster, whose one is in use
 * without the lock: then that is used. */
static int opened_locked(struct cache *c, struct mirror_fd *m, int fd) REQUIRES(cache_mutex)
{
    if (fd >= 0 && m->fd < 0) {
        m->fd = fd;
        return use_locked(c, m);
    }
    c->content->own->fds.open--;
    if (fd < 0)
        return fd;
    (void)close(fd);
    return use_locked(c, m);
}

/* Uses the descriptor if it is open; else -EBADF. */
static int use_open_locked(struct cache *c, struct node *n, enum file_fd which)
    REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    return !f ? -ESTALE : f->fds[which].fd >= 0 ? use_locked(c, &f->fds[which]) : -EBADF;
}

int file_get_fd_ns_locked(struct cache *c, struct node *n, enum file_fd which)
{
    ns_assert_held(c);
    cache_lock(c);
    struct file *f = n->file;
    int open_fd = use_open_locked(c, n, which);
    if (open_fd != -EBADF) {
        cache_unlock(c);
        return open_fd;
    }
    struct whereabouts at = {.orphan_id = f->orphan_id,
                             .path = f->orphan_id ? NULL : node_path(n),
                             .unnamed_fd = f->unnamed ? f->fds[!which].fd : -1};
    make_room_locked(c);
    cache_unlock(c);
    int fd = open_there(c, &at, which);
    free(at.path);
    cache_lock(c);
    fd = opened_locked(c, &f->fds[which], fd);
    cache_unlock(c);
    return fd;
}

int file_get_fd(struct cache *c, struct node *n, enum file_fd which)
{
    cache_lock(c);
    int fd = use_open_locked(c, n, which);
    cache_unlock(c);
    if (fd != -EBADF)
        return fd;
    ns_read(c); /* for its path */
    fd = file_get_fd_ns_locked(c, n, which);
    ns_done(c);
    return fd;
}

/* ---- kept ---- */

bool fds_plenty_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->content->own->fds.kept < c->content->own->fds.limit / 2;
}

int fds_room_locked(struct cache *c)
{
    cache_assert_locked(c);
    if (c->content->own->fds.kept < c->content->own->fds.limit)
        return 0;
    c->content->own->fds.refused++;
    if (!c->content->own->fds.full)
        log_later(
            &c->log, LOG_LEVEL_WARN,
            "cache %s: all its %u descriptors belong to files that programs write or that "
            "have no name: opening more of those gets ENFILE; raise the daemon's limit "
            "(ulimit -Hn, LimitNOFILE)",
            c->mirror.dir, c->content->own->fds.limit);
    c->content->own->fds.full = true;
    return -ENFILE;
}

int fds_keep_locked(struct cache *c)
{
    int r = fds_room_locked(c);

    cache_assert_locked(c);
    if (r == 0)
        c->content->own->fds.kept++;
    return r;
}

void fds_keep_anyway_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->content->own->fds.kept++;
}

void fds_unkeep_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->content->own->fds.kept--;
    if (fds_plenty_locked(c))
        c->content->own->fds.full = false;
}
