/* What the files of a verification share. */
#ifndef RUNFS_CACHE_VERIFY_H
#define RUNFS_CACHE_VERIFY_H

#include "cache/blocking.h"

/* What this mount says the store has under a name, copied under the lock. */
struct belief {
    struct place at;     /* owned; none: nothing is believed */
    char *etag;          /* heap; NULL: not known */
    char *target;        /* heap; of a symlink, where it is known */
    struct checksum sum; /* of the content, where that is known */
    uint64_t size;       /* bytes */
    uint32_t type;       /* as st_mode; 0: not known */
    bool local;          /* all of the content is in the cache */
    bool has_file;       /* and `generation` says which it is */
    uint64_t generation; /* of the file */
    int64_t taken_ns;    /* CLOCK_MONOTONIC */
};

#define VERIFY_TEXT 160 /* bytes of what is expected, or found, with the NUL */

struct verifying;

/* One file on its way: a task of the pool, then a result for the caller. */
struct check {
    struct task task;
    struct verifying *v;
    struct check *next; /* of those that ended */
    char *path;         /* heap */
    struct node *node;  /* referenced */
    struct belief belief;
    bool looked; /* the result counts; else the end of all came before */
    struct cache_verified result;
    char expected[VERIFY_TEXT], found[VERIFY_TEXT];
    char why[sizeof(((struct op *)0)->why)];
};

struct verifying {
    struct cache *cache;
    struct op *op; /* the caller's: its time, and who cancels it */
    unsigned flags;
    struct pool *pool;
    unsigned at_once;
    cache_verify_visit visit;
    struct cache_verify_total *total;
    struct listener listener;
    atomic_bool over;    /* nothing more is begun */
    atomic_ullong bytes; /* compared so far */
    GUARDED_BY(cache_mutex) struct {
        struct check *ended; /* to be told of */
        unsigned running;    /* not ended yet */
        int err;             /* why it can't go on */
        char why[sizeof(((struct op *)0)->why)];
    };
};

/* ---- verify_believe.c ---- */
/* Takes what is believed of the name that has the path now. 0; -ENOENT: there is none; -EBUSY:
 * the store does not have it as it is, and k->why says so; -ENOMEM. */
int check_believe_locked(struct check *k) REQUIRES(cache_mutex);
/* Whether something was done here, since, that says nothing of what the store has lost: it was
 * written, renamed, removed or uploaded. */
bool check_moved_on_locked(struct check *k) REQUIRES(cache_mutex);
/* Frees what is believed, and takes the reference back. */
void check_forget_locked(struct check *k) REQUIRES(cache_mutex);

/* ---- verify_object.c ---- */
/* Asks the store, and fills k->result. Any thread; holds no lock. */
void check_run(struct check *k) EXCLUDES(cache_mutex);

#endif
