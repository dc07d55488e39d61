/* Whose turn it is among the names of a unit, beside one, and among what is removed where units
 * are. */
#include "cache/queue/unit.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/policy_fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* A unit that can't become whole holds later ones no longer than this. */
#define OVERTAKEN_NS (60 * NS_PER_SEC)

/* ---- whose turn it is ---- */

/* Units of one directory become whole in the order in which they settled. */
static bool follows_another(struct cache *c, const struct unit *u) REQUIRES(cache_mutex)
{
    const struct unit *v;

    DL_FOREACH(c->queue->own->units, v)
    {
        bool before = v->settled && (!u->settled || v->settled < u->settled);
        bool overtaken = v->failing && clock_mono_ns() - v->failing_ns >= OVERTAKEN_NS;
        if (v != u && before && !overtaken &&
            unit_dir_above(v->node) == unit_dir_above(u->node))
            return true;
    }
    return false;
}

/* What comes of the attempt that is made now, as by a flush, counts, and not the last one. */
static bool has_failed(const struct file *f, int64_t now) REQUIRES(cache_mutex)
{
    return f->debt.error && (f->write_handles || (!f->debt.running && f->debt.due_ns > now));
}

/* Whether who waits for the unit is to be told that it fails. */
static bool is_told_of(struct cache *c, struct unit *u) REQUIRES(cache_mutex)
{
    int64_t now = clock_mono_ns();
    const struct file *f;

    if (!unit_fails_locked(c, u))
        return false;
    OWED_FILES_FOREACH(c, f)
    {
        if (!f->debt.error || has_failed(f, now) || !unit_is_lacking(c, f))
            continue;
        for (const struct entry *e = f->node->links; e; e = e->next_link)
            if (e->dirty && unit_over(e->parent) == u)
                return false;
    }
    return true;
}

static enum unit_turn turn_of_tail(struct cache *c, const struct file *f, struct unit *u,
                                   const struct entry *e, bool no_room) REQUIRES(cache_mutex)
{
    bool wanted = f->debt.wanted || c->queue->drain || u->hurried;

    /* What a writer in it has closed last is not the last of it, and may be what keeps the
     * cache full. */
    if (!u->settled && !wanted)
        return no_room && unit_has_writer(c, u) ? UNIT_TURN_GO : UNIT_TURN_WAIT;
    if (u->lacks > 1 || u->lacks_names)
        return wanted && is_told_of(c, u) ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
    if (follows_another(c, u))
        return UNIT_TURN_WAIT;
    auto_free char *path = u->settled && u->note ? entry_path(e) : NULL;
    return path && !note_names_tail_locked(c, u, path) ? UNIT_TURN_WAIT : UNIT_TURN_GO;
}

/* What was closed in it before is all that a waiter waits for: it is there, and others see it
 * if they see anything of the unit. */
static bool lacks_nothing_closed(const struct unit *u) REQUIRES(cache_mutex)
{
    return !u->lacks && !u->lacks_names && !(u->note && u->settled);
}

/* What comes before a pointer of that place in the order in this directory: units at or below
 * it, and files beside it, that were closed before. UNIT_TURN_FAIL: that fails. */
static enum unit_turn turn_of_pointer(struct cache *c, struct node *dir, uint64_t seq,
                                      const struct file *self, bool wanted)
    REQUIRES(cache_mutex)
{
    struct unit *u;
    struct file *other;

    DL_FOREACH(c->queue->own->units, u)
    {
        if (u->closed && u->opened < seq && node_is_below(u->node, dir) &&
            !(wanted && lacks_nothing_closed(u)))
            return is_told_of(c, u) ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
    }
    OWED_FILES_FOREACH(c, other)
    {
        if (!other->debt.seq || other->debt.seq >= seq)
            break;
        for (const struct entry *o = other->node->links; o; o = o->next_link)
            if (o->parent == dir && o->dirty && other != self && other->unit_seq < seq &&
                unit_is_lacking(c, other))
                return has_failed(other, clock_mono_ns()) ? UNIT_TURN_FAIL : UNIT_TURN_WAIT;
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
            if (unit_is_lacking(c, f) &&
                (u ? unit_over(e->parent) == u : node_is_below(e->parent, dir)))
                return f;
    }
    return NULL;
}

/* The note's, which comes before all files; else that of the file. */
static const struct debt *failing_debt(const struct unit *u, const struct file *first)
    REQUIRES(cache_mutex)
{
    if (u && !note_lets_go_locked(u))
        return &u->note->debt;
    return first ? &first->debt : NULL;
}

static int failure_of(const struct unit *u, const struct debt *d) REQUIRES(cache_mutex)
{
    return d ? d->error : u && u->failing ? u->failing : -EBUSY;
}

void unit_tell_failure_locked(struct cache *c, struct file *f, const struct entry *e)
{
    const struct unit *u = unit_over(e->parent);
    const struct file *first = failing_file(c, u, e->parent);
    const struct debt *d = failing_debt(u, first);
    bool of_file = first && d == &first->debt;
    auto_free char *path = node_path(of_file ? first->node : u ? u->node : e->parent);
    int err = failure_of(u, d);
    char why[512];

    cache_assert_locked(c);
    if (of_file && first == f)
        return;
    (void)snprintf(why, sizeof(why), "%s%s, which is published before it, fails: %s",
                   d && !of_file ? "the note of " : "", path ? path : "another name",
                   d && d->why ? d->why : strerror(-err));
    owed_failed_locked(c, &f->debt, err, why);
    waitq_wake_locked(c, &f->upload_waiters, 0);
    progress_failed_locked(c);
}

bool unit_rename_waits_locked(struct cache *c, const struct intent *i)
{
    struct entry *e = NULL;
    struct node *n = intent_is_rename(i) ? tree_find(c, i->to, &e) : NULL;

    cache_assert_locked(c);
    const struct unit *u = n && e ? unit_over(n->dir ? n : e->parent) : NULL;
    if (u && !note_lets_go_locked(u))
        return true;
    if (!n || i->kind != INTENT_RENAME || !unit_path_is_pointer(c, i->to))
        return false;
    return e && !u && turn_of_pointer(c, e->parent, i->seq, NULL, true) != UNIT_TURN_GO;
}

bool unit_lets_dir_go_locked(struct cache *c, struct node *dir)
{
    const struct unit *u = unit_over(dir);

    cache_assert_locked(c);
    return !u || note_lets_go_locked(u);
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

/* Whether what is removed is in a unit, and that in the same directory as the one at `at`. */
static bool is_of_sibling(struct cache *c, const char *at, const struct intent *removal)
{
    bool dir = intent_kind_is_of_dir(removal->kind);
    const struct policy *p = path_policy(c, removal->from, dir);

    if (!p && !c->config.routes)
        p = policy_preset("data");
    struct unit_at unit =
        p ? unit_of_path(p, unit_root_len(c, removal->from), removal->from, dir)
          : (struct unit_at){UNIT_NONE, 0};
    auto_free char *own = strndup(removal->from, unit.len);
    auto_free char *parent = own ? path_parent(own) : NULL;
    auto_free char *other = path_parent(at);
    return unit.kind == UNIT_DIR && parent && other && strcmp(parent, other) == 0;
}

/* One that fails for good may never be whole: only what it is to take the place of waits. */
static bool fails_for_good(const struct unit *u) REQUIRES(cache_mutex)
{
    return u->failing &&
           (refusal_is_one(u->failing) || clock_mono_ns() - u->failing_ns >= OVERTAKEN_NS);
}

/* What was stored under another name may be about to come as a pointer: until then the store's
 * may name what is to be removed. One that fails for good may never come. */
static bool brings_pointer(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct intent *removal = arg;
    const struct debt *d = &i->debt;
    bool for_good = d->error && (refusal_is_one(d->error) ||
                                 clock_mono_ns() - d->failing_ns >= OVERTAKEN_NS);

    return i->brings_pointer && i->seq < removal->seq && !for_good;
}

bool pointers_hold_removal_locked(struct cache *c, const struct intent *removal)
{
    auto_free char *scope =
        c->queue->pointer_renames ? strndup(removal->from, removal->scope) : NULL;
    const struct row_ask ask = {
        .sets = ROWS_COMING, .path = scope, .is = brings_pointer, .arg = (void *)removal};

    cache_assert_locked(c);
    return c->queue->pointer_renames && (!scope || row_below_locked(c, &ask));
}

bool units_hold_removal_locked(struct cache *c, const struct intent *removal)
{
    auto_free char *scope =
        c->queue->own->units ? strndup(removal->from, removal->scope) : NULL;
    const struct unit *u;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->own->units, u)
    {
        bool goes = (u->hurried || c->queue->drain) && lacks_nothing_closed(u);
        if (goes || u->opened >= removal->seq)
            continue;
        auto_free char *at = u->node->is_root ? strdup("") : node_path(u->node);
        if (!scope || !at)
            return true;
        if (path_below(scope, at) && !path_below(at, removal->from) &&
            (!fails_for_good(u) || is_of_sibling(c, at, removal)))
            return true;
    }
    return false;
}

/* The unit of which the file is the tail, or NULL. */
static const struct unit *unit_of_tail(const struct file *f) REQUIRES(cache_mutex)
{
    const struct unit *u = f->node->links ? unit_over(f->node->links->parent) : NULL;

    return u && f->unit_seq >= u->tail_seq ? u : NULL;
}

bool unit_is_stuck_locked(const struct file *f)
{
    const struct unit *u = unit_of_tail(f);

    return u && u->failing;
}

bool unit_waits_for_refused_locked(const struct file *f)
{
    const struct unit *u = unit_of_tail(f);

    return u && u->lacks > 1 && refusal_is_one(u->failing);
}

/* What comes of the attempt that is made now counts here, too. */
static bool note_has_failed(const struct unit_note *n) REQUIRES(cache_mutex)
{
    return n->debt.error && !n->debt.running && n->debt.due_ns > clock_mono_ns();
}

enum unit_turn unit_turn_locked(struct cache *c, const struct file *f, const struct entry *e,
                                bool no_room)
{
    cache_assert_locked(c);
    if (f->log || f->staged || !f->debt.seq)
        return UNIT_TURN_GO;
    struct unit *u = unit_over(e->parent);
    if (u && !note_lets_go_locked(u))
        return (f->debt.wanted || c->queue->drain) && note_has_failed(u->note) ? UNIT_TURN_FAIL
                                                                               : UNIT_TURN_WAIT;
    if (u)
        return f->unit_seq < u->tail_seq ? UNIT_TURN_GO : turn_of_tail(c, f, u, e, no_room);
    if (!f->pointer)
        return UNIT_TURN_GO;
    bool wanted = f->debt.wanted || c->queue->drain;
    enum unit_turn turn = turn_of_pointer(c, e->parent, f->unit_seq, f, wanted);
    return turn == UNIT_TURN_FAIL && !wanted ? UNIT_TURN_WAIT : turn;
}
