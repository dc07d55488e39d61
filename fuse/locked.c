#include "fuse/locked.h"

#include "common/buf.h"
#include "common/hash.h"
#include "common/mem.h"
#include "common/path.h"
#include "fuse/control.h"
#include "fuse/fs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING   0.0
#define NAMES_MAX ((size_t)1 << 30)

/* ---- where a number is ---- */

/* A view, and a path in it. */
struct shown {
    char *key; /* heap; "12" or "12/a/b" */
    uint64_t id;
    const char *rel; /* in `key`; "" for the view itself */
};

static void shown_release(struct shown *s)
{
    free(s->key);
}

/* Takes the key over. -ENOENT: it is none; -ENOMEM when it is NULL. */
static int shown_init(struct shown *s, char *key)
{
    char *end;

    *s = (struct shown){.key = key};
    if (!key)
        return -ENOMEM;
    errno = 0;
    s->id = strtoull(key, &end, 10);
    if (errno || end == key || (*end && *end != '/') || *key < '1' || *key > '9')
        return -ENOENT;
    s->rel = *end ? end + 1 : end;
    return 0;
}

static int shown_of(struct pending *p, struct shown *s)
{
    char *key = links_name_dup(&p->fs->locked, p->rdev);

    return key ? shown_init(s, key) : (*s = (struct shown){0}, -ESTALE);
}

/* A request about what has the number. Only its name may be in the request's buffer. */
static void start(fuse_req_t req, fuse_ino_t ino, int (*run)(struct pending *p),
                  const struct fuse_file_info *fi, const char *name)
{
    struct pending *p = pending_new(req, run, fi);

    if (!p)
        return;
    p->file = NULL;
    p->node = p->fs->root;
    p->rdev = ino;
    p->name = name;
    pending_start(p);
}

/* ---- attributes ---- */

/* The same for a path as long as this process lives, and a positive off_t. */
static uint64_t shown_ino(const char *key)
{
    uint64_t ino = hash_bytes(key, strlen(key)) & INT64_MAX;

    return ino > INO_CONTROL_LAST ? ino : ino + INO_CONTROL_LAST + 1;
}

static int node_of_shown(struct pending *p, const struct shown *s, struct node **ret)
{
    return cache_locked_node(p->fs->cache, s->id, s->rel, &p->waiter, ret);
}

/* Nobody may write there, whatever the mode is. */
static int stat_shown(struct pending *p, const struct shown *s, struct stat *ret)
{
    struct node *node;
    int r = node_of_shown(p, s, &node);

    if (r)
        return r;
    r = cache_getattr(p->fs->cache, node, &p->waiter, ret);
    cache_forget(p->fs->cache, node, 1);
    if (r)
        return r;
    ret->st_ino = shown_ino(s->key);
    if (!S_ISLNK(ret->st_mode))
        ret->st_mode &= ~(mode_t)0222;
    ret->st_nlink = S_ISDIR(ret->st_mode) ? 2 : 1;
    return 0;
}

static int lookup_shown(struct pending *p, const struct shown *s)
{
    struct fuse_entry_param e = {.attr_timeout = NOTHING, .entry_timeout = NOTHING};
    int r = stat_shown(p, s, &e.attr);

    if (r == 0)
        r = links_take(&p->fs->locked, s->key, &e.ino);
    if (r)
        return r;
    if (answer_entry_param(p, &e) < 0)
        links_forget(&p->fs->locked, e.ino, 1);
    return 0;
}

static char *key_of_name(struct pending *p)
{
    auto_free char *parent = links_name_dup(&p->fs->locked, p->rdev);

    if (p->rdev == INO_CONTROL_LOCKED)
        return strdup(p->name);
    return parent ? path_join(parent, p->name) : NULL;
}

static int run_lookup(struct pending *p)
{
    struct shown s;
    int r = shown_init(&s, key_of_name(p));

    if (r == 0)
        r = lookup_shown(p, &s);
    shown_release(&s);
    return r;
}

void locked_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    start(req, parent, run_lookup, NULL, name);
}

static int run_getattr(struct pending *p)
{
    struct shown s;
    int r = shown_of(p, &s);

    if (r == 0)
        r = stat_shown(p, &s, &p->st);
    if (r == 0)
        (void)answer_attr_for(p, &p->st, NOTHING);
    shown_release(&s);
    return r;
}

void locked_getattr(fuse_req_t req, fuse_ino_t ino)
{
    start(req, ino, run_getattr, NULL, NULL);
}

static int run_readlink(struct pending *p)
{
    struct node *node;
    struct shown s;
    char *target;
    int r = shown_of(p, &s);

    if (r == 0)
        r = node_of_shown(p, &s, &node);
    if (r == 0) {
        r = cache_readlink(p->fs->cache, node, &p->waiter, &target);
        cache_forget(p->fs->cache, node, 1);
    }
    if (r == 0) {
        (void)answer_readlink(p, target);
        free(target);
    }
    shown_release(&s);
    return r;
}

void locked_readlink(fuse_req_t req, fuse_ino_t ino)
{
    start(req, ino, run_readlink, NULL, NULL);
}

/* ---- content ---- */

/* The kernel reads by its page cache, so that the file can be mapped, and keeps nothing of an
 * earlier open. */
static int answer_opened(struct pending *p, struct handle *h)
{
    struct open_file *f = open_file_new(p->fs);

    if (!f) {
        cache_release(p->fs->cache, h);
        return -ENOMEM;
    }
    f->handle = h;
    p->fi.fh = (uintptr_t)f;
    p->fi.keep_cache = 0;
    if (answer_open(p) < 0)
        open_file_free(p->fs, f);
    return 0;
}

static int run_open(struct pending *p)
{
    struct handle *h = NULL;
    struct node *node;
    struct shown s;
    int r = shown_of(p, &s);

    if (r == 0)
        r = node_of_shown(p, &s, &node);
    if (r == 0) {
        r = cache_open(p->fs->cache, node, O_RDONLY, &p->waiter, &h);
        cache_forget(p->fs->cache, node, 1);
    }
    shown_release(&s);
    return r ? r : answer_opened(p, h);
}

void locked_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    start(req, ino, run_open, fi, NULL);
}

/* ---- directories ---- */

/* Names with their types, as an open directory keeps them: a byte for the type (S_IFMT without
 * its zeros), the name, a NUL. Some are there twice. */
static int add_name(void *arg, const char *name, uint32_t mode)
{
    char type = (char)(mode >> 12);

    if (buf_add(arg, &type, 1) < 0)
        return -ENOMEM;
    return buf_add(arg, name, strlen(name) + 1);
}

static int add_lock(void *arg, const struct cache_deletion_lock *l)
{
    char name[24];

    (void)snprintf(name, sizeof(name), "%" PRIu64, l->id);
    return add_name(arg, name, S_IFDIR);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

/* Each name once, in order. */
static int sort_names(const struct buf *all, struct buf *ret)
{
    size_t n = 0, cap = 0;
    const char **v = NULL;
    int r = 0;

    for (size_t at = 0; at < all->len && r == 0; at += 2 + strlen(all->data + at + 1)) {
        r = array_grow(v, cap, n + 1);
        if (r == 0)
            v[n++] = all->data + at;
    }
    if (n)
        qsort(v, n, sizeof(*v), compare_names);
    for (size_t i = 0; i < n && r == 0; i++)
        if (i == 0 || strcmp(v[i] + 1, v[i - 1] + 1) != 0)
            r = buf_add(ret, v[i], 2 + strlen(v[i] + 1));
    free(v);
    return r;
}

static int gather(struct pending *p, struct buf *all)
{
    struct shown s;

    if (p->rdev == INO_CONTROL_LOCKED)
        return cache_each_deletion_lock(p->fs->cache, "", add_lock, all);
    int r = shown_of(p, &s);
    if (r == 0)
        r = cache_locked_list(p->fs->cache, s.id, s.rel, &p->waiter, add_name, all);
    shown_release(&s);
    return r;
}

static int run_opendir(struct pending *p)
{
    auto_buf struct buf all = BUF_INIT(NAMES_MAX), names = BUF_INIT(NAMES_MAX);
    int r = gather(p, &all);

    if (r == 0)
        r = sort_names(&all, &names);
    if (r)
        return r;
    struct open_file *f = open_file_new(p->fs);
    if (!f)
        return -ENOMEM;
    f->text_len = names.len;
    f->text = buf_take(&names);
    p->fi.fh = (uintptr_t)f;
    if (answer_open(p) < 0)
        open_file_free(p->fs, f);
    return 0;
}

void locked_opendir(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    start(req, ino, run_opendir, fi, NULL);
}

/* The name at that offset, which is one of the dots or behind its type in the text. */
static const char *name_at(const struct open_file *f, size_t at)
{
    return at == 0 ? "." : at == 1 ? ".." : f->text + at - 2 + 1;
}

/* The offset behind a name is that of the next one in the text, and two more for the dots. */
void locked_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    const struct fuse_file_info *fi, bool plus)
{
    const struct open_file *f = open_file_of(fi);
    char *buf = thread_buffer(size);
    size_t used = 0, at = (size_t)off;

    (void)ino;
    if (!buf) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    while (at < 2 || at - 2 < f->text_len) {
        bool dots = at < 2;
        const char *name = name_at(f, at);
        size_t next = at + (dots ? 1 : 2 + strlen(name));
        mode_t mode = dots ? S_IFDIR : (mode_t)(unsigned char)f->text[at - 2] << 12;
        const struct stat st = {.st_ino = shown_ino(name), .st_mode = mode};
        size_t need = control_add_entry(req, buf + used, size - used, name, &st, next, plus);
        if (need > size - used)
            break;
        used += need;
        at = next;
    }
    (void)fuse_reply_buf(req, buf, used);
}
