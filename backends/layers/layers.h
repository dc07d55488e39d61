/* The layers of a store: each is a store around the store `next`, which it owns from then on
 * and closes. All constructors return NULL without memory, and then `next` is still the
 * caller's. */
#ifndef RUNFS_BACKENDS_LAYERS_LAYERS_H
#define RUNFS_BACKENDS_LAYERS_LAYERS_H

#include "backends/store.h"

/* One debug line per call: what, key, outcome and duration. */
struct store *layer_trace_new(struct store *next);

/* How long to wait between attempts: a random time between half and the whole of a step, which
 * starts at first_ns, doubles, and stays at max_ns. */
struct backoff_policy {
    int64_t first_ns, max_ns;
    unsigned attempts;  /* of one call, the first included; 0 as many as the deadline allows */
    int64_t stalled_ns; /* without a success for so long the store is stalled; 0: 5 s */
};
extern const struct backoff_policy backoff_default;

/* Repeats a call that failed for a transient reason (err_is_transient()) until it succeeds, the
 * attempts or the deadline are over, or the caller cancels. retry.c says what it does about
 * answers that were lost. `policy` is copied; NULL takes the default. */
struct store *layer_retry_new(struct store *next, const struct backoff_policy *policy);

/* At most `max` (>= 1) requests at a time; the others wait their turn in order of arrival. A
 * request lasts while its sink or visit runs: these must not call the store. */
struct store *layer_limit_new(struct store *next, unsigned max);

/* Counts for store_get_stats(). */
struct store *layer_stats_new(struct store *next);

#endif
