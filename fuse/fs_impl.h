/* The frontend from inside: what its files share. */
#ifndef RUNFS_FUSE_FS_IMPL_H
#define RUNFS_FUSE_FS_IMPL_H

#include "fuse/await.h"
#include "fuse/backing.h"
#include "fuse/fs.h"
#include "fuse/kept.h"
#include "fuse/links.h"
#include "fuse/lowlevel.h"
#include "fuse/notify.h"
#include "fuse/pending.h"

/* Inode numbers of the control files. The root has FUSE_ROOT_ID; the lower halves of those of
 * cache_node_id() are above these. Links have INO_LINK for a lower half, what a lock
 * shows INO_LOCKED. */
#define INO_CONTROL_DIR     2
#define INO_CONTROL_STATUS  3
#define INO_CONTROL_METRICS 4
#define INO_CONTROL_BY_ID   5
#define INO_CONTROL_LOCKED  8
#define INO_CONTROL_LAST    15

#define ACCESS_ACL "system.posix_acl_access"

/* A leaf. */
extern struct lock_class files_mutex;

/* An open file or directory as the kernel's file handle names it. What is not guarded is
 * constant once the file is open. */
struct open_file {
    struct open_file *prev GUARDED_BY(files_mutex), *next GUARDED_BY(files_mutex);
    struct handle *handle; /* of a file */
    pid_t opener;          /* the thread that opened it; 0 when it can't be known */
    struct dirhandle *dir; /* of a directory */
    unsigned backing;      /* slot of its backing id; 0: normal mode */
    size_t text_len;       /* of a control file */
    char *text;            /* what a control file says; heap */
};

struct fs {
    struct fs_config config; /* constant; strings are copies */
    double attr_timeout, entry_timeout;
    struct fuse_session *session;
    struct cache *cache; /* from fs_mount() on */
    struct node *root;
    int64_t mounted_ns; /* CLOCK_REALTIME */
    atomic_bool mounted;

    fs_text status, metrics;
    void *text_arg;

    struct parked_list parked;
    struct await_list awaiting;
    struct kept kept;
    struct links links, locked; /* of `.runfs/by-id` and `.runfs/locked` */
    struct notify_queue notify_nodes, notify_entries;
    struct backings backings;

    struct mutex files_lock;
    struct open_file *files GUARDED_BY(files_mutex);

    atomic_bool passthrough; /* opens may be passthrough */
    atomic_bool direct;      /* opens may be direct: those can be mapped, too */
    size_t splice_max; /* constant after the mount; largest answer that is spliced; 0: none */
    atomic_ullong opens_passthrough, opens_normal;

    pthread_t loop;
    atomic_bool looping;
};

static inline struct fs *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* NULL: no node has this id. */
static inline struct node *node_of(struct fs *fs, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? fs->root : cache_node(fs->cache, ino);
}

static inline fuse_ino_t ino_of(const struct fs *fs, const struct node *node)
{
    return node == fs->root ? FUSE_ROOT_ID : cache_node_id(fs->cache, node);
}

static inline bool ino_is_control(fuse_ino_t ino)
{
    return (uint32_t)ino >= INO_CONTROL_DIR && (uint32_t)ino <= INO_CONTROL_LAST;
}

/* What an answer says of a node. */
void entry_fill(const struct fs *fs, struct node *node, const struct stat *st,
                struct fuse_entry_param *ret);

/* The kernel's attributes of the node are no longer true. Unlike with pages and entries the
 * kernel takes no lock for this, so it may be called from anywhere. */
void kernel_forget_attr(struct fs *fs, struct node *node);

/* Puts a new open file, whose fields are still empty, on the list. NULL without memory. */
struct open_file *open_file_new(struct fs *fs);
/* Takes it off the list, closes what it holds and frees it. */
void open_file_free(struct fs *fs, struct open_file *f);

static inline struct open_file *open_file_of(const struct fuse_file_info *fi)
{
    return fi ? (struct open_file *)(uintptr_t)fi->fh : NULL;
}

/* The kernel ends an open file when all its answers are there. TSan sees that order by read()
 * and write(), but not by splice(), and is told. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define FILE_IS_ANSWERED(file) __tsan_release(file)
#define FILE_IS_ENDED(file)    __tsan_acquire(file)
#else
#define FILE_IS_ANSWERED(file) ((void)(file))
#define FILE_IS_ENDED(file)    ((void)(file))
#endif

/* A buffer of this thread's own, of at least `size` bytes; NULL without memory. */
void *thread_buffer(size_t size);

/* ---- op_meta.c ---- */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

/* ---- op_xattr.c ---- */
/* Answers with the attribute p->name of p->node, of p->size bytes at most. */
int getxattr_run(struct pending *p);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                 size_t size, int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* ---- op_dir.c ---- */
/* Opens p->node as a directory, and answers. */
int opendir_run(struct pending *p);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
               const char *newname, unsigned int flags);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ---- op_open.c ---- */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* ---- op_file.c ---- */
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
              struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                  struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
                        struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
                        struct fuse_file_info *fi_out, size_t len, int flags);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);

#endif
