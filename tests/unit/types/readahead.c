/* cache/types/readahead.c: who reads in order is fetched ahead, who jumps is not. */
#include "cache/types/readahead.h"
#include "tests/unit/types/suites.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

/* `n` reads of `len` bytes, one behind the other; what is fetched ahead of the last. */
static uint64_t reads(struct streams **s, uint64_t off, size_t len, unsigned n)
{
    uint64_t ahead = 0;

    for (unsigned i = 0; i < n; i++)
        ahead = readahead_of(s, off + i * len, len);
    return ahead;
}

START_TEST(who_begins_with_the_file_gets_ever_more)
{
    struct streams *s = NULL;

    ck_assert_uint_eq(readahead_of(&s, 0, 4096), 1 * MIB);
    ck_assert_uint_eq(reads(&s, 4096, 4 * MIB, 1), 2 * (4 * MIB + 4096));
    ck_assert_uint_eq(reads(&s, 4 * MIB + 4096, 1 * MIB, 100), 64 * MIB);
    free(s);
}
END_TEST

START_TEST(who_reads_records_gets_none)
{
    struct streams *s = NULL;

    for (uint64_t i = 1; i <= 40; i++)
        ck_assert_uint_eq(readahead_of(&s, i * 37 % 41 * 100 * MIB, 256 << 10), 0);
    free(s);
}
END_TEST

START_TEST(who_goes_on_in_the_middle_gets_a_quarter)
{
    struct streams *s = NULL;

    ck_assert_uint_eq(reads(&s, 1000 * MIB, 1 * MIB, 1), 0);
    ck_assert_uint_eq(reads(&s, 1001 * MIB, 1 * MIB, 4), 1 * MIB);
    free(s);
}
END_TEST

/* As many as there are loaders' threads, each in order, in turns. */
START_TEST(many_read_at_their_own_places)
{
    struct streams *s = NULL;
    uint64_t ahead = 0;

    for (uint64_t i = 0; i < 9; i++)
        for (uint64_t reader = 1; reader <= 15; reader++) {
            ahead = readahead_of(&s, reader * 1000 * MIB + i * MIB, 1 * MIB);
            ck_assert_uint_eq(ahead, i * MIB / 4);
        }
    free(s);
}
END_TEST

/* The pieces of the kernel's own read-ahead pass each other. */
START_TEST(pieces_that_pass_each_other_are_one_run)
{
    struct streams *s = NULL;
    const uint64_t piece = 128 << 10;

    (void)readahead_of(&s, piece, piece);
    (void)readahead_of(&s, 0, piece);
    ck_assert_uint_eq(reads(&s, 2 * piece, piece, 30), 2 * 32 * piece);
    free(s);
}
END_TEST

Suite *readahead_suite(void)
{
    Suite *s = suite_create("readahead");
    TCase *t = tcase_create("readahead");

    tcase_add_test(t, who_begins_with_the_file_gets_ever_more);
    tcase_add_test(t, who_reads_records_gets_none);
    tcase_add_test(t, who_goes_on_in_the_middle_gets_a_quarter);
    tcase_add_test(t, many_read_at_their_own_places);
    tcase_add_test(t, pieces_that_pass_each_other_are_one_run);
    suite_add_tcase(s, t);
    return s;
}
