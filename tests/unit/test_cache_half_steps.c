/* cache/: a change whose n-th step on the cache's disk fails: it is made as a whole or not at
 * all, and what is owed to the store stays owed. Some system calls that change the mirror are
 * ours, so that one of them can fail. */
#include "cache/mirror/stamp.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- the system calls ---- */

/* Of the thread that makes the change. */
static _Thread_local struct {
    unsigned left; /* the one after so many fails; 0 none does */
    int err;       /* with this errno */
    bool failed;
} step;

static bool step_fails(void)
{
    if (step.left == 0 || --step.left > 0)
        return false;
    step.failed = true;
    errno = step.err;
    return true;
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return step_fails() ? -1 : (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return step_fails() ? -1 : (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return step_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return step_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir, const char *name, int flags)
{
    return step_fails() ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}

/* While it stands, ftruncate() moves no time. */
static bool clock_stands;

int ftruncate(int fd, off_t size)
{
    struct stat st;

    if (step_fails() || fstat(fd, &st) < 0 || syscall(SYS_ftruncate, fd, size) < 0)
        return -1;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    return clock_stands ? futimens(fd, times) : 0;
}

/* ---- what is there before ---- */

static struct driven d;

/* "a" and "b" are in the store, unless they are new, and changed, unless they are clean. */
enum before {
    A_CLEAN = 1 << 0,
    A_NEW = 1 << 1,
    B_CLEAN = 1 << 2,
    B_NEW = 1 << 3,
    B_MISSING = 1 << 4,
    B_OPEN = 1 << 5, /* for writing, and changed when the change has failed */
    B_READ = 1 << 6, /* by somebody who has not read anything yet */
    DIRS = 1 << 7,
};

static struct handle *b;

static void put_both(void)
{
    driven_put(&d, "a", "a old", 5);
    driven_put(&d, "b", "b old", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void prepare(unsigned before)
{
    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    if (!(before & (A_NEW | B_NEW | B_MISSING | DIRS)))
        put_both();
    if (before & B_READ)
        driven_mount_afresh(&d);
    if (before & DIRS) {
        ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
        ck_assert_int_eq(driven_mkdir(&d, "b"), 0);
        driven_put(&d, "a/f", "a old", 5);
        ck_assert_int_eq(driven_flush(&d), 0);
        return;
    }
    if (!(before & A_CLEAN))
        driven_put(&d, "a", "a new", 5);
    if (!(before & (B_CLEAN | B_MISSING)))
        driven_put(&d, "b", "b new", 5);
    if (before & (B_OPEN | B_READ))
        ck_assert_int_eq(driven_open(&d, "b", before & B_OPEN ? O_RDWR : O_RDONLY, &b), 0);
}

static const char *a_text(unsigned before)
{
    return before & A_CLEAN ? "a old" : "a new";
}

static const char *b_text(unsigned before)
{
    return before & B_MISSING ? NULL
           : before & B_OPEN  ? "b two"
           : before & B_CLEAN ? "b old"
                              : "b new";
}

static void give_b_back(unsigned before)
{
    char text[8] = "";

    if (before & B_OPEN)
        ck_assert_int_eq(driven_write(&d, b, "b two", 5, 0), 0);
    if (before & B_READ) {
        ck_assert_int_eq(driven_pread(&d, b, text, sizeof(text), 0), 5);
        ck_assert_str_eq(text, "b old");
    }
    if (before & (B_OPEN | B_READ))
        ck_assert_int_eq(driven_close(&d, b), 0);
}

/* ---- the changes ---- */

static int rename_it(void)
{
    return driven_rename(&d, "a", "b");
}

static int exchange(void)
{
    return driven_exchange(&d, "a", "b");
}

static int link_it(void)
{
    return driven_link(&d, "a", "b");
}

static int remove_it(void)
{
    return driven_unlink(&d, "b");
}

static int create(void)
{
    struct handle *h = NULL;
    int r = driven_open(&d, "b", O_WRONLY | O_CREAT | O_EXCL, &h);

    step.left = 0;
    return r < 0 ? r : driven_close(&d, h);
}

static int make_dir(void)
{
    return driven_mkdir(&d, "b");
}

static const struct {
    int (*change)(void);
    unsigned before;
    const char *a, *b; /* when it is made; NULL: not there, "/": a directory */
} t[] = {
    {rename_it, A_NEW | B_NEW, NULL, "a new"},
    {rename_it, 0, NULL, "a new"},
    {rename_it, A_CLEAN, NULL, "a old"},
    {rename_it, B_CLEAN, NULL, "a new"},
    {rename_it, A_CLEAN | B_CLEAN, NULL, "a old"},
    {rename_it, B_OPEN, NULL, "a new"},
    {rename_it, A_NEW | B_NEW | B_OPEN, NULL, "a new"},
    {rename_it, A_CLEAN | B_CLEAN | B_READ, NULL, "a old"},
    {rename_it, A_NEW | B_MISSING, NULL, "a new"},
    {rename_it, DIRS, NULL, "/"},
    {exchange, 0, "b new", "a new"},
    {exchange, A_NEW | B_NEW, "b new", "a new"},
    {exchange, A_CLEAN | B_CLEAN, "b old", "a old"},
    {exchange, DIRS, "/", "/"},
    {link_it, A_NEW | B_MISSING, "a new", "a new"},
    {remove_it, 0, "a new", NULL},
    {remove_it, B_NEW | A_NEW, "a new", NULL},
    {remove_it, B_OPEN, "a new", NULL},
    {create, A_NEW | B_MISSING, "a new", ""},
    {make_dir, A_NEW | B_MISSING, "a new", "/"},
};

/* The mount, and the store, show the name so. */
static void shows(const char *name, const char *wanted)
{
    struct stat st;

    if (!wanted)
        ck_assert_int_eq(driven_stat(&d, name, &st), -ENOENT);
    else if (strcmp(wanted, "/") == 0)
        ck_assert_int_ge(driven_list(&d, name), 0);
    else
        driven_shows(&d, name, wanted);
}

static unsigned orphans(void)
{
    char path[96];
    unsigned n = 0;

    (void)snprintf(path, sizeof(path), "%s/orphans", d.dir);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

static bool in_mirror(const char *name)
{
    char path[96];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d.dir, name);
    return lstat(path, &st) == 0;
}

/* Nothing of it was made, and all that was owed before reaches the store. */
static void unchanged(unsigned before)
{
    bool dirs = before & DIRS;
    const char *texts[2] = {dirs ? "/" : a_text(before), dirs ? "/" : b_text(before)};

    shows("a", texts[0]);
    if (!(before & B_OPEN))
        shows("b", texts[1]);
    ck_assert_int_eq(in_mirror("b"), texts[1] != NULL);
    give_b_back(before);
    for (int round = 0; round < 3; round++) {
        shows("a", texts[0]);
        shows("b", texts[1]);
        if (dirs)
            driven_shows(&d, "a/f", "a old");
        ck_assert_int_eq(driven_flush(&d), 0);
        if (round == 0)
            DRIVEN_WAIT(orphans() == 0);
        if (round == 0) {
            driven_unmount(&d);
            driven_mount(&d);
        } else if (round == 1) {
            driven_mount_afresh(&d);
        }
    }
}

static void changed(int i)
{
    if (t[i].before & (B_OPEN | B_READ))
        ck_assert_int_eq(driven_close(&d, b), 0);
    for (int round = 0; round < 3; round++) {
        shows("a", t[i].a);
        shows("b", t[i].b);
        ck_assert_int_eq(driven_flush(&d), 0);
        if (round == 0) {
            driven_unmount(&d);
            driven_mount(&d);
        } else if (round == 1) {
            driven_mount_afresh(&d);
        }
    }
}

START_TEST(a_step_that_fails)
{
    static const int errors[] = {EMFILE, EROFS};
    bool failed = true;

    for (unsigned n = 1; failed; n += every(SOME_STEPS)) {
        ck_assert_uint_lt(n, 50);
        prepare(t[_i].before);
        step.err = errors[n % ARRAY_SIZE(errors)];
        step.failed = false;
        step.left = n;
        int r = t[_i].change();
        step.left = 0;
        failed = step.failed;
        ck_assert_msg(r == 0 || (failed && r == -step.err), "step %u: %s", n, strerror(-r));
        if (r < 0)
            unchanged(t[_i].before);
        else
            changed(_i);
        driven_release(&d);
    }
}
END_TEST

/* ---- truncating ---- */

/* What is in the store and not in the cache. */
static void elsewhere(void)
{
    driven_put(&d, "f", "whole", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
}

static void clean(void)
{
    driven_put(&d, "f", "whole", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void dirty(void)
{
    elsewhere();
    driven_put(&d, "f", "whole", 5);
}

static void new_here(void)
{
    driven_put(&d, "f", "whole", 5);
}

/* It had been synced with another size within this tick of the clock. */
static void synced_just_now(void)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "whole", 5, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    clock_stands = true;
    ck_assert_int_eq(driven_truncate(&d, "f", 3), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static int by_open(uint64_t size)
{
    struct handle *h = NULL;
    int r = driven_open(&d, "f", O_WRONLY | O_TRUNC, &h);

    ck_assert_uint_eq(size, 0);
    step.left = 0;
    return r < 0 ? r : driven_close(&d, h);
}

static int by_path(uint64_t size)
{
    return driven_truncate(&d, "f", size);
}

static const struct {
    void (*before)(void);
    int (*change)(uint64_t size);
    uint64_t size;
} truncates[] = {
    {elsewhere, by_path, 0},       {elsewhere, by_path, 3}, {elsewhere, by_open, 0},
    {clean, by_path, 0},           {clean, by_path, 3},     {clean, by_open, 0},
    {dirty, by_path, 0},           {dirty, by_path, 3},     {dirty, by_open, 0},
    {new_here, by_path, 0},        {new_here, by_path, 3},  {new_here, by_open, 0},
    {synced_just_now, by_path, 5},
};

/* Whether it was made or not, what the mount shows reaches the store, and is there in the next
 * mount. */
static void is_one_thing(const char old[8], uint64_t size, bool made)
{
    struct cache_stats stats;
    char text[64] = "", now[64] = "";
    ssize_t n = driven_read(&d, "f", text, sizeof(text));

    ck_assert(n == (ssize_t)size || (!made && (size_t)n == strlen(old)));
    ck_assert_mem_eq(text, old, (size_t)n);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int round = 0; round < 3; round++) {
        ck_assert_int_eq(driven_stored(&d, "f", now, sizeof(now)), n);
        ck_assert_mem_eq(now, text, (size_t)n);
        ck_assert_int_eq(driven_read(&d, "f", now, sizeof(now)), n);
        ck_assert_mem_eq(now, text, (size_t)n);
        cache_get_stats(d.cache, &stats);
        ck_assert_uint_eq(stats.dirty_files + stats.kept_files, 0);
        driven_unmount(&d);
        driven_mount(&d);
        ck_assert_int_eq(driven_flush(&d), 0);
    }
}

START_TEST(a_truncate_that_fails)
{
    static const char old[2][8] = {"whole", "who"};
    bool failed = true;

    for (unsigned n = 1; failed; n += every(SOME_STEPS)) {
        ck_assert_uint_lt(n, 50);
        driven_init_like_s3(&d, NULL);
        d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
        driven_mount(&d);
        truncates[_i].before();
        step.err = n % 2 ? ENOSPC : EROFS;
        step.failed = false;
        step.left = n;
        int r = truncates[_i].change(truncates[_i].size);
        step.left = 0;
        clock_stands = false;
        failed = step.failed;
        ck_assert_msg(r == 0 || (failed && r == -step.err), "step %u: %s", n, strerror(-r));
        is_one_thing(old[truncates[_i].size == 5], truncates[_i].size, r == 0);
        driven_release(&d);
    }
}
END_TEST

/* As ftruncate(fd, 0). */
static int empty(struct handle *h)
{
    struct waiter w = {0}; /* nothing is waited for */
    struct stat st = {0};
    struct node *n = NULL;
    struct op op;

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(cache_walk(d.cache, "f", &op, &n), 0);
    int r = cache_setattr(d.cache, n, h, CACHE_SET_SIZE, &w, &st);
    cache_forget(d.cache, n, 1);
    return r;
}

static bool is_begun_on_disk(void)
{
    struct stamp_attrs a = {0};
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    auto_close int fd = open(path, O_RDONLY);
    ck_assert_int_eq(stamp_read_attrs(fd, &a), 0);
    return a.flags & STAMP_BEGUN;
}

/* What is still there of an open file that could not be emptied is as whole as it was: it goes
 * up, and no kill keeps it aside. */
START_TEST(an_open_file_that_can_not_be_emptied_stays_whole)
{
    struct handle *h = NULL;
    bool failed = true;
    struct stat st;

    for (unsigned n = 1; failed; n += every(SOME_STEPS)) {
        ck_assert_uint_lt(n, 50);
        driven_init_like_s3(&d, NULL);
        d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
        driven_mount(&d);
        _i ? new_here() : clean();
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
        step.err = EIO;
        step.failed = false;
        step.left = n;
        int r = empty(h);
        step.left = 0;
        failed = step.failed;
        ck_assert_int_eq(r, failed ? -EIO : 0);
        ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
        ck_assert_int_eq(is_begun_on_disk(), st.st_size == 0);
        ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
        ck_assert_int_eq(is_begun_on_disk(), st.st_size == 0);
        ck_assert_int_eq(driven_flush(&d), st.st_size ? 0 : -ETXTBSY);
        ck_assert_int_eq(driven_close(&d, h), 0);
        driven_release(&d);
    }
}
END_TEST

/* ---- records ---- */

#define NAMES 60 /* more than there is room for */
#define FEW   15 /* less */

static const char *nth_name(int i)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "a-name-that-takes-some-room-%04d", i);
    return name;
}

/* A stamp that has not all records says so until it has them: what this cache put under the
 * other names is not taken for another node's. */
START_TEST(records_that_can_not_be_written)
{
    struct cache_stats stats;
    char first[64];

    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    (void)snprintf(first, sizeof(first), "%s", nth_name(0));
    driven_put(&d, first, "one", 3);
    for (int i = 1; i < NAMES; i++)
        ck_assert_int_eq(driven_link(&d, first, nth_name(i)), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    step.err = ENOSPC;
    for (int i = NAMES - 1; i >= FEW; i--) {
        step.left = 2; /* the name, and then the records */
        ck_assert_int_eq(driven_unlink(&d, nth_name(i)), 0);
    }
    step.left = 0;
    driven_put(&d, first, "two", 3);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < FEW; i++)
        driven_stores(&d, nth_name(i), "two");
    cache_get_stats(d.cache, &stats);
    ck_assert_uint_eq(stats.kept_files, 0);
    driven_release(&d);
}
END_TEST

/* The link is answered though its last stamp is refused, which says that the file has a place
 * in the order: a kill does not take it for a name that the store has. */
START_TEST(a_link_of_a_file_without_all_records)
{
    char first[64];

    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    (void)snprintf(first, sizeof(first), "%s", nth_name(0));
    driven_put(&d, first, "one", 3);
    for (int i = 1; i < NAMES; i++)
        ck_assert_int_eq(driven_link(&d, first, nth_name(i)), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    step.err = ENOSPC;
    step.failed = false;
    step.left = 3; /* a stamp, the name, and then the other stamp */
    ck_assert_int_eq(driven_link(&d, first, "new"), 0);
    step.left = 0;
    ck_assert(step.failed);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "new", "one");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new", "one");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_half_steps");
    TCase *c = tcase_create("cache_half_steps");

    tcase_set_timeout(c, 60);
    tcase_add_some_test(c, a_step_that_fails, 0, ARRAY_SIZE(t), SOME_KINDS);
    tcase_add_some_test(c, a_truncate_that_fails, 0, ARRAY_SIZE(truncates), SOME_KINDS);
    tcase_add_loop_test(c, an_open_file_that_can_not_be_emptied_stays_whole, 0, 2);
    tcase_add_test(c, records_that_can_not_be_written);
    tcase_add_test(c, a_link_of_a_file_without_all_records);
    suite_add_tcase(s, c);
    return suite_run(s);
}
