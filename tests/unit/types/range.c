/* cache/types/range.c: sets of ranges, beside a set of single bytes. */
#include "cache/types/range.h"
#include "tests/unit/types/suites.h"

#include <string.h>

#define BYTES 24

/* Every range of the bytes is added to every pair of ranges: what the set says of any range is
 * what its bytes say. */
struct model {
    struct ranges set;
    bool has[BYTES];
};

static void add(struct model *m, unsigned off, unsigned end)
{
    if (ranges_add(&m->set, off, end) < 0)
        ck_abort_msg("[%u, %u) is refused", off, end);
    for (unsigned i = off; i < end; i++)
        m->has[i] = true;
}

static bool is_canonical(const struct ranges *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i].off >= r->v[i].end || (i > 0 && r->v[i - 1].end >= r->v[i].off))
            return false;
    return true;
}

static bool says_of(const struct model *m, unsigned off, unsigned end)
{
    struct range missing = {0, 0};
    unsigned from = off, to;

    while (from < end && m->has[from])
        from++;
    for (to = from; to < end && !m->has[to]; to++)
        ;
    bool any = ranges_missing(&m->set, off, end, &missing);
    return any == (from < end) && ranges_has(&m->set, off, end) == !any &&
           (!any || (missing.off == from && missing.end == to));
}

/* The three ranges begin and end at each multiple of `STEP`, so that they touch, overlap, hold
 * each other and stand apart in all ways. */
#define STEP 4

START_TEST(sets_are_their_bytes)
{
    for (unsigned code = 0; code < 7 * 7 * 7 * 7; code++) {
        struct model m = {.has = {false}};
        unsigned a = code % 7, b = code / 7 % 7, c = code / 49 % 7, d = code / 343;
        add(&m, STEP * a, STEP * b);
        add(&m, STEP * c, STEP * d);
        add(&m, STEP * (unsigned)_i, STEP * (unsigned)_i + STEP);
        if (!is_canonical(&m.set))
            ck_abort_msg("code %u: ranges touch", code);
        for (unsigned off = 0; off < BYTES; off += 3)
            for (unsigned end = off; end < BYTES; end += 2)
                if (!says_of(&m, off, end)) /* an assertion a range would take seconds */
                    ck_abort_msg("code %u: [%u, %u)", code, off, end);
        ranges_clear(&m.set);
    }
}
END_TEST

START_TEST(the_last_byte_of_all)
{
    struct ranges r = {0};
    struct range missing;

    ck_assert_int_eq(ranges_add(&r, UINT64_MAX - 1, UINT64_MAX), 0);
    ck_assert(ranges_has(&r, UINT64_MAX - 1, UINT64_MAX));
    ck_assert(ranges_missing(&r, 0, UINT64_MAX, &missing));
    ck_assert_uint_eq(missing.off, 0);
    ck_assert_uint_eq(missing.end, UINT64_MAX - 1);
    ranges_clear(&r);
    ck_assert(ranges_has(&r, 5, 5) && !ranges_has(&r, 5, 6));
}
END_TEST

Suite *range_suite(void)
{
    Suite *s = suite_create("range");
    TCase *t = tcase_create("ranges");

    tcase_add_loop_test(t, sets_are_their_bytes, 0, BYTES / STEP);
    tcase_add_test(t, the_last_byte_of_all);
    suite_add_tcase(s, t);
    return s;
}
