/* Looking into an unmounted cache directory: see recover.h. */
#include "cache/recover.h"

#include "cache/node.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* A cache without store and threads, recovered from the directory; -ENOENT when there is none.
 */
static int open_offline(const char *dir, struct op *op, struct cache **ret)
{
    struct stat st;
    auto_free char *mark = path_join(dir, "version");

    if (!mark)
        return op_fail(op, -ENOMEM, "out of memory");
    if (stat(mark, &st) < 0)
        return op_fail(op, -ENOENT, "%s is not a cache directory of runfs", dir);
    return cache_open_offline(dir, op, ret);
}

int recover_list(const char *dir, struct op *op,
                 int (*visit)(void *arg, const struct cache_pending *), void *arg)
{
    struct cache *c = NULL;
    int r = open_offline(dir, op, &c);

    if (r < 0)
        return r;
    cache_each_pending(c, visit, arg);
    cache_free(c);
    return 0;
}

/* ---- export ---- */

static int make_parents(int root, const char *path)
{
    auto_free char *copy = strdup(path);

    if (!copy)
        return -ENOMEM;
    for (char *p = copy; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        if (mkdirat(root, copy, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
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

static int export_fd(struct exporting *x, int from, const char *path)
{
    auto_close int to = -1;
    int r = make_parents(x->to_fd, path);

    if (r < 0)
        return r;
    to = openat(x->to_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return to < 0 ? -errno : copy_bytes(from, to);
}

static int export_one(void *arg, const struct cache_pending *p)
{
    struct exporting *x = arg;
    struct cache *c = x->cache;
    bool kept = strcmp(p->kind, "kept") == 0;

    if (!kept && strcmp(p->kind, "write") != 0)
        return 0;
    auto_close int from = kept ? openat(c->mirror.kept_fd, p->path, O_RDONLY | O_CLOEXEC)
                               : mirror_open_path(&c->mirror, p->path, O_RDONLY);
    int r = from < 0 ? -ENOENT : export_fd(x, from, p->path);
    if (r < 0) {
        x->result = op_fail(x->op, r, "%s can't be exported: %s", p->path, strerror(-r));
        return r;
    }
    return x->visit ? x->visit(x->arg, p) : 0;
}

int recover_export(const char *dir, const char *to, struct op *op,
                   int (*visit)(void *arg, const struct cache_pending *), void *arg)
{
    struct exporting x = {.op = op, .to_fd = -1, .visit = visit, .arg = arg};
    int r = open_offline(dir, op, &x.cache);

    if (r < 0)
        return r;
    if (mkdir(to, 0700) < 0 && errno != EEXIST)
        r = op_fail(op, -errno, "%s: %s", to, strerror(errno));
    if (r == 0) {
        x.to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (x.to_fd < 0)
            r = op_fail(op, -errno, "%s: %s", to, strerror(errno));
    }
    if (r == 0) {
        cache_each_pending(x.cache, export_one, &x);
        r = x.result;
        (void)close(x.to_fd);
    }
    cache_free(x.cache);
    return r;
}

int recover_identity(const char *dir, struct op *op, char **ret)
{
    struct mirror m;
    int r = mirror_open(dir, op, &m);

    if (r < 0)
        return r;
    r = mirror_read_text(&m, "identity", ret);
    mirror_close(&m);
    return r < 0 ? op_fail(op, r, "%s is not a cache directory of runfs", dir) : 0;
}
