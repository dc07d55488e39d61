/* Recovery judges a file that it finds: is it whole, whose is it, what does the store lack? */
#include "cache/recover_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "cache/types/range.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The place of the name as the records have it; owned, none without memory. `*ret_later`: what
 * a rename is to take away from there is not the name's, which was made later. */
static struct place recorded_as(struct cache *c, const char *path, bool *ret_later)
    REQUIRES(cache_mutex)
{
    *ret_later = false;
    if (c->queue->renames == 0)
        return place_dup(place_of_path(path));
    return recover_place_before(c, row_last(c), path, ret_later);
}

/* The record of what the store has at the place of a name that was made later is of the other
 * name of the file, which left it: nothing was stored there since. */
static struct stamp_key *key_of(struct cache *c, struct file *f, const char *path)
    REQUIRES(cache_mutex)
{
    bool later;
    auto_place struct place at = recorded_as(c, path, &later);
    struct stamp_key *k = place_known(at) ? stamp_keys_find(&f->keys, at.key) : NULL;

    return k && later && !stamp_key_is_expected(k) ? NULL : k;
}

/* Whether an upload is to replace something that pending renames bring, though its record is
 * not at the key that the store has now: the object was there when the record was written, and
 * earlier renames are done since. The names that it passes have records of their own. */
static bool expects_on_the_way(struct cache *c, struct file *f, const char *path)
    REQUIRES(cache_mutex)
{
    auto_free char *at = c->queue->renames ? strdup(path) : NULL;
    bool expects = false;

    for (struct intent *i = row_last(c); at && i && !expects; i = row_prev(i)) {
        const struct stamp_key *k = stamp_keys_find(&f->keys, place_of_path(at).key);
        expects = k && stamp_key_is_expected(k);
        if (intent_backward(i, &at) == INTENT_LEFT)
            break;
    }
    return expects;
}

bool recover_was_synced(const struct stamp_attrs *a, const struct stat *st)
{
    int64_t mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;

    return (a->flags & STAMP_SYNCED) && a->synced_mtime_ns == mtime_ns &&
           a->synced_size == (uint64_t)st->st_size;
}

/* Whether the file was on the disk when the last mount ended: nobody sets the time of an
 * inode's change. */
static bool was_ended(const struct cache *c, const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * NS_PER_SEC + st->st_ctim.tv_nsec <= c->mirror.ended_ns;
}

bool recover_trusts(struct cache *c, const struct stamp_attrs *a, const struct stat *st)
{
    return !c->mirror.rebooted || was_ended(c, st) || recover_was_synced(a, st);
}

bool recover_is_written(int fd, const struct stamp_attrs *a)
{
    struct ranges present = {0};

    if (!(a->flags & STAMP_WRITING))
        return false;
    bool partial = stamp_read_ranges(fd, &present) != -ENODATA;
    ranges_clear(&present);
    return !partial;
}

/* A file that was on the disk when the last mount ended counts as synced from now on: the next
 * mount does not know that end, so the stamp is on the disk before this one is noted. If it
 * can't be written, this mount knows. */
static void keep_trust(struct cache *c, struct file *f, const char *path,
                       const struct stamp_attrs *a, const struct stat *st) REQUIRES(cache_mutex)
{
    struct stamp_attrs synced = *a;

    if (recover_was_synced(a, st) || !was_ended(c, st))
        return;
    synced.flags |= STAMP_SYNCED;
    synced.synced_mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    synced.synced_size = (uint64_t)st->st_size;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    if (fd < 0 || stamp_write_attrs(fd, &synced) < 0 || fsync(fd) < 0)
        return;
    f->noted = synced.flags;
    file_is_synced_locked(f, synced.synced_mtime_ns, synced.synced_size);
}

static int remember_dirty(struct scan *s, struct node *n)
{
    if (array_grow(s->dirty, s->cap_dirty, s->n_dirty + 1))
        return -ENOMEM;
    s->dirty[s->n_dirty++] = n;
    return 0;
}

/* The file keeps its number and reads from the store again, unless its bytes prove to be right
 * when they are needed. Of a file with other names these may need the bytes, and a symlink is
 * its bytes: the name is dropped. */
static int forget_content(struct cache *c, struct node *n, const char *path,
                          const struct stamp_attrs *a, const struct stat *st,
                          const struct stamp_key *k, bool partial) REQUIRES(cache_mutex)
{
    struct stamp_attrs unsynced = *a;
    struct ranges none = {0};

    if (st->st_nlink > 1 || !S_ISREG(n->mode))
        return VERDICT_DROP;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDWR);
    /* What comes in its place is not, and nobody wrote it or makes it anew. */
    unsynced.flags &= ~(unsigned)(STAMP_SYNCED | STAMP_WRITING | STAMP_BEGUN | STAMP_WHOLE);
    int r = fd < 0 ? fd : stamp_write_attrs(fd, &unsynced);
    n->file->noted = unsynced.flags;
    file_is_not_synced_locked(n->file);
    if (r == 0)
        r = stamp_write_ranges(fd, &none, true);
    bool verify = !partial && k->sum.kind != CHECKSUM_NONE;
    if (r == 0 && !verify && (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)k->size) < 0))
        r = -errno;
    file_forget_content_locked(n->file, verify);
    if (!verify)
        file_account_locked(c, n->file, 0);
    return r < 0 ? VERDICT_DROP : 0;
}

/* Whether the store has the name, though no record says so: there was room for the records of
 * other names only. The name is dropped then, and known from the listing: this cache does not
 * know which version the store has, and does not owe the content. */
static bool stored_without_record(const struct node *n, const struct stamp_attrs *a,
                                  const struct stat *st) REQUIRES(cache_mutex)
{
    const struct stamp_keys *k = &n->file->keys;

    if (!(a->flags & STAMP_MANY) || (a->flags & (STAMP_WRITING | STAMP_ATTR_DIRTY)))
        return false;
    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].mtime_ns == n->mtime_ns && k->v[i].size == (uint64_t)st->st_size)
            return true;
    return false;
}

/* An older version of runfs noted none of what an upload is to replace: a name without a record
 * may be stored nevertheless. The next mount is told; where it can't be, this one knows. */
static void expect_any(struct cache *c, struct file *f, const char *path) REQUIRES(cache_mutex)
{
    bool later;
    auto_place struct place at = recorded_as(c, path, &later);
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    bool all = true;

    if (place_known(at) && fd >= 0 && stamp_keys_expect(&f->keys, at.key, STAMP_ANY_VERSION) &&
        stamp_write_keys(fd, &f->keys, &all) == 0)
        file_set_keys_cut_locked(f, !all);
}

/* What the records say that the store has under the name: the entry's version. Without one it
 * had nothing, and has nothing but what this cache put there since. The record is returned if
 * it is of the file's content, else NULL. */
static struct stamp_key *take_record(struct cache *c, struct entry *e, const char *path,
                                     const struct stamp_attrs *a) REQUIRES(cache_mutex)
{
    struct stamp_key *k = key_of(c, e->node->file, path);
    bool expects = k || expects_on_the_way(c, e->node->file, path);

    entry_found_locked(e, expects || (a->flags & STAMP_KEYS_CUT) || c->mirror.older);
    if (k && strcmp(k->etag, STAMP_ANY_VERSION) != 0)
        entry_is_noted_locked(e, k->etag);
    return k && !stamp_key_is_expected(k) ? k : NULL;
}

/* The file is what the record says, or will be when it was read again. */
static void take_version(struct node *n, const struct stamp_key *k) REQUIRES(cache_mutex)
{
    n->mtime_ns = k->mtime_ns;
    n->size = k->size;
    file_is_version_locked(n->file, k->mtime_ns, k->size);
}

static int owes_attrs_only(struct scan *s, struct entry *e) REQUIRES(cache_mutex)
{
    entry_owes_locked(e, e->node->flags & NODE_ATTR_DIRTY);
    return e->dirty ? remember_dirty(s, e->node) : 0;
}

/* Another size than the record's is of a truncate that was not answered. Attributes that were
 * answered before it stay owed, and need the file. */
static int judge_partial(struct scan *s, struct entry *e, const char *path,
                         const struct stamp_attrs *a, const struct stat *st,
                         const struct stamp_key *k) REQUIRES(cache_mutex)
{
    struct cache *c = s->cache;
    struct node *n = e->node;

    if (!k)
        return VERDICT_DROP;
    bool emptied = (uint64_t)st->st_size != k->size;
    if (emptied && !(n->flags & NODE_ATTR_DIRTY))
        return VERDICT_DROP;
    take_version(n, k);
    if ((emptied || !recover_trusts(c, a, st)) &&
        forget_content(c, n, path, a, st, k, true) != 0)
        return VERDICT_DROP;
    return owes_attrs_only(s, e);
}

int recover_judge(struct scan *s, struct entry *e, const char *path,
                  const struct stamp_attrs *a, const struct stat *st, bool partial)
{
    struct cache *c = s->cache;
    struct node *n = e->node;
    struct file *f = n->file;
    struct stamp_key *k = take_record(c, e, path, a);
    bool same = k && k->mtime_ns == n->mtime_ns && k->size == (uint64_t)st->st_size;

    if (k) {
        if (!f->etag)
            file_is_stored_as_locked(f, strdup(k->etag));
        f->sum = k->sum;
    }
    if (!k && stored_without_record(n, a, st))
        return VERDICT_DROP;
    entry_expire(e); /* the store may have been told other attributes since */
    if (partial)
        return judge_partial(s, e, path, a, st, k);
    if (same && !(a->flags & STAMP_WRITING)) {
        if (!recover_trusts(c, a, st) && k->size &&
            forget_content(c, n, path, a, st, k, false) != 0)
            return VERDICT_DROP;
        file_is_version_locked(f, n->mtime_ns, n->size);
        return owes_attrs_only(s, e);
    }
    /* Nobody writes before the mark is there, so that a size of its own without it is what a
     * disk left that failed: the store has what it was. */
    if (k && !(a->flags & STAMP_WRITING) && k->size != (uint64_t)st->st_size) {
        log_warn("cache %s: %s lost its content; it is read from the store again",
                 c->mirror.dir, path);
        if (!k->size || forget_content(c, n, path, a, st, k, true) != 0)
            return VERDICT_DROP;
        take_version(n, k);
        return owes_attrs_only(s, e);
    }
    if (!recover_trusts(c, a, st))
        return VERDICT_KEEP;
    keep_trust(c, f, path, a, st);
    if (c->mirror.older && !etag_known(&e->etag))
        expect_any(c, f, path);
    file_is_found_dirty_locked(f);
    entry_owes_locked(e, true);
    entry_owed_before_locked(e);
    return remember_dirty(s, n);
}
