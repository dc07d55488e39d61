/* The directory that is mounted upon. */
#include "cli/mountpoint.h"

#include "cli/control_io.h"
#include "cli/mountinfo.h"
#include "common/mem.h"
#include "fuse/unmount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

extern char **environ;

static int fail(struct op *op, int err, const char *path)
{
    switch (err) {
    case -ENOENT:
        return op_fail(op, err, "mountpoint %s does not exist", path);
    case -ENOTDIR:
        return op_fail(op, err, "mountpoint %s is not a directory", path);
    default:
        return op_fail(op, err, "mountpoint %s: %s", path, strerror(-err));
    }
}

int mountpoint_resolve(const char *path, char **ret)
{
    auto_free char *copy = strdup(path);
    auto_free char *parent = NULL;
    size_t len = copy ? strlen(copy) : 0;
    char *slash;

    if (!copy)
        return -ENOMEM;
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    *ret = realpath(copy, NULL);
    if (*ret)
        return 0;
    if (errno != ENOTCONN)
        return -errno;
    slash = strrchr(copy, '/');
    if (slash)
        *slash = '\0';
    parent = realpath(!slash ? "." : (*copy ? copy : "/"), NULL);
    if (!parent)
        return -errno;
    if (asprintf(ret, "%s/%s", parent[1] ? parent : "", slash ? slash + 1 : copy) < 0)
        return -ENOMEM;
    return 0;
}

/* Whether a runfs that died has left this mount. The kernel's cache may answer stat(), but no
 * question for an attribute. Another user's mount could keep root waiting for ever, and is not
 * asked. */
static bool is_dead(const char *abs, const struct mountinfo *m)
{
    char value[1];

    return (geteuid() != 0 || m->owner == 0) && getxattr(abs, CONTROL_ATTR, value, 0) < 0 &&
           errno == ENOTCONN;
}

/* The placeholder of an automount, such as systemd makes for x-systemd.automount: the mount
 * goes upon it. A process outside the group that waits for that mount has it made when it opens
 * the directory, also by a path with a slash at the end; stat(), readlink(), getxattr(),
 * mount() and O_PATH without O_DIRECTORY don't do that: nothing else may be done with the
 * directory before the mount. So the mount is made before setsid(), and never by fusermount3,
 * which opens the directory. */
static bool is_placeholder(const struct mountinfo *m)
{
    return strcmp(m->type, "autofs") == 0;
}

static int check_placeholder(const char *abs, struct op *op)
{
    return geteuid() == 0 ? 0
                          : op_fail(op, -EBUSY,
                                    "mountpoint %s is busy: an automount is there, upon which "
                                    "only root can mount",
                                    abs);
}

/* Whether something is mounted there; what a runfs that died left is taken away. */
static int clear(const char *abs, struct op *op, bool *ret_dead)
{
    struct mountinfo m;
    int err = mountinfo_by_path(abs, &m);

    if (err == -ENOENT)
        return 0;
    if (err)
        return fail(op, err, abs);
    if (is_placeholder(&m)) {
        err = check_placeholder(abs, op);
    } else if (mountinfo_is_runfs(&m) && is_dead(abs, &m)) {
        err = mountpoint_unmount(abs, m.dev, true, op);
        *ret_dead = true;
    } else {
        err = op_fail(op, -EBUSY, "mountpoint %s is busy: a %s is mounted there", abs, m.type);
    }
    mountinfo_release(&m);
    return err;
}

int mountpoint_prepare(const char *path, struct op *op, char **ret_abs, bool *ret_dead)
{
    auto_free char *abs = NULL;
    bool dead = false;
    struct stat st;
    int err = mountpoint_resolve(path, &abs);

    if (err)
        return fail(op, err, path);
    err = clear(abs, op, &dead);
    if (err)
        return err;
    if (stat(abs, &st) < 0)
        return fail(op, -errno, abs);
    if (!S_ISDIR(st.st_mode))
        return fail(op, -ENOTDIR, abs);
    *ret_abs = take_ptr(abs);
    *ret_dead = dead;
    return 0;
}

int mountpoint_check_empty(const char *abs, struct op *op)
{
    struct mountinfo m;

    /* What is mounted there is an automount: we may mount upon it, and its open() would wait
     * for us. */
    if (mountinfo_by_path(abs, &m) == 0) {
        mountinfo_release(&m);
        return 0;
    }
    DIR *dir = opendir(abs);
    struct dirent *entry;
    int err = 0;

    /* A user who may not look may hide what is there all the same. */
    while (dir && !err && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            err =
                op_fail(op, -ENOTEMPTY,
                        "mountpoint %.100s is not empty: it holds %.60s, which the mount would "
                        "hide; mount on an empty directory, or give -o nonempty",
                        abs, entry->d_name);
    if (dir)
        (void)closedir(dir);
    return err;
}

/* Everything that a helper wrote to its stderr, the first line of it. */
static void read_line(int fd, char *line, size_t size)
{
    size_t len = 0;
    ssize_t n;

    while (len + 1 < size && (n = read(fd, line + len, size - 1 - len)) > 0)
        len += (size_t)n;
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

static int run_fusermount(const char *abs, bool lazy, struct op *op)
{
    char *const argv[] = {"fusermount3",
                          "-u",
                          lazy ? "-z" : "--",
                          lazy ? "--" : (char *)abs,
                          lazy ? (char *)abs : NULL,
                          NULL};
    posix_spawn_file_actions_t actions;
    auto_close int from = -1;
    char line[200];
    int fds[2], err, status;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return op_fail(op, -errno, "cannot make a pipe: %s", strerror(errno));
    from = fds[0];
    err = posix_spawn_file_actions_init(&actions);
    if (!err)
        err = posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
    if (!err)
        err = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (!err)
        err = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(fds[1]);
    if (err)
        return op_fail(op, -err, "cannot run fusermount3: %s", strerror(err));
    read_line(from, line, sizeof(line));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return op_fail(op, strstr(line, "busy") ? -EBUSY : -EIO, "%s",
                   *line ? line : "fusermount3 failed");
}

int mountpoint_unmount(const char *abs, dev_t dev, bool lazy, struct op *op)
{
    int err;

    if (geteuid() != 0)
        return run_fusermount(abs, lazy, op);
    err = unmount_at(abs, dev, lazy ? MNT_DETACH : 0);
    if (!err)
        return 0;
    if (err == -EPERM) /* root of a container, without CAP_SYS_ADMIN */
        return run_fusermount(abs, lazy, op);
    return op_fail(op, err, "cannot unmount %s: %s", abs, strerror(-err));
}

bool mountpoint_path_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    while (len > 0 && dir[len - 1] == '/')
        len--;
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}
