/* cache/: files whose policy has them go up before others, where one store takes both. */
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDER_MAX 64
/* More than go before another one's turn comes. */
#define MANY 40

static const struct routed_row rows[] = {
    {.path = "ckpt/**", .leaf = 0, .policy = 1},
    {.path = "meta/**", .leaf = 0, .policy = 2},
    {.path = "**", .leaf = 1},
};

static struct routed_world w;

/* ---- what arrives at the store ---- */

static atomic_uint passing; /* so many get their answer, in the order in which they came */
static atomic_uint arrived;
static char order[ORDER_MAX][32]; /* of files and removals, "-" before a removal */
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;

static bool is_wanted(const char *key)
{
    return strncmp(key, "ckpt/", 5) == 0 || strncmp(key, "meta/", 5) == 0;
}

static unsigned note(const char *sign, const char *key)
{
    if (!is_wanted(key))
        return ORDER_MAX;
    (void)pthread_mutex_lock(&noting);
    unsigned at = atomic_load(&arrived);
    ck_assert_uint_lt(at, ORDER_MAX);
    (void)snprintf(order[at], sizeof(order[at]), "%s%s", sign, key);
    atomic_store(&arrived, at + 1);
    (void)pthread_mutex_unlock(&noting);
    return at;
}

static void note_and_hold(unsigned leaf, const struct call *c)
{
    if (leaf != 0)
        return;
    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++)
        (void)note("-", c->keys[i]);
    if (c->kind != CALL_PUT || !is_wanted(c->key))
        return;
    unsigned at = note("", c->key);
    while (at >= atomic_load(&passing) && op_check(c->op) == 0)
        (void)usleep(1000);
}

/* ORDER_MAX: it has not. */
static unsigned place_of(const char *what)
{
    unsigned n = atomic_load(&arrived);

    for (unsigned i = 0; i < n; i++)
        if (strcmp(order[i], what) == 0)
            return i;
    return ORDER_MAX;
}

/* ---- the mount ---- */

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

static void put_number(const char *dir, int i)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "%s/%02d", dir, i);
    put(path, path);
}

static void mount_with(unsigned jobs)
{
    w.d.config.upload_jobs = jobs;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "ckpt"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "meta"), 0);
    put("ckpt/old", "old");
    put("meta/old", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&passing, 0);
    atomic_store(&w.watch, note_and_hold);
}

/* All jobs are busy with checkpoints, and more of these wait. */
static void fill(unsigned jobs, unsigned more)
{
    for (unsigned i = 0; i < jobs + more; i++)
        put_number("ckpt", (int)i);
    DRIVEN_WAIT(atomic_load(&arrived) == jobs);
}

static void let_go(void)
{
    atomic_store(&passing, UINT_MAX);
    ck_assert_int_eq(driven_flush(&w.d), 0);
}

static void setup(void)
{
    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    w.d.config.settle_ns = 0;
    w.policies[2].urgent = true;
    atomic_store(&arrived, 0);
}

static void teardown(void)
{
    atomic_store(&passing, UINT_MAX);
    atomic_store(&w.watch, NULL);
    routed_release(&w);
}

/* ---- what goes next ---- */

/* _i: how many uploads run at once. */
START_TEST(what_is_urgent_is_next)
{
    unsigned jobs = (unsigned)_i;

    mount_with(jobs);
    fill(jobs, 20);
    put("meta/a", "1");
    put("meta/b", "2");
    for (unsigned ended = 1; ended <= 2; ended++) {
        atomic_store(&passing, ended);
        DRIVEN_WAIT(atomic_load(&arrived) == jobs + ended);
    }
    ck_assert_str_eq(order[jobs], "meta/a");
    ck_assert_str_eq(order[jobs + 1], "meta/b");
    let_go();
    ck_assert_uint_eq(atomic_load(&arrived), jobs + 22);
    routed_stores(&w, 0, "meta/a", "1");
}
END_TEST

/* Among themselves they go in the order of their closes, as others do. */
START_TEST(what_is_urgent_goes_in_order)
{
    mount_with(1);
    fill(1, 3);
    for (int i = 0; i < 8; i++)
        put_number("meta", i);
    put("meta/03", "anew");
    let_go();
    for (unsigned i = 0; i < 8; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "meta/%02u", i);
        ck_assert_uint_eq(place_of(name), 1 + i);
    }
    for (unsigned i = 1; i < 4; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "ckpt/%02u", i);
        ck_assert_uint_eq(place_of(name), 8 + i);
    }
    routed_stores(&w, 0, "meta/03", "anew");
}
END_TEST

/* It is the policy of the path that the file has now. */
START_TEST(a_name_makes_it_urgent_or_not)
{
    mount_with(1);
    fill(1, 3);
    put("meta/away", "1");
    put("ckpt/here", "2");
    ck_assert_int_eq(driven_rename(&w.d, "meta/away", "ckpt/away"), 0);
    ck_assert_int_eq(driven_rename(&w.d, "ckpt/here", "meta/here"), 0);
    let_go();
    ck_assert_uint_eq(place_of("meta/here"), 1);
    ck_assert_uint_eq(place_of("ckpt/01"), 2);
    ck_assert_uint_gt(place_of("ckpt/away"), place_of("ckpt/03"));
    routed_stores(&w, 0, "meta/here", "2");
    routed_stores(&w, 0, "ckpt/away", "1");
}
END_TEST

/* A mount finds it in the cache, as a kill left it. */
START_TEST(what_is_urgent_is_first_after_a_kill)
{
    mount_with(1);
    fill(1, 5);
    put("meta/a", "1");
    put("meta/b", "2");
    driven_unmount(&w.d);
    atomic_store(&arrived, 0);
    atomic_store(&passing, UINT_MAX);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_uint_eq(place_of("meta/a"), 0);
    ck_assert_uint_eq(place_of("meta/b"), 1);
    ck_assert_uint_eq(atomic_load(&arrived), 8);
}
END_TEST

/* ---- what it may not overtake, and whom it may not keep waiting ---- */

START_TEST(a_removal_waits_for_what_was_closed_before_it)
{
    mount_with(1);
    fill(1, 2);
    ck_assert_int_eq(driven_unlink(&w.d, "ckpt/old"), 0);
    put("meta/a", "1");
    ck_assert_int_eq(driven_unlink(&w.d, "meta/old"), 0);
    let_go();
    ck_assert_uint_eq(place_of("meta/a"), 1);
    ck_assert_uint_lt(place_of("ckpt/02"), place_of("-ckpt/old"));
    ck_assert_uint_lt(place_of("ckpt/02"), place_of("-meta/old"));
    ck_assert_uint_lt(place_of("-meta/old"), ORDER_MAX);
    ck_assert_uint_lt(place_of("-ckpt/old"), ORDER_MAX);
}
END_TEST

/* The copy of the old content comes first: it would replace the new one. */
START_TEST(what_is_written_behind_a_rename_waits_for_it)
{
    mount_with(1);
    fill(1, 2);
    ck_assert_int_eq(driven_rename(&w.d, "ckpt/old", "meta/moved"), 0);
    put("meta/moved", "new");
    let_go();
    routed_stores(&w, 0, "meta/moved", "new");
    routed_stores(&w, 0, "ckpt/old", NULL);
    driven_shows(&w.d, "meta/moved", "new");
}
END_TEST

/* Some program always has metadata to write. */
START_TEST(others_have_a_turn)
{
    mount_with(1);
    fill(1, 1);
    for (int i = 0; i < MANY; i++)
        put_number("meta", i);
    let_go();
    ck_assert_uint_gt(place_of("ckpt/01"), 1);
    ck_assert_uint_lt(place_of("ckpt/01"), MANY);
    ck_assert_uint_eq(place_of("meta/39"), MANY + 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_urgent");
    TCase *t = tcase_create("urgent");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_is_urgent_is_next, 1, 4);
    tcase_add_test(t, what_is_urgent_goes_in_order);
    tcase_add_test(t, a_name_makes_it_urgent_or_not);
    tcase_add_test(t, what_is_urgent_is_first_after_a_kill);
    tcase_add_test(t, a_removal_waits_for_what_was_closed_before_it);
    tcase_add_test(t, what_is_written_behind_a_rename_waits_for_it);
    tcase_add_test(t, others_have_a_turn);
    suite_add_tcase(s, t);
    return suite_run(s);
}
