/* New files, directories and links: the name is looked at, the node gets what its directory
 * hands on (group, set-group-id bit, default ACL), then its place in the mirror with its
 * stamps. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/tree/children.h"
#include "cache/types/acl.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "common/path.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static void begin_dir_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    dir_take_route(c, n->dir, path);
    n->dir->local_only = true;
    n->dir->new_here = n->dir->kind == DIR_STORED;
    n->dir->bare = !n->dir->new_here;
    n->dir->listed_ns = n->dir->told_ns = clock_mono_ns(); /* it is empty */
    n->dir->stale_marker = tombstone_pending(c, place_of_path(path)) > 0;
}

static int begin_file_locked(struct cache *c, struct node *n, const char *path, bool begins)
    REQUIRES(cache_mutex)
{
    struct file *f = file_new(n, FILE_DIRTY);

    if (!f)
        return -ENOMEM;
    file_count_locked(c);
    file_is_made_locked(f);
    if (begins)
        file_begin_anew_locked(f);
    file_set_made_at_locked(f, S_ISREG(n->mode) && *path ? path_made_at(c, path) : 0);
    return 0;
}

struct node *node_make_locked(struct cache *c, const struct making *m, const char *path)
{
    struct node *n = node_new(c, m->mode);
    bool inherit = m->parent && (m->parent->mode & S_ISGID);

    cache_assert_locked(c);
    if (!n)
        return NULL;
    n->uid = m->cred->uid;
    n->gid = inherit ? m->parent->gid : m->cred->gid;
    if (inherit && S_ISDIR(n->mode))
        n->mode |= S_ISGID;
    n->rdev = (uint32_t)m->rdev;
    n->ino = ino_fresh(c, path);
    n->named_seq = seq_next_locked(c);
    n->flags = NODE_ATTRS_KNOWN;
    node_mark_scratch_locked(c, n, path);
    n->mtime_ns = n->ctime_ns = n->atime_ns = clock_real_ns();
    int r = node_inherit_acl_locked(c, n, m->parent, m->cred->umask);
    if (m->target) {
        n->target = strdup(m->target);
        n->size = strlen(m->target);
        r = n->target ? r : -ENOMEM;
    }
    if (n->dir)
        begin_dir_locked(c, n, path);
    else if (r == 0)
        r = begin_file_locked(c, n, path, m->begins);
    if (r == 0)
        return n;
    node_collect_locked(c, n);
    return NULL;
}

/* The mirror has a directory there, on the way to something that is gone. */
static int take_directory(struct cache *c, struct node *n, const char *path)
{
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY);
    int r = fd < 0 ? fd : node_write_first_stamps(c, n, fd);

    if (r < 0)
        (void)mirror_rmdir(&c->mirror, path); /* it would keep its parent from being removed */
    return r;
}

/* It comes into the mirror with its stamp, too: without one it would be taken for a directory
 * of the store, which may still have one there that was removed here. */
static int make_directory(struct cache *c, struct node *n, const char *path)
{
    cache_lock(c);
    uint64_t id = file_next_id_locked(c);
    cache_unlock(c);
    auto_close int fd = mirror_mkdir_incoming(&c->mirror, id);
    if (fd < 0)
        return fd;
    crash_point("mkdir-made");
    int r = node_write_first_stamps(c, n, fd);
    crash_point("mkdir-stamped");
    if (r == 0)
        r = mirror_link_in(&c->mirror, id, path);
    if (r < 0)
        (void)mirror_remove_incoming(&c->mirror, id);
    return r == -EEXIST ? take_directory(c, n, path) : r;
}

int node_make_in_mirror(struct cache *c, struct node *n, const char *path, bool keep_fd)
{
    ns_assert_written(c);
    if (n->dir)
        return make_directory(c, n, path);
    cache_lock(c);
    const char *target = n->target; /* a symlink's stays */
    cache_unlock(c);
    return target ? file_create_symlink(c, n, path, target) : file_create(c, n, path, keep_fd);
}

#define METADATA_TARGET_MAX 1600

/* ---- common ---- */

/* No name is made that could not be shown. */
static int name_allowed(struct node *parent, const char *name) REQUIRES(cache_mutex)
{
    auto_free char *at = node_path(parent);
    size_t len = strlen(name);

    if (!at)
        return parent->flags & NODE_REMOVED ? -ENOENT : -ENOMEM;
    if (len > PATH_NAME_MAX || strlen(at) + 1 + len >= PATH_KEY_MAX)
        return -ENAMETOOLONG;
    return path_name_shown(at, name, len) ? 0 : -EINVAL;
}

bool name_is_in_no_store_locked(struct cache *c, struct node *parent, const char *name)
{
    auto_free char *path = c->config.routes ? child_path(parent, name) : NULL;

    cache_assert_locked(c);
    return path && path_is_in_no_store(c, path);
}

int name_parent_ready_locked(struct cache *c, struct node *parent, const char *name,
                             struct waiter *w)
{
    cache_assert_locked(c);
    if (!parent->dir)
        return -ENOTDIR;
    if (c->config.read_only)
        return -EROFS;
    int r = name_allowed(parent, name);
    if (r < 0 || name_is_in_no_store_locked(c, parent, name))
        return r;
    return dir_need_locked(c, parent, false, w);
}

size_t name_longest_below(struct node *n)
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

int name_key_fits_locked(struct cache *c, struct node *parent, const char *name, size_t below)
{
    auto_free char *path = child_path(parent, name);
    struct store_facts facts;

    cache_assert_locked(c);
    if (!path)
        return parent->flags & NODE_REMOVED ? -ENOENT : -ENOMEM;
    const struct place at = place_of_path(path);
    store_facts(c->store, at.key, &facts);
    return facts.key_max && strlen(at.key) + below > facts.key_max ? -ENAMETOOLONG : 0;
}

void dir_touch_locked(struct node *dir)
{
    dir->mtime_ns = dir->ctime_ns = clock_real_ns();
    dir->dir->mtime_set = dir->dir->time_early = false;
}

bool entry_may_be_stored(struct entry *e)
{
    struct node *n = e->node;

    if (e->scratch)
        return false;
    if (e->may_exist || e->tried || etag_known(&e->etag) || place_known(e->source))
        return true;
    if (n->dir)
        return n->dir->has_marker || n->dir->debt.running || !n->dir->local_only;
    return n->file && n->file->debt.running;
}

bool dir_was_listed(const struct dir *d)
{
    return d->listed_ns || d->kind == DIR_SCRATCH || (d->local_only && d->new_here);
}

bool name_maybe_marker_locked(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    ns_assert_held(c);
    cache_assert_locked(c);
    if (dir->is_root || (dir->flags & NODE_REMOVED) || d->children || d->has_marker ||
        d->fixed || dir_is_local(d))
        return false;
    d->new_here = true;
    dir_queue_locked(c, dir);
    return true;
}

void name_note_marker(struct cache *c, struct node *dir)
{
    ns_assert_held(c);
    cache_lock(c);
    auto_free char *path = node_path(dir);
    cache_unlock(c);
    if (!path)
        return;
    int r = mirror_mkdirs(&c->mirror, path);
    if (r == 0)
        r = node_write_stamp_ns_locked(c, dir);
    if (r < 0)
        log_later(&c->log, LOG_LEVEL_WARN,
                  "cache %s: an empty directory may be forgotten after a crash: %s",
                  c->mirror.dir, strerror(-r));
}

void name_gained_locked(struct cache *c, struct entry *e)
{
    cache_assert_locked(c);
    entry_changed_here_locked(e);
    dir_touch_locked(e->parent);
    negative_forget_locked(c, e->parent, e->name);
}

/* ---- making ---- */

/* A name that comes, with its node. */
struct coming {
    struct step step;
    const struct making *making;
    struct node *node;
    const char *path;
    struct seat seat;
};

static int make_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    const struct coming *k = container_of(step, struct coming, step);

    return node_make_in_mirror(step->cache, k->node, k->path, k->making->keep_fd);
}

static void make_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct coming *k = container_of(step, struct coming, step);
    const struct making *m = k->making;
    struct cache *c = step->cache;
    struct node *n = k->node;

    struct entry *e = seat_enter_locked(c, &k->seat);
    entry_owes_locked(e, !n->dir); /* a directory has its own queue */
    if (m->may_exist)
        entry_may_exist_locked(e);
    name_gained_locked(c, e);
    unit_grows_locked(c, n->dir ? n : m->parent);
    if (n->dir) {
        m->parent->nlink++;
        dir_queue_locked(c, n);
    } else if (!S_ISREG(n->mode)) {
        file_queue_locked(c, n);
    }
    n->nlookup = 1;
}

/* Makes the node with its name; its lookup count is one. ns held for writing. */
static int make_ns_locked(struct cache *c, const struct making *m, struct node **ret)
    REQUIRES(cache_ns)
{
    cache_lock(c);
    bool exists = entry_find(m->parent, m->name) != NULL;
    bool lost = m->parent->flags & NODE_REMOVED;
    auto_free char *path = child_path(m->parent, m->name);
    struct node *n = exists || lost || !path ? NULL : node_make_locked(c, m, path);
    struct coming k = {
        .step = {.cache = c, .on_disk = make_in_mirror, .in_tree = make_in_tree_locked},
        .making = m,
        .node = n,
        .path = path};
    int r = lost     ? -ENOENT
            : exists ? -EEXIST
            : !n     ? -ENOMEM
                     : seat_take_locked(c, m->parent, m->name, n, &k.seat);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&k.step);
    seat_release(&k.seat);
    if (r == 0)
        *ret = n;
    if (r == 0 || !n)
        return r;
    cache_lock(c);
    node_collect_locked(c, n);
    cache_unlock(c);
    return r;
}

static int make(struct cache *c, const struct making *making, struct waiter *w,
                struct node **ret, struct stat *st)
{
    struct making known = *making, *m = &known;

    cache_lock(c);
    int r = c->queue->locks && lock_file_locked(c, m->parent, m->name)
                ? -EEXIST
                : name_parent_ready_locked(c, m->parent, m->name, w);
    if (r == 0)
        r = attrs_need_locked(c, m->parent, w); /* it hands on its group and default ACL */
    bool free_name = r == 0 && !entry_find(m->parent, m->name);
    if (free_name)
        r = name_admit_locked(c, m->parent, m->name, S_ISDIR(m->mode));
    if (r == 0 && free_name)
        r = name_key_fits_locked(c, m->parent, m->name, S_ISDIR(m->mode) ? 1 : 0);
    if (r == 0)
        r = space_need_locked(c, NULL, w);
    m->may_exist = r == 0 && S_ISDIR(m->mode) && dir_may_hold_locked(c, m->parent, m->name);
    cache_unlock(c);
    if (r != 0)
        return r;
    crash_point("make-ready");
    ns_write(c);
    r = make_ns_locked(c, m, ret);
    if (r == 0) {
        cache_lock(c);
        node_stat(*ret, st);
        cache_unlock(c);
    }
    ns_done(c);
    return r;
}

/* A file that no writer will close. */
static void queue_made(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool queued = n->file && n->links && n->file->write_handles == 0;
    if (queued)
        file_queue_locked(c, n);
    cache_unlock(c);
    file_note_made(c, n, queued);
}

int cache_mknod(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                uint64_t rdev, const struct cache_cred *cred, struct waiter *w,
                struct node **ret, struct stat *st)
{
    const struct making m = {
        .parent = parent, .name = name, .mode = mode, .rdev = rdev, .cred = cred};
    int r = make(c, &m, w, ret, st);

    if (r == 0 && S_ISREG(mode))
        queue_made(c, *ret);
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

/* The target is in the object's metadata, of which an object store takes 2 KiB in all. */
static bool target_fits(struct cache *c, struct node *parent, const char *name,
                        const char *target)
{
    cache_lock(c);
    auto_free char *path = child_path(parent, name);
    cache_unlock(c);
    const struct place at = place_of_path(path ? path : ""); /* removed: nothing will be made */

    return strlen(target) < PATH_MAX && (store_can(c->store, at.key, STORE_DIRS) ||
                                         encoded_len(target) <= METADATA_TARGET_MAX);
}

int cache_symlink(struct cache *c, struct node *parent, const char *name, const char *target,
                  const struct cache_cred *cred, struct waiter *w, struct node **ret,
                  struct stat *st)
{
    const struct making m = {
        .parent = parent, .name = name, .mode = S_IFLNK | 0777, .target = target, .cred = cred};

    if (!target_fits(c, parent, name, target))
        return -ENAMETOOLONG;
    return make(c, &m, w, ret, st);
}

int cache_create(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                 int flags, const struct cache_cred *cred, struct waiter *w,
                 struct node **ret_node, struct stat *st, struct handle **ret)
{
    /* A writer who appends writes a log, which is what it is at any moment. */
    const struct making m = {.parent = parent,
                             .name = name,
                             .mode = mode,
                             .cred = cred,
                             .keep_fd = true,
                             .begins = (flags & O_ACCMODE) != O_RDONLY && !(flags & O_APPEND)};
    struct node *n = NULL;
    pid_t pid;
    cache_lock(c);
    bool is_lock =
        lock_file_is_asked_locked(c, parent, name, &pid) && !lock_file_locked(c, parent, name);
    cache_unlock(c);
    int r = is_lock ? lock_file_create(c, parent, name, pid, mode, flags, cred, w, ret_node, st,
                                       ret)
                    : -ENOTUNIQ;
    if (r != -ENOTUNIQ && r != -EEXIST)
        return r;
    r = make(c, &m, w, &n, st);
    bool made = r == 0;

    if (r == -EEXIST && !(flags & O_EXCL)) {
        r = cache_lookup(c, parent, name, w, &n, st);
        if (r != 0)
            return r;
    }
    if (r != 0)
        return r;
    /* The open takes the new file as it is: a call that parked here would meet it as EEXIST. */
    r = made ? file_open_made(c, n, flags & ~(O_CREAT | O_EXCL), ret)
             : cache_open(c, n, flags & ~(O_CREAT | O_EXCL), w, ret);
    if (made) {
        cache_lock(c);
        if (r == 0)
            (*ret)->begins = m.begins;
        else if (m.begins)
            file_end_anew_locked(n->file);
        file_put_fd_locked(c, n->file, FD_WRITE);
        cache_unlock(c);
    }
    if (made && (r != 0 || (flags & O_ACCMODE) == O_RDONLY))
        queue_made(c, n);
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
        file_set_unnamed_locked(n->file,
                                true); /* it keeps the descriptor until it has a name */
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

int node_inherit_acl_locked(struct cache *c, struct node *n, const struct node *parent,
                            uint32_t umask)
{
    auto_free unsigned char *value = NULL;
    int r = 0;

    cache_assert_locked(c);
    if (S_ISLNK(n->mode))
        return 0;
    ssize_t size =
        c->config.acl && parent ? acl_stored(parent->xattrs, ACL_DEFAULT, &value) : -ENODATA;
    if (size == -ENODATA)
        n->mode &= (uint16_t) ~(umask & 0777);
    if (size < 0)
        return size == -ENODATA ? 0 : (int)size;
    if (n->dir)
        r = acl_add(&n->xattrs, ACL_DEFAULT, value, (size_t)size);
    uint32_t mode = n->mode;
    bool more = r == 0 && acl_inherit(value, (size_t)size, &mode);
    n->mode = (uint16_t)mode;
    if (more)
        r = acl_add(&n->xattrs, ACL_ACCESS, value, (size_t)size);
    return r;
}
