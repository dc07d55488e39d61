/* Checksums of whole contents by kind; see checksum.h. */
#include "common/checksum.h"

#include "common/crc.h"
#include "common/crc32c.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {[CHECKSUM_CRC32C] = "crc32c",
                                    [CHECKSUM_CRC64NVME] = "crc64nvme",
                                    [CHECKSUM_CRC32] = "crc32"};

void checksum_add(struct checksum *sum, const void *data, size_t len)
{
    switch (sum->kind) {
    case CHECKSUM_CRC32C:
        sum->value = crc32c((uint32_t)sum->value, data, len);
        break;
    case CHECKSUM_CRC64NVME:
        sum->value = crc64nvme(sum->value, data, len);
        break;
    case CHECKSUM_CRC32:
        sum->value = crc32_zlib((uint32_t)sum->value, data, len);
        break;
    case CHECKSUM_NONE:
        break;
    }
}

void checksum_append(struct checksum *sum, const struct checksum *more, uint64_t len)
{
    switch (sum->kind) {
    case CHECKSUM_CRC32C:
        sum->value = crc32c_combine((uint32_t)sum->value, (uint32_t)more->value, len);
        break;
    case CHECKSUM_CRC64NVME:
        sum->value = crc64nvme_combine(sum->value, more->value, len);
        break;
    case CHECKSUM_CRC32:
        sum->value = crc32_zlib_combine((uint32_t)sum->value, (uint32_t)more->value, len);
        break;
    case CHECKSUM_NONE:
        break;
    }
}

bool checksum_same(const struct checksum *a, const struct checksum *b)
{
    return a->kind == b->kind && a->value == b->value;
}

void checksum_print(const struct checksum *sum, char text[CHECKSUM_TEXT])
{
    text[0] = '\0';
    if (sum->kind != CHECKSUM_NONE)
        (void)snprintf(text, CHECKSUM_TEXT, "%s:%" PRIx64, names[sum->kind], sum->value);
}

bool checksum_parse(const char *text, size_t len, struct checksum *ret)
{
    char copy[CHECKSUM_TEXT];
    int end = 0;

    if (len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (size_t i = CHECKSUM_CRC32C; i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(names[i]);
        struct checksum sum = {.kind = (enum checksum_kind)i};
        if (strncmp(copy, names[i], n) == 0 && copy[n] == ':' &&
            sscanf(copy + n + 1, "%16" SCNx64 "%n", &sum.value, &end) == 1 &&
            copy[n + 1 + (size_t)end] == '\0') {
            *ret = sum;
            return true;
        }
    }
    return false;
}
