/* What is owed, and how its attempts go; see debt.h. */
#include "cache/types/debt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the queue ---- */

/* Most come last: the place is looked for from the end. */
static struct debt *one_before(const struct debts *q, const struct debt *d)
{
    struct debt *before = q->last;

    while (d->seq && before && (!before->seq || before->seq > d->seq))
        before = before->prev;
    return before;
}

void debts_add(struct debts *q, struct debt *d)
{
    assert(!d->in);
    d->in = q;
    d->prev = one_before(q, d);
    d->next = d->prev ? d->prev->next : q->first;
    *(d->prev ? &d->prev->next : &q->first) = d;
    *(d->next ? &d->next->prev : &q->last) = d;
}

void debt_leave(struct debt *d)
{
    struct debts *q = d->in;

    if (!q)
        return;
    *(d->prev ? &d->prev->next : &q->first) = d->next;
    *(d->next ? &d->next->prev : &q->last) = d->prev;
    if (q->next == d)
        q->next = d->next;
    d->in = NULL;
    d->prev = d->next = NULL;
}

struct debt *debts_first(struct debts *q)
{
    q->next = q->first;
    return debts_next(q);
}

struct debt *debts_next(struct debts *q)
{
    struct debt *d = q->next;

    q->next = d ? d->next : NULL;
    return d;
}

bool debt_is_queued(const struct debt *d)
{
    return d->in != NULL;
}

void debt_set_place(struct debt *d, uint64_t seq)
{
    d->seq = seq;
}

/* ---- its time ---- */

void debt_set_due(struct debt *d, int64_t due_ns)
{
    d->due_ns = due_ns;
}

bool debt_is_due(const struct debt *d, int64_t now_ns, int64_t *next_ns)
{
    if (d->due_ns <= now_ns)
        return true;
    if (d->due_ns < *next_ns)
        *next_ns = d->due_ns;
    return false;
}

void debt_want(struct debt *d, bool wanted)
{
    d->wanted = wanted;
}

void debt_run(struct debt *d, bool running)
{
    d->running = running;
}

bool debt_waits_for_readers(struct debt *d, bool needed, int64_t now_ns, int64_t step_ns,
                            int64_t most_ns, int64_t *next_ns)
{
    if (!needed) {
        d->readers_ns = 0;
        return false;
    }
    if (!d->readers_ns)
        d->readers_ns = now_ns;
    if (now_ns - d->readers_ns >= most_ns)
        return false;
    d->due_ns = now_ns + step_ns;
    return !debt_is_due(d, now_ns, next_ns);
}

/* ---- how its attempts go ---- */

void debt_hold_back(struct debt *d, int err, const char *why)
{
    d->error = err;
    free(d->why);
    d->why = strdup(why);
}

void debt_failed(struct debt *d, int64_t now_ns, int err, const char *why, int64_t pause_ns)
{
    d->attempts++;
    d->failed_ns = now_ns;
    if (!d->failing_ns)
        d->failing_ns = now_ns;
    d->due_ns = now_ns + pause_ns;
    debt_hold_back(d, err, why);
}

void debt_set_refused(struct debt *d, int64_t refused_ns)
{
    d->refused_ns = refused_ns;
}

void debt_set_failing(struct debt *d, int64_t failing_ns)
{
    d->failing_ns = failing_ns;
}

void debt_got_on(struct debt *d)
{
    d->attempts = 0;
    d->failing_ns = 0;
}

void debt_let_go(struct debt *d)
{
    d->error = 0;
    free(d->why);
    d->why = NULL;
}

void debt_forgive(struct debt *d)
{
    debt_got_on(d);
    debt_let_go(d);
    d->refused_ns = d->readers_ns = 0;
}

void debt_release(struct debt *d)
{
    assert(!d->in);
    free(d->why);
    d->why = NULL;
}
