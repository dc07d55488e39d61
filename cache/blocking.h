/* Calls that block until the store has answered: they wait as a parked request would. */
#ifndef RUNFS_CACHE_BLOCKING_H
#define RUNFS_CACHE_BLOCKING_H

#include "cache/mount.h"

#define TICK_NS (200 * NS_PER_MS)

/* ---- blocking ---- */

/* Whom a transfer tells its progress, also while nothing comes. */
struct listener {
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* NULL: nobody */
    void *arg;
    uint64_t done, total;
    int64_t told_ns;
};

struct blocking {
    struct waiter w;
    struct cache *cache;
    struct listener *listener; /* may be NULL */
    bool woken;
    int err;
};

/* Calls `step` until it neither parks nor fails. */
#define BLOCK(b, op, r, step)                                                                  \
    do {                                                                                       \
        (r) = (step);                                                                          \
        if ((r) != CACHE_PARKED)                                                               \
            break;                                                                             \
        (r) = blocking_wait(&(b), (op));                                                       \
    } while ((r) == 0)

/* ---- blocking.c ---- */
void blocking_init(struct blocking *b, struct cache *c, struct listener *listener);
void blocking_tell(struct listener *l);
/* Waits for a parked call; 0 to make it again, else its errno or the deadline's. */
int blocking_wait(struct blocking *b, struct op *op);
/* How long to pause after a look at what is awaited that took so long: looks take a part of the
 * processor and of the lock that does not grow with what there is. At least so long. */
int64_t blocking_pause_ns(int64_t took_ns, int64_t least_ns);
int blocking_walk(struct cache *c, const char *path, struct op *op, struct listener *listener,
                  struct node **ret);

/* ---- flush_past.c ---- */
/* Looks at the files below the path that may have changed unnoticed: one that has owes an
 * upload after this. 0 or a negative errno. */
int flush_look_past(struct cache *c, const char *path) EXCLUDES(cache_mutex);

/* ---- stored.c ---- */
/* Whether a flush has something to do for the node; lock held. */
bool node_owes(const struct node *n) REQUIRES(cache_mutex);
/* What the store lacks of the name at the path, a constant; NULL: nothing. A rename that is
 * pending, here or of a directory above, has not moved it yet, and one more name of a file has
 * to go up, too. */
const char *stored_name_owed_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);

#endif
