/* A cache by hand, up to one room: without threads of its own, and without a store. Each
 * function adds a part and wants those above it here; who does not call the later ones links
 * nothing of the rooms that they need. All abort the test on a failure. */
#ifndef RUNFS_TESTS_LIB_ROOM_H
#define RUNFS_TESTS_LIB_ROOM_H

#include "cache/core/core.h"

struct node;

/* The locks, and nobody who waits. */
struct cache *room_core(void);
/* A mirror and a journal, in a directory of their own. */
void room_disk(struct cache *c);
/* The tree with its root; what a node has besides is nobody's. */
void room_tree(struct cache *c);
/* Mirror files, with `fds` descriptors for them. */
void room_content(struct cache *c, unsigned fds);
void room_queue(struct cache *c);
void room_listing(struct cache *c);
void room_transfer(struct cache *c);
void room_ops(struct cache *c);
/* Gives all of it back. */
void room_free(struct cache *c);

/* ---- names; ns held for writing ---- */

/* The directory, with those above it. */
struct node *room_dir_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* A new file, in a directory that is made where it is missing. */
struct node *room_file_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);

#endif
