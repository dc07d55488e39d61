/* What the files of a flush share. */
#ifndef RUNFS_CACHE_FLUSH_H
#define RUNFS_CACHE_FLUSH_H

#include "cache/blocking.h"

struct target {
    struct node *node; /* referenced */
    uint64_t generation;
    uint64_t hurried;          /* the last generation of a directory that was */
    unsigned attempts, losses; /* before the flush began */
    uint64_t size;             /* then */
    bool lost;                 /* a name, since then */
};

struct flush {
    struct cache *cache;
    const char *path;
    unsigned flags; /* enum cache_flush_flags */
    struct target *v;
    size_t n, cap;
    size_t left;   /* not in the store, at the last look */
    size_t rows;   /* that it waits for, or leaves out, at the last look */
    size_t coming; /* of both, what did not fail for good */
    size_t behind; /* intentions that it left out */
    bool hurried;  /* that look found something to hurry */
    char *in_vain; /* path of a removal that it found to wait for ever, perhaps, or NULL */
    char *locked;  /* path of a removal that it found held by a deletion lock, or NULL */
    char *half;    /* path of a file that it found half, or NULL */
    uint64_t seq;  /* intentions up to this one */
    struct rounds rounds;
    int64_t began_ns;
};

/* ---- flush_gather.c ---- */
/* What the node owes as a file or as a directory: it is one of them. */
struct debt *flush_debt_of(struct node *n) REQUIRES(cache_mutex);
/* Whether it waits for the row: also for a rename above its path, which takes the path with it.
 */
bool flush_concerns_locked(const struct flush *fl, const struct intent *i)
    REQUIRES(cache_mutex);
/* The file that another store is to have before the old name goes; NULL: there is none. */
struct file *flush_awaited_elsewhere_locked(struct cache *c, const struct intent *i)
    REQUIRES(cache_mutex);
/* What left for another store goes up as what is below the path does, wherever that is: while
 * it is open, or has a staging name, nothing else would send it. 0 or -ENOMEM. */
int flush_add_moved_locked(struct flush *fl, const struct intent *i) REQUIRES(cache_mutex);
void flush_drop_targets_locked(struct flush *fl) REQUIRES(cache_mutex);
/* Takes what is owed now as the targets, with the directories that may come to owe something by
 * it, and what counts as older than the flush. 0 or -ENOMEM. */
int flush_gather_locked(struct flush *fl) REQUIRES(cache_mutex);

#endif
