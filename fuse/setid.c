#include "fuse/setid.h"

#include "common/mem.h"
#include "fuse/fs_impl.h"

#include <stdlib.h>

/* Whether the caller has CAP_FSETID, near enough. */
static bool is_privileged(const struct pending *p)
{
    return fuse_req_ctx(p->req)->uid == 0;
}

/* Also false when it can't be known: a caller in another pid namespace. */
static bool is_in_group(const struct pending *p, gid_t gid)
{
    if (fuse_req_ctx(p->req)->gid == gid)
        return true;
    int n = fuse_req_getgroups(p->req, 0, NULL);
    auto_free gid_t *groups = n > 0 ? calloc((size_t)n, sizeof(*groups)) : NULL;
    int room = groups ? n : 0;
    n = room ? fuse_req_getgroups(p->req, room, groups) : 0;
    for (int i = 0; i < n && i < room; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

/* The mode without the bits that a change by this caller costs. S_ISGID without group execution
 * was mandatory locking's: only a caller who could not set it clears it. */
static mode_t without_bits(const struct pending *p, const struct stat *st)
{
    mode_t fall = st->st_mode & S_ISUID;

    if ((st->st_mode & S_ISGID) &&
        ((st->st_mode & S_IXGRP) || !(is_privileged(p) || is_in_group(p, st->st_gid))))
        fall |= S_ISGID;
    return st->st_mode & ~fall;
}

int setid_fall(struct pending *p, struct node *node)
{
    struct stat st;

    if (is_privileged(p))
        return 0;
    int r = cache_getattr(p->fs->cache, node, &p->waiter, &st);
    mode_t mode = r ? 0 : without_bits(p, &st);
    if (r || mode == st.st_mode)
        return r;
    st.st_mode = mode;
    r = cache_setattr(p->fs->cache, node, NULL, CACHE_SET_MODE, &p->waiter, &st);
    if (r == 0)
        kernel_forget_attr(p->fs, node);
    return r;
}

int setid_add_to_set(struct pending *p, bool always, unsigned *set, struct stat *st)
{
    struct stat now;

    if (!always && is_privileged(p))
        return 0;
    int r = cache_getattr(p->fs->cache, p->node, &p->waiter, &now);
    if (r || S_ISDIR(now.st_mode))
        return r;
    /* A mode comes with a chown or truncate when libfuse is too old to take the matter over: it
     * is what the kernel left of the bits, and that leaves S_ISGID without group execution. */
    if (*set & CACHE_SET_MODE)
        now.st_mode = (now.st_mode & S_IFMT) | (st->st_mode & 07777);
    if (without_bits(p, &now) == now.st_mode)
        return 0;
    st->st_mode = without_bits(p, &now);
    *set |= CACHE_SET_MODE;
    return 0;
}

int setid_add_to_acl(struct pending *p, int *flags)
{
    struct stat now;

    if (is_privileged(p))
        return 0;
    int r = cache_getattr(p->fs->cache, p->node, &p->waiter, &now);
    if (r == 0 && (now.st_mode & S_ISGID) && !is_in_group(p, now.st_gid))
        *flags |= CACHE_XATTR_KILL_SGID;
    return r;
}
