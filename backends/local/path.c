/* From a key to the file that it names: resolved below the descriptor of the root, or of where
 * objects of our own are, so that nothing in there leads out of it. */
#include "backends/local/local.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int local_errno(int err)
{
    return err == ESTALE ? -ENXIO : -err;
}

static int open_beneath(int dirfd, const char *key, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };

    long fd = syscall(SYS_openat2, dirfd, key[0] ? key : ".", &how, sizeof(how));
    return fd < 0 ? local_errno(errno) : (int)fd;
}

int local_openat(const struct local_store *l, const char *key, int flags)
{
    const char *own = path_below(STORE_STATE_DIR, key);

    if (!own)
        return open_beneath(l->root_fd, key, flags);
    if (l->stateless)
        return -ENOENT;
    auto_close int keys_fd = local_state_open(l, false);
    return keys_fd < 0 ? keys_fd : open_beneath(keys_fd, own, flags);
}

const char *local_name(const char *key)
{
    return key[0] ? path_basename(key) : ".";
}

bool local_is_reserved(const char *key)
{
    return path_below(LOCAL_STATE_NAME, key) != NULL;
}

/* Makes the directory and those above it; what is there stays. */
static int make_dirs(const struct local_store *l, const char *dir)
{
    auto_free char *parent = path_parent(dir);
    if (!parent)
        return -ENOMEM;

    if (strcmp(dir, STORE_STATE_DIR) == 0) {
        auto_close int keys_fd = local_state_open(l, true);
        return keys_fd < 0 ? keys_fd : 0;
    }
    auto_close int fd = local_openat(l, parent, O_RDONLY | O_DIRECTORY);
    if (fd == -ENOENT && parent[0]) {
        int r = make_dirs(l, parent);
        if (r < 0)
            return r;
        fd = local_openat(l, parent, O_RDONLY | O_DIRECTORY);
    }
    if (fd < 0)
        return fd;
    if (mkdirat(fd, path_basename(dir), LOCAL_NEW_DIR) < 0)
        return errno == EEXIST ? 0 : -errno;
    int r = local_is_reserved(dir) ? local_state_share(fd, path_basename(dir)) : 0;
    return r < 0 ? r : local_sync_dir(fd);
}

bool local_is_nobodys(const struct local_store *l, const char *key)
{
    const char *own = path_below(STORE_STATE_DIR, key);

    return own && (l->stateless || !own[0]);
}

int local_open_parent(const struct local_store *l, const char *key, bool create, int *ret_fd)
{
    auto_free char *parent = path_parent(key);
    int fd = -ENOENT;

    if (!parent)
        return -ENOMEM;
    if (local_is_nobodys(l, key))
        return create ? -EPERM : -ENOENT;
    for (int i = 0; i < LOCAL_RACES_TOLERATED; i++) {
        fd = local_openat(l, parent, O_RDONLY | O_DIRECTORY);
        if (fd != -ENOENT || !create || !parent[0])
            break;
        int r = make_dirs(l, parent);
        if (r < 0 && r != -ENOENT)
            return r == -ELOOP ? -ENOTDIR : r;
    }
    /* A path through a file or a symlink leads to nothing, and can't be made. */
    if (fd == -ENOTDIR || fd == -ELOOP)
        return create ? -ENOTDIR : -ENOENT;
    if (fd == -ENAMETOOLONG && !create)
        return -ENOENT; /* nothing can have such a name here */
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

bool local_is_removed(int fd)
{
    struct stat st;

    return fstat(fd, &st) < 0 || st.st_nlink == 0;
}

bool local_root_is_gone(const struct local_store *l)
{
    return local_is_removed(l->root_fd);
}

int local_explain(const struct local_store *l, struct op *op, const char *what, const char *key,
                  int err)
{
    /* A cache must not take a vanished folder for a folder whose files were deleted. */
    if (err == -ENOENT && local_root_is_gone(l))
        return op_fail(op, -ENXIO, "%s %s/%s: the folder %s is gone", what, l->root, key,
                       l->root);
    if (err == -EPERM && local_is_reserved(key) &&
        (l->stateless || strcmp(key, STORE_STATE_DIR) != 0))
        return local_no_place(l, op, l->stateless ? l->stateless : err);
    return op_fail(op, err, "%s %s/%s: %s", what, l->root, key, strerror(-err));
}

int local_describe_key(const struct local_store *l, const char *key, struct object *ret)
{
    int parent;

    if (strcmp(key, STORE_STATE_DIR) == 0) {
        auto_close int keys_fd = local_openat(l, key, O_RDONLY | O_DIRECTORY);
        return keys_fd < 0 ? keys_fd : local_describe(keys_fd, ".", ret);
    }
    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return r;
    r = local_describe(parent, local_name(key), ret);
    (void)close(parent);
    return r;
}
