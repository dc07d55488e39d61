#include "fuse/session.h"

#include "common/buf.h"
#include "common/inherit.h"
#include "common/log.h"
#include "common/mem.h"
#include "fuse/fs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_WRITE (1U << 20)
/* Each background request that waits for the store takes a place, and a read of a complete file
 * must not wait behind them. */
#define MAX_BACKGROUND 4096
#define OPTIONS_MAX    8192
/* The least that is spliced: fewer bytes are copied as fast. */
#define SPLICE_LEAST (256U << 10)
/* What libfuse has beside the bytes of an answer in the pipe they go through: its header, and
 * pages for what is not aligned. */
#define PIPE_MORE (16U << 10)

/* ---- libfuse's log ---- */

/* The last thing libfuse said in this thread: the reason of a failure. */
static __thread char last_message[200];

static void __attribute__((format(printf, 2, 0)))
take_message(enum fuse_log_level level, const char *fmt, va_list ap)
{
    (void)vsnprintf(last_message, sizeof(last_message), fmt, ap);
    last_message[strcspn(last_message, "\n")] = '\0';
    log_line(level == FUSE_LOG_DEBUG ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "%s", last_message);
}

/* ---- what is agreed on with the kernel ---- */

#ifdef HAVE_FUSE_PASSTHROUGH
static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
    return fuse_set_feature_flag(conn, flag);
}

static void want_nothing(struct fuse_conn_info *conn)
{
    fuse_unset_feature_flag(conn, UINT64_MAX);
}
#else
static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
    conn->want |= (unsigned)flag & conn->capable;
    return (conn->capable & flag) != 0;
}

static void want_nothing(struct fuse_conn_info *conn)
{
    conn->want = 0;
}
#endif

/* Passthrough excludes the writeback cache. */
static void init_passthrough(struct fs *fs, struct fuse_conn_info *conn)
{
#ifdef HAVE_FUSE_PASSTHROUGH
    if (atomic_load(&fs->passthrough) && want(conn, FUSE_CAP_PASSTHROUGH)) {
        /* The mirror may lie on an overlay: a stacked filesystem above ours is rarer. */
        conn->max_backing_stack_depth = FUSE_BACKING_STACKED_UNDER;
        return;
    }
#else
    (void)conn;
#endif
    atomic_store(&fs->passthrough, false);
}

/* Needs Linux 6.6. */
static void init_direct(struct fs *fs, struct fuse_conn_info *conn)
{
#ifdef HAVE_FUSE_DIRECT_MMAP
    atomic_store(&fs->direct, want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP));
#else
    (void)conn;
    atomic_store(&fs->direct, false);
#endif
}

/* The content of an answer goes from the mirror's pages to the reader's through a pipe, which
 * is one copy less; without CAP_SYS_RESOURCE a pipe is not larger than
 * /proc/sys/fs/pipe-max-size. libfuse reads into fresh memory when its pipe can't be large
 * enough: worse than none. */
static size_t largest_spliced(void)
{
    int ends[2];
    size_t found = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return 0;
    for (unsigned size = MAX_WRITE; !found && size >= SPLICE_LEAST; size /= 2)
        if (fcntl(ends[0], F_SETPIPE_SZ, (int)(size + PIPE_MORE)) >= (int)(size + PIPE_MORE))
            found = size;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return found;
}

static void init_splice(struct fs *fs, struct fuse_conn_info *conn)
{
    if (!fs->splice_max)
        return;
    conn->max_read = (unsigned)fs->splice_max; /* as in option_list(): libfuse compares them */
    if (!want(conn, FUSE_CAP_SPLICE_WRITE))
        fs->splice_max = 0;
}

/* The kernel enforces ACLs, which it asks for as extended attributes and keeps as long as the
 * attributes; what a new file inherits is ours to find, and with it whether the umask counts.
 */
static void init_acl(struct fs *fs, struct fuse_conn_info *conn)
{
    (void)want(conn, FUSE_CAP_DONT_MASK);
    if (fs->config.acl && !want(conn, FUSE_CAP_POSIX_ACL))
        log_warn("the kernel's FUSE knows no ACLs: they are kept, and not enforced");
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
    struct fs *fs = userdata;

    want_nothing(conn);
    (void)want(conn, FUSE_CAP_ASYNC_READ);
    (void)want(conn, FUSE_CAP_ASYNC_DIO);
    (void)want(conn, FUSE_CAP_PARALLEL_DIROPS);
    (void)want(conn, FUSE_CAP_READDIRPLUS);
    (void)want(conn, FUSE_CAP_READDIRPLUS_AUTO);
    /* A file that is truncated as it is opened needs no download, and opens passthrough. */
    (void)want(conn, FUSE_CAP_ATOMIC_O_TRUNC);
    (void)want(conn, FUSE_CAP_CACHE_SYMLINKS);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    (void)want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2); /* setid.h */
#endif
    /* Not EXPORT_SUPPORT: a file handle of NFS could bring back a node that was forgotten. Not
     * AUTO_INVAL_DATA: pages are dropped by notification and at open, not because our own
     * writes moved the mtime. Not the lock operations: they are the kernel's own. */
    init_acl(fs, conn);
    init_passthrough(fs, conn);
    init_direct(fs, conn);
    init_splice(fs, conn);
    conn->max_write = MAX_WRITE;
    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = MAX_BACKGROUND / 4 * 3;
    conn->time_gran = 1;
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .fsync = op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .fallocate = op_fallocate,
    .copy_file_range = op_copy_file_range,
    .lseek = op_lseek,
#ifdef HAVE_FUSE_TMPFILE
    .tmpfile = op_tmpfile,
#endif
};

/* ---- options ---- */

/* In a list of options "\" keeps the comma that follows. */
static int add_escaped(struct buf *b, const char *s)
{
    int r = 0;

    for (; *s && r == 0; s++) {
        if (*s == ',' || *s == '\\')
            r = buf_addc(b, '\\');
        if (r == 0)
            r = buf_addc(b, *s);
    }
    return r;
}

static char *option_list(const struct fs_config *config, size_t splice_max)
{
    auto_buf struct buf b = BUF_INIT(OPTIONS_MAX);
    char max_read[40] = "";

    if (buf_adds(&b, "subtype=runfs,default_permissions,fsname=") ||
        add_escaped(&b, config->fsname))
        return NULL;
    /* Larger reads of direct I/O come in pieces that can be spliced. */
    if (splice_max)
        (void)snprintf(max_read, sizeof(max_read), ",max_read=%zu", splice_max);
    if (buf_adds(&b, max_read))
        return NULL;
    if (config->allow_other && buf_adds(&b, ",allow_other"))
        return NULL;
    if (config->read_only && buf_adds(&b, ",ro"))
        return NULL;
    if (config->mount_options && *config->mount_options &&
        (buf_addc(&b, ',') || buf_adds(&b, config->mount_options)))
        return NULL;
    return buf_take(&b);
}

int session_new(struct fs *fs, struct op *op)
{
    fs->splice_max = largest_spliced();
    auto_free char *list = option_list(&fs->config, fs->splice_max);
    char program[] = "runfs", dash_o[] = "-o", dash_d[] = "-d";
    char *argv[] = {program, dash_o, list, dash_d, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(fs->config.debug ? 4 : 3, argv);

    if (!list)
        return op_fail(op, -ENOMEM, "mount: no memory for the options, or they are too long");
    fuse_set_log_func(take_message);
    last_message[0] = '\0';
    fs->session = fuse_session_new(&args, &operations, sizeof(operations), fs);
    fuse_opt_free_args(&args);
    if (!fs->session)
        return op_fail(op, -EINVAL, "mount: %s", *last_message ? last_message : "bad option");
    return 0;
}

/* ---- mount ---- */

static int answer_init(struct fs *fs)
{
    struct fuse_buf buf = {0};
    int r = fuse_session_receive_buf(fs->session, &buf);

    if (r > 0) {
        fuse_session_process_buf(fs->session, &buf);
        r = fuse_session_exited(fs->session) ? -EPROTO : 0;
    } else if (r == 0) {
        r = -ENODEV;
    }
    free(buf.mem);
    return r;
}

/* Looks whether the kernel takes a backing file, with one that has no name. */
static void probe_passthrough(struct fs *fs)
{
    if (!atomic_load(&fs->passthrough))
        return;
    auto_close int fd = memfd_create("runfs", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : backing_probe(fs->session, fd);
    if (r) {
        log_info("the kernel refuses passthrough (%s): files are read and written through the "
                 "daemon",
                 strerror(-r));
        atomic_store(&fs->passthrough, false);
    }
}

static int mount_failed(const struct fs *fs, int err, struct op *op)
{
    const char *reason = last_message;

    /* Without privilege fusermount3 has tried, and has told stderr why not. */
    if (geteuid() != 0) {
        err = EPERM;
        reason = *reason ? reason : "fusermount3 refused";
    }
    err = err ? err : EIO;
    return op_fail(op, -err, "mount: %s: %s", fs->config.mountpoint,
                   *reason ? reason : strerror(err));
}

int session_mount(struct fs *fs, struct op *op)
{
    last_message[0] = '\0';
    inherit_no_descriptors(); /* fusermount3 is started by libfuse */
    errno = 0;
    if (fuse_session_mount(fs->session, fs->config.mountpoint) != 0)
        return mount_failed(fs, errno, op);
    int r = answer_init(fs);
    if (r) {
        fuse_session_unmount(fs->session);
        return op_fail(op, r, "mount: %s: the kernel's FUSE did not start: %s",
                       fs->config.mountpoint, *last_message ? last_message : strerror(-r));
    }
    probe_passthrough(fs);
    return 0;
}

bool session_is_privileged(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}
