/* What the files of queue/ share. */
#ifndef RUNFS_CACHE_QUEUE_QUEUE_IMPL_H
#define RUNFS_CACHE_QUEUE_QUEUE_IMPL_H

#include "cache/queue/queue.h"

#include <stdatomic.h>

struct refusals {
    GUARDED_BY(cache_mutex) struct {
        bool probing;
    };
};

/* A place where the store has, or may have, something although the name is gone here. */
struct tombstone {
    UT_hash_handle hh; /* in queue_own.tombstones, by key */
    /* By whether it is a directory: each can have taken the place of the other since. */
    struct {
        int64_t
            done_ns; /* CLOCK_MONOTONIC; when the store lost it: younger listings are right */
        unsigned pending; /* intentions that will remove it, or move it away */
    } of[2] GUARDED_BY(cache_mutex);
    bool with_tree GUARDED_BY(cache_mutex); /* the last one moved all below it away, too */
    char key[];
};

/* What the queue keeps for itself. */
struct queue_own {
    struct origins *origins; /* constant; locked by itself, innermost */

    GUARDED_BY(cache_mutex) struct {
        /* what removals wait for beside their own; in order, apart */
        struct journal_wait *waits;
        size_t n_waits;
        int64_t doubt_until_ns; /* CLOCK_MONOTONIC; until then a put of a daemon that was killed
                                   may still arrive; 0: none was under way */
        /* names that its deletes and copies concerned; constant after recovery */
        struct doubt *doubt;
        struct doubt_dir *doubt_dirs;
        struct doubt_change *doubt_changes; /* removals and copies that may still arrive */
        struct doubt_put *doubt_puts;       /* uploads that may still arrive */
        uint64_t doubt_seq;                 /* the last of those intentions */
        struct refusals refusals;
        struct tombstone *tombstones;
        struct intent *by_name; /* the oldest row of each name */
        struct intent *renames; /* by seq */
    };
};

/* ---- barrier.c ---- */
/* Whether the removal has to wait for one of the uploads that barrier_init_locked() found, or
 * for the file that left its name. An urgent one does not. */
bool barrier_holds_locked(struct cache *c, const struct barrier *b,
                          const struct intent *removal) REQUIRES(cache_mutex);

/* ---- doubt.c ---- */
/* Until when (CLOCK_MONOTONIC) requests of a daemon that was killed may take effect; 0: none
 * was under way. */
int64_t doubt_until_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether an intention has to wait for what may still take effect. */
bool doubt_blocks_intent_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
/* Frees all that doubt.c keeps: the cache ends. */
void doubt_free(struct cache *c) REQUIRES(cache_mutex);

/* ---- intent.c ---- */
/* Whether such an intention takes away a directory, and nothing that is none. */
bool intent_kind_is_of_dir(enum intent_kind kind);

/* ---- lead.c ---- */
/* Whether what the store has there now, a directory or what is none, will be at `path` when all
 * intentions are done. */
bool intent_leads_to(struct cache *c, struct place from, bool is_dir, const char *path)
    REQUIRES(cache_mutex);

/* ---- origin.c ---- */
/* The cache ends. Does nothing before origins_open(). */
void origins_free(struct cache *c);

/* ---- removal.c ---- */
/* Whether the directory is about to be removed at the store. */
bool removal_pending(struct cache *c, const char *path) REQUIRES(cache_mutex);

/* ---- rows.c ---- */
#ifndef NDEBUG
/* How many rows were looked at so far: for tests. */
extern atomic_ullong rows_looked_at;
/* Aborts unless the row is found by its name, in its order. */
void row_check_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
#endif
/* The row is in the queue, and found by its name; or is there no more. */
void row_enters_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
void row_leaves_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* It stays, and renames nothing any more. */
void row_renames_no_more_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);

/* ---- tombstone.c ---- */
/* Frees all tombstones: the cache ends. */
void tombstones_free(struct cache *c) REQUIRES(cache_mutex);
/* An intention of this kind towards a place begins (+1) or ends (-1). */
void tombstone_count_locked(struct cache *c, struct place at, enum intent_kind kind, int by)
    REQUIRES(cache_mutex);

#endif
