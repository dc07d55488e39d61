/* Hashes of tables, and of what lasts. Any thread. */
#ifndef RUNFS_COMMON_HASH_H
#define RUNFS_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

/* For all tables whose keys others choose: nobody outside this process knows which collide. */
uint64_t hash_bytes(const void *data, size_t len);

#define FNV_START UINT64_C(0xcbf29ce484222325)
/* FNV-1a, the same in every version of this program; no secret. `h`: what it goes on from. */
uint64_t hash_fnv(uint64_t h, const char *text);

#endif
