/* Changes of names and attributes, in place: rename, remove, mkdir, rmdir, set_attributes. */
#include "backends/local/local.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

static int rename_between_parents(const struct local_store *l, const char *from, const char *to)
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

int local_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    struct object obj;

    /* First look: a missing source must leave no parents of the target behind. */
    int r = local_describe_key(l, from, &obj);
    if (r < 0)
        return local_fail(l, op, "rename", from, r);
    object_release(&obj);
    r = local_lock(l, op, false, &lock);
    if (r < 0)
        return r;
    r = -ENOENT;
    for (int i = 0; i < LOCAL_RACES_TOLERATED && r == -ENOENT; i++)
        r = rename_between_parents(l, from, to);
    return r < 0 ? local_fail(l, op, "rename", from, r) : 0;
}

/* What a removal answers that means "there is no such object". */
static bool is_absent(int err)
{
    return err == ENOENT || err == EISDIR || err == ENOTDIR || err == ENAMETOOLONG;
}

static int remove_one(const struct local_store *l, const char *key, bool sync)
{
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r == -ENOENT)
        return local_root_is_gone(l) ? -ENOENT : 0;
    if (r < 0)
        return r;
    if (unlinkat(parent, local_name(key), 0) < 0)
        r = is_absent(errno) ? 0 : local_errno(errno);
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

static bool any_is_reserved(const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (local_is_reserved(keys[i]))
            return true;
    return false;
}

/* The caller holds the lock between processes, which a put of a version takes, too. */
static int remove_version(struct local_store *l, struct op *op, const char *key,
                          const char *etag, bool sync)
{
    struct op own = *op;

    int r = local_check_version(l, op, key, etag);
    if (r == -EISDIR || (r == -ESTALE && local_check_version(l, &own, key, "") == 0))
        return 0; /* none is there */
    if (!r)
        r = remove_one(l, key, sync);
    return !r && local_is_reserved(key) && !l->stateless ? local_prune(l, key) : r;
}

int local_remove(struct store *s, struct op *op, const char *const *keys,
                 const char *const *etags, size_t n, int *errs)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    int first = 0;

    int r = local_lock(l, op, etags || any_is_reserved(keys, n), &lock);
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

/* Syncs the attributes of an entry: the sync of its folder does not write them. Links and
 * devices can't be opened for that, nor can a file that we may not read. */
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
    if (mkdirat(parent, local_name(key), LOCAL_NEW_DIR) < 0) {
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

/* The time alone, of a directory that is there. */
static int set_dir_time(const struct local_store *l, const char *key, const struct attrs *attrs)
{
    struct stat st;
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return is_absent(-r) && !local_root_is_gone(l) ? 0 : r;
    if (fstatat(parent, local_name(key), &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    else if (S_ISDIR(st.st_mode))
        r = local_apply_mtime(parent, local_name(key), attrs);
    if (!r)
        r = sync_entry(parent, local_name(key));
    (void)close(parent);
    if (r == -EPERM && st.st_uid != geteuid())
        return 0; /* another user's by now, who has it as he likes: as apply_owner() */
    return is_absent(-r) && !local_root_is_gone(l) ? 0 : r;
}

int local_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                struct object *ret_obj)
{
    struct local_store *l = local_of(s);

    if (ret_obj)
        *ret_obj = (struct object){.is_prefix = true};

    int r = op_check(op);
    if (r < 0)
        return r;
    r = key[0] ? -ENOENT : local_apply_attrs(l->root_fd, ".", attrs, false);
    if (r == -ENOENT && attrs && attrs->has == ATTR_MTIME)
        r = set_dir_time(l, key, attrs);
    else
        for (int i = 0; i < LOCAL_RACES_TOLERATED && r == -ENOENT; i++)
            r = make_dir(l, key, attrs);
    return r < 0 ? local_fail(l, op, "mkdir", key, r) : 0;
}

int local_rmdir(struct store *s, struct op *op, const char *key)
{
    struct local_store *l = local_of(s);
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r == -ENOENT && !local_root_is_gone(l))
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

/* The time is a part of the version. One that has the new time got it by the same call, whose
 * answer was lost. */
static bool is_version_meant(const char *there, const char *etag, const struct attrs *attrs)
{
    return strcmp(there, etag) == 0 ||
           (attrs->has & ATTR_MTIME && local_is_version_at(there, etag, attrs->mtime_ns));
}

static int set_attributes_at(const struct local_store *l, struct op *op, const char *key,
                             const char *etag, const struct attrs *attrs, struct object *obj)
{
    int parent;

    int r = local_open_parent(l, key, false, &parent);
    if (r < 0)
        return r;
    r = local_describe(parent, local_name(key), obj);
    if (!r && etag && !is_version_meant(obj->etag, etag, attrs))
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

int local_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                         const struct attrs *attrs, struct object *ret_obj)
{
    struct local_store *l = local_of(s);
    auto_close int lock = -1;
    struct object obj;

    int r = local_lock(l, op, etag != NULL, &lock);
    if (r < 0)
        return r;
    r = set_attributes_at(l, op, key, etag, attrs, &obj);
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
