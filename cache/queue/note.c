/* What other mounts are told of the units that this one writes: the note `open`, while the
 * store has less than all of one, and the seal of what is whole (docs/units.md, 3 and 5). Which
 * step of that is owed is known here; transfer/ takes them. */
#include "cache/cache.h"
#include "cache/queue/unit.h"

#include "common/err.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/policy_fields.h"
#include "runs/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct unit_note *of_debt(struct debt *d)
{
    return d ? container_of(d, struct unit_note, debt) : NULL;
}

#define NOTES_FOREACH(c, n)                                                                    \
    for ((n) = of_debt((c)->queue->owed[DEBT_NOTE].first); (n); (n) = of_debt((n)->debt.next))

/* ---- the lease ---- */

static void lease_comes_or_goes(struct cache *c)
{
    cache_lock(c);
    scheduler_kick_locked(c);
    cache_unlock(c);
}

static void lease_held(void *arg, uint64_t term)
{
    (void)term;
    lease_comes_or_goes(arg);
}

static void lease_lost(void *arg, const char *why)
{
    log_warn("what is being written in units is published later: the lease of this mount in "
             "the state of the store was lost, as others may have noticed (%s)",
             why);
    lease_comes_or_goes(arg);
}

/* A store alone is number 0, of several the first is 1. */
int64_t lease_ttl_ns(struct cache *c, unsigned volume)
{
    return c->config.routes ? unit_lease_ttl_ns(c->config.routes, c->config.policies,
                                                volume ? volume - 1 : 0)
                            : policy_preset("data")->lock_ttl_ns;
}

struct lease *lease_at_locked(struct cache *c, const char *path)
{
    unsigned volume = path_volume(c, path, true);
    struct volume *v = &c->queue->volumes[volume];
    auto_free char *state = NULL;
    auto_free char *key = NULL;
    struct op op;

    if (v->lease)
        return v->lease;
    cache_op(c, &op);
    if (store_state_of(c->store, &op, path, true, &state, &key) < 0)
        return NULL;
    const struct lease_config config = {.store = c->store,
                                        .state = state,
                                        .cache_id = c->queue->cache_id,
                                        .session = c->queue->session,
                                        .node = c->queue->node,
                                        .ttl_ns = lease_ttl_ns(c, volume),
                                        .now = clock_boot_ns,
                                        .held = lease_held,
                                        .lost = lease_lost,
                                        .arg = c};
    v->lease = lease_new(&config);
    return v->lease;
}

/* ---- life ---- */

static void note_free(struct unit_note *n) REQUIRES(cache_mutex)
{
    debt_release(&n->debt);
    place_free(&n->at);
    free(n->tail);
    free(n);
}

static struct unit_note *note_new(struct cache *c, const char *path, const char *id,
                                  enum note_step step) REQUIRES(cache_mutex)
{
    struct lease *l = step == NOTE_STEP_UNSEAL ? NULL : lease_at_locked(c, path);
    struct unit_note *n = l || step == NOTE_STEP_UNSEAL ? calloc(1, sizeof(*n)) : NULL;

    if (!n)
        return NULL;
    *n = (struct unit_note){.debt.kind = DEBT_NOTE,
                            .at = place_dup(place_of_path(path)),
                            .volume = path_volume(c, path, true)};
    (void)snprintf(n->id, sizeof(n->id), "%s", id);
    if (!place_known(n->at) || (l && lease_need(l) < 0)) {
        note_free(n);
        return NULL;
    }
    n->lease = l;
    n->step = step;
    debts_add(&c->queue->owed[DEBT_NOTE], &n->debt);
    return n;
}

static void note_forget(struct unit_note *n) REQUIRES(cache_mutex)
{
    if (n->lease)
        lease_release(n->lease);
    debt_leave(&n->debt);
    note_free(n);
}

/* Whether the store of the path has a place for notes, and takes them. */
static bool takes_notes(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    auto_free char *state = NULL;
    auto_free char *key = NULL;
    struct op op;

    if (!c->store || c->queue->volumes[path_volume(c, path, true)].no_notes)
        return false;
    cache_op(c, &op);
    return store_state_of(c->store, &op, path, true, &state, &key) == 0;
}

/* One that an earlier mount left, and nobody took up yet. */
static struct unit_note *find_left(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    struct unit_note *n;

    NOTES_FOREACH(c, n)
    {
        if (n->left && place_same(n->at, place_of_path(path)))
            return n;
    }
    return NULL;
}

void note_begin_locked(struct cache *c, struct unit *u, bool found)
{
    auto_free char *path = u->node->is_root ? strdup("") : node_path(u->node);
    char id[NOTE_ID_SIZE];

    cache_assert_locked(c);
    if (!path || !takes_notes(c, path))
        return;
    struct unit_note *n = find_left(c, path);
    /* Of files that an earlier mount left nobody knows here whether they are a unit, or what
     * changed in one that the store had. */
    bool asks = found && !n;
    /* No two notes of a cache are called the same: what a lost request still does to one is no
     * matter to the next. */
    if (!n && session_id_draw(id) == 0)
        n = note_new(c, path, id, NOTE_STEP_PUT);
    if (!n)
        return;
    n->asks = asks;
    n->left = false;
    n->step = NOTE_STEP_PUT;
    n->unit = u;
    u->note = n;
}

void note_end_locked(struct cache *c, struct unit *u)
{
    struct unit_note *n = take_ptr(u->note);

    if (!n)
        return;
    n->unit = NULL;
    if (!n->sent && !n->debt.running) {
        note_forget(n);
        return;
    }
    n->step = NOTE_STEP_REMOVE;
    debt_set_due(&n->debt, 0);
    scheduler_kick_locked(c);
}

/* ---- what it holds back ---- */

bool note_lets_go_locked(const struct unit *u)
{
    const struct unit_note *n = u->note;

    return !n || (n->is_there && n->term == lease_term(n->lease));
}

struct lease *unit_lease_locked(struct cache *c, const char *path, uint64_t *ret_term)
{
    struct entry *e = NULL;
    struct node *n = tree_find(c, path, &e);
    const struct unit *u = !n ? NULL : unit_over(n->dir ? n : e->parent);

    cache_assert_locked(c);
    if (!u || !u->note)
        return NULL;
    *ret_term = u->note->term;
    return u->note->lease;
}

bool note_names_tail_locked(struct cache *c, struct unit *u, const char *path)
{
    struct unit_note *n = u->note;
    const char *tail = n ? path_below(place_path(n->at), path) : NULL;

    if (!tail || n->step == NOTE_STEP_PUT)
        return !n;
    if (n->tail && n->step == NOTE_STEP_NONE && strcmp(n->tail, tail) == 0)
        return true;
    /* A file with two names in the unit asks for both, and each would wait for the other. */
    if (n->debt.running || n->step == NOTE_STEP_NAME)
        return false;
    char *copy = strdup(tail);
    if (!copy)
        return false;
    free(n->tail);
    n->tail = copy;
    n->how = unit_how(u);
    n->step = NOTE_STEP_NAME;
    scheduler_kick_locked(c);
    return false;
}

/* ---- what is whole ---- */

/* Finds the file that was closed last in it, and counts them all, but for logs, which grow when
 * it is whole, too, and what the store is not to have: nobody could find that it is the tail.
 */
static void look_below(struct node *dir, size_t *files, struct entry **last)
    REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (e->node->dir) {
            look_below(e->node, files, last);
            continue;
        }
        if (e->dirty || (e->node->file && e->node->file->log))
            continue;
        ++*files;
        uint64_t seq = e->node->file ? e->node->file->unit_seq : 0;
        uint64_t before = *last && (*last)->node->file ? (*last)->node->file->unit_seq : 0;
        if (!*last || seq > before)
            *last = e;
    }
}

void note_seal_locked(struct cache *c, struct unit *u)
{
    struct unit_note *n = u->note;
    struct entry *last = NULL;
    size_t files = 0;

    if (n->debt.running || n->step == NOTE_STEP_SEAL || n->step == NOTE_STEP_PUT)
        return;
    look_below(u->node, &files, &last);
    auto_free char *path = last ? entry_path(last) : NULL;
    const char *tail = path ? path_below(place_path(n->at), path) : NULL;
    char *copy = tail ? strdup(tail) : NULL;
    if (last && !copy)
        return;
    free(n->tail);
    n->tail = copy;
    n->how = unit_how(u);
    n->files = files;
    n->step = NOTE_STEP_SEAL;
    scheduler_kick_locked(c);
}

void note_opens_again_locked(struct unit *u)
{
    struct unit_note *n = u->note;

    if (n && n->step == NOTE_STEP_SEAL && !n->debt.running)
        n->step = NOTE_STEP_NONE;
}

/* Another note of the unit than this one (NULL: one at all), in that step. */
static bool has_other(struct cache *c, struct place at, const struct unit_note *self,
                      bool (*is)(enum note_step step)) REQUIRES(cache_mutex)
{
    struct unit_note *n;

    NOTES_FOREACH(c, n)
    {
        if (n != self && is(n->step) && place_same(n->at, at))
            return true;
    }
    return false;
}

static bool unseals(enum note_step step)
{
    return step == NOTE_STEP_UNSEAL;
}

static bool is_any(enum note_step step)
{
    (void)step;
    return true;
}

/* What was made there since seals its own. */
void note_unseal_locked(struct cache *c, const char *path, bool dir)
{
    const struct policy *p = path_policy(c, path, dir);

    cache_assert_locked(c);
    if (!p && !c->config.routes)
        p = policy_preset("data");
    if (!p)
        return;
    struct unit_at at = unit_of_path(p, unit_root_len(c, path), path, dir);
    auto_free char *unit = at.kind == UNIT_DIR ? strndup(path, at.len) : NULL;
    const struct row_ask ask = {.sets = ROWS_ALL, .path = unit};
    if (unit && !tree_find(c, unit, NULL) && !row_touching_locked(c, &ask) &&
        takes_notes(c, unit) && !has_other(c, place_of_path(unit), NULL, is_any) &&
        note_new(c, unit, "", NOTE_STEP_UNSEAL))
        scheduler_kick_locked(c);
}

/* ---- its steps ---- */

/* Waiting would not help. */
static bool is_refusal(int err)
{
    return refusal_is_one(err) || err == -EOPNOTSUPP || err_is_no_space(err);
}

/* Its store takes no notes: the unit goes on without. One that it has by then goes: nobody else
 * would take it away. */
static void go_on_without(struct cache *c, struct unit_note *n, int err, const char *why)
    REQUIRES(cache_mutex)
{
    struct volume *v = &c->queue->volumes[n->volume];

    if (!err_is_no_space(err) && !v->no_notes) {
        v->no_notes = true;
        log_later(&c->log, LOG_LEVEL_WARN,
                  "other mounts can't be told which units are being written, and show them "
                  "before they are whole: %s",
                  why);
    }
    note_end_locked(c, n->unit);
}

/* Its store takes no seal: the unit is shown as one of a program that knows none. */
static void go_without_seal(struct cache *c, struct unit_note *n, const char *why)
    REQUIRES(cache_mutex)
{
    log_later(&c->log, LOG_LEVEL_WARN,
              "%s is in the store, without the seal by which others know that it is whole: %s",
              place_path(n->at), why);
    if (n->unit)
        unit_end(c, n->unit);
    else
        n->step = NOTE_STEP_REMOVE;
}

/* Without the lease nobody would believe the note. */
static bool has_lease(struct cache *c, struct unit_note *n) REQUIRES(cache_mutex)
{
    char why[LEASE_WHY_SIZE];

    if (lease_is_held(n->lease)) {
        debt_let_go(&n->debt);
        return true;
    }
    int err = lease_failure(n->lease, why);
    if (is_refusal(err) && n->step == NOTE_STEP_SEAL)
        go_without_seal(c, n, why);
    else if (is_refusal(err) && n->unit)
        go_on_without(c, n, err, why);
    else if (err)
        debt_hold_back(&n->debt, err, why);
    return false;
}

/* What it stands for is still there, or still comes. */
static bool rows_touch(struct cache *c, const struct unit_note *n) REQUIRES(cache_mutex)
{
    const struct row_ask ask = {.sets = ROWS_ALL, .path = place_path(n->at)};

    return row_touching_locked(c, &ask);
}

/* A put of it that is late would leave a note of nobody; a removal of a seal would take away
 * that of the next unit. */
static bool may_go(const struct unit_note *n, int64_t now, int64_t *next) REQUIRES(cache_mutex)
{
    if (n->doubt_ns > now)
        *next = n->doubt_ns < *next ? n->doubt_ns : *next;
    return n->doubt_ns <= now;
}

/* Others may have taken it for a note of a mount that is no more. */
static bool is_outdated(const struct unit_note *n) REQUIRES(cache_mutex)
{
    return n->unit && n->term != lease_term(n->lease) &&
           (n->step == NOTE_STEP_NONE || n->step == NOTE_STEP_NAME ||
            n->step == NOTE_STEP_SEAL);
}

bool note_is_due_locked(struct cache *c, struct unit_note *n, int64_t now, int64_t *next)
{
    cache_assert_locked(c);
    if (n->left)
        return false;
    if (is_outdated(n)) {
        n->is_there = false;
        n->again = true;
        n->step = NOTE_STEP_PUT;
    }
    switch (n->step) {
    case NOTE_STEP_NONE:
        return false;
    case NOTE_STEP_PUT:
        return !has_other(c, n->at, n, unseals) && has_lease(c, n);
    case NOTE_STEP_SEAL:
        return may_go(n, now, next) && has_lease(c, n);
    case NOTE_STEP_REMOVE:
        return !rows_touch(c, n) && may_go(n, now, next);
    case NOTE_STEP_UNSEAL:
        return may_go(n, now, next);
    case NOTE_STEP_NAME:
        break;
    }
    return true;
}

void note_is_of_edit_locked(struct cache *c, struct unit_note *n)
{
    cache_assert_locked(c);
    debt_run(&n->debt, false);
    if (n->unit)
        n->unit->note = NULL;
    note_forget(n);
    progress_locked(c);
}

static void step_done(struct cache *c, struct unit_note *n, enum note_step step, uint64_t term)
    REQUIRES(cache_mutex)
{
    debt_forgive(&n->debt);
    if (step == NOTE_STEP_PUT) {
        n->term = term;
        n->again = false;
    }
    n->is_there = step == NOTE_STEP_PUT || step == NOTE_STEP_NAME;
    if (n->step != step)
        return; /* its unit was removed or moved meanwhile */
    n->step = NOTE_STEP_NONE;
    if (n->is_there)
        return;
    struct unit *u = n->unit;
    note_forget(n);
    if (u) {
        u->note = NULL;
        unit_end(c, u);
    }
}

/* Trying again would not help. Whether something else did. */
static bool give_up(struct cache *c, struct unit_note *n, enum note_step step, int err,
                    const char *why) REQUIRES(cache_mutex)
{
    if (step == NOTE_STEP_UNSEAL || (step == NOTE_STEP_PUT && !n->unit && !n->sent))
        note_forget(n);
    else if (step == NOTE_STEP_PUT && n->step == step && n->unit)
        go_on_without(c, n, err, why);
    else if (step == NOTE_STEP_SEAL && n->step == step)
        go_without_seal(c, n, why);
    else
        return false;
    return true;
}

/* Whether a put there can take effect after nobody waits for its answer any more. */
static bool may_be_late(struct cache *c, const char *key)
{
    return store_dir_can(c->store, key, STORE_ORIGIN) &&
           !store_dir_can(c->store, key, STORE_PROMPT);
}

/* It may take effect all the same, later. */
static void step_failed(struct cache *c, struct unit_note *n, enum note_step step, int err,
                        const char *why) REQUIRES(cache_mutex)
{
    bool late = step == NOTE_STEP_PUT || step == NOTE_STEP_UNSEAL;

    if (late && !is_refusal(err) && may_be_late(c, n->at.key))
        n->doubt_ns = clock_mono_ns() + c->config.late_ns;
    owed_failed_locked(c, &n->debt, err, why);
}

void note_step_done_locked(struct cache *c, struct unit_note *n, enum note_step step,
                           uint64_t term, int err, const char *why)
{
    bool refused = is_refusal(err);

    cache_assert_locked(c);
    debt_run(&n->debt, false);
    n->sent = n->sent || (step == NOTE_STEP_PUT && !refused);
    if (err == 0)
        step_done(c, n, step, term);
    else if (!refused || !give_up(c, n, step, err, why))
        step_failed(c, n, step, err, why);
    if (err == 0)
        progress_locked(c);
    else
        progress_failed_locked(c);
}

/* ---- who waits for them ---- */

/* A removal that waits for rows ends with those, which a flush waits for itself, or leaves. A
 * unit that fails, or in which something is written again, is not on its way. */
static bool is_awaited(struct cache *c, const struct unit_note *n) REQUIRES(cache_mutex)
{
    struct unit *u = n->unit;

    if (!u)
        return n->step != NOTE_STEP_REMOVE || !rows_touch(c, n);
    return !unit_fails_locked(c, u) && (u->settled || (u->asked && !unit_has_writer(c, u)));
}

bool notes_are_awaited_locked(struct cache *c, const char *path, struct debt **ret)
{
    struct unit_note *n;

    cache_assert_locked(c);
    NOTES_FOREACH(c, n)
    {
        if (path_below(path, place_path(n->at)) && is_awaited(c, n)) {
            *ret = &n->debt;
            return true;
        }
    }
    return false;
}

/* ---- of an earlier mount ---- */

int notes_open(struct cache *c)
{
    struct queue *q = c->queue;
    int r = cache_id_open(&c->mirror, q->cache_id);

    (void)gethostname(q->node, sizeof(q->node) - 1);
    return r < 0 ? r : session_id_draw(q->session);
}

static int load_one(void *arg, const struct journal_unit *row) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    /* What has no place for notes now may have one again at a later mount: its row stays. */
    if ((*row->key && !path_key_ok(row->key, STORE_KEY_MAX)) || !note_is_id(row->id) ||
        !takes_notes(c, row->key))
        return 0;
    struct unit_note *n = note_new(c, row->key, row->id, NOTE_STEP_PUT);
    if (!n || (*row->tail && !(n->tail = strdup(row->tail))))
        return -ENOMEM;
    n->sent = n->again = true;
    /* Without a tail nobody knows whether the put was answered. */
    if (!n->tail && may_be_late(c, row->key))
        n->doubt_ns = clock_mono_ns() + c->config.late_ns;
    n->how = row->how == SEAL_DECLARED || row->how == SEAL_ASSUMED ? row->how : SEAL_CUT;
    n->left = true;
    return 0;
}

int notes_load(struct cache *c)
{
    return journal_each_unit(c->journal, load_one, c);
}

/* Whether a unit has taken up another note of that place: it is not whole, whatever its tail
 * was when it was another one. */
static bool is_written(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    struct unit_note *n;

    NOTES_FOREACH(c, n)
    {
        if (n->unit && place_same(n->at, at))
            return true;
    }
    return false;
}

void notes_found_locked(struct cache *c)
{
    struct unit_note *n;

    cache_assert_locked(c);
    NOTES_FOREACH(c, n)
    {
        if (n->left) {
            n->left = false;
            n->is_there = true;
            n->step = n->tail && !is_written(c, n->at) ? NOTE_STEP_SEAL : NOTE_STEP_REMOVE;
        }
    }
}

void notes_free(struct cache *c)
{
    struct unit_note *n;

    cache_assert_locked(c);
    while ((n = of_debt(c->queue->owed[DEBT_NOTE].first)))
        note_forget(n);
}
