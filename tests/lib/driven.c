/* A cache driven call by call. */
#include "tests/lib/driven.h"

#include "backends/drivers.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STUCK_NS (60 * NS_PER_SEC)

/* ---- waiting ---- */

struct waiting {
    struct waiter w;
    struct mutex lock;
    pthread_cond_t woken;
    bool done;
    int err;
};

static void wake(struct waiter *w, int err)
{
    struct waiting *waiting = container_of(w, struct waiting, w);

    mutex_lock(&waiting->lock);
    waiting->done = true;
    waiting->err = err;
    (void)pthread_cond_signal(&waiting->woken);
    mutex_unlock(&waiting->lock);
}

pid_t driven_caller;

static void waiting_init(struct waiting *w)
{
    memset(w, 0, sizeof(*w));
    w->w.pid = driven_caller;
    w->w.wake = wake;
    mutex_init(&w->lock);
    cond_init(&w->woken);
}

static int64_t await(struct cache *c, struct waiting *w)
{
    int64_t until = clock_mono_ns() + STUCK_NS;

    mutex_lock(&w->lock);
    while (!w->done && clock_mono_ns() < until)
        (void)mutex_wait_until(&w->lock, &w->woken, until);
    bool done = w->done;
    int err = w->err;
    w->done = false;
    mutex_unlock(&w->lock);
    if (!done && cache_cancel(c, &w->w))
        return -ETIMEDOUT;
    return err;
}

/* Makes the call, with `w` as its waiter, until it is answered. */
#define ANSWER(d, r, call)                                                                     \
    do {                                                                                       \
        struct waiting waiting_;                                                               \
        struct waiter *w = &waiting_.w;                                                        \
        waiting_init(&waiting_);                                                               \
        do {                                                                                   \
            (r) = (call);                                                                      \
            if ((r) != CACHE_PARKED)                                                           \
                break;                                                                         \
            (r) = (__typeof__(r))await((d)->cache, &waiting_);                                 \
            if ((r) == CACHE_DONE) {                                                           \
                (r) = 0;                                                                       \
                break;                                                                         \
            }                                                                                  \
        } while ((r) == 0);                                                                    \
    } while (0)

/* ---- the cache and its store ---- */

static int64_t pass_on(struct layer *l, struct call *c)
{
    (void)l;
    return call_next(c);
}

void driven_init_over(struct driven *d, struct store *store, driven_around around)
{
    struct layer *l = calloc(1, sizeof(*l));

    *d = (struct driven){.dir = ""};
    ck_assert_ptr_nonnull(l);
    ck_assert_int_eq(layer_init(l, store, around ? around : pass_on), 0);
    temp_dir_make(d->dir, sizeof(d->dir));
    d->store = &l->base;
    cache_config_init(&d->config);
    d->config.dir = d->dir;
    d->config.identity = d->store->url;
    d->config.settle_ns = 1 * NS_PER_MS;
    d->config.store_timeout_ns = STUCK_NS;
    d->config.reserve_bytes = 1;
}

static void init(struct driven *d, driven_around around, const char *options, unsigned caps)
{
    static unsigned count;
    struct store *mem = NULL;
    char url[32];
    struct op op;

    (void)snprintf(url, sizeof(url), "mem:driven%u%s", ++count, options);
    op_init(&op, STUCK_NS);
    ck_assert_int_eq(mem_store_new(url, NULL, &op, &mem), 0);
    driven_init_over(d, mem, around);
    d->store->facts.caps |= caps;
}

void driven_init_folder(struct driven *d, driven_around around, uint64_t part_size)
{
    struct store *local = NULL;
    struct op op;

    char folder[sizeof(d->folder)];

    temp_dir_make(folder, sizeof(folder));
    op_init(&op, STUCK_NS);
    ck_assert_int_eq(local_store_new(folder, NULL, &op, &local), 0);
    local->facts.part_size = local->facts.part_min = local->facts.part_max = part_size;
    driven_init_over(d, local, around);
    memcpy(d->folder, folder, sizeof(folder));
}

void driven_init(struct driven *d, driven_around around)
{
    init(d, around, "", 0);
}

void driven_init_like_s3(struct driven *d, driven_around around)
{
    init(d, around, "?s3", STORE_STATE);
}

void driven_mount(struct driven *d)
{
    struct op op;

    op_init(&op, STUCK_NS);
    d->config.identity = d->store->url;
    int r = cache_new(&d->config, d->store, &op, &d->cache);
    ck_assert_msg(r == 0, "mount: %d %s", r, op.why);
}

void driven_unmount(struct driven *d)
{
    cache_free(d->cache);
    d->cache = NULL;
}

void driven_end(struct driven *d)
{
    struct op op;

    op_init(&op, STUCK_NS);
    int r = cache_end(d->cache, &op);
    ck_assert_msg(r == 0, "end: %d %s", r, op.why);
    driven_unmount(d);
}

void driven_mount_afresh(struct driven *d)
{
    driven_unmount(d);
    temp_dir_remove(d->dir);
    ck_assert_int_eq(mkdir(d->dir, 0700), 0);
    driven_mount(d);
}

void driven_release(struct driven *d)
{
    driven_unmount(d);
    store_close(d->store);
    temp_dir_remove(d->dir);
    if (*d->folder) {
        temp_dir_remove(d->folder);
        (void)strcat(d->folder, ".runfs"); /* its state */
        temp_dir_remove(d->folder);
    }
}

/* ---- calls ---- */

static int walk(struct driven *d, const char *path, struct node **ret)
{
    struct op op;

    op_init(&op, STUCK_NS);
    return cache_walk(d->cache, path, &op, ret);
}

static int walk_parent(struct driven *d, const char *path, struct node **ret)
{
    auto_free char *parent = path_parent(path);

    return parent ? walk(d, parent, ret) : -ENOMEM;
}

/* *ret_node replaces the one that it holds a lookup of. */
static int open_there(struct driven *d, const char *path, int flags, struct node **ret_node,
                      struct handle **ret)
{
    int r;

    if (*ret_node)
        cache_forget(d->cache, *ret_node, 1);
    *ret_node = NULL;
    r = walk(d, path, ret_node);
    if (r == 0)
        ANSWER(d, r, cache_open(d->cache, *ret_node, flags, w, ret));
    return r;
}

int driven_open(struct driven *d, const char *path, int flags, struct handle **ret)
{
    const struct cache_cred cred = {0};
    struct node *parent = NULL, *n = NULL;
    struct stat st;
    int r;

    if (!(flags & O_CREAT)) {
        r = open_there(d, path, flags, &n, ret);
        if (r == -ESTALE) /* as the kernel does, once */
            r = open_there(d, path, flags, &n, ret);
    } else {
        r = walk_parent(d, path, &parent);
        if (r == 0)
            ANSWER(d, r,
                   cache_create(d->cache, parent, path_basename(path), S_IFREG | 0644, flags,
                                &cred, w, &n, &st, ret));
    }
    if (n)
        cache_forget(d->cache, n, 1);
    if (parent)
        cache_forget(d->cache, parent, 1);
    return r;
}

int driven_write(struct driven *d, struct handle *h, const void *data, size_t len, uint64_t off)
{
    ssize_t r;

    ANSWER(d, r, cache_write(d->cache, h, data, len, off, false, w));
    return r < 0 ? (int)r : (size_t)r == len ? 0 : -EIO;
}

int driven_fallocate(struct driven *d, struct handle *h, int mode, uint64_t off, uint64_t len)
{
    int r;

    ANSWER(d, r, cache_fallocate(d->cache, h, mode, off, len, w));
    return r;
}

int driven_fd(struct driven *d, struct handle *h)
{
    struct handle_fd fd;

    ck_assert_int_eq(handle_fd_get(d->cache, h, &fd), 0);
    handle_fd_put(d->cache, &fd);
    return fd.fd;
}

int driven_fsync(struct driven *d, struct handle *h)
{
    int r;

    ANSWER(d, r, cache_fsync(d->cache, h, false, w));
    return r;
}

int driven_fsyncdir(struct driven *d, const char *path)
{
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_fsyncdir(d->cache, n, w));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_close(struct driven *d, struct handle *h)
{
    int r;

    ANSWER(d, r, cache_flush(d->cache, h, w));
    cache_release(d->cache, h);
    return r;
}

int driven_truncate(struct driven *d, const char *path, uint64_t size)
{
    struct stat st = {.st_size = (off_t)size};
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_setattr(d->cache, n, NULL, CACHE_SET_SIZE, w, &st));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_chmod(struct driven *d, const char *path, mode_t mode)
{
    struct stat st = {.st_mode = mode};
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_setattr(d->cache, n, NULL, CACHE_SET_MODE, w, &st));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_utimens(struct driven *d, const char *path, int64_t mtime_ns)
{
    struct stat st = {
        .st_mtim = {.tv_sec = mtime_ns / NS_PER_SEC, .tv_nsec = mtime_ns % NS_PER_SEC}};
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_setattr(d->cache, n, NULL, CACHE_SET_MTIME, w, &st));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_setxattr(struct driven *d, const char *path, const char *name, const void *value,
                    size_t size, int flags)
{
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_setxattr(d->cache, n, name, value, size, flags, w));
    cache_forget(d->cache, n, 1);
    return r;
}

ssize_t driven_getxattr(struct driven *d, const char *path, const char *name, void *value,
                        size_t size)
{
    struct node *n = NULL;
    ssize_t r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_getxattr(d->cache, n, name, value, size, w));
    cache_forget(d->cache, n, 1);
    return r;
}

ssize_t driven_listxattr(struct driven *d, const char *path, char *list, size_t size)
{
    struct node *n = NULL;
    ssize_t r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_listxattr(d->cache, n, list, size, w));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_removexattr(struct driven *d, const char *path, const char *name)
{
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_removexattr(d->cache, n, name, w));
    cache_forget(d->cache, n, 1);
    return r;
}

static int rename_with(struct driven *d, const char *from, const char *to, unsigned flags)
{
    struct node *a = NULL, *b = NULL;
    int r = walk_parent(d, from, &a);

    if (r == 0)
        r = walk_parent(d, to, &b);
    if (r == 0)
        ANSWER(d, r,
               cache_rename(d->cache, a, path_basename(from), b, path_basename(to), flags, w));
    if (a)
        cache_forget(d->cache, a, 1);
    if (b)
        cache_forget(d->cache, b, 1);
    return r;
}

int driven_rename(struct driven *d, const char *from, const char *to)
{
    return rename_with(d, from, to, 0);
}

int driven_exchange(struct driven *d, const char *from, const char *to)
{
    return rename_with(d, from, to, RENAME_EXCHANGE);
}

int driven_link(struct driven *d, const char *path, const char *to)
{
    struct node *n = NULL, *parent = NULL, *again = NULL;
    struct stat st;
    int r = walk(d, path, &n);

    if (r == 0)
        r = walk_parent(d, to, &parent);
    if (r == 0)
        ANSWER(d, r, cache_link(d->cache, n, parent, path_basename(to), w, &again, &st));
    if (n)
        cache_forget(d->cache, n, 1);
    if (parent)
        cache_forget(d->cache, parent, 1);
    if (again)
        cache_forget(d->cache, again, 1);
    return r;
}

int driven_unlink(struct driven *d, const char *path)
{
    struct node *parent = NULL;
    int r = walk_parent(d, path, &parent);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_unlink(d->cache, parent, path_basename(path), w));
    cache_forget(d->cache, parent, 1);
    return r;
}

int driven_mkdir(struct driven *d, const char *path)
{
    struct node *parent = NULL, *n = NULL;
    struct cache_cred cred = {0};
    struct stat st;
    int r = walk_parent(d, path, &parent);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_mkdir(d->cache, parent, path_basename(path), 0755, &cred, w, &n, &st));
    cache_forget(d->cache, parent, 1);
    if (r == 0)
        cache_forget(d->cache, n, 1);
    return r;
}

int driven_symlink(struct driven *d, const char *target, const char *path)
{
    const struct cache_cred cred = {0};
    struct node *parent = NULL, *n = NULL;
    struct stat st;
    int r = walk_parent(d, path, &parent);

    if (r < 0)
        return r;
    ANSWER(d, r,
           cache_symlink(d->cache, parent, path_basename(path), target, &cred, w, &n, &st));
    cache_forget(d->cache, parent, 1);
    if (n)
        cache_forget(d->cache, n, 1);
    return r;
}

int driven_rmdir(struct driven *d, const char *path)
{
    struct node *parent = NULL;
    int r = walk_parent(d, path, &parent);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_rmdir(d->cache, parent, path_basename(path), w));
    cache_forget(d->cache, parent, 1);
    return r;
}

int driven_stat(struct driven *d, const char *path, struct stat *st)
{
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_getattr(d->cache, n, w, st));
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_readlink(struct driven *d, const char *path, char **ret)
{
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_readlink(d->cache, n, w, ret));
    cache_forget(d->cache, n, 1);
    return r;
}

const char *driven_state(struct driven *d, const char *path)
{
    static char state[32];
    struct node *n = NULL;
    ssize_t r = walk(d, path, &n);

    if (r < 0)
        return "";
    ANSWER(d, r, cache_getxattr(d->cache, n, "user.runfs.state", state, sizeof(state) - 1, w));
    cache_forget(d->cache, n, 1);
    state[r < 0 ? 0 : r] = '\0';
    return state;
}

int driven_flush(struct driven *d)
{
    struct op op;

    op_init(&op, STUCK_NS);
    int r = cache_flush_path(d->cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL);
    if (r < 0)
        (void)fprintf(stderr, "flush: %s\n", op.why);
    return r;
}

static int count_name(void *arg, const char *name, struct node *node, const struct stat *st,
                      uint64_t next)
{
    (void)node;
    (void)st;
    (void)next;
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        ++*(int *)arg;
    return 0;
}

static int list(struct driven *d, const char *path, cache_visit visit, void *arg)
{
    struct dirhandle *dh = NULL;
    struct node *n = NULL;
    int r = walk(d, path, &n);

    if (r < 0)
        return r;
    ANSWER(d, r, cache_opendir(d->cache, n, w, &dh));
    if (r == 0) {
        ANSWER(d, r, cache_readdir(d->cache, dh, 0, false, w, visit, arg));
        cache_releasedir(d->cache, dh);
    }
    cache_forget(d->cache, n, 1);
    return r;
}

int driven_list(struct driven *d, const char *path)
{
    int names = 0;
    int r = list(d, path, count_name, &names);

    return r < 0 ? r : names;
}

struct number {
    const char *name;
    uint64_t ino;
};

static int note_number(void *arg, const char *name, struct node *node, const struct stat *st,
                       uint64_t next)
{
    struct number *wanted = arg;

    (void)node;
    (void)next;
    if (strcmp(name, wanted->name) == 0)
        wanted->ino = st->st_ino;
    return 0;
}

uint64_t driven_listed_ino(struct driven *d, const char *path, const char *name)
{
    struct number wanted = {.name = name};
    int r = list(d, path, note_number, &wanted);

    ck_assert_msg(r == 0, "%s: %d", path, r);
    return wanted.ino;
}

ssize_t driven_pread(struct driven *d, struct handle *h, void *buf, size_t len, uint64_t off)
{
    int r;

    ANSWER(d, r, cache_prepare_read(d->cache, h, off, len, w));
    struct handle_fd fd;
    if (r == 0)
        r = handle_fd_get(d->cache, h, &fd);
    if (r < 0)
        return r;
    ssize_t n = pread(fd.fd, buf, len, (off_t)off);
    handle_fd_put(d->cache, &fd);
    return n;
}

ssize_t driven_read(struct driven *d, const char *path, void *buf, size_t len)
{
    struct handle *h = NULL;
    int r = driven_open(d, path, O_RDONLY, &h);

    if (r < 0)
        return r;
    ssize_t got = driven_pread(d, h, buf, len, 0);
    cache_release(d->cache, h);
    return got;
}

void driven_put(struct driven *d, const char *path, const void *data, size_t len)
{
    struct handle *h = NULL;
    int r = driven_open(d, path, O_WRONLY | O_CREAT | O_TRUNC, &h);

    ck_assert_msg(r == 0, "create %s: %s", path, strerror(-r));
    ck_assert_int_eq(driven_write(d, h, data, len, 0), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
}

void driven_in_window(bool (*story)(int64_t window_ns, int i), int i)
{
    int64_t window_ns = 700 * NS_PER_MS;

    while (!story(window_ns, i))
        window_ns *= 2;
}
