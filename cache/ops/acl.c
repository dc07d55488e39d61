/* ACLs, as extended attributes that follow the mode, and that the mode follows. */
#include "cache/ops/ops_impl.h"

#include "cache/types/acl.h"
#include "cache/types/xattr_set.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int acl_add(char **xattrs, const char *name, const void *value, size_t size)
{
    char *text = NULL;
    int r = xattr_set_edit(*xattrs, name, value, size, 0, &text);

    if (r == 0) {
        free(*xattrs);
        *xattrs = text;
    }
    return r;
}

void acl_widen_mode(struct cache *c, struct node *n, const struct narrowed *narrowed, int fd)
{
    cache_lock(c);
    bool ours = n->mode == narrowed->mode;
    if (ours)
        n->mode = narrowed->before;
    if (narrowed->was_dirty || xattr_is_owed(n))
        xattr_changed_locked(c, n); /* the narrow mode may be on its way */
    else
        n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    cache_unlock(c);
    /* The disk may refuse that, too: then nobody may more after the next mount. */
    if (ours && narrowed->mode != narrowed->before)
        (void)node_write_stamp(c, n, fd);
}

int acl_remove(struct cache *c, struct node *n, const char *name)
{
    const struct edit e = {.name = name};
    int r = xattr_edit(c, n, &e);

    return r == -ENODATA ? 0 : r;
}

/* An ACL that says no more than a mode is kept as the mode. */
static int set_access_acl(struct cache *c, struct node *n, const void *value, size_t size,
                          bool kill_sgid)
{
    struct edit e = {.name = ACL_ACCESS, .size = size, .sets_mode = true};
    uint32_t bits;

    e.value = acl_to_mode(value, size, &bits) ? NULL : value;
    cache_lock(c);
    e.mode = (n->mode & ~(uint32_t)0777) | bits;
    cache_unlock(c);
    if (kill_sgid)
        e.mode &= ~(uint32_t)S_ISGID;
    return xattr_edit(c, n, &e);
}

/* A file made in the directory must be able to have it twice: no mkdir() shall fail for it. */
static int set_default_acl(struct cache *c, struct node *n, const void *value, size_t size)
{
    const struct edit e = {.name = ACL_DEFAULT, .value = value, .size = size};
    auto_free char *once = NULL;

    if (!n->dir)
        return -EACCES;
    if (xattr_set_edit(NULL, ACL_DEFAULT, value, size, 0, &once) < 0)
        return -ENOMEM;
    return 2 * strlen(once) > XATTRS_MAX ? -ENOSPC : xattr_edit(c, n, &e);
}

int acl_set(struct cache *c, struct node *n, const char *name, const void *value, size_t size,
            int flags, struct waiter *w)
{
    cache_lock(c);
    bool can = c->config.acl && !S_ISLNK(n->mode);
    cache_unlock(c);
    int r = can ? xattr_edit_ready(c, n, w) : -EOPNOTSUPP;

    if (r == 0)
        r = acl_check(value, size);
    if (r != 0)
        return r;
    if (acl_is_empty(size))
        return acl_remove(c, n, name);
    return strcmp(name, ACL_ACCESS) == 0
               ? set_access_acl(c, n, value, size, flags & CACHE_XATTR_KILL_SGID)
               : set_default_acl(c, n, value, size);
}
