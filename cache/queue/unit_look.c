/* What the store lacks of each unit, when a unit settles and when it is whole, and what is told
 * of it. One walk over all that is owed finds it out. */
#include "cache/cache.h"
#include "cache/queue/unit.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

/* A walk is followed by so many times the time it took. */
#define LOOK_PAUSES 10

/* ---- what it lacks ---- */

/* One of the unit's debts fails. */
static void fails_with(struct unit *u, const struct debt *d) REQUIRES(cache_mutex)
{
    if (!d->error || u->failing)
        return;
    u->failing = d->error;
    u->failing_ns = d->failing_ns;
}

static void lacks_file(const struct file *f) REQUIRES(cache_mutex)
{
    for (const struct entry *e = f->node->links; e; e = e->next_link) {
        struct unit *u = e->dirty ? unit_over(e->parent) : NULL;
        if (!u || u->counted == f)
            continue;
        u->counted = f; /* another name of it is here, too */
        u->lacks++;
        u->tail_seq = f->unit_seq > u->tail_seq ? f->unit_seq : u->tail_seq;
        fails_with(u, &f->debt);
    }
}

/* A directory above a file that it lacks comes with that. */
static bool has_lacking(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct file *f;

    OWED_FILES_FOREACH(c, f)
    {
        if (node_is_below(f->node, dir))
            return true;
    }
    return false;
}

/* Nor does one come that waits for its rename, or for the removal of what had its name: until
 * that the store has the old one, and the removal may wait for other units, which come after
 * this one, or for a deletion lock. */
static bool dir_comes(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(dir);

    return path && !path_is_staged_dir(c, path) && !removal_pending(c, path) &&
           !has_lacking(c, dir);
}

static bool lacks_dir(struct cache *c, struct unit *u) REQUIRES(cache_mutex)
{
    for (struct debt *d = c->queue->owed[DEBT_DIR].first; d; d = d->next) {
        struct node *dir = debt_dir(d);
        if (dir == u->node || unit_over(dir) != u || !dir_comes(c, dir))
            continue;
        fails_with(u, d);
        return true;
    }
    return false;
}

static bool lacks_rename(struct cache *c, struct unit *u) REQUIRES(cache_mutex)
{
    auto_free char *path = u->node->is_root ? strdup("") : node_path(u->node);
    const struct row_ask ask = {.sets = ROWS_COMING, .path = path};
    const struct intent *i = path ? row_below_locked(c, &ask) : NULL;

    if (i)
        fails_with(u, &i->debt);
    return !path || i;
}

/* Also one that was never closed. */
static bool is_log(struct cache *c, const struct file *f) REQUIRES(cache_mutex)
{
    auto_free char *path = f->log ? NULL : node_path(f->node);

    return f->log || (path && path_is_log(c, path));
}

bool unit_has_writer(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
{
    const struct file *f;

    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        for (const struct entry *e = f->node->links; e; e = e->next_link)
            if (unit_over(e->parent) == u && !is_log(c, f))
                return true;
    }
    return false;
}

bool unit_fails_locked(struct cache *c, struct unit *u)
{
    const struct file *f;

    cache_assert_locked(c);
    if (!u->failing)
        return false;
    u->failing = 0; /* as the last walk found it */
    OWED_FILES_FOREACH(c, f)
    {
        for (const struct entry *e = f->node->links; e && f->debt.error; e = e->next_link)
            if (e->dirty && unit_over(e->parent) == u && unit_is_lacking(c, f))
                fails_with(u, &f->debt);
    }
    if (!u->failing)
        (void)(lacks_dir(c, u) || lacks_rename(c, u));
    return u->failing;
}

/* ---- settling ---- */

static int64_t idle_ns(struct cache *c, const struct unit *u)
{
    const struct policy *p = unit_policy_at(c, u->node);

    return p && p->unit_idle_ns != POLICY_UNSET ? p->unit_idle_ns : 0;
}

static void settle(struct cache *c, struct unit *u, int64_t now) REQUIRES(cache_mutex)
{
    u->settled = seq_next_locked(c);
    u->settled_ns = now;
}

/* A directory in which nothing is closed is none for longer: the next file in it begins it. */
static void settle_if_due(struct cache *c, struct unit *u, int64_t now, int64_t *next_ns)
    REQUIRES(cache_mutex)
{
    if (u->settled)
        return;
    if (!u->committed && unit_has_writer(c, u)) {
        u->changed_ns = now;
        return;
    }
    int64_t due =
        u->declared || u->asked || c->queue->drain ? now : u->changed_ns + idle_ns(c, u);
    if (now >= due)
        settle(c, u, now);
    else if (due < *next_ns)
        *next_ns = due;
}

static bool is_gone(const struct unit *u) REQUIRES(cache_mutex)
{
    return !u->node->is_root && (!u->node->links || (u->node->flags & NODE_REMOVED));
}

static void look(struct cache *c, int64_t now, int64_t *next_ns) REQUIRES(cache_mutex)
{
    struct unit *u, *after;
    struct file *f;

    DL_FOREACH(c->queue->own->units, u)
    {
        u->lacks = 0;
        u->tail_seq = 0;
        u->failing = 0;
        u->counted = NULL;
    }
    OWED_FILES_FOREACH(c, f)
    {
        if (unit_is_lacking(c, f))
            lacks_file(f);
    }
    DL_FOREACH_SAFE(c->queue->own->units, u, after)
    {
        u->lacks_names = u->lacks <= 1 && (lacks_dir(c, u) || lacks_rename(c, u));
        settle_if_due(c, u, now, next_ns);
        bool whole = u->settled && !u->lacks && !u->lacks_names;
        if (is_gone(u) || (whole && !u->note))
            unit_end(c, u);
        else if (whole)
            note_seal_locked(c, u);
        else
            note_opens_again_locked(u);
    }
}

void units_look_locked(struct cache *c, int64_t *next_ns)
{
    struct queue_own *own = c->queue->own;
    int64_t now = clock_mono_ns();

    cache_assert_locked(c);
    if (!own->units)
        return;
    if (now >= own->look_at_units_ns) {
        look(c, now, next_ns);
        int64_t ended = clock_mono_ns();
        own->look_at_units_ns = ended + (ended - now) * LOOK_PAUSES;
    } else if (own->look_at_units_ns < *next_ns) {
        *next_ns = own->look_at_units_ns;
    }
}

/* ---- what is told ---- */

static const char *state_name(const struct unit *u) REQUIRES(cache_mutex)
{
    return u->failing ? "failed" : u->settled ? "settled" : u->cut ? "cut" : "open";
}

static const char *waits_for(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
{
    return u->failing ? "an upload fails, see `runfs status --files`"
           : u->note && u->note->debt.error == -ESTALE
               ? "somebody removed a part of it that is not here any more, see the log"
           : u->note && u->note->debt.error
               ? "the state of its store takes no note of it, see the log"
           : u->settled && !u->lacks && u->note ? "its seal is on its way"
           : u->settled                         ? "its files are on their way"
           : !u->closed && !u->lacks_names      ? "nothing was closed in it"
           : unit_has_writer(c, u)
               ? "a program writes in it: its close, or `runfs commit`"
               : "nothing more to be closed in it for unit_idle, or `runfs commit`";
}

void units_each_locked(struct cache *c, const char *path,
                       void (*visit)(void *arg, const struct cache_unit *u), void *arg)
{
    int64_t now = clock_mono_ns(), next_ns = now;
    const struct unit *u;

    cache_assert_locked(c);
    look(c, now, &next_ns);
    DL_FOREACH(c->queue->own->units, u)
    {
        auto_free char *at = u->node->is_root ? strdup("") : node_path(u->node);
        const struct cache_unit told = {.path = at,
                                        .state = state_name(u),
                                        .declared = u->declared,
                                        .lacks = u->lacks,
                                        .idle_ns = now - u->changed_ns,
                                        .why = waits_for(c, u)};
        if (at && path_below(path, at))
            visit(arg, &told);
    }
}

struct node *unit_dir_of_locked(struct cache *c, struct node *n, const char **ret_state)
{
    struct node *dir = n->dir ? n : n->links ? n->links->parent : NULL;
    const struct unit *u = dir ? unit_over(dir) : NULL;

    cache_assert_locked(c);
    struct node *at = u ? u->node : dir ? unit_dir_named_locked(c, dir) : NULL;
    /* What changed since it was whole goes by itself, and is not there yet. */
    *ret_state = u ? state_name(u) : at && has_lacking(c, at) ? "open" : "whole";
    return at;
}
