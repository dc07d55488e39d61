/* cache/: what one of several stores refuses, a name or for space, beside others that take all.
 */
#include "cache/tree/tree.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0},
    {.path = "b/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct routed_world w;

static void setup(void)
{
    routed_init(&w, rows, ROWS, ROUTED_S3);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "c"), 0);
}

static void teardown(void)
{
    routed_release(&w);
}

static void put(const char *path, const char *text)
{
    driven_put(&w.d, path, text, strlen(text));
}

static bool is_failed(const char *path)
{
    return strcmp(driven_state(&w.d, path), "failed") == 0;
}

/* The store is asked, and refuses, at least twice more. */
static void await_requests(unsigned leaf)
{
    unsigned before = atomic_load(&w.leaves[leaf].requests);

    DRIVEN_WAIT(atomic_load(&w.leaves[leaf].requests) >= before + 3);
}

/* A removal elsewhere waits until it is the name that is refused, and not everything. */
START_TEST(a_name_is_refused_once_its_own_store_took_another)
{
    put("c/old", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].refused_key, "a/bad");
    put("a/bad", "bad");
    ck_assert_int_eq(driven_unlink(&w.d, "c/old"), 0);
    DRIVEN_WAIT(is_failed("a/bad"));
    for (char name[] = "b/1"; name[2] <= '3'; name[2]++) {
        put(name, "taken");
        DRIVEN_WAIT(routed_has(&w, 1, name));
        await_requests(0);
    }
    ck_assert(routed_has(&w, 2, "c/old"));
    put("a/good", "taken");
    DRIVEN_WAIT(!routed_has(&w, 2, "c/old"));
    ck_assert(!routed_has(&w, 0, "a/bad"));
}
END_TEST

/* The store that it moves to is full, and its own one, too. */
START_TEST(an_only_copy_makes_no_room)
{
    put("a/f", "only copy");
    put("a/old", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].full, true);
    atomic_store(&w.leaves[1].full, true);
    put("a/x", "fills");
    DRIVEN_WAIT(is_failed("a/x"));
    ck_assert_int_eq(driven_rename(&w.d, "a/f", "b/f"), 0);
    DRIVEN_WAIT(is_failed("b/f"));
    ck_assert_int_eq(driven_unlink(&w.d, "a/old"), 0);
    DRIVEN_WAIT(!routed_has(&w, 0, "a/old"));
    await_requests(1);
    ck_assert(routed_has(&w, 0, "a/f"));
    atomic_store(&w.leaves[0].full, false);
    atomic_store(&w.leaves[1].full, false);
    DRIVEN_WAIT(driven_flush(&w.d) == 0); /* an answer of before may be on its way */
    routed_stores(&w, 0, "a/f", NULL);
    routed_stores(&w, 1, "b/f", "only copy");
}
END_TEST

/* In a full store a removal waits for what goes to one that has room. */
START_TEST(a_full_store_waits_for_others)
{
    put("b/old", "old");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[1].full, true);
    put("b/x", "fills");
    DRIVEN_WAIT(is_failed("b/x"));
    atomic_store(&w.leaves[0].no_puts, true);
    put("a/new", "new");
    DRIVEN_WAIT(is_failed("a/new"));
    ck_assert_int_eq(driven_unlink(&w.d, "b/old"), 0);
    await_requests(0);
    ck_assert(routed_has(&w, 1, "b/old"));
    atomic_store(&w.leaves[0].no_puts, false);
    DRIVEN_WAIT(!routed_has(&w, 1, "b/old"));
    ck_assert(!routed_has(&w, 1, "b/x"));
}
END_TEST

/* Of a directory in which several stores have a part nobody knows which one refused it. */
START_TEST(a_shared_directory_is_of_no_one_store)
{
    static const struct {
        const char *path;
        unsigned volume;
    } dirs[] = {{"", 0}, {"a", 1}, {"a/d", 1}, {"b", 2}, {"c", 3}, {"c/a", 3}};

    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        ck_assert_msg(dir_lone_volume(w.d.cache, dirs[i].path) == dirs[i].volume, "%s: %u",
                      dirs[i].path, dir_lone_volume(w.d.cache, dirs[i].path));
}
END_TEST

/* A user makes room in a full store by moving what is in it to another one: its old name goes
 * once the other store has it, though the full one still lacks what was closed before. */
START_TEST(what_left_a_full_store_makes_room)
{
    put("a/f", "big");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    atomic_store(&w.leaves[0].full, true);
    put("a/x", "fills");
    DRIVEN_WAIT(is_failed("a/x"));
    ck_assert_int_eq(driven_rename(&w.d, "a/f", "b/f"), 0);
    DRIVEN_WAIT(routed_has(&w, 1, "b/f"));
    DRIVEN_WAIT(!routed_has(&w, 0, "a/f"));
    ck_assert(!routed_has(&w, 0, "a/x"));
}
END_TEST

/* As a program does that syncs the directory which it takes the file from, or brings it to,
 * before it closes the file. */
START_TEST(a_directory_is_synced_though_a_file_that_left_it_is_open)
{
    struct handle *h = NULL;

    routed_release(&w);
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.d.config.durability = DURABILITY_STORE;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    ck_assert_int_eq(driven_open(&w.d, "a/f.tmp", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "content", 7, 0), 0);
    ck_assert_int_eq(driven_fsync(&w.d, h), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/f.tmp", "b/f"), 0);
    ck_assert_int_eq(driven_fsyncdir(&w.d, _i ? "b" : "a"), 0);
    if (_i == 0)
        routed_stores(&w, 0, "a/f.tmp", NULL);
    routed_stores(&w, 1, "b/f", "content");
    ck_assert_int_eq(driven_close(&w.d, h), 0);
}
END_TEST

/* What is half goes up when it is closed, by the one who waits here. */
START_TEST(a_directory_is_synced_though_a_half_file_came_to_it)
{
    static const struct {
        const char *to, *dir;
    } cases[] = {{"b/f", "b"}, {"a/f", "a"}, {"b/f", "a"}};
    struct handle *h = NULL;

    routed_release(&w);
    routed_init(&w, rows, ROWS, ROUTED_S3);
    w.d.config.durability = DURABILITY_STORE;
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "b"), 0);
    put("a/f.tmp", "older");
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_open(&w.d, "a/f.tmp", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&w.d, h, "content", 7, 0), 0);
    ck_assert_int_eq(driven_rename(&w.d, "a/f.tmp", cases[_i].to), 0);
    ck_assert_int_eq(driven_fsyncdir(&w.d, cases[_i].dir), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    routed_stores(&w, *cases[_i].to == 'b', cases[_i].to, "content");
}
END_TEST

static const struct routed_row layout[] = {
    {.path = "runs/{run}/checkpoint/**", .leaf = 0},
    {.path = "runs/{run}/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

/* The run can't be removed in the store of its own key; another one has what is made there
 * again. */
START_TEST(a_removal_that_fails_holds_no_other_store)
{
    routed_release(&w);
    routed_init(&w, layout, 3, ROUTED_S3);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    ck_assert_int_eq(driven_list(&w.d, "runs/a"), 0);
    atomic_store(&w.leaves[1].down, true);
    ck_assert_int_eq(driven_rmdir(&w.d, "runs/a"), 0);
    await_requests(1);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a"), 0);
    ck_assert_int_eq(driven_mkdir(&w.d, "runs/a/checkpoint"), 0);
    DRIVEN_WAIT(routed_has(&w, 0, "runs/a/checkpoint"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_refused_routes");
    TCase *t = tcase_create("cache_refused_routes");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_name_is_refused_once_its_own_store_took_another);
    tcase_add_test(t, an_only_copy_makes_no_room);
    tcase_add_test(t, a_full_store_waits_for_others);
    tcase_add_test(t, a_shared_directory_is_of_no_one_store);
    tcase_add_test(t, what_left_a_full_store_makes_room);
    tcase_add_loop_test(t, a_directory_is_synced_though_a_file_that_left_it_is_open, 0, 2);
    tcase_add_loop_test(t, a_directory_is_synced_though_a_half_file_came_to_it, 0, 3);
    tcase_add_test(t, a_removal_that_fails_holds_no_other_store);
    return suite_run(s);
}
