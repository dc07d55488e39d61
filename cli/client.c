/* Finding a mount's daemon and talking to it. */
#include "cli/client.h"

#include "cli/target.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define ANSWER_MAX (64 * 1024 * 1024)

static bool has_socket(const char *dir)
{
    auto_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    return fd >= 0 && fstatat(fd, CONTROL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(st.st_mode);
}

/* The cache directory that a mount tells of: the folder of its socket. */
static int control_dir(const char *mountpoint, struct op *op, char **ret)
{
    char value[PATH_MAX];
    ssize_t n = getxattr(mountpoint, CONTROL_ATTR, value, sizeof(value) - 1);
    char *slash;

    if (n < 0 && errno == ENOTCONN)
        return op_fail(op, -ENOTCONN, "%s: the runfs that served it is gone", mountpoint);
    if (n < 0) {
        int err = -errno;
        return op_fail(op, err, "%s: it does not tell its control socket: %s", mountpoint,
                       strerror(-err));
    }
    value[n] = '\0';
    slash = strrchr(value, '/');
    if (slash)
        *slash = '\0';
    *ret = strdup(value);
    return *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static int connect_socket(struct client *c, const char *dir, struct op *op)
{
    auto_close int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int err;

    control_address(dir_fd, &address);
    if (dir_fd < 0 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        err = errno == ECONNREFUSED || errno == ENOENT ? -ENOTCONN : -errno;
        return op_fail(op, err, "%s/" CONTROL_NAME ": %s", dir,
                       err != -ENOTCONN ? strerror(-err)
                       : dir_fd < 0     ? "the cache directory was removed"
                                        : "no runfs listens there");
    }
    c->pid = peer.pid;
    c->fd = take_fd(fd);
    control_reader_init(&c->reader, c->fd, ANSWER_MAX);
    return 0;
}

int client_open(const char *path, struct op *op, struct client *ret)
{
    auto_free char *dir = NULL;
    struct client c = {.fd = -1};
    struct target target;
    int err;

    if (has_socket(path)) {
        dir = strdup(path);
        c.rel = strdup("");
        err = dir && c.rel ? 0 : -ENOMEM;
    } else {
        err = target_resolve(path, op, &target);
        if (err)
            return err;
        c.rel = take_ptr(target.rel);
        c.mountpoint = take_ptr(target.mountpoint);
        err = control_dir(c.mountpoint, op, &dir);
    }
    if (err == -ENOMEM)
        (void)op_fail(op, err, "out of memory");
    if (!err) {
        assert(dir);
        err = connect_socket(&c, dir, op);
    }
    if (err)
        client_close(&c);
    else
        *ret = c;
    return err;
}

void client_close(struct client *c)
{
    control_reader_release(&c->reader);
    if (c->fd > 0)
        (void)close(c->fd);
    free(c->rel);
    free(c->mountpoint);
    *c = (struct client){.fd = -1};
}

static int refused(const json_t *answer, struct op *op)
{
    json_int_t err = json_integer_value(json_object_get(answer, "errno"));
    const char *why = json_string_value(json_object_get(answer, "error"));

    if (err <= 0 || err > 4095)
        err = EPROTO;
    return op_fail(op, -(int)err, "%s", why ? why : strerror((int)err));
}

static void report_progress(const json_t *j, client_progress progress, void *arg)
{
    const struct client_step step = {
        .done_bytes = (uint64_t)json_integer_value(json_object_get(j, "done")),
        .total_bytes = (uint64_t)json_integer_value(json_object_get(j, "total")),
        .files = (uint64_t)json_integer_value(json_object_get(j, "files")),
        .error = json_string_value(json_object_get(j, "error")),
    };

    progress(arg, &step);
}

static int lost(int err, struct op *op)
{
    if (err == -ENODATA || err == -EPIPE)
        err = -ECONNRESET;
    return op_fail(op, err, "the daemon did not answer: %s", strerror(-err));
}

static int receive_answer(struct client *c, client_progress progress, void *arg, struct op *op,
                          json_t **ret)
{
    for (;;) {
        auto_json json_t *answer = NULL;
        const json_t *step;
        int err = control_receive(&c->reader, &answer);

        if (err)
            return lost(err, op);
        step = json_object_get(answer, "progress");
        if (step) {
            if (progress)
                report_progress(step, progress, arg);
            continue;
        }
        if (!json_is_true(json_object_get(answer, "ok")))
            return refused(answer, op);
        *ret = json_incref(answer);
        return 0;
    }
}

static int send_request(struct client *c, json_t *request, struct op *op)
{
    int err = request ? control_send(c->fd, request) : -ENOMEM;

    json_decref(request);
    return err ? lost(err, op) : 0;
}

int client_call(struct client *c, json_t *request, client_progress progress, void *arg,
                struct op *op, json_t **ret)
{
    int err = send_request(c, request, op);

    return err ? err : receive_answer(c, progress, arg, op, ret);
}

int client_ask_wait(struct client *c, struct op *op)
{
    auto_json json_t *heard = NULL;
    int err = send_request(c, json_pack("{s:s}", "cmd", "wait"), op);

    if (err)
        return err;
    err = control_receive(&c->reader, &heard);
    if (err)
        return lost(err, op);
    return json_object_get(heard, "progress") ? 0 : refused(heard, op);
}

int client_wait(struct client *c, struct op *op, json_t **ret)
{
    return receive_answer(c, NULL, NULL, op, ret);
}
