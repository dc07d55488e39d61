/* What is in the folder: stat, listings, and content of one version. */
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

/* ---- looking ---- */

int local_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct local_store *l = local_of(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    r = !key[0] && local_root_is_gone(l) ? -ENOENT : local_describe_key(l, key, ret_obj);
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
    int fd = local_openat(g->local, key, O_RDONLY | O_DIRECTORY);
    if (fd == -ENOTDIR || fd == -ELOOP || fd == -ENAMETOOLONG)
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

int local_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
               const char *after, store_visit visit, void *arg)
{
    struct listing g = {local_of(s), op, prefix, flags, visit, arg, NULL};

    (void)after; /* no STORE_ORDER */

    /* An empty answer for a vanished root would look like a removed tree. */
    if (local_root_is_gone(g.local))
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

int local_open_content(const struct local_store *l, const char *key, int *ret_fd)
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
    if (r == -ENAMETOOLONG || (!r && S_ISDIR(st.st_mode)))
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
    auto_free char *chunk = malloc(len < LOCAL_CHUNK ? len : LOCAL_CHUNK);
    size_t done = 0;

    if (!chunk)
        return -ENOMEM;
    while (done < len) {
        int r = op_check(op);
        if (r < 0)
            return r;
        size_t want = len - done < LOCAL_CHUNK ? len - done : LOCAL_CHUNK;
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

    int r = local_describe_key(l, key, &obj);
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

ssize_t local_read(struct store *s, struct op *op, const char *key, const char *etag,
                   struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    auto_close int fd = -1;
    struct object obj;
    ssize_t n;

    int r = local_open_content(l, key, &fd);
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
