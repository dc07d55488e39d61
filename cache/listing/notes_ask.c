/* Questions for the notes of units that other mounts keep in the state of a store, and how long
 * the answers are believed (docs/units.md, 5): which directories have units with notes, one
 * request for all of a store; what the notes of such a directory are; and whether a seal that a
 * note's writer has put counts, which the tail says that the seal names.
 *
 * An answer goes: not asked > asked, and believed for a while > asked again, when somebody
 * needs one that is as young as what he was shown. One thread at a time asks a state, and owns
 * all that is known of it meanwhile. */
#include "cache/listing/listing_impl.h"

#include "cache/notes/notes.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Who waits for another's answer looks for it so often. */
#define LOOK_NS (2 * NS_PER_MS)

/* Names of one listing of a state; of more there is no end. */
#define NAMES_MAX 100000

/* The notes, or the seals, of all units in a directory, by their units' names. */
struct noted {
    struct note *v;
    size_t n, cap;
};

enum verdict { NOT_JUDGED, SHOWN, HIDDEN };

/* A directory that has units with notes. */
struct noted_dir {
    char name[NOTE_PARENT_SIZE];
    int64_t asked_ns; /* CLOCK_MONOTONIC; for its notes; 0 never */
    struct noted notes;
    enum verdict *verdicts; /* of each unit, where its first note is */
    struct noted seals;     /* if one of the notes may have some */
};

/* The state of a store. */
struct noted_state {
    struct noted_state *next;
    char *key; /* constant; STORE_STATE_DIR, or where a store over stores has it */
    bool renew GUARDED_BY(cache_mutex); /* nothing that is known is believed */
    bool taken GUARDED_BY(cache_mutex); /* somebody owns the rest: */
    int64_t asked_ns;                   /* CLOCK_MONOTONIC; for the directories; 0 never */
    int64_t failed_ns;                  /* the same; the last question did; 0: it did not */
    bool refused;                       /* the answer was that it may not be read */
    bool warned;
    struct noted_dir *dirs; /* by their names */
    size_t n;
};

/* ---- life ---- */

static void dir_release(struct noted_dir *d)
{
    free(d->notes.v);
    free(d->verdicts);
    free(d->seals.v);
}

static void dirs_release(struct noted_dir *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dir_release(&v[i]);
    free(v);
}

void noted_forget_locked(struct cache *c)
{
    struct noted_state *s, *next;

    cache_assert_locked(c);
    LL_FOREACH_SAFE(c->listing->noted, s, next)
    {
        dirs_release(s->dirs, s->n);
        free(s->key);
        free(s);
    }
    c->listing->noted = NULL;
}

void noted_renew_locked(struct cache *c)
{
    struct noted_state *s;

    cache_assert_locked(c);
    LL_FOREACH(c->listing->noted, s)
    {
        s->renew = true;
    }
}

static struct noted_state *state_find_locked(struct cache *c, const char *key)
    REQUIRES(cache_mutex)
{
    struct noted_state *s;

    LL_FOREACH(c->listing->noted, s)
    {
        if (strcmp(s->key, key) == 0)
            return s;
    }
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->key = strdup(key);
    if (!s->key) {
        free(s);
        return NULL;
    }
    LL_PREPEND(c->listing->noted, s);
    return s;
}

static void disbelieve(struct noted_state *s)
{
    s->asked_ns = 0;
    for (size_t i = 0; i < s->n; i++)
        s->dirs[i].asked_ns = 0;
}

/* It belongs to this thread until state_give(). */
static int state_take(struct cache *c, struct op *op, const char *key, struct noted_state **ret)
{
    int r = 0;

    for (bool taken = true; taken && r == 0;) {
        cache_lock(c);
        struct noted_state *s = state_find_locked(c, key);
        taken = s && s->taken;
        if (s)
            s->taken = true;
        bool renew = s && !taken && s->renew;
        if (renew)
            s->renew = false;
        cache_unlock(c);
        if (renew)
            disbelieve(s);
        if (!s)
            return op_fail(op, -ENOMEM, "out of memory");
        *ret = s;
        if (taken)
            r = op_sleep(op, LOOK_NS);
    }
    return r;
}

static void state_give(struct cache *c, struct noted_state *s)
{
    cache_lock(c);
    s->taken = false;
    cache_unlock(c);
}

/* ---- listings of a state ---- */

static int too_many(struct op *op, const char *what)
{
    return op_fail(op, -ENOMEM, "more than %d %s there: look at the store", NAMES_MAX, what);
}

struct dir_names {
    struct op *op;
    struct noted_dir *v;
    size_t n, cap;
};

static int take_dir(void *arg, const char *parent)
{
    struct dir_names *l = arg;

    if (l->n == NAMES_MAX)
        return too_many(l->op, "directories of units with notes");
    if (array_grow(l->v, l->cap, l->n + 1))
        return op_fail(l->op, -ENOMEM, "out of memory");
    l->v[l->n] = (struct noted_dir){0};
    (void)snprintf(l->v[l->n++].name, sizeof(l->v->name), "%s", parent);
    return 0;
}

struct note_names {
    struct op *op;
    struct noted *all;
};

static int take_note(void *arg, const struct note *note)
{
    const struct note_names *l = arg;
    struct noted *all = l->all;

    if (all->n == NAMES_MAX)
        return too_many(l->op, "notes or seals");
    if (array_grow(all->v, all->cap, all->n + 1))
        return op_fail(l->op, -ENOMEM, "out of memory");
    all->v[all->n++] = *note;
    return 0;
}

static int by_unit(const void *a, const void *b)
{
    return strcmp(((const struct note *)a)->unit, ((const struct note *)b)->unit);
}

static int by_dir(const void *a, const void *b)
{
    return strcmp(((const struct noted_dir *)a)->name, ((const struct noted_dir *)b)->name);
}

/* The first of the unit's, or NULL. */
static const struct note *first_of(const struct noted *all, const char *unit)
{
    size_t low = 0, high = all->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(all->v[mid].unit, unit) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < all->n && strcmp(all->v[low].unit, unit) == 0 ? &all->v[low] : NULL;
}

static const struct note *next_of(const struct noted *all, const struct note *n)
{
    const struct note *next = n + 1;

    return next < all->v + all->n && strcmp(next->unit, n->unit) == 0 ? next : NULL;
}

/* By `list`, notes_list() or seals_list(). */
static int list_all(const struct notes_at *at, struct op *op,
                    int (*list)(const struct notes_at *at, struct op *op, notes_visit visit,
                                void *arg),
                    struct noted *ret)
{
    struct note_names l = {.op = op, .all = ret};
    int r = list(at, op, take_note, &l);

    if (r == 0 && ret->n)
        qsort(ret->v, ret->n, sizeof(*ret->v), by_unit);
    return r;
}

/* It may not be read, and never will by asking again: nothing is hidden. */
static bool is_refusal(int r)
{
    return r == -EACCES || r == -EPERM || r == -EOPNOTSUPP;
}

static void note_refusal(struct cache *c, struct noted_state *s, int64_t asked_ns,
                         const char *why)
{
    dirs_release(s->dirs, s->n);
    s->dirs = NULL;
    s->n = 0;
    s->refused = true;
    s->asked_ns = asked_ns;
    if (!s->warned)
        log_warn(
            "%s: the notes of units can't be read, so that what other mounts have not "
            "finished is shown: %s; let its keys list and read the objects of runfs there, "
            "or say incomplete=show",
            c->store->url, why);
    s->warned = true;
}

/* What was known of a directory's notes goes on with it. */
static void keep_known(struct noted_state *s, struct noted_dir *dirs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct noted_dir *old =
            s->n ? bsearch(&dirs[i], s->dirs, s->n, sizeof(*dirs), by_dir) : NULL;
        if (old)
            SWAP(dirs[i], *old);
    }
}

/* Which directories have units with notes. */
static int ask_dirs(struct cache *c, struct op *op, struct noted_state *s)
{
    int64_t asked_ns = clock_mono_ns();
    struct dir_names l = {.op = op};

    int r = notes_list_parents(c->store, op, s->key, take_dir, &l);
    if (is_refusal(r))
        note_refusal(c, s, asked_ns, op->why);
    if (r < 0) {
        dirs_release(l.v, l.n);
        return is_refusal(r) ? 0 : r;
    }
    if (l.n)
        qsort(l.v, l.n, sizeof(*l.v), by_dir);
    keep_known(s, l.v, l.n);
    dirs_release(s->dirs, s->n);
    s->dirs = l.v;
    s->n = l.n;
    s->refused = false;
    s->asked_ns = asked_ns;
    return 0;
}

static bool is_of_writer(const struct note *n)
{
    return n->kind == NOTE_OPEN || n->kind == NOTE_LAST;
}

static bool have_writers(const struct noted *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        if (is_of_writer(&notes->v[i]))
            return true;
    return false;
}

/* The notes of the units in the directory, where that of `unit` is one. The seals are asked for
 * after them: of who has put one by then all is there. */
static int ask_notes(struct op *op, const struct notes_at *unit, struct noted_dir *d)
{
    const struct notes_at at = {unit->store, unit->state, unit->parent, NULL};
    struct noted_dir asked = {.asked_ns = clock_mono_ns()};

    memcpy(asked.name, d->name, sizeof(asked.name));
    int r = list_all(&at, op, notes_list, &asked.notes);
    if (r == 0 && have_writers(&asked.notes))
        r = list_all(&at, op, seals_list, &asked.seals);
    if (r == 0 && asked.notes.n) {
        asked.verdicts = calloc(asked.notes.n, sizeof(*asked.verdicts));
        r = asked.verdicts ? 0 : op_fail(op, -ENOMEM, "out of memory");
    }
    if (r == 0)
        SWAP(asked, *d);
    dir_release(&asked);
    return r;
}

/* ---- seals ---- */

/* Whether the store has the tail in the version that the seal of the unit there names. */
static int has_tail(struct cache *c, struct op *op, struct place unit,
                    const struct unit_tail *tail)
{
    auto_free char *key = tail->name && path_key_ok(tail->name, STORE_KEY_MAX)
                              ? path_join(unit.key, tail->name)
                              : NULL;
    struct object obj = {0};

    if (!key || strlen(key) >= STORE_KEY_MAX)
        return 0;
    int r = store_stat(c->store, op, key, &obj);
    if (r == -ENOENT || is_refusal(r))
        return 0;
    if (r < 0)
        return r;
    bool same =
        !obj.is_prefix && strcmp(obj.etag, tail->etag) == 0 && obj.mtime_ns == tail->mtime_ns;
    object_release(&obj);
    return same;
}

/* Whether the cache has a seal of the unit that counts. One that can't be read does not. */
static int has_seal(struct cache *c, struct op *op, const struct noted_dir *d,
                    const struct notes_at *at, struct place unit, const char *name,
                    const char *cache_id)
{
    const struct note *seal = first_of(&d->seals, name);
    struct seal_body body = {0};

    while (seal && strcmp(seal->cache_id, cache_id) != 0)
        seal = next_of(&d->seals, seal);
    int r = seal ? seal_read(at, op, cache_id, &body) : -ENOENT;
    if (r == 0)
        r = has_tail(c, op, unit, &body.tail);
    seal_body_release(&body);
    return r == -ENOENT || r == -EBADMSG || is_refusal(r) ? 0 : r;
}

/* ---- the answer ---- */

/* Whether the notes of the unit hide it: a removal of somebody else, or a part that somebody
 * else has not sealed. Who writes in it himself sees all, and so does who has written a part
 * that is there. */
static int judge(struct cache *c, struct op *op, const struct noted_dir *d,
                 const struct notes_at *at, struct place unit, const struct note *first)
{
    const char *own = c->queue->cache_id, *name = first->unit;
    bool gone = false, open = false;
    int r = 0;

    for (const struct note *n = first; n; n = next_of(&d->notes, n)) {
        bool mine = strcmp(n->cache_id, own) == 0;
        if (mine && is_of_writer(n))
            return 0;
        gone = gone || (!mine && n->kind == NOTE_GONE);
        if (mine || open || !is_of_writer(n))
            continue;
        r = has_seal(c, op, d, at, unit, name, n->cache_id);
        if (r < 0)
            return r;
        open = r == 0;
    }
    if (gone || !open)
        return gone;
    r = has_seal(c, op, d, at, unit, name, own);
    return r < 0 ? r : !r;
}

/* The verdict holds as long as the answer that it is from. */
static int judge_once(struct cache *c, struct op *op, const struct noted_dir *d,
                      const struct notes_at *at, struct place unit, const char *name)
{
    const struct note *first = first_of(&d->notes, name);

    if (!first)
        return 0;
    enum verdict *v = &d->verdicts[first - d->notes.v];
    if (*v == NOT_JUDGED) {
        int r = judge(c, op, d, at, unit, first);
        if (r < 0)
            return r;
        *v = r ? HIDDEN : SHOWN;
    }
    return *v == HIDDEN;
}

/* What is known of the directory that the unit is in, as young as wanted; NULL: nothing is
 * noted there. */
static int dir_of(struct cache *c, struct op *op, struct noted_state *s,
                  const struct notes_at *at, int64_t since_ns, struct noted_dir **ret)
{
    struct noted_dir wanted = {0};
    int r = 0;

    *ret = NULL;
    if (!s->asked_ns || s->asked_ns < since_ns)
        r = ask_dirs(c, op, s);
    if (r < 0 || !s->n)
        return r;
    if (note_parent_part(at->parent, wanted.name) < 0)
        return op_fail(op, -ENOMEM, "out of memory");
    struct noted_dir *d = bsearch(&wanted, s->dirs, s->n, sizeof(*d), by_dir);
    int64_t asked_ns = clock_mono_ns();
    if (d && d->asked_ns < since_ns)
        r = ask_notes(op, at, d);
    if (is_refusal(r)) {
        note_refusal(c, s, asked_ns, op->why);
        return 0;
    }
    *ret = d;
    return r;
}

static int hides(struct cache *c, struct op *op, struct noted_state *s,
                 const struct notes_at *at, struct place unit, int64_t since_ns)
{
    const int64_t believed_ns = clock_mono_ns() - listing_validity_ns(c);
    char name[NOTE_UNIT_SIZE];
    struct noted_dir *d;

    int r = dir_of(c, op, s, at, s->refused ? believed_ns : since_ns, &d);
    if (r < 0 || !d)
        return r;
    if (note_unit_part(at->name, name) < 0)
        return op_fail(op, -ENOMEM, "out of memory");
    return judge_once(c, op, d, at, unit, name);
}

/* `hasty`: nobody waits for a store that did not answer just before. */
static int ask(struct cache *c, struct op *op, struct place unit, int64_t since_ns, bool hasty)
{
    struct notes_at at;
    struct noted_state *s;

    int r = notes_at_unit(c->store, op, unit.key, &at);
    if (r < 0)
        return r == -EOPNOTSUPP ? 0 : r;
    r = state_take(c, op, at.state, &s);
    if (r == 0) {
        bool fails = s->failed_ns && clock_mono_ns() - s->failed_ns < OUTAGE_NS;
        r = hasty && fails ? 0 : hides(c, op, s, &at, unit, since_ns);
        if (!(hasty && fails))
            s->failed_ns = r < 0 ? clock_mono_ns() : 0;
        state_give(c, s);
    }
    notes_at_release(&at);
    return r;
}

int noted_hides(struct cache *c, struct op *op, struct place unit, int64_t since_ns)
{
    return ask(c, op, unit, since_ns, false);
}

int noted_hides_elsewhere(struct cache *c, struct op *op, struct place unit, int64_t since_ns)
{
    struct op own;

    cache_op_within(c, &own, OUTAGE_WAIT_NS);
    int r = ask(c, &own, unit, since_ns, true);
    if (r == -ENOMEM || r == -EINTR)
        return op_fail(op, r, "%s", own.why);
    return r < 0 ? 0 : r;
}

static int stop_at_first(void *arg, const char *name, const struct object *obj)
{
    (void)arg;
    (void)name;
    (void)obj;
    return 1;
}

bool noted_has_seals(struct cache *c, struct op *op, struct place dir)
{
    struct notes_at at;

    int r = notes_at_parent(c->store, op, dir.key, &at);
    if (r < 0)
        return r != -EOPNOTSUPP;
    auto_free char *key = path_join(at.state, SEALS_DIR);
    r = key ? store_list(c->store, op, key, 0, stop_at_first, NULL) : -ENOMEM;
    notes_at_release(&at);
    return r != 0 && r != -ENOENT && !is_refusal(r);
}
