/* SipHash-2-4 with 128 bits (Aumasson and Bernstein,
 * https://www.aumasson.jp/siphash/siphash.pdf): a hash of names for tables of which nobody who
 * does not know the key can choose names that collide. Any thread. */
#ifndef RUNFS_COMMON_SIPHASH_H
#define RUNFS_COMMON_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Each half is a hash of 64 bits by itself. */
void siphash(const uint64_t key[2], const void *data, size_t len, uint64_t ret[2]);

#endif
