/* Keys from a program: run without a shell, its output read until it ends or time is over. */
#include "backends/auth/aws_process.h"

#include "backends/auth/aws_http.h"
#include "backends/auth/aws_owner.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define WORDS_MAX   64
#define OUTPUT_MAX  (64 * 1024)
#define PATIENCE_NS (60 * NS_PER_SEC)
#define POLL_MS     100

/* --- the command line --- */

/* Copies one word, without its quotes, to `to`; returns where it ended, NULL for an open quote.
 */
static const char *copy_word(const char *at, char *to)
{
    char quote = '\0';

    for (; *at && (quote || !isspace((unsigned char)*at)); at++) {
        if (quote ? *at == quote : *at == '\'' || *at == '"') {
            if (quote)
                quote = '\0';
            else
                quote = *at;
        } else if (*at == '\\' && quote != '\'' && at[1] &&
                   (!quote || at[1] == '"' || at[1] == '\\')) {
            *to++ = *++at;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    return quote ? NULL : at;
}

void aws_free_command(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

int aws_split_command(const char *line, char ***ret)
{
    char **words = calloc(WORDS_MAX + 1, sizeof(*words));
    size_t n = 0;
    int err = words ? 0 : -ENOMEM;

    while (!err) {
        while (isspace((unsigned char)*line))
            line++;
        if (!*line)
            break;
        if (n == WORDS_MAX || !(words[n] = malloc(strlen(line) + 1)))
            err = n == WORDS_MAX ? -EINVAL : -ENOMEM;
        else if (!(line = copy_word(line, words[n++])))
            err = -EINVAL;
    }
    if (!err && n == 0)
        err = -EINVAL;
    if (err) {
        aws_free_command(words);
        return err;
    }
    *ret = words;
    return 0;
}

/* --- whose the program is --- */

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Where execvp(3) would find it; heap. A copy of the name when it would not, or without a way
 * to look for it; NULL without memory. */
static char *find_program(const char *name)
{
    const char *dirs = getenv("PATH");

    if (!dirs || strchr(name, '/'))
        return strdup(name);
    for (const char *end; *dirs; dirs = *end ? end + 1 : end) {
        char *path = NULL;

        end = strchrnul(dirs, ':');
        int len = (int)(end - dirs);
        if (asprintf(&path, "%.*s/%s", len ? len : 1, len ? dirs : ".", name) < 0)
            return NULL;
        if (is_program(path))
            return path;
        free(path);
    }
    return strdup(name);
}

/* Whoever may put another program in its place has our rights, and the keys. A program that is
 * not there is left to who starts it. */
static int check_program(const char *path, struct op *op)
{
    auto_free char *copy = strdup(path);
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st, dir;
    char *slash = copy ? strrchr(copy, '/') : NULL;

    if (!copy)
        return op_fail(op, -ENOMEM, "out of memory");
    if (fd < 0 && errno == EACCES) /* to be run only */
        fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    int r = aws_owner_check(fd, &st);
    if (r == -EPERM)
        return op_fail(op, -EACCES,
                       "credential_process %.90s belongs to user %u, who could have anything "
                       "run as user %u: name a program of your own, or of root",
                       path, st.st_uid, geteuid());
    if (slash)
        slash[slash == copy] = '\0'; /* "/" stays */
    bool open_to_all = stat(slash ? copy : ".", &dir) == 0 && (dir.st_mode & S_IWOTH) &&
                       !(dir.st_mode & S_ISVTX);
    return r == 0 && !open_to_all
               ? 0
               : op_fail(
                     op, -EACCES,
                     "credential_process %.90s can be replaced by others: chmod go-w '%.90s'",
                     path,
                     r       ? path
                     : slash ? copy
                             : ".");
}

/* --- the program --- */

struct program {
    pid_t pid;
    int fd; /* its output */
    struct buf output;
};

/* With the signals of a fresh program: our threads block them. */
static int spawn(const char *path, char **words, int out, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int err;

    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&files))
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    err = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (!err)
        err = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETPGROUP);
    if (!err)
        err = posix_spawnp(ret, path, &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return -err;
}

static int start(struct program *p, char **words, struct op *op)
{
    auto_free char *path = find_program(words[0]);
    int ends[2], err;

    if (!path)
        return op_fail(op, -ENOMEM, "out of memory");
    err = check_program(path, op);
    if (err)
        return err;
    if (pipe2(ends, O_CLOEXEC))
        return op_fail(op, -errno, "credential_process: %s", strerror(errno));
    err = spawn(path, words, ends[1], &p->pid);
    close(ends[1]);
    if (err) {
        close(ends[0]);
        return op_fail(op, -EACCES, "credential_process %.100s: %s", words[0], strerror(-err));
    }
    p->fd = ends[0];
    return 0;
}

/* Until it closes its output. */
static int collect(struct program *p, struct op *op)
{
    for (;;) {
        struct pollfd ready = {.fd = p->fd, .events = POLLIN};
        char chunk[4096];
        ssize_t got;
        int err = op_check(op);

        if (err)
            return err;
        if (poll(&ready, 1, POLL_MS) <= 0)
            continue;
        got = read(p->fd, chunk, sizeof(chunk));
        if (got == 0)
            return 0;
        err = got > 0 ? buf_add(&p->output, chunk, (size_t)got) : errno == EINTR ? 0 : -errno;
        OPENSSL_cleanse(chunk, sizeof(chunk));
        if (err)
            return op_fail(op, err == -ENOMEM ? err : -EACCES,
                           "credential_process: its output can't be read");
    }
}

/* Its end; the whole group is killed when it shall not live longer. */
static int finish(struct program *p, int err, struct op *op)
{
    int status = 0, r;

    for (;;) {
        if (err)
            (void)kill(-p->pid, SIGKILL);
        r = waitpid(p->pid, &status, err ? 0 : WNOHANG);
        if (r == p->pid || (r < 0 && errno != EINTR))
            break;
        if (r == 0)
            err = op_sleep(op, 10 * NS_PER_MS);
    }
    close(p->fd);
    if (!err && (r < 0 || !WIFEXITED(status) || WEXITSTATUS(status)))
        err = op_fail(op, -EACCES, "credential_process failed with %s %d",
                      WIFSIGNALED(status) ? "signal" : "exit status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return err;
}

static int take_keys(const struct program *p, struct op *op, struct aws_keys *ret)
{
    json_t *answer = json_loadb(p->output.data ? p->output.data : "", p->output.len, 0, NULL);
    json_int_t version = json_integer_value(json_object_get(answer, "Version"));

    json_decref(answer);
    if (version != 1)
        return op_fail(op, -EACCES, "credential_process: no JSON with \"Version\": 1 came");
    return aws_keys_from_json("credential_process", p->output.data, p->output.len,
                              "SessionToken", op, ret);
}

int aws_fetch_process(const char *command, struct op *op, struct aws_keys *ret)
{
    struct program p = {.output = BUF_SECRET(OUTPUT_MAX)};
    struct op own = *op;
    char **words = NULL;
    int err = aws_split_command(command, &words);

    if (err)
        return op_fail(op, err, "credential_process: the command can't be read");
    if (own.deadline_ns > clock_mono_ns() + PATIENCE_NS)
        own.deadline_ns = clock_mono_ns() + PATIENCE_NS;
    err = start(&p, words, &own);
    if (!err)
        err = finish(&p, collect(&p, &own), &own);
    if (!err)
        err = take_keys(&p, &own, ret);
    aws_free_command(words);
    buf_release(&p.output);
    return err ? op_fail(op, err, "%s%s", err == -ETIMEDOUT ? "credential_process: " : "",
                         own.why)
               : 0;
}
