/* New content, sent or copied: staged, synced, and published whole. */
#include "backends/local/local.h"
#include "common/mem.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define COPY_CHUNK (UINT64_C(64) << 20)

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
    int r = local_is_nobodys(l, key) ? local_fail(l, op, "put", key, -EPERM)
                                     : local_state(l, op, &t->state_fd);
    if (r < 0)
        return r;
    t->name = local_stage_name("put-");
    if (!t->name)
        return op_fail(op, -ENOMEM, "no memory for a staged name");
    r = local_stage_make(t->state_fd, t->name, attrs, &t->fd);
    return r < 0 ? local_stage_fail(l, op, "put", key, r) : 0;
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
        return local_stage_fail(l, op, "put", key, r);
    r = local_publish(l, op, t->name, key, etag);
    if (r == -ENOENT)
        r = local_stage_fail(l, op, "put", key, r);
    if (!r && ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return r;
}

int local_put(struct store *s, struct op *op, const char *key, const char *etag,
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
    auto_free char *chunk = malloc(LOCAL_CHUNK);
    off_t off = 0;
    ssize_t n;

    if (!chunk)
        return -ENOMEM;
    if (ftruncate(out, 0) < 0)
        return -errno;
    while ((n = pread(in, chunk, LOCAL_CHUNK, off)) > 0) {
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

int local_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
               const char *to, const char *to_etag, const struct attrs *attrs,
               struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    struct object obj;
    struct staged t;
    auto_close int in = -1;

    int r = local_open_content(l, from, &in);
    if (!r)
        r = local_describe_key(l, from, &obj);
    if (r)
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
