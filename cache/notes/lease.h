/* The lease of this cache in the state of one store (docs/units.md, 4): what tells other mounts
 * that the notes of this one count. It is rewritten each third of its ttl as long as somebody
 * needs it, and is lost when the ttl has passed since the last rewrite that worked began.
 *
 * A lease passes through: none (nobody needs it) > beating (no rewrite has worked yet) > held >
 * lost (what is sent now may find that others took the lease for ended) > held, in another
 * term > none. Who read its notes in one term has to read them again in the next.
 *
 * Its object stays when nobody needs it: a removal could land late, behind the next rewrite.
 *
 * It has a thread of its own, from the first need on: all workers of a pool may be busy with
 * uploads of minutes, and those of the store's questions with answers that take as long, while
 * the rewrite is due in a third of the ttl. Any thread may call what is here, with any lock
 * held: under the lock of a lease there is the queue of its pool only. */
#ifndef RUNFS_CACHE_NOTES_LEASE_H
#define RUNFS_CACHE_NOTES_LEASE_H

#include "backends/store.h"

struct lease;

enum lease_state { LEASE_NONE, LEASE_BEATING, LEASE_HELD, LEASE_LOST };

/* Borrowed for the call, but for `store` and what the hooks get. */
struct lease_config {
    struct store *store;
    const char *state;    /* as store_state_of() tells */
    const char *cache_id; /* notes.h */
    const char *session;  /* an ID, another one for each mount */
    const char *node;
    int64_t ttl_ns;
    int64_t (*now)(void); /* clock_boot_ns(), but for tests */
    /* Called by the lease's thread, which holds no lock; not while nobody needs it. `held`: it
     * is there, in this term; `lost`: it is not any more, and why the rewrites failed. */
    void (*held)(void *arg, uint64_t term);
    void (*lost)(void *arg, const char *why);
    void *arg;
};

/* NULL without memory. */
struct lease *lease_new(const struct lease_config *config);
/* Ends its thread, and what that has on its way. Accepts NULL. */
void lease_free(struct lease *l);

/* It is needed, once more. 0; or -EAGAIN: no thread can be started, and it is not. */
int lease_need(struct lease *l);
/* The reverse of one lease_need(). */
void lease_release(struct lease *l);

/* By its clock now. */
enum lease_state lease_state(struct lease *l);
/* The term in which it is held now; 0: it is not. */
uint64_t lease_term(struct lease *l);
bool lease_is_held(struct lease *l);
#define LEASE_WHY_SIZE 1024
/* 0; or the negative errno of the last rewrite, which failed, and why. */
int lease_failure(struct lease *l, char ret_why[LEASE_WHY_SIZE]);
/* The look before a request: lets the op end with the term of the lease, whose end moves on as
 * it is renewed. The op looks at it until lease_free(). 0; or -ESTALE with op->why: it is not
 * held now, or in another term. */
int lease_bind(struct lease *l, uint64_t term, struct op *op);

#endif
