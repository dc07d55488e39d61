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

/* Numbers and records an intention, which is taken over; *ret is NULL when that fails. */
static int record(struct cache *c, struct intent *i, struct intent **ret)
    REQUIRES_SHARED(cache_ns)
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

int name_intend(struct cache *c, enum intent_kind kind, const char *from, const char *to,
                struct entry *e, struct intent **ret)
{
    char etag[ETAG_TEXT_MAX];

    ns_assert_held(c);
    cache_lock(c); /* a copy that ends changes the version */
    struct intent *i =
        intent_new(0, kind, from, to, e->node->ino,
                   to ? etag_text(&e->etag, etag) : removed_version_locked(e, from, etag));
    cache_unlock(c);
    return record(c, i, ret);
}

int name_intend_removal(struct cache *c, struct entry *e, const char *path,
                        const char *moved_to, struct intent **ret)
{
    char etag[ETAG_TEXT_MAX];
    struct node *n = e->node;

    ns_assert_held(c);
    cache_lock(c);
    struct intent *i = intent_new(0, n->dir ? INTENT_RMDIR : INTENT_UNLINK, path, NULL, 0,
                                  removed_version_locked(e, path, etag));
    if (i && n->file && intent_note_moved(i, n->ino, moved_to) < 0) {
        intent_free(i);
        i = NULL;
    }
    cache_unlock(c);
    return record(c, i, ret);
}

struct followed name_follow_copy_locked(struct intent *i, const struct entry *e)
{
    char buf[ETAG_TEXT_MAX];
    const char *now = etag_known(&e->etag)            ? etag_text(&e->etag, buf)
                      : i && i->kind == INTENT_UNLINK ? INTENT_ANY
                                                      : NULL;
    bool moved =
        i && !e->node->dir && now && intent_version_is_known(i) && strcmp(now, i->etag) != 0;
    struct followed f = {.etag = moved ? strdup(now) : NULL};
    char *etag = f.etag ? strdup(now) : NULL;

    if (!etag)
        return f; /* or without memory: it means the older version, and what is there stays */
    free(i->etag);
    i->etag = etag;
    f.seq = i->seq;
    return f;
}

void name_note_followed(struct cache *c, struct followed *f)
{
    const struct journal_row told = {.seq = f->seq, .etag = f->etag};

    if (f->seq)
        (void)journal_done_and_told(c->journal, NULL, 0, NULL, 0, &told, 1);
    free(take_ptr(f->etag));
}

void name_intend_not(struct cache *c, struct intent *i)
{
    if (!i)
        return;
    journal_take_back(c->journal, &i->seq, 1);
    intent_free(i);
}

/* The name leaves the mirror; another link keeps the file. */
static int unlink_in_mirror(struct cache *c, struct entry *e, const char *path)
    REQUIRES(cache_ns)
{
    struct node *n = e->node;

    if (!n->file)
        return 0;
    if (n->links->next_link)
        return file_leave_name(c, e);
    int r = barrier_pass_on(c, n->file);
    return r == 0 ? file_orphan(c, n, path) : r;
}

static int unlink_ns_locked(struct cache *c, struct node *parent, const char *name)
    REQUIRES(cache_ns)
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
    if (n->file && n->file->debt.running)
        atomic_store(&n->file->changed, true);
    bool lives = n->links->next_link != NULL;
    struct followed followed = name_follow_copy_locked(i, e);
    entry_remove_locked(c, e);
    if (lives && n->file && debt_is_queued(&n->file->debt))
        file_stage_locked(c, n); /* perhaps that name alone had it wait */
    dir_touch_locked(parent);
    if (i)
        intent_add_locked(c, i);
    progress_locked(c);
    cache_check_locked(c);
    cache_unlock(c);
    name_note_followed(c, &followed);
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
    r = unlink_ns_locked(c, parent, name);
    ns_done(c);
    return r;
}

/* -EAGAIN: the directory has to be listed first. */
static int rmdir_ns_locked(struct cache *c, struct node *parent, const char *name)
    REQUIRES(cache_ns)
{
    struct intent *i = NULL;

    cache_lock(c);
    struct entry *e = entry_find(parent, name);
    auto_free char *path = e ? entry_path(e) : NULL;
    struct dir *d = e ? e->node->dir : NULL;
    /* Its name may show at the store through what is below it until that is removed. */
    bool stored = d && path && !e->scratch &&
                  (e->may_exist || d->has_marker || d->debt.running || place_known(e->source) ||
                   !d->local_only || (!d->new_here && !d->bare) || intent_below(c, path));
    int r = !e                               ? -ENOENT
            : !d                             ? -ENOTDIR
            : name_is_fixed_locked(c, e)     ? -EBUSY
            : d->children || d->hidden_names ? -ENOTEMPTY
            : !dir_was_listed(d)             ? -EAGAIN
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
        crash_point("rmdir-ready");
        ns_write(c);
        r = rmdir_ns_locked(c, parent, name);
        ns_done(c);
    } while (r == -EAGAIN); /* it came, or its names were forgotten, meanwhile */
    return r;
}
