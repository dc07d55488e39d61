/* Dirty pages of files on a mount are written back by a close().
 *
 * Of any descriptor: the kernel waits until the daemon has answered each write of the file.
 * syncfs() waits for none of them on FUSE. No signal ends such a close(), and a daemon that is
 * stuck, or has no room until an upload is through, makes it wait: so it is a child that calls
 * it, and is left behind when the time is over.
 *
 * The daemon itself could not wait in the kernel for its own mount: nothing would end it, as
 * its descriptors keep the mount alive. The child of a program with many threads may call
 * little: nothing that takes a lock. */
#include "cli/writeback.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in the child ---- */

/* Closes the daemon's descriptor of the mount, too: the mount ends when no process has that any
 * more. And a process that waits for the end of our output does not wait for the child. */
static void close_all(void)
{
    struct rlimit limit;

    if (close_range(0, UINT_MAX, 0) == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max > INT_MAX)
        limit.rlim_max = INT_MAX;
    for (int fd = 0; fd < (int)limit.rlim_max; fd++)
        (void)close(fd);
}

/* A user who may write there must not lead us to a device. */
static int open_below(int root_fd, const char *path)
{
    const struct open_how how = {
        .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

/* 0 or an errno. */
static int write_back_one(int root_fd, const char *path)
{
    int fd = open_below(root_fd, path);

    if (fd < 0)
        return errno == ENOENT || errno == ESTALE ? 0 : errno;
    return close(fd) < 0 ? errno : 0;
}

/* 0 or an errno. Another filesystem may be mounted there by now, or none; O_DIRECTORY would
 * have an automount make a new mount then. */
static int open_root(const char *mountpoint, dev_t dev, int *ret_fd)
{
    struct statx st;

    *ret_fd = open(mountpoint, O_PATH | O_CLOEXEC);
    if (*ret_fd < 0 ||
        (dev && statx(*ret_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0))
        return errno;
    return dev && makedev(st.stx_dev_major, st.stx_dev_minor) != dev ? ENXIO : 0;
}

/* The exit code is an errno, EACCES only without another one. A file that fails keeps no other
 * back. */
static _Noreturn void write_back_and_exit(const char *mountpoint, dev_t dev,
                                          const struct buf *paths)
{
    int root_fd, err;

    close_all();
    err = open_root(mountpoint, dev, &root_fd);
    if (err)
        _exit(err);
    for (const char *path = paths->data; path < paths->data + paths->len;
         path += strlen(path) + 1) {
        int r = write_back_one(root_fd, path);

        if (r && (!err || err == EACCES))
            err = r;
    }
    _exit(err);
}

/* ---- who waits ---- */

static int poll_ms(const struct op *op)
{
    int64_t left_ns = op_left_ns(op);

    if (left_ns == OP_FOREVER)
        return -1;
    return left_ns / NS_PER_MS < INT_MAX ? (int)(left_ns / NS_PER_MS) : INT_MAX;
}

/* The child's exit code as a negative errno, or -ETIMEDOUT. */
static int await_child(pid_t pid, const struct op *op)
{
    auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int n, status = 0;

    if (pidfd < 0) {
        int err = -errno;

        (void)kill(pid, SIGKILL);
        return err;
    }
    do
        n = poll(&p, 1, poll_ms(op));
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        int err = n < 0 ? -errno : -ETIMEDOUT;

        (void)kill(pid, SIGKILL); /* it may still wait to open a file */
        return err;
    }
    if (waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int writeback_files(const char *mountpoint, dev_t dev, const struct buf *paths, struct op *op)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};

    if (paths->len == 0)
        return 0;
    /* The process that started us may have left it ignored, and the child's exit code would be
     * lost. */
    (void)sigaction(SIGCHLD, &usual, NULL);
    pid_t pid = fork();
    if (pid == 0)
        write_back_and_exit(mountpoint, dev, paths);
    int r = pid < 0 ? -errno : await_child(pid, op);
    if (r == -EACCES)
        return op_fail(op, r,
                       "%s: files that programs write may not be opened by this user: what was "
                       "stored through mappings of them may not be with the daemon yet",
                       mountpoint);
    return r < 0 ? op_fail(op, r,
                           "%s: what programs stored through mappings is not with the daemon "
                           "yet: %s",
                           mountpoint, strerror(-r))
                 : 0;
}
