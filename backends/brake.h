/* What all requests to one store share when its server says "slow down": a pause during which
 * none is sent. It doubles while the server refuses everything, and shrinks when it answers
 * some. Any thread. */
#ifndef RUNFS_BACKENDS_BRAKE_H
#define RUNFS_BACKENDS_BRAKE_H

#include "common/lock.h"
#include "common/op.h"

struct brake {
    struct mutex lock;
    int64_t first_ns, max_ns; /* constant: the first pause and the longest */
    int64_t step_ns;          /* under lock: the last pause; 0: none yet */
    int64_t until_ns;         /* under lock: CLOCK_MONOTONIC; nothing is sent before */
    bool answered;            /* under lock: since the last pause began */
};

void brake_init(struct brake *b, int64_t first_ns, int64_t max_ns);
void brake_release(struct brake *b);

/* A request was refused because there are too many; `wish_ns` is the pause the server named, or
 * 0. Of the refusals that arrive during one pause only the wishes count. */
void brake_pull(struct brake *b, int64_t wish_ns);
/* A request was answered. */
void brake_ease(struct brake *b);

/* Waits until the next request may be sent; who waits at the same time goes at different times.
 * 0, or as op_check(); -ETIMEDOUT at once, with a text that keeps the one before, when the
 * deadline comes before the end of the pause. */
int brake_wait(struct brake *b, struct op *op);

#endif
