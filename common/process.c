#include "common/process.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* What is read of a text of /proc: the names of capabilities and groups make none longer. */
#define TEXT_MAX 8192

/* A text that ends in a NUL; how long it is, or a negative errno. */
static ssize_t read_text(pid_t pid, const char *what, char *buf, size_t size)
{
    char path[64];
    size_t len = 0;

    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, what);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (len < size - 1) {
        ssize_t n = read(fd, buf + len, size - 1 - len);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    buf[len] = '\0';
    return (ssize_t)len;
}

/* The rest of the line "NAME:"; NULL: there is none. */
static const char *line_of(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, len) == 0 && at[len] == ':')
            return at + len + 1;
    }
    return NULL;
}

/* The group of the thread, and the number that the group's first thread has in the innermost
 * namespace. */
static int read_group(pid_t tid, pid_t *ret_pid, pid_t *ret_own)
{
    char text[TEXT_MAX];
    ssize_t n = read_text(tid, "status", text, sizeof(text));

    if (n < 0)
        return (int)n;
    const char *group = line_of(text, "Tgid"), *all = line_of(text, "NStgid");
    if (!group)
        return -ESRCH;
    *ret_pid = *ret_own = (pid_t)strtol(group, NULL, 10);
    for (char *end; all; all = end) {
        long number = strtol(all, &end, 10);
        if (end == all)
            break;
        *ret_own = (pid_t)number;
    }
    return *ret_pid > 0 ? 0 : -ESRCH;
}

/* The name of the program is in parentheses, and may have some, too. */
static int read_stat(pid_t pid, pid_t *ret_parent, uint64_t *ret_start)
{
    char text[TEXT_MAX];
    ssize_t n = read_text(pid, "stat", text, sizeof(text));
    const char *at = n > 0 ? strrchr(text, ')') : NULL;

    if (!at)
        return n < 0 ? (int)n : -ESRCH;
    /* Field 3 comes next; the parent is field 4, the start field 22. */
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
        if (at && field == 3)
            *ret_parent = (pid_t)strtol(at, NULL, 10);
    }
    if (!at)
        return -ESRCH;
    *ret_start = strtoull(at, NULL, 10);
    return 0;
}

bool process_lives(const struct process *p)
{
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};

    return p->pidfd >= 0 && poll(&fd, 1, 0) == 0;
}

void process_release(struct process *p)
{
    if (p->pidfd >= 0)
        (void)close(p->pidfd);
    p->pidfd = -1;
}

/* What is read while the process lives, as its descriptor says behind it, is of that one. */
int process_watch(pid_t tid, struct process *ret, pid_t *ret_own)
{
    struct process p = {.pidfd = -1};
    pid_t again, own, parent;
    int r = tid > 0 ? read_group(tid, &p.pid, &own) : -ESRCH;

    if (r < 0)
        return r;
    p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
    if (p.pidfd < 0)
        return -errno;
    r = read_group(tid, &again, &own);
    if (r == 0)
        r = read_stat(p.pid, &parent, &p.start);
    if (r == 0 && (again != p.pid || !process_lives(&p)))
        r = -ESRCH;
    if (r < 0) {
        process_release(&p);
        return r;
    }
    *ret = p;
    if (ret_own)
        *ret_own = own;
    return 0;
}

void process_command(pid_t pid, char *buf, size_t size)
{
    ssize_t n = read_text(pid, "cmdline", buf, size);

    if (n < 0)
        n = 0;
    while (n > 0 && buf[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (buf[i] == '\0')
            buf[i] = ' ';
    buf[n] = '\0';
}

void process_line(pid_t tid, struct process_line *ret)
{
    pid_t pid, own, parent = 0;
    uint64_t start;

    ret->n = 0;
    if (tid <= 0 || read_group(tid, &pid, &own) < 0)
        return;
    for (; pid > 0 && ret->n < PROCESS_LINE_MAX && read_stat(pid, &parent, &start) == 0;
         pid = parent) {
        ret->of[ret->n].pid = pid;
        ret->of[ret->n++].start = start;
    }
}

static bool is(const struct process_line *line, size_t i, const struct process *p)
{
    return line->of[i].pid == p->pid && line->of[i].start == p->start;
}

bool process_line_is(const struct process_line *line, const struct process *p)
{
    return line->n > 0 && is(line, 0, p);
}

bool process_line_has(const struct process_line *line, const struct process *p)
{
    for (size_t i = 0; i < line->n; i++)
        if (is(line, i, p))
            return true;
    return false;
}
