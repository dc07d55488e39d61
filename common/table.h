/* uthash with a hash of our own: its default one is the same everywhere, and a store full of
 * names that collide would make each look-up a walk over all of them. */
#ifndef RUNFS_COMMON_TABLE_H
#define RUNFS_COMMON_TABLE_H

#include "common/hash.h"

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)hash_bytes(key, len))
#include <uthash.h>

#endif
