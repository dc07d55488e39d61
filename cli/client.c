/* Finding a mount's daemon and talking to it. */
#include "cli/client.h"

#include "cli/foreign.h"
#include "cli/mountinfo.h"
#include "cli/target.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Of one line; parsed it takes some twenty times of it. 10,000 files come to less. */
#define ANSWER_MAX (16 * 1024 * 1024)
/* How long a program of another user's has to say which mount it serves. */
#define FOREIGN_SECONDS 3
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* Only a program of the owner may be asked, and no other that a mount or a folder names. */
struct server {
    const char *where; /* for messages */
    int dir_fd;        /* of the cache directory */
    uid_t owner;
};

static bool is_runfs(int mount_id)
{
    struct mountinfo m;

    if (mount_id < 0 || mountinfo_by_id(mount_id, &m))
        return false;
    bool runfs = mountinfo_is_runfs(&m);
    mountinfo_release(&m);
    return runfs;
}

/* What may be a cache directory, or -1. A mount is not opened: who unmounts it at that moment
 * would find a user of it. */
static int open_named(const char *path)
{
    return is_runfs(mountinfo_id_of_path(path, true))
               ? -1
               : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* A cache directory that the user named. To look into a mount is to ask its daemon. */
static bool has_socket(int dir_fd, uid_t *ret_owner)
{
    struct stat st, dir;

    if (dir_fd < 0 || is_runfs(mountinfo_id_of_fd(dir_fd)) ||
        fstatat(dir_fd, CONTROL_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode) ||
        fstat(dir_fd, &dir) < 0)
        return false;
    *ret_owner = dir.st_uid;
    return true;
}

int client_cache_dir(const char *mountpoint, struct op *op, char **ret)
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

/* The daemon tells the real path: a symlink in it came later, from anybody. */
static int open_dir(const char *dir)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS};

    return (int)syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
}

static int connect_socket(struct client *c, const struct server *s, struct op *op)
{
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int err;

    control_address(s->dir_fd, &address);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        err = errno == ECONNREFUSED || errno == ENOENT ? -ENOTCONN : -errno;
        return op_fail(op, err, "%s/" CONTROL_NAME ": %s", s->where,
                       err == -ENOTCONN ? "no runfs listens there" : strerror(-err));
    }
    if (peer.uid != s->owner)
        return op_fail(op, -EPERM,
                       "%s/" CONTROL_NAME ": it belongs to user %u, but user %u listens "
                       "there: not asked",
                       s->where, (unsigned)s->owner, (unsigned)peer.uid);
    c->pid = peer.pid;
    c->fd = take_fd(fd);
    control_reader_init(&c->reader, c->fd, ANSWER_MAX);
    return 0;
}

static void set_patience(int fd, int64_t seconds)
{
    const struct timeval time = {.tv_sec = seconds}; /* 0: for ever */

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

/* A search among the programs of the mount's owner. */
struct search {
    struct client *c;
    uid_t owner;
    pid_t asked; /* the last one: once is enough */
};

static bool serves(struct client *c)
{
    auto_json json_t *answer = NULL;
    const char *point;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (client_call(c, json_pack("{s:s}", "cmd", "status"), NULL, NULL, &op, &answer))
        return false;
    point = json_string_value(json_object_get(json_object_get(answer, "status"), "mountpoint"));
    return point && strcmp(point, c->mountpoint) == 0;
}

static void hang_up(struct client *c)
{
    control_reader_release(&c->reader);
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
}

static bool try_dir(void *arg, pid_t pid, int dir_fd)
{
    struct search *search = arg;
    struct client *c = search->c;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (pid == search->asked ||
        connect_socket(c, &(struct server){"", dir_fd, search->owner}, &op))
        return false;
    search->asked = pid;
    set_patience(c->fd, FOREIGN_SECONDS);
    if (c->pid != pid || !serves(c)) {
        hang_up(c);
        return false;
    }
    set_patience(c->fd, 0);
    return true;
}

/* Root asks nothing of another user's mount itself. */
static int connect_foreign(struct client *c, uid_t owner, struct op *op)
{
    struct search search = {.c = c, .owner = owner};

    if (foreign_each_dir(owner, try_dir, &search))
        return 0;
    return op_fail(op, -ENOTCONN,
                   "%s: no runfs of user %u that serves it answers (in this container)",
                   c->mountpoint, (unsigned)owner);
}

static int connect_of_mount(struct client *c, uid_t owner, struct op *op)
{
    auto_free char *dir = NULL;

    if (geteuid() == 0 && owner != 0)
        return connect_foreign(c, owner, op);
    int err = client_cache_dir(c->mountpoint, op, &dir);
    if (err)
        return err;
    assert(dir);
    auto_close int dir_fd = open_dir(dir);
    if (dir_fd >= 0)
        return connect_socket(c, &(struct server){dir, dir_fd, owner}, op);
    err = errno == ENOENT ? -ENOTCONN : -errno;
    return op_fail(op, err, "%s/" CONTROL_NAME ": %s", dir,
                   err == -ENOTCONN ? "the cache directory was removed" : strerror(-err));
}

int client_open(const char *path, struct op *op, struct client *ret)
{
    auto_close int dir_fd = open_named(path);
    struct server named = {.where = path, .dir_fd = dir_fd};
    struct client c = {.fd = -1};
    struct target target;
    int err;

    if (has_socket(dir_fd, &named.owner)) {
        c.rel = strdup("");
        err = c.rel ? connect_socket(&c, &named, op) : op_fail(op, -ENOMEM, "out of memory");
    } else {
        err = target_resolve(path, op, &target);
        if (err)
            return err;
        c.rel = take_ptr(target.rel);
        c.mountpoint = take_ptr(target.mountpoint);
        err = connect_of_mount(&c, target.owner, op);
    }
    if (err)
        client_close(&c);
    else
        *ret = c;
    return err;
}

int client_pidfd(const struct client *c)
{
    int pidfd;
    socklen_t len = sizeof(pidfd);

    /* A number could be another process's by now. Linux 6.5 has better. */
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
        return pidfd;
    return errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, c->pid, 0) : -1;
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
    const json_t *stalled = json_object_get(j, "stalled");
    const struct client_step step = {
        .done_bytes = (uint64_t)json_integer_value(json_object_get(j, "done")),
        .total_bytes = (uint64_t)json_integer_value(json_object_get(j, "total")),
        .files = (uint64_t)json_integer_value(json_object_get(j, "files")),
        .error = json_string_value(json_object_get(j, "error")),
        .store = json_string_value(json_object_get(j, "store")),
        .stalled = json_is_object(stalled) ? stalled : NULL,
        .found = json_object_get(j, "found"),
    };

    progress(arg, &step);
}

static int lost(int err, struct op *op)
{
    if (err == -ENODATA || err == -ECONNRESET)
        err = -EPIPE;
    return op_fail(op, err, "the daemon did not answer: %s", strerror(-err));
}

/* Where the daemon does not know how long we wait. */
static int receive_in_time(struct client *c, const struct op *op, json_t **ret)
{
    int64_t left_ns = op_left_ns(op);
    const struct timeval tv = {left_ns / NS_PER_SEC, left_ns % NS_PER_SEC / 1000 + 1};

    if (left_ns == 0)
        return -ETIMEDOUT;
    if (left_ns != OP_FOREVER)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    int err = control_receive(&c->reader, ret);
    return err == -EAGAIN ? -ETIMEDOUT : err;
}

static int receive_answer(struct client *c, client_progress progress, void *arg, struct op *op,
                          const struct op *patience, json_t **ret)
{
    for (;;) {
        auto_json json_t *answer = NULL;
        const json_t *step;
        int err = receive_in_time(c, patience, &answer);

        if (err)
            return lost(err, op);
        step = json_object_get(answer, "progress");
        if (step) {
            if (progress)
                report_progress(step, progress, arg);
            continue;
        }
        *ret = json_incref(answer);
        return json_is_true(json_object_get(answer, "ok")) ? 0 : refused(answer, op);
    }
}

static int send_request(struct client *c, json_t *request, struct op *op)
{
    int err = request ? control_send(c->fd, request) : -ENOMEM;

    json_decref(request);
    if (err == -EPIPE)
        return 0; /* a daemon that hung up may have said why before */
    return err ? lost(err, op) : 0;
}

int client_call(struct client *c, json_t *request, client_progress progress, void *arg,
                struct op *op, json_t **ret)
{
    int err = send_request(c, request, op);
    const struct op forever = {.deadline_ns = OP_FOREVER};

    return err ? err : receive_answer(c, progress, arg, op, &forever, ret);
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

int client_wait(struct client *c, client_progress progress, void *arg, struct op *op,
                json_t **ret)
{
    return receive_answer(c, progress, arg, op, op, ret);
}
