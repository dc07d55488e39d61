/* A folder: the first file of a new directory comes with it, in one step. */
#include "backends/drivers.h"
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATIENCE (60 * NS_PER_SEC)

static char parent[PATH_MAX], folder[PATH_MAX + 16], beside[PATH_MAX + 32];
static struct op op;
static struct store *s;

static atomic_bool no_replace;              /* the filesystem knows no RENAME_NOREPLACE */
static void (*_Atomic before_rename)(void); /* before the next step that shows something */
static atomic_uint early;                   /* such steps that "new" was there before */

static bool is_there(const char *name)
{
    char path[sizeof(folder) + 64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return lstat(path, &st) == 0;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    void (*before)(void) = atomic_exchange(&before_rename, NULL);

    atomic_fetch_add(&early, is_there("new"));
    if (before)
        before();
    if (flags && atomic_load(&no_replace)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static void setup(void)
{
    temp_dir_make(parent, sizeof(parent));
    (void)snprintf(folder, sizeof(folder), "%s/store", parent);
    (void)snprintf(beside, sizeof(beside), "%s.runfs", folder);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    op_init(&op, PATIENCE);
    int r = local_store_new(folder, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", folder, r, op.why);
    atomic_store(&no_replace, false);
    atomic_store(&early, 0);
}

static void teardown(void)
{
    store_close(s);
    temp_dir_remove(parent);
}

static int put(const char *key, const char *etag)
{
    struct mem_source src;

    mem_source_init(&src, "text", 4);
    return store_put(s, &op, key, etag, &src.base, NULL, NULL);
}

static void has(const char *key)
{
    struct mem_sink sink;
    char buf[16];

    mem_sink_init(&sink, buf, sizeof(buf), 0);
    ck_assert_int_eq(store_read(s, &op, key, NULL, &sink.base, sizeof(buf), 0, NULL), 4);
}

static void nothing_staged_is_left(void)
{
    DIR *dir = opendir(beside);
    struct dirent *e;

    ck_assert_ptr_nonnull(dir);
    while ((e = readdir(dir)))
        ck_assert_msg(e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0, "left: %s",
                      e->d_name);
    (void)closedir(dir);
}

static const char *const keys[] = {"new/file", "new/shards/rank/file"};
static const char *const etags[] = {"", NULL}; /* a first version, or any */

START_TEST(a_new_directory_comes_with_its_first_file)
{
    ck_assert_int_eq(put(keys[_i / 2], etags[_i % 2]), 0);
    has(keys[_i / 2]);
    ck_assert_uint_eq(atomic_load(&early), 0);
    nothing_staged_is_left();
    ck_assert_int_eq(put("new/second", etags[_i % 2]), 0);
    has("new/second");
    nothing_staged_is_left();
}
END_TEST

static void make_new(void)
{
    char path[sizeof(folder) + 64];

    (void)snprintf(path, sizeof(path), "%s/new", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

/* It is somebody's, perhaps with rights of its own. */
START_TEST(one_that_comes_meanwhile_stays)
{
    char path[sizeof(folder) + 64];
    struct stat st;

    atomic_store(&before_rename, make_new);
    ck_assert_int_eq(put(keys[_i / 2], etags[_i % 2]), 0);
    has(keys[_i / 2]);
    (void)snprintf(path, sizeof(path), "%s/new", folder);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    nothing_staged_is_left();
}
END_TEST

START_TEST(a_filesystem_that_knows_no_such_rename)
{
    atomic_store(&no_replace, true);
    ck_assert_int_eq(put(keys[_i / 2], etags[_i % 2]), 0);
    has(keys[_i / 2]);
    nothing_staged_is_left();
}
END_TEST

/* As the kernel gives it to what is made there. */
START_TEST(a_new_directory_has_what_the_one_above_hands_on)
{
    char path[sizeof(folder) + 64];
    struct stat st;

    ck_assert_int_eq(chmod(folder, 02755), 0);
    ck_assert_int_eq(put("new/file", ""), 0);
    (void)snprintf(path, sizeof(path), "%s/new", folder);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & S_ISGID, S_ISGID);
    nothing_staged_is_left();
}
END_TEST

START_TEST(nothing_is_made_below_a_file)
{
    ck_assert_int_eq(put("file", ""), 0);
    ck_assert_int_eq(put("file/new/x", ""), -ENOTDIR);
    nothing_staged_is_left();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local first");
    TCase *t = tcase_create("local first");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_new_directory_comes_with_its_first_file, 0, 4);
    tcase_add_loop_test(t, one_that_comes_meanwhile_stays, 0, 4);
    tcase_add_loop_test(t, a_filesystem_that_knows_no_such_rename, 0, 4);
    tcase_add_test(t, a_new_directory_has_what_the_one_above_hands_on);
    tcase_add_test(t, nothing_is_made_below_a_file);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
