/* cache/: what a disk that fails leaves behind in memory. fsetxattr(), renameat()
 * and sync_file_range() are ours, so that they can fail when a test wants it. */
#include "cache/cache.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- the system calls ---- */

static struct {
    _Atomic(const char *) xattr; /* the attribute that can't be written, or NULL */
    atomic_int xattr_fails;      /* errno */
    atomic_bool lost;            /* the kernel tells of pages that it could not write */
    atomic_int rename_fails;     /* errno, or 0 */
} disk;

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    const char *fails = atomic_load(&disk.xattr);

    if (fails && strcmp(fails, name) == 0) {
        errno = atomic_load(&disk.xattr_fails);
        return -1;
    }
    return (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (atomic_load(&disk.rename_fails)) {
        errno = atomic_load(&disk.rename_fails);
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
    if (atomic_load(&disk.lost)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_sync_file_range, fd, off, len, flags);
}

static void disk_works(void)
{
    atomic_store(&disk.xattr, NULL);
    atomic_store(&disk.lost, false);
    atomic_store(&disk.rename_fails, 0);
}

/* ---- ACLs ---- */

#define ACL_NAME "system.posix_acl_access"

/* rw- for the owner, r-- for user 5 and the group, nothing for others. */
static const unsigned char narrow[] = {
    2, 0, 0,    0,    1,    0,    6,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    4,
    0, 5, 0,    0,    0,    4,    0,    4, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
    4, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};

static const int acl_errors[] = {ENOSPC, EIO, EROFS};
static const char *const acl_stamps[] = {"user.runfs.x", "user.runfs.a"};

static mode_t mode_of(struct driven *d, const char *path)
{
    struct stat st = {0};

    ck_assert_int_eq(driven_stat(d, path, &st), 0);
    return st.st_mode & 07777;
}

static int set_narrow(struct driven *d, const char *path)
{
    return driven_setxattr(d, path, ACL_NAME, narrow, sizeof(narrow), 0);
}

/* An ACL that can't be written changes nothing: not the mode, and not what is believed of the
 * store. */
START_TEST(an_acl_that_fails_changes_nothing)
{
    int err = acl_errors[_i % 3];
    struct driven d;
    char buf[8];

    disk_works();
    driven_init(&d, NULL);
    d.config.attr_timeout_ns = 0;
    driven_mount(&d);
    driven_put(&d, "f", "one", 3);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_chmod(&d, "f", 0666), 0);
    ck_assert_int_eq(driven_chmod(&d, "dir", 0777), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    atomic_store(&disk.xattr_fails, err);
    atomic_store(&disk.xattr, acl_stamps[_i / 3]);
    ck_assert_int_eq(set_narrow(&d, "f"), -err);
    ck_assert_int_eq(set_narrow(&d, "dir"), -err);
    disk_works();
    ck_assert_uint_eq(mode_of(&d, "f"), 0666);
    ck_assert_uint_eq(mode_of(&d, "dir"), 0777);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    /* Another node's version is shown: nothing of it is ours. */
    driven_store(&d, "f", "other", 5);
    DRIVEN_WAIT(driven_read(&d, "f", buf, sizeof(buf)) == 5);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_uint_eq(mode_of(&d, "dir"), 0777);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_release(&d);
}
END_TEST

/* The same beside a change that is owed: that goes up, and nothing of the ACL. */
START_TEST(an_acl_that_fails_beside_a_change)
{
    struct handle *h = NULL;
    struct driven d;

    disk_works();
    driven_init(&d, NULL);
    d.config.late_ns = NS_PER_SEC / 2;
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    ck_assert_int_eq(driven_chmod(&d, "f", 0666), 0);
    atomic_store(&disk.xattr_fails, ENOSPC);
    atomic_store(&disk.xattr, "user.runfs.x");
    ck_assert_int_eq(set_narrow(&d, "f"), -ENOSPC);
    disk_works();
    /* What is on the disk is no narrower either. */
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_uint_eq(mode_of(&d, "f"), 0666);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_uint_eq(mode_of(&d, "f"), 0666);
    driven_release(&d);
}
END_TEST

/* ---- lost content ---- */

/* The disk lost what it had of a file that the store has, and refuses to take the mirror file
 * away, too: an error, and no more; later it is read from the store. */
START_TEST(a_lost_file_that_can_not_go)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_WRONLY | O_TRUNC};
    struct handle *h = NULL;
    struct driven d;
    char buf[8];

    disk_works();
    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "kept", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    atomic_store(&disk.lost, true);
    atomic_store(&disk.rename_fails, EROFS);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(driven_open(&d, "f", flags[_i], &h), -EIO);
    disk_works();
    ck_assert_int_eq(driven_read(&d, "f", buf, sizeof(buf)), 4);
    ck_assert_mem_eq(buf, "kept", 4);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_disk");
    TCase *t = tcase_create("cache_disk");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, an_acl_that_fails_changes_nothing, 0, 6);
    tcase_add_test(t, an_acl_that_fails_beside_a_change);
    tcase_add_loop_test(t, a_lost_file_that_can_not_go, 0, 3);
    suite_add_tcase(s, t);
    return suite_run(s);
}
