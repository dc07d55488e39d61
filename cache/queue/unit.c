/* Publish units (docs/units.md): directories whose files come to the store as a whole. A unit
 * is in memory from the first name that is made in it until the store has all of it. What the
 * store lacks of it a walk over all that is owed finds out, now and then, and no count: a file
 * comes and goes in many ways. What is closed meanwhile is added, so that between two walks a
 * unit lacks too much rather than too little. */
#include "cache/cache.h"
#include "cache/queue/queue_impl.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/policy_fields.h"
#include "runs/routes.h"
#include "runs/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* A unit that can't become whole holds later ones no longer than this. */
#define OVERTAKEN_NS (60 * NS_PER_SEC)

/* A walk is followed by so many times the time it took. */
#define LOOK_PAUSES 10

struct unit {
    struct node *node; /* its directory; referenced */
    GUARDED_BY(cache_mutex) struct {
        struct unit *prev, *next; /* queue_own.units, in the order of `opened` */
        uint64_t opened;          /* in the order of closes and intentions */
        uint64_t settled;         /* the same; 0: it is open */
        int64_t settled_ns;       /* CLOCK_MONOTONIC */
        int64_t changed_ns; /* CLOCK_MONOTONIC; the last change, or when a writer was seen */
        uint64_t tail_seq;  /* of the file that was closed last of those it lacks; 0 none */
        size_t lacks;       /* files that the store is to have, and has not */
        bool lacks_names;   /* and directories, or names that a pending rename brings */
        int failing;        /* negative errno of one of them; 0 none */
        int64_t failing_ns; /* CLOCK_MONOTONIC; since when */
        const struct file *counted; /* last, in the walk; compared only */
        bool closed;                /* something in it was */
        bool declared;              /* a program said that it is complete */
        bool committed;             /* the same, whoever writes in it */
        bool hurried; /* somebody waits for what comes after what was closed in it */
        bool asked;   /* somebody wants all of it in the store now */
        bool cut;     /* an earlier mount left it open */
    };
};

/* ---- which unit ---- */

/* The directory that the entry is in is `e->parent`. */
static struct node *dir_above(const struct node *dir)
{
    return dir->links ? dir->links->parent : NULL;
}

/* The unit that the directory is, or is in. */
static struct unit *unit_over(struct node *dir) REQUIRES(cache_mutex)
{
    for (struct node *d = dir; d; d = dir_above(d))
        if (d->dir->unit)
            return d->dir->unit;
    return NULL;
}

struct unit *unit_of_entry_locked(const struct entry *e)
{
    return unit_over(e->parent);
}

/* What the policy of the directory's route says of units; NULL: there are none. */
static const struct policy *unit_policy(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, true);

    return p ? p : c->config.routes ? NULL : policy_preset("data");
}

/* So many bytes of the path are the root of its route. */
static size_t root_len(struct cache *c, const char *path)
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
            dir = dir_above(dir);
    }
    return dir;
}

/* The directory that is, or holds, what is published with this one, by its names; NULL: none,
 * as while a name of it waits for its rename. */
static struct node *unit_dir_of(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    auto_free char *path = dir->is_root ? strdup("") : node_path(dir);
    const struct policy *p = path ? unit_policy(c, path) : NULL;

    if (!p || path_is_staged_dir(c, path))
        return NULL;
    struct unit_at at = unit_of_path(p, root_len(c, path), path, true);
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

static struct unit *unit_new(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
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
    return u;
}

static void unit_end(struct cache *c, struct unit *u) REQUIRES(cache_mutex)
{
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

    if (u || dir->dir->no_unit == own->names_moved)
        return u;
    struct node *at = unit_dir_of(c, dir);
    if (!at) {
        dir->dir->no_unit = own->names_moved;
        return NULL;
    }
    if (!found && is_stored(at))
        return NULL;
    u = unit_new(c, at);
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
        if (dir_above(u->node) == dir && u->closed)
            u->declared = true;
    }
}

static const struct policy *policy_at(struct cache *c, struct node *dir)
{
    auto_free char *path = dir->is_root ? strdup("") : node_path(dir);

    return path ? unit_policy(c, path) : NULL;
}

/* Whether a unit waits for the file: not for what goes up while it is open, waits for its
 * rename, stays half since its writer was killed, or is being written again. */
static bool is_lacking(struct cache *c, const struct file *f) REQUIRES(cache_mutex)
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
    if (is_lacking(c, f))
        unit_changed(u, 1, f->unit_seq);
    const struct policy *p = e->parent == u->node ? policy_at(c, e->parent) : NULL;
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

/* Units that came to be part of another one. */
static void end_below(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
{
    struct unit *v, *after;

    DL_FOREACH_SAFE(c->queue->own->units, v, after)
    {
        if (v != u && node_is_below(v->node, u->node))
            unit_end(c, v);
    }
}

void unit_name_came_locked(struct cache *c, struct entry *e)
{
    auto_free char *path = entry_path(e);
    struct unit *u = unit_over(e->parent);
    const struct policy *p = u && u->node == e->parent ? policy_at(c, e->parent) : NULL;

    cache_assert_locked(c);
    if (p && unit_name_is_done(p, e->name))
        u->declared = u->closed = true;
    if (!u && path && unit_path_is_pointer(c, path))
        pointer_closed(c, e->parent);
}

void unit_dir_moved_locked(struct cache *c, struct node *dir, bool was_staged)
{
    auto_free char *path = node_path(dir);

    cache_assert_locked(c);
    c->queue->own->names_moved++;
    const struct policy *p = path ? unit_policy(c, path) : NULL;
    struct unit *outer = unit_over(dir_above(dir)), *own = dir->dir->unit;
    if (own && (outer || !path || path_is_staged_dir(c, path)))
        unit_end(c, own);
    if (!path || path_is_staged_dir(c, path))
        return;
    struct unit *u = unit_begin(c, dir, 0);
    /* Its old name was no place to publish it from: the new one says that it is complete. */
    bool units = p && unit_policy_groups(p);
    if (!u && units && was_staged && !is_stored(dir))
        u = unit_new(c, dir);
    if (!u)
        return;
    end_below(c, u);
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
        if (at && path_below(path, at) && u->closed)
            u->asked = true;
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

int unit_commit_locked(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    const struct policy *p = policy_at(c, dir);
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

/* Nor does one come that waits for its rename. */
static bool dir_comes(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(dir);

    return path && !path_is_staged_dir(c, path) && !has_lacking(c, dir);
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

static bool has_writer(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
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

/* ---- settling ---- */

static int64_t idle_ns(struct cache *c, const struct unit *u)
{
    const struct policy *p = policy_at(c, u->node);

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
    if (!u->committed && has_writer(c, u)) {
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
        if (is_lacking(c, f))
            lacks_file(f);
    }
    DL_FOREACH_SAFE(c->queue->own->units, u, after)
    {
        u->lacks_names = u->lacks <= 1 && (lacks_dir(c, u) || lacks_rename(c, u));
        settle_if_due(c, u, now, next_ns);
        if (is_gone(u) || (u->settled && !u->lacks && !u->lacks_names))
            unit_end(c, u);
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
    return u->failing                      ? "an upload fails, see `runfs status --files`"
           : u->settled                    ? "its files are on their way"
           : !u->closed && !u->lacks_names ? "nothing was closed in it"
           : has_writer(c, u)
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
    *ret_state = u ? state_name(u) : "whole";
    return u ? u->node : dir ? unit_dir_of(c, dir) : NULL;
}

/* ---- whose turn it is ---- */

/* Units of one directory become whole in the order in which they settled. */
static bool follows_another(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
{
    const struct unit *v;

    DL_FOREACH(c->queue->own->units, v)
    {
        bool before = v->settled && (!u->settled || v->settled < u->settled);
        bool overtaken = v->failing && clock_mono_ns() - v->failing_ns >= OVERTAKEN_NS;
        if (v != u && before && !overtaken && dir_above(v->node) == dir_above(u->node))
            return true;
    }
    return false;
}

static enum unit_turn turn_of_tail(struct cache *c, const struct file *f, const struct unit *u,
                                   bool no_room) REQUIRES(cache_mutex)
{
    bool wanted = f->debt.wanted || c->queue->drain || u->hurried;

    /* What a writer in it has closed last is not the last of it, and may be what keeps the
     * cache full. */
    if (!u->settled && !wanted)
        return no_room && has_writer(c, u) ? UNIT_TURN_GO : UNIT_TURN_WAIT;
    if (u->lacks > 1 || u->lacks_names)
        return wanted && u->failing ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
    return follows_another(c, u) ? UNIT_TURN_WAIT : UNIT_TURN_GO;
}

/* What was closed in it before is all that a waiter waits for. */
static bool lacks_nothing_closed(const struct unit *u) REQUIRES(cache_mutex)
{
    return !u->lacks && !u->lacks_names;
}

/* What comes before a pointer of that place in the order in this directory: units at or below
 * it, and files beside it, that were closed before. UNIT_TURN_FAIL: that fails. */
static enum unit_turn turn_of_pointer(struct cache *c, struct node *dir, uint64_t seq,
                                      const struct file *self, bool wanted)
    REQUIRES(cache_mutex)
{
    const struct unit *u;
    struct file *other;

    DL_FOREACH(c->queue->own->units, u)
    {
        if (u->closed && u->opened < seq && node_is_below(u->node, dir) &&
            !(wanted && lacks_nothing_closed(u)))
            return u->failing ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
    }
    OWED_FILES_FOREACH(c, other)
    {
        if (!other->debt.seq || other->debt.seq >= seq)
            break;
        for (const struct entry *o = other->node->links; o; o = o->next_link)
            if (o->parent == dir && o->dirty && other != self && other->unit_seq < seq &&
                is_lacking(c, other))
                return other->debt.error ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
    }
    return UNIT_TURN_GO;
}

/* The first file that fails in the unit; or (NULL) in the directory and the units below it. */
static const struct file *failing_file(struct cache *c, const struct unit *u, struct node *dir)
    REQUIRES(cache_mutex)
{
    const struct file *f;

    OWED_FILES_FOREACH(c, f)
    {
        for (const struct entry *e = f->node->links; e && f->debt.error; e = e->next_link)
            if (is_lacking(c, f) &&
                (u ? unit_over(e->parent) == u : node_is_below(e->parent, dir)))
                return f;
    }
    return NULL;
}

static int failure_of(const struct unit *u, const struct file *first) REQUIRES(cache_mutex)
{
    return first ? first->debt.error : u && u->failing ? u->failing : -EBUSY;
}

void unit_tell_failure_locked(struct cache *c, struct file *f, const struct entry *e)
{
    const struct unit *u = unit_over(e->parent);
    const struct file *first = failing_file(c, u, e->parent);
    auto_free char *path = node_path(first ? first->node : u ? u->node : e->parent);
    char why[512];

    cache_assert_locked(c);
    if (first == f)
        return;
    (void)snprintf(why, sizeof(why), "%s, which is published before it, fails: %s",
                   path ? path : "another name",
                   first && first->debt.why ? first->debt.why
                                            : strerror(-failure_of(u, first)));
    owed_failed_locked(c, &f->debt, failure_of(u, first), why);
    waitq_wake_locked(c, &f->upload_waiters, 0);
    progress_failed_locked(c);
}

bool unit_rename_waits_locked(struct cache *c, const struct intent *i)
{
    struct entry *e = NULL;

    cache_assert_locked(c);
    if (i->kind != INTENT_RENAME || !unit_path_is_pointer(c, i->to) || !tree_find(c, i->to, &e))
        return false;
    return e && !unit_over(e->parent) &&
           turn_of_pointer(c, e->parent, i->seq, NULL, true) != UNIT_TURN_GO;
}

void units_hurry_locked(struct cache *c)
{
    struct unit *u;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->own->units, u)
    {
        u->hurried = true;
    }
}

bool unit_is_stuck_locked(const struct file *f)
{
    const struct unit *u = f->node->links ? unit_over(f->node->links->parent) : NULL;

    return u && u->failing && f->unit_seq >= u->tail_seq;
}

enum unit_turn unit_turn_locked(struct cache *c, const struct file *f, const struct entry *e,
                                bool no_room)
{
    cache_assert_locked(c);
    if (f->log || f->staged || !f->debt.seq)
        return UNIT_TURN_GO;
    const struct unit *u = unit_over(e->parent);
    if (u)
        return f->unit_seq < u->tail_seq ? UNIT_TURN_GO : turn_of_tail(c, f, u, no_room);
    if (!f->pointer)
        return UNIT_TURN_GO;
    bool wanted = f->debt.wanted || c->queue->drain;
    enum unit_turn turn = turn_of_pointer(c, e->parent, f->unit_seq, f, wanted);
    return turn == UNIT_TURN_FAIL && !wanted ? UNIT_TURN_WAIT : turn;
}
