/* common/: checksums, and the hash that names are looked up by. */
#include "common/checksum.h"
#include "common/crc.h"
#include "common/crc32c.h"
#include "common/siphash.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

/* The check values of the catalogue of CRCs. */
START_TEST(other_checksums)
{
    ck_assert_uint_eq(crc32_zlib(0, "123456789", 9), 0xcbf43926u);
    ck_assert_uint_eq(crc32_zlib(crc32_zlib(0, "1234", 4), "56789", 5), 0xcbf43926u);
    ck_assert_uint_eq(crc64nvme(0, "123456789", 9), UINT64_C(0xae8b14860a799888));
    ck_assert_uint_eq(crc64nvme(crc64nvme(0, "1234", 4), "56789", 5),
                      UINT64_C(0xae8b14860a799888));
    ck_assert_uint_eq(crc64nvme(0, "", 0), 0);
}
END_TEST

static uint64_t bit_by_bit(uint64_t polynomial, uint64_t ones, const unsigned char *p,
                           size_t len)
{
    uint64_t crc = ones;

    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return crc ^ ones;
}

/* Whichever way is taken for so many bytes, from wherever they lie. */
START_TEST(checksums_of_all_lengths)
{
    unsigned char data[1100];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i * 7 + i / 3);
    for (size_t len = 0; len < sizeof(data) - 17; len += len < 300 ? 1 : 37)
        for (size_t at = 0; at < 17; at += 1 + at) {
            ck_assert_uint_eq(crc32_zlib(0, data + at, len),
                              bit_by_bit(0xedb88320u, UINT32_MAX, data + at, len));
            ck_assert_uint_eq(crc32c(0, data + at, len),
                              bit_by_bit(0x82f63b78u, UINT32_MAX, data + at, len));
            ck_assert_uint_eq(
                crc64nvme(0, data + at, len),
                bit_by_bit(UINT64_C(0x9a6c9329ac4bc9b5), UINT64_MAX, data + at, len));
            ck_assert_uint_eq(crc64nvme(crc64nvme(0, data, at), data + at, len),
                              crc64nvme(0, data, at + len));
            ck_assert_uint_eq(crc32c(crc32c(0, data, at), data + at, len),
                              crc32c(0, data, at + len));
        }
}
END_TEST

START_TEST(checksums_are_combined)
{
    char data[5000];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 31);
    for (int kind = CHECKSUM_CRC32C; kind <= CHECKSUM_CRC32; kind++) {
        struct checksum whole = {.kind = (enum checksum_kind)kind};
        checksum_add(&whole, data, sizeof(data));
        for (size_t cut = 0; cut <= sizeof(data); cut += 499) {
            struct checksum first = {.kind = whole.kind}, second = first;
            checksum_add(&first, data, cut);
            checksum_add(&second, data + cut, sizeof(data) - cut);
            checksum_append(&first, &second, sizeof(data) - cut);
            ck_assert(checksum_same(&first, &whole));
        }
    }
}
END_TEST

START_TEST(checksums_as_text)
{
    struct checksum sum = {.kind = CHECKSUM_CRC32C}, back = {0};
    char text[CHECKSUM_TEXT];

    checksum_add(&sum, "1234", 4);
    checksum_add(&sum, "56789", 5);
    checksum_print(&sum, text);
    ck_assert_str_eq(text, "crc32c:e3069283");
    ck_assert(checksum_parse("crc32c:e3069283, and more", strlen(text), &back));
    ck_assert(checksum_same(&sum, &back));
    ck_assert(checksum_parse("crc64nvme:ae8b14860a799888", 26, &back));
    ck_assert_int_eq(back.kind, CHECKSUM_CRC64NVME);
    ck_assert(!checksum_same(&sum, &back));
    ck_assert(!checksum_parse("crc32c:", 7, &back));
    ck_assert(!checksum_parse("crc32c:12 ", 10, &back));
    ck_assert(!checksum_parse("md5:12", 6, &back));
    ck_assert(!checksum_parse("", 0, &back));
    checksum_print(&(struct checksum){0}, text);
    ck_assert_str_eq(text, "");
}
END_TEST

/* The authors' test vectors, vectors.h of the reference implementation: the key and the bytes
 * count from 0. */
START_TEST(siphash_of_the_vectors)
{
    static const struct {
        size_t len;
        unsigned char wanted[16];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
          0x02, 0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
          0xfc, 0x45}},
    };
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    const unsigned char data[] = {0};
    uint64_t h[2];

    siphash(key, data, vectors[_i].len, h);
    for (int i = 0; i < 16; i++)
        ck_assert_uint_eq(h[i / 8] >> (i % 8 * 8) & 0xff, vectors[_i].wanted[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("checksum");
    TCase *t = tcase_create("checksum");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, other_checksums);
    tcase_add_loop_test(t, siphash_of_the_vectors, 0, 2);
    tcase_add_test(t, checksums_of_all_lengths);
    tcase_add_test(t, checksums_are_combined);
    tcase_add_test(t, checksums_as_text);
    suite_add_tcase(s, t);
    return suite_run(s);
}
