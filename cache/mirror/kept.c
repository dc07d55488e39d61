/* Content that is not published: kept/, beside the mirror, with the names that it had. */
#include "cache/mirror/mirror.h"
#include "cache/mirror/mirror_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How many files of one name kept/ holds. */
#define KEPT_TRIES 1000

/* The n-th name to try in kept/ for one that may be taken: name, name.1, name.2 ... */
static void kept_name(const char *name, int n, char ret[NAME_MAX + 1])
{
    char end[16] = "";

    if (n > 0)
        (void)snprintf(end, sizeof(end), ".%d", n);
    (void)snprintf(ret, NAME_MAX + 1, "%.*s%s", (int)(NAME_MAX - strlen(end)), name, end);
}

/* A folder in kept/, or one of a name like it when a file has that. */
static int kept_dir(int parent, const char *name)
{
    for (int i = 0; i < KEPT_TRIES; i++) {
        char at[NAME_MAX + 1];
        kept_name(name, i, at);
        if (mkdirat(parent, at, 0700) < 0 && errno != EEXIST)
            return -errno;
        int fd = mirror_beneath(parent, at, O_RDONLY | O_DIRECTORY);
        if (fd != -ENOTDIR)
            return fd;
    }
    return -EEXIST;
}

/* The folder in kept/ for the path, made if it is missing. */
static int kept_parent(struct mirror *m, const char *path, const char **ret_name)
{
    int dir = mirror_beneath(m->kept_fd, ".", O_RDONLY | O_DIRECTORY);

    for (const char *end; dir >= 0 && (end = strchr(path, '/')); path = end + 1) {
        auto_free char *name = strndup(path, (size_t)(end - path));
        int below = name ? kept_dir(dir, name) : -ENOMEM;
        (void)close(dir);
        dir = below;
    }
    *ret_name = path;
    return dir;
}

/* Makes a file the first free name in kept/ for the path: moves the one at from_dir, from, or
 * links it there. */
static int into_kept(struct mirror *m, const char *path, int from_dir, const char *from,
                     bool move)
{
    const char *wanted;
    auto_close int to = kept_parent(m, path, &wanted);
    if (to < 0)
        return to;
    for (int i = 0; i < KEPT_TRIES; i++) {
        char name[NAME_MAX + 1];
        kept_name(wanted, i, name);
        int r = move ? renameat2(from_dir, from, to, name, RENAME_NOREPLACE)
                     : linkat(from_dir, from, to, name, AT_SYMLINK_FOLLOW);
        if (r == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

int mirror_keep(struct mirror *m, const char *path)
{
    const char *name;
    auto_close int dir = mirror_open_parent(m->tree_fd, path, &name);

    return dir < 0 ? dir : into_kept(m, path, dir, name, true);
}

int mirror_keep_dir(struct mirror *m, int dir, const char *name)
{
    return into_kept(m, name, dir, name, true);
}

int mirror_keep_fd(struct mirror *m, int fd, const char *path)
{
    char from[64];

    (void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    return into_kept(m, path, AT_FDCWD, from, false);
}
