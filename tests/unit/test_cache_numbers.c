/* cache/: inode numbers of what stores have. They follow from the store and its key, so that
 * they outlive a change of the routes, and a cache that an earlier version filled. */
#include "cache/mirror/stamp.h"
#include "cache/tree/tree_impl.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static const struct routed_row rows[] = {
    {.path = "runs/{run}/checkpoint/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/logs/**", .key = "{run}/**", .leaf = 1},
    {.path = "meta/{run}/**", .key = "{run:b32}/**", .leaf = 2},
};

/* One of them leads to the same keys by other paths, others are new. */
static const struct routed_row changed[] = {
    {.path = "extra/**", .leaf = 1},
    {.path = "old/{run}/**", .key = "{run}/**", .leaf = 0},
    {.path = "runs/{run}/more/**", .key = "more/{run}/**", .leaf = 2},
    {.path = "tmp/**", .scratch = true},
    {.path = "runs/{run}/logs/**", .key = "{run}/**", .leaf = 1},
    {.path = "meta/{run}/**", .key = "{run:b32}/**", .leaf = 2},
};

/* Where `rows` and `changed` show the same; the last ones are no key of one store. */
static const struct {
    const char *path, *then;
} places[] = {
    {"runs/a/checkpoint/model", "old/a/model"},
    {"runs/a/checkpoint/sub/f", "old/a/sub/f"},
    {"runs/a/checkpoint/sub", "old/a/sub"},
    {"runs/a/checkpoint", "old/a"},
    {"runs/a/logs/model", "runs/a/logs/model"},
    {"runs/a/logs", "runs/a/logs"},
    {"meta/a/p.json", "meta/a/p.json"},
    {"meta/a", "meta/a"},
    {"runs/a", "runs/a"},
    {"runs", "runs"},
    {"meta", "meta"},
};

#define PLACES LENGTH(places)

static struct routed_world w;
static enum routed_kind kind;

static void teardown(void)
{
    routed_release(&w);
}

/* `identity` is the mount's. */
static void init(const struct routed_row *table, size_t n, const char *identity)
{
    routed_init(&w, table, n, kind);
    free(w.d.store->url);
    w.d.store->url = strdup(identity);
    routed_store(&w, 0, "a/model", "weights");
    routed_store(&w, 0, "a/sub/f", "text");
    routed_store(&w, 1, "a/model", "lines");
    routed_store(&w, 2, "ME======/p.json", "{}");
}

static void setup(void)
{
    init(rows, LENGTH(rows), "as before");
}

/* What stat() says; a listing shows the same, whichever came first. */
static uint64_t number(const char *path, bool listed_first)
{
    auto_free char *dir = path_parent(path);
    const char *name = path_basename(path);
    uint64_t listed = listed_first ? driven_listed_ino(&w.d, dir, name) : 0;
    struct stat st;
    int r = driven_stat(&w.d, path, &st);

    ck_assert_msg(r == 0, "%s: %d", path, r);
    if (!listed_first)
        listed = driven_listed_ino(&w.d, dir, name);
    ck_assert_msg(st.st_ino == listed, "%s: stat says %ju, the listing %ju", path,
                  (uintmax_t)st.st_ino, (uintmax_t)listed);
    ck_assert(st.st_ino >= 16 && st.st_ino % 2 == 0);
    return st.st_ino;
}

START_TEST(other_routes_to_the_same_keys_leave_the_numbers)
{
    uint64_t was[PLACES];

    driven_mount(&w.d);
    for (size_t i = 0; i < PLACES; i++) {
        was[i] = number(places[i].path, _i);
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(was[i] != was[k], "%s and %s", places[i].path, places[k].path);
    }
    teardown();
    init(changed, LENGTH(changed), "another");
    driven_mount(&w.d);
    for (size_t i = 0; i < PLACES; i++) {
        uint64_t now = number(places[i].then, !_i);
        ck_assert_msg(now == was[i], "%s: %ju, as %s it was %ju", places[i].then,
                      (uintmax_t)now, places[i].path, (uintmax_t)was[i]);
    }
}
END_TEST

/* The cache is taken over then: what the mirror held under its former path is found anew. _i:
 * the routes are others. */
START_TEST(a_cache_that_is_taken_over_shows_the_same_numbers)
{
    char dir[80];

    driven_mount(&w.d);
    driven_shows(&w.d, places[0].path, "weights");
    uint64_t was = number(places[0].path, true);
    driven_unmount(&w.d);
    (void)snprintf(dir, sizeof(dir), "%s-then", w.d.dir);
    ck_assert_int_eq(rename(w.d.dir, dir), 0);
    teardown();
    init(_i ? changed : rows, _i ? LENGTH(changed) : LENGTH(rows), "another");
    ck_assert_int_eq(rmdir(w.d.dir), 0);
    ck_assert_int_eq(rename(dir, w.d.dir), 0);
    driven_mount(&w.d);
    ck_assert_uint_eq(number(_i ? places[0].then : places[0].path, true), was);
}
END_TEST

/* Versions to come derive them so, too. */
#define OF_FILE UINT64_C(4612131555196781204)
#define OF_DIR  UINT64_C(2256822894650569918)
#define OF_PATH UINT64_C(7852928450720983094)

START_TEST(numbers_follow_from_where_the_store_is_and_the_key)
{
    driven_mount(&w.d);
    ck_assert_uint_eq(number(places[0].path, _i), OF_FILE);
    ck_assert_uint_eq(number("runs/a/checkpoint", _i), OF_DIR);
    ck_assert_uint_eq(number("runs/a", _i), OF_PATH);
    uint64_t logs = number("runs/a/logs", _i);
    driven_unmount(&w.d);
    w.names[0].endpoint = "http://localhost:9000";
    w.names[1].name = "other";
    driven_mount_afresh(&w.d);
    ck_assert_uint_ne(number(places[0].path, _i), OF_FILE);
    ck_assert_uint_ne(number("runs/a/checkpoint", _i), OF_DIR);
    ck_assert_uint_ne(number("runs/a/logs", _i), logs);
    ck_assert_uint_eq(number("runs/a", _i), OF_PATH);
}
END_TEST

static const struct routed_row twice[] = {
    {.path = "files/{x}", .key = "{x}", .leaf = 0},
    {.path = "dirs/{x}/**", .key = "{x}/**", .leaf = 0},
};

START_TEST(an_object_and_a_directory_of_one_key_have_two_numbers)
{
    struct stat file, dir;

    teardown();
    init(twice, LENGTH(twice), "as before");
    routed_store(&w, 0, "a", "text");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "files/a", &file), 0);
    ck_assert_int_eq(driven_stat(&w.d, "dirs/a", &dir), 0);
    ck_assert(S_ISREG(file.st_mode) && S_ISDIR(dir.st_mode));
    ck_assert_uint_ne(file.st_ino, dir.st_ino);
}
END_TEST

/* ---- a cache that earlier versions filled ---- */

/* What they made of the identity "as before" and the paths. */
#define FORMER_OF_FILE UINT64_C(3728164662094456094)
#define FORMER_OF_DIR  UINT64_C(4331592210434254024)

static void stamp_number(const char *path, uint64_t ino)
{
    struct stamp_attrs a;
    char in_mirror[256];

    (void)snprintf(in_mirror, sizeof(in_mirror), "%s/mirror/%s", w.d.dir, path);
    auto_close int fd = open(in_mirror, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(stamp_read_attrs(fd, &a), 0);
    a.ino = ino;
    ck_assert_int_eq(stamp_write_attrs(fd, &a), 0);
}

/* Who looks for loops takes a directory for the one above it that has its number. */
static const struct routed_row within[] = {
    {.path = "x/b/**", .key = "x/**", .leaf = 0},
    {.path = "x/{f}", .key = "x/{f}", .leaf = 1},
    {.path = "x/{f}/**", .key = "x/{f}/**", .leaf = 1},
    {.path = "**", .key = "**", .leaf = 0},
};

START_TEST(a_directory_below_itself_has_a_number_of_its_own)
{
    struct stat above, below;

    teardown();
    routed_init(&w, within, LENGTH(within), kind);
    routed_store(&w, 0, "x/deep/f", "text");
    driven_mount(&w.d);
    ck_assert_int_eq(driven_stat(&w.d, "x", &above), 0);
    ck_assert_int_eq(driven_stat(&w.d, "x/b", &below), 0);
    ck_assert(S_ISDIR(above.st_mode) && S_ISDIR(below.st_mode));
    ck_assert_uint_ne(above.st_ino, below.st_ino);
}
END_TEST

static unsigned kept_numbers(void)
{
    cache_lock(w.d.cache);
    unsigned n = HASH_COUNT(w.d.cache->tree->own->moved_inos);
    cache_unlock(w.d.cache);
    return n;
}

START_TEST(what_an_earlier_version_numbered_keeps_its_number)
{
    driven_mount(&w.d);
    driven_shows(&w.d, places[0].path, "weights");
    ck_assert_int_eq(driven_chmod(&w.d, "runs/a/checkpoint", 0711), 0);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    uint64_t beside = number("runs/a/checkpoint/sub/f", true);
    driven_unmount(&w.d);
    stamp_number(places[0].path, FORMER_OF_FILE);
    stamp_number("runs/a/checkpoint", FORMER_OF_DIR);
    driven_mount(&w.d);
    ck_assert_uint_eq(number(places[0].path, _i), FORMER_OF_FILE);
    ck_assert_uint_eq(number("runs/a/checkpoint", _i), FORMER_OF_DIR);
    ck_assert_uint_eq(number("runs/a/checkpoint/sub/f", _i), beside);
    ck_assert_uint_eq(kept_numbers(), 0); /* no key gives them: they need not be known */
    driven_shows(&w.d, places[0].path, "weights");
    ck_assert_int_eq(driven_rename(&w.d, places[0].path, "runs/a/checkpoint/x"), 0);
    ck_assert_uint_eq(number("runs/a/checkpoint/x", _i), FORMER_OF_FILE);
    driven_unmount(&w.d); /* the rename is owed, or was done */
    driven_mount(&w.d);
    ck_assert_uint_eq(number("runs/a/checkpoint/x", _i), FORMER_OF_FILE);
    ck_assert_int_eq(driven_flush(&w.d), 0);
    routed_stores(&w, 0, "a/x", "weights");
    routed_stores(&w, 0, "a/model", NULL);
    driven_mount_afresh(&w.d);
    ck_assert_uint_ne(number("runs/a/checkpoint/x", _i), FORMER_OF_FILE);
    ck_assert_uint_eq(number("runs/a/checkpoint", _i), OF_DIR);
}
END_TEST

/* ---- a mount of a URL ---- */

START_TEST(a_mount_of_a_url_keeps_the_numbers_it_ever_had)
{
    static struct driven d;
    struct stat st;

    driven_init(&d, NULL);
    free(d.store->url); /* which a driven cache has for its identity */
    d.store->url = strdup("{\"layout\":\"plain\",\"url\":\"s3://bucket/prefix\"}");
    driven_store(&d, "dir/file", "text", 4);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "dir/file", &st), 0);
    ck_assert_uint_eq(st.st_ino, UINT64_C(1368784173115991648));
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    ck_assert_uint_eq(st.st_ino, UINT64_C(5110291672843154804));
    driven_release(&d);
}
END_TEST

static TCase *routed_of(const char *name, void (*use)(void))
{
    TCase *t = tcase_create(name);

    tcase_add_unchecked_fixture(t, use, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, other_routes_to_the_same_keys_leave_the_numbers, 0, 2);
    tcase_add_loop_test(t, a_cache_that_is_taken_over_shows_the_same_numbers, 0, 2);
    tcase_add_loop_test(t, numbers_follow_from_where_the_store_is_and_the_key, 0, 2);
    tcase_add_loop_test(t, what_an_earlier_version_numbered_keeps_its_number, 0, 2);
    return t;
}

static void use_s3(void)
{
    kind = ROUTED_S3;
}

static void use_folders(void)
{
    kind = ROUTED_FOLDERS;
}

int main(void)
{
    Suite *s = suite_create("cache_numbers");
    TCase *t = routed_of("like S3", use_s3), *bare = tcase_create("a URL");

    tcase_add_test(t, an_object_and_a_directory_of_one_key_have_two_numbers);
    tcase_add_test(t, a_directory_below_itself_has_a_number_of_its_own);
    suite_add_tcase(s, t);
    suite_add_tcase(s, routed_of("folders", use_folders));
    tcase_add_test(bare, a_mount_of_a_url_keeps_the_numbers_it_ever_had);
    suite_add_tcase(s, bare);
    return suite_run(s);
}
