/* The mirror file behind a node: its states, stamps, and its places in the lists of dirty and
 * evictable files. States and their order on the disk: docs/format.md, section 3.
 */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* A stamp is believed only when its mtime is older than the clock's granularity. */
#define RACY_NS (20 * NS_PER_MS)

static int64_t stat_mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
}

int node_take_birth_time(struct node *n, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    n->mtime_ns = n->ctime_ns = n->atime_ns = stat_mtime_ns(&st);
    return 0;
}

struct file *file_new(struct node *n, enum file_state state)
{
    struct file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->node = n;
    f->state = state;
    f->fds[FD_READ].fd = f->fds[FD_WRITE].fd = -1;
    f->kept_generation = UINT64_MAX; /* the kernel has no pages of this content */
    /* It counts on from what an earlier mirror file had stored: a change must not look older.
     */
    for (struct entry *e = n->links; e; e = e->next_link)
        if (f->generation < e->stored_generation)
            f->generation = e->stored_generation;
    waitq_init(&f->range_waiters);
    waitq_init(&f->upload_waiters);
    n->file = f;
    return f;
}

/* ---- stamps ---- */

static bool all_stored(const struct node *n) REQUIRES(cache_mutex)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty || !etag_known(&e->etag))
            return false;
    return !(n->flags & NODE_ATTR_DIRTY);
}

unsigned file_stamp_begun(const struct file *f)
{
    if (!f->beginners)
        return 0;
    return f->whole_mtime_ns ? STAMP_BEGUN | STAMP_WHOLE : STAMP_BEGUN;
}

static void stamp_of_node(struct node *n, struct stamp_attrs *ret) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    *ret = (struct stamp_attrs){.ino = n->ino,
                                .mode = n->mode,
                                .uid = n->uid,
                                .gid = n->gid,
                                .rdev = n->rdev,
                                .birth = n->birth};
    if (n->flags & NODE_ATTR_DIRTY)
        ret->flags |= STAMP_ATTR_DIRTY;
    if (n->dir && n->dir->new_here)
        ret->flags |= STAMP_NEW;
    if (n->flags & NODE_ATTRS_HEARSAY)
        ret->flags |= STAMP_HEARSAY;
    if (n->dir) /* nothing else keeps its time: names in the mirror come and go on their own */
        ret->synced_mtime_ns = n->mtime_ns;
    if (!f)
        return;
    ret->seq = f->seq;
    ret->first_seq = f->first_seq;
    if (f->writing_stamp)
        ret->flags |= STAMP_WRITING;
    else if (f->keys_cut && f->state == FILE_CLEAN && all_stored(n))
        ret->flags |= STAMP_MANY;
    if (f->keys_cut)
        ret->flags |= STAMP_KEYS_CUT;
    if (f->cut)
        ret->flags |= f->lost ? STAMP_LOST : STAMP_CUT;
    if (f->synced_mtime_ns) {
        ret->flags |= STAMP_SYNCED;
        ret->synced_mtime_ns = f->synced_mtime_ns;
        ret->synced_size = f->synced_size;
    }
    ret->flags |= file_stamp_begun(f);
    ret->whole_mtime_ns = f->whole_mtime_ns;
    ret->whole_size = f->whole_size;
}

static struct mutex *stamp_lock_of(struct cache *c, const struct node *n)
{
    return &c->stamp_locks[(uintptr_t)n / sizeof(*n) % STAMP_LOCKS];
}

NO_THREAD_SAFETY static void stamp_lock(struct cache *c, const struct node *n)
    ACQUIRE(cache_stamp) EXCLUDES(cache_mutex)
{
    mutex_lock(stamp_lock_of(c, n));
}

NO_THREAD_SAFETY static void stamp_unlock(struct cache *c, const struct node *n)
    RELEASE(cache_stamp)
{
    mutex_unlock(stamp_lock_of(c, n));
}

int node_write_stamp(struct cache *c, struct node *n, int fd)
{
    struct stamp_attrs a;

    stamp_lock(c, n);
    cache_lock(c);
    stamp_of_node(n, &a);
    if (n->file) /* who looks from now on must not rely on what this one takes away */
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

int node_write_stamp_held(struct cache *c, struct node *n)
{
    auto_free char *path = node_path(n);
    auto_close int fd = -1;

    if (!path)
        return 0;
    fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    if (fd == -ENOENT)
        return 0;
    return fd < 0 ? fd : node_write_stamp(c, n, fd);
}

int node_save_stamp(struct cache *c, struct node *n)
{
    ns_read(c);
    int r = node_write_stamp_held(c, n);
    ns_done(c);
    return r;
}

int file_write_keys(struct cache *c, struct node *n, int fd)
{
    struct stamp_keys copy = {0};
    int r = 0;

    stamp_lock(c, n);
    cache_lock(c);
    struct stamp_keys *k = &n->file->keys;
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
    n->file->keys_cut = !all || (r < 0 && n->file->keys_cut); /* the disk has what it had */
    cache_unlock(c);
    stamp_unlock(c, n);
    stamp_keys_release(&copy);
    return r;
}

void file_expect(struct cache *c, struct node *n, int fd, const char *path, const char *etag)
{
    if (!(c->store->caps & STORE_ORIGIN))
        return; /* uploads there are bound to nothing */
    cache_lock(c);
    bool changed = stamp_keys_expect(&n->file->keys, path, etag);
    cache_unlock(c);
    if (changed && file_write_keys(c, n, fd) < 0)
        log_later(&c->log, LOG_LEVEL_DEBUG, "cache %s: what %s replaces can't be noted",
                  c->mirror.dir, path);
}

/* ---- lists ---- */

void file_lru_remove_locked(struct cache *c, struct file *f)
{
    if (!f->in_lru)
        return;
    DL_DELETE2(c->lru, f, lru_prev, lru_next);
    f->in_lru = false;
}

void file_lru_add_locked(struct cache *c, struct file *f)
{
    file_lru_remove_locked(c, f);
    if (f->open_handles || f->queued || f->uploading || f->orphan_id || f->unnamed ||
        f->state == FILE_DIRTY || !f->node->links || (f->node->flags & NODE_ATTR_DIRTY))
        return;
    DL_APPEND2(c->lru, f, lru_prev, lru_next);
    f->in_lru = true;
}

void file_unqueue_locked(struct cache *c, struct file *f)
{
    if (!f->queued)
        return;
    DL_DELETE2(c->dirty, f, dirty_prev, dirty_next);
    f->queued = false;
}

void file_place_locked(struct cache *c, struct file *f)
{
    struct file *before = NULL;

    file_unqueue_locked(c, f);
    if (f->first_seq && c->dirty) {
        before = c->dirty->dirty_prev; /* the last */
        while (before && (!before->first_seq || before->first_seq > f->first_seq))
            before = before == c->dirty ? NULL : before->dirty_prev;
        if (before)
            DL_APPEND_ELEM2(c->dirty, before, f, dirty_prev, dirty_next);
        else
            DL_PREPEND2(c->dirty, f, dirty_prev, dirty_next);
    } else {
        DL_APPEND2(c->dirty, f, dirty_prev, dirty_next);
    }
    f->queued = true;
}

void file_stage_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    auto_free char *path = node_path(n);
    bool staged = path && path_is_staged(c, path);

    if (staged && !f->staged)
        f->staged_ns = clock_mono_ns();
    f->staged = staged;
}

void file_put_off_locked(struct cache *c, struct file *f)
{
    if (!f->wanted)
        f->due_ns = clock_mono_ns() + c->config.settle_ns;
    else if (!f->error) /* else it makes its pause */
        f->due_ns = clock_mono_ns();
}

void file_queue_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    bool ordered = f->first_seq == 0 && f->state == FILE_DIRTY;

    file_lru_remove_locked(c, f);
    if (f->state == FILE_DIRTY || (n->flags & NODE_ATTR_DIRTY))
        f->seq = seq_next_locked(c);
    if (f->uploading && !f->after_seq)
        f->after_seq = f->seq;
    if (ordered) {
        f->first_seq = f->seq;
        file_unqueue_locked(c, f); /* takes its place by first_seq */
    }
    if (!f->queued)
        file_place_locked(c, f);
    file_put_off_locked(c, f);
    file_stage_locked(c, n);
    /* Whoever ends an upload looks for the next. */
    if (c->uploads_running < c->config.upload_jobs)
        scheduler_kick_at_locked(c, f->due_ns);
}

void file_account_locked(struct cache *c, struct file *f, uint64_t blocks_bytes)
{
    /* The disk is looked at once a second only: a fast writer could be through by then. */
    if (blocks_bytes > f->blocks_bytes) {
        uint64_t more = blocks_bytes - f->blocks_bytes;
        c->disk_free_bytes -= more < c->disk_free_bytes ? more : c->disk_free_bytes;
    }
    c->used_bytes += blocks_bytes - f->blocks_bytes;
    f->blocks_bytes = blocks_bytes;
}

/* ---- state changes ---- */

bool node_is_ours(struct node *n)
{
    struct file *f = n->file;

    if (n->is_root || (n->flags & NODE_ATTR_DIRTY))
        return true;
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty || e->src_key)
            return true;
    if (n->dir)
        return n->dir->new_here || n->dir->uploading;
    return f && (f->state == FILE_DIRTY || f->write_handles || f->truncates || f->uploading ||
                 f->queued || f->unnamed || f->orphan_id);
}

bool file_stored_locked(struct node *n, uint64_t generation)
{
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty && e->stored_generation < generation)
            return false;
    return true;
}

void file_want_locked(struct file *f, uint64_t generation)
{
    if (!f->wanted && !f->error)
        f->due_ns = 0; /* it may have been put off since somebody else waited */
    f->wanted = true;
    if (f->wanted_generation < generation)
        f->wanted_generation = generation;
}

void file_mark_dirty_locked(struct cache *c, struct node *n, bool content)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    assert(!content || f->state != FILE_PARTIAL); /* what is not here would go up as zeros */
    atomic_store(&f->changed, true);
    f->generation++;
    n->ctime_ns = clock_real_ns();
    for (struct entry *e = n->links; e; e = e->next_link) {
        e->dirty = true;
        e->changed_ns = clock_mono_ns();
    }
    if (!content)
        return;
    if (f->state != FILE_DIRTY)
        file_lru_remove_locked(c, f);
    f->state = FILE_DIRTY;
    f->content_dirty = true;
    f->suspect = false;
}

static void file_saw_locked(struct cache *c, struct node *n, const struct stat *st)
    REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    bool moved = n->size != (uint64_t)st->st_size ||
                 mirror_time(&c->mirror, n->mtime_ns) != stat_mtime_ns(st);
    int64_t changed_ns = n->ctime_ns;

    file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    if (f->state == FILE_PARTIAL || !S_ISREG(n->mode))
        return;
    if (moved) {
        n->size = (uint64_t)st->st_size;
        n->mtime_ns = stat_mtime_ns(st);
        n->ctime_ns = clock_real_ns();
    }
    if (f->clean_size != n->size || f->clean_mtime_ns != stat_mtime_ns(st) || f->suspect) {
        if (moved || f->state != FILE_DIRTY)
            file_mark_dirty_locked(c, n, true);
    }
    if (moved && n->mtime_ns >= changed_ns)
        n->ctime_ns = n->mtime_ns; /* one write is one time */
}

int file_look_locked(struct cache *c, struct node *n, int fd, struct stat *ret_st)
{
    if (fstat(fd, ret_st) < 0)
        return -errno;
    file_saw_locked(c, n, ret_st);
    return 0;
}

bool file_says_synced(const struct file *f, const struct stat *now)
{
    return f->synced_mtime_ns && f->synced_mtime_ns == stat_mtime_ns(now) &&
           f->synced_size == (uint64_t)now->st_size;
}

bool file_has_writer(int fd)
{
    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
        return errno == EAGAIN; /* a filesystem without leases can't tell: mtime has to do */
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

int file_look_past_locked(struct cache *c, struct node *n, int fd)
{
    struct file *f = n->file;
    struct stat st;

    cache_assert_locked(c);
    if (!f->writing_stamp || f->write_handles || f->state == FILE_PARTIAL)
        return 0;
    int r = file_look_locked(c, n, fd, &st);
    f->held = file_has_writer(fd);
    if (f->held && f->state == FILE_DIRTY)
        f->generation++;
    else if (f->held)
        file_mark_dirty_locked(c, n, true);
    return r;
}

void file_free_locked(struct cache *c, struct file *f)
{
    assert(!f->open_handles && !f->fetches && !f->uploading);
    file_unqueue_locked(c, f);
    file_lru_remove_locked(c, f);
    if (f->is_writer)
        DL_DELETE2(c->writers, f, writer_prev, writer_next);
    file_drop_locked(c, f);
    file_account_locked(c, f, 0);
    c->mirror_files--;
    ranges_clear(&f->present);
    sums_clear(&f->sums);
    free(f->streams);
    stamp_keys_release(&f->keys);
    free(f->orphan_key);
    free(f->etag);
    free(f->error_text);
    free(f->upload_key);
    f->node->file = NULL;
    free(f);
}

/* ---- birth and end of a mirror file ---- */

/* What the mirror's file of a node is made of: others change the node under the
 * lock alone. */
struct born {
    struct stat st;
    bool partial;
    char *target, *xattrs; /* NULL: none */
};

static void born_release(struct born *b)
{
    free(b->target);
    free(b->xattrs);
}

static int born_take(struct cache *c, struct node *n, struct born *ret)
{
    cache_lock(c);
    *ret = (struct born){.partial = n->file->state == FILE_PARTIAL};
    node_stat(n, &ret->st);
    bool links = S_ISLNK(n->mode) && n->target;
    ret->target = links ? strdup(n->target) : NULL;
    ret->xattrs = n->xattrs ? strdup(n->xattrs) : NULL;
    int r = (links && !ret->target) || (n->xattrs && !ret->xattrs) ? -ENOMEM : 0;
    cache_unlock(c);
    return r;
}

static int fill_special(const struct born *b, int fd)
{
    size_t len = b->target ? strlen(b->target) : 0;

    if (len == 0)
        return 0;
    ssize_t w = pwrite(fd, b->target, len, 0);
    return w < 0 ? -errno : (size_t)w != len ? -ENOSPC : 0;
}

static int write_born(struct cache *c, struct node *n, const struct born *b, int fd)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, b->st.st_mtim};
    const struct ranges none = {0};
    int r = S_ISREG(b->st.st_mode) ? 0 : fill_special(b, fd);

    if (r == 0 && S_ISREG(b->st.st_mode) && ftruncate(fd, b->st.st_size) < 0)
        r = -errno;
    if (r == 0 && futimens(fd, times) < 0)
        r = -errno;
    if (r == 0)
        r = node_write_stamp(c, n, fd);
    if (r == 0)
        r = file_write_keys(c, n, fd);
    if (r == 0 && b->partial)
        r = stamp_write_ranges(fd, &none, true);
    if (r == 0 && b->xattrs)
        r = stamp_write_xattrs(fd, b->xattrs);
    return r;
}

static int write_birth_stamps(struct cache *c, struct node *n, int fd)
{
    struct born b;
    int r = born_take(c, n, &b);

    if (r == 0)
        r = write_born(c, n, &b, fd);
    born_release(&b);
    return r;
}

static int new_file_for(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e = n->links;
    auto_free char *key = e ? entry_key(e) : NULL;
    bool empty = n->size == 0 || !S_ISREG(n->mode);

    if (!key)
        return e ? -ENOMEM : -ESTALE;
    struct file *f = file_new(n, empty ? FILE_CLEAN : FILE_PARTIAL);
    if (!f)
        return -ENOMEM;
    c->mirror_files++;
    f->clean_mtime_ns = mirror_time(&c->mirror, n->mtime_ns);
    f->clean_size = n->size;
    f->sum = (struct checksum){(enum checksum_kind)n->sum_kind, n->sum_value};
    f->etag = etag_known(&e->etag) ? etag_dup(&e->etag) : strdup("");
    if (!f->etag || stamp_keys_set(&f->keys, key, f->etag, f->clean_mtime_ns, n->size) < 0)
        return -ENOMEM;
    return 0;
}

int file_materialise(struct cache *c, struct node *n)
{
    cache_lock(c);
    if (n->file) {
        cache_unlock(c);
        return 0;
    }
    uint64_t id = ++c->next_id;
    if (!n->birth)
        n->birth = seq_next_locked(c);
    auto_free char *path = node_path(n);
    int r = path ? new_file_for(c, n) : -ESTALE;
    cache_unlock(c);

    auto_close int fd = -1;
    if (r == 0)
        r = fd = mirror_create_incoming(&c->mirror, id);
    if (r >= 0)
        r = write_birth_stamps(c, n, fd);
    crash_point("materialise-incoming");
    if (r == 0) {
        r = mirror_link_in(&c->mirror, id, path);
        crash_point("materialise-linked");
    }
    if (r < 0) {
        (void)mirror_remove_incoming(&c->mirror, id);
        cache_lock(c);
        if (n->file)
            file_free_locked(c, n->file);
        cache_unlock(c);
        log_later(&c->log, LOG_LEVEL_ERROR, "cache %s: can't make a mirror file for %s: %s",
                  c->mirror.dir, path ? path : "a removed file", strerror(-r));
    }
    return r;
}

int file_need(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool there = n->file != NULL;
    cache_unlock(c);
    if (there)
        return 0;
    ns_write(c);
    int r = file_materialise(c, n);
    ns_done(c);
    return r;
}

int file_discard(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    if (!f)
        return 0;
    auto_free char *path = node_path(n);
    if (!path)
        return -ENOMEM;
    cache_lock(c);
    /* Truncated since it was chosen, it is dirty. */
    bool in_use = f->open_handles || file_fd_users(f) || f->fetches || f->uploading ||
                  f->busy || f->state == FILE_DIRTY;
    uint64_t id = ++c->next_id;
    f->busy = f->busy || !in_use; /* who asks for bytes without a descriptor waits */
    cache_unlock(c);
    if (in_use)
        return -EBUSY;
    int r = mirror_orphan(&c->mirror, path, id, false);
    bool gone = r == 0 || r == -ENOENT;
    crash_point("discard-orphaned");
    cache_lock(c);
    f->busy = false;
    waitq_wake_locked(c, &f->range_waiters, 0);
    if (gone) {
        f->orphan_id = r == 0 ? id : 0;
        file_free_locked(c, f);
    }
    cache_unlock(c);
    return gone ? 0 : r;
}

/* Readers that still need bytes from the store: publish and delete must fetch them first.
 * Without memory they are told ESTALE then. */
static void remember_orphan_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (c->n_orphans == c->cap_orphans) {
        size_t cap = c->cap_orphans ? c->cap_orphans * 2 : 16;
        struct node **v = reallocarray(c->orphans, cap, sizeof(struct node *));
        if (!v)
            return;
        c->orphans = v;
        c->cap_orphans = cap;
    }
    c->orphans[c->n_orphans++] = n;
    node_ref_locked(n);
}

int file_keep_aside(struct cache *c, const char *path, uint64_t *ret_id)
{
    cache_lock(c);
    uint64_t id = ++c->next_id;
    cache_unlock(c);
    int r = mirror_orphan(&c->mirror, path, id, true);
    if (r == 0)
        *ret_id = id;
    return r;
}

void file_drop_orphan(struct cache *c, uint64_t id)
{
    int r = mirror_drop_orphan(&c->mirror, id);

    if (r < 0)
        log_later(&c->log, LOG_LEVEL_WARN, "cache %s: can't remove orphans/%" PRIx64 ": %s",
                  c->mirror.dir, id, strerror(-r));
}

void file_orphaned_locked(struct cache *c, struct node *n, uint64_t id)
{
    struct file *f = n->file;

    f->orphan_key = f->state == FILE_PARTIAL && n->links ? entry_key(n->links) : NULL;
    f->orphan_id = id;
    atomic_store(&f->changed, true);
    file_unqueue_locked(c, f);
    file_lru_remove_locked(c, f);
    f->first_seq = 0;
    if (f->state == FILE_PARTIAL && f->open_handles)
        remember_orphan_locked(c, n);
}

int file_orphan(struct cache *c, struct node *n, const char *path)
{
    cache_lock(c);
    uint64_t id = ++c->next_id;
    cache_unlock(c);
    int r = mirror_orphan(&c->mirror, path, id, false);
    crash_point("orphan-moved");
    if (r < 0)
        return r;
    cache_lock(c);
    file_orphaned_locked(c, n, id);
    cache_unlock(c);
    return 0;
}

int file_leave_name(struct cache *c, struct entry *e)
{
    struct node *n = e->node;
    auto_free char *path = entry_path(e);

    if (!path)
        return -ENOMEM;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    /* The link goes first: a name without a record would be taken for one that was made here.
     */
    int r = mirror_unlink(&c->mirror, path);
    crash_point("name-left");
    if (r < 0 && r != -ENOENT)
        return r;
    cache_lock(c);
    auto_free char *key = entry_key(e);
    if (key)
        stamp_keys_remove(&n->file->keys, key);
    node_keeps_ino_locked(c, n);
    cache_unlock(c);
    if (fd >= 0)
        (void)file_write_keys(c, n, fd);
    return 0;
}

/* The version that the store told is that of the entry. */
static void entry_takes_locked(struct entry *e, const struct object *obj) REQUIRES(cache_mutex)
{
    etag_set(&e->etag, obj->etag);
    entry_forget_version(e);
    if (obj->attrs_known)
        entry_told(e, obj);
}

/* A closed file is the new version, of which nothing is here. */
static int renew(struct cache *c, struct entry *e, const struct object *obj)
{
    struct node *n = e->node;
    int r = file_discard(c, n);

    if (r < 0)
        return r;
    cache_lock(c);
    n->flags &= ~(unsigned)(NODE_ATTRS_KNOWN | NODE_ATTRS_OLD);
    node_apply_attrs(c, n, obj);
    entry_takes_locked(e, obj);
    notice_locked(c, n, NULL);
    cache_unlock(c);
    return 0;
}

/* The new version's node, still nameless. It has the number of one that goes with the name, but
 * not that of one that goes on under others. */
static struct node *successor_locked(struct cache *c, struct entry *e, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct node *old = e->node, *n = node_new(c, S_IFREG);
    bool goes_on = old->links->next_link != NULL;
    auto_free char *key = entry_key(e);

    if (!n || !key) {
        if (n)
            node_collect_locked(c, n);
        return NULL;
    }
    n->ino = goes_on ? ino_of_found_locked(c, key) : old->ino;
    n->flags |= goes_on ? NODE_DEFAULT_INO : old->flags & NODE_DEFAULT_INO;
    node_apply_attrs(c, n, obj);
    return n;
}

/* The name gets a node of its own: handles and other names keep the old one's version. */
static int part(struct cache *c, struct entry *e, const struct object *obj)
{
    struct node *old = e->node, *parent = e->parent;
    auto_free char *path = entry_path(e), *name = strdup(e->name);
    int r = !path || !name          ? -ENOMEM
            : old->links->next_link ? file_leave_name(c, e)
                                    : file_orphan(c, old, path);

    if (r < 0)
        return r;
    cache_lock(c);
    struct node *n = successor_locked(c, e, obj);
    if (n) {
        old->flags |= NODE_REPLACED;
        old->nlink--;
        notice_locked(c, parent, name);
        node_ref_locked(old);
        entry_remove_locked(c, e);
        if (old->links)
            file_lru_add_locked(c, old->file);
        struct entry *e2 = entry_add_locked(c, parent, name, n);
        if (e2) {
            entry_takes_locked(e2, obj);
            e2->may_exist = true;
            e2->verified_ns = clock_mono_ns();
        }
        node_unref_locked(c, old);
        node_collect_locked(c, n);
    }
    cache_unlock(c);
    return n ? 0 : -ENOMEM;
}

int node_replaced(struct cache *c, struct entry *e, const struct object *obj)
{
    struct node *n = e->node;

    cache_lock(c);
    struct file *f = n->file;
    bool in_use = f && (f->open_handles || f->fetches || f->busy || file_fd_users(f));
    bool shared = n->links->next_link != NULL;
    cache_unlock(c);
    return in_use || shared ? part(c, e, obj) : renew(c, e, obj);
}

bool mtime_was_racy(int64_t mtime_ns, int64_t then_ns)
{
    return then_ns - mtime_ns < RACY_NS;
}

bool mtime_is_racy(int64_t mtime_ns)
{
    return mtime_was_racy(mtime_ns, clock_real_ns());
}
