/* A file's stamps: extended attributes of the mirror file that a later mount reads. */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- stamps ---- */

static bool all_stored(const struct node *n) REQUIRES(cache_mutex)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty || !etag_known(&e->etag))
            return false;
    return !(n->flags & NODE_ATTR_DIRTY);
}

static void stamp_of_node(struct node *n, struct stamp_attrs *ret) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    *ret = (struct stamp_attrs){.ino = n->ino,
                                .mode = n->mode,
                                .uid = n->uid,
                                .gid = n->gid,
                                .rdev = n->rdev,
                                .named_seq = n->named_seq};
    if (n->flags & NODE_ATTR_DIRTY)
        ret->flags |= STAMP_ATTR_DIRTY;
    if (n->dir && n->dir->new_here)
        ret->flags |= STAMP_NEW;
    if (n->dir && n->dir->bare)
        ret->flags |= STAMP_BARE;
    if (n->flags & NODE_ATTRS_HEARSAY)
        ret->flags |= STAMP_HEARSAY;
    if (n->dir) /* nothing else keeps its time: names in the mirror come and go on their own */
        ret->synced_mtime_ns = n->mtime_ns;
    if (!f)
        return;
    if (n->flags & NODE_SCRATCH)
        ret->flags |= STAMP_SCRATCH;
    ret->seq = f->seq;
    ret->first_seq = f->debt.seq;
    ret->flags |= f->keys_behind;
    /* Without that flag the file must be what its records say. */
    if (f->writing_stamp)
        ret->flags |= STAMP_WRITING;
    else if (!f->keys_behind && f->keys_cut && f->state == FILE_CLEAN && all_stored(n))
        ret->flags |= STAMP_MANY;
    if (f->keys_cut)
        ret->flags |= STAMP_KEYS_CUT;
    if (f->short_write)
        ret->flags |= f->disk_lost ? STAMP_DISK_LOST : STAMP_SHORT_WRITE;
    if (f->synced_mtime_ns) {
        ret->flags |= STAMP_SYNCED;
        ret->synced_mtime_ns = f->synced_mtime_ns;
        ret->synced_size = f->synced_size;
    }
    ret->flags |= file_stamp_begun(f);
    ret->whole_mtime_ns = f->whole_mtime_ns;
    ret->whole_size = f->whole_size;
    if (f->made_at)
        ret->flags |= STAMP_UNRENAMED;
    ret->made_at = f->made_at;
}

struct mutex *stamp_lock_of(struct cache *c, const struct node *n)
{
    return &c->stamp_locks[(uintptr_t)n / sizeof(*n) % STAMP_LOCKS];
}

int node_write_stamp(struct cache *c, struct node *n, int fd)
{
    struct stamp_attrs a;

    stamp_lock(c, n);
    cache_lock(c);
    stamp_of_node(n, &a);
    if (n->file) /* nobody must rely any more on flags that this stamp takes away */
        n->file->noted &= a.flags;
    cache_unlock(c);
    int r = mirror_note(&c->mirror, stamp_write_attrs(fd, &a));
    cache_lock(c);
    if (r == 0 && n->file)
        n->file->noted = a.flags;
    cache_unlock(c);
    stamp_unlock(c, n);
    return r;
}

int node_write_stamp_ns_locked(struct cache *c, struct node *n)
{
    auto_free char *path = node_path(n);
    auto_close int fd = -1;

    ns_assert_held(c);
    if (!path)
        return 0;
    fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    if (fd == -ENOENT)
        return 0;
    return fd < 0 ? fd : node_write_stamp(c, n, fd);
}

int node_renumber(struct cache *c, struct node *n)
{
    ns_assert_written(c);
    cache_lock(c);
    n->named_seq = seq_next_locked(c);
    node_keeps_ino_locked(c, n);
    cache_unlock(c);
    return node_write_stamp_ns_locked(c, n);
}

/* The xattrs come first: without the other stamp nothing counts. */
static int write_dir_stamps(struct cache *c, struct node *dir, int fd)
{
    cache_lock(c);
    auto_free char *xattrs = dir->xattrs ? strdup(dir->xattrs) : NULL;
    bool no_memory = dir->xattrs && !xattrs;
    cache_unlock(c);
    int r = no_memory ? -ENOMEM : stamp_write_xattrs(fd, xattrs);

    return r < 0 ? r : node_write_stamp(c, dir, fd);
}

int dir_write_stamps(struct cache *c, struct node *dir, const char *path)
{
    ns_assert_written(c);
    int r = mirror_mkdirs(&c->mirror, path);
    auto_close int fd = r < 0 ? r : mirror_open_path(&c->mirror, path, O_RDONLY | O_DIRECTORY);

    return fd < 0 ? fd : write_dir_stamps(c, dir, fd);
}

int node_save_stamp(struct cache *c, struct node *n)
{
    ns_read(c);
    int r = node_write_stamp_ns_locked(c, n);
    ns_done(c);
    return r;
}

void file_set_keys_cut_locked(struct file *f, bool cut)
{
    f->keys_cut = cut;
}

void file_keys_are_behind_locked(struct file *f, unsigned flag)
{
    f->keys_behind |= flag;
}

int file_write_keys(struct cache *c, struct node *n, int fd)
{
    struct stamp_keys copy = {0};
    int r = 0;

    stamp_lock(c, n);
    cache_lock(c);
    struct stamp_keys *k = &n->file->keys;
    const unsigned behind = n->file->keys_behind;
    n->file->keys_behind = 0; /* no other stamp is written meanwhile */
    for (size_t i = 0; i < k->n && r == 0; i++) {
        r = stamp_keys_set(&copy, k->v[i].key, k->v[i].etag, k->v[i].mtime_ns, k->v[i].size);
        bool same =
            k->v[i].mtime_ns == n->file->clean_mtime_ns && k->v[i].size == n->file->clean_size;
        if (r == 0 && same)
            copy.v[copy.n - 1].sum = n->file->sum;
    }
    cache_unlock(c);
    bool all = true;
    if (r == 0)
        r = stamp_write_keys(fd, &copy, &all);
    cache_lock(c);
    n->file->keys_cut = !all || (r < 0 && n->file->keys_cut); /* then the old ones stay */
    n->file->keys_behind |= r < 0 ? behind : 0;
    cache_unlock(c);
    stamp_unlock(c, n);
    stamp_keys_release(&copy);
    return r;
}

void file_expect(struct cache *c, struct node *n, int fd, struct place at, const char *etag)
{
    if (!store_can(c->store, at.key, STORE_ORIGIN) &&
        !store_can(c->store, at.key, STORE_PROMPT))
        return; /* uploads there have no condition */
    cache_lock(c);
    bool changed = stamp_keys_expect(&n->file->keys, at.key, etag);
    cache_unlock(c);
    if (changed && file_write_keys(c, n, fd) < 0)
        log_later(&c->log, LOG_LEVEL_DEBUG, "cache %s: what %s replaces can't be noted",
                  c->mirror.dir, at.key);
}
