/* Searches /proc for a device.
 *
 * A child looks: a read of `maps` waits for the lock of that process's memory, which a process
 * that is stuck in the kernel may keep for ever, and nothing but a signal ends that wait.
 * Before each process the child says which one it looks at; one that keeps it too long is
 * passed over, and another child goes on behind it. */
#include "cli/users.h"

#include "common/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define NAMED_MAX 20
/* After so many the rest is not looked at. */
#define STUCK_MAX 5
#define PIDS_MAX  ((size_t)4 << 20)

enum finding { LOOKING, NO_USER, USER, PASSED_OVER };

/* What the child says; shorter than what a pipe takes whole. */
struct word {
    enum finding finding;
    size_t index; /* of the process in the list */
    char comm[20];
};

/* ---- in the child ---- */

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

/* "1234 (name) D ...": the name may hold anything, the last ")" ends it. A process that waits
 * in the kernel may have its memory locked. */
static bool in_kernel(int proc_fd)
{
    auto_close int fd = openat(proc_fd, "stat", O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    const char *end;

    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, ')');
    return end && strncmp(end, ") D", 3) == 0;
}

static enum finding look_at(int proc_fd, dev_t dev)
{
    if (on_device(proc_fd, "cwd", dev) || on_device(proc_fd, "root", dev) ||
        on_device(proc_fd, "exe", dev) || uses_by_fd(proc_fd, dev))
        return USER;
    if (in_kernel(proc_fd))
        return PASSED_OVER;
    return uses_by_mapping(proc_fd, dev) ? USER : NO_USER;
}

static void read_comm(int proc_fd, char *comm, size_t size)
{
    auto_close int fd = openat(proc_fd, "comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, comm, size - 1) : 0;

    comm[n > 0 ? n : 0] = '\0';
    comm[strcspn(comm, "\n")] = '\0';
}

static _Noreturn void look_and_exit(int proc_fd, const pid_t *pids, size_t from, size_t n,
                                    dev_t dev, int out)
{
    for (size_t i = from; i < n; i++) {
        struct word word = {.finding = LOOKING, .index = i};
        auto_close int fd = -1;
        char name[16];

        (void)snprintf(name, sizeof(name), "%d", (int)pids[i]);
        fd = openat(proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            continue;
        read_comm(fd, word.comm, sizeof(word.comm));
        if (write(out, &word, sizeof(word)) < 0)
            break;
        word.finding = look_at(fd, dev);
        if (write(out, &word, sizeof(word)) < 0)
            break;
    }
    _exit(0);
}

/* ---- who waits ---- */

static void add_name(struct buf *names, pid_t pid, const char *comm)
{
    (void)buf_addf(names, "%s%d (%s)", names->len ? ", " : "", (int)pid, comm);
}

static void take_word(const struct word *word, const pid_t *pids, struct mount_users *users)
{
    if (word->finding == USER && users->count++ < NAMED_MAX)
        add_name(&users->names, pids[word->index], word->comm);
    else if (word->finding == PASSED_OVER && users->passed_over++ < NAMED_MAX)
        add_name(&users->passed_names, pids[word->index], word->comm);
}

/* Until the child has ended, which is true, or a process keeps it for longer than
 * `patience_ms`: *ret says which. */
static bool listen_to(int in, const pid_t *pids, int patience_ms, struct mount_users *users,
                      struct word *ret)
{
    struct pollfd p = {.fd = in, .events = POLLIN};

    for (;;) {
        struct word word;
        int n = poll(&p, 1, patience_ms);

        if (n == 0 && ret->finding == LOOKING)
            return false;
        if (n == 0 || (n < 0 && errno == EINTR))
            continue;
        if (n < 0 || read(in, &word, sizeof(word)) != (ssize_t)sizeof(word))
            return true;
        take_word(&word, pids, users);
        *ret = word;
    }
}

/* One that no signal ends is left behind. */
static void end_child(pid_t pid, int in, int patience_ms)
{
    struct pollfd p = {.fd = in}; /* hung up when it has ended */

    (void)kill(pid, SIGKILL);
    while (poll(&p, 1, patience_ms) < 0 && errno == EINTR)
        ;
    while (waitpid(pid, NULL, p.revents ? 0 : WNOHANG) < 0 && errno == EINTR)
        ;
}

/* Looks at the processes from an index on. Returns where to go on, n at the end. */
static size_t look_from(int proc_fd, const pid_t *pids, size_t from, size_t n, dev_t dev,
                        int patience_ms, struct mount_users *users)
{
    struct word last = {.finding = NO_USER};
    int ends[2];
    bool ended;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return n;
    pid = fork();
    if (pid == 0)
        look_and_exit(proc_fd, pids, from, n, dev, ends[1]);
    (void)close(ends[1]);
    ended = pid < 0 || listen_to(ends[0], pids, patience_ms, users, &last);
    if (pid > 0)
        end_child(pid, ends[0], patience_ms);
    (void)close(ends[0]);
    if (ended)
        return n;
    users->stuck++;
    last.finding = PASSED_OVER;
    take_word(&last, pids, users);
    return last.index + 1;
}

static void list_pids(DIR *proc, struct buf *pids)
{
    struct dirent *entry;

    while ((entry = readdir(proc))) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

        if (pid > 0 && pid != getpid())
            (void)buf_add(pids, &pid, sizeof(pid));
    }
}

void mount_users_find(const char *root, dev_t dev, int patience_ms, struct mount_users *ret)
{
    auto_buf struct buf pids = BUF_INIT(PIDS_MAX);
    DIR *proc = opendir(root);
    size_t next = 0, n;

    *ret =
        (struct mount_users){.names = BUF_INIT(USERS_MAX), .passed_names = BUF_INIT(USERS_MAX)};
    if (!proc)
        return;
    list_pids(proc, &pids);
    n = pids.len / sizeof(pid_t);
    while (next < n && ret->stuck < STUCK_MAX)
        next = look_from(dirfd(proc), (const pid_t *)(void *)pids.data, next, n, dev,
                         patience_ms, ret);
    ret->passed_over += (unsigned)(n - next);
    (void)closedir(proc);
    if (ret->count > NAMED_MAX)
        (void)buf_addf(&ret->names, " and %u more", ret->count - NAMED_MAX);
}

void mount_users_release(struct mount_users *users)
{
    buf_release(&users->names);
    buf_release(&users->passed_names);
}
