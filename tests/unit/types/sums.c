/* cache/types/sums.c: the whole's checksum from those of its stretches, in whatever order they
 * come. */
#include "cache/types/sums.h"
#include "tests/unit/types/suites.h"

#include <string.h>

static const char text[] = "the quick brown fox jumps over the lazy dog";

#define SIZE  (sizeof(text) - 1)
#define PARTS 4

/* Where the four stretches begin and end. */
static const uint64_t cuts[PARTS + 1] = {0, 1, 17, 18, SIZE};

static struct checksum sum_of(uint64_t off, uint64_t end)
{
    struct checksum sum = {.kind = CHECKSUM_CRC32C};

    checksum_add(&sum, text + off, end - off);
    return sum;
}

static void add(struct sums *s, uint64_t off, uint64_t end)
{
    const struct checksum sum = sum_of(off, end);

    sums_add(s, off, end, &sum);
}

/* _i names an order of the four. */
START_TEST(any_order_makes_the_whole)
{
    const struct checksum whole = sum_of(0, SIZE);
    unsigned left[PARTS] = {0, 1, 2, 3}, order = (unsigned)_i;
    struct sums s = {0};
    struct checksum found = {.kind = CHECKSUM_NONE};

    for (unsigned n = PARTS; n > 0; n--) {
        ck_assert(!sums_whole(&s, SIZE, &found));
        unsigned at = order % n, part = left[at];
        order /= n;
        memmove(&left[at], &left[at + 1], (n - at - 1) * sizeof(left[0]));
        add(&s, cuts[part], cuts[part + 1]);
        add(&s, cuts[part], cuts[part + 1]); /* once more says nothing new */
    }
    ck_assert(sums_whole(&s, SIZE, &found));
    ck_assert_int_eq(found.kind, whole.kind);
    ck_assert_uint_eq(found.value, whole.value);
    ck_assert(!sums_whole(&s, SIZE - 1, &found) && !sums_whole(&s, SIZE + 1, &found));
    sums_clear(&s);
}
END_TEST

START_TEST(what_does_not_fit_is_left_out)
{
    const struct checksum other = {.kind = CHECKSUM_CRC64NVME, .value = 7};
    const struct checksum none = {.kind = CHECKSUM_NONE};
    struct sums s = {0};
    struct checksum found;

    add(&s, 0, 10);
    add(&s, 9, SIZE); /* overlaps */
    sums_add(&s, 10, SIZE, &other);
    sums_add(&s, 10, SIZE, &none);
    add(&s, 10, 10);
    ck_assert(sums_whole(&s, 10, &found) && !sums_whole(&s, SIZE, &found));
    add(&s, 10, SIZE);
    ck_assert(sums_whole(&s, SIZE, &found));
    sums_clear(&s);
    ck_assert(!sums_whole(&s, SIZE, &found));
}
END_TEST

Suite *sums_suite(void)
{
    Suite *s = suite_create("sums");
    TCase *t = tcase_create("sums");

    tcase_add_loop_test(t, any_order_makes_the_whole, 0, 24);
    tcase_add_test(t, what_does_not_fit_is_left_out);
    suite_add_tcase(s, t);
    return s;
}
