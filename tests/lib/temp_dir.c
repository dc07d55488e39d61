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

#define ROOM     (UINT64_C(1) << 30)
#define ATTEMPTS 100

static char base[64]; /* has all directories of the process; "" before the first */
static pid_t maker;   /* who made it: no child of a test removes it */

/* Makes it in memory, where that has room and takes extended attributes: what a disk's fsync
 * takes is not what is tested. */
static bool make_base_in_memory(void)
{
    struct statvfs fs;

    (void)snprintf(base, sizeof(base), "/dev/shm/runfs-test-XXXXXX");
    if (statvfs("/dev/shm", &fs) || (uint64_t)fs.f_bavail * fs.f_frsize < ROOM ||
        !mkdtemp(base))
        return false;
    if (setxattr(base, "user.runfs.test", "", 0, 0) == 0 &&
        removexattr(base, "user.runfs.test") == 0)
        return true;
    (void)rmdir(base);
    return false;
}

/* A test that failed has left its directories, and threads that may still write there. */
static void remove_base(void)
{
    if (getpid() != maker)
        return;
    for (unsigned i = 0; i < ATTEMPTS && access(base, F_OK) == 0; i++)
        temp_dir_remove(base);
}

static void make_base(void)
{
    const char *tmp = getenv("TMPDIR");

    if (tmp || !make_base_in_memory()) {
        (void)snprintf(base, sizeof(base), "%s/runfs-test-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(base)) {
            perror(base);
            exit(EXIT_FAILURE);
        }
    }
    maker = getpid();
    (void)atexit(remove_base);
}

void temp_dir_begin(void)
{
    if (!*base)
        make_base();
}

void temp_dir_make(char *ret, size_t size)
{
    temp_dir_begin();
    (void)snprintf(ret, size, "%s/XXXXXX", base);
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
