/* runfs lock: has the daemon lock paths, and runs a command meanwhile. The locks live as long
 * as the connection, which no child inherits: they end with this process, however that ends. */
#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/target.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* As env(1), timeout(1) and their like have them; the last is EX_UNAVAILABLE of sysexits.h. */
#define EXIT_NO_LOCK    125
#define EXIT_CANT_RUN   126
#define EXIT_NO_COMMAND 127
#define EXIT_LOST       69

#define VIEWS "/.runfs/locked/"

/* ---- the lock ---- */

struct locking {
    struct client client;
    json_t *paths; /* as the daemon takes them */
    json_t *ids;
    bool refuse;
    int64_t wait_ns;
    int mount_fd; /* who unmounts sees a user of the mount */
};

static void locking_release(struct locking *l)
{
    client_close(&l->client);
    json_decref(l->paths);
    json_decref(l->ids);
    if (l->mount_fd >= 0)
        (void)close(l->mount_fd);
}

static int no_lock(const char *path, const char *why)
{
    (void)command_failed("lock %s: %s", path, why);
    return EXIT_NO_LOCK;
}

/* What the path leads to is what a program reads: `latest` may lead elsewhere while it does. */
static int add_path(struct locking *l, const char *path)
{
    auto_free char *real = realpath(path, NULL);
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (target_resolve(real ? real : path, &op, &target))
        return no_lock(path, op.why);
    if (strcmp(target.mountpoint, l->client.mountpoint ? l->client.mountpoint : "") != 0) {
        target_release(&target);
        return no_lock(path, "it is on another mount than the first path: lock it by a command "
                             "of its own (`runfs lock ... -- runfs lock ... -- COMMAND`)");
    }
    auto_free char *text = control_encode_path(target.rel);
    target_release(&target);
    if (!text || json_array_append_new(l->paths, json_string(text)))
        return no_lock(path, "out of memory");
    return -1;
}

static char *join_words(char *const *words)
{
    auto_buf struct buf b = BUF_INIT(4096);

    for (size_t i = 0; words[i]; i++)
        if (buf_addf(&b, "%s%s", i ? " " : "", words[i]) < 0)
            break; /* the beginning says which command it is */
    return buf_take(&b);
}

static int ask(struct locking *l, const char *path, char *const *command)
{
    auto_free char *words = join_words(command);
    auto_json json_t *answer = NULL;
    struct op op;

    json_t *request =
        json_pack("{s:s, s:O, s:b, s:I, s:o}", "cmd", "lock", "paths", l->paths, "refuse",
                  (int)l->refuse, "timeout_ms", (json_int_t)(l->wait_ns / NS_PER_MS), "command",
                  control_text(words ? words : ""));
    op_init(&op, OP_FOREVER);
    if (client_call(&l->client, request, NULL, NULL, &op, &answer))
        return no_lock(path, op.why);
    l->ids = json_incref(json_object_get(answer, "ids"));
    return -1;
}

/* -1 to go on, else an exit code. */
static int take(struct locking *l, char **paths, int n, char *const *command)
{
    auto_free char *real = realpath(paths[0], NULL);
    struct op op;

    op_init(&op, OP_FOREVER);
    if (client_open(real ? real : paths[0], &op, &l->client))
        return no_lock(paths[0], op.why);
    if (!l->client.mountpoint)
        return no_lock(paths[0], "it is a cache directory; lock a path of the mount");
    l->mount_fd = open(l->client.mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    l->paths = json_array();
    for (int i = 0; i < n; i++) {
        int code = add_path(l, paths[i]);
        if (code >= 0)
            return code;
    }
    return ask(l, paths[0], command);
}

/* Whether the daemon has closed its end: the locks are gone. */
static bool is_lost(const struct locking *l)
{
    char byte;

    return recv(l->client.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ||
           (errno != EAGAIN && errno != EINTR);
}

static int tell_views(const struct locking *l)
{
    auto_buf struct buf b = BUF_INIT(1 << 20);
    const json_t *id;
    size_t i;

    json_array_foreach(l->ids, i, id)
    {
        if (buf_addf(&b, "%s%s" VIEWS "%" PRIu64, i ? ":" : "", l->client.mountpoint,
                     (uint64_t)json_integer_value(id)) < 0)
            return -ENOMEM;
    }
    return setenv("RUNFS_LOCKED", b.data ? b.data : "", 1) < 0 ? -errno : 0;
}

/* ---- the command ---- */

/* What is sent to us is meant for the command. A terminal sends to both. */
static const int passed_on[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};

static void run_child(char *const *command, const sigset_t *mask, int tell_fd)
{
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    (void)execvp(command[0], command);
    int err = errno;
    (void)!write(tell_fd, &err, sizeof(err));
    _exit(err == ENOENT ? EXIT_NO_COMMAND : EXIT_CANT_RUN);
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Until the command has ended. */
static int await_child(pid_t child, const sigset_t *signals)
{
    siginfo_t info;
    int status;

    for (;;) {
        if (waitpid(child, &status, WNOHANG) == child)
            return code_of(status);
        int signal = sigwaitinfo(signals, &info);
        if (signal > 0 && signal != SIGCHLD && info.si_code <= 0)
            (void)kill(child, signal);
    }
}

static int run(char *const *command)
{
    sigset_t signals, mask;
    int fds[2], err;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
        (void)sigaddset(&signals, passed_on[i]);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return no_lock(command[0], strerror(errno));
    auto_close int told_fd = fds[0], tell_fd = fds[1];
    (void)sigprocmask(SIG_BLOCK, &signals, &mask);
    (void)signal(SIGCHLD, SIG_DFL); /* who ignores it is not told of an end */
    pid_t child = fork();
    if (child == 0)
        run_child(command, &mask, tell_fd);
    if (child < 0)
        return no_lock(command[0], strerror(errno));
    (void)close(take_fd(tell_fd));
    if (read(told_fd, &err, sizeof(err)) == sizeof(err))
        (void)command_failed("lock: cannot run %s: %s", command[0], strerror(err));
    return await_child(child, &signals);
}

static int lock_and_run(struct locking *l, char **paths, int n, char *const *command)
{
    int code = take(l, paths, n, command);

    if (code >= 0)
        return code;
    if (tell_views(l) < 0)
        return no_lock(paths[0], "out of memory");
    code = run(command);
    if (!is_lost(l))
        return code;
    (void)command_failed("lock %s: the daemon ended before the command, and the lock with it; "
                         "what was removed since may be gone (the command's exit code was %d)",
                         paths[0], code);
    return EXIT_LOST;
}

int command_lock(const struct command *self, int argc, char **argv)
{
    struct locking l = {.client = {.fd = -1}, .mount_fd = -1};
    const struct argument table[] = {{.name = "--wait", .time_ns = &l.wait_ns},
                                     {.name = "--refuse", .flag = &l.refuse},
                                     {0}};
    int end = 1, n;

    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    int code = arguments_parse(self, table, end, argv, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return command_misused(self, "lock needs a path");
    if (end + 1 >= argc)
        return command_misused(self, "lock needs a command behind --");
    code = lock_and_run(&l, argv + 1, n, argv + end + 1);
    locking_release(&l);
    return code;
}
