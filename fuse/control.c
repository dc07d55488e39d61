#include "fuse/control.h"

#include "common/mem.h"
#include "common/op.h"
#include "fuse/by_id.h"
#include "fuse/fs_impl.h"
#include "fuse/locked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    fuse_ino_t ino;
    const char *name;
} files[] = {
    {INO_CONTROL_STATUS, "status.json"},
    {INO_CONTROL_METRICS, "metrics"},
    {INO_CONTROL_BY_ID, BY_ID_NAME},
    {INO_CONTROL_LOCKED, LOCKED_NAME},
};

static fs_text text_of(const struct fs *fs, fuse_ino_t ino)
{
    return ino == INO_CONTROL_STATUS    ? fs->status
           : ino == INO_CONTROL_METRICS ? fs->metrics
                                        : NULL;
}

static bool is_there(const struct fs *fs, fuse_ino_t ino)
{
    return ino == INO_CONTROL_BY_ID    ? fs->config.raw_names != CODEC_NONE
           : ino == INO_CONTROL_LOCKED ? true
                                       : text_of(fs, ino) != NULL;
}

/* What has that name in `.runfs`, or 0. */
static fuse_ino_t ino_by_name(const struct fs *fs, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (strcmp(files[i].name, name) == 0)
            return is_there(fs, files[i].ino) ? files[i].ino : 0;
    return 0;
}

void control_stat(const struct fs *fs, mode_t mode, struct stat *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->st_mode = mode;
    ret->st_uid = geteuid();
    ret->st_gid = getegid();
    ret->st_nlink = S_ISDIR(mode) ? 2 : 1;
    ret->st_blksize = 4096;
    ret->st_mtim.tv_sec = fs->mounted_ns / NS_PER_SEC;
    ret->st_mtim.tv_nsec = fs->mounted_ns % NS_PER_SEC;
    ret->st_atim = ret->st_ctim = ret->st_mtim;
}

static bool is_dir(fuse_ino_t ino)
{
    return ino == INO_CONTROL_DIR || ino == INO_CONTROL_BY_ID || ino == INO_CONTROL_LOCKED;
}

static void fill_stat(const struct fs *fs, fuse_ino_t ino, struct stat *st)
{
    /* The status names files of directories that may be closed to others; a lock shows them. */
    control_stat(fs,
                 ino == INO_CONTROL_LOCKED   ? S_IFDIR | 0500
                 : is_dir(ino)               ? S_IFDIR | 0555
                 : ino == INO_CONTROL_STATUS ? S_IFREG | 0400
                                             : S_IFREG | 0444,
                 st);
    st->st_ino = ino;
}

bool control_claims(fuse_ino_t parent, const char *name)
{
    return ino_is_control(parent) ||
           (parent == FUSE_ROOT_ID && strcmp(name, CONTROL_NAME) == 0);
}

void control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fs *fs = fs_of(req);
    struct fuse_entry_param e = {.attr_timeout = fs->attr_timeout};

    if (parent == INO_CONTROL_BY_ID) {
        by_id_lookup(req, name);
        return;
    }
    if (parent == INO_CONTROL_LOCKED || ino_is_locked(parent)) {
        locked_lookup(req, parent, name);
        return;
    }
    e.entry_timeout = fs->entry_timeout;
    e.ino = parent == FUSE_ROOT_ID ? INO_CONTROL_DIR : ino_by_name(fs, name);
    if (e.ino == 0) {
        (void)fuse_reply_err(req, ENOENT);
        return;
    }
    if (e.ino == INO_CONTROL_BY_ID) {
        by_id_lookup_dir(req);
        return;
    }
    fill_stat(fs, e.ino, &e.attr);
    (void)fuse_reply_entry(req, &e);
}

void control_getattr(fuse_req_t req, fuse_ino_t ino)
{
    struct fs *fs = fs_of(req);
    struct stat st;

    if (ino == INO_CONTROL_BY_ID) {
        by_id_getattr_dir(req);
    } else if (ino_is_link(ino)) {
        by_id_getattr(req, ino);
    } else if (ino_is_locked(ino)) {
        locked_getattr(req, ino);
    } else {
        fill_stat(fs, ino, &st);
        (void)fuse_reply_attr(req, &st, fs->attr_timeout);
    }
}

void control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    if (ino == INO_CONTROL_BY_ID)
        by_id_getxattr_dir(req, name, size);
    else
        (void)fuse_reply_err(req, ENODATA);
}

void control_readlink(fuse_req_t req, fuse_ino_t ino)
{
    if (ino_is_link(ino))
        by_id_readlink(req, ino);
    else if (ino_is_locked(ino))
        locked_readlink(req, ino);
    else
        (void)fuse_reply_err(req, EINVAL);
}

void control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fs *fs = fs_of(req);
    fs_text write_text = text_of(fs, ino);

    if ((fi->flags & O_ACCMODE) != O_RDONLY) {
        (void)fuse_reply_err(req, EACCES);
        return;
    }
    if (ino_is_locked(ino)) {
        locked_open(req, ino, fi);
        return;
    }
    struct open_file *f = open_file_new(fs);
    if (f)
        f->text = write_text ? write_text(fs->text_arg) : NULL;
    if (!f || !f->text) {
        open_file_free(fs, f);
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    f->text_len = strlen(f->text);
    fi->fh = (uintptr_t)f;
    /* The size in the attributes is 0; direct reads go on until the text ends. */
    fi->direct_io = 1;
    if (fuse_reply_open(req, fi) < 0)
        open_file_free(fs, f);
}

void control_read(fuse_req_t req, struct fuse_file_info *fi, size_t size, off_t off)
{
    const struct open_file *f = open_file_of(fi);
    size_t at = (uint64_t)off < f->text_len ? (size_t)off : f->text_len;
    size_t left = f->text_len - at;
    size_t len = size < left ? size : left;
    /* A copy: the reader may close, and the release free the text, while the reply is written.
     */
    auto_free char *copy = malloc(len ? len : 1);

    if (!copy) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    memcpy(copy, f->text + at, len);
    (void)fuse_reply_buf(req, copy, len);
}

void control_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino == INO_CONTROL_BY_ID) {
        by_id_opendir(req, fi);
        return;
    }
    if (ino_is_locked(ino) || ino == INO_CONTROL_LOCKED) {
        locked_opendir(req, ino, fi);
        return;
    }
    fi->fh = 0;
    (void)fuse_reply_open(req, fi);
}

/* Entry `i` of the listing: ".", "..", then what is there. */
static const char *entry_at(const struct fs *fs, size_t i, struct stat *st)
{
    if (i < 2) {
        fill_stat(fs, i == 0 ? INO_CONTROL_DIR : FUSE_ROOT_ID, st);
        st->st_mode = S_IFDIR | 0555;
        return i == 0 ? "." : "..";
    }
    fill_stat(fs, files[i - 2].ino, st);
    return is_there(fs, files[i - 2].ino) ? files[i - 2].name : NULL;
}

size_t control_add_entry(fuse_req_t req, char *buf, size_t room, const char *name,
                         const struct stat *st, uint64_t next, bool plus)
{
    /* Node id 0: the kernel looks the name up when it wants more. */
    struct fuse_entry_param e = {.attr = *st};

    return plus ? fuse_add_direntry_plus(req, buf, room, name, &e, (off_t)next)
                : fuse_add_direntry(req, buf, room, name, st, (off_t)next);
}

static void list_files(fuse_req_t req, size_t size, off_t off, bool plus)
{
    const struct fs *fs = fs_of(req);
    char buf[1024];
    size_t room = size < sizeof(buf) ? size : sizeof(buf);
    size_t used = 0;

    for (size_t i = (size_t)off; i < ARRAY_SIZE(files) + 2; i++) {
        struct stat st;
        const char *name = entry_at(fs, i, &st);
        if (!name)
            continue;
        size_t need = control_add_entry(req, buf + used, room - used, name, &st, i + 1, plus);
        if (need > room - used)
            break;
        used += need;
    }
    (void)fuse_reply_buf(req, buf, used);
}

void control_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     struct fuse_file_info *fi, bool plus)
{
    if (ino == INO_CONTROL_BY_ID)
        by_id_readdir(req, size, off, fi, plus);
    else if (ino_is_locked(ino) || ino == INO_CONTROL_LOCKED)
        locked_readdir(req, ino, size, off, fi, plus);
    else
        list_files(req, size, off, plus);
}
