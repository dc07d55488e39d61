/* Looking into an unmounted cache directory; see offline.h. */
#include "cache/offline.h"

#include "cache/mirror/door.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int cant_look(const char *dir, int r, struct op *op)
{
    return op_fail(op, r, "cache %s: what it keeps can't be looked at: %s", dir, strerror(-r));
}

/* ---- what there is ---- */

struct found {
    struct cache_pending p;
    struct found *next;
};

struct finding {
    struct found *first, **last;
};

/* The texts are copies, but for those that are constant. */
static void found_free(struct found *f)
{
    free((void *)(uintptr_t)f->p.path);
    free((void *)(uintptr_t)f->p.path2);
    free((void *)(uintptr_t)f->p.error);
    free(f);
}

static int copy_text(const char *text, const char **ret)
{
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? -ENOMEM : 0;
}

static int take(void *arg, const struct cache_pending *p)
{
    struct finding *all = arg;
    struct found *f = calloc(1, sizeof(*f));

    if (!f)
        return -ENOMEM;
    f->p = *p;
    f->p.path2 = f->p.error = NULL;
    if (copy_text(p->path, &f->p.path) < 0 || copy_text(p->path2, &f->p.path2) < 0 ||
        copy_text(p->error, &f->p.error) < 0) {
        found_free(f);
        return -ENOMEM;
    }
    *all->last = f;
    all->last = &f->next;
    return 0;
}

static int find(struct cache *c, struct finding *ret)
{
    *ret = (struct finding){.last = &ret->first};
    return cache_each_pending(c, take, ret);
}

/* Visits take their time. Frees what was found. */
static int visit_found(struct finding *all,
                       int (*visit)(void *arg, const struct cache_pending *), void *arg)
{
    int visited = 0;

    for (struct found *f = all->first, *next; f; f = next) {
        next = f->next;
        if (visited == 0)
            visited = visit(arg, &f->p);
        found_free(f);
    }
    return visited > 0 ? 0 : visited;
}

/* The cache is free again before anything is told: a pager may read for hours. */
int recover_list(const char *dir, struct op *op,
                 int (*visit)(void *arg, const struct cache_pending *), void *arg)
{
    struct finding all;
    struct cache *c = NULL;
    int r = cache_open_offline(dir, op, &c), visited;

    if (r < 0)
        return r;
    r = find(c, &all);
    cache_free(c);
    visited = visit_found(&all, visit, arg);
    r = visited < 0 ? visited : r;
    return r < 0 ? cant_look(dir, r, op) : 0;
}

/* ---- export ---- */

/* Opens the folder below `root` for a file of this path, and makes it where it is missing.
 * Nobody knows whose the folder was before: no symlink in it leads out of it. */
static int open_parent(int root, const char *path)
{
    auto_free char *copy = strdup(path);
    auto_close int at = fcntl(root, F_DUPFD_CLOEXEC, 0);

    if (!copy)
        return -ENOMEM;
    if (at < 0)
        return -errno;
    for (char *name = copy, *end; (end = strchr(name, '/')); name = end + 1) {
        *end = '\0';
        if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
            return -errno;
        int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -errno;
        (void)close(at);
        at = next;
    }
    return take_fd(at);
}

static int copy_bytes(int from, int to)
{
    char buf[64 << 10];
    ssize_t n;

    while ((n = read(from, buf, sizeof(buf))) > 0) {
        for (ssize_t done = 0; done < n;) {
            ssize_t w = write(to, buf + done, (size_t)(n - done));
            if (w < 0)
                return -errno;
            done += w;
        }
    }
    return n < 0 ? -errno : fsync(to) < 0 ? -errno : 0;
}

struct exporting {
    struct cache *cache;
    struct op *op;
    int to_fd;
    int result;
    int (*visit)(void *arg, const struct cache_pending *);
    void *arg;
};

/* Reads as much as there is. */
static ssize_t read_full(int fd, char *buf, size_t len)
{
    size_t done = 0;
    ssize_t n = 1;

    while (done < len && (n = read(fd, buf + done, len - done)) > 0)
        done += (size_t)n;
    return n < 0 ? -errno : (ssize_t)done;
}

/* 1 when both files have the same bytes from their offsets on. */
static int same_bytes(int a, int b)
{
    char buf_a[32 << 10], buf_b[32 << 10];
    ssize_t n, m;

    do {
        n = read_full(a, buf_a, sizeof(buf_a));
        m = n < 0 ? 0 : read_full(b, buf_b, sizeof(buf_b));
        if (n < 0 || m < 0)
            return (int)(n < 0 ? n : m);
        if (n != m || memcmp(buf_a, buf_b, (size_t)n) != 0)
            return 0;
    } while (n > 0);
    return 1;
}

/* An earlier run's files are there already; anything else that has the name stays. */
static int check_exported(int dir, const char *name, int from)
{
    struct stat st;
    auto_close int there = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (there < 0 || fstat(there, &st) < 0 || !S_ISREG(st.st_mode))
        return -EEXIST;
    int r = same_bytes(from, there);
    return r < 0 ? r : r == 0 ? -EEXIST : 0;
}

static int export_fd(struct exporting *x, int from, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    auto_close int dir = open_parent(x->to_fd, path);

    if (dir < 0)
        return dir;
    auto_close int to =
        openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return errno == EEXIST ? check_exported(dir, name, from) : -errno;
    int r = copy_bytes(from, to);
    if (r < 0)
        (void)unlinkat(dir, name, 0); /* half of it would be in the way of the next run */
    return r;
}

/* What the caller learns of one file: that it is there, or the first failure of all. */
static int exported(struct exporting *x, const struct cache_pending *p, int r)
{
    if (r == 0)
        return x->visit ? x->visit(x->arg, p) : 0;
    if (x->result == 0)
        x->result = op_fail(x->op, r, "%s can't be exported: %s", p->path, strerror(-r));
    return 0;
}

/* Files that are owed were visited before and have their path already, or a part of it. */
static int export_kept(struct exporting *x, const struct cache_pending *p)
{
    auto_close int from = openat(x->cache->mirror.kept_fd, p->path, O_RDONLY | O_CLOEXEC);
    int r = from < 0 ? -ENOENT : export_fd(x, from, p->path);

    if (r != -EEXIST && r != -ENOTDIR)
        return exported(x, p, r);
    auto_free char *aside = path_join(RECOVER_KEPT, p->path);
    struct cache_pending there = *p;
    if (!aside)
        return exported(x, p, -ENOMEM);
    there.path = aside;
    r = lseek(from, 0, SEEK_SET) < 0 ? -errno : export_fd(x, from, aside);
    return exported(x, &there, r);
}

/* A failure of one file keeps none of the others back. */
static int export_one(void *arg, const struct cache_pending *p)
{
    struct exporting *x = arg;

    if (strcmp(p->kind, "kept") == 0)
        return export_kept(x, p);
    if (strcmp(p->kind, "write") != 0)
        return 0;
    auto_close int from = mirror_open_path(&x->cache->mirror, p->path, O_RDONLY);
    return exported(x, p, from < 0 ? -ENOENT : export_fd(x, from, p->path));
}

static int export_found(struct exporting *x)
{
    struct finding all;
    int r = find(x->cache, &all);
    int visited = visit_found(&all, export_one, x);

    return visited < 0 ? visited : r;
}

int recover_export(const char *dir, const char *to, struct op *op,
                   int (*visit)(void *arg, const struct cache_pending *), void *arg)
{
    struct exporting x = {.op = op, .to_fd = -1, .visit = visit, .arg = arg};
    int r = cache_open_offline(dir, op, &x.cache);

    if (r < 0)
        return r;
    mirror_hold(&x.cache->mirror);
    if (mkdir(to, 0700) < 0 && errno != EEXIST)
        r = op_fail(op, -errno, "%s: %s", to, strerror(errno));
    if (r == 0) {
        x.to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (x.to_fd < 0)
            r = op_fail(op, -errno, "%s: %s", to, strerror(errno));
    }
    if (r == 0) {
        r = export_found(&x);
        r = x.result || r >= 0 ? x.result : cant_look(dir, r, op);
        (void)close(x.to_fd);
    }
    cache_free(x.cache);
    return r;
}

int recover_identity(const char *dir, struct op *op, char **ret)
{
    struct mirror m;
    int r = mirror_open(dir, DOOR_CACHE, op, &m);

    if (r < 0)
        return r;
    r = mirror_read_text(&m, "identity", ret);
    mirror_close(&m);
    if (r == -ENOENT)
        return op_fail(op, r, "%s is not a cache directory of runfs", dir);
    return r < 0 ? op_fail(op, r, "cache %s: can't read its identity: %s", dir, door_why(r))
                 : 0;
}
