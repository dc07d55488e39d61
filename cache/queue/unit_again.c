/* Units of which the store may have less than it had: their owner was away for longer than its
 * lease, or was killed, and others may have cleaned up what it had left (docs/units.md, 4).
 * What is whole here goes up again, in the order of the closes. */
#include "cache/cache.h"
#include "cache/queue/unit.h"

#include "cache/types/etag.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct look {
    struct cache *cache;
    bool (*has)(void *arg, const char *name);
    void *arg;
    char *lost; /* the first that is nowhere any more; heap */
};

/* Whether the store had it, at its path. */
static bool was_stored(struct entry *e) REQUIRES(cache_mutex)
{
    auto_place struct place at = entry_place(e);
    auto_free char *path = entry_path(e);

    return !e->dirty && etag_known(&e->etag) && path && place_known(at) &&
           place_same(at, place_of_path(path));
}

static int look_at_file(struct look *l, struct entry *e, const char *name) REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    if (!was_stored(e) || l->has(l->arg, name))
        return 0;
    if (!n->file || n->file->state == FILE_PARTIAL) {
        if (!l->lost && !(l->lost = strdup(name)))
            return -ENOMEM;
        return 0;
    }
    entry_version_lost_locked(e);
    file_mark_dirty_locked(l->cache, n, true);
    if (n->file->write_handles == 0)
        file_queue_lost_locked(l->cache, n);
    return 0;
}

/* `below`: the directory's path below that of the unit. */
static int look_below(struct look *l, struct node *dir, const char *below) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;
    int r = 0;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        auto_free char *name = path_join(below, e->name);
        if (r == 0)
            r = !name          ? -ENOMEM
                : e->node->dir ? look_below(l, e->node, name)
                               : look_at_file(l, e, name);
    }
    return r;
}

int unit_look_again_locked(struct cache *c, struct unit_note *n,
                           bool (*has)(void *arg, const char *name), void *arg, char **ret_lost)
{
    struct look l = {.cache = c, .has = has, .arg = arg};
    struct unit *u = n->unit;

    cache_assert_locked(c);
    *ret_lost = NULL;
    if (!u)
        return 0;
    /* No program has closed anything: what was asked for before is still wanted. */
    const bool asked = u->asked, committed = u->committed, hurried = u->hurried;
    int r = look_below(&l, u->node, "");
    u->asked = asked;
    u->committed = committed;
    u->hurried = hurried;
    *ret_lost = l.lost;
    return r < 0 ? r : l.lost ? -ESTALE : 0;
}

bool unit_keeps_locked(const struct node *n)
{
    for (const struct entry *e = n->links; e; e = e->next_link) {
        const struct unit *u = unit_over(e->parent);
        if (u && !note_lets_go_locked(u))
            return true;
    }
    return false;
}
