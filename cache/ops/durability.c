/* How safe a content is, as the attribute user.runfs.durability tells it: `cache`, `store` or
 * `verified`. Asks nobody. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

/* The least comes first. */
enum safe { SAFE_CACHE, SAFE_STORE, SAFE_VERIFIED };

/* So many names of a directory are looked at, while the lock is held: some milliseconds. Of a
 * larger one it is not told that all of them were compared. */
#define LOOKS_MAX 65536

struct looking {
    enum safe least;
    unsigned looks;
};

/* Whether the store lacks something of it, as far as is known. What somebody may still write
 * counts as lacking. */
static bool file_is_owed(const struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->file;

    return (n->flags & NODE_ATTR_DIRTY) || names_owe(n) ||
           (f && (f->state == FILE_DIRTY || f->write_handles || f->is_writer ||
                  f->debt.running || f->debt.error));
}

static enum safe safe_of_file(const struct node *n) REQUIRES(cache_mutex)
{
    if (!n->links || node_is_scratch(n) || file_is_owed(n))
        return SAFE_CACHE;
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (!e->compared)
            return SAFE_STORE;
    return SAFE_VERIFIED;
}

/* A directory has no content: it is in the store, or is not; and what it has is known by a
 * listing, or because it was made here. */
static enum safe safe_of_dir(const struct node *n) REQUIRES(cache_mutex)
{
    const struct dir *d = n->dir;

    if (d->debt.running || d->debt.error || debt_is_queued(&d->debt) || d->new_here ||
        (n->flags & NODE_ATTR_DIRTY))
        return SAFE_CACHE;
    return d->listed_ns || d->local_only || d->kind == DIR_SCRATCH || d->bare ? SAFE_VERIFIED
                                                                              : SAFE_STORE;
}

/* What is in no store by its route is left out, as by a flush. */
static int look(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct looking *l = arg;
    enum safe safe = n->dir               ? safe_of_dir(n)
                     : node_is_scratch(n) ? SAFE_VERIFIED
                                          : safe_of_file(n);

    if (++l->looks > LOOKS_MAX && safe == SAFE_VERIFIED)
        safe = SAFE_STORE;
    if (safe < l->least)
        l->least = safe;
    return l->least == SAFE_CACHE || l->looks > LOOKS_MAX;
}

/* Whether something at or below the path is owed, or is there by a rename that has not come to
 * the store. */
static bool is_owed_below(struct cache *c, struct debt *d, const char *path)
    REQUIRES(cache_mutex)
{
    const struct intent *i;

    switch ((enum debt_kind)d->kind) {
    case DEBT_FILE:
        return !node_is_scratch(debt_file(d)->node) && file_is_owed(debt_file(d)->node) &&
               node_is_named_below(c, debt_file(d)->node, path);
    case DEBT_DIR:
        return node_is_named_below(c, debt_dir(d), path);
    case DEBT_ROW:
        i = debt_row(d);
        return intent_is_rename(i) && i->to &&
               (path_below(path, i->to) || path_below(i->to, path));
    case DEBT_SESSION: /* its file owes the upload */
    case DEBT_NOTE:
    case DEBT_INDEX:
    case DEBT_KINDS:
        break;
    }
    return false;
}

static bool owes_below_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(n);
    struct debt *d;

    if (!path)
        return true;
    OWED_FOREACH(c, d)
    {
        if (is_owed_below(c, d, path))
            return true;
    }
    return false;
}

const char *node_durability_locked(struct cache *c, struct node *n)
{
    static const char *const texts[] = {"cache", "store", "verified"};
    struct looking l = {.least = SAFE_VERIFIED};

    cache_assert_locked(c);
    if (n->dir && (n->dir->kind == DIR_SCRATCH || (n->dir->bare && !n->is_root)))
        return texts[SAFE_CACHE];
    if (!n->dir)
        l.least = safe_of_file(n);
    else
        (void)tree_each(n, look, &l);
    if (l.least > SAFE_CACHE && owes_below_locked(c, n))
        l.least = SAFE_CACHE;
    return texts[l.least];
}
