/* Whose a cache is. Another mount takes it over when it owes nothing: its routes and logs say
 * what recovery makes of what it finds, so they must not be asked before that is known. */
#include "cache/recover_impl.h"

#include "cache/mirror/door.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool cache_owes(struct cache *c)
{
    cache_lock(c);
    bool owes = false;
    struct debt *d;
    /* An upload that broke off, and a note, owe nothing that their files do not. */
    OWED_FOREACH(c, d)
    {
        owes = owes || (d->kind != DEBT_SESSION && d->kind != DEBT_NOTE);
    }
    cache_unlock(c);
    return owes;
}

/* ---- before recovery ---- */

struct found_debts {
    struct cache *cache;
    bool any;
};

/* Recovery takes renames back in a copy, and knows no impossible paths. */
static int look_at_row(void *arg, const struct journal_row *row)
{
    struct found_debts *d = arg;
    bool rename = row->kind == INTENT_RENAME || row->kind == INTENT_RENAMEDIR;

    if (path_key_ok(row->from, STORE_KEY_MAX) && !(rename && d->cache->mirror.copied))
        d->any = true;
    return 0;
}

/* A half file counts: for the mount that it is of it may be a log, which is whole at any
 * moment. What was not synced before a reboot is kept aside by whichever mount comes. */
static bool file_owes(struct cache *c, int fd, const struct stat *st)
{
    struct stamp_attrs a;

    if (stamp_read_attrs(fd, &a) < 0 || S_ISDIR(a.mode) || (a.flags & STAMP_SCRATCH))
        return false;
    return recover_is_written(fd, &a) ? recover_trusts(c, &a, st)
                                      : (a.flags & STAMP_ATTR_DIRTY) != 0;
}

static bool dir_owes(int fd)
{
    struct stamp_attrs a;

    return stamp_read_attrs(fd, &a) == 0 && S_ISDIR(a.mode) &&
           (a.flags & (STAMP_NEW | STAMP_ATTR_DIRTY));
}

static int look_at_one(void *arg, const char *path, int fd, const struct stat *st)
{
    struct found_debts *d = arg;

    if (path_key_ok(path, STORE_KEY_MAX) &&
        (S_ISDIR(st->st_mode) ? dir_owes(fd) : file_owes(d->cache, fd, st)))
        d->any = true;
    return d->any; /* ends the walk */
}

/* By rows and stamps alone, and nothing is changed. What they do not show (a name without its
 * record) is found by recovery, for any mount alike. */
static int look_for_debts(struct cache *c, bool *ret)
{
    struct found_debts d = {.cache = c};
    int r = journal_each(c->journal, look_at_row, &d);

    if (r == 0 && !d.any)
        r = mirror_walk(c->mirror.tree_fd, look_at_one, &d);
    *ret = d.any;
    return r < 0 ? r : 0;
}

static int refuse(struct cache *c, const char *then, struct op *op)
{
    return op_fail(op, -EEXIST,
                   "cache %s belongs to another store (%s) and holds what is not "
                   "published there yet; mount that one again, or run 'runfs recover %s', "
                   "or use another cache_dir",
                   c->mirror.dir, then, c->mirror.dir);
}

static int cant_take(struct cache *c, int r, struct op *op)
{
    return op_fail(op, r, "cache %s: can't take over what it holds: %s", c->mirror.dir,
                   strerror(-r));
}

/* Whoever's it is, this mount's routes must not judge it. */
static int cant_tell(struct cache *c, int r, struct op *op)
{
    return op_fail(
        op, r,
        "cache %s: can't read its identity, so whose it is: %s; copy out what it owes "
        "with 'runfs recover %s --export DIR', or use another cache_dir",
        c->mirror.dir, door_why(r), c->mirror.dir);
}

int takeover_check(struct cache *c, struct op *op)
{
    auto_free char *then = NULL;
    bool owes;
    int r = mirror_read_text(&c->mirror, "identity", &then);

    if (r == -ENOENT) /* nobody's */
        return 0;
    if (r < 0)
        return cant_tell(c, r, op);
    if (strcmp(then, c->config.identity) == 0)
        return 0;
    r = look_for_debts(c, &owes);
    return r < 0 ? cant_take(c, r, op) : owes ? refuse(c, then, op) : 0;
}

/* ---- after it ---- */

/* What was kept here though no store has it was of the other mount. */
static int stays_no_more(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    (void)arg;
    if (n->dir) {
        n->dir->bare = n->dir->fixed = false;
        n->dir->kind = DIR_STORED;
    }
    return 0;
}

/* Takes everything out of a mirror that belongs to another store and owes it nothing. */
static int clear_mirror(struct cache *c)
{
    struct entry *e;
    size_t at;
    int r = 0;

    ns_write(c);
    cache_lock(c);
    (void)tree_each(c->tree->root, stays_no_more, NULL);
    dir_take_route(c, c->tree->root->dir, "");
    cache_unlock(c);
    CHILDREN_FOREACH(c->tree->root->dir->children, e, at)
    {
        if (r == 0)
            r = entry_gone(c, e);
    }
    /* What the stores have at the same keys gets the same numbers, by whatever paths. */
    cache_lock(c);
    if (r == 0)
        inos_forget_locked(c);
    cache_unlock(c);
    ns_done(c);
    return r;
}

static int write_identity(struct cache *c, struct op *op)
{
    int r = mirror_write_text(&c->mirror, "identity", c->config.identity);

    return r < 0 ? op_fail(op, r, "cache %s: can't write its identity: %s", c->mirror.dir,
                           door_why(r))
                 : root_note(c, op);
}

int takeover(struct cache *c, struct op *op)
{
    auto_free char *then = NULL;
    int r = mirror_read_text(&c->mirror, "identity", &then);
    bool same = r == 0 && strcmp(then, c->config.identity) == 0;

    if (r < 0 && r != -ENOENT)
        return cant_tell(c, r, op);
    if (r == 0 && !same && cache_owes(c))
        return refuse(c, then, op);
    r = r == 0 && !same ? clear_mirror(c) : 0;
    if (r < 0)
        return cant_take(c, r, op);
    r = same ? root_check(c, op) : 0;
    return r < 0 ? r : write_identity(c, op);
}
