/* What name.c and exchange.c share. */
#ifndef RUNFS_CACHE_NAME_H
#define RUNFS_CACHE_NAME_H

#include "cache/node.h"

struct moving {
    struct entry *from, *to; /* `to` NULL: the name is free */
    struct node *newparent;
    const char *newname;
    char *from_path, *to_path;
    bool copies;  /* the store's object moves: a rename row */
    bool removes; /* the store may have the old name: an unlink row */
};

/* A name came to the directory, or went. */
void dir_touch_locked(struct node *dir) REQUIRES(cache_mutex);
/* Whether the store has, or may have, an object under the entry's path. */
bool entry_may_be_stored(struct entry *e) REQUIRES(cache_mutex);
/* Notes in the file's stamp what an upload of it to the name is to replace; it has the name
 * later. `e` is what has it now, or NULL. ns held for writing. */
void name_expect(struct cache *c, struct node *n, const char *mirror_path, struct node *dir,
                 const char *name, struct entry *e);
/* For tree_each(): not 0 when that is so for a name of the node. */
int node_may_be_stored(void *arg, struct node *n) REQUIRES(cache_mutex);
/* For tree_each(), with the cache as `arg`: the node's path is another one now. Uploads under
 * the old one stop, what waits gets its new name. What arrives nevertheless is moved along. */
int node_requeue_locked(void *arg, struct node *n) REQUIRES(cache_mutex);
/* The inode is about to get a name that an older intention may have taken from it: recovery
 * must not take it for what that one meant. ns held for writing. */
int node_rebear(struct cache *c, struct node *n);
/* The same for what comes to such a name with the directory that moves. */
int node_rebear_below(struct cache *c, const char *from, const char *to);

/* ---- exchange.c ---- */
/* All that the directory has is known, or it parks: one that changes places with a file may
 * have no hidden name anywhere below it. */
int exchange_need_tree_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex);
/* Whether the two may change places: 0 or a negative errno; -EAGAIN: asked once more. */
int exchange_check(struct moving *m);
/* They do. ns held for writing. 0 or a negative errno; -EAGAIN: asked once more. */
int exchange_held(struct cache *c, struct moving *m);

#endif
