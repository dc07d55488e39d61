/* CRC-32C (Castagnoli), the checksum that stores and processors both know. Any thread. */
#ifndef RUNFS_COMMON_CRC32C_H
#define RUNFS_COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what was summed so far (0 for nothing) and of `len` more bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* The checksum of two stretches one after the other, of which the second has `len` bytes. */
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t len);

#endif
