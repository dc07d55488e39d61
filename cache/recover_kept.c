/* What recovery takes from the mirror to kept/: what the disk may have lost a part of, what was
 * half, and what would make the store show a unit as whole that lost a file of it.
 * docs/format.md, section 6. */
#include "cache/recover_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int recover_keep(struct scan *s, const char *path, uint64_t seq, const char *why)
{
    if (array_grow(s->keep, s->cap_keep, s->n_keep + 1))
        return -ENOMEM;
    struct keeping *k = &s->keep[s->n_keep];
    *k = (struct keeping){.path = strdup(path), .why = why};
    if (!k->path)
        return -ENOMEM;
    s->n_keep++;
    s->keep_seq = seq < s->keep_seq ? seq : s->keep_seq;
    return 0;
}

/* Whether the store has, or had, the file under some name. */
static bool was_stored(int fd)
{
    struct stamp_keys keys = {0};
    bool stored = stamp_read_keys(fd, &keys) == 0 && keys.n;

    stamp_keys_release(&keys);
    return stored;
}

int recover_keep_unsynced(struct scan *s, const char *path, const struct stamp_attrs *a, int fd)
{
    int r = recover_keep(s, path, a->first_seq ? a->first_seq : a->seq,
                         "was changed but not synced before the machine went down");

    if (r == 0 && !was_stored(fd))
        s->keep[s->n_keep - 1].lost = a->seq;
    return r;
}

/* ---- what comes after a lost file ---- */

/* The directory that the name is in, and that of its unit; NULL: it is in none. */
static struct node *unit_of(struct cache *c, const char *path, struct node **ret_dir)
    REQUIRES(cache_mutex)
{
    auto_free char *parent = path_parent(path);

    *ret_dir = parent ? tree_find(c, parent, NULL) : NULL;
    return *ret_dir && (*ret_dir)->dir ? unit_dir_named_locked(c, *ret_dir) : NULL;
}

/* When a file that the store lacks was closed: what has no place in the order comes last in it.
 * 0: it is none for which others wait. */
static uint64_t closed_at(struct cache *c, const struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    const struct file *f = n->file;
    bool waits = f->state == FILE_DIRTY && !path_is_log(c, path) && !path_is_staged(c, path);

    return !waits ? 0 : f->seq ? f->seq : UINT64_MAX;
}

/* Whether the store gets the name after the lost file, which is in this unit (NULL: in none)
 * and directory, because it says which unit counts. */
static bool points_behind(struct cache *c, struct entry *e, const char *path,
                          struct node *lost_dir, struct node *lost_unit) REQUIRES(cache_mutex)
{
    if (!unit_path_is_pointer(c, path) || unit_dir_named_locked(c, e->parent))
        return false;
    return lost_unit ? node_is_below(lost_unit, e->parent) : lost_dir == e->parent;
}

/* Takes the file, as far as it has such names, out of the tree. */
static int hold(struct scan *s, size_t at, const char *path, struct entry *e)
    REQUIRES(cache_ns, cache_mutex)
{
    struct node *n = e->node;
    uint64_t first = n->file->debt.seq ? n->file->debt.seq : n->file->seq;
    int r = recover_keep(s, path, first ? first : UINT64_MAX,
                         "is published after a file that was lost when the machine went down");

    if (r < 0)
        return r;
    s->keep[s->n_keep - 1].held = true;
    s->n_held++;
    if (n->links == e && !e->next_link)
        s->dirty[at] = s->dirty[--s->n_dirty];
    n->nlink--;
    entry_remove_locked(s->cache, e);
    return 0;
}

/* The name of the file in the unit, and when that was closed. */
static struct entry *name_in(struct cache *c, struct node *n, struct node *unit, uint64_t *ret)
    REQUIRES(cache_mutex)
{
    for (struct entry *e = n->file ? n->links : NULL; e; e = e->next_link) {
        auto_free char *path = entry_path(e);
        *ret = path && node_is_below(e->parent, unit) ? closed_at(c, n, path) : 0;
        if (*ret)
            return e;
    }
    return NULL;
}

/* The file that was closed last in the unit, unless that is a lost one. */
static int hold_tail(struct scan *s, struct node *unit) REQUIRES(cache_ns, cache_mutex)
{
    struct cache *c = s->cache;
    struct entry *tail = NULL, *e;
    uint64_t last = 0, closed;
    struct node *dir;
    size_t at = 0;

    for (size_t i = 0; i < s->n_keep; i++)
        if (s->keep[i].lost > last && unit_of(c, s->keep[i].path, &dir) == unit)
            last = s->keep[i].lost;
    for (size_t i = 0; i < s->n_dirty; i++) {
        e = name_in(c, s->dirty[i], unit, &closed);
        bool later = e && tail && closed == last && e->node->mtime_ns > tail->node->mtime_ns;
        if (!e || (closed <= last && !later))
            continue;
        last = closed;
        tail = e;
        at = i;
    }
    auto_free char *path = tail ? entry_path(tail) : NULL;
    return !tail ? 0 : path ? hold(s, at, path, tail) : -ENOMEM;
}

static int hold_pointers(struct scan *s, uint64_t lost, struct node *dir, struct node *unit)
    REQUIRES(cache_ns, cache_mutex)
{
    int r = 0;

    for (size_t i = s->n_dirty; i-- > 0 && r == 0;) {
        struct entry *e = s->dirty[i]->file ? s->dirty[i]->links : NULL;
        auto_free char *path = e ? entry_path(e) : NULL;
        if (path && closed_at(s->cache, e->node, path) > lost &&
            points_behind(s->cache, e, path, dir, unit))
            r = hold(s, i, path, e);
    }
    return r;
}

int recover_hold_behind_lost(struct scan *s)
{
    size_t n = s->n_keep; /* what is held is not lost */
    int r = 0;

    cache_assert_locked(s->cache);
    for (size_t i = 0; i < n && r == 0; i++) {
        uint64_t lost = s->keep[i].lost;
        struct node *dir = NULL;
        struct node *unit = lost ? unit_of(s->cache, s->keep[i].path, &dir) : NULL;
        if (lost && dir)
            r = hold_pointers(s, lost, dir, unit);
        if (r == 0 && unit)
            r = hold_tail(s, unit);
    }
    return r;
}

/* ---- moving ---- */

static int move_some(struct scan *s, bool held)
{
    struct cache *c = s->cache;
    int r = 0;

    for (size_t i = 0; i < s->n_keep && r == 0; i++) {
        const struct keeping *k = &s->keep[i];
        if (k->held != held)
            continue;
        log_warn("%s %s; it is kept as %s/kept/%s and not published", k->path, k->why,
                 c->mirror.dir, k->path);
        r = mirror_keep(&c->mirror, k->path);
    }
    return r;
}

/* What is held goes first, and for good: the next mount could not tell why it has to. */
int recover_move_kept(struct scan *s)
{
    int r = move_some(s, true);

    if (r == 0 && s->n_held) {
        r = mirror_sync(&s->cache->mirror);
        crash_point("unit-held");
    }
    return r < 0 ? r : move_some(s, false);
}
