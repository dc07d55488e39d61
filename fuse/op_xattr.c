/* Extended attributes. */
#include "fuse/control.h"
#include "fuse/fs_impl.h"
#include "fuse/setid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_XATTR "user.runfs.control"
/* `ls -l` asks for it at each name, unless the first answer is that there are none here. */
#define LABEL_XATTR "security.selinux"

/* Answers with `n` bytes of `value`, or with the number alone when none were asked for. */
static void answer_value(struct pending *p, const char *value, ssize_t n)
{
    if (p->size == 0)
        (void)answer_xattr_size(p, (size_t)n);
    else
        (void)answer_buf(p, value, (size_t)n);
}

int getxattr_run(struct pending *p)
{
    char *value = NULL;

    if (p->size > 0 && !(value = malloc(p->size)))
        return -ENOMEM;
    ssize_t n = cache_getxattr(p->fs->cache, p->node, p->name, value, p->size, &p->waiter);
    if (n >= 0 && n != CACHE_PARKED) {
        answer_value(p, value, n);
        n = 0;
    }
    free(value);
    return n == -ENODATA && strcmp(p->name, LABEL_XATTR) == 0 ? -EOPNOTSUPP : (int)n;
}

static int run_listxattr(struct pending *p)
{
    char *list = NULL;

    if (p->size > 0 && !(list = malloc(p->size)))
        return -ENOMEM;
    ssize_t n = cache_listxattr(p->fs->cache, p->node, list, p->size, &p->waiter);
    if (n >= 0 && n != CACHE_PARKED) {
        answer_value(p, list, n);
        n = 0;
    }
    free(list);
    return (int)n;
}

static int run_setxattr(struct pending *p)
{
    int flags = (int)p->flags;
    int r = strcmp(p->name, ACCESS_ACL) == 0 ? setid_add_to_acl(p, &flags) : 0;

    return r ? r
             : answer_done(p, cache_setxattr(p->fs->cache, p->node, p->name, p->data, p->size,
                                             flags, &p->waiter));
}

static int run_removexattr(struct pending *p)
{
    return answer_done(p, cache_removexattr(p->fs->cache, p->node, p->name, &p->waiter));
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                 size_t size, int flags)
{
    if (ino_is_control(ino) || strcmp(name, CONTROL_XATTR) == 0) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = pending_new(req, run_setxattr, NULL);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->name = name;
    p->data = value;
    p->size = size;
    p->flags = (unsigned)flags;
    pending_start(p);
}

/* The root says where the control socket is. */
static void answer_control_path(fuse_req_t req, size_t size)
{
    const char *path = fs_of(req)->config.control_path;
    size_t len = strlen(path);

    if (size == 0)
        (void)fuse_reply_xattr(req, len);
    else if (size < len)
        (void)fuse_reply_err(req, ERANGE);
    else
        (void)fuse_reply_buf(req, path, len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    if (ino_is_control(ino)) {
        control_getxattr(req, ino, name, size);
        return;
    }
    if (ino == FUSE_ROOT_ID && fs_of(req)->config.control_path &&
        strcmp(name, CONTROL_XATTR) == 0) {
        answer_control_path(req, size);
        return;
    }
    if (strcmp(name, AWAIT_XATTR) == 0) {
        await_start(fs_of(req), req, ino, size);
        return;
    }
    struct pending *p = pending_new(req, getxattr_run, NULL);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->name = name;
    p->size = size;
    pending_start(p);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    if (ino_is_control(ino)) {
        if (size == 0)
            (void)fuse_reply_xattr(req, 0);
        else
            (void)fuse_reply_buf(req, NULL, 0);
        return;
    }
    struct pending *p = pending_new(req, run_listxattr, NULL);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->size = size;
    pending_start(p);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    if (ino_is_control(ino) || strcmp(name, CONTROL_XATTR) == 0) {
        (void)fuse_reply_err(req, EPERM);
        return;
    }
    struct pending *p = pending_new(req, run_removexattr, NULL);
    if (!p)
        return;
    p->node = pending_node(p, ino);
    p->name = name;
    pending_start(p);
}
