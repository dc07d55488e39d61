#include "tests/lib/top.h"

#include "common/mem.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char top[256];

void top_make(void)
{
    const char *tmp = getenv("TMPDIR");
    auto_free char *real = realpath(tmp ? tmp : "/tmp", NULL);

    ck_assert_ptr_nonnull(real);
    (void)snprintf(top, sizeof(top), "%s/runfs-door-XXXXXX", real);
    ck_assert_ptr_nonnull(mkdtemp(top));
}

void top_remove(void)
{
    temp_dir_remove(top);
}

const char *in_top(const char *name)
{
    static char paths[2][512];
    static unsigned n;
    char *path = paths[n++ % 2];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
    return path;
}

void top_make_dir(const char *name, mode_t mode)
{
    ck_assert_int_eq(mkdir(in_top(name), 0700), 0);
    ck_assert_int_eq(chmod(in_top(name), mode), 0);
}

void top_make_file(const char *name, const char *text)
{
    FILE *f = fopen(in_top(name), "we");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

void top_holds(const char *name, const char *text)
{
    char found[256];
    auto_close int fd = open(in_top(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, found, sizeof(found) - 1);

    ck_assert_msg(n >= 0, "%s", name);
    found[n] = '\0';
    ck_assert_str_eq(found, text);
}

unsigned top_mode_of(const char *name)
{
    struct stat st;

    ck_assert_int_eq(stat(in_top(name), &st), 0);
    return st.st_mode & 07777;
}
