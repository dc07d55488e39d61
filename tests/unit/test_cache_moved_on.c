/* cache/: names that were moved on and on while the store is away. When it comes back and has
 * done some of the renames, each name is still read from where its content is. */
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALL 1000

static struct driven d;
static atomic_int allowed; /* renames that the store does yet */
static atomic_int waiting;

static bool take_one(void)
{
    int n = atomic_load(&allowed);

    while (n > 0 && !atomic_compare_exchange_weak(&allowed, &n, n - 1))
        ;
    return n > 0;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_RENAME || c->kind == CALL_COPY) {
        atomic_fetch_add(&waiting, 1);
        while (!take_one())
            (void)usleep(1000);
        atomic_fetch_sub(&waiting, 1);
    }
    return call_next(c);
}

struct story {
    const char *dirs[4], *files[4]; /* a file holds its own first name */
    const char *steps[12];
    const char *now[3][2]; /* a name at the end, and what it holds */
    int calls;             /* by which the store moves what it has */
};

static const struct story stories[] = {
    {.dirs = {"d", "d/s", "d/t", "d/u"},
     .files = {"c", "d/u/f"},
     .steps = {"mv c d/s/f", "mv d e", "mv e/u/f e/t/f", "rm e/t/f", "mv e/s e/t", "mkdir d",
               "mkdir d/s", "mv e/t/f d/s/f"},
     .now = {{"d/s/f", "c"}},
     .calls = 6}, /* there is a new d: what was in the old one is moved alone */
    {.dirs = {"a", "a/s", "b"},
     .files = {"a/s/f"},
     .steps = {"mv a b/f", "mv b/f/s y", "rmdir b/f", "rmdir b", "mv y b", "mv b/f back"},
     .now = {{"back", "a/s/f"}},
     .calls = 4},
    {.dirs = {"d"},
     .files = {"d/f", "d/g"},
     .steps = {"mv d e", "mv e/f x", "mv x y", "mv y e/f", "mv e/f z", "mv e d", "mv z d/f"},
     .now = {{"d/f", "d/f"}, {"d/g", "d/g"}},
     .calls = 7},
};

#define STORIES  (sizeof(stories) / sizeof(stories[0]))
#define MAX_HELD 7

static void take_step(const char *step)
{
    char what[8], from[16], to[16] = "";

    ck_assert_int_ge(sscanf(step, "%7s %15s %15s", what, from, to), 2);
    int r = strcmp(what, "mv") == 0      ? driven_rename(&d, from, to)
            : strcmp(what, "rm") == 0    ? driven_unlink(&d, from)
            : strcmp(what, "mkdir") == 0 ? driven_mkdir(&d, from)
                                         : driven_rmdir(&d, from);
    ck_assert_msg(r == 0, "%s: %d", step, r);
}

/* The store has what the story begins with; the cache knows the names, and has no content. */
static void begin(const struct story *s)
{
    struct stat st;

    atomic_store(&allowed, ALL);
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    for (size_t i = 0; i < 4 && s->dirs[i]; i++)
        ck_assert_int_eq(driven_mkdir(&d, s->dirs[i]), 0);
    for (size_t i = 0; i < 4 && s->files[i]; i++)
        driven_put(&d, s->files[i], s->files[i], strlen(s->files[i]));
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    for (size_t i = 0; i < 4 && s->files[i]; i++)
        ck_assert_int_eq(driven_stat(&d, s->files[i], &st), 0);
}

START_TEST(read_from_where_it_is)
{
    const struct story *s = &stories[_i / MAX_HELD];
    int done = _i % MAX_HELD;

    if (done >= s->calls)
        return;
    begin(s);
    atomic_store(&allowed, 0);
    for (size_t i = 0; i < 12 && s->steps[i]; i++)
        take_step(s->steps[i]);
    atomic_store(&allowed, done);
    DRIVEN_WAIT(atomic_load(&allowed) == 0 && atomic_load(&waiting) > 0);
    for (size_t i = 0; i < 3 && s->now[i][0]; i++)
        driven_shows(&d, s->now[i][0], s->now[i][1]);
    atomic_store(&allowed, ALL);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (size_t i = 0; i < 3 && s->now[i][0]; i++)
        driven_stores(&d, s->now[i][0], s->now[i][1]);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_moved_on");
    TCase *t = tcase_create("cache_moved_on");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, read_from_where_it_is, 0, (int)STORIES * MAX_HELD);
    suite_add_tcase(s, t);
    return suite_run(s);
}
