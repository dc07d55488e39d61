/* cache/: a cache directory that is a copy of another one, or came back without the extended
 * attributes that its stamps are. What has content and no stamp is set aside, and never
 * published. And a store whose folder is not in its place, or that is another one. */
#include "backends/drivers.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE (32 << 20) /* more than a reader is read ahead at once */

static atomic_bool refusing; /* the store takes no puts, and removes nothing */
static struct driven d;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (atomic_load(&refusing) && (c->kind == CALL_PUT || c->kind == CALL_REMOVE))
        return op_fail(c->op, -EACCES, "%s %s: refused", call_name(c->kind), c->key);
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&refusing, false);
    driven_init_like_s3(&d, around);
}

static void teardown(void)
{
    driven_release(&d);
}

/* The command finds the two paths in its environment, or does not run: without the first one
 * "$FROM/" is the whole machine. */
static void run(const char *command, const char *from, const char *to)
{
    auto_free char *text = NULL;

    ck_assert(setenv("FROM", from, 1) == 0 && setenv("TO", to, 1) == 0);
    ck_assert_int_ge(asprintf(&text, ": \"${FROM:?}\" \"${TO?}\"; %s", command), 0);
    ck_assert_msg(system(text) == 0, "%s", command);
}

static bool in_cache(const char *path)
{
    char at[256];

    (void)snprintf(at, sizeof(at), "%s/%s", d.dir, path);
    return access(at, F_OK) == 0;
}

/* The unmounted cache directory is replaced by what the command makes of it. */
static void replace_by_copy(const char *command)
{
    char original[80];

    (void)snprintf(original, sizeof(original), "%s.orig", d.dir);
    ck_assert_int_eq(rename(d.dir, original), 0);
    run(command, original, d.dir);
    run("rm -rf \"$FROM\"", original, "");
}

/* ---- without extended attributes ---- */

static const char *const stampless[] = {
    "cp -r \"$FROM\" \"$TO\"",
    "rsync -a \"$FROM/\" \"$TO\"",
    "mkdir \"$TO\" && tar -C \"$FROM\" -cf - . | tar -C \"$TO\" -xf -",
};

/* The first word is the program. */
static bool installed(const char *command)
{
    char ask[64];

    (void)snprintf(ask, sizeof(ask), "command -v %.*s >/dev/null", (int)strcspn(command, " "),
                   command);
    return system(ask) == 0;
}

static void store_large(const char *key)
{
    auto_free char *data = malloc(LARGE);

    memset(data, 'x', LARGE);
    driven_store(&d, key, data, LARGE);
}

/* A large object of which the cache has a little then. */
static void read_a_little(const char *key)
{
    struct handle *h = NULL;
    char buf[16];

    ck_assert_int_eq(driven_open(&d, key, O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), 0), sizeof(buf));
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_str_eq(driven_state(&d, key), "partial");
}

static void still_large(const char *key)
{
    auto_free char *data = malloc(LARGE + 1);

    ck_assert_int_eq(driven_stored(&d, key, data, LARGE + 1), LARGE);
    /* Each byte is that before it, and the first one is right. */
    ck_assert(data[0] == 'x' && memcmp(data, data + 1, LARGE - 1) == 0);
}

START_TEST(content_without_a_stamp_is_never_published)
{
    struct cache_stats s;

    if (!installed(stampless[_i]))
        return;
    store_large("part");
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "old", 3);
    driven_put(&d, "clean", "clean", 5);
    driven_put(&d, "gone", "gone", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    read_a_little("part");
    atomic_store(&refusing, true);
    driven_put(&d, "dir/f", "newer", 5);
    driven_put(&d, "dir/empty", "", 0);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    driven_unmount(&d);
    replace_by_copy(stampless[_i]);
    atomic_store(&refusing, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    still_large("part");
    driven_stores(&d, "dir/f", "old");
    driven_stores(&d, "clean", "clean");
    driven_stores(&d, "dir/empty", NULL);
    /* It waited for an upload that never comes. */
    driven_stores(&d, "gone", "gone");
    driven_shows(&d, "clean", "clean");
    driven_shows(&d, "dir/f", "old");
    ck_assert(in_cache("kept/part") && in_cache("kept/dir/f") && in_cache("kept/dir/empty"));
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 4);
    ck_assert_uint_eq(s.unstamped_files, 4);
    driven_unmount(&d);
    driven_mount(&d); /* all that is told of it is told by kept/ from now on */
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 4);
    ck_assert_uint_eq(s.unstamped_files, 0);
}
END_TEST

/* One that was put into a mirror by hand, or whose stamp a disk lost. */
START_TEST(a_single_file_without_a_stamp_is_set_aside)
{
    struct cache_stats s;
    char at[128];

    driven_mount(&d);
    driven_put(&d, "f", "good", 4);
    driven_put(&d, "g", "good", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    (void)snprintf(at, sizeof(at), "%s/mirror", d.dir);
    run("cd \"$FROM\" && printf alien >g.new && mv g.new g && : >empty", at, "");
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", "good");
    driven_stores(&d, "empty", NULL);
    ck_assert(in_cache("kept/g") && !in_cache("kept/empty"));
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.unstamped_files, 1);
    driven_shows(&d, "g", "good");
    driven_shows(&d, "f", "good");
}
END_TEST

/* ---- the store's folder ---- */

/* The disk of the folder is not mounted, and its empty mountpoint has the path. */
START_TEST(an_unmounted_disk_is_no_empty_store)
{
    struct store *mountpoint = NULL;
    struct cache *c = NULL;
    struct driven e;
    char away[96];
    struct op op;

    driven_init_folder(&e, NULL, 65536);
    driven_mount(&e);
    driven_put(&e, "stored", "stored", 6);
    ck_assert_int_eq(driven_flush(&e), 0);
    driven_unmount(&e);
    (void)snprintf(away, sizeof(away), "%s.away", e.folder);
    ck_assert_int_eq(rename(e.folder, away), 0);
    ck_assert_int_eq(mkdir(e.folder, 0700), 0);
    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(local_store_new(e.folder, NULL, &op, &mountpoint), 0);
    ck_assert_int_eq(cache_new(&e.config, mountpoint, &op, &c), -ENODEV);
    ck_assert_msg(strstr(op.why, "is its disk not mounted") != NULL, "%s", op.why);
    store_close(mountpoint);
    ck_assert_int_eq(rmdir(e.folder), 0); /* nothing was put there, either */
    ck_assert_int_eq(rename(away, e.folder), 0);
    driven_mount(&e);
    ck_assert_str_eq(driven_state(&e, "stored"), "clean");
    driven_shows(&e, "stored", "stored");
    driven_release(&e);
}
END_TEST

/* ---- another store ---- */

static atomic_uint told;

static void count_notices(void *arg, struct node *n, const char *name)
{
    (void)arg;
    (void)n;
    (void)name;
    atomic_fetch_add(&told, 1);
}

/* As after an edit of fstab: what the cache holds goes before there is a kernel to tell. */
START_TEST(a_cache_takes_another_store)
{
    struct driven e;
    char empty[sizeof(e.dir)];

    d.config.invalidate = count_notices;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "content", 7);
    driven_put(&d, "g", "content", 7);
    ck_assert_int_eq(driven_symlink(&d, "g", "link"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_end(&d);
    driven_init_like_s3(&e, NULL);
    memcpy(empty, e.dir, sizeof(empty));
    memcpy(e.dir, d.dir, sizeof(empty));
    e.config.invalidate = count_notices;
    driven_store(&e, "other", "theirs", 6);
    atomic_store(&told, 0);
    driven_mount(&e);
    ck_assert_uint_eq(atomic_load(&told), 0);
    ck_assert(!in_cache("mirror/g") && !in_cache("mirror/dir"));
    driven_shows(&e, "other", "theirs");
    ck_assert_int_eq(driven_flush(&e), 0);
    driven_stores(&e, "g", NULL);
    driven_end(&e);
    memcpy(e.dir, empty, sizeof(empty));
    driven_release(&e);
    driven_mount(&d);
    driven_shows(&d, "g", "content");
    driven_stores(&d, "dir/f", "content");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_place");
    TCase *t = tcase_create("copies");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, content_without_a_stamp_is_never_published, 0,
                        sizeof(stampless) / sizeof(*stampless));
    tcase_add_test(t, a_single_file_without_a_stamp_is_set_aside);
    tcase_add_test(t, an_unmounted_disk_is_no_empty_store);
    tcase_add_test(t, a_cache_takes_another_store);
    suite_add_tcase(s, t);
    return suite_run(s);
}
