/* The fault layer, for tests: fails, delays and cuts calls as scripted. It stands right above
 * the driver; nothing in the product assembles it. */
#ifndef RUNFS_BACKENDS_LAYERS_FAULT_H
#define RUNFS_BACKENDS_LAYERS_FAULT_H

#include "backends/layers/layer.h"

enum fault_when {
    FAULT_BEFORE, /* the call does not reach the store */
    FAULT_AFTER,  /* it takes effect, and its answer is lost */
    FAULT_CUT,    /* a read or a list breaks off after `after` bytes or names */
};

#define FAULT_ANY_KIND CALL_KINDS

struct fault {
    enum call_kind kind; /* or FAULT_ANY_KIND */
    unsigned first;      /* fails the first-th matching call, from 1 ... */
    unsigned count;      /* ... and this many in all; 0 stands for one */
    enum fault_when when;
    int err;                /* negative errno; 0: only the delay */
    uint64_t after;         /* FAULT_CUT: bytes or names */
    int64_t delay_ns;       /* waits that long first (a cancel or the deadline ends it) */
    int64_t retry_after_ns; /* the pause that the "server" names */
};

/* As the constructors of layers.h. */
struct store *layer_fault_new(struct store *next);
/* Replaces the script; calls are counted anew for each fault. At most 16 faults, copied. Any
 * thread. */
void layer_fault_script(struct store *fault_store, const struct fault *faults, size_t n);
/* Calls since the script was set, the failed ones included. */
unsigned layer_fault_calls(struct store *fault_store);
/* Failures made since the script was set. */
unsigned layer_fault_hits(struct store *fault_store);

#endif
