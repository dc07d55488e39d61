/* The mapping between names in a store and names in the mount: what is shown is held by a
 * directory of the local filesystem under these very bytes, with nothing made beside it; what
 * is not shown is one of the forms that docs/format.md lists. Input: the directory's key, a
 * NUL, the name. */
#include "common/mem.h"
#include "common/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[256];
static int inner_fd = -1;

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void leave(void)
{
    (void)rmdir(top);
    *strrchr(top, '/') = '\0';
    (void)rmdir(top);
}

static void make_folders(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");

    must((size_t)snprintf(top, sizeof(top) - 8, "%s/runfs-fuzz-XXXXXX", base ? base : "/tmp") <
         sizeof(top) - 8);
    must(mkdtemp(top) != NULL);
    strcat(top, "/inner");
    must(mkdir(top, 0700) == 0);
    inner_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(inner_fd >= 0 && atexit(leave) == 0);
}

/* How many names the directory has; each must be `wanted`. */
static unsigned count(int fd, const char *wanted)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    struct dirent *e;
    unsigned n = 0;

    must(d != NULL);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            must(strcmp(e->d_name, wanted) == 0);
            n++;
        }
    (void)closedir(d);
    return n;
}

static void check_held(const char *name)
{
    int fd = openat(inner_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int above = openat(inner_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    must(fd >= 0 && above >= 0);
    must(count(inner_fd, name) == 1 && count(above, "inner") == 1);
    must(unlinkat(inner_fd, name, 0) == 0 && count(inner_fd, name) == 0);
    (void)close(fd);
    (void)close(above);
}

static bool is_listed_form(const char *key, const char *name, size_t len)
{
    return len == 0 || len > PATH_NAME_MAX || memchr(name, '/', len) ||
           memchr(name, '\0', len) || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           strlen(key) + 1 + len >= PATH_KEY_MAX || (!*key && strcmp(name, PATH_RESERVED) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = malloc(size + 1);

    if (!text)
        return 0;
    if (inner_fd < 0)
        make_folders();
    memcpy(text, data, size);
    text[size] = '\0';
    size_t before = strlen(text);
    const char *name = before < size ? text + before + 1 : text;
    const char *key = before < size ? text : "";
    size_t len = before < size ? size - before - 1 : size;

    if (path_name_shown(key, name, len))
        check_held(name);
    else
        must(is_listed_form(key, name, len));
    return 0;
}
