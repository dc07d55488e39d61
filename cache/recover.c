/* Recovery: what an earlier mount left in the mirror and the journal becomes the tree again.
 * docs/format.md, sections 5 and 6. Runs before any other thread of the cache. */
#include "cache/recover_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/door.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/location.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int push_text(char ***v, size_t *n, size_t *cap, const char *text)
{
    if (array_grow(*v, *cap, *n + 1))
        return -ENOMEM;
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

static int load_row(void *arg, const struct journal_row *row) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    bool renames = row->kind == INTENT_RENAME || row->kind == INTENT_RENAMEDIR;
    bool moved = !renames && row->to; /* the row is not that of the file's own removal */
    struct intent *i = intent_new(row->seq, row->kind, row->from, renames ? row->to : NULL,
                                  moved ? 0 : row->ino, row->etag);

    if (!i || (moved && intent_note_moved(i, row->ino, row->to) < 0) ||
        (renames && intent_note_over(i, row->over) < 0)) {
        intent_free(i);
        return -ENOMEM;
    }
    if (!path_key_ok(i->from, STORE_KEY_MAX) || (i->to && !path_key_ok(i->to, STORE_KEY_MAX))) {
        log_warn("cache %s: an intention with an impossible path is ignored", c->mirror.dir);
        intent_free(i);
        return 0;
    }
    if (row->seq > c->tree->seq)
        c->tree->seq = row->seq;
    intent_add_locked(c, i);
    i->redo = intent_is_rename(i) && c->store &&
              store_can(c->store, intent_source(i).key, STORE_RENAME) &&
              intent_comes_first(c, i);
    return 0;
}

/* Whether `path` in the mirror is the inode that the row means, and not one made after it. */
static bool row_means(struct cache *c, const struct intent *i, const char *path)
{
    struct stamp_attrs a;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);

    return fd >= 0 && stamp_read_attrs(fd, &a) == 0 && a.ino == i->ino && a.named_seq < i->seq;
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
    bool ours = stamp_read_attrs(fd, &a) == 0;
    /* The store has it, with attributes that nobody knows here. Without a store to ask that of
     * it is left to the next mount, which has the row, too. */
    bool stored = path_dir_kind(c, parent) == DIR_STORED; /* else it may stay here alone */
    if (!ours && stored &&
        (!c->store || store_dir_can(c->store, place_of_path(parent).key, STORE_DIRS)))
        return 0;
    if (!ours)
        a = (struct stamp_attrs){.ino = ino_of_place(c, place_of_path(parent), true),
                                 .mode = S_IFDIR | c->config.dir_mode,
                                 .uid = c->config.uid,
                                 .gid = c->config.gid};
    a.flags |= STAMP_NEW;
    return stamp_write_attrs(fd, &a);
}

/* Whether the newest row is the last of an exchange that the mirror lacks: it leaves the
 * temporary name, where an earlier row of the same inode leads. */
static const struct intent *exchange_begun(struct cache *c, const struct intent *newest)
    REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        if (i != newest && i->ino == newest->ino && intent_is_rename(i) &&
            intent_is_rename(newest) && strcmp(i->to, newest->from) == 0 &&
            row_means(c, i, i->from))
            return i;
    }
    return NULL;
}

/* Whether the mirror has something of the other kind at the row's new name: the row is of an
 * exchange then, since nothing is renamed onto another kind. */
static bool other_kind_at_target(struct cache *c, const struct intent *i)
{
    struct stat st;
    auto_close int fd = mirror_open_path(&c->mirror, i->to, O_RDONLY);

    return fd >= 0 && fstat(fd, &st) == 0 &&
           S_ISDIR(st.st_mode) != (i->kind == INTENT_RENAMEDIR);
}

/* Only the newest change can lack its step in the mirror: it was not answered then. */
static int redo_newest(struct cache *c) REQUIRES(cache_mutex)
{
    struct intent *i, *newest = NULL, *last = row_last(c);
    int r = 0;

    ROWS_FOREACH(c, i)
    {
        if (i->ino)
            newest = i;
    }
    const struct intent *begun = newest ? exchange_begun(c, newest) : NULL;
    if (begun) {
        r = mirror_rename(&c->mirror, begun->from, newest->to, RENAME_EXCHANGE);
    } else if (newest && row_means(c, newest, newest->from)) {
        if (intent_is_rename(newest))
            r = mirror_rename(&c->mirror, newest->from, newest->to,
                              other_kind_at_target(c, newest) ? RENAME_EXCHANGE : 0);
        else if (newest->kind == INTENT_UNLINK)
            r = mirror_unlink(&c->mirror, newest->from);
        else
            r = mirror_rmdir(&c->mirror, newest->from);
    }
    if (r < 0 && r != -ENOENT)
        return r;
    return last ? owe_parent(c, last->from) : 0;
}

struct place recover_place_before(struct cache *c, struct intent *last, const char *path,
                                  bool *ret_later)
{
    char *at = strdup(path);
    bool later = false;

    cache_assert_locked(c);
    for (struct intent *i = last; at && i && !later; i = row_prev(i))
        later = intent_backward(i, &at) == INTENT_LEFT;
    *ret_later = later;
    return place_own_path(at);
}

/* Entries that a pending rename moved read from where the store still has them. */
static int apply_renames(struct cache *c) REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        if (!intent_is_rename(i))
            continue;
        auto_free char *at = intent_path_after(row_next(i), i->to);
        bool later;
        auto_place struct place from = recover_place_before(c, row_prev(i), i->from, &later);
        struct entry *e = NULL;
        if (!at || !place_known(from))
            return -ENOMEM;
        struct node *n = tree_find(c, at, &e);
        if (!n || !e || n->ino != i->ino)
            continue; /* removed or replaced since */
        place_free(&e->source);
        e->source = place_take(&from);
        if (!etag_known(&e->etag) && !n->dir)
            entry_is_noted_locked(e, i->etag);
        entry_may_exist_locked(e);
    }
    return 0;
}

/* A pending rename of a directory brings what an upload of a lost mount put, or may have put,
 * under the older path, if the file had the name before it. */
static int note_brought(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    for (struct entry *e = n->file ? n->links : NULL; e; e = e->next_link) {
        auto_free char *path = e->tried ? entry_path(e) : NULL;
        struct intent *i;
        if (e->tried && !path)
            return -ENOMEM;
        ROWS_FOREACH(c, i)
        {
            if (path && intent_is_rename(i) && i->seq > n->named_seq && path_below(i->to, path))
                entry_brought_locked(e);
        }
    }
    return 0;
}

/* ---- the mirror ---- */

static void take_stamp(struct cache *c, struct node *n, const struct stamp_attrs *a)
    REQUIRES(cache_mutex)
{
    n->ino = a->ino;
    n->named_seq = a->named_seq;
    n->mode = a->mode;
    n->uid = a->uid;
    n->gid = a->gid;
    n->rdev = (uint32_t)a->rdev;
    n->flags |= NODE_ATTRS_KNOWN;
    n->flags &= ~(unsigned)NODE_DEFAULT_INO;
    if (a->flags & STAMP_ATTR_DIRTY)
        n->flags |= NODE_ATTR_DIRTY;
    if (a->flags & STAMP_HEARSAY) /* of a mount that nobody else used, perhaps */
        n->flags |= NODE_ATTRS_HEARSAY;
    if (a->named_seq > c->tree->seq)
        c->tree->seq = a->named_seq;
    if (a->seq > c->tree->seq)
        c->tree->seq = a->seq;
}

/* A chmod wrote the mode alone. */
static void take_xattrs(struct node *n, int fd) REQUIRES(cache_mutex)
{
    if (stamp_read_xattrs(fd, &n->xattrs) == 0)
        node_acl_follow(n);
}

/* A directory that is kept here alone was marked as owed by one who did not know the routes.
 * Its stamp is right again, for who does not know them either. */
static void owe_no_more(const struct node *n, struct stamp_attrs *a, int fd)
    REQUIRES(cache_mutex)
{
    a->flags &= ~(unsigned)(STAMP_NEW | STAMP_ATTR_DIRTY);
    a->flags |= n->dir->bare ? STAMP_BARE : 0;
    (void)stamp_write_attrs(fd, a);
}

static int scan_dir(struct scan *s, const char *path, int fd) REQUIRES(cache_ns, cache_mutex)
{
    struct cache *c = s->cache;
    struct stamp_attrs a;
    struct node *n = tree_make_dirs_locked(c, path);

    if (!n)
        return -ENOMEM;
    if (stamp_read_attrs(fd, &a) < 0 || !S_ISDIR(a.mode))
        return 0; /* made on the way to a file: the listing knows it */
    take_stamp(c, n, &a);
    ino_stands_locked(c, n->ino, place_of_path(path), true);
    take_xattrs(n, fd);
    if (a.synced_mtime_ns)
        n->mtime_ns = n->ctime_ns = n->atime_ns = a.synced_mtime_ns;
    n->dir->mtime_set = a.synced_mtime_ns && (a.flags & STAMP_ATTR_DIRTY);
    n->dir->new_here = a.flags & STAMP_NEW;
    n->dir->bare = (a.flags & STAMP_BARE) && n->dir->kind == DIR_IMPLIED;
    /* Other nodes may have changed a directory that owes nothing. */
    if (n->dir->kind == DIR_STORED && listing_asks_dir(c, place_of_path(path)) &&
        !(a.flags & (STAMP_NEW | STAMP_ATTR_DIRTY)))
        n->flags |= NODE_ATTRS_OLD;
    n->dir->stale_marker = n->dir->new_here && tombstone_pending(c, place_of_path(path)) > 0;
    if (n->links)
        entry_may_exist_locked(n->links);
    if (!n->dir->new_here && !(n->flags & NODE_ATTR_DIRTY))
        return 0;
    dir_queue_locked(c, n);
    if (n->dir->kind != DIR_STORED)
        owe_no_more(n, &a, fd);
    return 0;
}

static int read_target(struct node *n, int fd) REQUIRES(cache_mutex)
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
                             int fd, bool *ret_partial) REQUIRES(cache_mutex)
{
    struct cache *c = s->cache;
    struct node *n = node_new(c, a->mode);
    struct file *f = n ? file_new(n, FILE_CLEAN) : NULL;

    if (!f) {
        if (n)
            node_collect_locked(c, n);
        return NULL;
    }
    file_count_locked(c);
    take_stamp(c, n, a);
    n->nlink = 0;
    n->size = (uint64_t)st->st_size;
    n->mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    n->ctime_ns = (int64_t)st->st_ctim.tv_sec * NS_PER_SEC + st->st_ctim.tv_nsec;
    n->atime_ns = n->mtime_ns;
    f->seq = a->seq;
    debt_set_place(&f->debt, a->first_seq);
    file_set_made_at_locked(f, a->made_at);
    f->noted = a->flags;
    file_set_keys_cut_locked(f, a->flags & STAMP_KEYS_CUT);
    file_is_found_locked(f, a->flags & STAMP_WRITING);
    take_xattrs(n, fd);
    (void)stamp_read_keys(fd, &f->keys);
    int r = stamp_read_ranges(fd, &f->present);
    *ret_partial = r != -ENODATA;
    if (*ret_partial)
        file_is_found_partial_locked(f);
    if (!*ret_partial && recover_was_synced(a, st)) /* the next stamp says so, too */
        file_is_synced_locked(f, a->synced_mtime_ns, a->synced_size);
    if (S_ISLNK(n->mode) && read_target(n, fd) < 0)
        n->target = strdup("");
    file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    return n;
}

/* Whether the writer who made the content anew had not yet declared it whole. A log is whole at
 * any moment; only a mount knows which files are logs, and a caller who just looks into the
 * cache decides nothing. */
static bool is_half(struct cache *c, const char *path, const struct stamp_attrs *a,
                    const struct stat *st)
{
    int64_t mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    bool whole = (a->flags & STAMP_WHOLE) && a->whole_mtime_ns == mtime_ns &&
                 a->whole_size == (uint64_t)st->st_size;

    return c->store && (a->flags & STAMP_BEGUN) && !whole && !path_is_log(c, path);
}

/* An empty file is dropped, unless what was closed, named or set before, and is in no store,
 * would go with it without a word. No removal waited for a file never closed. */
static int keep_half(struct scan *s, const char *path, const struct stamp_attrs *a,
                     const struct stat *st)
{
    bool owed = a->first_seq || ((a->flags & STAMP_ATTR_DIRTY) && a->seq);

    if (st->st_size == 0 && !owed)
        return push_text(&s->drop, &s->n_drop, &s->cap_drop, path);
    return recover_keep(
        s, path, a->first_seq ? a->first_seq : UINT64_MAX,
        "was being written by a program that had not closed it when the mount ended");
}

/* Nobody knows which bytes are there, nor whether the store has them. */
static int keep_unstamped(struct scan *s, const char *path) REQUIRES(cache_mutex)
{
    s->unstamped++;
    return recover_keep(s, path, 0, "has no readable stamp (extended attributes user.runfs.*)");
}

static int enter_name(struct scan *s, const char *path, const struct stamp_attrs *a,
                      const struct stat *st, int fd) REQUIRES(cache_ns, cache_mutex)
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
    if (!seen)
        ino_stands_locked(c, n->ino, place_of_path(path), false);
    if (!seen && (a->flags & STAMP_SHORT_WRITE))
        file_short_write_locked(c, n, n->size);
    if (!seen && (a->flags & STAMP_DISK_LOST))
        file_disk_lost_locked(c, n);
    if (st->st_nlink > 1 && !seen) {
        seen = calloc(1, sizeof(*seen));
        if (!seen)
            return -ENOMEM;
        seen->ino = st->st_ino;
        seen->node = n;
        node_ref_locked(n); /* the name may be dropped, and others come */
        HASH_ADD(hh, s->seen, ino, sizeof(seen->ino), seen);
        if (TABLE_LACKS(hh, seen)) {
            node_unref_locked(c, n);
            free(seen);
            return -ENOMEM;
        }
    }
    int r = recover_judge(s, e, path, a, st, partial);
    if (r != VERDICT_DROP && r != VERDICT_KEEP) {
        if (r == 0 && n->file->state != FILE_DIRTY)
            file_lru_add_locked(c, n->file);
        return r;
    }
    n->nlink--;
    entry_remove_locked(c, e);
    return r == VERDICT_KEEP ? recover_keep_unsynced(s, path, a, fd)
                             : push_text(&s->drop, &s->n_drop, &s->cap_drop, path);
}

static int scan_file(struct scan *s, const char *path, int fd, const struct stat *st)
    REQUIRES(cache_ns, cache_mutex)
{
    struct cache *c = s->cache;
    struct stamp_attrs a;
    int r = stamp_read_attrs(fd, &a);

    /* Nothing in a mirror is without a stamp but a create that was not answered, and that is
     * empty: everything else was put there past the protocol. */
    if (r == -ENODATA && st->st_size == 0 && !c->mirror.stampless)
        return push_text(&s->drop, &s->n_drop, &s->cap_drop, path);
    if (r < 0 || S_ISDIR(a.mode))
        return keep_unstamped(s, path);
    if (a.flags & STAMP_SCRATCH) /* of a killed mount; who just looks leaves it there */
        return c->store ? push_text(&s->drop, &s->n_drop, &s->cap_drop, path) : 0;
    bool owes = recover_is_written(fd, &a);
    if (owes && !recover_trusts(c, &a, st))
        return recover_keep_unsynced(s, path, &a, fd);
    if (owes && is_half(c, path, &a, st))
        return keep_half(s, path, &a, st);
    return enter_name(s, path, &a, st, fd);
}

static int scan_one(void *arg, const char *path, int fd, const struct stat *st)
    REQUIRES(cache_ns, cache_mutex)
{
    struct scan *s = arg;

    if (!path_key_ok(path, STORE_KEY_MAX))
        return 0;
    return S_ISDIR(st->st_mode) ? scan_dir(s, path, fd) : scan_file(s, path, fd, st);
}

/* ---- order ---- */

/* The file's place in the order of closes and intentions; 0: none. What is no regular file is
 * never closed: its place is that of its creation. */
static uint64_t place_of(const struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->file;

    return f->debt.seq ? f->debt.seq : f->seq || S_ISREG(n->mode) ? f->seq : n->named_seq;
}

static int by_close(const void *pa, const void *pb) REQUIRES(cache_mutex)
{
    const struct node *a = *(struct node *const *)pa, *b = *(struct node *const *)pb;
    uint64_t sa = place_of(a), sb = place_of(b);

    /* Those that were never closed come last, by time. */
    sa = sa ? sa : UINT64_MAX;
    sb = sb ? sb : UINT64_MAX;
    if (sa != sb)
        return sa < sb ? -1 : 1;
    return a->mtime_ns < b->mtime_ns ? -1 : a->mtime_ns > b->mtime_ns;
}

static void queue_in_order_locked(struct scan *s) REQUIRES(cache_mutex)
{
    struct cache *c = s->cache;
    uint64_t before = 0;

    if (s->n_dirty == 0)
        return; /* qsort() takes no NULL */
    qsort(s->dirty, s->n_dirty, sizeof(struct node *), by_close);
    for (size_t i = 0; i < s->n_dirty; i++) {
        struct node *n = s->dirty[i];
        struct file *f = n->file;
        if (debt_is_queued(&f->debt))
            continue;
        uint64_t place = place_of(n);
        if (!place)
            place = seq_next_locked(c);
        if (place <= before)
            place = before + 1;
        debt_set_place(&f->debt, before = place);
        if (before > c->tree->seq)
            c->tree->seq = before;
        if (!f->seq)
            f->seq = place;
        f->unit_seq = f->seq;
        file_stage_found_locked(c, n);
        file_insert_found_locked(c, f);
        unit_file_found_locked(c, f);
        file_lru_remove_locked(c, f); /* another of its names was found clean */
    }
}

/* Removals wait for files closed before them, and the store never gets the kept ones. */
static int take_removals_back(struct scan *s) REQUIRES(cache_ns)
{
    int r = s->n_keep ? intents_take_back(s->cache, s->keep_seq, NULL) : 0;

    if (s->n_keep)
        crash_point("removals-taken-back");
    return r;
}

static int clear_drops(struct scan *s)
{
    struct cache *c = s->cache;
    int r = 0;

    for (size_t i = 0; i < s->n_drop && r == 0; i++) {
        r = mirror_unlink(&c->mirror, s->drop[i]);
        r = r == -ENOENT ? 0 : r;
    }
    return r < 0 ? r : recover_move_kept(s);
}

static int count_kept(void *arg, const char *path, int fd, const struct stat *st)
{
    (void)path;
    (void)fd;
    if (S_ISREG(st->st_mode))
        ++*(uint64_t *)arg;
    return 0;
}

static void scan_release_locked(struct scan *s) REQUIRES(cache_mutex)
{
    struct seen *e, *next;

    HASH_ITER(hh, s->seen, e, next)
    {
        HASH_DEL(s->seen, e);
        node_unref_locked(s->cache, e->node);
        free(e);
    }
    free(s->dirty);
    free_texts(s->drop, s->n_drop);
    for (size_t i = 0; i < s->n_keep; i++)
        free(s->keep[i].path);
    free(s->keep);
}

static int rebuild(struct cache *c, uint64_t *ret_unstamped) REQUIRES(cache_ns, cache_mutex)
{
    struct scan s = {.cache = c, .keep_seq = UINT64_MAX};
    int r = mirror_walk(c->mirror.tree_fd, scan_one, &s);

    if (r == 0)
        r = recover_hold_behind_lost(&s);
    cache_unlock(c);
    if (r == 0)
        r = take_removals_back(&s); /* first: after a kill here all is found as it was */
    cache_lock(c);
    if (r == 0)
        r = clear_drops(&s);
    if (r == 0)
        r = apply_renames(c);
    if (r == 0 && c->queue->renames)
        r = tree_each(c->tree->root, note_brought, c);
    if (r == 0)
        queue_in_order_locked(&s);
    scan_release_locked(&s);
    *ret_unstamped = s.unstamped;
    return r;
}

static int tell_rename(void *arg, const struct journal_row *row)
{
    (void)arg;
    if (row->kind == INTENT_RENAME || row->kind == INTENT_RENAMEDIR)
        log_warn("%s was renamed to %s before the cache was copied, and not yet in the store: "
                 "what is here of it goes up under its new name, what the store has stays",
                 row->from, row->to);
    return 0;
}

static int tell_note(void *arg, const struct journal_unit *row)
{
    (void)arg;
    log_warn(
        "%s was not whole in the store when the cache was copied: other mounts do not show "
        "it until the original has published it, too. If there is no original any more, "
        "`runfs units --adopt` ends its note, when this mount has all of it in the store",
        row->key);
    return 0;
}

/* A copy of a cache owes the store content alone; origin.h tells whose the versions are that it
 * meets there. */
static int adopt(struct cache *c)
{
    log_warn("cache %s is a copy of another directory, or came to another machine: it replaces "
             "and removes nothing that the other one put into the store since",
             c->mirror.dir);
    int r = journal_each(c->journal, tell_rename, NULL);
    if (r == 0)
        r = journal_each_unit(c->journal, tell_note, NULL);
    return r == 0 ? journal_adopt(c->journal) : r;
}

static void tell_unstamped(struct cache *c, uint64_t unstamped)
{
    if (c->mirror.stampless)
        log_error("cache %s was copied or restored without its extended attributes (cp -r, "
                  "rsync without -X, tar without --xattrs): what it owes the store is not "
                  "known, and all its files are set aside in kept/. Copy it again with cp -a, "
                  "or look through kept/ and publish by hand what the store lacks",
                  c->mirror.dir);
    else if (unstamped)
        log_error("cache %s: %llu files without a readable stamp are set aside in kept/",
                  c->mirror.dir, (unsigned long long)unstamped);
}

static int recover_locked(struct cache *c) REQUIRES(cache_ns, cache_mutex)
{
    uint64_t kept = 0, unstamped = 0;
    int r = journal_each(c->journal, load_row, c);

    intents_found_locked(c);
    if (r == 0)
        r = barrier_load(c);
    /* Stamps tell what a change meant. */
    if (r == 0 && !c->mirror.stampless)
        r = redo_newest(c);
    if (r == 0 && c->store)
        r = notes_load(c);
    if (r == 0)
        r = rebuild(c, &unstamped);
    if (r == 0) {
        notes_found_locked(c);
        scopes_found_locked(c);
    }
    if (r == 0 && c->store)
        r = origins_load(c);
    if (r == 0)
        tell_unstamped(c, unstamped);
    if (r == 0)
        r = mirror_walk(c->mirror.kept_fd, count_kept, &kept);
    transfers_found_kept_locked(c, kept, unstamped);
    if (r == 0 && c->store)
        r = sessions_load(c);
    return r == 0 ? pins_load(c) : r;
}

int cache_recover(struct cache *c, struct op *op)
{
    int r = mirror_clean(&c->mirror);

    if (r == 0 && c->mirror.copied)
        r = adopt(c);
    if (r == 0) { /* nobody waits for either */
        ns_write(c);
        cache_lock(c);
        r = recover_locked(c);
        cache_unlock(c);
        ns_done(c);
    }
    if (r < 0)
        return op_fail(op, r, "cache %s: recovery failed: %s; nothing was removed",
                       c->mirror.dir, strerror(-r));
    r = location_note(&c->mirror);
    return r < 0 ? mirror_note_failed(&c->mirror, op, r, "its place") : 0;
}
