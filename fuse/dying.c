#include "fuse/dying.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BIT(sig) (UINT64_C(1) << ((sig)-1))

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

bool caller_is_dying(pid_t tid)
{
    char path[48], text[4096];

    if (tid <= 0)
        return false;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return errno == ESRCH;
    text[n] = '\0';
    return status_says_dying(text);
}
