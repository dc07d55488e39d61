/* The locks of a cache, outermost first:
 *
 * ns: rwlock. Written by whatever changes the tree's shape or a mirror file's place (create,
 * unlink, rename, merge of a listing, eviction); read by opens of mirror files by their
 * path. Held across the mirror's system calls and the journal's write, never across a store
 * call, an fsync or a reply.
 *
 * stamp_locks: mutexes, each of some of the nodes. Of a node one stamp is written at a time,
 * from its fields as they are then; held across that setxattr().
 *
 * lock: mutex. Guards what is marked so. Held for memory, and for the fstat(), futimens(),
 * statvfs(), leases and close() of the mirror's own descriptors; never for a path or for data.
 *
 * Below these are leaves: the queues of pools, of the journal, of the origins, of the log, the
 * leases of notes/ (which hand a task to a pool).
 *
 * The shape of the tree (children, links, names) changes only under ns and lock, so that
 * holding either is enough to read it. The compiler can't say "either": the functions that
 * change the shape require both, and those that read it carry no mark.
 *
 * What builds a cache, recovers it and takes it down takes them, too, though nobody waits. */
#ifndef RUNFS_CACHE_LOCKS_H
#define RUNFS_CACHE_LOCKS_H

#include "common/lock.h"

struct cache;

/* Those names as the compiler knows them; core.h has the functions of `lock`. */
extern struct lock_class cache_ns, cache_stamp, cache_mutex;

/* Takes ns for reading; ns_done() gives it back. */
void ns_read(struct cache *c) ACQUIRE_SHARED(cache_ns) EXCLUDES(cache_stamp, cache_mutex);
/* Takes ns for writing; ns_done() gives it back. */
void ns_write(struct cache *c) ACQUIRE(cache_ns) EXCLUDES(cache_stamp, cache_mutex);
/* Gives ns back. */
void ns_done(struct cache *c) RELEASE_GENERIC(cache_ns);
/* Abort when the caller does not hold ns, or not for writing. */
void ns_assert_held(struct cache *c) ASSERT_SHARED_CAPABILITY(cache_ns);
void ns_assert_written(struct cache *c) ASSERT_CAPABILITY(cache_ns);

#endif
