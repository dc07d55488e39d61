/* Whose a version at the store is: which of them this cache put there.
 *
 * A mount signs what it puts with a number of its own, drawn at random, and notes in the
 * journal under which key, and until when, before the request is sent. What bears its number is
 * its own. Of what an earlier mount signed only that is this cache's which was noted, and not
 * settled: the cache directory may be a copy, or an older state of itself, and what followed
 * from the other is somebody else's. docs/format.md, section 7. Any thread. */
#ifndef RUNFS_CACHE_ORIGIN_H
#define RUNFS_CACHE_ORIGIN_H

#include "cache/node.h"

/* Draws the mount's number. 0, -ENOMEM or -EIO. */
int origins_open(struct cache *c);
/* What earlier mounts have noted, once the tree is recovered. 0 or a negative errno. */
int origins_load(struct cache *c) REQUIRES(cache_mutex);
void origins_free(struct cache *c);
/* The mount's own number. */
uint64_t origins_number(struct cache *c);
/* Signs what is to be put to `key`, each attempt anew, and notes it. On a disk that is full or
 * read-only it is sent without a note: an upload is what makes room, and at worst a later mount
 * takes it for somebody else's. Must hold no lock: it writes to the journal. */
void origin_sign(struct cache *c, const char *key, struct attrs *a);
/* Whether this cache put what has these attributes to `key`. */
bool origin_is_ours(struct cache *c, const char *key, const struct attrs *a);
/* The stamps or rows say what the store has at `key`, and nothing that was put there is on its
 * way any more: the notes go with the next one. */
void origin_settled(struct cache *c, const char *key);

#endif
