/* The files that a record and a choice make; see disk.h. */
#include "tests/lib/power/disk.h"

#include "common/mem.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NS_PER_SEC INT64_C(1000000000)

struct xattr {
    char *name, *data;
    size_t len;
};

struct inode {
    bool is_dir;
    char *data;
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    struct xattr *xattr;
    size_t n_xattrs, cap_xattrs;
};

struct name {
    unsigned dir, id;
    char *name;
};

struct disk_state {
    struct inode *inode; /* by id */
    unsigned ids;
    struct name *name;
    size_t n_names, cap_names;
};

/* ---- names ---- */

static struct name *find_name(const struct disk_state *s, unsigned dir, const char *name)
{
    for (size_t i = 0; i < s->n_names; i++)
        if (s->name[i].dir == dir && strcmp(s->name[i].name, name) == 0)
            return &s->name[i];
    return NULL;
}

static void drop_name(struct disk_state *s, unsigned dir, const char *name)
{
    struct name *n = find_name(s, dir, name);

    if (!n)
        return;
    free(n->name);
    *n = s->name[--s->n_names];
}

static void set_name(struct disk_state *s, unsigned dir, const char *name, unsigned id)
{
    drop_name(s, dir, name);
    ck_assert(!array_grow(s->name, s->cap_names, s->n_names + 1));
    s->name[s->n_names++] = (struct name){dir, id, strdup(name)};
}

static void move_name(struct disk_state *s, const struct disk_op *op)
{
    drop_name(s, op->dir, op->name);
    if (op->exchange)
        set_name(s, op->dir, op->name, op->other);
    set_name(s, op->to_dir, op->to_name, op->id);
}

/* ---- content ---- */

static void set_size(struct inode *n, uint64_t size)
{
    if (size > n->size) {
        n->data = realloc(n->data, size);
        ck_assert_ptr_nonnull(n->data);
        memset(n->data + n->size, 0, size - n->size);
    }
    n->size = size;
}

static void set_xattr(struct inode *n, const struct disk_op *op)
{
    size_t i = 0;

    while (i < n->n_xattrs && strcmp(n->xattr[i].name, op->name) != 0)
        i++;
    if (i < n->n_xattrs) {
        free(n->xattr[i].name);
        free(n->xattr[i].data);
        n->xattr[i] = n->xattr[--n->n_xattrs];
    }
    if (!op->data)
        return;
    ck_assert(!array_grow(n->xattr, n->cap_xattrs, n->n_xattrs + 1));
    struct xattr *x = &n->xattr[n->n_xattrs++];
    *x = (struct xattr){strdup(op->name), malloc(op->len + 1), op->len};
    ck_assert(x->name && x->data);
    memcpy(x->data, op->data, op->len);
}

static void write_data(struct inode *n, const struct disk_op *op, enum disk_kept kept,
                       size_t part)
{
    size_t len = kept == DISK_ALL ? op->len : kept == DISK_PART ? part : 0;

    set_size(n, op->off + op->len > n->size ? op->off + op->len : n->size);
    if (len)
        memcpy(n->data + op->off, op->data, len);
}

static void apply(struct disk_state *s, const struct disk_op *op, enum disk_kept kept,
                  size_t part)
{
    struct inode *n = &s->inode[op->id];

    switch (op->kind) {
    case DISK_MAKE:
        n->is_dir = op->is_dir;
        if (op->name)
            set_name(s, op->dir, op->name, op->id);
        break;
    case DISK_LINK:
        set_name(s, op->to_dir, op->to_name, op->id);
        break;
    case DISK_RENAME:
        move_name(s, op);
        break;
    case DISK_REMOVE:
        drop_name(s, op->dir, op->name);
        break;
    case DISK_WRITE:
        write_data(n, op, kept, part);
        break;
    case DISK_SIZE:
        set_size(n, op->off);
        break;
    case DISK_XATTR:
        set_xattr(n, op);
        break;
    case DISK_TIMES:
        break;
    case DISK_SYNC:
    case DISK_SYNC_ALL:
    case DISK_MARK:
        return;
    }
    if (op->kind == DISK_MAKE || (op->kind >= DISK_WRITE && op->kind <= DISK_TIMES))
        n->mtime_ns = op->mtime_ns;
    n->ctime_ns = op->ctime_ns;
}

struct disk_state *disk_state_new(const struct disk_record *r, const struct disk_cut *cut)
{
    struct disk_state *s = calloc(1, sizeof(*s));

    ck_assert_ptr_nonnull(s);
    s->ids = r->ids;
    s->inode = calloc(r->ids + 1, sizeof(*s->inode));
    ck_assert_ptr_nonnull(s->inode);
    s->inode[DISK_TOP].is_dir = true;
    for (size_t i = 0; i < cut->at; i++)
        if (cut->kept[i])
            apply(s, &r->op[i], cut->kept[i], cut->part[i]);
    return s;
}

void disk_state_free(struct disk_state *s)
{
    for (unsigned id = 0; id <= s->ids; id++) {
        struct inode *n = &s->inode[id];
        for (size_t i = 0; i < n->n_xattrs; i++) {
            free(n->xattr[i].name);
            free(n->xattr[i].data);
        }
        free(n->xattr);
        free(n->data);
    }
    for (size_t i = 0; i < s->n_names; i++)
        free(s->name[i].name);
    free(s->name);
    free(s->inode);
    free(s);
}

/* ---- comparing choices ---- */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * 0x100000001b3;
    return hash;
}

static uint64_t hash_inode(const struct inode *n)
{
    uint64_t hash = hash_bytes(0xcbf29ce484222325, &n->size, sizeof(n->size)), xattrs = 0;

    hash = hash_bytes(hash, &n->mtime_ns, sizeof(n->mtime_ns));
    hash = n->size ? hash_bytes(hash, n->data, n->size) : hash;
    for (size_t i = 0; i < n->n_xattrs; i++) {
        const struct xattr *x = &n->xattr[i];
        xattrs += hash_bytes(hash_bytes(1, x->name, strlen(x->name)), x->data, x->len);
    }
    return hash ^ xattrs;
}

/* Names stand in any order. */
uint64_t disk_state_hash(const struct disk_state *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->n_names; i++) {
        const struct name *n = &s->name[i];
        uint64_t hash = hash_inode(&s->inode[n->id]);
        hash = hash_bytes(hash, &n->dir, sizeof(n->dir));
        hash = hash_bytes(hash, &n->id, sizeof(n->id));
        sum += hash_bytes(hash, n->name, strlen(n->name));
    }
    return sum;
}

/* ---- on a disk ---- */

static int remove_below(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    return ftw->level == 0 ? 0 : remove(path);
}

static void put_content(const struct inode *n, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    if (n->size)
        ck_assert_int_eq(pwrite(fd, n->data, n->size, 0), (ssize_t)n->size);
    ck_assert_int_eq(close(fd), 0);
}

static void put_stamps(const struct inode *n, const char *path)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

    times[1] = (struct timespec){n->mtime_ns / NS_PER_SEC, n->mtime_ns % NS_PER_SEC};
    for (size_t i = 0; i < n->n_xattrs; i++)
        ck_assert_int_eq(setxattr(path, n->xattr[i].name, n->xattr[i].data, n->xattr[i].len, 0),
                         0);
    if (!n->is_dir)
        ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

struct placing {
    const struct disk_state *s;
    char **first; /* by id: the path of its first name */
};

static void put_dir(struct placing *p, unsigned dir, const char *path)
{
    for (size_t i = 0; i < p->s->n_names; i++) {
        const struct name *name = &p->s->name[i];
        const struct inode *n = &p->s->inode[name->id];
        char *at = NULL;
        if (name->dir != dir)
            continue;
        ck_assert_int_gt(asprintf(&at, "%s/%s", path, name->name), 0);
        if (p->first[name->id] && n->is_dir) { /* no disk has a directory twice */
            ck_abort_msg("%s is %s as well", at, p->first[name->id]);
        } else if (p->first[name->id]) {
            ck_assert_int_eq(link(p->first[name->id], at), 0);
            free(at);
            continue;
        }
        p->first[name->id] = at;
        if (n->is_dir) {
            ck_assert_int_eq(mkdir(at, 0700), 0);
            put_dir(p, name->id, at);
        } else {
            put_content(n, at);
        }
        put_stamps(n, at);
    }
}

void disk_state_put(const struct disk_state *s, const char *dir)
{
    struct placing p = {s, calloc(s->ids + 1, sizeof(char *))};

    ck_assert_ptr_nonnull(p.first);
    (void)nftw(dir, remove_below, 16, FTW_DEPTH | FTW_PHYS);
    disk_ctimes_clear();
    put_dir(&p, DISK_TOP, dir);
    for (unsigned id = 0; id <= s->ids; id++) {
        if (p.first[id])
            disk_ctime_is(p.first[id], s->inode[id].ctime_ns);
        free(p.first[id]);
    }
    free(p.first);
}

/* ---- a record is right ---- */

static void compare_file(const struct inode *n, const char *path)
{
    struct stat st;
    char *data = malloc(n->size + 1), value[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    ck_assert_msg(fd >= 0 && data && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    ck_assert_msg(S_ISDIR(st.st_mode) == n->is_dir, "%s is of another kind", path);
    if (!n->is_dir) {
        ck_assert_msg((uint64_t)st.st_size == n->size, "%s has %lld bytes, not %llu", path,
                      (long long)st.st_size, (unsigned long long)n->size);
        ck_assert_int_eq(pread(fd, data, n->size, 0), (ssize_t)n->size);
        ck_assert_msg(!n->size || memcmp(data, n->data, n->size) == 0, "%s differs", path);
        int64_t mtime_ns = st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec;
        ck_assert_msg(mtime_ns == n->mtime_ns, "%s has another time", path);
    }
    for (size_t i = 0; i < n->n_xattrs; i++) {
        const struct xattr *x = &n->xattr[i];
        ssize_t len = fgetxattr(fd, x->name, value, sizeof(value));
        ck_assert_msg(len == (ssize_t)x->len && memcmp(value, x->data, x->len) == 0,
                      "%s has another %s", path, x->name);
    }
    (void)close(fd);
    free(data);
}

static size_t compare_dir(const struct disk_state *s, unsigned dir, const char *path,
                          const char *skip)
{
    DIR *d = opendir(path);
    size_t found = 0, known = 0;
    struct dirent *e;

    ck_assert_ptr_nonnull(d);
    while ((e = readdir(d))) {
        char *at = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, skip) == 0)
            continue;
        const struct name *name = find_name(s, dir, e->d_name);
        ck_assert_msg(name, "nobody noted that %s/%s was made", path, e->d_name);
        ck_assert_int_gt(asprintf(&at, "%s/%s", path, e->d_name), 0);
        compare_file(&s->inode[name->id], at);
        if (s->inode[name->id].is_dir)
            found += compare_dir(s, name->id, at, skip);
        found++;
        free(at);
    }
    (void)closedir(d);
    for (size_t i = 0; i < s->n_names; i++)
        known += s->name[i].dir == dir && strcmp(s->name[i].name, skip) != 0;
    (void)known;
    return found;
}

void disk_state_compare(const struct disk_state *s, const char *dir, const char *skip)
{
    size_t skipped = find_name(s, DISK_TOP, skip) ? 1 : 0;
    size_t found = compare_dir(s, DISK_TOP, dir, skip);

    ck_assert_msg(found + skipped == s->n_names, "nobody noted what was removed");
}
