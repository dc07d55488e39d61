/* The state folder of a local store: staged files, the lock between processes, and the moment
 * at which a staged file becomes an object.
 *
 * The folder is the root's sibling "<root>.runfs", so that no reader of the root meets it.
 * Where that is another filesystem (the root is a mount point) or can't be made, it is ".runfs"
 * inside the root, which listings leave out. Staged names: "put-*" live as long as one call,
 * "dir-*" likewise (first.c), "up-*" as long as an upload session, "check-*" as long as a trial
 * (trial.c). What a killed process left is removed after a while. */
#include "backends/local/local.h"
#include "common/mem.h"
#include "common/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define SIBLING          ".runfs"
#define LOCK_NAME        "lock"
#define LOCK_POLL_NS     (2 * NS_PER_MS)
#define PUT_KEPT_SECONDS (24 * 3600)
#define UP_KEPT_SECONDS  (7 * 24 * 3600)

/* ---- the folder ---- */

static bool is_named(const char *name, const char *kind)
{
    return strncmp(name, kind, strlen(kind)) == 0;
}

/* Removes what was staged and not touched for long. ctime counts: mtime is the user's. */
static void sweep(int state_fd)
{
    int fd = openat(state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    time_t now = time(NULL);
    struct dirent *e;
    struct stat st;

    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((e = readdir(dir))) {
        bool put = is_named(e->d_name, "put-") || is_named(e->d_name, "dir-") ||
                   is_named(e->d_name, "check-");
        bool up = is_named(e->d_name, "up-");
        if ((put || up) && fstatat(state_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_ctime < now - (put ? PUT_KEPT_SECONDS : UP_KEPT_SECONDS))
            local_stage_remove(state_fd, e->d_name);
    }
    (void)closedir(dir);
}

/* What is staged becomes content, and its locks keep writers apart: nobody may get at it who
 * may not write to the store itself. */
static bool is_trusted(const struct local_store *l, int fd)
{
    struct stat root, st;

    if (fstat(l->root_fd, &root) < 0 || fstat(fd, &st) < 0)
        return false;
    if (st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != root.st_uid)
        return false;
    if (st.st_mode & S_IWGRP && (!(root.st_mode & S_IWGRP) || st.st_gid != root.st_gid))
        return false;
    return !(st.st_mode & S_IWOTH) || root.st_mode & S_IWOTH;
}

int local_open_folder(const struct local_store *l, int dirfd, const char *name, bool make)
{
    if (make && mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    auto_close int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return is_trusted(l, fd) ? take_fd(fd) : LOCAL_UNTRUSTED;
}

/* The same of the root's sibling with that suffix, which may be a disk of its own, too. */
static int open_sibling(const struct local_store *l, const char *suffix, bool make)
{
    const char *base = strrchr(l->root, '/') + 1;
    auto_free char *parent = strndup(l->root, (size_t)(base - l->root));
    auto_free char *name = NULL;
    struct stat root, st;

    if (!parent || asprintf(&name, "%s%s", base, suffix) < 0)
        return -ENOMEM;
    auto_close int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent_fd < 0)
        return -errno;
    if (fstat(l->root_fd, &root) < 0 || fstat(parent_fd, &st) < 0)
        return -errno;
    if (root.st_dev != st.st_dev)
        return -EXDEV;
    auto_close int fd = local_open_folder(l, parent_fd, name, make);
    if (fd >= 0 && fstat(fd, &st) < 0)
        return -errno;
    return fd < 0 || root.st_dev == st.st_dev ? take_fd(fd) : -EXDEV;
}

int local_open_sibling(const struct local_store *l, bool make)
{
    return open_sibling(l, SIBLING, make);
}

/* Whether the root can have no such sibling. */
static bool is_no_sibling(int r)
{
    return r == -EXDEV || r == -EACCES || r == -EPERM || r == -EROFS || r == -ENAMETOOLONG;
}

static int open_state(const struct local_store *l)
{
    int fd = open_sibling(l, SIBLING, true);

    return is_no_sibling(fd) ? local_open_folder(l, l->root_fd, LOCAL_STATE_NAME, true) : fd;
}

/* That it is missing says nothing of an object: -ENOENT and -ENOTDIR would. */
static int without_state(int r)
{
    return r == -ENOENT || r == -ENOTDIR ? -ENXIO : r;
}

static int no_state(const struct local_store *l, struct op *op, int r)
{
    if (r == LOCAL_UNTRUSTED)
        return op_fail(
            op, -EPERM,
            "%s.runfs (or %s/%s): what is staged there becomes content, but the folder "
            "belongs to somebody else, or more people may write to it than to %s",
            l->root, l->root, LOCAL_STATE_NAME, l->root);
    return op_fail(op, without_state(r),
                   "no folder to stage in, neither %s.runfs nor %s/%s: %s", l->root, l->root,
                   LOCAL_STATE_NAME, strerror(-r));
}

int local_stage_fail(const struct local_store *l, struct op *op, const char *what,
                     const char *key, int err)
{
    if (without_state(err) == err)
        return local_fail(l, op, what, key, err);
    return op_fail(op, without_state(err),
                   "%s %s/%s: what was staged is gone from %s.runfs (or %s/%s): %s", what,
                   l->root, key, l->root, l->root, LOCAL_STATE_NAME, strerror(-err));
}

/* Opens it, or in place of one that was removed, whose descriptor others may be using. */
static int open_state_locked(struct local_store *l) REQUIRES(l->lock)
{
    if (l->state_fd >= 0 && (l->is_trial || !local_is_removed(l->state_fd)))
        return 0;
    auto_close int fd = open_state(l);
    if (fd < 0)
        return fd;
    if (l->state_fd >= 0)
        return dup3(fd, l->state_fd, O_CLOEXEC) < 0 ? -errno : 0;
    l->state_fd = take_fd(fd);
    sweep(l->state_fd);
    return 0;
}

int local_state(struct local_store *l, struct op *op, int *ret_fd)
{
    mutex_lock(&l->lock);
    int r = open_state_locked(l);
    *ret_fd = l->state_fd;
    mutex_unlock(&l->lock);
    return r < 0 ? no_state(l, op, r) : 0;
}

/* The state folder that is there, or one of the trial's own. */
static int open_apart(const struct local_store *l, const char *suffix, bool *ret_own)
{
    int fd = open_sibling(l, SIBLING, false);

    *ret_own = fd == -ENOENT;
    if (*ret_own)
        fd = open_sibling(l, suffix, true);
    if (!is_no_sibling(fd))
        return fd;
    *ret_own = false;
    return local_open_folder(l, l->root_fd, LOCAL_STATE_NAME, false);
}

/* Others may begin to use a state folder as soon as it is there, and one that another user has
 * made is closed to them: a trial makes none. */
int local_state_apart(struct local_store *l, struct op *op, char **ret_own)
{
    auto_free char *suffix = local_stage_name(SIBLING "-check-");
    auto_free char *path = NULL;
    bool own;

    if (!suffix || asprintf(&path, "%s%s", l->root, suffix) < 0) {
        path = NULL;
        return op_fail(op, -ENOMEM, "no memory for a folder");
    }
    int fd = open_apart(l, suffix, &own);
    if (fd < 0 && own)
        (void)rmdir(path);
    if (fd == -ENOENT)
        return op_fail(op, -EOPNOTSUPP, "a mount stages in %s/%s, which is not there yet",
                       l->root, LOCAL_STATE_NAME);
    if (fd < 0)
        return no_state(l, op, fd);
    mutex_lock(&l->lock);
    l->state_fd = fd;
    mutex_unlock(&l->lock);
    if (own)
        *ret_own = take_ptr(path);
    return 0;
}

void local_state_apart_end(int state_fd, const char *own)
{
    (void)unlinkat(state_fd, LOCK_NAME, 0);
    (void)rmdir(own);
}

char *local_stage_name(const char *kind)
{
    uint64_t random[2];
    char *name;

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return NULL;
    if (asprintf(&name, "%s%016" PRIx64 "%016" PRIx64, kind, random[0], random[1]) < 0)
        return NULL;
    return name;
}

int local_stage_make(int state_fd, const char *name, const struct attrs *a, int *ret_fd)
{
    mode_t type = a && (a->has & ATTR_MODE) ? a->mode & S_IFMT : 0;
    int r;

    *ret_fd = -1;
    if (type == S_IFLNK)
        r = symlinkat(a->target, state_fd, name);
    else if (type && type != S_IFREG)
        r = mknodat(state_fd, name, type | 0600, a->has & ATTR_RDEV ? (dev_t)a->rdev : 0);
    else
        r = *ret_fd = openat(state_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return r < 0 ? -errno : 0;
}

/* ---- the lock ---- */

/* One that root makes in the state folder of another user would keep that one out, and one that
 * its maker alone may open those who share the folder. A root that may not give files away is
 * no worse off than before. */
static void share_lock(int fd, int state_fd)
{
    struct stat lock, state;

    if (fstat(fd, &lock) < 0 || fstat(state_fd, &state) < 0 || lock.st_uid != geteuid())
        return;
    mode_t mode = 0600 | (state.st_mode & 0066);
    bool is_roots = lock.st_uid == 0 && state.st_uid != 0;
    if (((lock.st_mode & 0777) != mode && fchmod(fd, mode) < 0) ||
        (is_roots && fchown(fd, state.st_uid, state.st_gid) < 0))
        return;
}

/* Each call opens the lock file anew: flock() then also works between threads. */
int local_lock(struct local_store *l, struct op *op, bool alone, int *ret_fd)
{
    int state_fd;

    int r = local_state(l, op, &state_fd);
    if (r < 0)
        return r;
    auto_close int fd =
        openat(state_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return local_stage_fail(l, op, "lock", LOCK_NAME, -errno);
    share_lock(fd, state_fd);
    while (flock(fd, (alone ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return local_fail(l, op, "lock", LOCK_NAME, -errno);
        r = op_sleep(op, LOCK_POLL_NS);
        if (r < 0)
            return r;
    }
    *ret_fd = take_fd(fd);
    return 0;
}

/* ---- publishing ---- */

int local_sync_dir(int fd)
{
    /* Some network filesystems can't sync a directory; they write names at once. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != EOPNOTSUPP)
        return -errno;
    return 0;
}

int local_check_version(const struct local_store *l, struct op *op, const char *key,
                        const char *etag)
{
    struct object obj = {.etag = ""};
    int parent, r;

    if (!etag)
        return 0;
    r = local_open_parent(l, key, false, &parent);
    if (!r) {
        r = local_describe(parent, local_name(key), &obj);
        (void)close(parent);
        object_release(&obj);
    }
    if (r < 0 && r != -ENOENT)
        return local_fail(l, op, "check", key, r);
    if (obj.is_prefix)
        return local_fail(l, op, "check", key, -EISDIR);
    if (strcmp(obj.etag, etag) == 0)
        return 0;
    return op_fail(op, -ESTALE, "%s/%s is version \"%s\", not \"%s\"", l->root, key, obj.etag,
                   etag);
}

/* A second name is made only where there is none. One whose answer was lost (NFS) is asked for
 * again, and then stands in its own way. */
static int link_in(int state_fd, const char *name, int parent, const char *to)
{
    int r = linkat(state_fd, name, parent, to, 0) < 0 ? -errno : 0;
    struct stat st;

    /* Without links, too, the check under the lock has to do. */
    if (r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS)
        return renameat(state_fd, name, parent, to) < 0 ? -errno : 0;
    if (r == -EEXIST && fstatat(state_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_nlink > 1)
        r = 0;
    if (!r)
        (void)unlinkat(state_fd, name, 0);
    return r;
}

static int move_in(int state_fd, const char *name, int parent, const char *key, bool absent)
{
    const unsigned flags = absent ? RENAME_NOREPLACE : 0;
    const char *to = path_basename(key);
    int r = renameat2(state_fd, name, parent, to, flags) < 0 ? -errno : 0;

    if (absent && r == -EINVAL) /* no NOREPLACE on this filesystem */
        r = link_in(state_fd, name, parent, to);
    return r == -EEXIST ? -ESTALE : r;
}

/* Moves the staged name to its key. ret_parent: the key's parent, still to be synced. */
static int move_to_key(const struct local_store *l, int state_fd, const char *name,
                       const char *key, bool absent, int *ret_parent)
{
    int r = -ENOENT;

    for (int i = 0; i < LOCAL_RACES_TOLERATED && r == -ENOENT; i++) {
        auto_close int parent = -1;
        r = local_open_parent(l, key, false, &parent);
        if (r == -ENOENT) {
            r = local_move_as_first(l, state_fd, name, key, ret_parent);
            if (r != -EEXIST)
                return r;
            r = local_open_parent(l, key, true, &parent);
        }
        if (!r)
            r = move_in(state_fd, name, parent, key, absent);
        if (!r)
            *ret_parent = take_fd(parent);
    }
    return r;
}

int local_publish(struct local_store *l, struct op *op, const char *name, const char *key,
                  const char *etag)
{
    bool absent = etag && !etag[0];
    auto_close int parent = -1;
    int state_fd, r;

    r = local_state(l, op, &state_fd);
    if (r < 0)
        return r;
    auto_close int lock = -1;
    r = local_lock(l, op, etag != NULL, &lock);
    if (!r)
        r = local_check_version(l, op, key, etag);
    if (r < 0)
        return r;
    r = move_to_key(l, state_fd, name, key, absent, &parent);
    (void)close(take_fd(lock));
    if (!r)
        r = local_sync_dir(parent);
    return r < 0 ? local_fail(l, op, "put", key, r) : 0;
}
