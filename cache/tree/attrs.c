/* Mode, owner and times of a node, as the store told them, or the defaults, and what the store
 * is told of them. */
#include "cache/tree/tree_impl.h"

#include "cache/types/acl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct timespec timespec_of(int64_t ns)
{
    int64_t rest = ns % NS_PER_SEC;

    /* Before 1970 the nanoseconds count forward, too. */
    return rest < 0
               ? (struct timespec){.tv_sec = ns / NS_PER_SEC - 1, .tv_nsec = rest + NS_PER_SEC}
               : (struct timespec){.tv_sec = ns / NS_PER_SEC, .tv_nsec = rest};
}

void node_default_attrs(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    n->uid = c->config.uid;
    n->gid = c->config.gid;
    n->mode = S_ISDIR(n->mode) ? S_IFDIR | c->config.dir_mode : S_IFREG | c->config.file_mode;
}

static bool mode_fits(struct node *n, uint32_t mode)
{
    if (n->dir)
        return S_ISDIR(mode);
    return S_ISREG(mode) || S_ISLNK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode) ||
           S_ISCHR(mode) || S_ISBLK(mode);
}

/* A content can't be a symlink, fifo or device: only an empty object may claim that. */
static bool type_allowed(struct node *n, const struct object *obj, uint32_t mode)
{
    return mode_fits(n, mode) && (n->dir || S_ISREG(mode) || obj->size == 0);
}

bool node_attrs_known(const struct node *n)
{
    return (n->flags & (NODE_ATTRS_KNOWN | NODE_ATTRS_OLD)) == NODE_ATTRS_KNOWN;
}

void node_attrs_are_known(struct node *n)
{
    n->flags |= NODE_ATTRS_KNOWN;
    n->flags &= ~(unsigned)NODE_ATTRS_OLD;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Whether the node is seen as it was, but for its times. */
static bool shows_as(const struct node *n, const struct node *then) REQUIRES(cache_mutex)
{
    return n->mode == then->mode && n->uid == then->uid && n->gid == then->gid &&
           n->rdev == then->rdev && n->size == then->size &&
           same_text(n->xattrs, then->xattrs) && same_text(n->target, then->target);
}

/* Frees the texts that the node had and has no more. */
static void free_replaced(const struct node *n, const struct node *then) REQUIRES(cache_mutex)
{
    if (n->xattrs != then->xattrs)
        free(then->xattrs);
    if (n->target != then->target)
        free(then->target);
}

/* What came into a directory since its marker was put is known here, unless it was that marker
 * that said the time, or may have: recovery does not know. */
static bool knows_later_time(const struct node *n, const struct node *then)
    REQUIRES(cache_mutex)
{
    return n->dir && (node_attrs_known(then) || then->attrs_has) &&
           then->mtime_ns > n->mtime_ns && !(n->attrs_has & ATTR_MTIME) &&
           !(then->attrs_has & ATTR_MTIME);
}

/* A store keeps no ctime. Of what is told again it stays: tar takes a file, or a directory,
 * whose ctime moves while it is read for one that changed. What the store said otherwise before
 * has changed by now. What it says for the first time is as old as its content, or as the
 * change that is known already. The time of a folder of the store's own moves as what was put
 * here lands in it, too: that is no change. */
static void follow_times(struct node *n, const struct node *then) REQUIRES(cache_mutex)
{
    bool changed_here = then->ctime_ns != then->mtime_ns && then->ctime_ns > n->mtime_ns;
    bool known = then->flags & NODE_ATTRS_KNOWN, same = shows_as(n, then);

    if (same && n->mtime_ns == then->mtime_ns)
        return;
    n->atime_ns = n->mtime_ns;
    if (known && n->dir && same)
        return;
    if (known)
        n->ctime_ns = clock_real_ns();
    else
        n->ctime_ns = changed_here ? then->ctime_ns : n->mtime_ns;
}

/* Leaves the texts that it replaces to the caller. */
static void apply_known_attrs(struct node *n, const struct object *obj) REQUIRES(cache_mutex)
{
    const struct attrs *a = &obj->attrs;

    if ((a->has & ATTR_MODE) && !(a->mode & S_IFMT))
        n->mode = (n->mode & S_IFMT) | (a->mode & 07777);
    else if ((a->has & ATTR_MODE) && type_allowed(n, obj, a->mode))
        n->mode = a->mode;
    if (a->has & ATTR_OWNER) {
        n->uid = a->uid;
        n->gid = a->gid;
    }
    if (a->has & ATTR_MTIME)
        n->mtime_ns = a->mtime_ns;
    if (a->has & ATTR_RDEV)
        n->rdev = (uint32_t)a->rdev;
    n->xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? strdup(a->xattrs) : NULL;
    node_acl_follow(n);
    if (S_ISLNK(n->mode)) {
        n->target = strdup((a->has & ATTR_TARGET) && a->target ? a->target : "");
        n->size = n->target ? strlen(n->target) : 0;
    }
    node_attrs_are_known(n);
}

void node_sum_told_locked(struct node *n, const struct object *obj)
{
    n->sum_kind = (uint8_t)obj->checksum.kind;
    n->sum_value = obj->checksum.value;
    n->flags &= ~(unsigned)NODE_NO_SUM;
}

void node_apply_attrs(struct cache *c, struct node *n, const struct object *obj)
{
    const struct node then = *n;

    cache_assert_locked(c);
    node_default_attrs(c, n);
    node_sum_told_locked(n, obj);
    n->size = obj->size;
    n->mtime_ns = obj->mtime_ns || !obj->is_prefix ? obj->mtime_ns : c->tree->own->started_ns;
    n->attrs_has = obj->attrs_known ? obj->attrs.has : 0;
    n->flags &= ~(unsigned)NODE_ATTRS_HEARSAY;
    if (obj->attrs_known && obj->attrs_hearsay && !n->dir)
        n->flags |= NODE_ATTRS_HEARSAY;
    if (obj->attrs_known)
        apply_known_attrs(n, obj);
    if (knows_later_time(n, &then))
        n->mtime_ns = then.mtime_ns;
    follow_times(n, &then);
    if (then.target && !same_text(n->target, then.target))
        notice_locked(c, n, NULL); /* the kernel keeps targets */
    free_replaced(n, &then);
}

void node_apply_version(struct cache *c, struct node *n, const struct object *obj)
{
    node_apply_attrs(c, n, obj);
    n->ctime_ns = clock_real_ns();
}

void node_acl_follow(struct node *n)
{
    char *text;

    if (!n->xattrs || acl_follow_mode(n->xattrs, n->mode, &text) < 0 || !text)
        return;
    free(n->xattrs);
    n->xattrs = text;
}

int node_attrs_locked(struct node *n, struct attrs *ret)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                      .mode = n->mode,
                      .uid = n->uid,
                      .gid = n->gid,
                      .mtime_ns = n->mtime_ns};

    if (n->xattrs) {
        a.has |= ATTR_XATTRS;
        a.xattrs = strdup(n->xattrs);
    }
    if (S_ISLNK(n->mode)) {
        a.has |= ATTR_TARGET;
        a.target = strdup(n->target ? n->target : "");
    }
    if (S_ISCHR(n->mode) || S_ISBLK(n->mode)) {
        a.has |= ATTR_RDEV;
        a.rdev = n->rdev;
    }
    if ((n->xattrs && !a.xattrs) || (S_ISLNK(n->mode) && !a.target)) {
        attrs_release(&a);
        return -ENOMEM;
    }
    *ret = a;
    return 0;
}
