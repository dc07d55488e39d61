/* What a listing of the store said of a directory, on its way into the tree. */
#ifndef RUNFS_CACHE_LISTING_H
#define RUNFS_CACHE_LISTING_H

#include "cache/node.h"

/* Where something was asked at the store, and when in the order of moves. */
struct place {
    char *key;      /* heap */
    uint64_t moves; /* directories that had changed their place until then */
};

struct listing {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    bool whole;
    bool ahead;  /* siblings are listed one after the other: some more with it */
    bool around; /* or in no order: those around it, too */
    int64_t asked_ns;
    struct op *op;
    const char *key;     /* of the directory at the store */
    int64_t patience_ns; /* until its next name */
    uint64_t bytes;      /* that its names take, of cache.listed_bytes */
    int64_t looked_ns;   /* when it was last asked whether anybody waits for it */
    bool left;           /* it ended because nobody did */
    struct listed *v;
    size_t n, cap;
    uint64_t generation;  /* the directory's when it was asked */
    bool has_marker;      /* the directory itself has one: */
    struct object marker; /* without attributes, but for what an index tells */
};

/* Adds a name of `len` bytes; 0 or -ENOMEM. */
int listing_add(struct listing *l, const char *name, size_t len, const struct object *obj);
void listing_clear(struct listing *l);
/* Takes it into the tree, unless the directory has moved since it was asked. `hidden`: how many
 * names it had that no path can show; `cut`: there are more names. Holding no lock. */
void listing_merge(struct listing *l, const struct place *p, uint64_t hidden, bool cut);

/* How many bytes of names the store may tell of at once, whatever it says. */
uint64_t listed_max(const struct cache *c);
/* It tells of more: -ENOMEM with the reason. */
int listed_too_much(struct cache *c, struct op *op, const char *key, uint64_t names);

/* Whether the directory's last listing is believed still. The lock is held. */
bool listing_is_believed(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether it was listed in answer to what was asked then. Holding no lock. */
bool listing_told_since(struct cache *c, struct node *dir, int64_t asked_ns);

/* ---- walk.c ---- */

/* Somebody looks into the directory. */
void walk_step_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether one request may tell of many siblings, too: not where they are known to be large. */
bool walk_may_pay_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The directory was listed: its children may be small now. */
void walk_listed_locked(struct node *dir) REQUIRES(cache_mutex);
/* Somebody comes to the directory, and may know already what is in it: when it is one of those
 * that were told last, the next ones are asked for. */
void walk_on_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Parks while a request is under way that may tell of the directory, else 0. */
int walk_wait_locked(struct cache *c, struct node *dir, struct waiter *w) REQUIRES(cache_mutex);
/* Whether somebody has just walked through the directory's siblings to it. */
bool walk_is_on_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The directory is to be listed alone, being one of no row: whether one request should tell of
 * those around it. */
bool walk_apart_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Sends that one. In a worker, holding no lock. */
void walk_around(struct cache *c, struct node *dir, int64_t asked_ns);
/* Lists the directory and the siblings behind it, and all below them, as far as one request
 * tells. In a worker, holding no lock. */
void walk_ahead(struct cache *c, struct node *dir, int64_t asked_ns);

#endif
