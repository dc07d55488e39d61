/* The steps of units' notes at the store (docs/units.md, 3 and 5): each is a task, of which a
 * note has one at a time. queue/note.c says which is next. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/crash.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 8 /* steps at a time */

struct note_job {
    struct task task;
    struct cache *cache;
    struct unit_note *note; /* it runs, and so stays */
    enum note_step step;
    bool asks, again;
    struct seal_body seal; /* a copy of what the note says */
    struct lease *lease;   /* NULL: the step needs none */
    uint64_t term;         /* of it, in which the step is taken */
    int64_t ttl_ns;        /* of it */
    struct notes_at at;
};

static int record(struct note_job *j)
{
    const struct unit_note *n = j->note;
    const struct journal_unit row = {.key = n->at.key,
                                     .id = n->id,
                                     .how = (int)j->seal.how,
                                     .tail = j->seal.tail.name ? j->seal.tail.name : ""};
    int r = journal_set_unit(j->cache->journal, &row);

    crash_point(j->step == NOTE_STEP_PUT ? "note-recorded" : "note-tail-recorded");
    return r;
}

static int stop_at_first(void *arg, const char *name, const struct object *obj)
{
    (void)arg;
    (void)name;
    (void)obj;
    return -EEXIST;
}

/* Whether the store has something of the unit already: 1, 0 or a negative errno. */
static int is_edit(struct note_job *j, struct op *op)
{
    int r = store_list(j->cache->store, op, j->note->at.key, 0, stop_at_first, NULL);

    return r == -EEXIST ? 1 : r == -ENOENT ? 0 : r;
}

/* Notes of this cache that are there and in no row, as when the journal was lost. */
struct strays {
    struct note_job *job;
    struct op *op;
    struct note *v;
    size_t n, cap;
};

static int add_stray(void *arg, const struct note *note)
{
    struct strays *s = arg;
    bool own = strcmp(note->cache_id, s->job->cache->queue->cache_id) == 0;

    if (!own || (note->kind != NOTE_OPEN && note->kind != NOTE_LAST))
        return 0;
    if (array_grow(s->v, s->cap, s->n + 1))
        return op_fail(s->op, -ENOMEM, "out of memory");
    s->v[s->n++] = *note;
    return 0;
}

/* They go when the new note is there. */
static int remove_strays(struct strays *s)
{
    int r = 0;

    for (size_t i = 0; i < s->n && r == 0; i++)
        if (strcmp(s->v[i].id, s->job->note->id) != 0)
            r = notes_remove(&s->job->at, s->op, s->v[i].kind, s->v[i].cache_id, s->v[i].id);
    return r;
}

/* Of what an earlier mount left: whether it is an edit; a unit of which a note is there is
 * none. 1, 0 or a negative errno. */
static int look_before(struct note_job *j, struct op *op, struct strays *strays)
{
    int r = j->asks ? notes_list(&j->at, op, add_stray, strays) : 0;

    return r < 0 || !j->asks || strays->n ? r : is_edit(j, op);
}

static int put_note(struct note_job *j, struct op *op)
{
    int r = record(j);

    if (r < 0)
        return op_fail(op, r, "the cache's journal takes no note of %s: %s", j->note->at.key,
                       strerror(-r));
    const struct note_body body = {.node = j->cache->queue->node,
                                   .since_s = clock_real_ns() / NS_PER_SEC,
                                   .attempt = (char *)(uintptr_t) ""};
    r = notes_put(&j->at, op, NOTE_OPEN, j->cache->queue->cache_id, j->note->id, &body);
    crash_point("note-put");
    return r;
}

static int put_open(struct note_job *j, struct op *op)
{
    struct strays strays = {.job = j, .op = op};
    int r = look_before(j, op, &strays);

    if (r == 0)
        r = put_note(j, op);
    if (r == 0)
        r = remove_strays(&strays);
    if (r == 0 && (j->again || strays.n))
        r = note_look_again(j->cache, op, j->note, &j->at, j->ttl_ns);
    j->asks = j->asks && r != 0; /* what is there later is its own */
    free(strays.v);
    return r;
}

static int forget(struct note_job *j, struct op *op)
{
    int r = notes_remove(&j->at, op, NOTE_OPEN, j->cache->queue->cache_id, j->note->id);

    crash_point("note-removed");
    if (r == 0)
        r = journal_remove_unit(j->cache->journal, j->note->at.key, j->note->id);
    crash_point("note-forgotten");
    return r;
}

/* The seal says which tail the store has: what replaced it since was another unit. */
static int look_at_tail(struct note_job *j, struct op *op)
{
    auto_place struct place at = place_join(j->note->at, j->seal.tail.name);
    struct object obj = {0};

    if (!place_known(at))
        return op_fail(op, -ENOMEM, "out of memory");
    int r = store_stat(j->cache->store, op, at.key, &obj);
    if (r == 0) {
        (void)snprintf(j->seal.tail.etag, sizeof(j->seal.tail.etag), "%s", obj.etag);
        j->seal.tail.mtime_ns = obj.mtime_ns;
    }
    object_release(&obj);
    return r;
}

static int seal(struct note_job *j, struct op *op)
{
    int r = j->seal.tail.name ? look_at_tail(j, op) : -ENOENT;

    /* Somebody has removed it since: there is nothing to seal. */
    if (r == -ENOENT)
        return forget(j, op);
    if (r == 0)
        r = seal_put(&j->at, op, j->cache->queue->cache_id, &j->seal);
    crash_point("seal-put");
    if (r < 0)
        return r;
    r = forget(j, op);
    if (!refusal_is_one(r))
        return r;
    log_warn("the note of %s stays until a later mount may remove it, and nobody minds it "
             "beside the seal: %s",
             j->note->at.key, op->why);
    return 0;
}

/* Nothing of a unit is sent without the lease, by which others know that its writer lives. */
static int take_step(struct note_job *j, struct op *op)
{
    int r = notes_at_unit(j->cache->store, op, j->note->at.key, &j->at);

    if (r == 0 && j->lease)
        r = lease_bind(j->lease, j->term, op) < 0 ? -EAGAIN : 0;
    if (r < 0)
        return r;
    switch (j->step) {
    case NOTE_STEP_PUT:
        return put_open(j, op);
    case NOTE_STEP_NAME:
        return record(j);
    case NOTE_STEP_SEAL:
        return seal(j, op);
    case NOTE_STEP_REMOVE:
        return forget(j, op);
    case NOTE_STEP_UNSEAL:
        return seal_remove(&j->at, op, j->cache->queue->cache_id);
    case NOTE_STEP_NONE:
        break;
    }
    return 0;
}

static void job_free(struct note_job *j)
{
    seal_body_release(&j->seal);
    notes_at_release(&j->at);
    free(j);
}

static void run_step(struct task *task)
{
    struct note_job *j = container_of(task, struct note_job, task);
    struct cache *c = j->cache;
    struct op op;

    cache_op(c, &op);
    int r = take_step(j, &op);
    if (r < 0 && !atomic_load(&c->cancelled))
        log_warn("a note of the unit %s is not in the store as it should be, tried again: %s",
                 j->note->at.key, op.why);
    cache_lock(c);
    c->transfer->note_steps--;
    j->note->asks = j->asks;
    if (r == 1)
        note_is_of_edit_locked(c, j->note);
    else
        note_step_done_locked(c, j->note, j->step, j->term, r, op.why);
    cache_unlock(c);
    job_free(j);
}

static struct note_job *job_new(struct cache *c, struct unit_note *n) REQUIRES(cache_mutex)
{
    struct note_job *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    *j = (struct note_job){.task.run = run_step,
                           .cache = c,
                           .note = n,
                           .step = n->step,
                           .asks = n->asks,
                           .again = n->again,
                           .ttl_ns = lease_ttl_ns(c, n->volume),
                           .seal = {.how = n->how,
                                    .attempt = strdup(""),
                                    .files = n->files,
                                    .tail.name = n->tail ? strdup(n->tail) : NULL}};
    if (n->step == NOTE_STEP_PUT || n->step == NOTE_STEP_SEAL) {
        j->lease = n->lease;
        j->term = n->unit && n->step == NOTE_STEP_SEAL ? n->term : lease_term(n->lease);
    }
    if (j->seal.attempt && (j->seal.tail.name || !n->tail))
        return j;
    job_free(j);
    return NULL;
}

static bool start_note_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct unit_note *n = container_of(d, struct unit_note, debt);

    cache_assert_locked(c);
    if (c->transfer->note_steps == NOTES_MAX)
        return false;
    if (!note_is_due_locked(c, n, p->now_ns, p->next_ns) ||
        (n->step == NOTE_STEP_REMOVE && upload_runs_at_locked(c, n->at, true)))
        return true;
    struct note_job *j = job_new(c, n);
    if (!j)
        return false;
    debt_run(&n->debt, true);
    c->transfer->note_steps++;
    pool_submit(c->uploaders, &j->task);
    return true;
}

const struct starter note_starter = {DEBT_NOTE, NULL, start_note_locked, NULL};
