/* cache/: what a store that is away costs while much waits for it. */
#include "cache/transfer/transfer_impl.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define FILES 500

static struct driven d;
static atomic_bool held; /* copies wait */
static atomic_bool away; /* they fail */
static atomic_uint attempts;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_COPY && atomic_load(&held))
        (void)usleep(1000);
    if (c->kind != CALL_COPY || !atomic_load(&away))
        return call_next(c);
    atomic_fetch_add(&attempts, 1);
    return op_fail(c->op, -EHOSTUNREACH, "copy: away");
}

static const char *name_of(const char *prefix, int i)
{
    static char names[2][16];
    char *name = names[*prefix == 'g'];

    (void)snprintf(name, sizeof(names[0]), "%s%d", prefix, i);
    return name;
}

static unsigned long long passes(void)
{
#ifndef NDEBUG
    return atomic_load(&passes_made);
#else
    return 0; /* it counts none */
#endif
}

/* Failures have all that waits looked at, together: no pass for each. Each is tried soon
 * nevertheless, and all of it is there when the store is back. */
START_TEST(attempts_that_fail_make_few_passes)
{
    atomic_store(&held, true);
    atomic_store(&away, true);
    driven_init_like_s3(&d, around);
    for (int i = 0; i < FILES; i++)
        driven_store(&d, name_of("f", i), "x", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), FILES);
    for (int i = 0; i < FILES; i++)
        ck_assert_int_eq(driven_rename(&d, name_of("f", i), name_of("g", i)), 0);
    unsigned long long before = passes();
    int64_t began_ns = clock_mono_ns();
    atomic_store(&held, false);
    DRIVEN_WAIT(atomic_load(&attempts) >= FILES);
    unsigned long long made = passes() - before;
    int64_t most = (clock_mono_ns() - began_ns) / (4 * NS_PER_MS) + 10;
    ck_assert_msg(made <= (unsigned long long)most, "%llu, not %lld", made, (long long)most);
    atomic_store(&away, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < FILES; i++) {
        driven_stores(&d, name_of("f", i), NULL);
        driven_stores(&d, name_of("g", i), "x");
    }
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_away");
    TCase *t = tcase_create("cache_away");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, attempts_that_fail_make_few_passes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
