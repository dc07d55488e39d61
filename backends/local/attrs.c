/* What a local file's inode says, to and from a store's object. */
#include "backends/local/local.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define XATTR_PREFIX "user."
#define ORIGIN_XATTR "user.runfs.origin"
#define ORIGIN_MAX   64
#define ACL_PREFIX   "system.posix_acl_"
#define FILE_MODE    0644
#define DIR_MODE     0755

/* The system calls for xattrs take no directory descriptor: this path stands for one. */
#define FD_PATH_MAX (NAME_MAX + 64)

static void fd_path(char path[FD_PATH_MAX], int dirfd, const char *name)
{
    (void)snprintf(path, FD_PATH_MAX, "/proc/self/fd/%d/%s", dirfd, name);
}

/* ---- reading ---- */

static int64_t time_ns(const struct statx_timestamp *t)
{
    return t->tv_sec * NS_PER_SEC + t->tv_nsec;
}

/* The version of the content: inode, its birth, mtime and size. The birth time tells a reused
 * inode number from the old file; ctime is left out on purpose, so that a version survives
 * rename and chmod. What it can't see: a file that is written in place and then gets its old
 * mtime back, or the one that is just being set (local_is_version_at()), with its old size, and
 * two writes in place within one tick of the filesystem's clock. runfs itself never writes in
 * place. */
static void format_etag(uint64_t ino, uint64_t birth, uint64_t mtime, uint64_t size,
                        char etag[STORE_ETAG_MAX])
{
    (void)snprintf(etag, STORE_ETAG_MAX, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64, ino,
                   birth, mtime, size);
}

static void fill_etag(const struct statx *st, char etag[STORE_ETAG_MAX])
{
    uint64_t birth = st->stx_mask & STATX_BTIME ? (uint64_t)time_ns(&st->stx_btime) : 0;

    format_etag(st->stx_ino, birth, (uint64_t)time_ns(&st->stx_mtime), st->stx_size, etag);
}

bool local_is_version_at(const char *there, const char *etag, int64_t mtime_ns)
{
    uint64_t ino, birth, mtime, size;
    char moved[STORE_ETAG_MAX];

    if (sscanf(etag, "%" SCNx64 "-%" SCNx64 "-%" SCNx64 "-%" SCNx64, &ino, &birth, &mtime,
               &size) != 4)
        return false;
    format_etag(ino, birth, (uint64_t)mtime_ns, size, moved);
    return strcmp(there, moved) == 0;
}

static void fill_object(const struct statx *st, struct object *obj)
{
    *obj = (struct object){
        .mtime_ns = time_ns(&st->stx_mtime),
        .is_prefix = S_ISDIR(st->stx_mode),
        .has_marker = S_ISDIR(st->stx_mode),
        .attrs_known = true,
        .attrs = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                  .mode = st->stx_mode,
                  .uid = st->stx_uid,
                  .gid = st->stx_gid,
                  .mtime_ns = time_ns(&st->stx_mtime)},
    };
    if (S_ISREG(st->stx_mode))
        obj->size = st->stx_size;
    if (S_ISCHR(st->stx_mode) || S_ISBLK(st->stx_mode)) {
        obj->attrs.has |= ATTR_RDEV;
        obj->attrs.rdev = makedev(st->stx_rdev_major, st->stx_rdev_minor);
    }
    fill_etag(st, obj->etag);
}

static int read_target(int dirfd, const char *name, struct attrs *a)
{
    char target[PATH_MAX];

    ssize_t n = readlinkat(dirfd, name, target, sizeof(target));
    if (n < 0)
        return -errno;
    a->target = strndup(target, (size_t)n);
    if (!a->target)
        return -ENOMEM;
    a->has |= ATTR_TARGET;
    return 0;
}

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_origin(const char *name)
{
    return strcmp(name, ORIGIN_XATTR) == 0;
}

/* "security." and "trusted." from a store would be acted on by the kernel; the two ACLs are as
 * the mode. */
static bool is_kept(const char *name)
{
    return (starts_with(name, XATTR_PREFIX) && !is_origin(name)) ||
           strcmp(name, ACL_PREFIX "access") == 0 || strcmp(name, ACL_PREFIX "default") == 0;
}

/* Whether there is a note of who put it, and for which time. */
static bool read_note(const char *path, struct attrs *a, int64_t *ret_mtime_ns)
{
    char text[ORIGIN_MAX];
    int end = -1;

    ssize_t n = lgetxattr(path, ORIGIN_XATTR, text, sizeof(text) - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    return sscanf(text, "%" SCNx64 ".%" SCNd64 " %" SCNd64 "%n", &a->origin, &a->origin_ns,
                  ret_mtime_ns, &end) == 3 &&
           end == n;
}

/* Who writes the file in place leaves the note as it is: it counts with the time that it was
 * made for. */
static void read_origin(const char *path, struct attrs *a)
{
    int64_t mtime_ns;

    if (read_note(path, a, &mtime_ns) && mtime_ns == a->mtime_ns)
        a->has |= ATTR_ORIGIN;
}

static int add_xattr(json_t *all, const char *path, const char *name)
{
    unsigned char value[XATTR_SIZE_MAX];
    auto_free char *text = NULL;

    ssize_t n = lgetxattr(path, name, value, sizeof(value));
    if (n < 0)
        return errno == ENODATA ? 0 : -errno;
    text = malloc(4 * ((size_t)n + 2) / 3 + 4);
    if (!text)
        return -ENOMEM;
    EVP_EncodeBlock((unsigned char *)text, value, (int)n);
    /* A name that is not UTF-8 can't be said in JSON; no such name can be kept by a store. */
    (void)json_object_set_new(all, name, json_string(text));
    return 0;
}

static int read_xattrs(int dirfd, const char *name, struct attrs *a)
{
    char path[FD_PATH_MAX], names[XATTR_LIST_MAX];
    int r = 0;

    fd_path(path, dirfd, name);
    ssize_t len = llistxattr(path, names, sizeof(names));
    if (len < 0)
        return errno == EOPNOTSUPP || errno == EPERM ? 0 : -errno;
    json_t *all = json_object();
    if (!all)
        return -ENOMEM;
    for (const char *p = names; !r && p < names + len; p += strlen(p) + 1)
        if (is_origin(p))
            read_origin(path, a);
        else if (is_kept(p))
            r = add_xattr(all, path, p);
    if (!r && json_object_size(all)) {
        a->xattrs = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
        a->has |= ATTR_XATTRS;
        if (!a->xattrs)
            r = -ENOMEM;
    }
    json_decref(all);
    return r;
}

#define STATX_WANTED (STATX_BASIC_STATS | STATX_BTIME)

int local_describe(int dirfd, const char *name, struct object *ret)
{
    struct statx st;
    struct object obj;
    int r = 0;

    if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_WANTED, &st) < 0)
        /* Nothing can have a name that is too long. */
        return errno == ENAMETOOLONG ? -ENOENT : local_errno(errno);
    fill_object(&st, &obj);
    if (S_ISLNK(st.stx_mode))
        r = read_target(dirfd, name, &obj.attrs);
    else
        r = read_xattrs(dirfd, name, &obj.attrs);
    if (r < 0)
        object_release(&obj);
    else
        *ret = obj;
    return r;
}

int local_describe_fd(int fd, struct object *ret)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_WANTED, &st) < 0)
        return -errno;
    fill_object(&st, ret);
    return 0;
}

/* ---- writing ---- */

/* Whether the owner is now as asked. Only root may give files away; a store of another user
 * keeps them as its own. */
static int apply_owner(int dirfd, const char *name, const struct attrs *a, bool *ret_done)
{
    *ret_done = true;
    if (!a || !(a->has & ATTR_OWNER))
        return 0;
    if (fchownat(dirfd, name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    *ret_done = false;
    return errno == EPERM || errno == EINVAL ? 0 : -errno;
}

/* Through a descriptor: the name may meanwhile stand for a symlink. */
static int change_mode(int dirfd, const char *name, mode_t mode)
{
    char path[FD_PATH_MAX];

    auto_close int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return -ELOOP;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return chmod(path, mode) < 0 ? -errno : 0;
}

static int apply_mode(int dirfd, const char *name, const struct statx *st,
                      const struct attrs *a, bool is_new, bool owner_done)
{
    bool says = a && (a->has & ATTR_MODE);
    mode_t mode = S_ISDIR(st->stx_mode) ? DIR_MODE : FILE_MODE;

    if (S_ISLNK(st->stx_mode) || (!says && !is_new))
        return 0;
    if (says)
        mode = a->mode & 07777;
    /* Another's set-user-id bit must not lend the daemon's identity. */
    if (!owner_done)
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    return change_mode(dirfd, name, mode);
}

static int remove_xattrs(const char *path)
{
    char names[XATTR_LIST_MAX];

    ssize_t len = llistxattr(path, names, sizeof(names));
    if (len < 0)
        return errno == EOPNOTSUPP || errno == EPERM ? 0 : -errno;
    for (const char *p = names; p < names + len; p += strlen(p) + 1) {
        if (is_kept(p) && lremovexattr(path, p) < 0 && errno != ENODATA)
            return -errno;
    }
    return 0;
}

/* Decodes base64 into `value`; the length or -EINVAL. */
static ssize_t decode_value(const char *text, unsigned char **ret)
{
    size_t len = strlen(text), pad = 0;
    unsigned char *value = malloc(len + 1);

    if (!value)
        return -ENOMEM;
    if (len % 4 || len > 2 * XATTR_SIZE_MAX) {
        free(value);
        return -EINVAL;
    }
    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    int n = len ? EVP_DecodeBlock(value, (const unsigned char *)text, (int)len) : 0;
    if (n < 0 || (size_t)n < pad) {
        free(value);
        return -EINVAL;
    }
    *ret = value;
    return (ssize_t)((size_t)n - pad);
}

static int set_xattr(const char *path, const char *name, const char *text)
{
    auto_free unsigned char *value = NULL;

    ssize_t n = decode_value(text, &value);
    if (n < 0)
        return (int)n;
    if (lsetxattr(path, name, value, (size_t)n, 0) == 0)
        return 0;
    /* What is no ACL came from another store, and nobody could use it. */
    return errno == EINVAL && starts_with(name, ACL_PREFIX) ? 0 : -errno;
}

static int set_xattrs(const char *path, const char *text)
{
    const char *name;
    json_t *value;
    int r = 0;

    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(all))
        r = -EINVAL;
    else
        json_object_foreach(all, name, value)
        {
            if (is_kept(name) && !r)
                r = json_is_string(value) ? set_xattr(path, name, json_string_value(value))
                                          : -EINVAL;
        }
    json_decref(all);
    return r;
}

/* Also of a new one: its folder may have handed an ACL on. */
static int apply_xattrs(int dirfd, const char *name, const struct statx *st,
                        const struct attrs *a)
{
    char path[FD_PATH_MAX];

    if (!a || S_ISLNK(st->stx_mode))
        return 0;
    fd_path(path, dirfd, name);
    int r = remove_xattrs(path);
    if (!r && (a->has & ATTR_XATTRS) && a->xattrs)
        r = set_xattrs(path, a->xattrs);
    return r;
}

int local_apply_mtime(int dirfd, const char *name, const struct attrs *a)
{
    if (!a || !(a->has & ATTR_MTIME))
        return 0;

    int64_t sec = a->mtime_ns / NS_PER_SEC, ns = a->mtime_ns % NS_PER_SEC;
    if (ns < 0) {
        sec--;
        ns += NS_PER_SEC;
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = sec, .tv_nsec = ns}};
    return utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

void local_apply_origin(int dirfd, const char *name, const struct attrs *a)
{
    char path[FD_PATH_MAX], text[ORIGIN_MAX];
    struct statx st;

    /* The time as the filesystem keeps it. */
    if (!a || !(a->has & ATTR_ORIGIN) ||
        statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) < 0)
        return;
    fd_path(path, dirfd, name);
    int len = snprintf(text, sizeof(text), "%016" PRIx64 ".%" PRId64 " %" PRId64, a->origin,
                       a->origin_ns, time_ns(&st.stx_mtime));
    /* A symlink takes none, nor may a file of another user, or one without room for it. */
    (void)lsetxattr(path, ORIGIN_XATTR, text, (size_t)len, 0);
}

void local_renew_origin(int dirfd, const char *name)
{
    struct attrs a = {.has = ATTR_ORIGIN};
    char path[FD_PATH_MAX];
    int64_t mtime_ns;

    fd_path(path, dirfd, name);
    if (read_note(path, &a, &mtime_ns))
        local_apply_origin(dirfd, name, &a);
}

int local_apply_attrs(int dirfd, const char *name, const struct attrs *a, bool is_new)
{
    bool owner_done;
    struct statx st;

    if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) < 0)
        return -errno;
    int r = apply_owner(dirfd, name, a, &owner_done);
    if (!r)
        r = apply_xattrs(dirfd, name, &st, a);
    if (!r)
        r = apply_mode(dirfd, name, &st, a, is_new, owner_done);
    if (!r)
        r = local_apply_mtime(dirfd, name, a);
    if (!r)
        local_apply_origin(dirfd, name, a);
    return r;
}

bool local_has_origins(int dirfd)
{
    return fgetxattr(dirfd, ORIGIN_XATTR, NULL, 0) >= 0 || errno == ENODATA;
}

bool local_has_acls(int dirfd)
{
    return fgetxattr(dirfd, ACL_PREFIX "access", NULL, 0) >= 0 || errno == ENODATA;
}
