/* Names that users make, remove and move.
 *
 * Every change runs under the namespace lock in the order of docs/format.md: the row of its
 * intention (only when the store has, or may have, something under the name), the mirror, the
 * tree; then it is answered. */
#include "cache/name.h"

#include "cache/crash.h"
#include "common/mem.h"
#include "common/path.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define LINKS_MAX           1000
#define METADATA_TARGET_MAX 1600

/* ---- common ---- */

/* Users make no name that could not be shown to them. */
static int name_allowed(struct node *parent, const char *name) REQUIRES(cache_mutex)
{
    auto_free char *at = node_path(parent);
    size_t len = strlen(name);

    if (!at)
        return parent->flags & NODE_LOST ? -ENOENT : -ENOMEM;
    if (len > PATH_NAME_MAX || strlen(at) + 1 + len >= PATH_KEY_MAX)
        return -ENAMETOOLONG;
    return path_name_shown(at, name, len) ? 0 : -EINVAL;
}

/* The directory takes changes, and what it holds is known; or parks. */
static int name_parent_ready_locked(struct cache *c, struct node *parent, const char *name,
                                    struct waiter *w) REQUIRES(cache_mutex)
{
    if (!parent->dir)
        return -ENOTDIR;
    if (c->config.read_only)
        return -EROFS;
    int r = name_allowed(parent, name);
    return r == 0 ? dir_need_locked(c, parent, false, w) : r;
}

/* How many bytes the longest known key has below that of `n`; of a directory's marker one. */
static size_t name_longest_below(struct node *n)
{
    struct entry *e;
    size_t at;
    size_t longest = n->dir ? 1 : 0;

    if (!n->dir)
        return 0;
    CHILDREN_FOREACH(n->dir->children, e, at)
    {
        size_t len = 1 + strlen(e->name) + name_longest_below(e->node);
        longest = len > longest ? len : longest;
    }
    return longest;
}

/* Whether the store can take what gets this name, with `below` bytes behind it: told when the
 * name is made, since an upload can only fail. */
static int name_key_fits_locked(struct cache *c, struct node *parent, const char *name,
                                size_t below) REQUIRES(cache_mutex)
{
    auto_free char *path = child_path(parent, name);

    if (!path)
        return parent->flags & NODE_LOST ? -ENOENT : -ENOMEM;
    return c->store->key_max && strlen(path) + below > c->store->key_max ? -ENAMETOOLONG : 0;
}

void dir_touch_locked(struct node *dir)
{
    dir->mtime_ns = dir->ctime_ns = clock_real_ns();
    dir->dir->mtime_set = false;
}

bool entry_may_be_stored(struct entry *e)
{
    struct node *n = e->node;

    if (e->may_exist || e->tried || etag_known(&e->etag) || e->src_key)
        return true;
    if (n->dir)
        return n->dir->has_marker || n->dir->uploading || !n->dir->local_only;
    return n->file && n->file->uploading;
}

/* A directory whose last name went must be kept alive by a marker of its own; that it needs one
 * is on the disk before the removal is answered. ns held for writing. */
static void name_maybe_marker(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    cache_lock(c);
    bool needed = !dir->is_root && !(dir->flags & NODE_LOST) && !d->children && !d->has_marker;
    auto_free char *path = needed ? node_path(dir) : NULL;
    if (needed) {
        d->new_here = true;
        dir_queue_locked(c, dir);
    }
    cache_unlock(c);
    if (!path)
        return;
    int r = mirror_mkdirs(&c->mirror, path);
    if (r == 0)
        r = node_write_stamp_held(c, dir);
    if (r < 0)
        log_later(&c->log, LOG_LEVEL_WARN,
                  "cache %s: an empty directory may be forgotten after a crash: %s",
                  c->mirror.dir, strerror(-r));
}

static void name_gained_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    e->changed_ns = clock_mono_ns();
    dir_touch_locked(e->parent);
    absent_forget_locked(c, e->parent, e->name);
}

/* ---- making ---- */

static struct entry *enter_new_locked(struct cache *c, const struct making *m, struct node *n)
    REQUIRES(cache_mutex)
{
    struct entry *e = entry_add_locked(c, m->parent, m->name, n);

    if (!e)
        return NULL;
    e->dirty = !n->dir; /* a directory has its own queue */
    e->may_exist = dir_may_hold_locked(c, m->parent, m->name);
    name_gained_locked(c, e);
    if (n->dir) {
        m->parent->nlink++;
        dir_queue_locked(c, n);
    } else if (!S_ISREG(n->mode)) {
        file_queue_locked(c, n);
    }
    return e;
}

/* Makes the node with its name; its lookup count is one. ns held for writing. */
static int make_held(struct cache *c, const struct making *m, struct node **ret)
{
    cache_lock(c);
    bool exists = entry_find(m->parent, m->name) != NULL;
    bool lost = m->parent->flags & NODE_LOST;
    auto_free char *path = child_path(m->parent, m->name);
    struct node *n = exists || lost || !path ? NULL : node_make_locked(c, m, path);
    cache_unlock(c);
    if (!n)
        return lost ? -ENOENT : exists ? -EEXIST : -ENOMEM;
    int r = node_make_in_mirror(c, n, path, m->keep_fd);
    cache_lock(c);
    if (r == 0 && !enter_new_locked(c, m, n))
        r = -ENOMEM;
    if (r == 0) {
        n->nlookup = 1;
        *ret = n;
    } else {
        node_collect_locked(c, n);
    }
    cache_unlock(c);
    return r;
}

static int make(struct cache *c, const struct making *m, struct waiter *w, struct node **ret,
                struct stat *st)
{
    cache_lock(c);
    int r = name_parent_ready_locked(c, m->parent, m->name, w);
    if (r == 0)
        r = attrs_need_locked(c, m->parent, w); /* it hands on its group and default ACL */
    if (r == 0 && !entry_find(m->parent, m->name))
        r = name_key_fits_locked(c, m->parent, m->name, S_ISDIR(m->mode) ? 1 : 0);
    if (r == 0)
        r = space_need_locked(c, NULL, w);
    cache_unlock(c);
    if (r != 0)
        return r;
    ns_write(c);
    r = make_held(c, m, ret);
    if (r == 0) {
        cache_lock(c);
        node_stat(*ret, st);
        cache_unlock(c);
    }
    ns_done(c);
    return r;
}

/* A file that no writer will close. */
static void queue_new(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool queued = n->file && n->links && n->file->write_handles == 0;
    if (queued)
        file_queue_locked(c, n);
    cache_unlock(c);
    if (queued)
        (void)node_save_stamp(c, n); /* its place in the order: without, it comes last */
    crash_point("create-placed");
}

int cache_mknod(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                uint64_t rdev, const struct cache_cred *cred, struct waiter *w,
                struct node **ret, struct stat *st)
{
    const struct making m = {
        .parent = parent, .name = name, .mode = mode, .rdev = rdev, .cred = cred};
    int r = make(c, &m, w, ret, st);

    if (r == 0 && S_ISREG(mode))
        queue_new(c, *ret);
    return r;
}

int cache_mkdir(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                const struct cache_cred *cred, struct waiter *w, struct node **ret,
                struct stat *st)
{
    const struct making m = {
        .parent = parent, .name = name, .mode = S_IFDIR | (mode & 07777), .cred = cred};

    return make(c, &m, w, ret, st);
}

/* The length of a target as metadata carries it: percent-encoded. */
static size_t encoded_len(const char *s)
{
    size_t len = 0;

    for (; *s; s++)
        len += isalnum((unsigned char)*s) || strchr("-._~/", *s) ? 1 : 3;
    return len;
}

int cache_symlink(struct cache *c, struct node *parent, const char *name, const char *target,
                  const struct cache_cred *cred, struct waiter *w, struct node **ret,
                  struct stat *st)
{
    const struct making m = {
        .parent = parent, .name = name, .mode = S_IFLNK | 0777, .target = target, .cred = cred};

    /* It rides in the object's metadata, of which an object store takes 2 KiB in all. */
    bool in_metadata = !(c->store->caps & STORE_DIRS);
    if (strlen(target) >= PATH_MAX ||
        (in_metadata && encoded_len(target) > METADATA_TARGET_MAX))
        return -ENAMETOOLONG;
    return make(c, &m, w, ret, st);
}

int cache_create(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                 int flags, const struct cache_cred *cred, struct waiter *w,
                 struct node **ret_node, struct stat *st, struct handle **ret)
{
    /* Who appends writes a log, which is what it is at any moment. */
    const struct making m = {.parent = parent,
                             .name = name,
                             .mode = mode,
                             .cred = cred,
                             .keep_fd = true,
                             .begins = (flags & O_ACCMODE) != O_RDONLY && !(flags & O_APPEND)};
    struct node *n = NULL;
    int r = make(c, &m, w, &n, st);
    bool made = r == 0;

    if (r == -EEXIST && !(flags & O_EXCL)) {
        r = cache_lookup(c, parent, name, w, &n, st);
        if (r != 0)
            return r;
    }
    if (r != 0)
        return r;
    /* What was just made is opened as it is: a call that parked here would meet it as EEXIST.
     */
    r = made ? file_open_made(c, n, flags & ~(O_CREAT | O_EXCL), ret)
             : cache_open(c, n, flags & ~(O_CREAT | O_EXCL), w, ret);
    if (made) {
        cache_lock(c);
        if (r == 0)
            (*ret)->begins = m.begins;
        else
            n->file->beginners = 0;
        file_put_fd_locked(c, n->file, FD_WRITE);
        cache_unlock(c);
    }
    if (made && (r != 0 || (flags & O_ACCMODE) == O_RDONLY))
        queue_new(c, n);
    if (r != 0) {
        cache_forget(c, n, 1);
        return r;
    }
    *ret_node = n;
    return 0;
}

int cache_tmpfile(struct cache *c, struct node *parent, uint32_t mode, int flags,
                  const struct cache_cred *cred, struct waiter *w, struct node **ret_node,
                  struct stat *st, struct handle **ret)
{
    const struct making m = {.parent = parent, .mode = S_IFREG | (mode & 07777), .cred = cred};

    if (c->config.read_only)
        return -EROFS;
    cache_lock(c);
    int ready = attrs_need_locked(c, parent, w);
    cache_unlock(c);
    if (ready != 0)
        return ready;
    auto_close int fd = mirror_tmpfile(&c->mirror);
    if (fd < 0)
        return fd;
    const int made_fd = fd;
    cache_lock(c);
    struct node *n = NULL;
    int r = fds_keep_locked(c);
    if (r == 0 && !(n = node_make_locked(c, &m, ""))) {
        fds_unkeep_locked(c);
        r = -ENOMEM;
    }
    if (n) {
        r = node_take_birth_time(n, fd);
        n->nlink = 0;
        n->nlookup = 1;
        n->file->unnamed = true; /* it keeps the descriptor until it has a name */
        file_take_fd_locked(c, n->file, FD_WRITE, take_fd(fd));
        node_stat(n, st);
    }
    cache_unlock(c);
    if (r == 0)
        r = node_write_first_stamps(c, n, made_fd);
    if (r == 0)
        r = cache_open(c, n, flags & ~(O_CREAT | O_EXCL | O_TRUNC), NULL, ret);
    if (r == 0)
        *ret_node = n;
    else if (n)
        cache_forget(c, n, 1);
    return r;
}

/* ---- linking ---- */

static int link_held(struct cache *c, struct node *n, struct node *parent, const char *name)
{
    cache_lock(c);
    struct file *f = n->file;
    bool exists = entry_find(parent, name) != NULL;
    bool lost = (parent->flags & NODE_LOST) || (!n->links && (!f || !f->unnamed));
    bool evicted = !f || f->state == FILE_PARTIAL;
    auto_free char *to = child_path(parent, name);
    auto_free char *from = n->links ? entry_path(n->links) : NULL;
    int unnamed_fd = f ? f->fds[FD_WRITE].fd : -1; /* stays until it has a name */
    cache_unlock(c);
    if (exists || lost || !to)
        return exists ? -EEXIST : lost ? -ENOENT : -ENOMEM;
    if (evicted)
        return -EAGAIN;
    auto_close int fd = from ? mirror_open_path(&c->mirror, from, O_RDONLY)
                             : fcntl(unnamed_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return from ? fd : -errno;
    cache_lock(c);
    n->birth = seq_next_locked(c);
    cache_unlock(c);
    int r = node_write_stamp(c, n, fd);
    if (r == 0)
        r = mirror_link_fd(&c->mirror, fd, to);
    crash_point("link-made");
    if (r < 0)
        return r;
    cache_lock(c);
    struct entry *e = entry_add_locked(c, parent, name, n);
    if (e) {
        n->nlink++;
        n->ctime_ns = clock_real_ns();
        e->dirty = true;
        f->content_dirty = true;
        f->generation++;
        if (f->state == FILE_CLEAN) /* the other names' records are of this content */
            f->stored_generation = f->generation;
        f->state = FILE_DIRTY;
        f->writing_stamp = true;
        if (f->unnamed) {
            f->unnamed = false;
            fds_unkeep_locked(c);
            file_put_fd_locked(c, f, FD_WRITE);
        }
        name_gained_locked(c, e);
        if (f->write_handles == 0)
            file_queue_locked(c, n);
    }
    cache_unlock(c);
    if (e)
        (void)node_write_stamp(c, n, fd); /* its place in the order: without, it comes last */
    return e ? 0 : -ENOMEM;
}

/* What the link stands for is here, and so is the name's directory. */
static int link_ready(struct cache *c, struct node *node, struct node *parent, const char *name,
                      struct waiter *w)
{
    cache_lock(c);
    int r = name_parent_ready_locked(c, parent, name, w);
    if (r == 0)
        r = attrs_need_locked(c, node, w);
    if (r == 0)
        r = attrs_confirm_locked(c, node, w);
    if (r == 0 && node->nlink >= LINKS_MAX)
        r = -EMLINK;
    if (r == 0)
        r = name_key_fits_locked(c, parent, name, 0);
    cache_unlock(c);
    if (r == 0)
        r = file_need(c, node);
    if (r != 0)
        return r;
    cache_lock(c);
    r = node->file ? fetch_complete_locked(c, node, w) : 0;
    cache_unlock(c);
    crash_point("link-ready");
    return r;
}

int cache_link(struct cache *c, struct node *node, struct node *parent, const char *name,
               struct waiter *w, struct node **ret, struct stat *st)
{
    int r;

    if (node->dir)
        return -EPERM;
    do {
        r = link_ready(c, node, parent, name, w);
        if (r != 0)
            return r;
        ns_write(c);
        r = link_held(c, node, parent, name);
        ns_done(c);
    } while (r == -EAGAIN); /* evicted meanwhile: its content is fetched first */
    if (r < 0)
        return r;
    cache_lock(c);
    node->nlookup++;
    node_stat(node, st);
    *ret = node;
    cache_unlock(c);
    return 0;
}

/* ---- removing ---- */

/* Whether somebody may take a name out of a sticky directory the kernel judges by whose the
 * file is, which an index may have told. */
static int name_owner_need_locked(struct cache *c, struct node *parent, struct entry *e,
                                  struct waiter *w) REQUIRES(cache_mutex)
{
    return e && (parent->mode & S_ISVTX) ? attrs_confirm_locked(c, e->node, w) : 0;
}

/* Numbers and records an intention, which is taken over; *ret is NULL when that fails. */
static int record(struct cache *c, struct intent *i, struct intent **ret)
{
    *ret = NULL;
    if (!i)
        return -ENOMEM;
    cache_lock(c);
    i->seq = seq_next_locked(c);
    cache_unlock(c);
    int r = intent_record(c, i);
    if (r < 0)
        intent_free(i);
    else
        *ret = i;
    return r;
}

/* What the store may have there is what this cache put, or tried to: it had nothing before. */
static bool name_is_only_ours(const struct entry *e) REQUIRES(cache_mutex)
{
    return !e->node->dir && !e->may_exist && !e->src_key && !etag_known(&e->etag);
}

/* The version that a removal of the name means. What a pending rename will bring there first
 * has one of its own then. */
static const char *removed_version_locked(struct entry *e, const char *path,
                                          char etag[ETAG_TEXT_MAX]) REQUIRES(cache_mutex)
{
    auto_free char *key = entry_key(e);

    if (name_is_only_ours(e))
        return INTENT_OURS;
    return key && strcmp(key, path) == 0 ? etag_text(&e->etag, etag) : INTENT_ANY;
}

/* `numbered`: with the inode's number. */
static int intend_for(struct cache *c, enum intent_kind kind, const char *from, const char *to,
                      struct entry *e, bool numbered, struct intent **ret)
{
    char etag[ETAG_TEXT_MAX];

    cache_lock(c); /* a copy that ends changes the version */
    struct intent *i =
        intent_new(0, kind, from, to, numbered ? e->node->ino : 0,
                   to ? etag_text(&e->etag, etag) : removed_version_locked(e, from, etag));
    cache_unlock(c);
    return record(c, i, ret);
}

static int name_intend(struct cache *c, enum intent_kind kind, const char *from, const char *to,
                       struct entry *e, struct intent **ret)
{
    return intend_for(c, kind, from, to, e, true, ret);
}

/* The store loses the name, the mirror keeps the file under another one. Without the inode's
 * number recovery can't take it for the removal of the file: killed before the mirror's step
 * the file is still there, and its upload makes the row void. */
static int name_intend_removal(struct cache *c, struct entry *e, const char *path,
                               struct intent **ret)
{
    return intend_for(c, e->node->dir ? INTENT_RMDIR : INTENT_UNLINK, path, NULL, e, false,
                      ret);
}

/* Takes a recorded intention back: its mirror step failed. */
static void name_intend_not(struct cache *c, struct intent *i)
{
    if (!i)
        return;
    journal_take_back(c->journal, &i->seq, 1);
    intent_free(i);
}

/* The name leaves the mirror; another link keeps the file. */
static int unlink_in_mirror(struct cache *c, struct entry *e, const char *path)
{
    struct node *n = e->node;

    if (!n->file)
        return 0;
    if (n->links->next_link)
        return file_leave_name(c, e);
    int r = barrier_pass_on(c, n->file);
    return r == 0 ? file_orphan(c, n, path) : r;
}

static int unlink_held(struct cache *c, struct node *parent, const char *name)
{
    struct intent *i = NULL;

    cache_lock(c);
    struct entry *e = entry_find(parent, name);
    auto_free char *path = e ? entry_path(e) : NULL;
    bool stored = e && entry_may_be_stored(e);
    cache_unlock(c);
    if (!e)
        return -ENOENT;
    if (e->node->dir)
        return -EISDIR;
    if (!path)
        return -ENOMEM;
    int r = stored ? name_intend(c, INTENT_UNLINK, path, NULL, e, &i) : 0;
    crash_point("unlink-row");
    if (r == 0)
        r = unlink_in_mirror(c, e, path);
    crash_point("unlink-mirror");
    if (r < 0) {
        name_intend_not(c, i);
        return r;
    }
    cache_lock(c);
    struct node *n = e->node;
    n->nlink--;
    n->ctime_ns = clock_real_ns();
    if (n->file && n->file->uploading)
        atomic_store(&n->file->changed, true);
    entry_remove_locked(c, e);
    dir_touch_locked(parent);
    if (i)
        intent_add_locked(c, i);
    progress_locked(c);
    cache_check_locked(c);
    cache_unlock(c);
    name_maybe_marker(c, parent);
    return 0;
}

int cache_unlink(struct cache *c, struct node *parent, const char *name, struct waiter *w)
{
    cache_lock(c);
    int r = name_parent_ready_locked(c, parent, name, w);
    if (r == 0)
        r = name_owner_need_locked(c, parent, entry_find(parent, name), w);
    cache_unlock(c);
    if (r != 0)
        return r;
    ns_write(c);
    r = unlink_held(c, parent, name);
    ns_done(c);
    return r;
}

static int rmdir_held(struct cache *c, struct node *parent, const char *name)
{
    struct intent *i = NULL;

    cache_lock(c);
    struct entry *e = entry_find(parent, name);
    auto_free char *path = e ? entry_path(e) : NULL;
    struct dir *d = e ? e->node->dir : NULL;
    /* Its name may show at the store through what is below it until that is removed. */
    bool stored = d && path &&
                  (e->may_exist || d->has_marker || d->uploading || e->src_key ||
                   !d->local_only || !d->new_here || intent_below(c, path));
    int r = !e                               ? -ENOENT
            : !d                             ? -ENOTDIR
            : d->children || d->hidden_names ? -ENOTEMPTY
            : path                           ? 0
                                             : -ENOMEM;
    cache_unlock(c);
    if (r == 0 && stored)
        r = name_intend(c, INTENT_RMDIR, path, NULL, e, &i);
    crash_point("rmdir-row");
    if (r == 0)
        r = mirror_rmdir(&c->mirror, path);
    if (r == -ENOENT && e)
        r = 0; /* known from the listing only */
    crash_point("rmdir-mirror");
    if (r < 0) {
        name_intend_not(c, i);
        return r;
    }
    cache_lock(c);
    parent->nlink--;
    index_drop_locked(c, e->node);
    dir_unqueue_locked(c, e->node);
    e->node->nlink = 0;
    entry_remove_locked(c, e);
    dir_touch_locked(parent);
    if (i)
        intent_add_locked(c, i);
    progress_locked(c);
    cache_unlock(c);
    name_maybe_marker(c, parent);
    return 0;
}

int cache_rmdir(struct cache *c, struct node *parent, const char *name, struct waiter *w)
{
    cache_lock(c);
    int r = name_parent_ready_locked(c, parent, name, w);
    struct entry *e = r == 0 ? entry_find(parent, name) : NULL;
    if (e && e->node->dir)
        r = dir_need_locked(c, e->node, true, w);
    cache_unlock(c);
    if (r != 0)
        return r;
    ns_write(c);
    r = rmdir_held(c, parent, name);
    ns_done(c);
    return r;
}

/* ---- moving ---- */

int node_requeue_locked(void *arg, struct node *n)
{
    struct cache *c = arg;

    if (n->dir && n->dir->uploading)
        n->dir->has_marker = true;
    bool uploading = n->file && n->file->uploading;
    if (uploading)
        atomic_store(&n->file->changed, true);
    /* A directory takes along what an upload to the old path put, or may have put, there. */
    for (struct entry *e = n->links; e; e = e->next_link) {
        e->may_exist = e->may_exist || uploading || e->tried;
        e->refused = false;
    }
    if (n->file)
        n->file->refused_ns = 0;
    if (n->file && n->file->queued && n->file->write_handles == 0)
        file_queue_locked(c, n);
    else if (n->file && n->file->queued) /* keeps its place: it was closed, and is open again */
        file_stage_locked(c, n);
    return 0;
}

int node_may_be_stored(void *arg, struct node *n)
{
    (void)arg;
    for (struct entry *e = n->links; e; e = e->next_link)
        if (entry_may_be_stored(e))
            return 1;
    return 0;
}

static int check_move(struct cache *c, struct moving *m, unsigned flags) REQUIRES(cache_mutex)
{
    struct node *n = m->from->node;
    struct node *over = m->to ? m->to->node : NULL;

    if (over && (flags & RENAME_NOREPLACE))
        return -EEXIST;
    if (n->dir && node_is_below(m->newparent, n))
        return -EINVAL;
    if (over && n->dir && !over->dir)
        return -ENOTDIR;
    if (over && !n->dir && over->dir)
        return -EISDIR;
    if (over && over->dir && (over->dir->children || over->dir->hidden_names))
        return -ENOTEMPTY;
    /* Of a hard link one name can be in the store and another not. What is open, or gets a
     * staging name, is uploaded too late for the removal of the old name to wait for it. */
    bool anew = m->from->dirty && n->file && n->file->state == FILE_DIRTY &&
                upload_comes_first(n->file, UINT64_MAX) && !path_is_staged(c, m->to_path);
    m->copies = n->dir ? tree_each(n, node_may_be_stored, NULL) != 0
                       : !anew && (etag_known(&m->from->etag) || m->from->src_key);
    /* A directory of which nothing is stored can still come to the store under its old name,
     * when an intention passes something through it. */
    m->removes =
        !m->copies && (n->dir ? intent_below(c, m->from_path) : entry_may_be_stored(m->from));
    return 0;
}

int node_rebear(struct cache *c, struct node *n)
{
    cache_lock(c);
    n->birth = seq_next_locked(c);
    node_keeps_ino_locked(c, n);
    cache_unlock(c);
    return node_write_stamp_held(c, n);
}

/* A file of several names, one of which a pending row takes, and which comes to that name
 * within the directory that moves; *ret is referenced, or NULL. 0 or -ENOMEM. */
static int taken_for_older(struct cache *c, const char *from, const char *to, struct node **ret)
{
    struct intent *i;
    int r = 0;

    *ret = NULL;
    cache_lock(c);
    DL_FOREACH(c->intents, i)
    {
        const char *rest = i->ino ? path_below(to, i->from) : NULL;
        if (!rest || !*rest)
            continue;
        auto_free char *path = path_join(from, rest);
        struct node *n = path ? tree_find(c, path, NULL) : NULL;
        r = path ? 0 : -ENOMEM;
        if (n && n->ino == i->ino && n->birth < i->seq)
            *ret = n;
        if (r < 0 || *ret)
            break;
    }
    if (*ret)
        node_ref_locked(*ret);
    cache_unlock(c);
    return r;
}

int node_rebear_below(struct cache *c, const char *from, const char *to)
{
    struct node *n;
    int r;

    while ((r = taken_for_older(c, from, to, &n)) == 0 && n) {
        r = node_rebear(c, n);
        cache_lock(c);
        node_unref_locked(c, n);
        cache_unlock(c);
        if (r < 0)
            break;
    }
    return r;
}

/* The moved thing lies in the mirror, so that recovery can tell by its inode number whether the
 * move happened. */
static int prepare_move(struct cache *c, struct moving *m)
{
    struct node *n = m->from->node, *over = m->to ? m->to->node : NULL;
    int r = n->dir ? mirror_mkdirs(&c->mirror, m->from_path) : file_materialise(c, n);

    /* Nothing of it is in the store, where the marker of what it replaces stays: it gets one of
     * its own, however little there is to say. */
    cache_lock(c);
    if (n->dir && over && over->dir && over->dir->has_marker && !m->copies) {
        n->flags |= NODE_ATTR_DIRTY;
        dir_queue_locked(c, n);
    }
    cache_unlock(c);
    if (r == 0 && n->dir)
        r = node_rebear_below(c, m->from_path, m->to_path);
    return r < 0 ? r : node_rebear(c, n);
}

/* Whether the rename takes the last name of something in the mirror. An empty directory is just
 * replaced there. */
static bool takes_last_name(const struct moving *m)
{
    const struct node *over = m->to ? m->to->node : NULL;

    return over && !over->dir && over->file && !over->links->next_link;
}

/* The mirror's part. What the new name leads to now stays reachable for those who have it open,
 * as orphans/<*ret_id>; 0: there is nothing of the kind. When it fails nothing has changed. */
static int move_in_mirror(struct cache *c, struct moving *m, uint64_t *ret_id)
{
    int r = takes_last_name(m) ? barrier_pass_on(c, m->to->node->file) : 0;

    if (r == 0 && takes_last_name(m))
        r = file_keep_aside(c, m->to_path, ret_id);
    crash_point("orphan-moved");
    if (r == 0)
        r = mirror_rename(&c->mirror, m->from_path, m->to_path, 0);
    if (r < 0 && *ret_id)
        file_drop_orphan(c, *ret_id);
    return r;
}

static void drop_replaced_locked(struct cache *c, struct moving *m, bool *ret_may_exist,
                                 bool *ret_tried, bool *ret_marker, struct etag *ret_etag)
    REQUIRES(cache_mutex)
{
    struct node *over = m->to->node;

    *ret_tried = entry_may_be_stored(m->to) && name_is_only_ours(m->to);
    *ret_may_exist = entry_may_be_stored(m->to) && !*ret_tried;
    if (!m->to->src_key && !over->dir)
        etag_move(ret_etag, &m->to->etag);
    *ret_marker = over->dir && over->dir->has_marker;
    if (over->dir) {
        dir_unqueue_locked(c, over);
        over->nlink = 0;
        m->newparent->nlink--;
    } else {
        over->nlink--;
        if (over->file && over->file->uploading)
            atomic_store(&over->file->changed, true);
        if (over->file)
            stamp_keys_remove(&over->file->keys, m->to_path);
        if (over->links->next_link)
            node_keeps_ino_locked(c, over);
    }
    over->ctime_ns = clock_real_ns();
    entry_remove_locked(c, m->to);
}

static int move_in_tree_locked(struct cache *c, struct moving *m) REQUIRES(cache_mutex)
{
    struct entry *e = m->from;
    struct node *n = e->node;
    struct node *oldparent = e->parent;
    bool may_exist = false, tried = false, marker = false;
    char *src = NULL;
    struct etag replaced = {0}; /* the version that an upload to the new name replaces */

    if (m->copies) {
        src = e->src_key ? strdup(e->src_key) : entry_key(e);
        if (!src)
            return -ENOMEM;
    }
    if (n->dir)
        index_drop_locked(c, n); /* what is moved is another version then */
    if (m->to)
        drop_replaced_locked(c, m, &may_exist, &tried, &marker, &replaced);
    int r = entry_move_locked(c, &e, m->newparent, m->newname);
    if (r < 0) {
        free(src);
        etag_clear(&replaced);
        return r;
    }
    free(e->src_key);
    e->src_key = src;
    e->may_exist = may_exist || (!m->to && dir_may_hold_locked(c, m->newparent, m->newname));
    absent_forget_locked(c, m->newparent, m->newname);
    if (!m->copies) {
        e->stored_generation = 0;
        etag_clear(&e->etag);
        etag_move(&e->etag, &replaced);
    }
    etag_clear(&replaced);
    if (marker && n->dir)
        n->dir->has_marker = true;
    if (n->dir) {
        oldparent->nlink--;
        m->newparent->nlink++;
    }
    n->ctime_ns = clock_real_ns();
    e->changed_ns = clock_mono_ns();
    (void)tree_each(n, node_requeue_locked, c);
    e->tried = tried; /* of what had the name */
    dir_touch_locked(oldparent);
    dir_touch_locked(m->newparent);
    /* Its place in the order of publishing is that of the rename when it was not published. */
    if (n->file && n->file->state == FILE_DIRTY && n->file->write_handles == 0)
        file_queue_locked(c, n);
    return 0;
}

/* The version that an upload to the name replaces, as stamp_keys_expect() takes it; heap. `e`
 * is what has the name, or NULL. */
static char *entry_version_locked(struct cache *c, struct node *dir, const char *name,
                                  struct entry *e) REQUIRES(cache_mutex)
{
    if (e && !e->src_key && etag_known(&e->etag))
        return etag_dup(&e->etag);
    bool any =
        e ? entry_may_be_stored(e) && !name_is_only_ours(e) : dir_may_hold_locked(c, dir, name);
    return any ? strdup(STAMP_ANY_VERSION) : NULL;
}

/* As long as a rename is to bring what the name had, a mount looks for it where the store still
 * has it; and then under the name itself, in a version that can't be told yet. */
void name_expect(struct cache *c, struct node *n, const char *mirror_path, struct node *dir,
                 const char *name, struct entry *e)
{
    cache_lock(c);
    auto_free char *etag = entry_version_locked(c, dir, name, e);
    auto_free char *key = e ? entry_key(e) : child_key(dir, name);
    cache_unlock(c);
    auto_free char *path = child_path(dir, name);
    auto_close int fd = mirror_open_path(&c->mirror, mirror_path, O_RDONLY);
    if (fd < 0 || !key || !path)
        return;
    bool comes = etag && strcmp(key, path) != 0;
    if (comes)
        file_expect(c, n, fd, key, etag);
    file_expect(c, n, fd, path, comes ? STAMP_ANY_VERSION : etag);
}

/* Before the file has the name: a mount that finds it there must know what it is to replace. */
static void note_replaced(struct cache *c, struct moving *m)
{
    struct node *n = m->from->node;

    if (n->dir || m->copies)
        return; /* what is copied to the name is recorded then */
    name_expect(c, n, m->from_path, m->newparent, m->newname, m->to);
}

static int move_held(struct cache *c, struct moving *m)
{
    struct intent *i = NULL;
    struct node *n = m->from->node, *oldparent = m->from->parent;
    uint64_t replaced = 0;
    int r = prepare_move(c, m);

    if (r == 0 && m->copies)
        r = name_intend(c, m->from->node->dir ? INTENT_RENAMEDIR : INTENT_RENAME, m->from_path,
                        m->to_path, m->from, &i);
    else if (r == 0 && m->removes)
        r = name_intend_removal(c, m->from, m->from_path, &i);
    crash_point("rename-row");
    if (r == 0)
        note_replaced(c, m);
    if (r == 0)
        r = move_in_mirror(c, m, &replaced);
    crash_point("rename-mirror");
    if (r < 0) {
        name_intend_not(c, i);
        return r;
    }
    cache_lock(c);
    if (replaced)
        file_orphaned_locked(c, m->to->node, replaced);
    r = move_in_tree_locked(c, m);
    if (i && m->removes && n->file)
        i->moved_ino = n->ino;
    if (i)
        intent_add_locked(c, i);
    progress_locked(c);
    cache_check_locked(c);
    cache_unlock(c);
    name_maybe_marker(c, oldparent);
    return r;
}

static int rename_held(struct cache *c, struct node *parent, const char *name,
                       struct node *newparent, const char *newname, unsigned flags)
{
    cache_lock(c);
    struct moving m = {.from = entry_find(parent, name),
                       .to = entry_find(newparent, newname),
                       .newparent = newparent,
                       .newname = newname};
    auto_free char *from_path = m.from ? entry_path(m.from) : NULL;
    auto_free char *to_path = child_path(newparent, newname);
    m.from_path = from_path;
    m.to_path = to_path;
    int r = !m.from || (newparent->flags & NODE_LOST) ? -ENOENT
            : !from_path || !to_path                  ? -ENOMEM
                                                      : 0;
    bool same = r == 0 && m.to && m.from->node == m.to->node;
    if (r == 0 && !m.to && (flags & RENAME_EXCHANGE))
        r = -ENOENT;
    if (r == 0 && !same)
        r = flags & RENAME_EXCHANGE ? exchange_check(&m) : check_move(c, &m, flags);
    cache_unlock(c);
    if (r < 0 || same)
        return same && (flags & RENAME_NOREPLACE) ? -EEXIST : r;
    if (!(flags & RENAME_EXCHANGE))
        return move_held(c, &m);
    return exchange_held(c, &m);
}

/* What an exchange may have to wait for. */
static int exchange_ready_locked(struct cache *c, struct entry *from, struct entry *to,
                                 struct waiter *w) REQUIRES(cache_mutex)
{
    struct entry *both[2] = {from, to};
    bool dirs[2] = {from->node->dir != NULL, to->node->dir != NULL};
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        struct entry *e = both[i], *other = both[1 - i];
        r = attrs_need_locked(c, e->node, w);
        if (r == 0)
            r = attrs_confirm_locked(c, e->node, w);
        if (r == 0 && !dirs[0] && !dirs[1] && e->node->file)
            r = fetch_complete_locked(c, e->node, w);
        if (r == 0 && dirs[i] && !dirs[1 - i])
            r = exchange_need_tree_locked(c, e->node, w);
        if (r == 0)
            r = name_key_fits_locked(c, other->parent, other->name,
                                     name_longest_below(e->node));
    }
    return r;
}

/* What a rename may have to wait for. */
static int rename_ready_locked(struct cache *c, struct node *parent, const char *name,
                               struct node *newparent, const char *newname, unsigned flags,
                               struct waiter *w) REQUIRES(cache_mutex)
{
    int r = name_parent_ready_locked(c, parent, name, w);

    if (r == 0)
        r = name_parent_ready_locked(c, newparent, newname, w);
    struct entry *from = r == 0 ? entry_find(parent, name) : NULL;
    struct entry *to = r == 0 ? entry_find(newparent, newname) : NULL;
    if (from)
        r = attrs_need_locked(c, from->node, w);
    /* Under its new name it is ours, and nobody asks the store for it any more. */
    if (r == 0 && from)
        r = attrs_confirm_locked(c, from->node, w);
    if (r == 0)
        r = name_owner_need_locked(c, newparent, to, w);
    if (r == 0 && from && !(flags & RENAME_EXCHANGE))
        r = name_key_fits_locked(c, newparent, newname, name_longest_below(from->node));
    if (r == 0 && to && to->node->dir && !(flags & RENAME_EXCHANGE))
        r = dir_need_locked(c, to->node, true, w);
    if (r == 0 && from && to && (flags & RENAME_EXCHANGE))
        r = exchange_ready_locked(c, from, to, w);
    return r;
}

int cache_rename(struct cache *c, struct node *parent, const char *name, struct node *newparent,
                 const char *newname, unsigned flags, struct waiter *w)
{
    int r;

    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    do {
        cache_lock(c);
        r = rename_ready_locked(c, parent, name, newparent, newname, flags, w);
        cache_unlock(c);
        if (r != 0)
            return r;
        ns_write(c);
        r = rename_held(c, parent, name, newparent, newname, flags);
        ns_done(c);
    } while (r == -EAGAIN); /* evicted or forgotten meanwhile: fetched or listed first */
    return r;
}
