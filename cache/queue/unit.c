/* Publish units (docs/units.md): directories whose files come to the store as a whole. A unit
 * is in memory from the first name that is made in it until the store has all of it. What the
 * store lacks of it a walk over all that is owed finds out, now and then, and no count: a file
 * comes and goes in many ways. What is closed meanwhile is added, so that between two walks a
 * unit lacks too much rather than too little. */
#include "cache/queue/unit.h"
#include "cache/cache.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/policy_fields.h"
#include "runs/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- which unit ---- */

/* The directory that the entry is in is `e->parent`. */
struct node *unit_dir_above(const struct node *dir)
{
    return dir->links ? dir->links->parent : NULL;
}

/* The unit that the directory is, or is in. */
struct unit *unit_over(struct node *dir) REQUIRES(cache_mutex)
{
    for (struct node *d = dir; d; d = unit_dir_above(d))
        if (d->dir->unit)
            return d->dir->unit;
    return NULL;
}

/* What the policy of the directory's route says of units; NULL: there are none. */
static const struct policy *unit_policy(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, true);

    return p ? p : c->config.routes ? NULL : policy_preset("data");
}

/* So many bytes of the path are the root of its route. */
size_t unit_root_len(struct cache *c, const char *path)
{
    const struct route *route = path_route(c, path, true);
    size_t len = 0;

    for (size_t i = 0; route && i < route->path.n && path[len]; i++) {
        len += path[len] == '/';
        len += strcspn(path + len, "/");
    }
    return len;
}

/* The directory of which the first `len` bytes of its path are the name. */
static struct node *ancestor(struct node *dir, const char *path, size_t len)
{
    for (const char *rest = path + len; dir && *rest; rest += strcspn(rest, "/")) {
        rest += *rest == '/';
        if (*rest)
            dir = unit_dir_above(dir);
    }
    return dir;
}

struct node *unit_dir_named_locked(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    auto_free char *path = dir->is_root ? strdup("") : node_path(dir);
    const struct policy *p = path ? unit_policy(c, path) : NULL;

    if (!p || path_is_staged_dir(c, path))
        return NULL;
    struct unit_at at = unit_of_path(p, unit_root_len(c, path), path, true);
    return at.kind == UNIT_DIR ? ancestor(dir, path, at.len) : NULL;
}

/* ---- life ---- */

static bool is_stored(struct node *dir) REQUIRES(cache_mutex);

/* Of a directory that has nothing but its own object nothing that counts is stored. */
static bool name_is_stored(const struct entry *e) REQUIRES(cache_mutex)
{
    if (e->node->dir)
        return place_known(e->source) || is_stored(e->node);
    return e->may_exist || e->tried || etag_known(&e->etag) || place_known(e->source);
}

/* Whether the store may have something in it: what changes there is a change of a unit that
 * others see already, and each file goes by itself. */
static bool is_stored(struct node *dir) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (dir->dir->new_here)
        return false;
    if (!dir->dir->children)
        return !dir->dir->local_only;
    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (name_is_stored(e))
            return true;
    }
    return false;
}

static struct unit *unit_new(struct cache *c, struct node *dir, bool found)
    REQUIRES(cache_mutex)
{
    struct unit *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    *u = (struct unit){.node = dir};
    u->opened = seq_now_locked(c);
    u->changed_ns = clock_mono_ns();
    node_ref_locked(dir);
    dir->dir->unit = u;
    DL_APPEND(c->queue->own->units, u);
    note_begin_locked(c, u, found);
    return u;
}

void unit_end(struct cache *c, struct unit *u) REQUIRES(cache_mutex)
{
    note_end_locked(c, u);
    DL_DELETE(c->queue->own->units, u);
    u->node->dir->unit = NULL;
    node_unref_locked(c, u->node);
    free(u);
}

/* `found`: an earlier mount left a file in it, whose place that is; 0: none did. Without memory
 * it is none. */
static struct unit *unit_begin(struct cache *c, struct node *dir, uint64_t found)
    REQUIRES(cache_mutex)
{
    struct unit *u = unit_over(dir);
    struct queue_own *own = c->queue->own;

    if (u || dir->dir->no_unit == own->names_moved + 1)
        return u;
    struct node *at = unit_dir_named_locked(c, dir);
    if (!at) {
        dir->dir->no_unit = own->names_moved + 1;
        return NULL;
    }
    if (!found && is_stored(at))
        return NULL;
    u = unit_new(c, at, found != 0);
    if (u && found) {
        u->cut = true;
        u->opened = found;
    }
    return u;
}

void unit_grows_locked(struct cache *c, struct node *dir)
{
    struct unit *u = unit_begin(c, dir, 0);

    cache_assert_locked(c);
    if (u)
        u->changed_ns = clock_mono_ns();
}

bool unit_path_is_pointer(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);
    const char *name = strrchr(path, '/');

    if (!p && !c->config.routes)
        p = policy_preset("data");
    return p && unit_policy_groups(p) && unit_name_is_pointer(p, name ? name + 1 : path);
}

/* A file beside units says which of them counts: those are complete. */
static void pointer_closed(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct unit *u;

    DL_FOREACH(c->queue->own->units, u)
    {
        if (unit_dir_above(u->node) == dir && u->closed)
            u->declared = true;
    }
}

const struct policy *unit_policy_at(struct cache *c, struct node *dir)
{
    auto_free char *path = dir->is_root ? strdup("") : node_path(dir);

    return path ? unit_policy(c, path) : NULL;
}

/* Whether a unit waits for the file: not for what goes up while it is open, waits for its
 * rename, stays half since its writer was killed, or is being written again. */
bool unit_is_lacking(struct cache *c, const struct file *f) REQUIRES(cache_mutex)
{
    return f->debt.seq && !f->staged && !f->log && (!f->write_handles || f->debt.wanted) &&
           (f->short_write || !file_is_half_locked(c, f->node));
}

/* It is open, and `more` files of it, the last of which was closed then, are not in the store.
 */
static void unit_changed(struct unit *u, size_t more, uint64_t seq) REQUIRES(cache_mutex)
{
    u->changed_ns = clock_mono_ns();
    u->closed = true;
    u->asked = u->committed = u->hurried = false;
    u->settled = 0;
    u->lacks += more;
    u->tail_seq = seq > u->tail_seq ? seq : u->tail_seq;
}

static void name_closed(struct cache *c, const struct file *f, const struct entry *e,
                        uint64_t found) REQUIRES(cache_mutex)
{
    struct unit *u = f->log || f->staged ? NULL : unit_begin(c, e->parent, found);

    if (!u) {
        if (f->pointer)
            pointer_closed(c, e->parent);
        return;
    }
    if (unit_is_lacking(c, f))
        unit_changed(u, 1, f->unit_seq);
    const struct policy *p = e->parent == u->node ? unit_policy_at(c, e->parent) : NULL;
    if (p && unit_name_is_done(p, e->name))
        u->declared = true;
}

void unit_file_closed_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    for (const struct entry *e = f->node->links; e; e = e->next_link)
        if (e->dirty)
            name_closed(c, f, e, 0);
}

void unit_file_found_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    for (const struct entry *e = f->node->links; e; e = e->next_link)
        name_closed(c, f, e, f->debt.seq);
}

/* Units that came to be part of another one (`but`), or of what waits for its rename. */
static void end_below(struct cache *c, struct node *dir, const struct unit *but)
    REQUIRES(cache_mutex)
{
    struct unit *v, *after;

    DL_FOREACH_SAFE(c->queue->own->units, v, after)
    {
        if (v != but && node_is_below(v->node, dir))
            unit_end(c, v);
    }
}

void unit_name_came_locked(struct cache *c, struct entry *e)
{
    auto_free char *path = entry_path(e);
    struct unit *u = unit_over(e->parent);
    const struct policy *p = u && u->node == e->parent ? unit_policy_at(c, e->parent) : NULL;

    cache_assert_locked(c);
    if (p && unit_name_is_done(p, e->name))
        u->declared = u->closed = true;
    if (!u && path && unit_path_is_pointer(c, path))
        pointer_closed(c, e->parent);
}

/* Units that have another path now are others to those who look at the store. */
static void notes_follow(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct unit *u;

    DL_FOREACH(c->queue->own->units, u)
    {
        auto_free char *path =
            u->note && node_is_below(u->node, dir) ? node_path(u->node) : NULL;
        if (!path || place_same(u->note->at, place_of_path(path)))
            continue;
        note_end_locked(c, u);
        note_begin_locked(c, u, false);
    }
}

void unit_dir_moved_locked(struct cache *c, struct node *dir, bool was_staged)
{
    auto_free char *path = node_path(dir);

    cache_assert_locked(c);
    c->queue->own->names_moved++;
    const struct policy *p = path ? unit_policy(c, path) : NULL;
    struct unit *outer = unit_over(unit_dir_above(dir)), *own = dir->dir->unit;
    if (!path || path_is_staged_dir(c, path)) {
        end_below(c, dir, NULL);
        return;
    }
    if (own && outer)
        unit_end(c, own);
    struct unit *u = unit_begin(c, dir, 0);
    /* Its old name was no place to publish it from: the new one says that it is complete. */
    bool units = p && unit_policy_groups(p);
    if (!u && units && was_staged && !is_stored(dir))
        u = unit_new(c, dir, false);
    notes_follow(c, dir);
    if (!u)
        return;
    end_below(c, u->node, u);
    unit_changed(u, 0, 0); /* what it lacks is queued anew, each file by itself */
    u->declared = u->declared || (was_staged && u->node == dir);
}

void units_ask_locked(struct cache *c, const char *path)
{
    struct unit *u;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->own->units, u)
    {
        auto_free char *at = u->node->is_root ? strdup("") : node_path(u->node);
        if (!at || !path_below(path, at))
            continue;
        u->asked = u->asked || u->closed;
        if (u->note && u->note->debt.error)
            debt_set_due(&u->note->debt, 0);
    }
}

void unit_ask_locked(struct cache *c, struct node *dir)
{
    struct unit *u = dir->dir->unit;

    cache_assert_locked(c);
    if (!u || !u->closed || u->asked)
        return;
    u->asked = true;
    scheduler_kick_locked(c);
}

int64_t unit_idle_at_locked(struct cache *c, struct node *dir)
{
    const struct policy *p =
        unit_dir_named_locked(c, dir) == dir ? unit_policy_at(c, dir) : NULL;

    cache_assert_locked(c);
    return p && p->unit_idle_ns != POLICY_UNSET ? p->unit_idle_ns : 0;
}

int unit_commit_locked(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    const struct policy *p = unit_policy_at(c, dir);
    if (!p || !unit_policy_groups(p))
        return -EINVAL;
    if (dir->dir->unit)
        dir->dir->unit->closed = dir->dir->unit->declared = dir->dir->unit->committed = true;
    scheduler_kick_locked(c);
    return 0;
}

void units_free(struct cache *c)
{
    cache_assert_locked(c);
    while (c->queue->own->units)
        unit_end(c, c->queue->own->units);
}
