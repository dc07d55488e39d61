/* What all requests to one store share when its server says "slow down": a pause during which
 * none is sent. It doubles while the server refuses everything, and shrinks when it answers
 * some. Any thread. */
#ifndef RUNFS_BACKENDS_LAYERS_THROTTLE_H
#define RUNFS_BACKENDS_LAYERS_THROTTLE_H

#include "common/lock.h"
#include "common/op.h"

struct throttle {
    struct mutex lock;        /* guards what is marked */
    int64_t first_ns, max_ns; /* constant: the first pause and the longest */
    int64_t step_ns;          /* under lock: the last pause; 0: none yet */
    int64_t until_ns;         /* under lock: CLOCK_MONOTONIC; nothing is sent before */
    bool answered;            /* under lock: since the last pause began */
};

void throttle_init(struct throttle *t, int64_t first_ns, int64_t max_ns);
void throttle_release(struct throttle *t);

/* A request was refused because there are too many; `wish_ns` is the pause the server named, or
 * 0. Of the refusals that arrive during one pause only the wishes count. */
void throttle_refused(struct throttle *t, int64_t wish_ns);
/* A request was answered. */
void throttle_answered(struct throttle *t);

/* Waits until the next request may be sent; threads that wait together go on at different
 * times. 0, or as op_check(); -ETIMEDOUT at once, with a text that keeps the one before, when
 * the deadline comes before the end of the pause. */
int throttle_wait(struct throttle *t, struct op *op);

#endif
