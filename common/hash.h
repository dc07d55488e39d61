/* The hash of all tables whose keys others choose: nobody outside this process knows which
 * collide. Any thread. */
#ifndef RUNFS_COMMON_HASH_H
#define RUNFS_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Another one in each process. */
uint64_t hash_bytes(const void *data, size_t len);

#endif
