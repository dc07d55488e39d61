/* Recovery: what an earlier mount left in the mirror and the journal becomes the tree again.
 * docs/format.md, sections 5 and 6. Runs before any other thread of the cache. */
#include "cache/intent.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <utlist.h>

/* Names of one mirror inode. */
struct seen {
    UT_hash_handle hh;
    ino_t ino;
    struct node *node;
};

struct scan {
    struct cache *cache;
    struct seen *seen;
    struct node **dirty;
    size_t n_dirty, cap_dirty;
    char **drop; /* paths that leave the mirror once the walk is over */
    size_t n_drop, cap_drop;
    char **keep; /* paths that go to kept/ */
    size_t n_keep, cap_keep;
};

static int push_text(char ***v, size_t *n, size_t *cap, const char *text)
{
    if (*n == *cap) {
        size_t more = *cap ? *cap * 2 : 16;
        char **grown = reallocarray(*v, more, sizeof(**v));
        if (!grown)
            return -ENOMEM;
        *v = grown;
        *cap = more;
    }
    (*v)[*n] = strdup(text);
    return (*v)[*n] ? (int)(++*n * 0) : -ENOMEM;
}

static void free_texts(char **v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i]);
    free(v);
}

/* ---- rows ---- */

static int load_row(void *arg, const struct journal_row *row)
{
    struct cache *c = arg;
    struct intent *i = intent_new(row->seq, row->kind, row->from, row->to, row->ino, row->etag);

    if (!i)
        return -ENOMEM;
    if (!path_key_ok(i->from, STORE_KEY_MAX) || (i->to && !path_key_ok(i->to, STORE_KEY_MAX))) {
        log_warn("cache %s: an intention with an impossible path is ignored", c->mirror.dir);
        intent_free(i);
        return 0;
    }
    if (row->seq > c->seq)
        c->seq = row->seq;
    mutex_lock(&c->lock);
    intent_add_locked(c, i);
    mutex_unlock(&c->lock);
    return 0;
}

/* Whether `path` in the mirror is the inode that the row means, and not one made after it. */
static bool row_means(struct cache *c, const struct intent *i, const char *path)
{
    struct stamp_attrs a;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);

    return fd >= 0 && stamp_read_attrs(fd, &a) == 0 && a.ino == i->ino && a.birth < i->seq;
}

/* The directory that a name left may be empty now, and the process may have died before it said
 * so: it is owed to the store, where nothing else may stand for it. */
static int owe_parent(struct cache *c, const char *path)
{
    auto_free char *parent = path_parent(path);
    struct stamp_attrs a;

    if (!parent)
        return -ENOMEM;
    if (*parent == '\0')
        return 0;
    auto_close int fd = mirror_open_path(&c->mirror, parent, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return 0; /* moved or removed as well */
    if (stamp_read_attrs(fd, &a) < 0)
        a = (struct stamp_attrs){.ino = ino_of_key(c, parent),
                                 .mode = S_IFDIR | c->config.dir_mode,
                                 .uid = c->config.uid,
                                 .gid = c->config.gid};
    a.flags |= STAMP_NEW;
    return stamp_write_attrs(fd, &a);
}

/* Only the newest change can lack its step in the mirror: it was not answered then. */
static int redo_newest(struct cache *c)
{
    struct intent *i, *newest = NULL, *last = c->intents ? c->intents->prev : NULL;
    int r = 0;

    DL_FOREACH(c->intents, i)
    {
        if (i->ino)
            newest = i;
    }
    if (newest && row_means(c, newest, newest->from)) {
        if (intent_is_rename(newest))
            r = mirror_rename(&c->mirror, newest->from, newest->to, 0);
        else if (newest->kind == INTENT_UNLINK)
            r = mirror_unlink(&c->mirror, newest->from);
        else
            r = mirror_rmdir(&c->mirror, newest->from);
    }
    if (r < 0 && r != -ENOENT)
        return r;
    return last ? owe_parent(c, last->from) : 0;
}

/* Where what is now at `path` was before the renames up to `last`. What a rename moved away
 * from there is not it: that was made later. */
static char *path_before(struct cache *c, struct intent *last, const char *path)
{
    char *at = strdup(path);

    for (struct intent *i = last; at && i; i = i == c->intents ? NULL : i->prev) {
        if (!intent_is_rename(i))
            continue;
        bool dir = i->kind == INTENT_RENAMEDIR;
        const char *rest = path_below(i->to, at);
        const char *left = path_below(i->from, at);
        if (rest && (dir || !*rest)) {
            char *moved = path_join(i->from, rest);
            free(at);
            at = moved;
        } else if (left && (dir || !*left)) {
            break;
        }
    }
    return at;
}

static char *path_after(struct intent *first, const char *path)
{
    char *at = strdup(path);

    for (struct intent *i = first; at && i; i = i->next) {
        const char *rest = intent_is_rename(i) ? path_below(i->from, at) : NULL;
        if (!rest || (i->kind == INTENT_RENAME && *rest))
            continue;
        char *moved = path_join(i->to, rest);
        free(at);
        at = moved;
    }
    return at;
}

/* Entries that a pending rename moved read from where the store still has them. */
static int apply_renames(struct cache *c)
{
    struct intent *i;

    DL_FOREACH(c->intents, i)
    {
        if (!intent_is_rename(i))
            continue;
        auto_free char *at = path_after(i->next, i->to);
        auto_free char *from = path_before(c, i == c->intents ? NULL : i->prev, i->from);
        struct entry *e = NULL;
        if (!at || !from)
            return -ENOMEM;
        struct node *n = tree_find(c, at, &e);
        if (!n || !e || n->ino != i->ino)
            continue; /* removed or replaced since */
        free(e->src_key);
        e->src_key = strdup(from);
        if (!e->etag && !n->dir)
            e->etag = strdup(i->etag);
        e->may_exist = true;
    }
    return 0;
}

/* ---- the mirror ---- */

static void take_stamp(struct cache *c, struct node *n, const struct stamp_attrs *a)
{
    n->ino = a->ino;
    n->birth = a->birth;
    n->mode = a->mode;
    n->uid = a->uid;
    n->gid = a->gid;
    n->rdev = a->rdev;
    n->flags |= NODE_ATTRS_KNOWN;
    n->flags &= ~(unsigned)NODE_DEFAULT_INO;
    if (a->flags & STAMP_ATTR_DIRTY)
        n->flags |= NODE_ATTR_DIRTY;
    if (a->birth > c->seq)
        c->seq = a->birth;
    if (a->seq > c->seq)
        c->seq = a->seq;
}

static int scan_dir(struct scan *s, const char *path, int fd)
{
    struct cache *c = s->cache;
    struct stamp_attrs a;
    struct node *n = tree_make_dirs_locked(c, path);

    if (!n)
        return -ENOMEM;
    n->dir->in_mirror = true;
    if (stamp_read_attrs(fd, &a) < 0 || !S_ISDIR(a.mode))
        return 0; /* made on the way to a file: the listing knows it */
    take_stamp(c, n, &a);
    (void)stamp_read_xattrs(fd, &n->xattrs);
    n->dir->new_here = a.flags & STAMP_NEW;
    n->dir->stale_marker = n->dir->new_here && ghost_pending(c, path);
    if (n->links)
        n->links->may_exist = true;
    if (n->dir->new_here || (n->flags & NODE_ATTR_DIRTY))
        dir_queue_locked(c, n);
    return 0;
}

static struct stamp_key *key_of(struct cache *c, struct file *f, const char *path)
{
    if (c->renames == 0)
        return stamp_keys_find(&f->keys, path);
    struct intent *last = c->intents ? c->intents->prev : NULL;
    auto_free char *before = path_before(c, last, path);
    return before ? stamp_keys_find(&f->keys, before) : NULL;
}

/* Data that was not synced may be gone after a reboot, whatever the stamps say. */
static bool trusted(struct cache *c, const struct stamp_attrs *a, const struct stat *st)
{
    int64_t mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;

    return !c->mirror.rebooted ||
           ((a->flags & STAMP_SYNCED) && a->synced_mtime_ns == mtime_ns &&
            a->synced_size == (uint64_t)st->st_size);
}

static int remember_dirty(struct scan *s, struct node *n)
{
    if (s->n_dirty == s->cap_dirty) {
        size_t cap = s->cap_dirty ? s->cap_dirty * 2 : 64;
        struct node **v = reallocarray(s->dirty, cap, sizeof(struct node *));
        if (!v)
            return -ENOMEM;
        s->dirty = v;
        s->cap_dirty = cap;
    }
    s->dirty[s->n_dirty++] = n;
    return 0;
}

enum verdict {
    VERDICT_DROP = 1, /* of no use: the store has it */
    VERDICT_KEEP,     /* owed to the store, but blocks of it may be lost */
};

/* The file keeps its number and reads from the store again. Of a file with other names these
 * may need the bytes, and a symlink is its bytes: the name is dropped. */
static int forget_content(struct cache *c, struct node *n, const char *path,
                          const struct stat *st, const struct stamp_key *k)
{
    struct ranges none = {0};

    if (st->st_nlink > 1 || !S_ISREG(n->mode))
        return VERDICT_DROP;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDWR);
    int r = fd < 0 ? fd : stamp_write_ranges(fd, &none, true);
    if (r == 0 && (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)k->size) < 0))
        r = -errno;
    n->file->state = FILE_PARTIAL;
    ranges_clear(&n->file->present);
    file_account_locked(c, n->file, 0);
    return r < 0 ? VERDICT_DROP : 0;
}

/* Sets the state of one name; a verdict when it leaves the mirror. */
static int judge(struct scan *s, struct entry *e, const char *path, const struct stamp_attrs *a,
                 const struct stat *st, bool partial)
{
    struct cache *c = s->cache;
    struct node *n = e->node;
    struct file *f = n->file;
    struct stamp_key *k = key_of(c, f, path);
    bool same = k && k->mtime_ns == n->mtime_ns && k->size == (uint64_t)st->st_size;

    if (k) {
        e->etag = strdup(k->etag);
        if (!f->etag)
            f->etag = strdup(k->etag);
    }
    e->may_exist = true;
    if (partial) {
        if (!k)
            return VERDICT_DROP;
        f->clean_mtime_ns = n->mtime_ns = k->mtime_ns;
        f->clean_size = n->size = k->size;
        if ((uint64_t)st->st_size != k->size)
            return VERDICT_DROP; /* a truncate that was not answered */
        if (c->mirror.rebooted && forget_content(c, n, path, st, k) != 0)
            return VERDICT_DROP;
        e->dirty = n->flags & NODE_ATTR_DIRTY;
        return e->dirty ? remember_dirty(s, n) : 0;
    }
    if (same && !(a->flags & STAMP_WRITING)) {
        if (!trusted(c, a, st) && k->size && forget_content(c, n, path, st, k) != 0)
            return VERDICT_DROP;
        f->clean_mtime_ns = n->mtime_ns;
        f->clean_size = n->size;
        e->dirty = n->flags & NODE_ATTR_DIRTY;
        return e->dirty ? remember_dirty(s, n) : 0;
    }
    if (!trusted(c, a, st))
        return VERDICT_KEEP;
    f->state = FILE_DIRTY;
    f->content_dirty = true;
    f->writing_stamp = true;
    e->dirty = true;
    return remember_dirty(s, n);
}

static int read_target(struct node *n, int fd)
{
    char text[PATH_MAX];
    ssize_t len = pread(fd, text, sizeof(text) - 1, 0);

    if (len < 0)
        return -errno;
    text[len] = '\0';
    n->target = strdup(text);
    n->size = (uint64_t)len;
    return n->target ? 0 : -ENOMEM;
}

static struct node *new_node(struct scan *s, const struct stamp_attrs *a, const struct stat *st,
                             int fd, bool *ret_partial)
{
    struct cache *c = s->cache;
    struct node *n = node_new(c, a->mode);
    struct file *f = n ? file_new(n, FILE_CLEAN) : NULL;

    if (!f) {
        if (n)
            node_collect_locked(c, n);
        return NULL;
    }
    c->mirror_files++;
    take_stamp(c, n, a);
    n->nlink = 0;
    n->size = (uint64_t)st->st_size;
    n->mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    n->ctime_ns = (int64_t)st->st_ctim.tv_sec * NS_PER_SEC + st->st_ctim.tv_nsec;
    n->atime_ns = n->mtime_ns;
    f->seq = a->seq;
    f->first_seq = a->first_seq;
    f->generation = 1;
    if (a->flags & STAMP_CUT)
        file_cut_locked(c, n, n->size);
    (void)stamp_read_xattrs(fd, &n->xattrs);
    (void)stamp_read_keys(fd, &f->keys);
    int r = stamp_read_ranges(fd, &f->present);
    *ret_partial = r != -ENODATA;
    if (*ret_partial)
        f->state = FILE_PARTIAL;
    if (S_ISLNK(n->mode) && read_target(n, fd) < 0)
        n->target = strdup("");
    file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    return n;
}

static int enter_name(struct scan *s, const char *path, const struct stamp_attrs *a,
                      const struct stat *st, int fd)
{
    struct cache *c = s->cache;
    auto_free char *parent_path = path_parent(path);
    struct node *parent = parent_path ? tree_make_dirs_locked(c, parent_path) : NULL;
    struct seen *seen = NULL;
    bool partial = false;

    if (!parent)
        return -ENOMEM;
    if (st->st_nlink > 1)
        HASH_FIND(hh, s->seen, &st->st_ino, sizeof(st->st_ino), seen);
    struct node *n = seen ? seen->node : new_node(s, a, st, fd, &partial);
    struct entry *e = n ? entry_add_locked(c, parent, path_basename(path), n) : NULL;
    if (!e)
        return -ENOMEM;
    n->nlink++;
    if (st->st_nlink > 1 && !seen) {
        seen = calloc(1, sizeof(*seen));
        if (!seen)
            return -ENOMEM;
        seen->ino = st->st_ino;
        seen->node = n;
        HASH_ADD(hh, s->seen, ino, sizeof(seen->ino), seen);
    }
    int r = judge(s, e, path, a, st, partial);
    if (r != VERDICT_DROP && r != VERDICT_KEEP) {
        if (r == 0 && n->file->state != FILE_DIRTY)
            file_lru_add_locked(c, n->file);
        return r;
    }
    entry_remove_locked(c, e);
    return r == VERDICT_KEEP ? push_text(&s->keep, &s->n_keep, &s->cap_keep, path)
                             : push_text(&s->drop, &s->n_drop, &s->cap_drop, path);
}

static int scan_file(struct scan *s, const char *path, int fd, const struct stat *st)
{
    struct cache *c = s->cache;
    struct stamp_attrs a;
    int r = stamp_read_attrs(fd, &a);

    if (r == -ENODATA && st->st_size == 0)
        return push_text(&s->drop, &s->n_drop, &s->cap_drop, path); /* never answered */
    if (r < 0 || S_ISDIR(a.mode)) {
        log_warn("cache %s: %s has no readable stamp; it is taken for changed", c->mirror.dir,
                 path);
        a = (struct stamp_attrs){.ino = ino_fresh(c, path),
                                 .mode = S_IFREG | c->config.file_mode,
                                 .uid = c->config.uid,
                                 .gid = c->config.gid,
                                 .flags = STAMP_WRITING};
    }
    bool owes = a.flags & STAMP_WRITING;
    if (owes && !trusted(c, &a, st))
        return push_text(&s->keep, &s->n_keep, &s->cap_keep, path);
    return enter_name(s, path, &a, st, fd);
}

static int scan_one(void *arg, const char *path, int fd, const struct stat *st)
{
    struct scan *s = arg;

    if (!path_key_ok(path, STORE_KEY_MAX))
        return 0;
    return S_ISDIR(st->st_mode) ? scan_dir(s, path, fd) : scan_file(s, path, fd, st);
}

/* ---- order ---- */

static int by_close(const void *pa, const void *pb)
{
    const struct node *a = *(struct node *const *)pa, *b = *(struct node *const *)pb;
    uint64_t sa = a->file->first_seq ? a->file->first_seq : a->file->seq;
    uint64_t sb = b->file->first_seq ? b->file->first_seq : b->file->seq;

    /* Those that were never closed come last, by time. */
    sa = sa ? sa : UINT64_MAX;
    sb = sb ? sb : UINT64_MAX;
    if (sa != sb)
        return sa < sb ? -1 : 1;
    return a->mtime_ns < b->mtime_ns ? -1 : a->mtime_ns > b->mtime_ns;
}

static void queue_in_order_locked(struct scan *s)
{
    struct cache *c = s->cache;
    uint64_t before = 0;

    if (s->n_dirty == 0)
        return; /* qsort() takes no NULL */
    qsort(s->dirty, s->n_dirty, sizeof(struct node *), by_close);
    for (size_t i = 0; i < s->n_dirty; i++) {
        struct node *n = s->dirty[i];
        struct file *f = n->file;
        if (f->queued)
            continue;
        if (!f->first_seq)
            f->first_seq = f->seq ? f->seq : seq_next_locked(c);
        if (f->first_seq <= before)
            f->first_seq = before + 1;
        before = f->first_seq;
        if (before > c->seq)
            c->seq = before;
        if (!f->seq)
            f->seq = f->first_seq;
        auto_free char *path = node_path(n);
        f->staged = path && path_is_staged(c, path);
        f->staged_ns = clock_mono_ns();
        DL_APPEND2(c->dirty, f, dirty_prev, dirty_next);
        f->queued = true;
        file_lru_remove_locked(c, f); /* another of its names was found clean */
    }
}

static int clear_drops(struct scan *s)
{
    struct cache *c = s->cache;
    int r = 0;

    for (size_t i = 0; i < s->n_drop && r == 0; i++) {
        r = mirror_unlink(&c->mirror, s->drop[i]);
        r = r == -ENOENT ? 0 : r;
    }
    for (size_t i = 0; i < s->n_keep && r == 0; i++) {
        log_warn("%s was changed but not synced before the machine went down; it is kept as "
                 "%s/kept/%s and not published",
                 s->keep[i], c->mirror.dir, s->keep[i]);
        r = mirror_keep(&c->mirror, s->keep[i]);
    }
    return r;
}

static int count_kept(void *arg, const char *path, int fd, const struct stat *st)
{
    (void)path;
    (void)fd;
    if (S_ISREG(st->st_mode))
        ++*(uint64_t *)arg;
    return 0;
}

/* ---- upload sessions ---- */

static int no_part(void *arg, const struct part *part)
{
    (void)arg;
    (void)part;
    return 0;
}

static int abort_session(void *arg, const char *key, const char *token)
{
    struct cache *c = arg;
    struct upload *up = NULL;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    int r = store_upload_resume(c->store, &op, key, token, no_part, NULL, &up);
    if (r == 0)
        r = store_upload_abort(up, &op);
    if (r < 0 && r != -ENOENT)
        log_warn("an unfinished upload of %s could not be ended: %s", key, op.why);
    return 0;
}

struct session_keys {
    char **v;
    size_t n, cap;
};

static int collect_session(void *arg, const char *key, const char *token)
{
    struct session_keys *k = arg;

    (void)token;
    return push_text(&k->v, &k->n, &k->cap, key);
}

static int abort_sessions(struct cache *c)
{
    struct session_keys k = {0};
    int r = journal_each_session(c->journal, collect_session, &k);

    if (r == 0 && k.n > 0)
        r = journal_each_session(c->journal, abort_session, c);
    for (size_t i = 0; i < k.n && r == 0; i++)
        r = journal_remove_session(c->journal, k.v[i]);
    free_texts(k.v, k.n);
    return r;
}

static void scan_release(struct scan *s)
{
    struct seen *e, *next;

    HASH_ITER(hh, s->seen, e, next)
    {
        HASH_DEL(s->seen, e);
        free(e);
    }
    free(s->dirty);
    free_texts(s->drop, s->n_drop);
    free_texts(s->keep, s->n_keep);
}

static int rebuild(struct cache *c)
{
    struct scan s = {.cache = c};

    mutex_lock(&c->lock);
    int r = mirror_walk(c->mirror.tree_fd, scan_one, &s);
    if (r == 0)
        r = clear_drops(&s);
    if (r == 0)
        r = apply_renames(c);
    if (r == 0)
        queue_in_order_locked(&s);
    mutex_unlock(&c->lock);
    scan_release(&s);
    return r;
}

int cache_recover(struct cache *c, struct op *op)
{
    int r = mirror_clean(&c->mirror);

    if (r == 0)
        r = journal_each(c->journal, load_row, c);
    if (r == 0)
        r = redo_newest(c);
    if (r == 0)
        r = rebuild(c);
    if (r == 0)
        r = mirror_walk(c->mirror.kept_fd, count_kept, &c->kept_files);
    if (r == 0 && c->store)
        r = abort_sessions(c);
    if (r == 0)
        r = pins_load(c);
    if (r == 0)
        r = mirror_note_boot(&c->mirror);
    if (r < 0)
        return op_fail(op, r, "cache %s: recovery failed: %s; nothing was removed",
                       c->mirror.dir, strerror(-r));
    return 0;
}
