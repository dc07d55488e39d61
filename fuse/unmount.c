/* An unmount through a descriptor of the directory above. */
#include "fuse/unmount.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static int open_without_symlinks(const char *path)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/* Without attributes, which a mount of another user's does not tell even root. */
static int check_dev(int parent_fd, const char *name, dev_t dev)
{
    struct statx st;

    if (statx(parent_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0,
              &st) < 0)
        return -errno;
    return makedev(st.stx_dev_major, st.stx_dev_minor) == dev ? 0 : -ESTALE;
}

int unmount_at(const char *abs, dev_t dev, int flags)
{
    auto_free char *copy = strdup(abs);
    auto_free char *path = NULL;
    auto_close int parent_fd = -1;
    char *slash = copy ? strrchr(copy, '/') : NULL;
    int r;

    if (!slash)
        return copy ? -EINVAL : -ENOMEM;
    *slash = '\0';
    parent_fd = open_without_symlinks(*copy ? copy : "/");
    if (parent_fd < 0)
        return parent_fd;
    r = dev ? check_dev(parent_fd, slash + 1, dev) : 0;
    if (r)
        return r;
    /* The last component is looked up in that very directory. */
    if (asprintf(&path, "/proc/self/fd/%d/%s", parent_fd, slash + 1) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return umount2(path, flags | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}
