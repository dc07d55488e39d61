#include "tests/lib/temp_dir.h"

#include <check.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ROOM (UINT64_C(1) << 30)

/* A new directory in memory, where that has room and takes extended attributes: what a disk's
 * fsync takes is not what is tested. */
static bool make_dir_in_memory(char *ret, size_t size)
{
    struct statvfs fs;

    (void)snprintf(ret, size, "/dev/shm/runfs-test-XXXXXX");
    if (statvfs("/dev/shm", &fs) || (uint64_t)fs.f_bavail * fs.f_frsize < ROOM || !mkdtemp(ret))
        return false;
    if (setxattr(ret, "user.runfs.test", "", 0, 0) == 0 &&
        removexattr(ret, "user.runfs.test") == 0)
        return true;
    (void)rmdir(ret);
    return false;
}

void temp_dir_make(char *ret, size_t size)
{
    const char *tmp = getenv("TMPDIR");

    if (!tmp && make_dir_in_memory(ret, size))
        return;
    (void)snprintf(ret, size, "%s/runfs-test-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(ret));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void temp_dir_remove(const char *dir)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
