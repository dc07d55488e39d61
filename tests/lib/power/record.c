/* Notes the calls that change the files below a directory; see disk.h. */
#include "tests/lib/power/disk.h"

#include "common/mem.h"

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NS_PER_SEC INT64_C(1000000000)

/* Of the program's own symbols only such ones stand before a library's. */
#define BEFORE_LIBC __attribute__((visibility("default")))

/* The function that this one stands before. Its name is the symbol's, which has 64 behind it
 * where files may be large. */
#define NEXT(ret, fn, symbol)                                                                  \
    static __typeof__(&(fn)) ret;                                                              \
    if (!(ret))                                                                                \
    *(void **)&(ret) = dlsym(RTLD_NEXT, symbol)

static struct {
    pthread_mutex_t lock; /* a call and its note are one */
    bool on;
    dev_t dev;
    struct known {
        ino_t ino;
        unsigned id;
    } * known;
    size_t n_known, cap_known;
    struct disk_record r;
} rec = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    (void)pthread_mutex_lock(&rec.lock);
}

/* errno is the call's. */
static void unlock(void)
{
    int err = errno;

    (void)pthread_mutex_unlock(&rec.lock);
    errno = err;
}

static int real_fstat(int fd, struct stat *st)
{
    NEXT(next, fstat, "fstat64");
    return next(fd, st);
}

/* ---- inodes ---- */

/* 0: none below the directory. */
static unsigned id_of(const struct stat *st)
{
    if (!rec.on || st->st_dev != rec.dev)
        return 0;
    for (size_t i = rec.n_known; i-- > 0;)
        if (rec.known[i].ino == st->st_ino)
            return rec.known[i].id;
    return 0;
}

static unsigned new_id(const struct stat *st)
{
    ck_assert(!array_grow(rec.known, rec.cap_known, rec.n_known + 1));
    rec.known[rec.n_known++] = (struct known){st->st_ino, ++rec.r.ids};
    return rec.r.ids;
}

static unsigned id_of_fd(int fd)
{
    struct stat st;

    return rec.on && real_fstat(fd, &st) == 0 ? id_of(&st) : 0;
}

/* A name that a call is about. */
struct spot {
    unsigned dir; /* 0: none of ours */
    char name[256];
    bool there;
    struct stat st; /* of what is there */
};

static struct spot spot_at(int dir_fd, const char *path)
{
    struct spot s = {.dir = 0};
    const char *slash = strrchr(path, '/');
    char dir[4096] = ".";
    struct stat st;
    int err = errno;

    if (!rec.on)
        return s;
    if (slash)
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash == path ? 1 : slash - path), path);
    bool found = !slash && dir_fd != AT_FDCWD ? real_fstat(dir_fd, &st) == 0
                                              : fstatat(dir_fd, dir, &st, 0) == 0;
    if (found)
        s.dir = id_of(&st);
    (void)snprintf(s.name, sizeof(s.name), "%s", slash ? slash + 1 : path);
    s.there = s.dir && fstatat(dir_fd, path, &s.st, AT_SYMLINK_NOFOLLOW) == 0;
    errno = err;
    return s;
}

/* ---- times ---- */

/* Inodes that are told to have changed at another time, until they change again. */
static struct {
    struct told {
        dev_t dev;
        ino_t ino;
        int64_t real_ns, told_ns;
    } * v;
    size_t n, cap;
} told;

static int64_t ns_of(struct timespec t)
{
    return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

static int64_t ctime_of(const struct stat *st)
{
    for (size_t i = 0; i < told.n; i++) {
        const struct told *t = &told.v[i];
        if (t->ino == st->st_ino && t->dev == st->st_dev && t->real_ns == ns_of(st->st_ctim))
            return t->told_ns;
    }
    return ns_of(st->st_ctim);
}

void disk_ctimes_clear(void)
{
    told.n = 0;
}

void disk_ctime_is(const char *path, int64_t ctime_ns)
{
    struct stat st;

    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(!array_grow(told.v, told.cap, told.n + 1));
    told.v[told.n++] = (struct told){st.st_dev, st.st_ino, ns_of(st.st_ctim), ctime_ns};
}

BEFORE_LIBC int fstat(int fd, struct stat *st)
{
    int r = real_fstat(fd, st);

    if (r == 0 && told.n) {
        int64_t ns = ctime_of(st);
        st->st_ctim = (struct timespec){ns / NS_PER_SEC, ns % NS_PER_SEC};
    }
    return r;
}

/* ---- notes ---- */

static struct disk_op *note(enum disk_kind kind, unsigned id)
{
    ck_assert(!array_grow(rec.r.op, rec.r.cap, rec.r.n + 1));
    struct disk_op *op = &rec.r.op[rec.r.n++];
    *op = (struct disk_op){.kind = kind, .id = id};
    return op;
}

static void note_stat(struct disk_op *op, const struct stat *st)
{
    op->size = (uint64_t)st->st_size;
    op->mtime_ns = ns_of(st->st_mtim);
    op->ctime_ns = ctime_of(st);
}

static void note_fd(struct disk_op *op, int fd)
{
    struct stat st;
    int err = errno;

    if (real_fstat(fd, &st) == 0)
        note_stat(op, &st);
    errno = err;
}

static void note_data(struct disk_op *op, const void *data, size_t len)
{
    op->data = malloc(len + 1);
    ck_assert_ptr_nonnull(op->data);
    memcpy(op->data, data, len);
    op->len = len;
}

static void note_write(int fd, const void *data, size_t len, uint64_t off)
{
    unsigned id = id_of_fd(fd);

    if (!id || !len)
        return;
    struct disk_op *op = note(DISK_WRITE, id);
    op->off = off;
    note_data(op, data, len);
    note_fd(op, fd);
}

static void note_size(int fd)
{
    unsigned id = id_of_fd(fd);

    if (!id)
        return;
    struct disk_op *op = note(DISK_SIZE, id);
    note_fd(op, fd);
    op->off = op->size;
}

static void note_made(const struct spot *s, const struct stat *st)
{
    struct disk_op *op = note(DISK_MAKE, new_id(st));

    op->is_dir = S_ISDIR(st->st_mode);
    op->dir = s->dir;
    op->name = s->dir ? strdup(s->name) : NULL;
    note_stat(op, st);
}

static void note_opened(int fd, const struct spot *s, int flags)
{
    struct stat st;

    if (fd < 0 || !s->dir || real_fstat(fd, &st) < 0)
        return;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        note_made(&(struct spot){.dir = 0}, &st);
    else if (!s->there)
        note_made(s, &st);
    else if (flags & O_TRUNC)
        note_size(fd);
}

static void note_moved(enum disk_kind kind, const struct stat *from_st, const struct spot *from,
                       const struct spot *to, bool exchange)
{
    unsigned id = id_of(from_st);

    if (!id || !to->dir)
        return;
    struct disk_op *op = note(kind, id);
    op->is_dir = S_ISDIR(from_st->st_mode);
    op->exchange = exchange;
    op->other = to->there ? id_of(&to->st) : 0;
    op->dir = from ? from->dir : 0;
    op->name = from ? strdup(from->name) : NULL;
    op->to_dir = to->dir;
    op->to_name = strdup(to->name);
    note_stat(op, from_st);
}

static void note_removed(const struct spot *s)
{
    unsigned id = s->there ? id_of(&s->st) : 0;

    if (!id)
        return;
    struct disk_op *op = note(DISK_REMOVE, id);
    op->is_dir = S_ISDIR(s->st.st_mode);
    op->dir = s->dir;
    op->name = strdup(s->name);
    note_stat(op, &s->st);
}

static void note_xattr(int fd, const char *name, const void *data, size_t len)
{
    unsigned id = id_of_fd(fd);

    if (!id)
        return;
    struct disk_op *op = note(DISK_XATTR, id);
    op->name = strdup(name);
    if (data)
        note_data(op, data, len);
    note_fd(op, fd);
}

static void note_sync(enum disk_kind kind, int fd)
{
    unsigned id = id_of_fd(fd);

    if (id)
        (void)note(kind, id);
}

/* ---- libc's names ---- */

static bool changes(int flags)
{
    return (flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_OF(flags, mode)                                                                   \
    do {                                                                                       \
        va_list ap_;                                                                           \
        va_start(ap_, flags);                                                                  \
        (mode) = changes(flags) ? va_arg(ap_, mode_t) : 0;                                     \
        va_end(ap_);                                                                           \
    } while (0)

BEFORE_LIBC int openat(int dir_fd, const char *path, int flags, ...)
{
    NEXT(next, openat, "openat64");
    mode_t mode;

    MODE_OF(flags, mode);
    if (!changes(flags))
        return next(dir_fd, path, flags);
    lock();
    struct spot s = spot_at(dir_fd, path);
    int fd = next(dir_fd, path, flags, mode);
    note_opened(fd, &s, flags);
    unlock();
    return fd;
}

BEFORE_LIBC int open(const char *path, int flags, ...)
{
    NEXT(next, open, "open64");
    mode_t mode;

    MODE_OF(flags, mode);
    if (!changes(flags))
        return next(path, flags);
    lock();
    struct spot s = spot_at(AT_FDCWD, path);
    int fd = next(path, flags, mode);
    note_opened(fd, &s, flags);
    unlock();
    return fd;
}

/* openat2() has no name in libc. */
BEFORE_LIBC long syscall(long number, ...)
{
    NEXT(next, syscall, "syscall");
    va_list ap;
    long a[6];

    va_start(ap, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    const struct open_how *how = number == SYS_openat2 ? (const void *)a[2] : NULL;
    if (!how || !changes((int)how->flags))
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    lock();
    struct spot s = spot_at((int)a[0], (const char *)a[1]);
    long fd = next(number, a[0], a[1], a[2], a[3]);
    note_opened((int)fd, &s, (int)how->flags);
    unlock();
    return fd;
}

BEFORE_LIBC ssize_t pwrite(int fd, const void *data, size_t len, off_t off)
{
    NEXT(next, pwrite, "pwrite64");

    lock();
    ssize_t n = next(fd, data, len, off);
    if (n > 0)
        note_write(fd, data, (size_t)n, (uint64_t)off);
    unlock();
    return n;
}

BEFORE_LIBC ssize_t write(int fd, const void *data, size_t len)
{
    NEXT(next, write, "write");

    lock();
    ssize_t n = next(fd, data, len);
    if (n > 0 && id_of_fd(fd))
        note_write(fd, data, (size_t)n, (uint64_t)(lseek(fd, 0, SEEK_CUR) - n));
    unlock();
    return n;
}

/* What came is read again. */
BEFORE_LIBC ssize_t copy_file_range(int from, off_t *from_off, int to, off_t *to_off,
                                    size_t len, unsigned flags)
{
    NEXT(next, copy_file_range, "copy_file_range");
    off_t off = to_off ? *to_off : lseek(to, 0, SEEK_CUR);

    lock();
    ssize_t n = next(from, from_off, to, to_off, len, flags);
    char *data = n > 0 ? malloc((size_t)n) : NULL;
    if (data && pread(to, data, (size_t)n, off) == n)
        note_write(to, data, (size_t)n, (uint64_t)off);
    free(data);
    unlock();
    return n;
}

BEFORE_LIBC int ftruncate(int fd, off_t size)
{
    NEXT(next, ftruncate, "ftruncate64");

    lock();
    int r = next(fd, size);
    if (r == 0)
        note_size(fd);
    unlock();
    return r;
}

/* Holes are not made by what is tested here. */
BEFORE_LIBC int fallocate(int fd, int mode, off_t off, off_t len)
{
    NEXT(next, fallocate, "fallocate64");

    lock();
    int r = next(fd, mode, off, len);
    if (r == 0 && mode == 0)
        note_size(fd);
    unlock();
    return r;
}

BEFORE_LIBC int mkdirat(int dir_fd, const char *path, mode_t mode)
{
    NEXT(next, mkdirat, "mkdirat");
    struct stat st;

    lock();
    struct spot s = spot_at(dir_fd, path);
    int r = next(dir_fd, path, mode);
    if (r == 0 && s.dir && fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        note_made(&s, &st);
    unlock();
    return r;
}

BEFORE_LIBC int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    NEXT(next, linkat, "linkat");
    int follow = flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
    struct stat st;

    lock();
    struct spot t = spot_at(to_dir, to);
    int r = next(from_dir, from, to_dir, to, flags);
    if (r == 0 && t.dir && fstatat(from_dir, from, &st, follow) == 0)
        note_moved(DISK_LINK, &st, NULL, &t, false);
    unlock();
    return r;
}

BEFORE_LIBC int renameat2(int from_dir, const char *from, int to_dir, const char *to,
                          unsigned flags)
{
    NEXT(next, renameat2, "renameat2");

    lock();
    struct spot f = spot_at(from_dir, from), t = spot_at(to_dir, to);
    int r = next(from_dir, from, to_dir, to, flags);
    if (r == 0 && f.there)
        note_moved(DISK_RENAME, &f.st, &f, &t, flags & RENAME_EXCHANGE);
    unlock();
    return r;
}

BEFORE_LIBC int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat2(from_dir, from, to_dir, to, 0);
}

BEFORE_LIBC int unlinkat(int dir_fd, const char *path, int flags)
{
    NEXT(next, unlinkat, "unlinkat");

    lock();
    struct spot s = spot_at(dir_fd, path);
    int r = next(dir_fd, path, flags);
    if (r == 0)
        note_removed(&s);
    unlock();
    return r;
}

BEFORE_LIBC int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

BEFORE_LIBC int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    NEXT(next, fsetxattr, "fsetxattr");

    lock();
    int r = next(fd, name, value, size, flags);
    if (r == 0)
        note_xattr(fd, name, value ? value : "", size);
    unlock();
    return r;
}

BEFORE_LIBC int fremovexattr(int fd, const char *name)
{
    NEXT(next, fremovexattr, "fremovexattr");

    lock();
    int r = next(fd, name);
    if (r == 0)
        note_xattr(fd, name, NULL, 0);
    unlock();
    return r;
}

BEFORE_LIBC int futimens(int fd, const struct timespec times[2])
{
    NEXT(next, futimens, "futimens");

    lock();
    int r = next(fd, times);
    unsigned id = r == 0 ? id_of_fd(fd) : 0;
    if (id)
        note_fd(note(DISK_TIMES, id), fd);
    unlock();
    return r;
}

/* No disk is waited for: nothing here would show that it was. */
BEFORE_LIBC int fsync(int fd)
{
    lock();
    note_sync(DISK_SYNC, fd);
    unlock();
    return 0;
}

BEFORE_LIBC int fdatasync(int fd)
{
    return fsync(fd);
}

BEFORE_LIBC int syncfs(int fd)
{
    lock();
    note_sync(DISK_SYNC_ALL, fd);
    unlock();
    return 0;
}

/* ---- the record ---- */

static void take_xattrs(int fd)
{
    char names[4096], value[65536];
    ssize_t n = flistxattr(fd, names, sizeof(names));

    ck_assert_int_ge(n, 0);
    for (char *name = names; name < names + n; name += strlen(name) + 1) {
        ssize_t len = fgetxattr(fd, name, value, sizeof(value));
        ck_assert_int_ge(len, 0);
        note_xattr(fd, name, value, (size_t)len);
    }
}

static void take_content(int fd)
{
    char chunk[65536];
    uint64_t off = 0;
    ssize_t n;

    while ((n = pread(fd, chunk, sizeof(chunk), (off_t)off)) > 0) {
        note_write(fd, chunk, (size_t)n, off);
        off += (uint64_t)n;
    }
    ck_assert_int_eq(n, 0);
}

static void take_dir(int dir_fd);

static void take_one(int dir_fd, const char *name)
{
    struct spot s = spot_at(dir_fd, name);
    NEXT(next, openat, "openat64");
    int fd = next(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    if (id_of(&s.st)) { /* another name of a file */
        note_moved(DISK_LINK, &s.st, NULL, &s, false);
    } else {
        note_made(&s, &s.st);
        if (S_ISDIR(s.st.st_mode))
            take_dir(fd);
        else
            take_content(fd);
        take_xattrs(fd);
    }
    (void)close(fd);
}

static void take_dir(int dir_fd)
{
    int copy = dup(dir_fd);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    ck_assert_ptr_nonnull(d);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, "control") != 0)
            take_one(dir_fd, e->d_name);
    (void)closedir(d);
}

void disk_record_begin(const char *dir)
{
    struct stat st;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(real_fstat(fd, &st), 0);
    lock();
    rec.r = (struct disk_record){.ids = 0};
    rec.n_known = 0;
    rec.dev = st.st_dev;
    rec.on = true;
    (void)new_id(&st); /* DISK_TOP */
    take_dir(fd);
    take_xattrs(fd);
    rec.r.begun = rec.r.n;
    unlock();
    (void)close(fd);
}

void disk_record_mark(int a, int b, int c)
{
    lock();
    if (rec.on) {
        struct disk_op *op = note(DISK_MARK, 0);
        op->mark[0] = a;
        op->mark[1] = b;
        op->mark[2] = c;
    }
    unlock();
}

size_t disk_recorded(void)
{
    lock();
    size_t n = rec.r.n;
    unlock();
    return n;
}

struct disk_record disk_record_end(void)
{
    lock();
    struct disk_record r = rec.r;
    rec.r = (struct disk_record){.ids = 0};
    rec.on = false;
    unlock();
    return r;
}

void disk_record_free(struct disk_record *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->op[i].name);
        free(r->op[i].to_name);
        free(r->op[i].data);
    }
    free(r->op);
    *r = (struct disk_record){.ids = 0};
}
