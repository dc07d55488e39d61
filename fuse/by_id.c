#include "fuse/by_id.h"

#include "common/buf.h"
#include "common/hash.h"
#include "fuse/control.h"
#include "fuse/fs_impl.h"
#include "runs/codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From `.runfs/by-id` to the root. */
#define TO_ROOT "../../"

/* What the kernel may believe of the directory and of the names in it: nothing. The root's
 * attributes, and what is in it, change without its being told that these do. */
#define NOTHING 0.0

/* A request about the root. */
static void start(fuse_req_t req, int (*run)(struct pending *p), struct fuse_file_info *fi,
                  const char *name, size_t size)
{
    struct pending *p = pending_new(req, run, fi);

    if (!p)
        return;
    p->node = p->fs->root;
    p->name = name;
    p->size = size;
    pending_start(p);
}

/* ---- the directory ---- */

static int dir_stat(struct pending *p, struct stat *ret)
{
    int r = cache_getattr(p->fs->cache, p->node, &p->waiter, ret);

    if (r)
        return r;
    ret->st_ino = INO_CONTROL_BY_ID;
    ret->st_mode = S_IFDIR | (ret->st_mode & 0555);
    ret->st_nlink = 2;
    return 0;
}

static int run_lookup_dir(struct pending *p)
{
    struct fuse_entry_param e = {.ino = INO_CONTROL_BY_ID,
                                 .attr_timeout = NOTHING,
                                 .entry_timeout = p->fs->entry_timeout};
    int r = dir_stat(p, &e.attr);

    if (r == 0)
        (void)answer_entry_param(p, &e);
    return r;
}

void by_id_lookup_dir(fuse_req_t req)
{
    start(req, run_lookup_dir, NULL, NULL, 0);
}

static int run_getattr_dir(struct pending *p)
{
    int r = dir_stat(p, &p->st);

    if (r == 0)
        (void)answer_attr_for(p, &p->st, NOTHING);
    return r;
}

void by_id_getattr_dir(fuse_req_t req)
{
    start(req, run_getattr_dir, NULL, NULL, 0);
}

/* The mode alone says too much where the root has an ACL. */
void by_id_getxattr_dir(fuse_req_t req, const char *name, size_t size)
{
    if (strcmp(name, ACCESS_ACL) == 0)
        start(req, getxattr_run, NULL, name, size);
    else
        (void)fuse_reply_err(req, ENODATA);
}

void by_id_opendir(fuse_req_t req, struct fuse_file_info *fi)
{
    start(req, opendir_run, fi, NULL, 0);
}

/* ---- its links ---- */

/* The same for a name as long as this process lives, and a positive off_t. */
static uint64_t link_ino(const char *stored)
{
    uint64_t ino = hash_bytes(stored, strlen(stored)) & INT64_MAX;

    return ino > INO_CONTROL_LAST ? ino : ino + INO_CONTROL_LAST + 1;
}

static void link_stat(const struct fs *fs, const char *stored, struct stat *ret)
{
    control_stat(fs, S_IFLNK | 0777, ret);
    ret->st_ino = link_ino(stored);
    ret->st_size = (off_t)(strlen(TO_ROOT) + strlen(stored));
}

/* The root's name for the run; -ENOENT for what is the spelling of no id. */
static int stored_name(const struct fs *fs, const char *id, char ret[PATH_NAME_MAX + 1])
{
    size_t len;

    if (codec_write(fs->config.raw_names, id, strlen(id), ret, &len) < 0)
        return -ENOENT;
    ret[len] = '\0';
    return 0;
}

/* Whether the root has a directory of that name. */
static int find_run(struct pending *p, const char *stored)
{
    struct node *node;
    struct stat st;
    int r = cache_lookup(p->fs->cache, p->node, stored, &p->waiter, &node, &st);

    if (r)
        return r;
    cache_forget(p->fs->cache, node, 1);
    return S_ISDIR(st.st_mode) ? 0 : -ENOENT;
}

static int run_lookup(struct pending *p)
{
    struct fs *fs = p->fs;
    struct fuse_entry_param e = {.attr_timeout = fs->attr_timeout, .entry_timeout = NOTHING};
    char stored[PATH_NAME_MAX + 1];
    int r = stored_name(fs, p->name, stored);

    if (r == 0)
        r = find_run(p, stored);
    if (r == 0)
        r = links_take(&fs->links, stored, &e.ino);
    if (r)
        return r;
    link_stat(fs, stored, &e.attr);
    if (answer_entry_param(p, &e) < 0)
        links_forget(&fs->links, e.ino, 1);
    return 0;
}

void by_id_lookup(fuse_req_t req, const char *id)
{
    start(req, run_lookup, NULL, id, 0);
}

void by_id_getattr(fuse_req_t req, fuse_ino_t ino)
{
    struct fs *fs = fs_of(req);
    char stored[PATH_NAME_MAX + 1];
    struct stat st;

    if (!links_name(&fs->links, ino, stored)) {
        (void)fuse_reply_err(req, ESTALE);
        return;
    }
    link_stat(fs, stored, &st);
    (void)fuse_reply_attr(req, &st, fs->attr_timeout);
}

void by_id_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char stored[PATH_NAME_MAX + 1];
    char target[sizeof(TO_ROOT) + PATH_NAME_MAX];

    if (!links_name(&fs_of(req)->links, ino, stored)) {
        (void)fuse_reply_err(req, ESTALE);
        return;
    }
    (void)snprintf(target, sizeof(target), TO_ROOT "%s", stored);
    (void)fuse_reply_readlink(req, target);
}

/* ---- its listing ---- */

struct listing {
    struct pending *p;
    struct buf id; /* of the name that is visited */
    char *buf;
    size_t used;
    int err; /* the listing would be shorter than it is */
};

/* How the name of the root is listed. -ENOENT: not at all. */
static int show(struct listing *l, const char *name, const struct stat *st, struct stat *ret)
{
    bool here = strcmp(name, ".") == 0, above = strcmp(name, "..") == 0;

    memset(ret, 0, sizeof(*ret));
    buf_clear(&l->id);
    if (here || above) {
        ret->st_ino = here ? INO_CONTROL_BY_ID : INO_CONTROL_DIR;
        ret->st_mode = S_IFDIR;
        return buf_adds(&l->id, name);
    }
    ret->st_ino = link_ino(name);
    ret->st_mode = S_IFLNK;
    return S_ISDIR(st->st_mode)
               ? codec_decode(l->p->fs->config.raw_names, name, strlen(name), &l->id)
               : -ENOENT;
}

static int visit(void *arg, const char *name, struct node *node, const struct stat *st,
                 uint64_t next)
{
    struct listing *l = arg;
    struct stat shown;
    int r = show(l, name, st, &shown);

    (void)node;
    if (r == -ENOENT)
        return 0;
    if (r)
        return l->err = r;
    size_t need = control_add_entry(l->p->req, l->buf + l->used, l->p->size - l->used,
                                    l->id.data, &shown, next, l->p->flags != 0);
    if (need > l->p->size - l->used)
        return 1;
    l->used += need;
    return 0;
}

static int run_readdir(struct pending *p)
{
    struct listing l = {
        .p = p, .id = BUF_INIT(PATH_NAME_MAX + 1), .buf = thread_buffer(p->size)};

    if (!l.buf)
        return -ENOMEM;
    int r = cache_readdir(p->fs->cache, p->file->dir, p->off, false, &p->waiter, visit, &l);
    if (r == 0)
        r = l.err;
    if (r == 0)
        (void)answer_buf(p, l.buf, l.used);
    buf_release(&l.id);
    return r;
}

void by_id_readdir(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
    struct pending *p = pending_new(req, run_readdir, fi);

    if (!p)
        return;
    p->node = p->fs->root;
    p->size = size;
    p->off = (uint64_t)off;
    p->flags = plus;
    pending_start(p);
}
