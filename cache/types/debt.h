/* Something that the store is owed, and how its attempts go: a file's upload, a directory's
 * marker, a row of the journal, an upload in parts that broke off, an attribute index. It is
 * part of what it stands for, whose lock guards it; only the functions here change it. No I/O.
 */
#ifndef RUNFS_CACHE_DEBT_H
#define RUNFS_CACHE_DEBT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum debt_kind {
    DEBT_FILE,
    DEBT_DIR,
    DEBT_ROW,
    DEBT_SESSION,
    DEBT_NOTE,
    DEBT_INDEX,
    DEBT_KINDS
};

/* All times are CLOCK_MONOTONIC. All zero: nothing is owed. */
struct debt {
    struct debts *in; /* the queue that it stands in; NULL: none */
    struct debt *prev, *next;
    /* Its place in the order of closes and intentions; 0: it has none, and comes after all that
     * have one. */
    uint64_t seq;
    int64_t due_ns;     /* not before */
    int64_t failing_ns; /* of the first of the attempts in a row that failed; 0 none did */
    int64_t failed_ns;  /* of the last of them */
    int64_t refused_ns; /* when the last was refused; 0 it was not */
    int64_t readers_ns; /* since when it waits for readers of what it takes away; 0 not */
    char *why;          /* owned; the last failure in words, or NULL */
    int error;          /* negative errno of it; 0: there is none to tell of */
    unsigned attempts;  /* in a row that failed */
    uint8_t kind;       /* enum debt_kind; constant */
    bool running;       /* it is on its way */
    bool wanted;        /* somebody waits for it: it does not settle, staging names too */
};

/* What is owed of one kind, in the order in which it comes. All zero: nothing. */
struct debts {
    struct debt *first, *last;
    struct debt *next; /* the one that debts_next() answers next */
};

/* ---- the queue ---- */
/* Puts it where its place is: after all that have no later one. It stands in no queue. */
void debts_add(struct debts *q, struct debt *d);
/* Takes it off its queue, if it stands in one. */
void debt_leave(struct debt *d);
/* Walks the queue, one walk at a time: the first, and the next ones until NULL. Any may leave
 * on the way. */
struct debt *debts_first(struct debts *q);
struct debt *debts_next(struct debts *q);
/* Whether it stands in one. */
bool debt_is_queued(const struct debt *d);
/* Gives it another place; one that is queued goes there with the next debts_add(). */
void debt_set_place(struct debt *d, uint64_t seq);

/* ---- its time ---- */
/* It is not begun before; 0: at once. */
void debt_set_due(struct debt *d, int64_t due_ns);
/* Whether its time has come; else lowers *next to that. */
bool debt_is_due(const struct debt *d, int64_t now_ns, int64_t *next_ns);
/* Somebody waits for it, or nobody does any more. */
void debt_want(struct debt *d, bool wanted);
/* It is on its way, or has ended. */
void debt_run(struct debt *d, bool running);
/* Waits for readers of what it takes away, in steps of `step_ns`, and at most `most_ns`: false,
 * when that is over, too. With `needed` false nobody reads it. */
bool debt_waits_for_readers(struct debt *d, bool needed, int64_t now_ns, int64_t step_ns,
                            int64_t most_ns, int64_t *next_ns);

/* ---- how its attempts go ---- */
/* An attempt failed: the next comes after the pause. Copies `why`. */
void debt_failed(struct debt *d, int64_t now_ns, int err, const char *why, int64_t pause_ns);
/* It is held back, by no attempt. Copies `why`. */
void debt_hold_back(struct debt *d, int err, const char *why);
/* It is not any more; how the attempts went is another matter. */
void debt_let_go(struct debt *d);
/* Whether the store refused it, as the last attempt went. */
void debt_set_refused(struct debt *d, int64_t refused_ns);
/* An attempt got on: what failed before counts no more. What it is held back for stays. */
void debt_got_on(struct debt *d);
/* The failures are over: nothing is to be told of them. */
void debt_forgive(struct debt *d);
/* What it goes to now has failed nothing yet. */
void debt_set_failing(struct debt *d, int64_t failing_ns);
/* Frees what it owns; it stands in no queue. */
void debt_release(struct debt *d);

#endif
