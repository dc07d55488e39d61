/* uthash with a hash of our own: its default one is the same everywhere, and a store full of
 * names that collide would make each look-up a walk over all of them. */
#ifndef RUNFS_COMMON_TABLE_H
#define RUNFS_COMMON_TABLE_H

#include "common/hash.h"

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)hash_bytes(key, len))
/* A table that has no memory for one more ends no process, as uthash's would: what was added is
 * not in it, which the caller asks for by TABLE_LACKS(). */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define TABLE_LACKS(hh_name, added) ((added)->hh_name.tbl == NULL)

#endif
