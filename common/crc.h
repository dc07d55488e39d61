/* The other checksums that object stores keep: CRC-32 (zlib's) and CRC-64/NVME. Byte by byte,
 * for what is small. Any thread. */
#ifndef RUNFS_COMMON_CRC_H
#define RUNFS_COMMON_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what was summed so far (0 for nothing) and of `len` more bytes. */
uint32_t crc32_zlib(uint32_t crc, const void *data, size_t len);
uint64_t crc64nvme(uint64_t crc, const void *data, size_t len);

#endif
