/* Dirty pages of files on a mount are written back by a close().
 *
 * Of any descriptor: the kernel waits until the daemon has answered each write of the file.
 * syncfs() waits for none of them on FUSE. No signal ends such a close(), and a daemon that is
 * stuck, or has no room until an upload is through, makes it wait: so it is a child that calls
 * it, and is left behind when the time is over. */
#include "cli/writeback.h"

#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0 or an errno. */
static int write_back_one(int root_fd, const json_t *text)
{
    auto_free char *path = NULL;
    int err = control_decode_path(json_string_value(text), &path);

    if (err)
        return -err;
    int fd = openat(root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESTALE ? 0 : errno;
    return close(fd) < 0 ? errno : 0;
}

/* The exit code is an errno. Who waits for the end of our output does not wait for the child.
 */
static _Noreturn void write_back_and_exit(const char *mountpoint, const json_t *paths)
{
    const json_t *path;
    size_t i;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)close(fd);
    int root_fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int err = root_fd < 0 ? errno : 0;
    bool refused = false;
    json_array_foreach(paths, i, path)
    {
        int one = err ? err : write_back_one(root_fd, path);
        bool is_refused = !err && one == EACCES; /* the others may be opened */
        refused = refused || is_refused;
        err = is_refused ? 0 : one;
    }
    _exit(err ? err : refused ? EACCES : 0);
}

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

    if (pidfd < 0)
        return -errno;
    do
        n = poll(&p, 1, poll_ms(op));
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : -ETIMEDOUT;
    if (waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int writeback_files(const char *mountpoint, const json_t *paths, struct op *op)
{
    if (json_array_size(paths) == 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0)
        write_back_and_exit(mountpoint, paths);
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
