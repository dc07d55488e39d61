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
    uint64_t found_seq;      /* the last row of an earlier mount; constant after recovery */

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
        struct refusals refusals;
        struct tombstone *tombstones;
        struct row_link *by_path[3]; /* the rows of each set, by their paths */
        uint64_t last_lock;          /* the last that was given away */
        struct intent *renames;      /* by seq */
        struct unit *units;          /* that are not whole at the store, as they began */
        uint32_t names_moved;        /* moves of directories: see dir.no_unit */
        int64_t look_at_units_ns;    /* CLOCK_MONOTONIC; not before */
    };
};

/* ---- barrier.c ---- */
/* Whether the removal has to wait for one of the uploads that barrier_init_locked() found, or
 * for the file that left its name. An urgent one does not. */
bool barrier_holds_locked(struct cache *c, struct barrier *b, const struct intent *removal)
    REQUIRES(cache_mutex);

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

/* ---- order.c ---- */
/* The parts of its decisions that look for rows, for its test. Whether a rename with a lower
 * number reads or writes the path; one with a higher number waits for the removal. */
bool order_earlier_rename_touches(struct cache *c, const struct intent *self, const char *path)
    REQUIRES(cache_mutex);
bool order_later_rename_waits(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);
/* Whether a removal with a lower number is in the rename's way and has not failed. */
bool order_removal_in_the_way(struct cache *c, const struct intent *rename)
    REQUIRES(cache_mutex);
/* Whether an upload to the path, of a directory's marker or of a file, waits for a row. */
bool order_row_blocks_upload(struct cache *c, const char *path, bool dir) REQUIRES(cache_mutex);
/* Whether a rename is before the removal, or runs, at its name; one with a lower number takes
 * something below it. */
bool order_rename_comes_first(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);
bool order_removals_below(struct cache *c, const struct intent *self) REQUIRES(cache_mutex);
/* Whether a removal runs at the path, or below it; that of a directory there or above it. */
bool order_removal_runs_at(struct cache *c, const char *path, bool below) REQUIRES(cache_mutex);
bool order_rmdir_runs_above(struct cache *c, const char *path) REQUIRES(cache_mutex);

/* ---- origin.c ---- */
/* The cache ends. Does nothing before origins_open(). */
void origins_free(struct cache *c);

/* ---- removal.c ---- */
/* Whether the directory is about to be removed at the store. */
bool removal_pending(struct cache *c, const char *path) REQUIRES(cache_mutex);

/* ---- row_paths.c ---- */
#ifndef NDEBUG
/* How many rows were looked at so far: for tests. */
extern atomic_ullong rows_looked_at;
#endif
/* Somebody looks at the row (NULL: at none), which debug builds count. */
static inline struct intent *row_looked(struct intent *i)
{
#ifndef NDEBUG
    if (i)
        atomic_fetch_add_explicit(&rows_looked_at, 1, memory_order_relaxed);
#endif
    return i;
}
/* The row enters the order of the set's paths, or leaves it. */
void row_path_enters_locked(struct cache *c, struct intent *i, enum row_set set)
    REQUIRES(cache_mutex);
void row_path_leaves_locked(struct cache *c, struct intent *i, enum row_set set)
    REQUIRES(cache_mutex);
/* The oldest row of the sets with just this path, and at least this number. */
struct intent *row_at_from(struct queue *q, unsigned sets, const char *path, uint64_t seq)
    REQUIRES(cache_mutex);

/* ---- rows.c ---- */
#ifndef NDEBUG
/* Aborts unless the row is found by its paths, in its order. */
void row_check_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
#endif
/* The queue that the row stands in. */
struct queue *row_queue(const struct intent *i) REQUIRES(cache_mutex);
/* The row is in the queue, and found by its paths; or is there no more. */
void row_enters_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
void row_leaves_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* It stays, with its kind to be changed: it renames nothing any more, and removes. */
void row_only_removes_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);

/* ---- unit.c ---- */
/* Whether the file is held back behind one of a name that the store refuses. */
bool unit_waits_for_refused_locked(const struct file *f) REQUIRES(cache_mutex);
/* Whether a unit of the removal's scope, which does not hold what is removed, was begun before
 * it and is not whole. */
bool units_hold_removal_locked(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);
/* The same of a rename before it that brings a pointer of its scope. */
bool pointers_hold_removal_locked(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);

/* ---- scope.c ---- */
#ifndef NDEBUG
/* How many directories and rows were looked at for scopes so far: for tests. */
extern atomic_ullong scope_looks;
#endif
/* The row enters the queue: finds its scope, which may be as wide already as who made it says.
 */
void scope_begin_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* Adds a file of which the place is no lower than that of the one before. */
void scope_dirs_add_locked(struct scope_dirs *s, const struct file *f) REQUIRES(cache_mutex);
/* The place of the first of them in the row's scope; UINT64_MAX: none. `all_seq`: of the first
 * of all. */
uint64_t scope_dirs_first_locked(struct cache *c, const struct scope_dirs *s,
                                 const struct intent *i, uint64_t all_seq)
    REQUIRES(cache_mutex);
void scope_dirs_free(struct scope_dirs *s);

/* ---- tombstone.c ---- */
/* Frees all tombstones: the cache ends. */
void tombstones_free(struct cache *c) REQUIRES(cache_mutex);
/* An intention of this kind towards a place begins (+1) or ends (-1). */
void tombstone_count_locked(struct cache *c, struct place at, enum intent_kind kind, int by)
    REQUIRES(cache_mutex);

#endif
