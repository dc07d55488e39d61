/* Units that this mount does not show, since another one has not finished to publish or to
 * remove them (docs/units.md, 5): neither in a directory nor by their name.
 *
 * Notes are asked for after what showed a name. One that this mount did not know may be that of
 * a unit that was begun since the last answer: so it needs a younger one. One that was shown
 * before was judged before, and that is believed as long as a listing is. Names that no policy
 * makes units of are not asked about.
 *
 * What is in a unit is listed after that was judged: a listing from before may have half of
 * what has become whole since. */
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

/* Whether the unit is hidden of which something in store `volume` is shown (0: its name alone).
 * What several stores make is found while one of them does not answer, but for that one's part.
 */
static int hides(struct cache *c, struct op *op, const char *path, struct place at,
                 unsigned volume, int64_t since_ns)
{
    bool elsewhere =
        c->config.routes && path_is_joint(c, path) && path_volume(c, path, true) != volume;

    return elsewhere ? noted_hides_elsewhere(c, op, at, since_ns)
                     : noted_hides(c, op, at, since_ns);
}

/* ---- what is above ---- */

/* The path of a directory that may be a unit, heap, and its place; else NULL. */
static char *unit_path_locked(struct cache *c, struct node *dir, struct place *ret_at)
    REQUIRES(cache_mutex)
{
    auto_free char *path = dir->links ? node_path(dir) : NULL;

    if (!path || !path_may_be_unit(c, path))
        return NULL;
    *ret_at = node_place(dir);
    return take_ptr(path);
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

/* Whether the directory, of which something in that store is shown, is in a unit that is
 * hidden, or is one; that goes. 1, 0, or why nobody knows. */
static int look_above(struct cache *c, struct op *op, struct node *dir, unsigned volume)
{
    struct node *n = dir;
    int r = 0;

    cache_lock(c);
    node_ref_locked(n);
    while (r == 0 && n->links) {
        auto_place struct place at = NO_PLACE;
        auto_free char *path = unit_path_locked(c, n, &at);
        cache_unlock(c);
        if (path && place_known(at))
            r = hides(c, op, path, at, volume, believed_since(c));
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

/* Which store has the directory itself, or (`name`) what is of that name in it. */
static unsigned volume_of(struct cache *c, struct node *dir, const char *name, bool is_dir)
{
    cache_lock(c);
    auto_free char *dir_path = node_path(dir);
    cache_unlock(c);
    auto_free char *path = dir_path ? path_join(dir_path, name) : NULL;

    return path ? path_volume(c, path, is_dir) : 0;
}

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
    return hides(c, op, path, at, 0, judged ? believed_since(c) : shown_ns);
}

int hidden_mark(struct listing *l, struct op *op, struct place at, int64_t shown_ns)
{
    struct cache *c = l->cache;

    if (!hides_any(c))
        return 0;
    int r = look_above(c, op, l->dir, volume_of(c, l->dir, "", true));
    /* Where the cache's disk did not let it go, nothing in it is shown. */
    for (size_t i = 0; i < l->n && r > 0; i++)
        l->v[i].hidden = true;
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

bool hidden_was_listed_early_locked(struct cache *c, struct node *dir, int64_t asked_ns)
{
    cache_assert_locked(c);
    if (!hides_any(c) || dir->dir->found_ns < asked_ns)
        return false;
    auto_free char *path = node_path(dir);
    return !path || path_may_be_unit(c, path);
}

int hidden_name(struct cache *c, struct op *op, struct node *dir, const char *name,
                struct place at, const struct object *obj)
{
    int64_t shown_ns = clock_mono_ns();

    if (!hides_any(c))
        return 0;
    int r = look_above(c, op, dir, volume_of(c, dir, name, obj->is_prefix));
    return r == 0 && obj->is_prefix ? look(c, op, dir, name, at, shown_ns) : r;
}
