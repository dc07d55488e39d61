/* cache/: a change of the namespace that the disk refuses in the middle, at each of its calls,
 * has not happened: in the mirror, in the tree, in the journal, and for the store. */
#include "cache/cache.h"
#include "common/buf.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct driven d;

/* ---- a disk that refuses one call ---- */

static atomic_int refused_in; /* so many calls from now on; 0: none is */

static bool refuses(void)
{
    if (atomic_load(&refused_in) == 0 || atomic_fetch_sub(&refused_in, 1) != 1)
        return false;
    errno = EIO;
    return true;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return refuses() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat2(from_dir, from, to_dir, to, 0);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return refuses() ? -1 : (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir, const char *name, int flags)
{
    return refuses() ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return refuses() ? -1 : (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

/* ---- what there is ---- */

static const char *const names[] = {"f",  "g",  "g2",   "d", "d/x", "e",  "new",
                                    "nd", "ln", "new2", "h", "e/x", "f/x"};

/* Each name with its kind and what it holds; with the number of its links, which no store
 * knows.
 */
static char *tree_text(bool links)
{
    auto_buf struct buf b = BUF_INIT(64 << 10);

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char text[16] = "";
        struct stat st;
        if (driven_stat(&d, names[i], &st) < 0)
            continue;
        if (S_ISREG(st.st_mode))
            ck_assert_int_ge(driven_read(&d, names[i], text, sizeof(text) - 1), 0);
        ck_assert_int_eq(buf_addf(&b, "%s %o %u %s\n", names[i], (unsigned)st.st_mode,
                                  links ? (unsigned)st.st_nlink : 0, text),
                         0);
    }
    return buf_take(&b);
}

static void add_disk_text(struct buf *b, const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    ck_assert_ptr_nonnull(dir);
    while ((e = readdir(dir))) {
        char at[512];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        (void)snprintf(at, sizeof(at), "%s/%s", path, e->d_name);
        ck_assert_int_eq(lstat(at, &st), 0);
        ck_assert_int_eq(buf_addf(b, "%s %o\n", at, (unsigned)st.st_mode & S_IFMT), 0);
        if (S_ISDIR(st.st_mode))
            add_disk_text(b, at);
    }
    (void)closedir(dir);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The mirror's names, and what is left over beside it, in order. */
static char *disk_text(void)
{
    auto_buf struct buf b = BUF_INIT(64 << 10), sorted = BUF_INIT(64 << 10);
    static const char *const parts[] = {"mirror", "incoming", "orphans"};
    char path[128], *lines[128], *rest;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", d.dir, parts[i]);
        add_disk_text(&b, path);
    }
    auto_free char *text = buf_take(&b);
    for (char *line = strtok_r(text, "\n", &rest); line && n < ARRAY_SIZE(lines);
         line = strtok_r(NULL, "\n", &rest))
        lines[n++] = line;
    qsort(lines, n, sizeof(*lines), by_text);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(buf_addf(&sorted, "%s\n", lines[i]), 0);
    return buf_take(&sorted);
}

static int count_row(void *arg, const struct cache_pending *p)
{
    bool is_row = strcmp(p->kind, "mkdir") != 0 && strcmp(p->kind, "write") != 0;

    *(int *)arg += is_row;
    return 0;
}

/* Removals and renames that wait. */
static int rows(void)
{
    int n = 0;

    ck_assert_int_eq(cache_each_pending(d.cache, count_row, &n), 0);
    return n;
}

/* ---- changes ---- */

static int put_new(void)
{
    struct handle *h = NULL;
    int r = driven_open(&d, "new", O_WRONLY | O_CREAT | O_EXCL, &h);

    if (r == 0)
        (void)driven_close(&d, h); /* no part of the change */
    return r;
}

static int make_dir(void)
{
    return driven_mkdir(&d, "nd");
}

static int make_symlink(void)
{
    return driven_symlink(&d, "f", "ln");
}

static int make_link(void)
{
    return driven_link(&d, "f", "new2");
}

static int unlink_stored(void)
{
    return driven_unlink(&d, "f");
}

static int unlink_one_of_two(void)
{
    return driven_unlink(&d, "g2");
}

static int remove_dir(void)
{
    return driven_rmdir(&d, "e");
}

static int rename_file(void)
{
    return driven_rename(&d, "f", "h");
}

static int rename_over(void)
{
    return driven_rename(&d, "f", "d/x");
}

static int rename_over_one_of_two(void)
{
    return driven_rename(&d, "f", "g");
}

static int rename_dir(void)
{
    return driven_rename(&d, "d", "e");
}

static int exchange_files(void)
{
    return driven_exchange(&d, "f", "g");
}

static int exchange_dirs(void)
{
    return driven_exchange(&d, "d", "e");
}

static int exchange_kinds(void)
{
    return driven_exchange(&d, "f", "d");
}

static int (*const changes[])(void) = {
    put_new,           make_dir,       make_symlink,  make_link,      unlink_stored,
    unlink_one_of_two, remove_dir,     rename_file,   rename_over,    rename_over_one_of_two,
    rename_dir,        exchange_files, exchange_dirs, exchange_kinds,
};

/* `f`; `g` and `g2`, one file; `d/x`; `e`: all in the store, and known. */
static void setup_tree(void)
{
    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 3600 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    driven_put(&d, "g", "two", 3);
    ck_assert_int_eq(driven_link(&d, "g", "g2"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/x", "three", 5);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* What a change leaves that is asked for once more after it was refused, with the store. */
static void comes_true(int (*change)(void))
{
    int r = change();

    ck_assert_msg(r == 0, "the second time: %s", strerror(-r));
    auto_free char *wanted = tree_text(false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(rows(), 0);
    driven_mount_afresh(&d);
    auto_free char *stored = tree_text(false);
    ck_assert_str_eq(stored, wanted);
}

/* Whether the call was refused before the change was through. */
static bool refused_at(int (*change)(void), int call, bool afresh)
{
    setup_tree();
    auto_free char *tree = tree_text(true), *disk = disk_text();
    atomic_store(&refused_in, call);
    int r = change();
    bool reached = atomic_exchange(&refused_in, 0) == 0;
    if (r == 0 || !reached) { /* that it failed was no matter */
        ck_assert_int_eq(r, 0);
        driven_release(&d);
        return reached;
    }
    ck_assert_int_eq(r, -EIO);
    if (afresh) { /* the next mount */
        driven_unmount(&d);
        driven_mount(&d);
    }
    auto_free char *tree_after = tree_text(true), *disk_after = disk_text();
    ck_assert_str_eq(tree_after, tree);
    if (!afresh)
        ck_assert_str_eq(disk_after, disk);
    ck_assert_int_eq(rows(), 0);
    comes_true(change);
    driven_release(&d);
    return true;
}

#ifdef __SANITIZE_THREAD__ /* a mount takes its time, and what is asked for is no race */
static bool next_mount_agrees(int (*change)(void), int call)
{
    (void)change;
    (void)call;
    return true;
}
#else
static bool next_mount_agrees(int (*change)(void), int call)
{
    return refused_at(change, call, true);
}
#endif

START_TEST(what_the_disk_refuses_has_not_happened)
{
    int call = 1;

    while (refused_at(changes[_i], call, false) && next_mount_agrees(changes[_i], call))
        call++;
    ck_assert_int_gt(call, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_steps");
    TCase *t = tcase_create("cache_steps");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_the_disk_refuses_has_not_happened, 0, ARRAY_SIZE(changes));
    suite_add_tcase(s, t);
    return suite_run(s);
}
