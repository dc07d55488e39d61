/* Names that go: unlink, rmdir, and what the store is to lose with them. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* ---- removing ---- */
int name_owner_need_locked(struct cache *c, struct node *parent, struct entry *e,
                           struct waiter *w)
{
    cache_assert_locked(c);
    return e && (parent->mode & S_ISVTX) ? attrs_confirm_locked(c, e->node, w) : 0;
}

bool name_is_only_ours_locked(struct entry *e, const char *path)
{
    if (e->node->dir || e->may_exist || place_known(e->source) || etag_known(&e->etag))
        return false;
    auto_place struct place at = entry_place(e);
    bool here = place_known(at) && place_same(at, place_of_path(path));
    return here || !e->brought;
}

/* The version that a removal of the name means. Of what a pending rename will bring there it is
 * the one that is known where the store has it: who copies that says what the copy has. */
static const char *removed_version_locked(struct entry *e, const char *path,
                                          char buf[ETAG_TEXT_MAX]) REQUIRES(cache_mutex)
{
    auto_place struct place at = entry_place(e);
    const char *etag = etag_text(&e->etag, buf);

    if (name_is_only_ours_locked(e, path))
        return INTENT_OURS;
    bool here = place_known(at) && place_same(at, place_of_path(path));
    return here || (etag && *etag) ? etag : INTENT_ANY;
}

/* A file that goes on under another name is waited for there. Without memory all are. */
static void note_other_name_locked(struct intent *i, struct entry *e) REQUIRES(cache_mutex)
{
    struct entry *other = e->node->links;

    while (other == e)
        other = other->next_link;
    if (!other || !e->node->file || !e->node->file->debt.seq)
        return;
    auto_free char *path = entry_path(other);
    scope_reaches_locked(i, path ? path : "");
}

int step_intend_locked(struct step *s, enum intent_kind kind, const char *from, const char *to,
                       struct entry *e)
{
    char etag[ETAG_TEXT_MAX];

    cache_assert_locked(s->cache);
    struct intent *i =
        intent_new(0, kind, from, to, e->node->ino,
                   to ? etag_text(&e->etag, etag) : removed_version_locked(e, from, etag));
    if (i && !to)
        note_other_name_locked(i, e);
    return step_add_row_locked(s, i, e);
}

int step_intend_removal_locked(struct step *s, struct entry *e, const char *path,
                               const char *to, bool crosses)
{
    char etag[ETAG_TEXT_MAX];
    struct node *n = e->node;

    cache_assert_locked(s->cache);
    struct intent *i = intent_new(0, n->dir ? INTENT_RMDIR : INTENT_UNLINK, path, NULL, 0,
                                  removed_version_locked(e, path, etag));
    if (i && n->file && intent_note_moved(i, n->ino, crosses ? to : NULL) < 0) {
        intent_free(i);
        i = NULL;
    }
    if (i)
        scope_reaches_locked(i, to);
    return step_add_row_locked(s, i, e);
}

/* ---- unlink ---- */

int name_lost_renumber(struct cache *c, const struct entry *e, bool intends)
{
    const struct file *f = e->node->file;

    cache_lock(c);
    bool noted = f && f->debt.seq && e->node->links->next_link && (intends || row_first(c));
    cache_unlock(c);
    return noted ? node_renumber(c, e->node) : 0;
}

/* A name that goes. */
struct removing {
    struct step step;
    struct entry *entry;
    const char *path;
};

/* The name leaves the mirror; another link keeps the file. */
static int unlink_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    struct removing *m = container_of(step, struct removing, step);
    struct cache *c = step->cache;
    struct node *n = m->entry->node;

    if (!n->file)
        return 0;
    if (n->links->next_link)
        return file_leave_name(c, m->entry);
    int r = barrier_pass_on(c, n->file);
    return r == 0 ? file_orphan(c, n, m->path) : r;
}

static void unlink_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct removing *m = container_of(step, struct removing, step);
    struct cache *c = step->cache;
    struct node *n = m->entry->node;

    n->nlink--;
    n->ctime_ns = clock_real_ns();
    if (n->file && n->file->debt.running)
        atomic_store(&n->file->changed, true);
    upload_forget_unnoted_locked(n);
    bool lives = n->links->next_link != NULL;
    entry_remove_locked(c, m->entry);
    if (lives && n->file) {
        scopes_lost_name_locked(c, n, m->path);
        file_lost_name_locked(c, n);
    }
    dir_touch_locked(step->left);
}

static int unlink_ns_locked(struct cache *c, struct node *parent, const char *name,
                            struct leaving *l) REQUIRES(cache_ns)
{
    struct removing m = {.step = {.cache = c,
                                  .on_disk = unlink_in_mirror,
                                  .in_tree = unlink_in_tree_locked,
                                  .rows_point = "unlink-row",
                                  .disk_point = "unlink-mirror",
                                  .left = parent}};

    cache_lock(c);
    struct entry *e = m.entry = entry_find(parent, name);
    auto_free char *path = e ? entry_path(e) : NULL;
    m.path = path;
    int r = !e ? -ENOENT : e->node->dir ? -EISDIR : path ? 0 : -ENOMEM;
    if (r == 0)
        r = leaving_admit_locked(c, l, path, false);
    if (r == 0)
        r = leaving_keeps_locked(c, l, e, path);
    bool intends = r == 0 && entry_may_be_stored(e);
    cache_unlock(c);
    if (r == 0)
        r = name_lost_renumber(c, e, intends);
    cache_lock(c);
    if (r == 0 && intends)
        r = step_intend_locked(&m.step, INTENT_UNLINK, path, NULL, e);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&m.step);
    if (r == 0)
        leaving_gone(c, l);
    step_release(&m.step);
    return r;
}

static int unlink_once(struct cache *c, struct node *parent, const char *name, struct waiter *w)
{
    struct leaving l;

    cache_lock(c);
    int r = name_parent_ready_locked(c, parent, name, w);
    if (r == 0)
        r = name_owner_need_locked(c, parent, entry_find(parent, name), w);
    cache_unlock(c);
    if (r != 0)
        return r;
    r = leaving_ready(c, parent, name, w, &l);
    if (r == 0) {
        ns_write(c);
        r = unlink_ns_locked(c, parent, name, &l);
        ns_done(c);
    }
    leaving_release(c, &l);
    return r;
}

int cache_unlink(struct cache *c, struct node *parent, const char *name, struct waiter *w)
{
    int r = lock_file_unlink(c, parent, name, w);

    if (r != -ENOENT)
        return r;
    do
        r = unlink_once(c, parent, name, w);
    while (r == -EAGAIN); /* a lock came meanwhile, or another file has the name */
    return r;
}

/* ---- rmdir ---- */

/* What is known of the listing alone is not there. */
static int rmdir_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    const struct removing *m = container_of(step, struct removing, step);
    int r = mirror_rmdir(&step->cache->mirror, m->path);

    return r == -ENOENT ? 0 : r;
}

static void rmdir_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct removing *m = container_of(step, struct removing, step);
    struct cache *c = step->cache;
    struct node *n = m->entry->node;

    step->left->nlink--;
    index_drop_locked(c, n);
    dir_unqueue_locked(c, n);
    n->nlink = 0;
    entry_remove_locked(c, m->entry);
    dir_touch_locked(step->left);
    note_unseal_locked(c, m->path, true); /* it may be in no row, and what was in it gone */
}

/* -EAGAIN: the directory has to be listed first. */
static int rmdir_check_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    struct dir *d = e ? e->node->dir : NULL;

    return !e                                                                     ? -ENOENT
           : !d                                                                   ? -ENOTDIR
           : name_is_fixed_locked(c, e)                                           ? -EBUSY
           : d->children || d->hidden_names || lock_file_is_in_locked(c, e->node) ? -ENOTEMPTY
           : !dir_was_listed(d)                                                   ? -EAGAIN
                                                                                  : 0;
}

/* Its name may show at the store through what is below it until that is removed. */
static bool dir_may_show_locked(struct cache *c, struct entry *e, const char *path)
    REQUIRES(cache_mutex)
{
    struct dir *d = e->node->dir;

    return !e->scratch &&
           (e->may_exist || d->has_marker || d->debt.running || place_known(e->source) ||
            !d->local_only || (!d->new_here && !d->bare) || intent_below(c, path));
}

static int rmdir_ns_locked(struct cache *c, struct node *parent, const char *name,
                           struct leaving *l) REQUIRES(cache_ns)
{
    struct removing m = {.step = {.cache = c,
                                  .on_disk = rmdir_in_mirror,
                                  .in_tree = rmdir_in_tree_locked,
                                  .rows_point = "rmdir-row",
                                  .disk_point = "rmdir-mirror",
                                  .left = parent}};

    cache_lock(c);
    struct entry *e = m.entry = entry_find(parent, name);
    int r = rmdir_check_locked(c, e);
    auto_free char *path = r == 0 ? entry_path(e) : NULL;
    m.path = path;
    if (r == 0 && !path)
        r = -ENOMEM;
    if (r == 0)
        r = leaving_admit_locked(c, l, path, false);
    if (r == 0)
        r = leaving_keeps_locked(c, l, e, path);
    if (r == 0 && dir_may_show_locked(c, e, path))
        r = step_intend_locked(&m.step, INTENT_RMDIR, path, NULL, e);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&m.step);
    if (r == 0)
        leaving_gone(c, l);
    step_release(&m.step);
    return r;
}

int cache_rmdir(struct cache *c, struct node *parent, const char *name, struct waiter *w)
{
    int r;

    do {
        cache_lock(c);
        r = name_parent_ready_locked(c, parent, name, w);
        struct entry *e = r == 0 ? entry_find(parent, name) : NULL;
        if (e && e->node->dir)
            r = dir_need_locked(c, e->node, true, w);
        cache_unlock(c);
        if (r != 0)
            return r;
        struct leaving l;
        r = leaving_ready(c, parent, name, w, &l);
        crash_point("rmdir-ready");
        if (r == 0) {
            ns_write(c);
            r = rmdir_ns_locked(c, parent, name, &l);
            ns_done(c);
        }
        leaving_release(c, &l);
    } while (r == -EAGAIN); /* it came, or its names were forgotten, meanwhile */
    return r;
}
