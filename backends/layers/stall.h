/* Whether a store answers: since when it has not, while requests are under way or tried again,
 * and what it said last.
 *
 * There are two lanes, since a store may serve one and not the other: changes (uploads,
 * removals, renames), and the rest (downloads, listings, questions). A lane is stalled when for
 * some seconds no request in it succeeded and no byte of it moved. An answer like "not there"
 * is a success. A change that failed counts as tried again for as long as its caller may pause.
 * The bytes of an attempt count while it runs; after a failure they count only when they moved
 * for as long: a server that takes a megabyte and then refuses does not work. Any thread. */
#ifndef RUNFS_BACKENDS_LAYERS_STALL_H
#define RUNFS_BACKENDS_LAYERS_STALL_H

#include "backends/layers/layer.h"
#include "common/lock.h"

enum stall_lane { STALL_CHANGES, STALL_QUESTIONS, STALL_LANES };

/* One call on its way, attempts and the pauses between them; on its thread's stack. */
struct stall_call {
    struct stall_call *prev, *next; /* under the stall's lock */
    enum stall_lane lane;           /* constant, as what follows */
    bool slow;                      /* the server may work for long without a word */
    int64_t deadline_ns;
    atomic_llong began_ns; /* CLOCK_MONOTONIC; the attempt */
    atomic_llong moved_ns; /* the last of its bytes; 0: none yet */
    bool ours;             /* the attempt failed in the caller's source, sink or visit */
};

struct stall {
    struct mutex lock; /* guards `lane` and its lists */
    int64_t after_ns;  /* constant */
    struct {           /* under lock; times of CLOCK_MONOTONIC */
        struct stall_call *calls;
        int64_t good_ns;  /* the last success, or when the first call after a rest began */
        int64_t owing_ns; /* until then a change that failed counts as tried again; 0: none */
        int err;          /* of the last failure since the last success; 0: none */
        char why[sizeof(((struct op *)0)->why)];
    } lane[STALL_LANES];
};

/* stall_get() reports a stall after `after_ns`. */
void stall_init(struct stall *s, int64_t after_ns);
void stall_release(struct stall *s);

void stall_enter(struct stall *s, struct stall_call *call, const struct call *c);
/* With the call's result. */
void stall_leave(struct stall *s, struct stall_call *call, int64_t r);

/* An attempt begins, and ends with r and why. */
void stall_begin(struct stall_call *call);
void stall_end(struct stall *s, struct stall_call *call, int64_t r, const char *why);
/* Bytes of it moved. */
void stall_moved(struct stall_call *call);

/* Of the lane that is stalled for longer. */
void stall_get(struct stall *s, struct store_stall *ret);

#endif
