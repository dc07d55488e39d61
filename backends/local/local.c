/* file:///path and /path: a folder as a store.
 *
 * An object is an ordinary file; whoever looks sees whole files only, because new content is
 * staged elsewhere (stage.c), synced, and renamed into place. Attributes are the inode's
 * own. Versions are described at fill_etag() in attrs.c. Conditional changes are atomic
 * between all runfs processes by a lock file; "must be absent" also against anybody else. */
#include "backends/local/local.h"
#include "backends/drivers.h"
#include "common/mem.h"
#include "common/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PART_SIZE       (UINT64_C(16) << 20)
#define PARTS_MAX       (1u << 20)
#define FILE_MAX        INT64_MAX
#define CHUNK           (1 << 20)
#define COPY_CHUNK      (UINT64_C(64) << 20)
#define NEW_DIR         0755
#define RACES_TOLERATED 8 /* parents that vanish between two system calls */

struct local_store *local_of(struct store *s)
{
    return container_of(s, struct local_store, base);
}

/* ---- paths ---- */

int local_openat(const struct local_store *l, const char *key, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };

    long fd = syscall(SYS_openat2, l->root_fd, key[0] ? key : ".", &how, sizeof(how));
    return fd < 0 ? -errno : (int)fd;
}

const char *local_name(const char *key)
{
    return key[0] ? path_basename(key) : ".";
}

/* The state folder inside the root is no part of the store. */
static bool is_reserved(const char *key)
{
    return path_below(LOCAL_STATE_NAME, key) != NULL;
}

/* Makes the directory and those above it; what is there stays. */
static int make_dirs(const struct local_store *l, const char *dir)
{
    auto_free char *parent = path_parent(dir);
    if (!parent)
        return -ENOMEM;

    auto_close int fd = local_openat(l, parent, O_RDONLY | O_DIRECTORY);
    if (fd == -ENOENT && parent[0]) {
        int r = make_dirs(l, parent);
        if (r < 0)
            return r;
        fd = local_openat(l, parent, O_RDONLY | O_DIRECTORY);
    }
    if (fd < 0)
        return fd;
    if (mkdirat(fd, path_basename(dir), NEW_DIR) < 0)
        return errno == EEXIST ? 0 : -errno;
    return local_sync_dir(fd);
}

int local_open_parent(const struct local_store *l, const char *key, bool create, int *ret_fd)
{
    auto_free char *parent = path_parent(key);
    int fd = -ENOENT;

    if (!parent)
        return -ENOMEM;
    if (is_reserved(key))
        return create ? -EPERM : -ENOENT;
    for (int i = 0; i < RACES_TOLERATED; i++) {
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
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

static bool root_is_gone(const struct local_store *l)
{
    struct stat st;

    return fstat(l->root_fd, &st) < 0 || st.st_nlink == 0;
}

int local_explain(const struct local_store *l, struct op *op, const char *what, const char *key,
                  int err)
{
    /* A cache must not take a vanished folder for a folder whose files were deleted. */
    if (err == -ENOENT && root_is_gone(l))
        return op_fail(op, -ENXIO, "%s %s/%s: the folder %s is gone", what, l->root, key,
                       l->root);
    return op_fail(op, err, "%s %s/%s: %s", what, l->root, key, strerror(-err));
}

/* ---- looking ---- */

static int describe_key(const struct local_store *l, const char *key, struct object *ret)
{
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return r;
    r = local_describe(parent, local_name(key), ret);
    (void)close(parent);
    return r;
}

static int local_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct local_store *l = local_of(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    r = !key[0] && root_is_gone(l) ? -ENOENT : describe_key(l, key, ret_obj);
    return r < 0 ? local_fail(l, op, "stat", key, r) : 0;
}

/* Directories still to be listed, names relative to the listed prefix. */
struct subdir {
    struct subdir *next;
    char name[];
};

struct listing {
    struct local_store *local;
    struct op *op;
    const char *prefix;
    unsigned flags;
    store_visit visit;
    void *arg;
    struct subdir *todo;
};

static int add_subdir(struct listing *g, const char *name)
{
    struct subdir *d = malloc(sizeof(*d) + strlen(name) + 1);
    if (!d)
        return -ENOMEM;

    memcpy(d->name, name, strlen(name) + 1);
    d->next = g->todo;
    g->todo = d;
    return 0;
}

static int visit_entry(struct listing *g, int dirfd, const char *below, const char *entry)
{
    auto_free char *name = path_join(below, entry);
    struct object obj;

    int r = op_check(g->op);
    if (r < 0)
        return r;
    if (!name)
        return -ENOMEM;
    r = local_describe(dirfd, entry, &obj);
    if (r == -ENOENT) /* removed meanwhile */
        return 0;
    if (r < 0)
        return local_fail(g->local, g->op, "list", name, r);
    r = g->visit(g->arg, name, &obj);
    if (!r && obj.is_prefix && (g->flags & LIST_RECURSIVE))
        r = add_subdir(g, name);
    object_release(&obj);
    return r;
}

static bool is_listed(const struct listing *g, const char *below, const char *entry)
{
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0)
        return false;
    return g->prefix[0] || below[0] || strcmp(entry, LOCAL_STATE_NAME) != 0;
}

static int list_dir(struct listing *g, const char *below)
{
    auto_free char *key = path_join(g->prefix, below);
    struct dirent *e;
    int r = 0;

    if (!key)
        return -ENOMEM;
    int fd = is_reserved(key) ? -ENOENT : local_openat(g->local, key, O_RDONLY | O_DIRECTORY);
    if (fd == -ENOTDIR || fd == -ELOOP)
        fd = -ENOENT;
    if (fd == -ENOENT && below[0]) /* removed meanwhile */
        return 0;
    if (fd < 0)
        return local_fail(g->local, g->op, "list", key, fd);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        (void)close(fd);
        return -ENOMEM;
    }
    while (!r && (errno = 0, e = readdir(dir)))
        if (is_listed(g, below, e->d_name))
            r = visit_entry(g, fd, below, e->d_name);
    if (!r && errno)
        r = local_fail(g->local, g->op, "list", key, -errno);
    (void)closedir(dir);
    return r;
}

static int local_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
                      const char *after, store_visit visit, void *arg)
{
    struct listing g = {local_of(s), op, prefix, flags, visit, arg, NULL};

    (void)after; /* no STORE_ORDER */

    /* An empty answer for a vanished root would look like a removed tree. */
    if (root_is_gone(g.local))
        return local_fail(g.local, op, "list", prefix, -ENOENT);
    int r = list_dir(&g, "");
    while (g.todo) {
        struct subdir *d = g.todo;
        g.todo = d->next;
        if (!r)
            r = list_dir(&g, d->name);
        free(d);
    }
    return r;
}

/* ---- reading ---- */

/* Opens a regular file for reading; first as a mere place, so that no fifo or device is ever
 * opened. -ENOENT for a directory; *ret_fd is -1 for what has no content. */
static int open_content(const struct local_store *l, const char *key, int *ret_fd)
{
    char path[64];
    struct stat st;
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return r;
    auto_close int place = openat(parent, local_name(key), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    r = place < 0 || fstat(place, &st) < 0 ? -errno : 0;
    (void)close(parent);
    if (!r && S_ISDIR(st.st_mode))
        r = -ENOENT;
    *ret_fd = -1;
    if (r < 0 || !S_ISREG(st.st_mode))
        return r;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

/* Delivers up to `len` bytes from `off`; a negative number when the sink or the disk says so.
 */
static ssize_t pump(int fd, struct op *op, struct sink *sink, size_t len, uint64_t off)
{
    auto_free char *chunk = malloc(len < CHUNK ? len : CHUNK);
    size_t done = 0;

    if (!chunk)
        return -ENOMEM;
    while (done < len) {
        int r = op_check(op);
        if (r < 0)
            return r;
        size_t want = len - done < CHUNK ? len - done : CHUNK;
        ssize_t n = pread(fd, chunk, want, (off_t)(off + done));
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        r = sink->write(sink, chunk, (size_t)n, off + done);
        if (r < 0)
            return r;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static int changed(const struct local_store *l, struct op *op, const char *key,
                   const char *wanted, const char *found)
{
    if (!wanted) /* any version would do, but it must be one: try again */
        return op_fail(op, -EAGAIN, "read %s/%s: it changed while it was read", l->root, key);
    return op_fail(op, -ESTALE, "read %s/%s: version %s, not %s", l->root, key, found, wanted);
}

/* The version is looked at before and after: a file that someone writes in place meanwhile is
 * never taken for one version. */
static ssize_t read_version(const struct local_store *l, struct op *op, const char *key,
                            const char *etag, int fd, struct sink *sink, size_t len,
                            uint64_t off)
{
    struct object before, after;

    int r = local_describe_fd(fd, &before);
    if (r < 0)
        return local_fail(l, op, "read", key, r);
    if (etag && strcmp(etag, before.etag) != 0)
        return changed(l, op, key, etag, before.etag);
    ssize_t n = pump(fd, op, sink, len, off);
    if (n >= 0) {
        r = local_describe_fd(fd, &after);
        if (!r && strcmp(before.etag, after.etag) != 0)
            return changed(l, op, key, etag, after.etag);
        if (r < 0)
            n = r;
    }
    if (n < 0 && !op->why[0])
        local_fail(l, op, "read", key, (int)n);
    return n;
}

/* What has no content: only the version is compared. */
static ssize_t read_special(const struct local_store *l, struct op *op, const char *key,
                            const char *etag, struct object *ret_obj)
{
    struct object obj;

    int r = describe_key(l, key, &obj);
    if (r < 0)
        return local_fail(l, op, "read", key, r);
    if (etag && strcmp(etag, obj.etag) != 0)
        r = changed(l, op, key, etag, obj.etag);
    if (!r && ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return r;
}

static ssize_t local_read(struct store *s, struct op *op, const char *key, const char *etag,
                          struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    auto_close int fd = -1;
    struct object obj;
    ssize_t n;

    int r = open_content(l, key, &fd);
    if (r < 0)
        return local_fail(l, op, "read", key, r);
    if (fd < 0)
        return read_special(l, op, key, etag, ret_obj);
    n = read_version(l, op, key, etag, fd, sink, len, off);
    if (n < 0 || !ret_obj)
        return n;
    /* Described by descriptor: the name may stand for a newer file by now. */
    r = local_describe_fd(fd, &obj);
    if (r < 0)
        return local_fail(l, op, "read", key, r);
    obj.attrs_known = false; /* xattrs were not looked at */
    *ret_obj = obj;
    return n;
}

/* ---- writing ---- */

struct staged {
    int state_fd;
    int fd; /* -1 for what is not a regular file */
    char *name;
};

static void staged_drop(struct staged *t)
{
    if (t->name)
        (void)unlinkat(t->state_fd, t->name, 0);
    if (t->fd >= 0)
        (void)close(t->fd);
    free(t->name);
}

static int staged_make(struct local_store *l, struct op *op, const char *key,
                       const struct attrs *attrs, struct staged *t)
{
    *t = (struct staged){.fd = -1};
    int r = local_state(l, op, &t->state_fd);
    if (r < 0)
        return r;
    t->name = local_stage_name("put-");
    if (!t->name)
        return op_fail(op, -ENOMEM, "no memory for a staged name");
    r = local_stage_make(t->state_fd, t->name, attrs, &t->fd);
    return r < 0 ? local_fail(l, op, "put", key, r) : 0;
}

/* Attributes, the disk, the name. */
static int staged_publish(struct local_store *l, struct op *op, const char *key,
                          const char *etag, const struct attrs *attrs, struct staged *t,
                          struct object *ret_obj)
{
    struct object obj;

    int r = local_apply_attrs(t->state_fd, t->name, attrs, true);
    if (!r && t->fd >= 0 && fsync(t->fd) < 0)
        r = -errno;
    if (!r)
        r = local_describe(t->state_fd, t->name, &obj);
    if (r < 0)
        return local_fail(l, op, "put", key, r);
    r = local_publish(l, op, t->name, key, etag);
    if (!r && ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return r;
}

static int local_put(struct store *s, struct op *op, const char *key, const char *etag,
                     struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    struct staged t;

    int r = staged_make(l, op, key, attrs, &t);
    if (!r && t.fd >= 0)
        r = local_write_source(t.fd, op, src, 0);
    if (!r)
        r = staged_publish(l, op, key, etag, attrs, &t, ret_obj);
    staged_drop(&t);
    return r;
}

/* The whole file, shared blocks where the filesystem can. */
static int copy_content(int in, int out, struct op *op)
{
    int r = op_check(op);
    if (r < 0)
        return r;
    if (ioctl(out, FICLONE, in) == 0)
        return 0;
    for (;;) {
        ssize_t n = copy_file_range(in, NULL, out, NULL, COPY_CHUNK, 0);
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        r = op_check(op);
        if (r < 0)
            return r;
    }
}

/* copy_file_range() stops at filesystems and kernels that lack it. */
static int copy_by_hand(int in, int out, struct op *op)
{
    auto_free char *chunk = malloc(CHUNK);
    off_t off = 0;
    ssize_t n;

    if (!chunk)
        return -ENOMEM;
    if (ftruncate(out, 0) < 0)
        return -errno;
    while ((n = pread(in, chunk, CHUNK, off)) > 0) {
        for (ssize_t at = 0; at < n;) {
            ssize_t w = pwrite(out, chunk + at, (size_t)(n - at), off + at);
            if (w < 0)
                return -errno;
            at += w;
        }
        off += n;
        int r = op_check(op);
        if (r < 0)
            return r;
    }
    return n < 0 ? -errno : 0;
}

static int copy_version(const struct local_store *l, struct op *op, const char *from,
                        const char *etag, int in, int out)
{
    struct object after;

    int r = copy_content(in, out, op);
    if (r == -EXDEV || r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL)
        r = copy_by_hand(in, out, op);
    if (!r)
        r = local_describe_fd(in, &after);
    if (r < 0)
        return op->why[0] ? r : local_fail(l, op, "copy", from, r);
    if (strcmp(after.etag, etag) != 0)
        return op_fail(op, -ESTALE, "copy %s/%s: it changed while it was copied", l->root,
                       from);
    return 0;
}

/* The attributes of a copy: those that are given, but what the thing is stays. */
static struct attrs copied_attrs(const struct object *from, const struct attrs *given)
{
    struct attrs a = given ? *given : from->attrs;

    if (!(a.has & ATTR_MODE))
        a.mode = from->attrs.mode;
    a.mode = (a.mode & 07777) | (from->attrs.mode & S_IFMT);
    a.has |= ATTR_MODE | (from->attrs.has & (ATTR_TARGET | ATTR_RDEV));
    a.target = from->attrs.target;
    a.rdev = from->attrs.rdev;
    return a;
}

static int local_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                      const char *to, const char *to_etag, const struct attrs *attrs,
                      struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    struct object obj;
    struct staged t;
    auto_close int in = -1;

    int r = open_content(l, from, &in);
    if (!r)
        r = describe_key(l, from, &obj);
    if (r < 0)
        return local_fail(l, op, "copy", from, r);
    struct attrs a = copied_attrs(&obj, attrs);
    if (from_etag && strcmp(from_etag, obj.etag) != 0)
        r = op_fail(op, -ESTALE, "copy %s/%s: version %s, not %s", l->root, from, obj.etag,
                    from_etag);
    else
        r = staged_make(l, op, to, &a, &t);
    if (r < 0) {
        object_release(&obj);
        return r;
    }
    if (t.fd >= 0)
        r = copy_version(l, op, from, obj.etag, in, t.fd);
    if (!r)
        r = staged_publish(l, op, to, to_etag, &a, &t, ret_obj);
    staged_drop(&t);
    object_release(&obj);
    return r;
}

/* ---- names ---- */

/* rename(2) of one hard link over another of the same file does nothing and says that it
 * worked; here the old name goes then. */
static int rename_entry(int from_fd, const char *from, int to_fd, const char *to,
                        bool same_name)
{
    struct stat a, b;

    if (!same_name && fstatat(from_fd, from, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
        fstatat(to_fd, to, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino && !S_ISDIR(a.st_mode) && a.st_nlink > 1)
        return unlinkat(from_fd, from, 0) < 0 ? -errno : 0;
    if (renameat(from_fd, from, to_fd, to) < 0)
        return errno == EEXIST ? -ENOTEMPTY : -errno;
    return 0;
}

static int rename_locked(const struct local_store *l, const char *from, const char *to)
{
    int from_fd, to_fd;

    int r = local_open_parent(l, from, false, &from_fd);
    if (r < 0)
        return r;
    r = local_open_parent(l, to, true, &to_fd);
    if (r < 0) {
        (void)close(from_fd);
        return r;
    }
    r = rename_entry(from_fd, path_basename(from), to_fd, path_basename(to),
                     strcmp(from, to) == 0);
    if (!r)
        r = local_sync_dir(to_fd);
    if (!r)
        r = local_sync_dir(from_fd);
    (void)close(from_fd);
    (void)close(to_fd);
    return r;
}

static int local_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    struct object obj;

    /* First look: a missing source must leave no parents of the target behind. */
    int r = describe_key(l, from, &obj);
    if (r < 0)
        return local_fail(l, op, "rename", from, r);
    object_release(&obj);
    r = local_lock(l, op, false, &lock);
    if (r < 0)
        return r;
    r = rename_locked(l, from, to);
    return r < 0 ? local_fail(l, op, "rename", from, r) : 0;
}

/* What a removal answers that means "there is no such object". */
static bool is_absent(int err)
{
    return err == ENOENT || err == EISDIR || err == ENOTDIR;
}

static int remove_one(const struct local_store *l, const char *key, bool sync)
{
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r == -ENOENT)
        return root_is_gone(l) ? -ENOENT : 0;
    if (r < 0)
        return r;
    if (unlinkat(parent, local_name(key), 0) < 0)
        r = is_absent(errno) ? 0 : -errno;
    if (!r && sync)
        r = local_sync_dir(parent);
    (void)close(parent);
    return r;
}

/* Whether two keys have one parent: then one sync is enough for both. */
static bool are_siblings(const char *a, const char *b)
{
    size_t len = path_parent_len(a);

    return len == path_parent_len(b) && strncmp(a, b, len) == 0;
}

/* Under the lock that also those take who put a version. */
static int remove_version(struct local_store *l, struct op *op, const char *key,
                          const char *etag, bool sync)
{
    struct op own = *op;

    int r = local_check_version(l, op, key, etag);
    if (r == -ESTALE && local_check_version(l, &own, key, "") == 0)
        return 0; /* none is there */
    return r < 0 ? r : remove_one(l, key, sync);
}

static int local_remove(struct store *s, struct op *op, const char *const *keys,
                        const char *const *etags, size_t n, int *errs)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    int first = 0;

    int r = local_lock(l, op, etags != NULL, &lock);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        bool sync = i + 1 == n || !are_siblings(keys[i], keys[i + 1]);
        r = op_check(op);
        if (!r)
            r = remove_version(l, op, keys[i], etags ? etags[i] : NULL, sync);
        if (r < 0 && !first)
            first = local_fail(l, op, "remove", keys[i], r);
        if (errs)
            errs[i] = r;
    }
    return first;
}

/* The attributes of an entry, which its folder's sync does not write. Links and devices can't
 * be opened for that, and who may not read a file can't sync it. */
static int sync_entry(int parent, const char *name)
{
    struct stat st;

    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    auto_close int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? 0 : local_sync_dir(fd);
}

static int make_dir(const struct local_store *l, const char *key, const struct attrs *attrs)
{
    struct object obj;
    bool is_new = true;
    int parent;

    int r = local_open_parent(l, key, true, &parent);
    if (r < 0)
        return r;
    if (mkdirat(parent, local_name(key), NEW_DIR) < 0) {
        r = errno == EEXIST ? local_describe(parent, local_name(key), &obj) : -errno;
        is_new = false;
        if (!r) {
            r = obj.is_prefix ? 0 : -EEXIST;
            object_release(&obj);
        }
    }
    if (!r && (attrs || is_new))
        r = local_apply_attrs(parent, local_name(key), attrs, is_new);
    if (!r)
        r = sync_entry(parent, local_name(key));
    if (!r)
        r = local_sync_dir(parent);
    (void)close(parent);
    return r;
}

static int local_mkdir(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct object *ret_obj)
{
    struct local_store *l = local_of(s);

    if (ret_obj)
        *ret_obj = (struct object){.is_prefix = true};

    int r = op_check(op);
    if (r < 0)
        return r;
    r = key[0] ? make_dir(l, key, attrs) : local_apply_attrs(l->root_fd, ".", attrs, false);
    return r < 0 ? local_fail(l, op, "mkdir", key, r) : 0;
}

static int local_rmdir(struct store *s, struct op *op, const char *key)
{
    struct local_store *l = local_of(s);
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r == -ENOENT && !root_is_gone(l))
        return 0;
    if (r < 0)
        return local_fail(l, op, "rmdir", key, r);
    if (unlinkat(parent, local_name(key), AT_REMOVEDIR) < 0)
        r = errno == EEXIST ? -ENOTEMPTY : is_absent(errno) ? 0 : -errno;
    if (!r)
        r = local_sync_dir(parent);
    (void)close(parent);
    return r < 0 ? local_fail(l, op, "rmdir", key, r) : 0;
}

static int set_attributes_locked(const struct local_store *l, struct op *op, const char *key,
                                 const char *etag, const struct attrs *attrs,
                                 struct object *obj)
{
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return r;
    r = local_describe(parent, local_name(key), obj);
    if (!r && etag && strcmp(etag, obj->etag) != 0)
        r = op_fail(op, -ESTALE, "setattr %s/%s: version %s, not %s", l->root, key, obj->etag,
                    etag);
    if (!r || r == -ESTALE)
        object_release(obj);
    if (!r)
        r = local_apply_attrs(parent, local_name(key), attrs, false);
    if (!r)
        r = sync_entry(parent, local_name(key));
    if (!r)
        r = local_describe(parent, local_name(key), obj);
    (void)close(parent);
    return r;
}

static int local_set_attributes(struct store *s, struct op *op, const char *key,
                                const char *etag, const struct attrs *attrs,
                                struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    struct object obj;

    int r = local_lock(l, op, etag != NULL, &lock);
    if (r < 0)
        return r;
    r = set_attributes_locked(l, op, key, etag, attrs, &obj);
    if (r == -ESTALE)
        return r;
    if (r < 0)
        return local_fail(l, op, "setattr", key, r);
    if (ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return 0;
}

/* ---- opening and closing ---- */

static void local_close(struct store *s)
{
    struct local_store *l = local_of(s);

    if (l->root_fd >= 0)
        (void)close(l->root_fd);
    if (l->state_fd >= 0)
        (void)close(l->state_fd);
    mutex_destroy(&l->lock);
    free(l->root);
    free(l->boot_id);
    free(s->url);
    free(s->root_id);
    free(l);
}

static const struct store_ops local_ops = {
    .name = "file",
    .stat = local_stat,
    .list = local_list,
    .read = local_read,
    .put = local_put,
    .upload_begin = local_upload_begin,
    .upload_part = local_upload_part,
    .upload_commit = local_upload_commit,
    .upload_abort = local_upload_abort,
    .upload_detach = local_upload_detach,
    .upload_token = local_upload_token,
    .upload_resume = local_upload_resume,
    .upload_has = local_upload_has,
    .copy = local_copy,
    .rename = local_rename,
    .remove = local_remove,
    .mkdir = local_mkdir,
    .rmdir = local_rmdir,
    .set_attributes = local_set_attributes,
    .close = local_close,
};

/* The path in `url`, or NULL when the form is wrong. No percent-decoding: names are bytes. */
static const char *path_of(const char *url)
{
    if (strncmp(url, "file:///", 8) == 0)
        return url + 7;
    if (strncmp(url, "file:/", 6) == 0 && url[6] != '/')
        return url + 5;
    return url[0] == '/' ? url : NULL;
}

static char *read_boot_id(void)
{
    char text[64];
    auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    return strndup(text, strcspn(text, " \n"));
}

/* An unmounted disk leaves another folder at its path, mostly an empty one. */
static char *describe_root(const struct local_store *l)
{
    struct statx stx;
    char *text = NULL;

    if (statx(l->root_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) < 0)
        return NULL;
    int64_t born_ns = stx.stx_mask & STATX_BTIME
                          ? stx.stx_btime.tv_sec * NS_PER_SEC + stx.stx_btime.tv_nsec
                          : 0;
    return asprintf(&text, "%" PRIu64 " %" PRId64, (uint64_t)stx.stx_ino, born_ns) < 0 ? NULL
                                                                                       : text;
}

static int open_root(struct local_store *l, const char *path, struct op *op)
{
    l->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->root_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return op_fail(op, -ENXIO, "%s is not a folder that exists", path);
    if (l->root_fd < 0)
        return op_fail(op, -errno, "%s can't be opened: %s", path, strerror(errno));
    /* The real path: the state folder is a sibling of the folder, not of a symlink to it. */
    l->root = realpath(path, NULL);
    if (!l->root)
        return op_fail(op, -errno, "%s: %s", path, strerror(errno));
    if (strcmp(l->root, "/") == 0)
        return op_fail(op, -EINVAL, "\"/\" is the whole machine, expected a folder below it");
    int fd = local_openat(l, "", O_PATH | O_DIRECTORY);
    if (fd < 0)
        return op_fail(op, fd, "%s: openat2: %s (Linux 5.6 or later is needed)", path,
                       strerror(-fd));
    (void)close(fd);
    if (local_has_acls(l->root_fd))
        l->base.caps |= STORE_ACLS;
    l->base.root_id = describe_root(l);
    return l->base.root_id ? 0 : op_fail(op, -EIO, "%s: statx: %s", path, strerror(errno));
}

static struct local_store *local_new(void)
{
    struct local_store *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;

    l->base = (struct store){
        .ops = &local_ops,
        .caps = STORE_RENAME | STORE_IF_MATCH | STORE_PARTS | STORE_DIRS | STORE_LIST_ATTRS |
                STORE_COPY | STORE_ATTRS,
        .part_size = PART_SIZE,
        .part_min = PART_SIZE, /* one size, so that a part's place is known from its number */
        .part_max = PART_SIZE,
        .parts_max = PARTS_MAX,
        .put_max = FILE_MAX,
        .size_max = FILE_MAX,
        .key_max = STORE_KEY_MAX - 1,
    };
    l->root_fd = l->state_fd = -1;
    mutex_init(&l->lock);
    return l;
}

int local_store_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret)
{
    const char *path = path_of(url);

    (void)config;
    if (!path)
        return op_fail(op, -EINVAL, "\"%.100s\": found no absolute path, expected file:///path",
                       url);
    struct local_store *l = local_new();
    if (!l)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    int r = open_root(l, path, op);
    if (!r) {
        l->boot_id = read_boot_id();
        if (!l->boot_id || asprintf(&l->base.url, "file://%s", l->root) < 0) {
            l->base.url = NULL;
            r = op_fail(op, -ENOMEM, "no memory, or no /proc");
        }
    }
    if (r < 0) {
        local_close(&l->base);
        return r;
    }
    *ret = &l->base;
    return 0;
}
