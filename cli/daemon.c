/* The process around a mount. */
#include "cli/daemon.h"

#include "common/inherit.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* The process has one set of signals, so this is one too. */
static struct {
    sigset_t set; /* constant once the thread runs */
    atomic_bool stop;
} signals;

/* Held while `notify` runs, so that daemon_signals_end() waits for it: above what that takes.
 */
static struct mutex listener_lock = {.m = PTHREAD_MUTEX_INITIALIZER};
static struct {
    void (*notify)(void *arg);
    void *arg;
} listener GUARDED_BY(listener_lock);

static void notify_once(int number)
{
    if (atomic_exchange(&signals.stop, true)) {
        log_warn("%s: still uploading; what is not in the store stays in the cache",
                 strsignal(number));
        return;
    }
    log_info("%s: uploading what is left, then unmounting", strsignal(number));
    mutex_lock(&listener_lock);
    if (listener.notify)
        listener.notify(listener.arg);
    mutex_unlock(&listener_lock);
}

static void *signal_loop(void *arg)
{
    (void)arg;
    for (;;) {
        int number;

        if (sigwait(&signals.set, &number) == 0)
            notify_once(number);
    }
    return NULL;
}

int daemon_signals(void (*notify)(void *arg), void *arg)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    pthread_t thread;
    int err;

    mutex_lock(&listener_lock);
    listener.notify = notify;
    listener.arg = arg;
    mutex_unlock(&listener_lock);
    (void)sigaction(SIGHUP, &ignore, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGXFSZ, &ignore, NULL); /* write() fails with EFBIG */
    (void)sigemptyset(&signals.set);
    (void)sigaddset(&signals.set, SIGTERM);
    (void)sigaddset(&signals.set, SIGINT);
    err = pthread_sigmask(SIG_BLOCK, &signals.set, NULL);
    if (!err)
        err = pthread_create(&thread, NULL, signal_loop, NULL);
    if (!err)
        err = pthread_detach(thread);
    return -err;
}

const atomic_bool *daemon_stop(void)
{
    return &signals.stop;
}

void daemon_signals_end(void)
{
    mutex_lock(&listener_lock);
    listener.notify = NULL;
    mutex_unlock(&listener_lock);
}

/* The parent waits for the child's word, or for its end. */
static _Noreturn void await_verdict(int fd, pid_t child)
{
    int status;
    char byte;
    ssize_t n;

    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status)) {
        (void)fprintf(stderr, "runfs: the daemon was killed by signal %d\n", WTERMSIG(status));
        _exit(1);
    }
    _exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
}

/* A limit of 0 does not keep the kernel from a dump that goes to a program (core_pattern
 * "|..."); 1, which no file fits, does: see core(5) and do_coredump(). Not PR_SET_DUMPABLE: it
 * gives /proc/self to root, and keeps a user from debugging what is the user's own. */
static void dump_no_core(void)
{
    const struct rlimit one = {.rlim_cur = 1, .rlim_max = 1}, none = {0};

    if (setrlimit(RLIMIT_CORE, &one) < 0) /* a lower limit can't be raised */
        (void)setrlimit(RLIMIT_CORE, &none);
}

/* What reads as empty and takes everything. Where there is no /dev/null, what can be neither
 * read nor written: only the number must be taken, before a file of ours gets it. */
static int open_nothing(int flags)
{
    int fd = open("/dev/null", O_RDWR | flags);

    return fd >= 0 ? fd : open("/", O_PATH | flags);
}

/* Whoever closed one of the first three has not asked for what we open to get its number:
 * messages would be written there, and daemon_ready() puts another file in its place. */
static void fill_standard(void)
{
    int fd;

    do
        fd = open_nothing(0);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

void daemon_protect(void)
{
    fill_standard();
    inherit_no_descriptors();
    if (!getenv("RUNFS_CORE_DUMPS"))
        dump_no_core();
}

/* A daemon must not keep files, pipes or locks of the process that started it. */
static void close_all_but(int fd)
{
    if (fd > STDERR_FILENO + 1)
        (void)close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
    (void)close_range((unsigned)fd + 1, UINT_MAX, 0);
}

int daemon_fork(void)
{
    int fds[2];
    pid_t child;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    child = fork();
    if (child < 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return -1;
    }
    if (child > 0) {
        (void)close(fds[1]);
        await_verdict(fds[0], child);
    }
    close_all_but(fds[1]);
    return fds[1];
}

void daemon_ready(int fd)
{
    int null = open_nothing(O_CLOEXEC);
    char byte = 'R';

    (void)setsid();
    if (chdir("/") < 0)
        log_debug("chdir /: %s", strerror(errno));
    for (int i = STDIN_FILENO; null >= 0 && i <= STDERR_FILENO; i++)
        (void)dup2(null, i);
    if (null > STDERR_FILENO)
        (void)close(null);
    if (write(fd, &byte, 1) < 0)
        log_debug("the mounting process went away before it heard");
    (void)close(fd);
}

void daemon_protect_from_oom(void)
{
    auto_close int fd = -1;
    char score[16] = "";

    if (geteuid() != 0)
        return;
    fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    /* What an administrator chose stays. */
    if (fd < 0 || read(fd, score, sizeof(score) - 1) <= 0 || strcmp(score, "0\n") != 0)
        return;
    if (pwrite(fd, "-500\n", 5, 0) < 0)
        log_debug("oom_score_adj: %s", strerror(errno));
}
