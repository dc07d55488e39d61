/* The other checksums that object stores keep: CRC-32 (zlib's) and CRC-64/NVME. Any thread. */
#ifndef RUNFS_COMMON_CRC_H
#define RUNFS_COMMON_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what was summed so far (0 for nothing) and of `len` more bytes. */
uint32_t crc32_zlib(uint32_t crc, const void *data, size_t len);
uint64_t crc64nvme(uint64_t crc, const void *data, size_t len);

/* What crc32c() does, and whether it is faster so for as many bytes than by the processor's own
 * instruction, which takes eight at a time. */
uint32_t crc32c_by_folds(uint32_t crc, const void *data, size_t len);
bool crc32c_folds(size_t len);

/* The checksum of two stretches one after the other, of which the second has `len` bytes. */
uint32_t crc32_zlib_combine(uint32_t first, uint32_t second, uint64_t len);
uint64_t crc64nvme_combine(uint64_t first, uint64_t second, uint64_t len);

#endif
