/* FUSE keeps root out of a user's mount, and the owner could let a question of root's wait for
 * ever. So the mount is not asked where its socket is: the daemon has the cache directory open,
 * and /proc shows that. What is found is trusted no more than any program of that user. */
#include "cli/foreign.h"

#include "cli/control_io.h"
#include "cli/mountinfo.h"
#include "common/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of one process; a daemon opens its cache before the files in it. */
#define FDS_MAX 4096

static bool is_number(const char *name)
{
    return isdigit((unsigned char)*name);
}

static DIR *open_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir && fd >= 0)
        (void)close(fd);
    return dir;
}

/* Goes by the numbers that /proc says the process runs as: when it may not be traced, its
 * folder in /proc is root's. */
static bool runs_as(int proc_fd, uid_t owner)
{
    auto_close int fd = openat(proc_fd, "status", O_RDONLY | O_CLOEXEC);
    char text[4096];
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    const char *line;
    unsigned real, effective;

    text[n > 0 ? n : 0] = '\0';
    line = strstr(text, "\nUid:");
    return line && sscanf(line, "\nUid: %u %u", &real, &effective) == 2 && effective == owner;
}

static bool has_fuse(DIR *fds)
{
    struct dirent *entry;
    char target[32];

    rewinddir(fds);
    for (int i = 0; i < FDS_MAX && (entry = readdir(fds)); i++) {
        ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target));

        if (n == 9 && memcmp(target, "/dev/fuse", 9) == 0)
            return true;
    }
    return false;
}

/* A look into a directory of a FUSE mount asks its daemon. */
static bool is_on_fuse(int fd)
{
    struct mountinfo m;
    int id = mountinfo_id_of_fd(fd);

    if (id < 0 || mountinfo_by_id(id, &m))
        return true; /* of another namespace: not known */
    bool fuse = strncmp(m.type, "fuse", 4) == 0;
    mountinfo_release(&m);
    return fuse;
}

static bool has_socket(int dir_fd)
{
    struct stat st;

    return !is_on_fuse(dir_fd) &&
           fstatat(dir_fd, CONTROL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode);
}

static bool look_at(DIR *fds, pid_t pid, bool (*visit)(void *arg, pid_t pid, int dir_fd),
                    void *arg)
{
    struct dirent *entry;
    bool found = false;

    rewinddir(fds);
    for (int i = 0; !found && i < FDS_MAX && (entry = readdir(fds)); i++) {
        auto_close int fd = is_number(entry->d_name) ? openat(dirfd(fds), entry->d_name,
                                                              O_PATH | O_DIRECTORY | O_CLOEXEC)
                                                     : -1;

        found = fd >= 0 && has_socket(fd) && visit(arg, pid, fd);
    }
    return found;
}

bool foreign_each_dir(uid_t owner, bool (*visit)(void *arg, pid_t pid, int dir_fd), void *arg)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    bool found = false;

    while (proc && !found && (entry = readdir(proc))) {
        auto_close int fd = is_number(entry->d_name)
                                ? openat(dirfd(proc), entry->d_name, O_PATH | O_CLOEXEC)
                                : -1;
        DIR *fds = fd >= 0 && runs_as(fd, owner) ? open_dir(fd, "fd") : NULL;

        if (!fds)
            continue;
        found = has_fuse(fds) && look_at(fds, (pid_t)atoi(entry->d_name), visit, arg);
        (void)closedir(fds);
    }
    if (proc)
        (void)closedir(proc);
    return found;
}
