/* What the files of tree/ share. */
#ifndef RUNFS_CACHE_TREE_TREE_IMPL_H
#define RUNFS_CACHE_TREE_TREE_IMPL_H

#include "cache/tree/tree.h"

/* A mount ends without the kernel's giving back what it holds. */
struct detached {
    UT_hash_handle hh; /* in tree_own.detached, by node */
    struct node *node;
};

/* The number that a key would give, and that a renamed node took along. */
struct moved_ino {
    UT_hash_handle hh;
    uint64_t ino;
    bool seen; /* while they are purged: something has it */
};

/* What the tree keeps for itself. */
struct tree_own {
    uint64_t identity_hash;  /* constant; salt of inode numbers without routes */
    uint64_t *store_salts;   /* constant; heap; the same of each store that routes lead to */
    int64_t started_ns;      /* constant; CLOCK_REALTIME; the time of what tells none */
    struct node_hooks hooks; /* constant */
    struct ids *ids;         /* changed under cache_mutex; a look-up takes no lock */

    GUARDED_BY(cache_mutex) struct {
        uint32_t dir_ids;             /* the last one given */
        struct moved_ino *moved_inos; /* default numbers that went with what was renamed */
        unsigned moved_seen; /* how many of them something had when they were purged last */
        struct negatives *negatives; /* names that the store does not have */
        /* nodes that lost their last name while the kernel held them */
        struct detached *detached;
    };
};

/* ---- ids.c ---- */
/* NULL without memory. */
struct ids *ids_new(void) REQUIRES(cache_mutex);
/* All nodes are gone. Accepts NULL. */
void ids_free(struct ids *ids) REQUIRES(cache_mutex);
/* Gives a new node its slot; 0 or -ENOMEM. */
int ids_add(struct ids *ids, struct node *n) REQUIRES(cache_mutex);
/* The node goes, and its number with it. */
void ids_remove(struct ids *ids, struct node *n) REQUIRES(cache_mutex);

/* ---- ino.c ---- */
/* Makes the salts of derived numbers; 0 or -ENOMEM. */
int inos_init(struct cache *c);

#endif
