/* The leases of other caches in the state of one store, as this one judges them (docs/units.md,
 * 4). No clock is compared with another's: a lease has ended for who saw one version of it, in
 * looks at most a third of its ttl apart, for ttl + late_window + 5 s of his own clock. One
 * that is missing, and one that can't be read, counts as a version; its ttl is then the last
 * that was read of it, and at least that of this cache.
 *
 * Its lock is a leaf. Any thread. */
#ifndef RUNFS_CACHE_NOTES_OTHERS_H
#define RUNFS_CACHE_NOTES_OTHERS_H

#include "backends/store.h"

struct others;

enum other_state {
    OTHER_UNKNOWN, /* nobody looked, or it is too long ago */
    OTHER_LIVES,   /* as far as one can tell by now */
    OTHER_ENDED,
};

/* Borrowed for the call, but for `store`. */
struct others_config {
    struct store *store;
    const char *state;    /* as store_state_of() tells */
    int64_t ttl_ns;       /* of this cache's lease */
    int64_t late_ns;      /* late_window */
    int64_t (*now)(void); /* clock_boot_ns(), but for tests */
};

/* NULL without memory. */
struct others *others_new(const struct others_config *config);
/* Nobody looks any more. Accepts NULL. */
void others_free(struct others *o);

/* From now on others_look() looks at the lease of the cache, until as many others_unwatch().
 * 0 or -ENOMEM. */
int others_watch(struct others *o, const char *cache_id);
void others_unwatch(struct others *o, const char *cache_id);
enum other_state others_state(struct others *o, const char *cache_id);

/* When others_look() has something to do, by the clock of the config; INT64_MAX: nothing is
 * watched. */
int64_t others_next_ns(struct others *o);
/* Looks at each lease that is due: one request each, which ends within an eighth of its ttl.
 * One that fails is no look. Blocks; one thread at a time. `cancelled` may be NULL. */
void others_look(struct others *o, const atomic_bool *cancelled);

#endif
