/* cache/: many open files, few descriptors. Each case lets the cache have a handful. */
#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FEW  6
#define MANY 100

static void begin(struct driven *d, bool passthrough)
{
    driven_init(d, NULL);
    d->config.mirror_fds = FEW;
    d->config.passthrough = passthrough;
    driven_mount(d);
}

static unsigned open_here(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    ck_assert_int_eq(closedir(dir), 0);
    return n;
}

static struct cache_stats stats_of(struct driven *d)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s;
}

static void reads(struct driven *d, struct handle *h, const char *wanted)
{
    char buf[64] = "";

    ck_assert_int_eq(driven_pread(d, h, buf, sizeof(buf) - 1, 0), (ssize_t)strlen(wanted));
    ck_assert_str_eq(buf, wanted);
}

/* Opens others until what was open before has lost its descriptor. */
static void crowd_out(struct driven *d)
{
    struct handle *h[FEW + 2];
    char name[16];

    for (unsigned i = 0; i < FEW + 2; i++) {
        (void)snprintf(name, sizeof(name), "other%u", i);
        ck_assert_int_eq(driven_open(d, name, O_RDWR | O_CREAT, &h[i]), 0);
    }
    for (unsigned i = 0; i < FEW + 2; i++)
        ck_assert_int_eq(driven_close(d, h[i]), 0);
}

/* Any number of files is open; each is written, read and stored as with a descriptor of its
 * own. */
START_TEST(many_files_share_few_descriptors)
{
    struct handle *h[MANY];
    struct driven d;
    char name[16];

    begin(&d, false);
    unsigned before = open_here();
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        ck_assert_int_eq(driven_open(&d, name, O_RDWR | O_CREAT, &h[i]), 0);
        ck_assert_int_eq(driven_write(&d, h[i], name, strlen(name), 0), 0);
    }
    ck_assert_uint_le(open_here(), before + FEW);
    ck_assert_uint_le(stats_of(&d).fds_open, FEW);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        reads(&d, h[i], name);
        ck_assert_int_eq(driven_write(&d, h[i], "more", 4, strlen(name)), 0);
        ck_assert_int_eq(driven_fsync(&d, h[i]), 0);
    }
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (unsigned i = 0; i < MANY; i++) {
        char wanted[32];
        (void)snprintf(name, sizeof(name), "f%u", i);
        (void)snprintf(wanted, sizeof(wanted), "f%umore", i);
        driven_stores(&d, name, wanted);
    }
    DRIVEN_WAIT(stats_of(&d).fds_open == 0);
    ck_assert_uint_eq(stats_of(&d).fds_refused, 0);
    driven_release(&d);
}
END_TEST

/* An open file finds its mirror file again wherever it went meanwhile. */
START_TEST(a_descriptor_comes_back_from_where_the_file_is)
{
    struct handle *moved = NULL, *removed = NULL, *replaced = NULL, *linked = NULL;
    struct driven d;

    begin(&d, false);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_open(&d, "dir/moved", O_RDWR | O_CREAT, &moved), 0);
    ck_assert_int_eq(driven_write(&d, moved, "moved", 5, 0), 0);
    ck_assert_int_eq(driven_open(&d, "removed", O_RDWR | O_CREAT, &removed), 0);
    ck_assert_int_eq(driven_write(&d, removed, "removed", 7, 0), 0);
    ck_assert_int_eq(driven_open(&d, "replaced", O_RDWR | O_CREAT, &replaced), 0);
    ck_assert_int_eq(driven_write(&d, replaced, "replaced", 8, 0), 0);
    ck_assert_int_eq(driven_open(&d, "linked", O_RDWR | O_CREAT, &linked), 0);
    ck_assert_int_eq(driven_write(&d, linked, "linked", 6, 0), 0);
    crowd_out(&d);
    ck_assert_int_eq(driven_rename(&d, "dir", "there"), 0);
    ck_assert_int_eq(driven_unlink(&d, "removed"), 0);
    driven_put(&d, "new", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "new", "replaced"), 0);
    ck_assert_int_eq(driven_link(&d, "linked", "second"), 0);
    ck_assert_int_eq(driven_unlink(&d, "linked"), 0);
    crowd_out(&d);
    reads(&d, moved, "moved");
    reads(&d, removed, "removed");
    reads(&d, replaced, "replaced");
    ck_assert_int_eq(driven_write(&d, removed, "X", 1, 0), 0);
    crowd_out(&d);
    reads(&d, removed, "Xemoved");
    ck_assert_int_eq(driven_write(&d, linked, "X", 1, 0), 0);
    ck_assert_int_eq(driven_write(&d, moved, "X", 1, 0), 0);
    ck_assert_int_eq(driven_close(&d, linked), 0);
    ck_assert_int_eq(driven_close(&d, moved), 0);
    ck_assert_int_eq(driven_close(&d, removed), 0);
    ck_assert_int_eq(driven_close(&d, replaced), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "there/moved", "Xoved");
    driven_stores(&d, "second", "Xinked");
    driven_stores(&d, "replaced", "new");
    driven_stores(&d, "removed", NULL);
    driven_release(&d);
}
END_TEST

/* A file without a name can't be found again: those keep their descriptors, and who wants one
 * more of them gets ENFILE, alone. */
START_TEST(unnamed_files_are_refused_beyond_the_limit)
{
    const struct cache_cred cred = {.umask = 022};
    struct handle *h[FEW], *other = NULL;
    struct node *n[FEW], *one_more;
    struct driven d;
    struct stat st;

    begin(&d, false);
    struct node *root = cache_root(d.cache);
    for (unsigned i = 0; i < FEW; i++) {
        ck_assert_int_eq(
            cache_tmpfile(d.cache, root, 0600, O_RDWR, &cred, NULL, &n[i], &st, &h[i]), 0);
        ck_assert_int_eq(driven_write(&d, h[i], &"012345"[i], 1, 0), 0);
    }
    ck_assert_int_eq(
        cache_tmpfile(d.cache, root, 0600, O_RDWR, &cred, NULL, &one_more, &st, &other),
        -ENFILE);
    ck_assert_uint_eq(stats_of(&d).fds_refused, 1);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_CREAT, &other), 0);
    ck_assert_int_eq(driven_write(&d, other, "one", 3, 0), 0);
    reads(&d, other, "one");
    ck_assert_int_eq(driven_close(&d, other), 0);
    for (unsigned i = 0; i < FEW; i++) {
        reads(&d, h[i], (char[]){"012345"[i], '\0'});
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
        cache_forget(d.cache, n[i], 1);
    }
    ck_assert_int_eq(
        cache_tmpfile(d.cache, root, 0600, O_RDWR, &cred, NULL, &one_more, &st, &other), 0);
    ck_assert_int_eq(driven_close(&d, other), 0);
    cache_forget(d.cache, one_more, 1);
    driven_release(&d);
}
END_TEST

/* Passthrough writers keep theirs, readers do not. Before the writers have them all, files are
 * opened in normal mode. */
START_TEST(passthrough_writers_leave_descriptors_to_others)
{
    struct handle *h[MANY], *reader[MANY];
    unsigned passed = 0;
    struct driven d;
    char name[16];

    begin(&d, true);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "r%u", i);
        driven_put(&d, name, "one", 3);
        ck_assert_int_eq(driven_open(&d, name, O_RDONLY, &reader[i]), 0);
        ck_assert(handle_passthrough(reader[i]));
        (void)snprintf(name, sizeof(name), "w%u", i);
        ck_assert_int_eq(driven_open(&d, name, O_RDWR | O_CREAT, &h[i]), 0);
        passed += handle_passthrough(h[i]);
    }
    ck_assert_uint_eq(passed, FEW / 2);
    DRIVEN_WAIT(stats_of(&d).fds_open <= FEW); /* uploads of what was put have more just now */
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_int_eq(driven_close(&d, reader[i]), 0);
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
    }
    ck_assert_int_eq(driven_open(&d, "w0", O_RDWR, &h[0]), 0);
    ck_assert(handle_passthrough(h[0]));
    ck_assert_int_eq(driven_close(&d, h[0]), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_release(&d);
}
END_TEST

/* The writer of what is open passthrough has to keep one. */
START_TEST(an_open_that_is_refused_empties_nothing)
{
    const struct cache_cred cred = {.umask = 022};
    struct handle *h[FEW + 1], *reader, *writer;
    struct node *n[FEW + 1];
    unsigned unnamed = 0;
    struct driven d;
    struct stat st;

    begin(&d, true);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &reader), 0);
    ck_assert(handle_passthrough(reader));
    struct node *root = cache_root(d.cache);
    while (unnamed <= FEW && cache_tmpfile(d.cache, root, 0600, O_RDWR, &cred, NULL,
                                           &n[unnamed], &st, &h[unnamed]) == 0)
        unnamed++;
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &writer), -ENFILE);
    driven_shows(&d, "f", "content");
    for (unsigned i = 0; i < unnamed; i++) {
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
        cache_forget(d.cache, n[i], 1);
    }
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &writer), 0);
    ck_assert_int_eq(driven_close(&d, writer), 0);
    ck_assert_int_eq(driven_close(&d, reader), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_fds");
    TCase *t = tcase_create("fds");

    tcase_add_test(t, many_files_share_few_descriptors);
    tcase_add_test(t, a_descriptor_comes_back_from_where_the_file_is);
    tcase_add_test(t, unnamed_files_are_refused_beyond_the_limit);
    tcase_add_test(t, passthrough_writers_leave_descriptors_to_others);
    tcase_add_test(t, an_open_that_is_refused_empties_nothing);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return suite_run(s);
}
