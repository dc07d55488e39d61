/* A listing's way into the tree: names that came, went, or lead to another version. */
#include "cache/listing/listing_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/tree/children.h"
#include "cache/types/acl.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* How long what the store moves is not asked for again. */
#define MOVING_NS (10 * NS_PER_MS)

/* ---- merging ---- */

static bool anything_ours(struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (!n->dir)
        return node_is_ours(n) || unit_keeps_locked(n);
    if (n->dir->new_here || n->dir->debt.running || debt_is_queued(&n->dir->debt) ||
        n->dir->fixed || dir_is_local(n->dir) || (n->flags & NODE_ATTR_DIRTY) ||
        (n->links && place_known(n->links->source)))
        return true;
    CHILDREN_FOREACH(n->dir->children, e, at)
    {
        if (anything_ours(e->node))
            return true;
    }
    return false;
}

static int gone_file(struct cache *c, struct entry *e) REQUIRES(cache_ns)
{
    struct node *n = e->node;
    auto_free char *path = entry_path(e);

    if (n->links->next_link)
        return file_leave_name(c, e);
    int r = path ? file_discard(c, n) : -ENOMEM;
    return r == -EBUSY ? file_orphan(c, n, path) : r;
}

static int gone_dir(struct cache *c, struct entry *e) REQUIRES(cache_ns)
{
    struct entry *child;
    size_t at;
    auto_free char *path = entry_path(e);
    int r = path ? 0 : -ENOMEM;

    CHILDREN_FOREACH(e->node->dir->children, child, at)
    {
        if (r == 0)
            r = entry_gone(c, child);
    }
    if (r < 0) /* -ENOENT, too: what is in it did not go */
        return r;
    r = mirror_rmdir(&c->mirror, path);
    return r == -ENOENT ? 0 : r;
}

int entry_gone(struct cache *c, struct entry *e)
{
    struct node *n = e->node;

    ns_assert_written(c);
    cache_lock(c);
    bool ours = anything_ours(n);
    cache_unlock(c);
    if (ours)
        return -EBUSY;
    int r = n->dir ? gone_dir(c, e) : n->file ? gone_file(c, e) : 0;
    if (r < 0)
        return r;
    cache_lock(c);
    notice_locked(c, e->parent, e->name);
    if (!n->dir) {
        n->flags |= NODE_REPLACED;
        n->nlink--;
    }
    entry_remove_locked(c, e);
    cache_unlock(c);
    return 0;
}

/* A directory of no key of its own has no attributes at a store: those of what stands for it
 * there are of something else. */
static const struct object *own_attrs(const struct node *n, const struct object *obj,
                                      const struct object *none)
{
    return n->dir && n->dir->kind != DIR_STORED ? none : obj;
}

/* The store has something below the directory, and is believed about it from now on. */
static void dress_dir(struct cache *c, struct node *dir) REQUIRES(cache_ns)
{
    cache_lock(c);
    bool was_bare = dir_dress_locked(dir);
    cache_unlock(c);
    if (was_bare)
        (void)node_write_stamp_ns_locked(c, dir);
}

static int add_entry(struct cache *c, struct node *dir, const char *name, struct place at,
                     const struct object *obj, int64_t asked_ns) REQUIRES(cache_ns)
{
    const struct object none = {.is_prefix = true, .attrs_known = true};
    int r = 0;

    cache_lock(c);
    struct node *n = node_new(c, obj->is_prefix ? S_IFDIR : S_IFREG);
    struct entry *e = n ? entry_add_locked(c, dir, name, n) : NULL;
    if (e) {
        negative_forget_locked(c, dir, name);
        dir->dir->local_only = false;
        n->ino = ino_of_found_locked(c, at, n->dir != NULL);
        n->flags |= NODE_DEFAULT_INO;
        node_apply_attrs(c, n, own_attrs(n, obj, &none));
        entry_is_listed_first_locked(e, obj->is_prefix ? NULL : obj->etag, asked_ns);
        if (n->dir)
            n->dir->has_marker = obj->has_marker && n->dir->kind == DIR_STORED;
        else if (obj->attrs_known)
            entry_told(e, obj);
    } else {
        r = -ENOMEM;
        if (n)
            node_collect_locked(c, n);
    }
    cache_unlock(c);
    if (r == 0)
        dress_dir(c, dir);
    return r;
}

bool listing_attrs_agree(struct node *n, const struct object *obj)
{
    const struct attrs *a = &obj->attrs;
    const char *xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? a->xattrs : "";
    auto_free char *followed = NULL;

    if (acl_follow_mode(xattrs, a->has & ATTR_MODE ? a->mode : n->mode, &followed) == 0 &&
        followed)
        xattrs = followed;
    return (!(a->has & ATTR_MODE) || (a->mode & 07777) == (n->mode & 07777)) &&
           (!(a->has & ATTR_OWNER) || (a->uid == n->uid && a->gid == n->gid)) &&
           (!(a->has & ATTR_MTIME) || a->mtime_ns == n->mtime_ns) &&
           (!(a->has & ATTR_TARGET) || !n->target || strcmp(a->target, n->target) == 0) &&
           strcmp(xattrs, n->xattrs ? n->xattrs : "") == 0;
}

void listing_file_is_there_locked(struct file *f, const char *etag)
{
    if (!f || !f->gone || !f->etag || strcmp(f->etag, etag) != 0)
        return;
    file_version_is_gone_locked(f, false);
    f->failed.err = 0;
}

void attrs_hear_locked(struct cache *c, struct node *n, const struct object *obj)
{
    const struct attrs *a = &obj->attrs;

    cache_assert_locked(c);
    if (!(n->flags & NODE_ATTRS_HEARSAY) || !obj->attrs_known || obj->attrs_hearsay)
        return;
    n->flags &= ~(unsigned)NODE_ATTRS_HEARSAY;
    if (!n->file || (n->flags & NODE_ATTR_DIRTY))
        return; /* all is taken, or ours */
    node_default_attrs(c, n);
    if (a->has & ATTR_MODE)
        n->mode = (n->mode & S_IFMT) | (a->mode & 07777);
    if (a->has & ATTR_OWNER) {
        n->uid = a->uid;
        n->gid = a->gid;
    }
    free(n->xattrs);
    n->xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? strdup(a->xattrs) : NULL;
    node_acl_follow(n);
}

/* A listing showed the known version again. Its attributes may be others than those that were
 * told with it, since they are no part of an etag. */
static void seen_again_locked(struct cache *c, struct entry *e, struct place at,
                              const struct object *obj) REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    /* It may be there by what is below it, while its own attributes are owed. */
    if (n->dir && (node_is_ours(n) || n->dir->kind != DIR_STORED))
        return;
    attrs_hear_locked(c, n, obj);
    if (obj->attrs_known && !n->file && !(n->flags & NODE_ATTR_DIRTY)) {
        struct object told = *obj;
        if (n->dir && (n->dir->time_early || n->dir->mtime_set)) {
            /* Theirs is of the names that have come since. */
            told.attrs.mtime_ns = n->mtime_ns;
            told.attrs.has |= ATTR_MTIME;
        }
        node_apply_attrs(c, n, &told);
        if (!n->dir)
            entry_told(e, obj);
    } else if (n->dir || store_can(c->store, at.key, STORE_LIST_ATTRS)) {
        return;
    } else if (obj->attrs_known && listing_attrs_agree(n, obj)) {
        n->attrs_has = obj->attrs.has;
        node_attrs_are_known(n);
        entry_told(e, obj);
    } else if (obj->attrs_known || entry_moved(e, obj)) {
        entry_expire(e);
        n->flags |= NODE_ATTRS_OLD;
    } else {
        entry_seen(e, obj);
    }
}

int listing_update_entry(struct cache *c, struct entry *e, struct place at,
                         const struct object *obj, int64_t asked_ns)
{
    struct node *n = e->node;

    ns_assert_written(c);
    cache_lock(c);
    bool newer = e->changed_ns > asked_ns;
    bool ours = n->dir ? false : node_is_ours(n);
    bool same_kind = obj->is_prefix == (n->dir != NULL);
    bool same = n->dir || etag_is(&e->etag, obj->etag);
    entry_listed_locked(e, asked_ns);
    if (!newer && same_kind && same && !ours)
        seen_again_locked(c, e, at, obj);
    if (!newer && !n->dir && same)
        listing_file_is_there_locked(n->file, obj->etag);
    if (!newer && n->dir && same_kind && obj->has_marker && n->dir->kind == DIR_STORED)
        n->dir->has_marker = true;
    cache_unlock(c);
    if (newer || ours)
        return ours && !same_kind;
    if (!same_kind) {
        /* "a" beside "a/": the directory is shown, since the object hides nothing else. */
        if (n->dir)
            return 1;
        struct node *dir = e->parent;
        auto_free char *name = strdup(e->name);
        int r = name ? entry_gone(c, e) : -ENOMEM;
        if (r == 0)
            r = add_entry(c, dir, name, at, obj, asked_ns);
        return r < 0 ? r : 1;
    }
    int replaced = same ? 0 : node_replaced(c, e, obj);
    return replaced == -EBUSY ? 0 : replaced; /* ours by now */
}

/* Whether a directory that is known here has the object's name: it is shown, and the object is
 * not, for as long as the listing has the directory, too. */
static bool covered(struct cache *c, const struct entry *e, const struct object *obj,
                    int64_t asked_ns)
{
    cache_lock(c);
    bool r = e->node->dir && !obj->is_prefix && e->changed_ns <= asked_ns;
    cache_unlock(c);
    return r;
}

int listing_merge_one(struct cache *c, struct node *dir, const char *name,
                      const struct object *obj, int64_t asked_ns)
{
    auto_free char *dir_path = node_path(dir);
    auto_free char *path = dir_path ? path_join(dir_path, name) : NULL;
    struct entry *e = entry_find(dir, name);

    ns_assert_written(c);
    cache_lock(c); /* sources move with the end of a rename */
    auto_place struct place at = child_place(dir, name);
    bool known = place_known(at) && path;
    /* What has the name here, if anything, is not what was listed: the store has it elsewhere,
     * or does not have it yet. */
    bool other = known && (tombstone_hides(c, at, obj->is_prefix, path, asked_ns) ||
                           (e && place_known(e->source)));
    if (other && e)
        entry_listed_locked(e, asked_ns);
    cache_unlock(c);
    if (!known)
        return -ENOMEM;
    if (!path_name_shown(dir_path, name, strlen(name)))
        return 1;
    if (other)
        return 0;
    if (e && covered(c, e, obj, asked_ns))
        return 1;
    return e ? listing_update_entry(c, e, at, obj, asked_ns)
             : add_entry(c, dir, name, at, obj, asked_ns);
}

/* Names that a whole listing did not show are gone. */
static void drop_unlisted(struct cache *c, struct node *dir, int64_t asked_ns)
    REQUIRES(cache_ns)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        cache_lock(c);
        bool unlisted = e->verified_ns < asked_ns && e->changed_ns < asked_ns;
        cache_unlock(c);
        if (unlisted)
            (void)entry_gone(c, e);
    }
}

/* ---- listings ---- */

int listing_add(struct listing *l, const char *name, size_t len, const struct object *obj)
{
    if (array_grow(l->v, l->cap, l->n + 1))
        return -ENOMEM;
    struct listed *item = &l->v[l->n];
    item->obj = *obj;
    item->hidden = false;
    item->name = strndup(name, len);
    if (!item->name || attrs_copy(&item->obj.attrs, &obj->attrs) < 0) {
        free(item->name);
        return -ENOMEM;
    }
    l->n++;
    return 0;
}

void listing_clear(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        object_release(&l->v[i].obj);
    }
    free(l->v);
    object_release(&l->marker);
    l->v = NULL;
    l->n = l->cap = 0;
}

struct asked listing_asked_locked(struct cache *c, struct place at)
{
    cache_assert_locked(c);
    return (struct asked){at, c->listing->dir_moves};
}

static bool is_moving_locked(struct cache *c, const struct asked *asked) REQUIRES(cache_mutex)
{
    return place_known(asked->at) && (rename_is_taken_over_at_locked(c, asked->at) ||
                                      native_rename_runs_at_locked(c, asked->at));
}

bool listing_may_have_moved(struct cache *c, const struct asked *asked)
{
    cache_lock(c);
    bool moved = c->listing->dir_moves != asked->moves || is_moving_locked(c, asked);
    cache_unlock(c);
    return moved;
}

void listing_pause_while_it_moves(struct cache *c, const struct asked *asked)
{
    const struct timespec pause = {.tv_nsec = MOVING_NS};

    cache_lock(c);
    bool moving = is_moving_locked(c, asked);
    cache_unlock(c);
    if (moving)
        (void)nanosleep(&pause, NULL);
}

/* What went wrong with a name counts, unless another one lacked memory. */
static int worse(int all, int one)
{
    return all == -ENOMEM || one >= 0 ? all : one;
}

/* A unit that is not to be shown goes, unless something in it is ours. */
static void hide(struct cache *c, struct node *dir, const char *name, int64_t asked_ns)
    REQUIRES(cache_ns)
{
    struct entry *e = entry_find(dir, name);

    cache_lock(c);
    bool newer = e && e->changed_ns > asked_ns;
    cache_unlock(c);
    if (e && !newer)
        (void)entry_gone(c, e);
}

/* Takes over what was listed; how many names are not shown. 0; -ENOMEM: some are missing that
 * are there; or why some are as they were before. */
static int merge_names(struct listing *l, bool whole, uint64_t *hidden) REQUIRES(cache_ns)
{
    struct cache *c = l->cache;
    struct node *dir = l->dir;
    int ret = 0;
    uint64_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].hidden) {
            hide(c, dir, l->v[i].name, l->asked_ns);
            continue;
        }
        int r = listing_merge_one(c, dir, l->v[i].name, &l->v[i].obj, l->asked_ns);
        n += r > 0;
        ret = worse(ret, r);
    }
    if (whole && ret != -ENOMEM)
        drop_unlisted(c, dir, l->asked_ns);
    /* Objects that take the names of directories which went. */
    for (size_t i = 0; i < l->n && whole && n; i++) {
        if (l->v[i].obj.is_prefix || entry_find(dir, l->v[i].name))
            continue;
        int r = listing_merge_one(c, dir, l->v[i].name, &l->v[i].obj, l->asked_ns);
        n -= r == 0 && entry_find(dir, l->v[i].name);
        ret = worse(ret, r);
    }
    *hidden += n;
    return ret;
}

int listing_merge(struct listing *l, const struct asked *asked, uint64_t hidden, bool cut)
{
    struct cache *c = l->cache;
    struct node *dir = l->dir;
    int r = 0;

    ns_write(c);
    cache_lock(c);
    auto_place struct place now = node_place(dir);
    bool lost = dir->flags & NODE_REMOVED;
    cache_unlock(c);
    /* When the directory moved meanwhile, this is not its listing; whoever waits asks again. */
    if (!place_known(now) || !place_known(asked->at) || !place_same(asked->at, now) ||
        listing_may_have_moved(c, asked)) {
        ns_done(c);
        return 0;
    }
    crash_point("listing-unmoved");
    if (!lost)
        r = merge_names(l, !cut, &hidden);
    if (r == -ENOMEM) { /* it would be believed to have no more */
        ns_done(c);
        return r;
    }
    cache_lock(c);
    bool has = l->has_marker && !dir_marker_goes_locked(c, dir, now, l->asked_ns);
    if (has || !cut)
        dir_listed_locked(c, dir, has ? &l->marker : NULL, l->generation);
    dir->dir->stat_misses = 0;
    list_ahead_listed_locked(dir);
    dir->dir->big = cut || l->n > PAGE_NAMES;
    dir->dir->listed_ns = cut ? 0 : l->asked_ns;
    c->tree->hidden_names += hidden - dir->dir->hidden_names;
    dir->dir->hidden_names = hidden;
    dir->dir->told_ns = clock_mono_ns();
    dir->dir->told_there = l->has_marker || l->n > 0;
    cache_unlock(c);
    ns_done(c);
    if (r < 0)
        log_warn("some names of a listing could not be taken over: %s", strerror(-r));
    return 0;
}
