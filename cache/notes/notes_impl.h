/* What the files of the room share, and its tests see: the judgements without clock and store.
 */
#ifndef RUNFS_CACHE_NOTES_NOTES_IMPL_H
#define RUNFS_CACHE_NOTES_NOTES_IMPL_H

#include "cache/notes/lease.h"
#include "cache/notes/others.h"
#include "runs/note.h"

/* ---- times.c: when a lease of ours is held, when one of theirs has ended. All by
 * CLOCK_BOOTTIME, in ns; one thread ---- */

struct lease_times {
    int64_t ttl_ns;
    bool beaten;      /* a rewrite has worked since it was needed */
    int64_t began_ns; /* when the last of these began */
    int64_t next_ns;  /* when the next is due */
    uint64_t term;    /* of now or, while it is not held, the last one; 0: none yet */
};

/* Nobody needed it before: what it is from now on has nothing to do with earlier. One that is
 * still held goes on. */
void lease_times_begin(struct lease_times *t, int64_t now_ns);
bool lease_times_hold(const struct lease_times *t, int64_t now_ns);
/* How long a rewrite that begins now may take: half of what is left, so that one that hangs
 * leaves time for another; all of it at the end. */
int64_t lease_times_patience(const struct lease_times *t, int64_t now_ns);
/* A rewrite that began then has worked. Whether another term has begun with that. */
bool lease_times_beaten(struct lease_times *t, int64_t began_ns, int64_t now_ns);
void lease_times_failed(struct lease_times *t, int64_t now_ns);

#define OTHER_VERSION_SIZE 160
#define OTHER_MARGIN_NS    (5 * NS_PER_SEC)

struct other_times {
    char version[OTHER_VERSION_SIZE]; /* "": nobody looked */
    int64_t ttl_ns;                   /* of that */
    int64_t since_ns; /* the answer of the first look that saw it; no gap came after that */
    int64_t asked_ns, told_ns; /* when the last look began, and had its answer */
};

/* A look saw this version. `own_ttl_ns` counts where it tells none (ttl_ns 0). */
void other_times_told(struct other_times *t, const char *version, int64_t ttl_ns,
                      int64_t own_ttl_ns, int64_t asked_ns, int64_t told_ns);
enum other_state other_times_state(const struct other_times *t, int64_t late_ns,
                                   int64_t now_ns);

/* ---- objects.c: a request to the state of a store ---- */

/* The key of `rest` in the state; heap. */
char *own_key(const char *state, const char *rest);
/* Puts the text over what is there. */
int own_put(struct store *s, struct op *op, const char *key, const char *text);
/* Reads an object: *ret is heap, *ret_len its length, or NOTE_BODY_MAX + 1 when it is longer
 * than what can be decoded. ret_etag may be NULL. */
int own_read(struct store *s, struct op *op, const char *key, char **ret, size_t *ret_len,
             char ret_etag[STORE_ETAG_MAX]);

/* ---- lease.c ---- */

/* The lease's thread looks at its clock at once: for a clock that waits for nobody. */
void lease_wake(struct lease *l);

#endif
