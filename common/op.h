/* One request on its way through the layers: how long it may take, who may stop it, and why it
 * failed. Lives on the requester's stack; one thread at a time, but `cancelled` may be set by
 * any thread. */
#ifndef RUNFS_COMMON_OP_H
#define RUNFS_COMMON_OP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define OP_FOREVER INT64_MAX
#define NS_PER_SEC INT64_C(1000000000)
#define NS_PER_MS  INT64_C(1000000)

/* What a call tells its requester beside the result. The interface that is called knows what
 * that is: backends/store.h. */
struct op_notes;

struct op {
    int64_t deadline_ns; /* CLOCK_MONOTONIC; OP_FOREVER waits for ever */
    /* The same by CLOCK_BOOTTIME, which goes on while the machine sleeps: from then on nothing
     * of it may be sent. It moves on while the lease is renewed. NULL: none. */
    const atomic_llong *lease_end_ns;
    const atomic_bool *cancelled; /* set by the requester, polled by drivers; may be NULL */
    /* Set by who asks several and has a good answer: from then on (CLOCK_MONOTONIC) the others
     * end as if they were cancelled; 0 not yet. May be NULL. */
    const atomic_llong *enough_ns;
    bool hasty; /* set by the requester: of several stores that are asked for one thing the
                   first that has it will do */
    int64_t retry_after_ns; /* set beside -EAGAIN when the server named a pause, else 0 */
    bool left_behind;       /* set by retrying: an attempt whose answer did not come may
                               still take effect, though the call has ended */
    struct op_notes *notes; /* the requester's; NULL: it wants none */
    char why[320];          /* written where a failure is seen, logged where answered */
};

/* CLOCK_MONOTONIC now, in ns. */
int64_t clock_mono_ns(void);
/* CLOCK_BOOTTIME now, in ns: as CLOCK_MONOTONIC, and it goes on while the machine sleeps. */
int64_t clock_boot_ns(void);
/* CLOCK_REALTIME now, in ns. */
int64_t clock_real_ns(void);

/* Starts an operation that may last `timeout_ns` from now (OP_FOREVER: no deadline). */
void op_init(struct op *op, int64_t timeout_ns);

/* 0, or -EINTR when cancelled, or -ETIMEDOUT when a deadline is over; fills `why` then. */
int op_check(struct op *op);

/* ns left until the first deadline, never negative; OP_FOREVER without one. */
int64_t op_left_ns(const struct op *op);

/* Sleeps at most `ns`, in slices, so that a cancel or the deadline ends it; as op_check(). */
int op_sleep(struct op *op, int64_t ns);

/* Writes the reason of a failure into op->why and returns `err` (a negative errno). The text
 * names the operation, the store and the path, and never a secret. */
int op_fail(struct op *op, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
