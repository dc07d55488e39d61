#include "fuse/dying.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TASK_EXITING 0x4 /* PF_EXITING of the kernel's task flags */
#define BIT(sig)     (UINT64_C(1) << ((sig)-1))

/* Signals whose default is not to end the process. */
static const uint64_t harmless = BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) |
                                 BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);

static uint64_t field(const char *status, const char *name, int base)
{
    const char *at = strstr(status, name);

    return at ? strtoull(at + strlen(name), NULL, base) : 0;
}

bool status_says_dying(const char *status)
{
    uint64_t pending = field(status, "\nSigPnd:", 16) | field(status, "\nShdPnd:", 16);
    uint64_t handled = field(status, "\nSigBlk:", 16) | field(status, "\nSigIgn:", 16) |
                       field(status, "\nSigCgt:", 16);
    const char *state = strstr(status, "\nState:\t");

    if (state && (state[8] == 'X' || state[8] == 'Z'))
        return true;
    if (pending & BIT(SIGKILL))
        return true;
    /* A debugger decides what becomes of any other signal. */
    if (field(status, "\nTracerPid:", 10) != 0)
        return false;
    return (pending & ~handled & ~harmless) != 0;
}

bool stat_says_exiting(const char *stat)
{
    /* The name before the fields is in parentheses and may hold anything; then come state,
     * ppid, pgrp, session, tty, tpgid and the flags. */
    const char *at = strrchr(stat, ')');
    unsigned flags;

    return at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & TASK_EXITING) != 0;
}

/* The text of a file of /proc/<tid>; -ENOENT when the thread is gone. */
static int read_proc(pid_t tid, const char *name, char *text, size_t size)
{
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ESRCH ? -ENOENT : -errno;
    ssize_t n = read(fd, text, size - 1);
    if (n < 0)
        return errno == ESRCH ? -ENOENT : -errno;
    text[n] = '\0';
    return 0;
}

bool caller_is_dying(pid_t tid)
{
    char text[4096];

    if (tid <= 0)
        return false;
    int r = read_proc(tid, "status", text, sizeof(text));
    if (r == 0 && !status_says_dying(text)) {
        r = read_proc(tid, "stat", text, sizeof(text));
        return r == -ENOENT || (r == 0 && stat_says_exiting(text));
    }
    return r == 0 || r == -ENOENT;
}

/* Whether a thread belongs to the process that another one belongs to. */
static bool is_thread_of(pid_t tid, pid_t other)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)other, (int)tid);
    return access(path, F_OK) == 0;
}

bool caller_inherited(pid_t opener, pid_t caller)
{
    if (opener == caller || opener <= 0 || caller <= 0)
        return false;
    return !is_thread_of(opener, caller) && is_thread_of(opener, opener);
}
