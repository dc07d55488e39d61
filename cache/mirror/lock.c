/* The lock of a cache directory. Whoever opens it has it: flock(2) on the file "lock".
 *
 * A mount keeps it as long as it lives, `runfs recover` as long as it publishes or copies:
 * those hold the cache, and have a lock of fcntl(2) on that file besides. A command that only
 * looks, as `runfs status` does at all caches of its user, soon ends: everybody waits for it.
 */
#include "cache/mirror/mirror_impl.h"

#include "common/op.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PAUSE_NS    (20 * NS_PER_MS)
#define PATIENCE_NS (3 * NS_PER_SEC)

static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* Also true where the filesystem makes one of both kinds of locks, as NFS does: then nobody is
 * waited for. */
static bool is_held(int fd)
{
    struct flock l = whole_file();

    return fcntl(fd, F_OFD_GETLK, &l) < 0 || l.l_type != F_UNLCK;
}

static int lock_patiently(int fd, const struct op *op)
{
    struct op wait = *op; /* its reason stays as it is */
    int64_t end = clock_mono_ns() + PATIENCE_NS;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return -errno;
        if (is_held(fd) || clock_mono_ns() >= end)
            return -EBUSY;
        int r = op_sleep(&wait, PAUSE_NS);
        if (r < 0)
            return r == -ETIMEDOUT ? -EBUSY : r;
    }
    return 0;
}

/* Whether the file that was waited for is still that of the directory, and not one that
 * somebody removed meanwhile: another one may be locked by another process. */
static bool is_named(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int mirror_lock(struct mirror *m, struct op *op)
{
    int r;

    m->lock_fd = door_file(m->root_fd, "lock", O_RDWR | O_CREAT);
    if (m->lock_fd < 0)
        return op_fail(op, m->lock_fd, "cache %s: can't create its lock: %s", m->dir,
                       door_why(m->lock_fd));
    r = lock_patiently(m->lock_fd, op);
    if (r == 0 && !is_named(m->lock_fd))
        r = -EBUSY;
    if (r == -EBUSY)
        return op_fail(op, r,
                       "cache %s is in use by another mount, or by a command as `runfs "
                       "recover`; unmount it, wait, or choose another cache_dir",
                       m->dir);
    if (r == -EINTR)
        return op_fail(op, r, "cache %s: stopped while a command looked at it", m->dir);
    return r < 0 ? op_fail(op, r, "cache %s: can't lock it: %s", m->dir, strerror(-r)) : 0;
}

/* The lock goes with the descriptor, as that of flock() does. Where there is none, others wait
 * in vain before they are refused. */
void mirror_hold(struct mirror *m)
{
    struct flock l = whole_file();

    (void)fcntl(m->lock_fd, F_OFD_SETLK, &l);
}
