/* /proc, searched for a device. */
#include "cli/users.h"

#include "common/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define NAMED_MAX 20

/* Without a request to the filesystem behind the link, which may be slow or dead. */
static bool on_device(int dir_fd, const char *link, dev_t dev)
{
    struct statx st;

    return statx(dir_fd, link, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) == 0 &&
           makedev(st.stx_dev_major, st.stx_dev_minor) == dev;
}

static bool uses_by_fd(int proc_fd, dev_t dev)
{
    int fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    bool found = false;

    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    while (!found && (entry = readdir(dir)))
        found = isdigit((unsigned char)entry->d_name[0]) &&
                on_device(dirfd(dir), entry->d_name, dev);
    (void)closedir(dir);
    return found;
}

/* "55d0-55d1 r-xp 00000000 fd:01 1234 /path": the fourth column. */
static bool uses_by_mapping(int proc_fd, dev_t dev)
{
    int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    auto_free char *line = NULL;
    size_t size = 0;
    bool found = false;

    if (!file) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    while (!found && getline(&line, &size, file) > 0) {
        unsigned maj, min;

        found = sscanf(line, "%*s %*s %*s %x:%x", &maj, &min) == 2 && makedev(maj, min) == dev;
    }
    (void)fclose(file);
    return found;
}

static bool uses(int proc_fd, dev_t dev)
{
    return on_device(proc_fd, "cwd", dev) || on_device(proc_fd, "root", dev) ||
           on_device(proc_fd, "exe", dev) || uses_by_fd(proc_fd, dev) ||
           uses_by_mapping(proc_fd, dev);
}

static void add_name(int proc_fd, const char *pid, struct buf *names)
{
    auto_close int fd = openat(proc_fd, "comm", O_RDONLY | O_CLOEXEC);
    char comm[32];
    ssize_t n = fd >= 0 ? read(fd, comm, sizeof(comm) - 1) : 0;

    comm[n > 0 ? n : 0] = '\0';
    comm[strcspn(comm, "\n")] = '\0';
    (void)buf_addf(names, "%s%s (%s)", names->len ? ", " : "", pid, comm);
}

unsigned mount_users(dev_t dev, struct buf *names)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;

    while (proc && (entry = readdir(proc))) {
        auto_close int fd = -1;

        if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
            continue;
        fd = openat(dirfd(proc), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || !uses(fd, dev))
            continue;
        if (count++ < NAMED_MAX)
            add_name(fd, entry->d_name, names);
    }
    if (proc)
        (void)closedir(proc);
    if (count > NAMED_MAX)
        (void)buf_addf(names, " and %u more", count - NAMED_MAX);
    return count;
}
