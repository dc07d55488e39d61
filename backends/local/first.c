/* The first file of a new directory comes with it: who reads the folder would take the newest
 * directory for the newest checkpoint, also while nothing is in it. The directory is made in
 * the state folder, gets the file there, and is renamed into place. Its staged name, "dir-*",
 * lives as long as one call; the file is back under its own when that fails. */
#include "backends/local/local.h"
#include "common/mem.h"
#include "common/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

struct first {
    int state_fd;
    const char *name; /* there */
};

/* The topmost directory above the key that is missing; NULL in *ret_top: none is. *ret_above is
 * a descriptor of the one that it is to be in. */
static int find_missing(const struct local_store *l, const char *key, char **ret_top,
                        int *ret_above)
{
    auto_free char *dir = path_parent(key);
    auto_free char *top = NULL;

    for (;;) {
        auto_close int fd = dir ? local_openat(l, dir, O_RDONLY | O_DIRECTORY) : -ENOMEM;
        if (fd >= 0) {
            *ret_top = take_ptr(top);
            *ret_above = take_fd(fd);
            return 0;
        }
        if (fd != -ENOENT || !dir[0])
            return fd;
        free(top);
        top = take_ptr(dir);
        dir = path_parent(top);
    }
}

/* Whether what is made in the directory gets something of it, which only the kernel knows to
 * give. */
static bool hands_on(int dirfd)
{
    struct stat st;

    return fstat(dirfd, &st) < 0 || st.st_mode & S_ISGID ||
           fgetxattr(dirfd, "system.posix_acl_default", NULL, 0) > 0;
}

static int make_dir(int dirfd, const char *name, int *ret_fd)
{
    if (mkdirat(dirfd, name, LOCAL_NEW_DIR) < 0)
        return -errno;
    *ret_fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

/* Makes the directories of `below` in the staged one, which is `fd`, and moves the file there.
 * *ret_parent: the innermost. */
static int fill(const struct first *f, int fd, const char *below, int *ret_parent)
{
    auto_close int dir = dup(fd);
    const char *slash;

    if (dir < 0)
        return -errno;
    for (; (slash = strchr(below, '/')); below = slash + 1) {
        auto_free char *one = strndup(below, (size_t)(slash - below));
        auto_close int inner = -1;
        int r = one ? make_dir(dir, one, &inner) : -ENOMEM;
        if (!r)
            r = local_sync_dir(dir);
        if (r < 0)
            return r;
        (void)close(dir);
        dir = take_fd(inner);
    }
    if (renameat(f->state_fd, f->name, dir, below) < 0)
        return -errno;
    *ret_parent = take_fd(dir);
    return local_sync_dir(*ret_parent);
}

void local_stage_remove(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno != EISDIR)
        return;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((e = readdir(dir)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            local_stage_remove(fd, e->d_name);
    (void)closedir(dir);
    (void)unlinkat(dirfd, name, AT_REMOVEDIR);
}

/* Whether it is done; if not all is as it was. */
static bool move_with(const struct first *f, const char *top, const char *key, int above,
                      int *ret_parent)
{
    auto_close int fd = -1, parent = -1;
    auto_free char *staged = local_stage_name("dir-");

    if (!staged || make_dir(f->state_fd, staged, &fd) < 0)
        return false;
    int r = fill(f, fd, path_below(top, key), &parent);
    /* A directory that is there by now is not taken away, not even an empty one. */
    if (!r && renameat2(f->state_fd, staged, above, path_basename(top), RENAME_NOREPLACE) < 0)
        r = -errno;
    if (!r) {
        *ret_parent = take_fd(parent);
        return true;
    }
    if (parent >= 0)
        (void)renameat(parent, path_basename(key), f->state_fd, f->name);
    local_stage_remove(f->state_fd, staged);
    return false;
}

int local_move_as_first(const struct local_store *l, int state_fd, const char *name,
                        const char *key, int *ret_parent)
{
    const struct first f = {.state_fd = state_fd, .name = name};
    auto_free char *top = NULL;
    auto_close int above = -1;

    if (local_is_reserved(key) || find_missing(l, key, &top, &above) < 0 || !top ||
        hands_on(above) || !move_with(&f, top, key, above, ret_parent))
        return -EEXIST;
    return local_sync_dir(above);
}
