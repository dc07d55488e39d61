/* cache/: what a store that is away costs while much waits for it. */
#include "cache/transfer/transfer_impl.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define FILES 500
#define ROOM  (1 << 20)

static struct driven d;
static atomic_bool held;  /* copies wait */
static atomic_bool stuck; /* puts do */
static atomic_uint begun; /* how many did */
static atomic_bool away;  /* they fail */
static atomic_uint attempts;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_COPY && atomic_load(&held))
        (void)usleep(1000);
    if (c->kind == CALL_PUT)
        atomic_fetch_add(&begun, 1);
    while (c->kind == CALL_PUT && atomic_load(&stuck))
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

static void *sync_it(void *arg)
{
    (void)arg;
    ck_assert_int_eq(driven_fsyncdir(&d, "dir"), 0);
    return NULL;
}

static void *make_one(void *arg)
{
    struct handle *h = NULL;

    (void)arg;
    ck_assert_int_eq(driven_open(&d, "next", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    return NULL;
}

/* Who waits meanwhile for what is on its way. */
static const struct {
    void *(*waits)(void *arg); /* NULL: nobody does */
    enum durability durability;
} others[] = {
    {NULL, DURABILITY_CACHE}, {sync_it, DURABILITY_STORE}, {make_one, DURABILITY_CACHE}};

/* What he waits for: a name in a directory, or room. */
static void begin_what_is_awaited(int i)
{
    static char large[2 * ROOM];

    if (!others[i].waits)
        return;
    atomic_store(&begun, 0);
    atomic_store(&stuck, true);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    if (others[i].waits == sync_it)
        ck_assert_int_eq(driven_symlink(&d, "target", "dir/s"), 0);
    else
        driven_put(&d, "dir/large", large, sizeof(large));
    DRIVEN_WAIT(atomic_load(&begun) == 1);
}

/* Failures have all that waits looked at, together: no pass for each, whoever waits for
 * something else. Each is tried soon nevertheless, and all of it is there when the store is
 * back. */
START_TEST(attempts_that_fail_make_few_passes)
{
    pthread_t other;

    atomic_store(&held, true);
    atomic_store(&away, true);
    atomic_store(&attempts, 0);
    driven_init_like_s3(&d, around);
    d.config.durability = others[_i].durability;
    d.config.size_bytes = others[_i].waits == make_one ? ROOM : d.config.size_bytes;
    for (int i = 0; i < FILES; i++)
        driven_store(&d, name_of("f", i), "x", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), FILES);
    begin_what_is_awaited(_i);
    for (int i = 0; i < FILES; i++)
        ck_assert_int_eq(driven_rename(&d, name_of("f", i), name_of("g", i)), 0);
    if (others[_i].waits) {
        ck_assert_int_eq(pthread_create(&other, NULL, others[_i].waits, NULL), 0);
        (void)usleep(200000);
    }
    unsigned long long before = passes();
    int64_t began_ns = clock_mono_ns();
    atomic_store(&held, false);
    DRIVEN_WAIT(atomic_load(&attempts) >= FILES);
    unsigned long long made = passes() - before;
    int64_t most = (clock_mono_ns() - began_ns) / (4 * NS_PER_MS) + 10;
    ck_assert_msg(made <= (unsigned long long)most, "%llu, not %lld", made, (long long)most);
    if (others[_i].waits)
        ck_assert_int_eq(pthread_tryjoin_np(other, NULL), EBUSY);
    atomic_store(&away, false);
    atomic_store(&stuck, false);
    if (others[_i].waits)
        ck_assert_int_eq(pthread_join(other, NULL), 0);
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
    tcase_add_loop_test(t, attempts_that_fail_make_few_passes, 0, ARRAY_SIZE(others));
    suite_add_tcase(s, t);
    return suite_run(s);
}
