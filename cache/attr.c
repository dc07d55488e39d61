/* Attributes: stat, chmod, chown, utimens, readlink, extended attributes, statfs. They live in
 * the node and its stamp; what the store must learn makes the name dirty without its content.
 */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/xattr.h>

/* What S3 takes as user metadata is 2 KiB in all; attributes and names need some of it. */
#define XATTRS_MAX 1600
#define OWN_PREFIX "user.runfs."

/* ---- stat ---- */

void node_look_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    struct stat st;

    if (!f || f->write_handles == 0)
        return;
    if (f->fds[FD_WRITE] >= 0)
        (void)file_look_locked(c, n, f->fds[FD_WRITE], &st);
}

int cache_getattr(struct cache *c, struct node *node, struct waiter *w, struct stat *st)
{
    mutex_lock(&c->lock);
    int r = attrs_need_locked(c, node, w);
    if (r == 0) {
        node_look_locked(c, node);
        node_stat(node, st);
    }
    mutex_unlock(&c->lock);
    return r;
}

/* ---- setattr ---- */

static void set_fields_locked(struct node *n, unsigned set, const struct stat *st)
{
    if (set & CACHE_SET_MODE)
        n->mode = (n->mode & S_IFMT) | (st->st_mode & 07777);
    if (set & CACHE_SET_UID)
        n->uid = st->st_uid;
    if (set & CACHE_SET_GID)
        n->gid = st->st_gid;
    if (set & CACHE_SET_ATIME)
        n->atime_ns = (int64_t)st->st_atim.tv_sec * NS_PER_SEC + st->st_atim.tv_nsec;
    if (set & CACHE_SET_MTIME)
        n->mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    n->ctime_ns = clock_real_ns();
}

static bool fields_differ(struct node *n, unsigned set, const struct stat *st)
{
    return ((set & CACHE_SET_MODE) && (n->mode & 07777) != (st->st_mode & 07777)) ||
           ((set & CACHE_SET_UID) && n->uid != st->st_uid) ||
           ((set & CACHE_SET_GID) && n->gid != st->st_gid) || (set & CACHE_SET_MTIME);
}

static int set_dir(struct cache *c, struct node *n, unsigned set, const struct stat *st)
{
    int r = 0;

    ns_write(c);
    mutex_lock(&c->lock);
    /* A directory's times are not worth an object of its own in the store. */
    bool differ = fields_differ(n, set & ~(unsigned)CACHE_SET_MTIME, st);
    set_fields_locked(n, set, st);
    auto_free char *path = node_path(n);
    bool owed = differ && path && *path; /* the root's are the mount's own */
    if (owed) {
        n->flags |= NODE_ATTR_DIRTY;
        dir_queue_locked(c, n);
    }
    mutex_unlock(&c->lock);
    if (owed) {
        r = mirror_mkdirs(&c->mirror, path);
        if (r == 0)
            r = node_write_stamp_held(c, n);
    }
    ns_done(c);
    return r;
}

/* A new mtime must not look like a new content, and must not hide one either. */
static void move_mtime_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    if (f->state == FILE_DIRTY)
        return;
    if (f->write_handles || f->suspect) {
        file_mark_dirty_locked(c, n, true);
        return;
    }
    f->clean_mtime_ns = n->mtime_ns;
    for (size_t i = 0; i < f->keys.n; i++)
        f->keys.v[i].mtime_ns = n->mtime_ns;
}

/* Together with what is known of it, so that nobody takes the one without the other for a
 * change of content. */
static int move_mtime_of_file(int fd, const struct stat *st)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};

    return futimens(fd, times) < 0 ? -errno : 0;
}

static int set_file(struct cache *c, struct node *n, unsigned set, const struct stat *st)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd < 0)
        return fd;
    mutex_lock(&c->lock);
    node_look_locked(c, n);
    int r = set & CACHE_SET_MTIME ? move_mtime_of_file(fd, st) : 0;
    if (r == 0) {
        set_fields_locked(n, set, st);
        n->flags |= NODE_ATTR_DIRTY;
        file_mark_dirty_locked(c, n, false);
        if (set & CACHE_SET_MTIME)
            move_mtime_locked(c, n);
        if (n->links && n->file->write_handles == 0)
            file_queue_locked(c, n);
    }
    mutex_unlock(&c->lock);
    crash_point("utimens-moved");
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    crash_point("setattr-stamped");
    if (r == 0 && (set & CACHE_SET_MTIME))
        r = file_write_keys(c, n, fd);
    mutex_lock(&c->lock);
    file_put_fd_locked(c, n->file, FD_READ);
    mutex_unlock(&c->lock);
    return r;
}

int cache_setattr(struct cache *c, struct node *node, struct handle *h, unsigned set,
                  struct waiter *w, struct stat *st)
{
    unsigned fields = set & ~(unsigned)CACHE_SET_SIZE;

    if (c->config.read_only)
        return -EROFS;
    if ((set & CACHE_SET_SIZE) && node->dir)
        return -EISDIR;
    mutex_lock(&c->lock);
    int r = attrs_need_locked(c, node, w);
    if (r == 0 && (set & CACHE_SET_SIZE) && !h)
        r = version_need_locked(c, node, w);
    mutex_unlock(&c->lock);
    if (r == 0 && (set & CACHE_SET_SIZE))
        r = file_truncate(c, node, (uint64_t)st->st_size, w);
    if (r != 0)
        return r;
    if (node->dir && fields)
        r = set_dir(c, node, fields, st);
    else if (fields && (fields_differ(node, fields, st))) {
        r = file_need(c, node);
        if (r == 0)
            r = set_file(c, node, fields, st);
    }
    if (r < 0)
        return r;
    mutex_lock(&c->lock);
    if (fields & CACHE_SET_ATIME)
        set_fields_locked(node, CACHE_SET_ATIME, st);
    node_look_locked(c, node);
    node_stat(node, st);
    mutex_unlock(&c->lock);
    return 0;
}

int cache_readlink(struct cache *c, struct node *node, struct waiter *w, char **ret)
{
    mutex_lock(&c->lock);
    int r = attrs_need_locked(c, node, w);
    if (r == 0 && !S_ISLNK(node->mode))
        r = -EINVAL;
    char *target = r == 0 && node->target ? strdup(node->target) : NULL;
    mutex_unlock(&c->lock);
    if (r != 0)
        return r;
    if (!target)
        return -ENOMEM;
    *ret = target;
    return 0;
}

/* ---- extended attributes ---- */

const char *node_state_name(struct node *n)
{
    struct file *f = n->file;

    if (n->dir)
        return n->dir->uploading                                ? "uploading"
               : n->dir->error                                  ? "failed"
               : n->dir->queued || (n->flags & NODE_ATTR_DIRTY) ? "dirty"
                                                                : "clean";
    if (!f)
        return "partial";
    if (f->uploading)
        return "uploading";
    if (f->error)
        return "failed";
    if (f->state == FILE_DIRTY || f->write_handles || (n->flags & NODE_ATTR_DIRTY))
        return "dirty";
    return f->state == FILE_PARTIAL ? "partial" : "clean";
}

static char *own_value_locked(struct cache *c, struct node *n, const char *name)
{
    const char *what = name + strlen(OWN_PREFIX);

    if (strcmp(what, "state") == 0)
        return strdup(node_state_name(n));
    if (strcmp(what, "version") == 0)
        return strdup(n->links && n->links->etag ? n->links->etag : "");
    if (strcmp(what, "url") == 0) {
        auto_free char *key = node_key(n);
        auto_buf struct buf b = BUF_INIT(64 << 10);
        if (!key || buf_addf(&b, "%s%s%s", c->store->url, *key ? "/" : "", key) < 0)
            return NULL;
        return buf_take(&b);
    }
    return NULL;
}

static ssize_t give(const void *data, size_t len, void *value, size_t size)
{
    if (size == 0)
        return (ssize_t)len;
    if (size < len)
        return -ERANGE;
    memcpy(value, data, len);
    return (ssize_t)len;
}

static json_t *load_xattrs(struct node *n)
{
    json_t *all = n->xattrs ? json_loads(n->xattrs, 0, NULL) : NULL;

    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
    }
    return all;
}

/* Decodes base64; the length is that of the bytes. NULL when it is none. */
static unsigned char *decode(const char *text, size_t *ret_len)
{
    size_t len = strlen(text);
    auto_free unsigned char *out = malloc(len / 4 * 3 + 1);

    if (!out || len % 4 != 0)
        return NULL;
    int n = len ? EVP_DecodeBlock(out, (const unsigned char *)text, (int)len) : 0;
    if (n < 0)
        return NULL;
    for (size_t i = len; i > 0 && text[i - 1] == '=' && len - i < 2; i--)
        n--;
    *ret_len = (size_t)n;
    return take_ptr(out);
}

static ssize_t get_user_locked(struct node *n, const char *name, void *value, size_t size)
{
    json_t *all = load_xattrs(n);
    const char *text = all ? json_string_value(json_object_get(all, name)) : NULL;
    ssize_t r = -ENODATA;

    if (text) {
        size_t len = 0;
        auto_free unsigned char *bytes = decode(text, &len);
        r = bytes ? give(bytes, len, value, size) : -EIO;
    }
    json_decref(all);
    return r;
}

ssize_t cache_getxattr(struct cache *c, struct node *node, const char *name, void *value,
                       size_t size, struct waiter *w)
{
    mutex_lock(&c->lock);
    ssize_t r = attrs_need_locked(c, node, w);
    if (r == 0 && strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0) {
        auto_free char *text = own_value_locked(c, node, name);
        r = text ? give(text, strlen(text), value, size) : -ENODATA;
    } else if (r == 0) {
        r = node->xattrs ? get_user_locked(node, name, value, size) : -ENODATA;
    }
    mutex_unlock(&c->lock);
    return r;
}

ssize_t cache_listxattr(struct cache *c, struct node *node, char *list, size_t size,
                        struct waiter *w)
{
    auto_buf struct buf names = BUF_INIT(64 << 10);
    const char *name;
    json_t *value;
    int r;

    mutex_lock(&c->lock);
    r = attrs_need_locked(c, node, w);
    json_t *all = r == 0 && node->xattrs ? load_xattrs(node) : NULL;
    mutex_unlock(&c->lock);
    json_object_foreach(all, name, value)
    {
        if (r == 0)
            r = buf_add(&names, name, strlen(name) + 1);
    }
    json_decref(all);
    return r != 0 ? r : give(names.data, names.len, list, size);
}

static bool namespace_ok(const char *name)
{
    return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
           strncmp(name, "security.", 9) == 0;
}

static int put_value(json_t *all, const char *name, const void *value, size_t size)
{
    auto_free char *text = malloc(size / 3 * 4 + 8);

    if (!text)
        return -ENOMEM;
    text[0] = '\0';
    if (size)
        (void)EVP_EncodeBlock((unsigned char *)text, value, (int)size);
    return json_object_set_new(all, name, json_string(text)) < 0 ? -ENOMEM : 0;
}

/* The new set as JSON text; NULL text when it is empty. */
static int edited(struct node *n, const char *name, const void *value, size_t size, int flags,
                  bool remove, char **ret)
{
    json_t *all = load_xattrs(n);
    bool there = json_object_get(all, name) != NULL;
    int r = 0;

    *ret = NULL;
    if (!all)
        return -ENOMEM;
    if ((remove || (flags & XATTR_REPLACE)) && !there)
        r = -ENODATA;
    else if (!remove && (flags & XATTR_CREATE) && there)
        r = -EEXIST;
    else if (remove)
        (void)json_object_del(all, name);
    else
        r = put_value(all, name, value, size);
    if (r == 0 && json_object_size(all) > 0) {
        *ret = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
        r = !*ret ? -ENOMEM : strlen(*ret) > XATTRS_MAX ? -ENOSPC : 0;
    }
    json_decref(all);
    return r;
}

/* The mirror's descriptor of a file or directory; ns held for writing. */
static int xattrs_fd(struct cache *c, struct node *n)
{
    if (!n->dir)
        return file_get_fd_held(c, n, FD_READ);
    auto_free char *path = node_path(n);
    int r = path ? mirror_mkdirs(&c->mirror, path) : -ENOENT;
    return r < 0 ? r : mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY);
}

/* The set, then that it is owed; ns held for writing, so that edits follow one another. */
static int edit_held(struct cache *c, struct node *n, const char *name, const void *value,
                     size_t size, int flags, bool remove)
{
    auto_free char *json = NULL;

    mutex_lock(&c->lock);
    int r = edited(n, name, value, size, flags, remove, &json);
    mutex_unlock(&c->lock);
    int fd = r == 0 ? xattrs_fd(c, n) : r;
    if (fd < 0)
        return fd;
    r = stamp_write_xattrs(fd, json);
    mutex_lock(&c->lock);
    if (r == 0) {
        free(n->xattrs);
        n->xattrs = take_ptr(json);
        n->ctime_ns = clock_real_ns();
        n->flags |= NODE_ATTR_DIRTY;
        if (n->file)
            file_mark_dirty_locked(c, n, false);
        if (n->dir && !n->is_root)
            dir_queue_locked(c, n);
        else if (n->file && n->links && n->file->write_handles == 0)
            file_queue_locked(c, n);
    }
    mutex_unlock(&c->lock);
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    if (n->dir) {
        (void)close(fd);
        return r;
    }
    mutex_lock(&c->lock);
    file_put_fd_locked(c, n->file, FD_READ);
    mutex_unlock(&c->lock);
    return r;
}

static int edit_xattrs(struct cache *c, struct node *n, const char *name, const void *value,
                       size_t size, int flags, bool remove, struct waiter *w)
{
    if (c->config.read_only)
        return -EROFS;
    if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0)
        return -EPERM;
    if (!namespace_ok(name))
        return -EOPNOTSUPP;
    mutex_lock(&c->lock);
    int r = attrs_need_locked(c, n, w);
    mutex_unlock(&c->lock);
    if (r != 0)
        return r;
    ns_write(c);
    r = n->dir ? 0 : file_materialise(c, n);
    if (r == 0)
        r = edit_held(c, n, name, value, size, flags, remove);
    ns_done(c);
    return r;
}

int cache_setxattr(struct cache *c, struct node *node, const char *name, const void *value,
                   size_t size, int flags, struct waiter *w)
{
    return edit_xattrs(c, node, name, value, size, flags, false, w);
}

int cache_removexattr(struct cache *c, struct node *node, const char *name, struct waiter *w)
{
    return edit_xattrs(c, node, name, NULL, 0, 0, true, w);
}

/* ---- statfs ---- */

/* A store has no end: a size that no program finds too small, and what the cache can take at
 * once. */
#define STATFS_BYTES (UINT64_C(1) << 50)

void cache_statfs(struct cache *c, struct statvfs *ret)
{
    mutex_lock(&c->lock);
    uint64_t used = c->used_bytes, nodes = c->nodes;
    mutex_unlock(&c->lock);
    *ret = (struct statvfs){.f_bsize = 4096,
                            .f_frsize = 4096,
                            .f_blocks = STATFS_BYTES / 4096,
                            .f_bfree = (STATFS_BYTES - used) / 4096,
                            .f_bavail = (STATFS_BYTES - used) / 4096,
                            .f_files = UINT32_MAX,
                            .f_ffree = UINT32_MAX - nodes,
                            .f_favail = UINT32_MAX - nodes,
                            .f_namemax = 255};
}
