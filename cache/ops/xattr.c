/* Extended attributes of nodes, and among them the ACLs. They are one text in the node, its
 * stamp and the store's metadata. The mode decides what an access ACL says of the owner, the
 * mask and others: chmod touches the mode alone, and wherever a text is taken over that says
 * otherwise it is made to follow. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/types/acl.h"
#include "cache/types/xattr_set.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_PREFIX "user.runfs."

/* The kernel acts on "security." and "trusted.": they never come from a store, and as none
 * could come back they are not taken for one either. */
static bool is_kept(const char *name)
{
    return strncmp(name, "user.", 5) == 0 || acl_is_name(name);
}

/* ---- reading ---- */

static ssize_t give(const void *data, size_t len, void *value, size_t size)
{
    if (size == 0)
        return (ssize_t)len;
    if (size < len)
        return -ERANGE;
    if (len > 0)
        memcpy(value, data, len);
    return (ssize_t)len;
}

/* The node's attribute of this name, heap. */
static ssize_t value_locked(struct node *n, const char *name, unsigned char **ret)
    REQUIRES(cache_mutex)
{
    uint32_t bits;

    if (!n->xattrs || !is_kept(name))
        return -ENODATA;
    if (!acl_is_name(name))
        return xattr_set_get(n->xattrs, name, ret);
    if (S_ISLNK(n->mode) || (!n->dir && strcmp(name, ACL_DEFAULT) == 0))
        return -ENODATA;
    ssize_t size = acl_stored(n->xattrs, name, ret);
    /* The mode says it all. */
    if (size >= 0 && strcmp(name, ACL_ACCESS) == 0 && acl_to_mode(*ret, (size_t)size, &bits)) {
        free(take_ptr(*ret));
        return -ENODATA;
    }
    return size;
}

ssize_t cache_getxattr(struct cache *c, struct node *node, const char *name, void *value,
                       size_t size, struct waiter *w)
{
    auto_free unsigned char *found = NULL;

    if (!c->config.acl && acl_is_name(name))
        return -EOPNOTSUPP;
    cache_lock(c);
    ssize_t r = attrs_need_locked(c, node, w);
    if (r == 0 && strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0) {
        auto_free char *text = xattr_own_locked(c, node, name + strlen(OWN_PREFIX));
        r = text ? give(text, strlen(text), value, size) : -ENODATA;
    } else if (r == 0) {
        r = value_locked(node, name, &found);
        r = r < 0 ? r : give(found, (size_t)r, value, size);
    }
    cache_unlock(c);
    return r;
}

struct naming {
    struct cache *cache;
    struct node *node;
    struct buf names;
};

static int add_name(void *arg, const char *name) REQUIRES(cache_mutex)
{
    struct naming *l = arg;
    auto_free unsigned char *value = NULL;

    if (!is_kept(name))
        return 0;
    if (acl_is_name(name) && (!l->cache->config.acl || value_locked(l->node, name, &value) < 0))
        return 0;
    return buf_add(&l->names, name, strlen(name) + 1);
}

ssize_t cache_listxattr(struct cache *c, struct node *node, char *list, size_t size,
                        struct waiter *w)
{
    struct naming l = {.cache = c, .node = node};

    buf_init(&l.names, 64 << 10);
    cache_lock(c);
    ssize_t r = attrs_need_locked(c, node, w);
    if (r == 0)
        r = xattr_set_each(node->xattrs, add_name, &l);
    cache_unlock(c);
    if (r == 0)
        r = give(l.names.data, l.names.len, list, size);
    buf_release(&l.names);
    return r;
}

/* The mirror's descriptor of a file or directory; ns held for writing. */
static int xattrs_fd(struct cache *c, struct node *n) REQUIRES(cache_ns)
{
    if (!n->dir)
        return file_get_fd_ns_locked(c, n, FD_READ);
    auto_free char *path = node_path(n);
    int r = path ? mirror_mkdirs(&c->mirror, path) : -ENOENT;
    return r < 0 ? r : mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY);
}

void xattr_changed_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    n->ctime_ns = clock_real_ns();
    n->flags |= NODE_ATTR_DIRTY;
    if (n->file)
        file_mark_dirty_locked(c, n, false);
    if (n->dir && !n->is_root)
        dir_queue_locked(c, n);
    else if (n->file && n->links && n->file->write_handles == 0)
        file_queue_again_locked(c, n);
}

bool xattr_is_owed(const struct node *n)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty)
            return true;
    return n->dir ? debt_is_queued(&n->dir->debt) || n->dir->debt.running
                  : n->file->debt.running;
}

static int write_edit(struct cache *c, struct node *n, const struct edit *e, int fd,
                      char **json) REQUIRES(cache_ns)
{
    struct narrowed narrowed;
    int r = e->sets_mode ? node_write_access_acl(c, n, fd, *json, e->mode, &narrowed)
                         : node_write_xattrs(fd, *json);

    if (r < 0 && e->sets_mode)
        acl_widen_mode(c, n, &narrowed, fd);
    if (r < 0)
        return r;
    cache_lock(c);
    free(n->xattrs);
    n->xattrs = take_ptr(*json);
    if (e->sets_mode)
        n->mode = e->mode;
    node_acl_follow(n); /* a chmod may have come between */
    xattr_changed_locked(c, n);
    cache_unlock(c);
    return node_write_stamp(c, n, fd);
}

/* Writes the set, then that it is owed; ns held for writing, so that edits follow one another.
 */
static int edit_ns_locked(struct cache *c, struct node *n, const struct edit *e)
    REQUIRES(cache_ns)
{
    auto_free char *json = NULL;

    cache_lock(c);
    int r = xattr_set_edit(n->xattrs, e->name, e->value, e->size, e->flags, &json);
    if (r == -ENODATA && e->sets_mode) /* there is no ACL, and there shall be none */
        r = n->xattrs && !(json = strdup(n->xattrs)) ? -ENOMEM : 0;
    cache_unlock(c);
    if (r == 0 && json && strlen(json) > XATTRS_MAX && e->value)
        r = -ENOSPC;
    int fd = r == 0 ? xattrs_fd(c, n) : r;
    if (fd < 0)
        return fd;
    r = write_edit(c, n, e, fd, &json);
    if (n->dir) {
        (void)close(fd);
        return r;
    }
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
    return r;
}

int xattr_edit(struct cache *c, struct node *n, const struct edit *e)
{
    ns_write(c);
    int r = n->dir ? 0 : file_materialise(c, n);
    if (r == 0)
        r = edit_ns_locked(c, n, e);
    ns_done(c);
    return r;
}

int xattr_edit_ready(struct cache *c, struct node *n, struct waiter *w)
{
    if (c->config.read_only)
        return -EROFS;
    cache_lock(c);
    int r = attrs_need_locked(c, n, w);
    if (r == 0)
        r = attrs_confirm_locked(c, n, w);
    cache_unlock(c);
    return r;
}

int cache_setxattr(struct cache *c, struct node *node, const char *name, const void *value,
                   size_t size, int flags, struct waiter *w)
{
    const struct edit e = {
        .name = name, .value = value ? value : "", .size = size, .flags = flags};

    if (acl_is_name(name))
        return acl_set(c, node, name, value, size, flags, w);
    int r = xattr_edit_ready(c, node, w);
    if (r != 0)
        return r;
    if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0)
        return -EPERM;
    return is_kept(name) ? xattr_edit(c, node, &e) : -EOPNOTSUPP;
}

int cache_removexattr(struct cache *c, struct node *node, const char *name, struct waiter *w)
{
    const struct edit e = {.name = name};

    if (acl_is_name(name) && !c->config.acl)
        return -EOPNOTSUPP;
    int r = xattr_edit_ready(c, node, w);
    if (r != 0)
        return r;
    if (acl_is_name(name))
        return acl_remove(c, node, name);
    if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0)
        return -EPERM;
    return is_kept(name) ? xattr_edit(c, node, &e) : -EOPNOTSUPP;
}
