#include "fuse/setid.h"

#include "fuse/fs_impl.h"

static bool has_bits(mode_t mode)
{
    /* S_ISGID without group execution is mandatory locking's, and stays. */
    return S_ISREG(mode) &&
           ((mode & S_ISUID) || (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP));
}

static mode_t without_bits(mode_t mode)
{
    return mode & ~(mode_t)(S_ISUID | (mode & S_IXGRP ? S_ISGID : 0));
}

/* Who has CAP_FSETID, near enough. */
static bool is_privileged(const struct pending *p)
{
    return fuse_req_ctx(p->req)->uid == 0;
}

int setid_fall(struct pending *p, struct node *node)
{
    struct stat st;

    if (is_privileged(p))
        return 0;
    int r = cache_getattr(p->fs->cache, node, &p->waiter, &st);
    if (r || !has_bits(st.st_mode))
        return r;
    st.st_mode = without_bits(st.st_mode);
    r = cache_setattr(p->fs->cache, node, NULL, CACHE_SET_MODE, &p->waiter, &st);
    if (r == 0)
        kernel_forget_attr(p->fs, node);
    return r;
}

int setid_add_to_set(struct pending *p, bool always, unsigned *set, struct stat *st)
{
    struct stat now;

    if ((*set & CACHE_SET_MODE) || (!always && is_privileged(p)))
        return 0;
    int r = cache_getattr(p->fs->cache, p->node, &p->waiter, &now);
    if (r == 0 && has_bits(now.st_mode)) {
        st->st_mode = without_bits(now.st_mode);
        *set |= CACHE_SET_MODE;
    }
    return r;
}
