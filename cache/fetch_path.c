/* Brings a file, or all below a directory, into the mirror. */
#include "cache/blocking.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- fetch ---- */

struct fetching {
    struct cache *cache;
    struct op *op;
    struct listener listener;
};

static int fetch_file(struct fetching *f, struct node *n)
{
    struct cache *c = f->cache;
    struct handle *h = NULL;
    struct blocking b;
    uint64_t size;
    int r;

    blocking_init(&b, c, &f->listener);
    BLOCK(b, f->op, r, cache_open(c, n, O_RDONLY, &b.w, &h));
    if (r == -EINVAL)
        return 0; /* a symlink or fifo */
    if (r < 0)
        return r;
    do {
        cache_lock(c);
        r = fetch_complete_locked(c, n, &b.w);
        size = n->size;
        cache_unlock(c);
        if (r == CACHE_PARKED)
            r = blocking_wait(&b, f->op);
        else
            break;
    } while (r == 0);
    f->listener.done += size;
    cache_release(c, h);
    blocking_tell(&f->listener);
    return r;
}

struct names {
    char **v;
    size_t n, cap;
};

static int take_name(void *arg, const char *name, struct node *node, const struct stat *st,
                     uint64_t next)
{
    struct names *names = arg;

    (void)node;
    (void)st;
    (void)next;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (array_grow(names->v, names->cap, names->n + 1))
        return -ENOMEM;
    names->v[names->n] = strdup(name);
    if (!names->v[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int fetch_node(struct fetching *f, struct node *n);

static int fetch_child(struct fetching *f, struct node *dir, const char *name)
{
    struct node *child = NULL;
    struct blocking b;
    struct stat st;
    int r;

    blocking_init(&b, f->cache, &f->listener);
    BLOCK(b, f->op, r, cache_lookup(f->cache, dir, name, &b.w, &child, &st));
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    f->listener.total += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    r = fetch_node(f, child);
    cache_forget(f->cache, child, 1);
    return r;
}

static int fetch_dir(struct fetching *f, struct node *dir)
{
    struct names names = {0};
    struct dirhandle *d = NULL;
    struct blocking b;
    int r;

    blocking_init(&b, f->cache, &f->listener);
    BLOCK(b, f->op, r, cache_opendir(f->cache, dir, &b.w, &d));
    if (r < 0)
        return r;
    r = cache_readdir(f->cache, d, 0, false, NULL, take_name, &names);
    cache_releasedir(f->cache, d);
    for (size_t i = 0; i < names.n; i++) {
        if (r == 0)
            r = fetch_child(f, dir, names.v[i]);
        free(names.v[i]);
    }
    free(names.v);
    return r;
}

static int fetch_node(struct fetching *f, struct node *n)
{
    if (n->dir)
        return fetch_dir(f, n);
    cache_lock(f->cache);
    bool regular = S_ISREG(n->mode);
    cache_unlock(f->cache);
    return regular ? fetch_file(f, n) : 0;
}

int cache_fetch_path(struct cache *c, const char *path, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg)
{
    struct fetching f = {.cache = c, .op = op, .listener = {.progress = progress, .arg = arg}};
    struct node *n = NULL;
    int r = blocking_walk(c, path, op, &f.listener, &n);

    if (r < 0)
        return r;
    cache_lock(c);
    f.listener.total = n->dir ? 0 : n->size;
    cache_unlock(c);
    r = fetch_node(&f, n);
    if (n != c->tree->root)
        cache_forget(c, n, 1);
    if (r < 0 && !op->why[0])
        (void)op_fail(op, r, "fetch %s: %s", path, strerror(-r));
    return r;
}
