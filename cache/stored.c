/* Whether the store has what stands at a path, under just that name. */
#include "cache/blocking.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool node_owes(const struct node *n)
{
    struct file *f = n->file;

    if (!n->links)
        return false;
    if (n->dir)
        return debt_is_queued(&n->dir->debt);
    if (!f)
        return false;
    return f->state == FILE_DIRTY || (n->flags & NODE_ATTR_DIRTY) || names_owe(n);
}

/* What failed, and why as far as that is known. Of what was cut off no flush makes an end. */
static int upload_fails_locked(const struct node *n, struct op *op) REQUIRES(cache_mutex)
{
    int err = n->dir ? n->dir->debt.error : n->file->debt.error;
    const char *text = n->dir ? n->dir->debt.why : n->file->debt.why;

    if (n->file && n->file->short_write)
        return op_fail(op, -ENODATA, "a part of it is missing: %s",
                       text ? text : strerror(abs(err)));
    return op_fail(op, -EBUSY, "its upload fails: %s", text ? text : strerror(abs(err)));
}

/* Content and attributes, as a flush sees them; the end of an upload may come a moment later.
 * NULL: the store has them. */
static const char *owed_locked(const struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->file;

    if (n->dir)
        return n->dir->new_here || node_owes(n) ? "the store does not have it yet" : NULL;
    if (!f)
        return NULL;
    if (f->write_handles)
        return "it is open for writing";
    return node_owes(n) ? "the store does not have it as it is" : NULL;
}

const char *stored_name_owed_locked(struct cache *c, const char *path)
{
    struct entry *e = NULL;

    if (!tree_find(c, path, &e))
        return "it is gone";
    if (!e) /* the root */
        return NULL;
    if (e->scratch)
        return "it is scratch, in no store";
    auto_place struct place at = entry_place(e);
    return !e->dirty && place_known(at) && place_same(at, place_of_path(path))
               ? NULL
               : "the store does not have it under this name yet";
}

/* Only the store knows whether the own key is what makes the directory exist. */
static int ask_own_key(struct cache *c, const char *path, struct op *op)
{
    int64_t latest = clock_mono_ns() + c->config.ask_timeout_ns;
    struct op_notes notes = {0};
    struct object obj = {0};
    struct op ask = *op;

    ask.notes = &notes;
    if (ask.deadline_ns > latest)
        ask.deadline_ns = latest;
    int r = store_stat(c->store, &ask, place_of_path(path).key, &obj);
    bool has_key = r == 0 && obj.is_prefix && !notes.elsewhere;
    object_release(&obj);
    if (r < 0 && r != -ENOENT)
        return op_fail(op, r, "%s", ask.why);
    return has_key ? 0
                   : op_fail(op, -EISDIR,
                             "no store has it under its own key: it is there by what other "
                             "routes have below it");
}

int cache_stored_path(struct cache *c, const char *path, struct op *op)
{
    struct node *n = NULL;
    int r = blocking_walk(c, path, op, NULL, &n);

    if (r < 0)
        return r;
    cache_lock(c);
    /* The root of a store is there, whatever leads through the mount's. */
    bool is_root = n == c->tree->root;
    bool no_key = n->dir && n->dir->kind != DIR_STORED && !is_root;
    bool fails =
        !no_key && !is_root && (n->dir ? n->dir->debt.error : n->file && n->file->debt.error);
    const char *why = is_root || no_key || fails ? NULL : owed_locked(n);
    if (!why && !no_key && !fails)
        why = stored_name_owed_locked(c, path);
    if (!why && !no_key && !fails && n->file && unit_keeps_locked(n))
        why = "others could remove it while this mount could not say that it writes its unit, "
              "and the store has not been asked since: flush says what came of it";
    r = fails ? upload_fails_locked(n, op) : why ? op_fail(op, -EBUSY, "%s", why) : 0;
    bool asks = r == 0 && n->dir && !no_key && !is_root && path_may_lack_key(c, path);
    cache_unlock(c);
    if (!is_root)
        cache_forget(c, n, 1);
    if (asks)
        return ask_own_key(c, path, op);
    return no_key ? op_fail(op, -EISDIR, "it is no directory of a store") : r;
}
