/* What a flush waits for: what was owed below its path when it began, what left that for
 * another store, and the new directories that may come to owe a marker. */
#include "cache/flush.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <assert.h>
#include <errno.h>
#include <utlist.h>

struct debt *flush_debt_of(struct node *n)
{
    assert(n->dir || n->file); /* what owes something and is no directory has a file */
    return n->dir ? &n->dir->debt : &n->file->debt;
}

static int push_target_locked(struct flush *fl, struct node *n) REQUIRES(cache_mutex)
{
    if (array_grow(fl->v, fl->cap, fl->n + 1))
        return -ENOMEM;
    node_ref_locked(n);
    fl->v[fl->n++] =
        (struct target){.node = n,
                        .generation = n->dir ? n->dir->generation : n->file->generation,
                        .attempts = flush_debt_of(n)->attempts,
                        .losses = n->dir ? 0 : n->file->losses,
                        .size = n->dir ? 0 : n->size};
    return 0;
}

static int add_target_locked(struct flush *fl, struct node *n) REQUIRES(cache_mutex)
{
    return node_owes(n) && node_is_named_below(fl->cache, n, fl->path)
               ? push_target_locked(fl, n)
               : 0;
}

/* The directories whose time will be owed again when the targets come. */
static int add_early_times_locked(struct flush *fl) REQUIRES(cache_mutex)
{
    int r = 0;

    for (size_t i = 0, n = fl->n; i < n && r == 0; i++)
        for (struct entry *e = fl->v[i].node->links; e && r == 0; e = e->next_link)
            if (e->parent->dir->time_early && fl->v[fl->n - 1].node != e->parent &&
                node_is_named_below(fl->cache, e->parent, fl->path))
                r = push_target_locked(fl, e->parent);
    return r;
}

/* The new directories that the node is to stand for, or would: a marker is owed where it goes
 * before it is stored, or does not come. */
static int add_new_dirs_of_locked(struct flush *fl, struct node *n, const struct node **last)
    REQUIRES(cache_mutex)
{
    int r = 0;

    for (struct entry *e = n->links; e && r == 0; e = e->next_link) {
        struct dir *d = e->parent->dir;
        if (!d->new_here || debt_is_queued(&d->debt) || e->parent == *last ||
            !node_is_named_below(fl->cache, e->parent, fl->path))
            continue;
        *last = e->parent;
        r = push_target_locked(fl, e->parent);
    }
    return r;
}

/* Those of the targets, and those above them: what is added is looked at, too. */
static int add_new_dirs_locked(struct flush *fl, const struct node *last) REQUIRES(cache_mutex)
{
    int r = 0;

    for (size_t i = 0; i < fl->n && r == 0; i++)
        r = add_new_dirs_of_locked(fl, fl->v[i].node, &last);
    return r;
}

void flush_drop_targets_locked(struct flush *fl)
{
    for (size_t i = 0; i < fl->n; i++)
        node_unref_locked(fl->cache, fl->v[i].node);
    fl->n = 0;
}

bool flush_concerns_locked(const struct flush *fl, const struct intent *i)
{
    const char *path = fl->path;

    return intent_since(i) <= fl->seq &&
           (path_below(path, i->from) ||
            (i->to && (path_below(path, i->to) || path_below(i->to, path) ||
                       path_below(i->from, path))));
}

static bool is_target(const struct flush *fl, const struct node *n)
{
    for (size_t i = 0; i < fl->n; i++)
        if (fl->v[i].node == n)
            return true;
    return false;
}

struct file *flush_awaited_elsewhere_locked(struct cache *c, const struct intent *i)
{
    return removal_is_of_only_copy_locked(c, i) ? removal_moved_file_locked(c, i) : NULL;
}

int flush_add_moved_locked(struct flush *fl, const struct intent *i)
{
    struct file *f =
        flush_concerns_locked(fl, i) ? flush_awaited_elsewhere_locked(fl->cache, i) : NULL;

    return f && !is_target(fl, f->node) ? push_target_locked(fl, f->node) : 0;
}

/* Whether the flush leaves it where it is, and the caller tells of it: not of what is half, of
 * which the flush itself does. */
static bool is_left_waiting_locked(const struct flush *fl, struct file *f) REQUIRES(cache_mutex)
{
    if (fl->flags & (CACHE_FLUSH_STAGED | CACHE_FLUSH_AWAIT))
        return false;
    return file_waits_for_rename_locked(fl->cache, f->node) &&
           ((fl->flags & CACHE_FLUSH_HALF) || !file_is_half_locked(fl->cache, f->node));
}

/* The same of a directory that waits for its rename. */
static bool is_dir_left_waiting_locked(const struct flush *fl, struct node *dir)
    REQUIRES(cache_mutex)
{
    auto_free char *path = NULL;

    if (fl->flags & (CACHE_FLUSH_STAGED | CACHE_FLUSH_AWAIT))
        return false;
    path = node_path(dir);
    return path && path_is_staged_dir(fl->cache, path);
}

/* `last`: the new directory that was added last. */
static int gather_one_locked(struct flush *fl, struct debt *d, const struct node **last)
    REQUIRES(cache_mutex)
{
    switch ((enum debt_kind)d->kind) {
    case DEBT_FILE:
        return is_left_waiting_locked(fl, debt_file(d))
                   ? add_new_dirs_of_locked(fl, debt_file(d)->node, last)
                   : add_target_locked(fl, debt_file(d)->node);
    case DEBT_DIR:
        return is_dir_left_waiting_locked(fl, debt_dir(d))
                   ? add_new_dirs_of_locked(fl, debt_dir(d), last)
                   : add_target_locked(fl, debt_dir(d));
    case DEBT_ROW:
        return flush_add_moved_locked(fl, debt_row(d));
    case DEBT_SESSION: /* looked at as long as the flush waits */
    case DEBT_NOTE:
    case DEBT_INDEX:
    case DEBT_KINDS:
        break;
    }
    return 0;
}

int flush_gather_locked(struct flush *fl)
{
    struct cache *c = fl->cache;
    const struct node *last = NULL;
    struct file *f;
    struct debt *d;
    int r = 0;

    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        node_look_locked(c, f->node); /* what it is now may be owed */
    }
    fl->seq = seq_now_locked(c);
    OWED_FOREACH(c, d)
    {
        if (r == 0)
            r = gather_one_locked(fl, d, &last);
    }
    if (r == 0)
        r = add_early_times_locked(fl);
    if (r == 0)
        r = add_new_dirs_locked(fl, last);
    rounds_init(c, &fl->rounds, fl->seq);
    return r;
}
