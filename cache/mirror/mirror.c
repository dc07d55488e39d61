/* The mirror on the disk; see mirror.h. */
#include "cache/mirror/mirror.h"
#include "cache/mirror/mirror_impl.h"

#include "cache/mirror/door.h"
#include "cache/mirror/location.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VERSION_TEXT "runfs cache 1\n"

/* The kernel takes paths of less than 4,096 bytes; longer ones are walked in pieces. */
#define PIECE_MAX 3000

int mirror_beneath(int dirfd, const char *path, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? 0600 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    long fd;

    do
        fd = syscall(SYS_openat2, dirfd, *path ? path : ".", &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return fd < 0 ? -errno : (int)fd;
}

/* The length of the longest prefix of whole components that the kernel takes at once. */
static size_t piece_len(const char *path)
{
    size_t len = strlen(path), cut = PIECE_MAX;

    if (len <= PIECE_MAX)
        return len;
    while (cut > 0 && path[cut] != '/')
        cut--;
    return cut;
}

/* Opens a path of any length below `root_fd`. */
static int open_below(int root_fd, const char *path, int flags)
{
    auto_close int at = -1;

    for (;;) {
        size_t len = piece_len(path);
        if (path[len] == '\0')
            return mirror_beneath(at < 0 ? root_fd : at, path, flags);
        auto_free char *piece = strndup(path, len);
        if (!piece)
            return -ENOMEM;
        int fd = mirror_beneath(at < 0 ? root_fd : at, piece, O_PATH | O_DIRECTORY);
        if (fd < 0)
            return fd;
        if (at >= 0)
            (void)close(at);
        at = fd;
        path += len + 1;
    }
}

int mirror_open_parent(int root_fd, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');

    *ret_name = slash ? slash + 1 : path;
    if (!slash)
        return open_below(root_fd, "", O_PATH | O_DIRECTORY);
    auto_free char *dir = strndup(path, (size_t)(slash - path));
    return dir ? open_below(root_fd, dir, O_PATH | O_DIRECTORY) : -ENOMEM;
}

static int mkdirs_below(int root_fd, const char *path)
{
    const char *name;

    if (*path == '\0')
        return 0;
    auto_close int dir = mirror_open_parent(root_fd, path, &name);
    if (dir == -ENOENT) {
        auto_free char *parent = strndup(path, (size_t)(name - path - 1));
        if (!parent)
            return -ENOMEM;
        int r = mkdirs_below(root_fd, parent);
        if (r < 0)
            return r;
        dir = mirror_open_parent(root_fd, path, &name);
    }
    if (dir < 0)
        return dir;
    return mkdirat(dir, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

bool mirror_removed(struct mirror *m)
{
    struct stat st;

    return fstat(m->tree_fd, &st) == 0 && st.st_nlink == 0;
}

int mirror_note(struct mirror *m, int r)
{
    if (r == -EROFS)
        atomic_store(&m->refused, true);
    return r;
}

bool mirror_read_only(struct mirror *m)
{
    if (!atomic_load(&m->refused))
        return false;
    if (futimens(m->incoming_fd, NULL) == 0)
        atomic_store(&m->refused, false);
    return atomic_load(&m->refused);
}

/* "No such file" is no answer to a program that creates one. */
static int told(struct mirror *m, int r)
{
    return r == -ENOENT && mirror_removed(m) ? -EIO : mirror_note(m, r);
}

int mirror_mkdirs(struct mirror *m, const char *path)
{
    return told(m, mkdirs_below(m->tree_fd, path));
}

/* mirror_open_parent() that makes what is missing. */
static int make_parent(int root_fd, const char *path, const char **ret_name)
{
    int dir = mirror_open_parent(root_fd, path, ret_name);

    if (dir != -ENOENT)
        return dir;
    auto_free char *parent = strndup(path, (size_t)(*ret_name - path - 1));
    int r = parent ? mkdirs_below(root_fd, parent) : -ENOMEM;
    return r < 0 ? r : mirror_open_parent(root_fd, path, ret_name);
}

int mirror_open_path(struct mirror *m, const char *path, int flags)
{
    return told(m, open_below(m->tree_fd, path, flags));
}

int mirror_create(struct mirror *m, const char *path)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL;
    const char *name;
    int fd = open_below(m->tree_fd, path, flags);

    if (fd != -ENOENT)
        return told(m, fd);
    auto_close int dir = make_parent(m->tree_fd, path, &name);
    return told(m, dir < 0 ? dir : mirror_beneath(dir, name, flags));
}

static void id_name(uint64_t id, char name[24])
{
    (void)snprintf(name, 24, "%" PRIx64, id);
}

int mirror_create_incoming(struct mirror *m, uint64_t id)
{
    char name[24];

    id_name(id, name);
    return told(m, mirror_beneath(m->incoming_fd, name, O_RDWR | O_CREAT | O_EXCL));
}

int mirror_mkdir_incoming(struct mirror *m, uint64_t id)
{
    char name[24];

    id_name(id, name);
    if (mkdirat(m->incoming_fd, name, 0700) < 0)
        return told(m, -errno);
    return told(m, mirror_beneath(m->incoming_fd, name, O_RDONLY | O_DIRECTORY));
}

int mirror_link_in(struct mirror *m, uint64_t id, const char *path)
{
    char from[24];
    const char *name;
    auto_close int dir = make_parent(m->tree_fd, path, &name);

    if (dir < 0)
        return dir;
    id_name(id, from);
    return renameat2(m->incoming_fd, from, dir, name, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

/* A file, or an empty directory. */
static int remove_name(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    return errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
}

int mirror_remove_incoming(struct mirror *m, uint64_t id)
{
    char name[24];

    id_name(id, name);
    return remove_name(m->incoming_fd, name);
}

int mirror_tmpfile(struct mirror *m)
{
    return mirror_beneath(m->incoming_fd, ".", O_RDWR | O_TMPFILE);
}

int mirror_link_fd(struct mirror *m, int fd, const char *path)
{
    char from[64];
    const char *name;
    auto_close int dir = make_parent(m->tree_fd, path, &name);

    if (dir < 0)
        return dir;
    (void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, from, dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

int mirror_rename(struct mirror *m, const char *from, const char *to, unsigned flags)
{
    const char *from_name, *to_name;
    auto_close int from_dir = mirror_open_parent(m->tree_fd, from, &from_name);
    if (from_dir < 0)
        return from_dir;
    auto_close int to_dir = make_parent(m->tree_fd, to, &to_name);
    if (to_dir < 0)
        return to_dir;
    return renameat2(from_dir, from_name, to_dir, to_name, flags) < 0 ? -errno : 0;
}

int mirror_orphan(struct mirror *m, const char *path, uint64_t id, bool name_stays)
{
    char to[24];
    const char *name;
    auto_close int dir = mirror_open_parent(m->tree_fd, path, &name);

    if (dir < 0)
        return dir;
    id_name(id, to);
    int r = name_stays ? linkat(dir, name, m->orphans_fd, to, 0)
                       : renameat(dir, name, m->orphans_fd, to);
    return r < 0 ? -errno : 0;
}

int mirror_drop_orphan(struct mirror *m, uint64_t id)
{
    char name[24];

    id_name(id, name);
    return unlinkat(m->orphans_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int mirror_open_orphan(struct mirror *m, uint64_t id, int flags)
{
    char name[24];

    id_name(id, name);
    return mirror_beneath(m->orphans_fd, name, flags);
}

int mirror_unlink(struct mirror *m, const char *path)
{
    const char *name;
    auto_close int dir = mirror_open_parent(m->tree_fd, path, &name);

    if (dir < 0)
        return dir;
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int mirror_rmdir(struct mirror *m, const char *path)
{
    const char *name;
    auto_close int dir = mirror_open_parent(m->tree_fd, path, &name);

    if (dir < 0)
        return dir;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int mirror_statvfs(struct mirror *m, struct statvfs *ret)
{
    return fstatvfs(m->root_fd, ret) < 0 ? -errno : 0;
}

/* ---- texts ---- */

int mirror_read_text(struct mirror *m, const char *name, char **ret)
{
    return door_read_text(m->root_fd, name, ret);
}

int mirror_write_text(struct mirror *m, const char *name, const char *text)
{
    return door_write_text(m->root_fd, name, text);
}

/* ---- opening ---- */

static int subdir(struct mirror *m, const char *name, int *ret)
{
    if (mkdirat(m->root_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    struct stat st;
    auto_close int fd = mirror_beneath(m->root_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    *ret = take_fd(fd);
    return 0;
}

static int check_version(struct mirror *m, struct op *op)
{
    auto_free char *text = NULL;
    int r = mirror_read_text(m, "version", &text);

    if (r == -ENOENT) {
        r = mirror_write_text(m, "version", VERSION_TEXT);
        return r < 0 ? op_fail(op, r, "cache %s: can't write its version: %s", m->dir,
                               door_why(r))
                     : 0;
    }
    if (r < 0)
        return op_fail(op, r, "cache %s: can't read its version: %s", m->dir, door_why(r));
    if (strcmp(text, VERSION_TEXT) != 0)
        return op_fail(op, -EPROTO,
                       "cache %s was written by another version of runfs; use that one to "
                       "publish what it holds, or another cache_dir",
                       m->dir);
    return 0;
}

static int open_all(struct mirror *m, enum door_way way, struct op *op)
{
    int r = door_open(m->dir, way, op, &m->root_fd, NULL);
    if (r < 0)
        return r;
    if (fchmod(m->root_fd, 0700) < 0)
        return op_fail(op, -errno, "cache %s: chmod: %s", m->dir, strerror(errno));
    r = mirror_lock(m, op);
    if (r == 0)
        r = check_version(m, op);
    if (r < 0)
        return r;
    r = subdir(m, "mirror", &m->tree_fd);
    if (r == 0)
        r = subdir(m, "incoming", &m->incoming_fd);
    if (r == 0)
        r = subdir(m, "orphans", &m->orphans_fd);
    if (r == 0)
        r = subdir(m, "kept", &m->kept_fd);
    if (r == 0)
        r = mirror_check_boot(m);
    if (r == 0)
        r = location_check(m);
    if (r < 0)
        return op_fail(op, r, "cache %s: can't prepare it: %s", m->dir, door_why(r));
    return mirror_probe(m, op);
}

int mirror_open(const char *dir, enum door_way way, struct op *op, struct mirror *ret)
{
    struct mirror m = {.lock_fd = -1,
                       .root_fd = -1,
                       .tree_fd = -1,
                       .incoming_fd = -1,
                       .orphans_fd = -1,
                       .kept_fd = -1,
                       .tick_ns = 1};
    m.dir = strdup(dir);
    int r = m.dir ? open_all(&m, way, op) : -ENOMEM;

    if (r == 0 && way == DOOR_MAKE)
        mirror_hold(&m);
    if (r < 0)
        mirror_close(&m);
    else
        *ret = m;
    return r;
}

void mirror_close(struct mirror *m)
{
    const int fds[] = {m->kept_fd, m->orphans_fd, m->incoming_fd,
                       m->tree_fd, m->lock_fd,    m->root_fd};

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(m->dir);
    m->dir = NULL;
}

/* A directory that was on its way to its place when the power went may have files already: they
 * go to kept/. */
static int clear_entry(struct mirror *m, int dir, const char *name)
{
    int r = remove_name(dir, name);

    if (r != -ENOTEMPTY)
        return r;
    log_warn("cache %s: a directory that lost its place when the machine went down is kept as "
             "%s/kept/%s, with what is in it",
             m->dir, m->dir, name);
    return mirror_keep_dir(m, dir, name);
}

static int empty_dir(struct mirror *m, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    int r = 0;

    if (!d) {
        r = -errno;
        if (copy >= 0)
            (void)close(copy);
        return r;
    }
    rewinddir(d);
    while ((e = readdir(d))) {
        bool own = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        int removed = own ? 0 : clear_entry(m, fd, e->d_name);
        r = removed < 0 ? removed : r;
    }
    (void)closedir(d);
    return r;
}

int mirror_clean(struct mirror *m)
{
    int r = empty_dir(m, m->incoming_fd);
    int r2 = empty_dir(m, m->orphans_fd);

    return r < 0 ? r : r2;
}

/* ---- walking ---- */

struct walk {
    int (*visit)(void *arg, const char *path, int fd, const struct stat *st);
    void *arg;
    struct buf path;
};

static int walk_dir(struct walk *w, int dir_fd);

static int walk_entry(struct walk *w, int dir_fd, const char *name)
{
    struct stat st;
    size_t len = w->path.len;
    auto_close int fd = mirror_beneath(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

    if (fd == -ELOOP || fd == -ENXIO)
        return 0; /* runfs puts no such thing there: leave it alone */
    if (fd == -ENOENT)
        return 0; /* somebody removed it since it was listed */
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    int r = len ? buf_addc(&w->path, '/') : 0;
    if (r == 0)
        r = buf_adds(&w->path, name);
    if (r == 0)
        r = w->visit(w->arg, w->path.data, fd, &st);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = walk_dir(w, fd);
    w->path.len = len;
    if (w->path.data)
        w->path.data[len] = '\0';
    return r;
}

static int walk_dir(struct walk *w, int dir_fd)
{
    int copy = mirror_beneath(dir_fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    int r = 0;

    if (!d) {
        r = copy < 0 ? copy : -errno;
        if (copy >= 0)
            (void)close(copy);
        return r;
    }
    while (r == 0 && (errno = 0, e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = walk_entry(w, dir_fd, e->d_name);
    if (r == 0)
        r = -errno; /* of readdir(): the rest is not known */
    (void)closedir(d);
    return r;
}

int mirror_walk(int root_fd,
                int (*visit)(void *arg, const char *path, int fd, const struct stat *st),
                void *arg)
{
    struct walk w = {.visit = visit, .arg = arg, .path = BUF_INIT(1 << 16)};
    int r = walk_dir(&w, root_fd);

    buf_release(&w.path);
    return r;
}
