/* durability=store: what fsync() waits for beyond the content of a file, which is names: what
 * the names that a file or a directory has owe to the store, who is waited for, and which
 * failures end the waiting. Each call looks at all that is owed, in the short lists of what is
 * dirty or intended, and parks until something has reached the store. */
#include "cache/ops/ops_impl.h"

#include "cache/tree/children.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>

/* A look at what is owed. */
struct look {
    struct cache *cache;
    struct waiter *waiter;
    bool first;       /* of this waiter: what failed before is tried again at once */
    bool changed;     /* a pass may find more to do than the last one did */
    bool pending;     /* something is owed */
    unsigned in_vain; /* removals that are owed, and may wait for ever */
    int error;        /* negative errno of an attempt since the first look; 0 none */
    const struct intent **removals; /* heap; those that are waited for: of one scope the last */
    size_t n, cap;
};

static void look_begin(struct look *l, struct cache *c, struct waiter *w) REQUIRES(cache_mutex)
{
    *l = (struct look){.cache = c, .waiter = w, .first = w->since_ns == 0};
    l->changed = l->first;
    if (!l->first)
        return;
    w->since_ns = clock_mono_ns();
    w->seq = seq_now_locked(c);
    rounds_init(c, &w->rounds, w->seq);
}

/* It is owed: at once, if it failed before or settles. `stays`: its failure counts whenever it
 * was. */
static void owed(struct look *l, struct debt *d, bool stays)
{
    l->pending = true;
    if (l->first && (d->error || d->due_ns > l->waiter->since_ns))
        debt_set_due(d, 0);
    else if (d->error && (stays || d->failed_ns >= l->waiter->since_ns) && l->error == 0)
        l->error = d->error;
}

static void owed_file(struct look *l, struct file *f) REQUIRES(cache_mutex)
{
    owed(l, &f->debt, f->short_write);
    if (!l->first)
        return;
    file_want_locked(f, f->generation);
    if (!debt_is_queued(&f->debt))
        file_insert_open_locked(l->cache, f);
}

/* A later look asks for no pass of its own: each attempt that fails wakes all who wait, and
 * whatever changes what may go asks for itself. */
static int look_end(struct look *l) REQUIRES(cache_mutex)
{
    free(l->removals);
    if (l->error || !l->pending)
        return l->error ? l->error : l->in_vain ? -EBUSY : 0;
    if (l->changed)
        scheduler_kick_locked(l->cache);
    return waitq_park_locked(l->cache, &l->cache->flush_waiters, l->waiter);
}

/* ---- intentions ---- */

/* What left for another store while it is open goes up for a waiter only, and its old name is
 * removed after that. Whether that can be waited for: not if the file is half. */
static bool moved_file_comes(struct look *l, const struct intent *i) REQUIRES(cache_mutex)
{
    if (!removal_is_of_only_copy_locked(l->cache, i))
        return true;
    struct file *f = removal_moved_file_locked(l->cache, i);
    if (file_is_half_locked(l->cache, f->node))
        return false;
    owed_file(l, f);
    return true;
}

/* Those of one scope wait for the same files, but for what left a name for another store. */
static void wait_for_removal(struct look *l, const struct intent *i) REQUIRES(cache_mutex)
{
    for (size_t n = 0; n < l->n; n++) {
        const struct intent **one = &l->removals[n];
        if (i->moved_to || (*one)->moved_to || i->scope != (*one)->scope ||
            strncmp(i->from, (*one)->from, i->scope) != 0)
            continue;
        if (barrier_seq_locked(l->cache, i->seq) > barrier_seq_locked(l->cache, (*one)->seq))
            *one = i;
        return;
    }
    if (array_grow(l->removals, l->cap, l->n + 1) == 0)
        l->removals[l->n++] = i;
    else if (!l->error)
        l->error = -ENOMEM;
}

static void owed_intent(struct look *l, struct intent *i) REQUIRES(cache_mutex)
{
    if (!moved_file_comes(l, i))
        return;
    if (lock_holds_row_locked(l->cache, i) ||
        (!intent_is_rename(i) && rounds_are_over_locked(l->cache, &l->waiter->rounds, i))) {
        l->in_vain++;
        return;
    }
    /* An earlier intention may remove what is in its way: it is tried again by itself. Without
     * an error it has reason to wait: a removal is repeated when nothing can arrive any more,
     * and not before. */
    bool clears_up =
        intent_is_in_the_way(i->debt.error) && intents_before_locked(l->cache, i->seq);
    if (!i->debt.error || (clears_up && !l->first))
        l->pending = true;
    else
        owed(l, &i->debt, false);
    if (!intent_is_rename(i))
        wait_for_removal(l, i);
}

/* Either may be NULL. */
static struct intent *older(struct intent *a, struct intent *b)
{
    return a && b ? (a->seq < b->seq ? a : b) : a ? a : b;
}

static void look_at_renames(struct look *l, const char *path, struct place at)
    REQUIRES(cache_mutex)
{
    struct intent *i = row_first(l->cache);

    for (; (i = older(row_over_from(i, path), row_over_from(i, place_path(at))));
         i = row_next(i)) {
        if (intent_since(i) <= l->waiter->seq && intent_is_rename(i) &&
            (path_below(i->to, path) || place_below(intent_source(i), at)))
            owed_intent(l, i);
    }
}

int durable_file_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct look l;

    cache_assert_locked(c);
    look_begin(&l, c, w);
    for (struct entry *e = c->queue->renames ? n->links : NULL; e; e = e->next_link) {
        auto_free char *path = entry_path(e);
        auto_place struct place at = entry_place(e);
        if (path && place_known(at))
            look_at_renames(&l, path, at);
        else if (!l.error)
            l.error = -ENOMEM;
    }
    return look_end(&l);
}

/* Whether the name is directly in `dir`, or in a directory below it that is there no more. */
static bool is_name_in(struct cache *c, const char *dir, const char *path)
{
    const char *rest = path_below(dir, path);

    if (!rest || !*rest)
        return false;
    if (!strchr(rest, '/'))
        return true;
    auto_free char *parent = path_parent(path);
    return parent && !tree_find(c, parent, NULL);
}

/* Backwards, since the directory had other names when older intentions were recorded. Where
 * none is of what is in it, those of names above it are left. */
static int look_at_intents(struct look *l, struct node *dir) REQUIRES(cache_mutex)
{
    struct cache *c = l->cache;
    auto_free char *at = node_path(dir);
    bool below = at && intent_below(c, at);
    struct intent *i = row_last(c); /* the last */

    for (; at && (i = below ? i : row_over_until(i, at)); i = row_prev(i)) {
        bool concerns = is_name_in(c, at, i->from) ||
                        (i->to && (is_name_in(c, at, i->to) || path_below(i->to, at)));
        if (concerns && intent_since(i) <= l->waiter->seq)
            owed_intent(l, i);
        (void)intent_backward(i, &at);
    }
    return at ? 0 : -ENOMEM;
}

/* ---- files ---- */

/* Whether the name's content was closed, or the store has it under another name only. No copy
 * brings a half file that came from another store. */
static bool is_owed(const struct look *l, const struct file *f, const struct entry *e)
    REQUIRES(cache_mutex)
{
    if (!e->dirty)
        return false;
    if (f->unclosed && file_is_half_locked(l->cache, f->node))
        return false;
    if (f->debt.seq && !f->unclosed)
        return f->debt.seq <= l->waiter->seq;
    return f->state == FILE_DIRTY && f->etag && *f->etag && !e->stored_generation &&
           !etag_known(&e->etag);
}

static void look_at_file(struct look *l, struct node *dir, struct file *f) REQUIRES(cache_mutex)
{
    for (struct entry *e = f->node->links; e; e = e->next_link)
        if (e->parent == dir && is_owed(l, f, e)) {
            owed_file(l, f);
            return;
        }
}

static void look_at_files(struct look *l, struct node *dir) REQUIRES(cache_mutex)
{
    struct debt *after;

    for (struct debt *d = owed_first_locked(l->cache); d && d->kind == DEBT_FILE; d = after) {
        after = owed_next_locked(l->cache, d); /* it may be queued */
        look_at_file(l, dir, debt_file(d));
    }
}

static bool is_waited_for(const struct look *l, const struct file *f) REQUIRES(cache_mutex)
{
    for (size_t n = 0; n < l->n; n++)
        if (f->debt.seq < barrier_seq_locked(l->cache, l->removals[n]->seq) &&
            removal_waits_for_locked(l->cache, l->removals[n], f))
            return true;
    return false;
}

/* Removals wait for what was closed before them in their scopes. */
static void look_at_barrier(struct look *l) REQUIRES(cache_mutex)
{
    struct file *f;

    if (!l->n)
        return;
    units_hurry_locked(l->cache);
    OWED_FILES_FOREACH(l->cache, f)
    {
        if (f->debt.error && f->debt.seq && is_waited_for(l, f))
            owed(l, &f->debt, f->short_write);
    }
}

/* ---- directories ---- */

/* What goes before a marker that is waited for is waited for, too: it may fail, which the
 * marker does not before its turn. */
static bool owed_before_marker(void *look, struct intent *i) REQUIRES(cache_mutex)
{
    owed_intent(look, i);
    return false; /* the next one */
}

/* Whether what goes before the directory at the store comes to an end; if not, that is the
 * answer. A name in it that comes waits for less than a marker. */
static bool turn_comes(struct look *l, struct node *dir, const char *path) REQUIRES(cache_mutex)
{
    unsigned in_vain = l->in_vain;

    if (!dir_goes_itself_locked(l->cache, dir, path))
        return true;
    (void)marker_waits_for_row_locked(l->cache, path, owed_before_marker, l);
    return l->in_vain == in_vain;
}

/* It is owed also when names stand for it that do not come by themselves, or may fail. */
static void look_at_marker(struct look *l, struct node *n) REQUIRES(cache_mutex)
{
    struct dir *d = n->dir;

    if (!d->new_here || n->named_seq > l->waiter->seq)
        return;
    auto_free char *path = node_path(n);
    if (!path || path_is_staged_dir(l->cache, path))
        return;
    if (!debt_is_queued(&d->debt)) {
        dir_queue_locked(l->cache, n);
        debt_set_due(&d->debt, 0);
    }
    if (!debt_is_queued(&d->debt)) /* no store has directories there */
        return;
    debt_want(&d->debt, true);
    if (turn_comes(l, n, path))
        owed(l, &d->debt, false);
}

static void look_at_dir(struct look *l, struct node *n) REQUIRES(cache_mutex)
{
    bool wanted = n->dir->debt.wanted;

    look_at_marker(l, n);
    l->changed = l->changed || (!wanted && n->dir->debt.wanted);
}

/* Those that are owed no more, since names in them were to stand for them. */
static void look_at_new_dirs(struct look *l, struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    look_at_dir(l, dir);
    if (children_count(dir->dir->children) == dir->dir->files)
        return;
    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (e->node->dir)
            look_at_dir(l, e->node);
    }
}

static void look_at_markers(struct look *l, struct node *dir) REQUIRES(cache_mutex)
{
    for (struct debt *d = l->cache->queue->owed[DEBT_DIR].first; d; d = d->next) {
        struct node *n = debt_dir(d);
        if (n == dir || (n->links && n->links->parent == dir))
            look_at_dir(l, n);
    }
    /* What is waited for stays queued, unless a flush waited for it, too, and has ended. */
    if (l->first || !l->pending)
        look_at_new_dirs(l, dir);
}

int durable_dir_locked(struct cache *c, struct node *dir, struct waiter *w)
{
    struct look l;

    cache_assert_locked(c);
    look_begin(&l, c, w);
    if (dir->flags & NODE_REMOVED)
        return 0;
    if (dir->dir->overruled_ns >= w->since_ns)
        return -ESTALE;
    int r = look_at_intents(&l, dir);
    if (r == 0) {
        look_at_files(&l, dir);
        look_at_markers(&l, dir);
        look_at_barrier(&l);
    } else {
        l.error = r;
    }
    return look_end(&l);
}
