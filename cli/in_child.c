/* A child that asks. */
#include "cli/in_child.h"

#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_SECONDS 5
#define ANSWER_MAX       (1024 * 1024)

static int receive(int fd, json_t **ret)
{
    const struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    struct control_reader reader;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    control_reader_init(&reader, fd, ANSWER_MAX);
    int err = control_receive(&reader, ret);
    control_reader_release(&reader);
    return err == -EAGAIN ? -ETIMEDOUT : err;
}

int in_child(json_t *(*answer)(const void *about), const void *about, json_t **ret)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    auto_close int ours = fds[0];
    pid_t pid = fork();
    if (pid == 0) {
        auto_json json_t *told = answer(about);
        _exit(control_send(fds[1], told) < 0);
    }
    (void)close(fds[1]);
    int err = pid < 0 ? -EAGAIN : receive(ours, ret);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        /* The kernel may keep one that got no answer as long as the mount does. */
        (void)waitpid(pid, NULL, err == -ETIMEDOUT ? WNOHANG : 0);
    }
    return err;
}
