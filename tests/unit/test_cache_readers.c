/* cache/: an open file whose name goes, by a removal or under another file, while renames of it
 * are on their way: it goes on reading its version, of which nothing was here. */
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold; /* what changes the store waits */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind != CALL_STAT && c->kind != CALL_LIST && c->kind != CALL_READ &&
           atomic_load(&hold))
        (void)usleep(1000);
    return call_next(c);
}

/* ---- the stores ---- */

/* Renames natively where nothing is about to go, else by copies, which are new files. */
static void init_folder(void)
{
    driven_init_folder(&d, around, 1 << 20);
}

/* Renames by copies, each of which is a new version. */
static void init_copying(void)
{
    driven_init(&d, around);
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
}

static void init_s3(void)
{
    driven_init_like_s3(&d, around);
}

static void (*const stores[])(void) = {init_folder, init_copying, init_s3};

/* ---- what programs do ---- */

enum { MOVE = 1, REMOVE, MAKE };

/* d/f is open; d/h is another file. */
static const struct step {
    int kind;
    const char *path, *to;
} stories[][6] = {
    {{MOVE, "d", "e"}, {MOVE, "e", "d"}, {REMOVE, "d/f", NULL}},
    {{MOVE, "d", "e"}, {REMOVE, "e/f", NULL}, {MOVE, "e", "d"}},
    {{MOVE, "d", "e"},
     {REMOVE, "e/f", NULL},
     {MOVE, "e", "d"},
     {MAKE, "d/f", NULL},
     {MOVE, "d", "g"}},
    {{MOVE, "d", "e"}, {MOVE, "e", "d"}, {MOVE, "d/h", "d/f"}},
    {{MOVE, "d", "e"}, {MOVE, "e/h", "e/f"}, {MOVE, "e", "g"}},
    {{MOVE, "d", "e"}, {MOVE, "e", "g"}, {MOVE, "g", "d"}, {REMOVE, "d/f", NULL}},
    {{REMOVE, "d/f", NULL}, {MOVE, "d", "e"}},
    {{REMOVE, "d/f", NULL}, {MAKE, "d/f", NULL}, {MOVE, "d", "e"}},
    {{MOVE, "d/h", "d/f"}, {MOVE, "d", "e"}},
    {{MAKE, "new", NULL}, {MOVE, "new", "d/f"}, {MOVE, "d", "e"}},
    {{MOVE, "d/f", "d/z"}, {REMOVE, "d/z", NULL}},
    {{MOVE, "d/f", "d/z"}, {MOVE, "d/h", "d/z"}},
    {{MOVE, "d/f", "d/z"}, {MOVE, "d", "e"}, {REMOVE, "e/z", NULL}},
};

#define STORIES ((int)ARRAY_SIZE(stories))
#define STORES  ((int)ARRAY_SIZE(stores))

static void take(const struct step *s)
{
    if (s->kind == MOVE)
        ck_assert_int_eq(driven_rename(&d, s->path, s->to), 0);
    else if (s->kind == REMOVE)
        ck_assert_int_eq(driven_unlink(&d, s->path), 0);
    else if (s->kind == MAKE)
        driven_put(&d, s->path, "made", 4);
}

/* Two files in the store, of which the cache knows the names alone. */
static void begin(int store, struct handle **ret)
{
    stores[store]();
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/f", "read", 4);
    driven_put(&d, "d/h", "other", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_open(&d, "d/f", O_RDONLY, ret), 0);
}

static void end_of(int story, struct handle *h)
{
    char buf[8];

    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_msg(driven_pread(&d, h, buf, sizeof(buf), 0) == 4, "story %d", story);
    ck_assert_mem_eq(buf, "read", 4);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}

/* The store learns of it at once, or of all together. */
static void tell(int i, bool together)
{
    struct handle *h = NULL;

    begin(i / STORIES, &h);
    atomic_store(&hold, together);
    for (const struct step *s = stories[i % STORIES]; s->kind; s++)
        take(s);
    atomic_store(&hold, false);
    end_of(i % STORIES, h);
}

START_TEST(a_reader_goes_on)
{
    tell(_i, false);
}
END_TEST

START_TEST(a_reader_goes_on_when_all_comes_together)
{
    tell(_i, true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_readers");
    TCase *t = tcase_create("cache_readers");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_reader_goes_on, 0, STORIES * STORES);
    tcase_add_loop_test(t, a_reader_goes_on_when_all_comes_together, 0, STORIES * STORES);
    suite_add_tcase(s, t);
    return suite_run(s);
}
