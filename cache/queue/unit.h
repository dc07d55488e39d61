/* What the files of the units share: unit.c has which units there are, unit_look.c what the
 * store lacks of each and when it settles, unit_turn.c whose turn it is, note.c what other
 * mounts are told. */
#ifndef RUNFS_CACHE_QUEUE_UNIT_H
#define RUNFS_CACHE_QUEUE_UNIT_H

#include "cache/queue/queue_impl.h"
#include "runs/unit.h"

struct unit {
    struct node *node; /* its directory; referenced */
    GUARDED_BY(cache_mutex) struct {
        struct unit *prev, *next; /* queue_own.units, in the order of `opened` */
        uint64_t opened;          /* in the order of closes and intentions */
        uint64_t settled;         /* the same; 0: it is open */
        int64_t settled_ns;       /* CLOCK_MONOTONIC */
        int64_t changed_ns; /* CLOCK_MONOTONIC; the last change, or when a writer was seen */
        uint64_t tail_seq;  /* of the file that was closed last of those it lacks; 0 none */
        size_t lacks;       /* files that the store is to have, and has not */
        bool lacks_names;   /* and directories, or names that a pending rename brings */
        int failing;        /* negative errno of one of them; 0 none */
        int64_t failing_ns; /* CLOCK_MONOTONIC; since when */
        const struct file *counted; /* last, in the walk; compared only */
        bool closed;                /* something in it was */
        bool declared;              /* a program said that it is complete */
        bool committed;             /* the same, whoever writes in it */
        bool hurried;           /* somebody waits for what comes after what was closed in it */
        bool asked;             /* somebody wants all of it in the store now */
        bool cut;               /* an earlier mount left it open */
        struct unit_note *note; /* what other mounts are told of it; NULL: nothing */
    };
};

/* As what it is sealed when it is whole. */
static inline enum seal_how unit_how(const struct unit *u) REQUIRES(cache_mutex)
{
    return u->declared ? SEAL_DECLARED : u->cut ? SEAL_CUT : SEAL_ASSUMED;
}

/* ---- unit.c ---- */
/* The directory that a directory is in; NULL: none. */
struct node *unit_dir_above(const struct node *dir);
/* The unit that the directory is, or is in. */
struct unit *unit_over(struct node *dir) REQUIRES(cache_mutex);
/* So many bytes of a directory's path are the root of its route. */
size_t unit_root_len(struct cache *c, const char *path);
/* What the policy of the directory's route says of units; NULL: there are none. The tree must
 * be held still. */
const struct policy *unit_policy_at(struct cache *c, struct node *dir);
/* Whether a unit waits for the file: not for what goes up while it is open, waits for its
 * rename, stays half since its writer was killed, or is being written again. */
bool unit_is_lacking(struct cache *c, const struct file *f) REQUIRES(cache_mutex);
/* It is forgotten: the store has it whole, or its directory is gone. */
void unit_end(struct cache *c, struct unit *u) REQUIRES(cache_mutex);

/* ---- note.c ---- */
/* A unit begins, which an earlier mount left (`found`), or not: nothing of it goes to the store
 * before its note is there. Without memory, and where the store takes no notes, it has none. */
void note_begin_locked(struct cache *c, struct unit *u, bool found) REQUIRES(cache_mutex);
/* The unit ends without a seal, or is another one by now: its note goes when nothing of it is
 * at that place, or comes there. Accepts one without a note. */
void note_end_locked(struct cache *c, struct unit *u) REQUIRES(cache_mutex);
/* Whether what is in the unit may go to the store, as far as its note says. */
bool note_lets_go_locked(const struct unit *u) REQUIRES(cache_mutex);
/* Whether the journal knows that the file at the path is the unit's tail; else it is told. */
bool note_names_tail_locked(struct cache *c, struct unit *u, const char *path)
    REQUIRES(cache_mutex);
/* The store has all of the unit, which has a note: it is sealed, and ends with that. */
void note_seal_locked(struct cache *c, struct unit *u) REQUIRES(cache_mutex);
/* It lacks something again. Accepts one without a note. */
void note_opens_again_locked(struct unit *u) REQUIRES(cache_mutex);

/* ---- unit_look.c ---- */
/* Whether something of it fails now. */
bool unit_fails_locked(struct cache *c, struct unit *u) REQUIRES(cache_mutex);
/* Whether a program has a file in it open for writing, other than a log. */
bool unit_has_writer(struct cache *c, const struct unit *u) REQUIRES(cache_mutex);

#endif
