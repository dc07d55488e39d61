/* The checksum of a whole content, of a kind that stores keep. Any thread. */
#ifndef RUNFS_COMMON_CHECKSUM_H
#define RUNFS_COMMON_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum checksum_kind { CHECKSUM_NONE, CHECKSUM_CRC32C, CHECKSUM_CRC64NVME, CHECKSUM_CRC32 };

struct checksum {
    enum checksum_kind kind; /* CHECKSUM_NONE: it is not known */
    uint64_t value;
};

/* Goes on with `len` more bytes; value 0 begins. */
void checksum_add(struct checksum *sum, const void *data, size_t len);
/* Goes on with the sum of `len` more bytes, of the same kind. */
void checksum_append(struct checksum *sum, const struct checksum *more, uint64_t len);
bool checksum_same(const struct checksum *a, const struct checksum *b);

#define CHECKSUM_TEXT 32 /* bytes of a text with its NUL */
/* "crc32c:89abcdef"; "" for none. */
void checksum_print(const struct checksum *sum, char text[CHECKSUM_TEXT]);
/* The first `len` bytes of `text`; false when they are none of these. */
bool checksum_parse(const char *text, size_t len, struct checksum *ret);

#endif
