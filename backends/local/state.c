/* Objects of our own: the keys below STORE_STATE_DIR lie in "<root>.runfs/state".
 *
 * Only beside the root: whether it can be there is a matter of the folder alone, so that all
 * who mount it have one place, while ".runfs" inside of it is where somebody stages who may
 * make nothing beside it. What another reader of the root meets is never ours. Directories are
 * made for what is put into them, open to those to whom the state folder is, and go with the
 * last of it. */
#include "backends/local/local.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEYS_NAME "state" /* no name of what is staged, and not the lock's */

/* Whether the directory that the root is in takes a new one. */
static int look_at_parent(const struct local_store *l)
{
    auto_free char *parent = strndup(l->root, (size_t)(strrchr(l->root, '/') + 1 - l->root));

    if (!parent)
        return -ENOMEM;
    return faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

int local_state_look(const struct local_store *l)
{
    auto_close int fd = local_open_sibling(l, false);

    if (fd == -ENOENT)
        return look_at_parent(l);
    return fd < 0 ? fd : 0;
}

/* What stands in its place is somebody's, as the folder may be: it says nothing. */
static int untrusted(int err)
{
    return err == LOCAL_UNTRUSTED || err == -ENOTDIR || err == -ELOOP ? -EPERM : err;
}

int local_state_share(int parent, const char *name)
{
    struct stat from, st;

    auto_close int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(parent, &from) < 0 || fstat(fd, &st) < 0)
        return -errno;
    /* Root may not be able to give it away, and then has it alone. */
    if (st.st_uid == 0 && from.st_uid != 0 && fchown(fd, from.st_uid, from.st_gid) < 0 &&
        errno != EPERM)
        return -errno;
    return fchmod(fd, from.st_mode & 07777) < 0 ? -errno : 0;
}

/* "state" in the folder. */
static int open_keys(const struct local_store *l, int folder, bool make)
{
    struct stat st, root;

    auto_close int fd = local_open_folder(l, folder, KEYS_NAME, false);
    if (fd == -ENOENT && make) {
        if (mkdirat(folder, KEYS_NAME, 0700) < 0 && errno != EEXIST)
            return -errno;
        int r = local_state_share(folder, KEYS_NAME);
        if (!r)
            r = local_sync_dir(folder);
        if (r < 0)
            return r;
        fd = local_open_folder(l, folder, KEYS_NAME, false);
    }
    if (fd >= 0 && (fstat(fd, &st) < 0 || fstat(l->root_fd, &root) < 0))
        return -errno;
    return fd < 0 || st.st_dev == root.st_dev ? take_fd(fd) : -EXDEV;
}

int local_state_open(const struct local_store *l, bool make)
{
    if (local_root_is_gone(l))
        return -ENXIO;

    auto_close int folder = local_open_sibling(l, make);
    int fd = folder < 0 ? folder : open_keys(l, folder, make);
    return fd == -ESTALE ? local_errno(ESTALE) : untrusted(fd);
}

int local_prune(const struct local_store *l, const char *key)
{
    auto_free char *dir = path_parent(key);

    while (dir && path_below(STORE_STATE_DIR, dir) && strcmp(dir, STORE_STATE_DIR) != 0) {
        auto_free char *above = path_parent(dir);
        int parent;
        if (!above)
            return -ENOMEM;
        int r = local_open_parent(l, dir, false, &parent);
        if (r < 0)
            return r == -ENOENT ? 0 : r;
        bool gone = unlinkat(parent, local_name(dir), AT_REMOVEDIR) == 0;
        r = gone ? local_sync_dir(parent) : 0;
        (void)close(parent);
        if (!gone || r < 0)
            return r;
        SWAP(dir, above);
    }
    return dir ? 0 : -ENOMEM;
}

int local_no_place(const struct local_store *l, struct op *op, int err)
{
    if (err == LOCAL_STATE_OFF)
        return op_fail(op, -EPERM, "state_prefix=off: nothing of our own is kept for %s",
                       l->root);
    if (err == -EXDEV)
        return op_fail(op, -EPERM,
                       "%s.runfs would be on another disk than %s: nothing of our own is kept "
                       "for a disk, but for a folder on it",
                       l->root, l->root);
    if (untrusted(err) == -EPERM)
        return op_fail(op, -EPERM,
                       "nothing of our own is kept in %s.runfs: it belongs to somebody else, "
                       "more people may write to it than to %s, or it is no folder",
                       l->root, l->root);
    return op_fail(op, -EPERM, "nothing of our own can be kept in %s.runfs: %s", l->root,
                   strerror(-err));
}
