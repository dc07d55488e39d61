/* Loaded into a daemon with LD_PRELOAD: steps on the cache's disk that fail. The file whose
 * name is in RUNFS_TEST_STEPS says which, as long as it is there:
 *
 * write ERRNO      every write into the mirror
 * change N ERRNO   the N-th change of names or stamps from then on, once; the file goes then */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By the system itself: nothing here may count as a step. */
static bool read_orders(char *text, size_t size)
{
    const char *path = getenv("RUNFS_TEST_STEPS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;

    if (fd < 0)
        return false;
    ssize_t n = syscall(SYS_pread64, fd, text, size - 1, 0);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void count_down(int left, int err)
{
    const char *path = getenv("RUNFS_TEST_STEPS");
    char text[64];
    int len = snprintf(text, sizeof(text), "change %d %d", left, err);

    if (left == 0) {
        (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        return;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_TRUNC | O_CLOEXEC, 0);
    if (fd >= 0) {
        (void)syscall(SYS_pwrite64, fd, text, (size_t)len, 0);
        (void)close(fd);
    }
}

static bool change_fails(void)
{
    char text[64];
    int left = 0, err = 0;
    bool fails = false;

    (void)pthread_mutex_lock(&lock);
    if (read_orders(text, sizeof(text)) && sscanf(text, "change %d %d", &left, &err) == 2) {
        fails = left == 1;
        count_down(left - 1, err);
    }
    (void)pthread_mutex_unlock(&lock);
    if (fails)
        errno = err;
    return fails;
}

static bool is_in_mirror(int fd)
{
    char name[32], path[4096];

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, "/mirror/") != NULL;
}

static bool write_fails(int fd)
{
    char text[64];
    int err = 0;

    if (!read_orders(text, sizeof(text)) || sscanf(text, "write %d", &err) != 1 ||
        !is_in_mirror(fd))
        return false;
    errno = err;
    return true;
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
    return write_fails(fd) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, buf, len, off);
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return change_fails() ? -1 : (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return change_fails() ? -1 : (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return change_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return change_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir, const char *name, int flags)
{
    return change_fails() ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}
