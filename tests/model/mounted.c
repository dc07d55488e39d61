/* Operations on a cache, one after the other, each waited for as a system call would be. */
#include "common/lock.h"
#include "common/mem.h"
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longer than any answer takes whose store is not frozen for good. */
#define STUCK_NS (60 * NS_PER_SEC)

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

static void waiting_init(struct waiting *w)
{
    memset(w, 0, sizeof(*w));
    w->w.wake = wake;
    mutex_init(&w->lock);
    cond_init(&w->woken);
}

/* Ends a parked call: 0 when it is to be made again. */
static int64_t await(struct mounted *m, struct waiting *w)
{
    int64_t until = clock_mono_ns() + STUCK_NS;

    mutex_lock(&w->lock);
    while (!w->done && clock_mono_ns() < until)
        (void)mutex_wait_until(&w->lock, &w->woken, until);
    bool done = w->done;
    int err = w->err;
    w->done = false;
    mutex_unlock(&w->lock);
    if (!done && cache_cancel(m->cache, &w->w))
        return -ETIMEDOUT;
    return err;
}

/* Makes the call until it is answered. */
#define ANSWER(m, w, r, call)                                                                  \
    do {                                                                                       \
        (r) = (call);                                                                          \
        if ((r) != CACHE_PARKED)                                                               \
            break;                                                                             \
        (r) = (__typeof__(r))await((m), (w));                                                  \
        if ((r) == CACHE_DONE) {                                                               \
            (r) = 0;                                                                           \
            break;                                                                             \
        }                                                                                      \
    } while ((r) == 0)

/* The directory of `path`, looked up (to be forgotten), and the last name. */
static int walk(struct mounted *m, struct waiting *w, const char *path, bool whole,
                struct node **ret, const char **ret_name)
{
    struct node *n = cache_root(m->cache);
    int r = 0;

    while (r == 0) {
        const char *end = strchr(path, '/');
        char name[PATH_MAX_MODEL];
        struct node *child = NULL;
        struct stat st;
        if (!end && !whole)
            break;
        if (!*path)
            break;
        (void)snprintf(name, sizeof(name), "%.*s", end ? (int)(end - path) : (int)strlen(path),
                       path);
        ANSWER(m, w, r, cache_lookup(m->cache, n, name, &w->w, &child, &st));
        cache_forget(m->cache, n, 1);
        n = r == 0 ? child : NULL;
        path = end ? end + 1 : path + strlen(path);
    }
    *ret = n;
    if (ret_name)
        *ret_name = path;
    return r;
}

static const struct cache_cred cred = {0};

/* An open for emptying would leave a half file, which replaces nothing before it is closed:
 * what the name shows after a kill is then the store's, of which the model knows nothing. */
static int do_open_node(struct mounted *m, struct waiting *w, const struct step *s,
                        struct node *n)
{
    struct stat empty = {0};
    int r = 0;

    if (s->flags & O_TRUNC)
        ANSWER(m, w, r, cache_setattr(m->cache, n, NULL, CACHE_SET_SIZE, &w->w, &empty));
    if (r == 0)
        ANSWER(m, w, r,
               cache_open(m->cache, n, s->flags & ~O_TRUNC, &w->w, &m->open[s->handle]));
    return r;
}

static int do_open(struct mounted *m, struct waiting *w, const struct step *s)
{
    struct cache *c = m->cache;
    struct node *parent = NULL, *n = NULL;
    const char *name;
    struct stat st;
    int r = walk(m, w, s->path, false, &parent, &name);

    if (r == 0 && (s->flags & O_CREAT)) {
        ANSWER(m, w, r,
               cache_create(c, parent, name, S_IFREG | 0644, s->flags | O_EXCL, &cred, &w->w,
                            &n, &st, &m->open[s->handle]));
    } else if (r == 0) {
        ANSWER(m, w, r, cache_lookup(c, parent, name, &w->w, &n, &st));
        if (r == 0)
            r = do_open_node(m, w, s, n);
    }
    if (n)
        cache_forget(c, n, 1);
    if (parent)
        cache_forget(c, parent, 1);
    return r;
}

/* As the kernel does it: what is open passthrough is written without the cache. */
static int do_write(struct mounted *m, struct waiting *w, const struct step *s)
{
    struct handle *h = m->open[s->handle];
    char buf[DATA_MAX];
    ssize_t r;

    memset(buf, s->fill, s->len);
    if (handle_passthrough(h)) {
        struct handle_fd fd;
        int err = handle_fd_get(m->cache, h, &fd);
        if (err < 0)
            return err;
        r = pwrite(fd.fd, buf, s->len, (off_t)s->off);
        err = r < 0 ? -errno : (size_t)r == s->len ? 0 : -EIO;
        handle_fd_put(m->cache, &fd);
        return err;
    }
    ANSWER(m, w, r, cache_write(m->cache, h, buf, s->len, s->off, false, &w->w));
    return r < 0 ? (int)r : (size_t)r == s->len ? 0 : -EIO;
}

static int do_close(struct mounted *m, struct waiting *w, unsigned handle)
{
    int r;

    ANSWER(m, w, r, cache_flush(m->cache, m->open[handle], &w->w));
    cache_release(m->cache, m->open[handle]);
    m->open[handle] = NULL;
    return r;
}

static int do_setattr(struct mounted *m, struct waiting *w, const struct step *s)
{
    struct node *n = NULL;
    struct stat st = {.st_mode = s->mode, .st_size = (off_t)s->len};
    unsigned set = s->kind == OP_CHMOD     ? CACHE_SET_MODE
                   : s->kind == OP_UTIMENS ? CACHE_SET_MTIME
                                           : CACHE_SET_SIZE;
    int r = walk(m, w, s->path, true, &n, NULL);

    st.st_mtim.tv_sec = (time_t)s->len;
    if (r == 0)
        ANSWER(m, w, r, cache_setattr(m->cache, n, NULL, set, &w->w, &st));
    if (n)
        cache_forget(m->cache, n, 1);
    return r;
}

static int do_name(struct mounted *m, struct waiting *w, const struct step *s)
{
    struct cache *c = m->cache;
    struct node *parent = NULL, *n = NULL;
    const char *name;
    struct stat st;
    int r = walk(m, w, s->path, false, &parent, &name);

    if (r < 0)
        return r;
    if (s->kind == OP_UNLINK)
        ANSWER(m, w, r, cache_unlink(c, parent, name, &w->w));
    else if (s->kind == OP_RMDIR)
        ANSWER(m, w, r, cache_rmdir(c, parent, name, &w->w));
    else if (s->kind == OP_MKDIR)
        ANSWER(m, w, r, cache_mkdir(c, parent, name, 0755, &cred, &w->w, &n, &st));
    else
        ANSWER(m, w, r, cache_symlink(c, parent, name, s->to, &cred, &w->w, &n, &st));
    if (n)
        cache_forget(c, n, 1);
    cache_forget(c, parent, 1);
    return r;
}

static int read_file(struct mounted *m, struct waiting *w, struct node *n, size_t size,
                     char *data)
{
    struct handle *h = NULL;
    int r;

    ANSWER(m, w, r, cache_open(m->cache, n, O_RDONLY, &w->w, &h));
    if (r != 0)
        return r;
    struct handle_fd fd;
    ANSWER(m, w, r, cache_prepare_read(m->cache, h, 0, size, &w->w));
    if (r == 0)
        r = handle_fd_get(m->cache, h, &fd);
    if (r == 0) {
        ssize_t got = pread(fd.fd, data, size, 0);
        r = got < 0 ? -errno : (size_t)got == size ? 0 : -EIO;
        handle_fd_put(m->cache, &fd);
    }
    cache_release(m->cache, h);
    return r;
}

/* Reads all of the file, so that it is here. */
static int fetch(struct mounted *m, struct waiting *w, const char *path)
{
    struct node *parent = NULL, *n = NULL;
    char data[DATA_MAX];
    const char *name;
    struct stat st;
    int r = walk(m, w, path, false, &parent, &name);

    if (r == 0)
        ANSWER(m, w, r, cache_lookup(m->cache, parent, name, &w->w, &n, &st));
    if (r == 0)
        r = read_file(m, w, n, (size_t)st.st_size, data);
    if (n)
        cache_forget(m->cache, n, 1);
    if (parent)
        cache_forget(m->cache, parent, 1);
    return r;
}

static int do_two_names(struct mounted *m, struct waiting *w, const struct step *s)
{
    struct cache *c = m->cache;
    struct node *from = NULL, *to = NULL, *n = NULL;
    const char *name, *newname;
    struct stat st;
    int r = walk(m, w, s->path, s->kind == OP_LINK, &from, &name);

    if (r == 0)
        r = walk(m, w, s->to, false, &to, &newname);
    if (r == 0 && s->kind == OP_LINK)
        ANSWER(m, w, r, cache_link(c, from, to, newname, &w->w, &n, &st));
    else if (r == 0)
        ANSWER(m, w, r,
               cache_rename(c, from, name, to, newname,
                            s->kind == OP_EXCHANGE ? RENAME_EXCHANGE : 0, &w->w));
    if (n)
        cache_forget(c, n, 1);
    if (from)
        cache_forget(c, from, 1);
    if (to)
        cache_forget(c, to, 1);
    return r;
}

static int do_flush(struct mounted *m)
{
    struct op op;

    op_init(&op, STUCK_NS);
    int r = cache_flush_path(m->cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL);
    if (r < 0)
        (void)fprintf(stderr, "flush: %s\n", op.why);
    return r;
}

int mounted_do(struct mounted *m, const struct step *s)
{
    struct waiting w;
    int r = 0;

    waiting_init(&w);
    switch (s->kind) {
    case OP_OPEN:
        return do_open(m, &w, s);
    case OP_WRITE:
        return do_write(m, &w, s);
    case OP_FSYNC:
        ANSWER(m, &w, r, cache_fsync(m->cache, m->open[s->handle], false, &w.w));
        return r;
    case OP_CLOSE:
        return do_close(m, &w, s->handle);
    case OP_TRUNCATE:
    case OP_CHMOD:
    case OP_UTIMENS:
        return do_setattr(m, &w, s);
    case OP_RENAME:
        r = do_two_names(m, &w, s);
        /* What was evicted is fetched, and may go again before it moves. */
        for (int i = 0; i < 1000 && s->crosses && r == -EXDEV; i++) {
            r = fetch(m, &w, s->path);
            r = r < 0 ? r : do_two_names(m, &w, s);
        }
        return r;
    case OP_EXCHANGE:
    case OP_LINK:
        return do_two_names(m, &w, s);
    case OP_FLUSH:
        return do_flush(m);
    case OP_REST: {
        const struct timespec ts = {.tv_nsec = (long)s->len * 1000};
        (void)nanosleep(&ts, NULL);
        return 0;
    }
    default:
        return do_name(m, &w, s);
    }
}

void mounted_close_all(struct mounted *m)
{
    struct waiting w;

    waiting_init(&w);
    for (unsigned i = 0; i < HANDLES; i++)
        if (m->open[i])
            (void)do_close(m, &w, i);
}

/* ---- reading all of it ---- */

struct names {
    char v[NAMES_MAX][32];
    size_t n;
    uint64_t next;
};

static int take_name(void *arg, const char *name, struct node *node, const struct stat *st,
                     uint64_t next)
{
    struct names *names = arg;

    (void)node;
    (void)st;
    names->next = next;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (names->n == NAMES_MAX || strlen(name) >= sizeof(names->v[0]))
        return -EOVERFLOW;
    (void)snprintf(names->v[names->n++], sizeof(names->v[0]), "%s", name);
    return 0;
}

static int list_dir(struct mounted *m, struct waiting *w, struct node *dir, struct names *names)
{
    struct dirhandle *d = NULL;
    int r;

    memset(names, 0, sizeof(*names));
    ANSWER(m, w, r, cache_opendir(m->cache, dir, &w->w, &d));
    if (r != 0)
        return r;
    ANSWER(m, w, r, cache_readdir(m->cache, d, 0, false, &w->w, take_name, names));
    cache_releasedir(m->cache, d);
    return r;
}

static int read_entry(struct mounted *m, struct waiting *w, struct tree *t, const char *path,
                      struct node *n, const struct stat *st, bool with_content)
{
    enum kind kind = S_ISDIR(st->st_mode)   ? KIND_DIR
                     : S_ISLNK(st->st_mode) ? KIND_LINK
                                            : KIND_FILE;
    size_t size = (size_t)st->st_size;
    auto_free char *target = NULL;
    char data[DATA_MAX] = {0};
    int r = 0;

    if (kind == KIND_DIR)
        size = 0;
    if (size > sizeof(data))
        return -EFBIG;
    if (kind == KIND_LINK)
        ANSWER(m, w, r, cache_readlink(m->cache, n, &w->w, &target));
    else if (kind == KIND_FILE && with_content && size)
        r = read_file(m, w, n, size, data);
    if (r == 0)
        r = tree_add(t, path, kind, st->st_mode & 07777, target ? target : data,
                     target ? strlen(target) : size);
    if (r == 0)
        t->v[t->n - 1].inode->ino = st->st_ino;
    return r;
}

static int read_dir(struct mounted *m, struct waiting *w, struct tree *t, const char *path,
                    struct node *dir, bool with_content)
{
    struct names *names = malloc(sizeof(*names));
    int r = list_dir(m, w, dir, names);

    if (r < 0)
        (void)fprintf(stderr, "%s can't be listed: %s\n", path, strerror(-r));
    for (size_t i = 0; i < names->n && r == 0; i++) {
        char at[PATH_MAX_MODEL * 2];
        struct node *n = NULL;
        struct stat st;
        (void)snprintf(at, sizeof(at), "%s%s%s", path, *path ? "/" : "", names->v[i]);
        ANSWER(m, w, r, cache_lookup(m->cache, dir, names->v[i], &w->w, &n, &st));
        if (r == 0)
            r = read_entry(m, w, t, at, n, &st, with_content);
        if (r == 0 && S_ISDIR(st.st_mode))
            r = read_dir(m, w, t, at, n, with_content);
        else if (r < 0)
            (void)fprintf(stderr, "%s is listed and can't be read: %s\n", at, strerror(-r));
        if (n)
            cache_forget(m->cache, n, 1);
    }
    free(names);
    return r;
}

int mounted_read(struct mounted *m, struct tree *ret, bool with_content)
{
    struct waiting w;

    waiting_init(&w);
    memset(ret, 0, sizeof(*ret));
    return read_dir(m, &w, ret, "", cache_root(m->cache), with_content);
}
