/* Units that this mount does not show, since another one has not finished to publish or to
 * remove them (docs/units.md, 5): neither in a directory nor by their name.
 *
 * Notes are asked for after what showed a name. One that this mount did not know may be that of
 * a unit that was begun since the last answer: so it needs a younger one. One that was shown
 * before was judged before, and that is believed as long as a listing is. Names that no policy
 * makes units of are not asked about. */
#include "cache/listing/listing_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>

static bool hides_any(struct cache *c)
{
    return !c->config.show_incomplete &&
           (c->config.routes || store_can(c->store, STORE_STATE_DIR, STORE_STATE));
}

static int64_t believed_since(struct cache *c)
{
    return clock_mono_ns() - listing_validity_ns(c);
}

/* ---- what is above ---- */

/* The place of a directory that may be a unit; else none. Owned. */
static struct place unit_place_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    auto_free char *path = dir->links ? node_path(dir) : NULL;

    return path && path_may_be_unit(c, path) ? node_place(dir) : NO_PLACE;
}

/* The directory goes as one that the store has no more. False when something in it is ours. */
static bool go(struct cache *c, struct node *dir, struct place at)
{
    ns_write(c);
    cache_lock(c);
    struct entry *e = node_name_at(dir, at);
    cache_unlock(c);
    bool gone = !e || entry_gone(c, e) != -EBUSY;
    ns_done(c);
    return gone;
}

/* Whether the directory is in a unit that is hidden, or is one; that goes. 1, 0, or why nobody
 * knows. */
static int look_above(struct cache *c, struct op *op, struct node *dir)
{
    struct node *n = dir;
    int r = 0;

    cache_lock(c);
    node_ref_locked(n);
    while (r == 0 && n->links) {
        auto_place struct place at = unit_place_locked(c, n);
        cache_unlock(c);
        if (place_known(at))
            r = noted_hides(c, op, at, believed_since(c));
        if (r > 0)
            r = go(c, n, at);
        cache_lock(c);
        struct node *up = n->links ? n->links->parent : NULL;
        if (!up)
            break;
        node_ref_locked(up);
        node_unref_locked(c, n);
        n = up;
    }
    node_unref_locked(c, n);
    cache_unlock(c);
    return r;
}

/* ---- what was shown ---- */

/* Whether a name of the directory is hidden, at or behind which the store has something, as was
 * shown at `shown_ns`. */
static int look(struct cache *c, struct op *op, struct node *dir, const char *name,
                struct place at, int64_t shown_ns)
{
    cache_lock(c);
    struct entry *e = entry_find(dir, name);
    bool judged = e && e->node->dir && e->verified_ns;
    auto_free char *dir_path = node_path(dir);
    cache_unlock(c);
    auto_free char *path = dir_path ? path_join(dir_path, name) : NULL;
    if (!path)
        return op_fail(op, -ENOMEM, "out of memory");
    if (!path_may_be_unit(c, path))
        return 0;
    return noted_hides(c, op, at, judged ? believed_since(c) : shown_ns);
}

int hidden_mark(struct listing *l, struct op *op, struct place at, int64_t shown_ns)
{
    struct cache *c = l->cache;

    if (!hides_any(c))
        return 0;
    int r = look_above(c, op, l->dir);
    for (size_t i = 0; i < l->n && r == 0; i++) {
        if (!l->v[i].obj.is_prefix)
            continue;
        auto_place struct place unit = place_join(at, l->v[i].name);
        int hidden = place_known(unit) ? look(c, op, l->dir, l->v[i].name, unit, shown_ns)
                                       : op_fail(op, -ENOMEM, "out of memory");
        l->v[i].hidden = hidden > 0;
        r = hidden < 0 ? hidden : 0;
    }
    return r < 0 ? r : 0;
}

int hidden_name(struct cache *c, struct op *op, struct node *dir, const char *name,
                struct place at, const struct object *obj)
{
    int64_t shown_ns = clock_mono_ns();

    if (!hides_any(c))
        return 0;
    int r = look_above(c, op, dir);
    return r == 0 && obj->is_prefix ? look(c, op, dir, name, at, shown_ns) : r;
}
