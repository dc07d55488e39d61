/* Names to nodes, and attributes. */
#include "fuse/control.h"
#include "fuse/fs_impl.h"
#include "fuse/setid.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

static int run_lookup(struct pending *p)
{
    struct node *node;
    int r = cache_lookup(p->fs->cache, p->node, p->name, &p->waiter, &node, &p->st);

    if (r)
        return r;
    if (answer_entry(p, node, &p->st) < 0)
        cache_forget(p->fs->cache, node, 1);
    return 0;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (control_claims(parent, name)) {
        control_lookup(req, parent, name);
        return;
    }
    struct pending *p = pending_new(req, run_lookup, NULL);
    if (!p)
        return;
    p->node = pending_node(p, parent);
    p->name = name;
    pending_start(p);
}

static void forget(struct fs *fs, fuse_ino_t ino, uint64_t nlookup)
{
    struct node *n = ino == FUSE_ROOT_ID || ino_is_control(ino) ? NULL : node_of(fs, ino);

    if (ino_is_link(ino))
        links_forget(&fs->links, ino, nlookup);
    else if (ino_is_locked(ino))
        links_forget(&fs->locked, ino, nlookup);
    else if (n)
        cache_forget(fs->cache, n, nlookup);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    forget(fs_of(req), ino, nlookup);
    fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        forget(fs_of(req), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

static int run_getattr(struct pending *p)
{
    int r = cache_getattr(p->fs->cache, p->node, &p->waiter, &p->st);

    if (r)
        return r;
    (void)answer_attr(p, &p->st);
    return 0;
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino_is_control(ino)) {
        control_getattr(req, ino);
        return;
    }
    struct pending *p = pending_new(req, run_getattr, fi);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    pending_start(p);
}

static int run_setattr(struct pending *p)
{
    struct stat st = p->st; /* a parked call is made again with the same values */
    unsigned set = p->flags;
    /* chown(path, -1, -1) sets nothing, but the set-id bits fall. */
    bool chown = set == 0 || (set & (CACHE_SET_UID | CACHE_SET_GID)) != 0;
    int r = 0;

    if (chown || (set & CACHE_SET_SIZE))
        r = setid_add_to_set(p, chown, &set, &st);
    if (r)
        return r;
    r = cache_setattr(p->fs->cache, p->node, p->file ? p->file->handle : NULL, set, &p->waiter,
                      &st);
    if (r)
        return r;
    (void)answer_attr(p, &st);
    return 0;
}

/* What the cache shall set; times that mean "now" become the time of the request. */
static unsigned set_of(int to_set, struct stat *st)
{
    static const struct {
        int fuse;
        unsigned cache;
    } bits[] = {
        {FUSE_SET_ATTR_MODE, CACHE_SET_MODE},       {FUSE_SET_ATTR_UID, CACHE_SET_UID},
        {FUSE_SET_ATTR_GID, CACHE_SET_GID},         {FUSE_SET_ATTR_SIZE, CACHE_SET_SIZE},
        {FUSE_SET_ATTR_ATIME, CACHE_SET_ATIME},     {FUSE_SET_ATTR_MTIME, CACHE_SET_MTIME},
        {FUSE_SET_ATTR_ATIME_NOW, CACHE_SET_ATIME}, {FUSE_SET_ATTR_MTIME_NOW, CACHE_SET_MTIME},
    };
    struct timespec now;
    unsigned set = 0;

    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
        if (to_set & bits[i].fuse)
            set |= bits[i].cache;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (to_set & FUSE_SET_ATTR_ATIME_NOW)
        st->st_atim = now;
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        st->st_mtim = now;
    return set;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi)
{
    if (ino_is_control(ino)) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = pending_new(req, run_setattr, fi);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->st = *attr;
    p->flags = set_of(to_set, &p->st);
    pending_start(p);
}

static int run_readlink(struct pending *p)
{
    char *target;
    int r = cache_readlink(p->fs->cache, p->node, &p->waiter, &target);

    if (r)
        return r;
    (void)answer_readlink(p, target);
    free(target);
    return 0;
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    if (ino_is_control(ino)) {
        control_readlink(req, ino);
        return;
    }
    struct pending *p = pending_new(req, run_readlink, NULL);

    if (!p)
        return;
    p->node = pending_node(p, ino);
    pending_start(p);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st = {0};

    (void)ino;
    cache_statfs(fs_of(req)->cache, &st);
    (void)fuse_reply_statfs(req, &st);
}
