/* The control socket of a mount.
 *
 * One thread accepts, watches the connections for clients that went away and takes a rate
 * sample every second; each connection has a thread of its own, which may block in the cache
 * for as long as its client waits. A client that goes away cancels what it asked for. */
#include "cli/control_server.h"

#include "cache/cache.h"
#include "cli/control_io.h"
#include "cli/control_locks.h"
#include "cli/stall_doc.h"
#include "cli/status_doc.h"
#include "cli/units_answer.h"
#include "cli/verify_answer.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#define CONNECTIONS_MAX (32 + CONTROL_LOCKS_MAX)
#define ROOTS_SHARE     4 /* of them: what the owner's programs can't take from root */
#define REQUEST_MAX     (256 * 1024)
#define IDLE_SECONDS    60         /* a connection without a request is closed */
#define SEND_SECONDS    30         /* a client that reads nothing counts as gone */
#define LEFT_NAMED      3          /* files that a failure names */
#define STEP_NS         NS_PER_SEC /* between the words to a client that waits for the end */

/* A leaf. Connections are shut down and closed under it, so that none is taken for another. */
extern struct lock_class control_mutex;

struct connection {
    struct control_server *server; /* constant */
    int fd; /* -1: the slot is free; changed under the lock, without which only the
               connection's own thread reads it */
    uint64_t number GUARDED_BY(control_mutex); /* tells users of a slot apart */
    bool locks GUARDED_BY(control_mutex);      /* its client may have paths locked */
    atomic_bool gone;                          /* the client went away, or the server stops */
};

struct control_server {
    struct cache *cache; /* constant, as all up to the lock */
    struct status_doc *status;
    int dir_fd, listen_fd, stop_fd;
    pthread_t acceptor;

    struct mutex lock;
    pthread_cond_t changed; /* a connection ended or is gone, or `stopping` was set */
    struct connection slots[CONNECTIONS_MAX] GUARDED_BY(control_mutex);
    unsigned used GUARDED_BY(control_mutex);
    uint64_t numbers GUARDED_BY(control_mutex);
    bool stopping GUARDED_BY(control_mutex);
    /* answer to "wait"; set with `stopping`, NULL until then */
    const json_t *last GUARDED_BY(control_mutex);
};

MUTEX_KIND(control, struct control_server, lock);

/* ---- answers ---- */

static int answer_ok(int fd)
{
    auto_json json_t *answer = json_pack("{s:b}", "ok", 1);

    return control_send(fd, answer);
}

static int answer_error(int fd, int err, const char *why)
{
    auto_json json_t *answer =
        json_pack("{s:b, s:i, s:o}", "ok", 0, "errno", -err, "error", control_text(why));

    return control_send(fd, answer);
}

static void add_stall(struct connection *c, json_t *to)
{
    struct status_doc *status = c->server->status;
    const char *url;
    json_t *stalled = status_doc_stall(status, &url);

    if (json_is_object(stalled))
        (void)json_object_set_new(to, "store", control_text(url));
    (void)json_object_set_new(to, "stalled", stalled);
}

/* Says, too, what trouble uploads are in: a flush waits while they are tried again. */
static void send_progress(void *arg, uint64_t done, uint64_t total)
{
    struct connection *c = arg;
    auto_json json_t *message = NULL;
    struct cache_stats s;

    cache_get_stats(c->server->cache, &s);
    message = json_pack("{s:{s:I, s:I, s:I, s:o*}}", "progress", "done", (json_int_t)done,
                        "total", (json_int_t)total, "files", (json_int_t)s.dirty_files, "error",
                        s.failed_files ? control_text(s.last_error_text) : NULL);
    add_stall(c, json_object_get(message, "progress"));
    if (control_send(c->fd, message) < 0)
        atomic_store(&c->gone, true);
}

static int handle_status(struct connection *c, const json_t *request)
{
    bool files = json_is_true(json_object_get(request, "files"));
    json_t *status = status_doc_json(c->server->status, files);
    auto_json json_t *answer = json_pack("{s:b, s:o}", "ok", 1, "status", status);

    if (!answer)
        return answer_error(c->fd, -ENOMEM, "out of memory");
    return control_send(c->fd, answer);
}

/* What is left below a path after it was flushed, of each kind a few by name. */
struct leftover {
    const char *path;
    json_int_t staged, kept;
    json_t *staged_names, *kept_names;
};

static void count_named(json_int_t *n, json_t *names, const char *path)
{
    if ((*n)++ < LEFT_NAMED)
        (void)json_array_append_new(names, control_text(path));
}

static int count_leftover(void *arg, const struct cache_pending *p)
{
    struct leftover *l = arg;

    if (!path_below(l->path, p->path))
        return 0;
    if (p->waits)
        count_named(&l->staged, l->staged_names, p->path);
    if (strcmp(p->kind, "kept") == 0)
        count_named(&l->kept, l->kept_names, p->path);
    return 0;
}

/* What the store lacks below a path. */
struct left {
    const char *path;
    json_int_t files;
    json_t *names;
};

static int add_left(void *arg, const struct cache_pending *p)
{
    struct left *l = arg;

    if (!path_below(l->path, p->path) && !(p->path2 && path_below(l->path, p->path2)))
        return 0;
    count_named(&l->files, l->names, p->path);
    return 0;
}

/* Says why the client has waited in vain, and what the store lacks below `path`; NULL: it did
 * not wait for the store to have something. */
static int answer_failed(struct connection *c, const char *path, int err, const char *why)
{
    struct left l = {.path = path, .names = json_array()};
    auto_json json_t *answer = NULL;

    if (path)
        (void)cache_each_pending(c->server->cache, add_left, &l);
    answer = json_pack("{s:b, s:i, s:o, s:o, s:I, s:o}", "ok", 0, "errno", -err, "error",
                       control_text(why), "cache_dir",
                       control_text(status_doc_cache_dir(c->server->status)), "left", l.files,
                       "names", l.names);
    add_stall(c, answer);
    return control_send(c->fd, answer);
}

static int answer_flushed(struct connection *c, const char *path)
{
    struct leftover l = {
        .path = path, .staged_names = json_array(), .kept_names = json_array()};
    auto_json json_t *answer = NULL;

    int err = cache_each_pending(c->server->cache, count_leftover, &l);
    if (err) {
        char why[100];

        (void)snprintf(why, sizeof(why), "what is kept in the cache can't be looked at: %s",
                       strerror(-err));
        json_decref(l.staged_names);
        json_decref(l.kept_names);
        return answer_failed(c, path, err, why);
    }
    answer =
        json_pack("{s:b, s:I, s:o, s:I, s:o, s:o}", "ok", 1, "staged", l.staged, "staged_names",
                  l.staged_names, "kept", l.kept, "kept_names", l.kept_names, "cache_dir",
                  control_text(status_doc_cache_dir(c->server->status)));
    return control_send(c->fd, answer);
}

static int64_t request_timeout(const json_t *request)
{
    const json_t *ms = json_object_get(request, "timeout_ms");
    json_int_t value = json_integer_value(ms);

    if (!json_is_integer(ms) || value < 0 || value > INT64_MAX / NS_PER_MS / 2)
        return OP_FOREVER;
    return value * NS_PER_MS;
}

/* The decoded path of a request; answers the client when there is none. */
static int request_path(struct connection *c, const json_t *request, char **ret)
{
    const char *text = json_string_value(json_object_get(request, "path"));
    int err = text ? control_decode_path(text, ret) : -EINVAL;

    if (err)
        (void)answer_error(c->fd, err, "the request has no good path");
    return err;
}

static unsigned flush_flags(const json_t *request)
{
    return (json_is_true(json_object_get(request, "staged")) ? CACHE_FLUSH_STAGED : 0u) |
           (json_is_true(json_object_get(request, "open")) ? CACHE_FLUSH_HALF : 0u);
}

static int handle_transfer(struct connection *c, const json_t *request, bool flush)
{
    struct cache *cache = c->server->cache;
    auto_free char *path = NULL;
    struct op op;
    int err = request_path(c, request, &path);

    if (err)
        return err;
    op_init(&op, request_timeout(request));
    op.cancelled = &c->gone;
    if (flush)
        err = cache_flush_path(cache, path, flush_flags(request), &op, send_progress, c);
    else
        err = cache_fetch_path(cache, path, &op, send_progress, c);
    if (err)
        return answer_failed(c, flush ? path : NULL, err, *op.why ? op.why : strerror(-err));
    return flush ? answer_flushed(c, path) : answer_ok(c->fd);
}

static int handle_flush(struct connection *c, const json_t *request)
{
    return handle_transfer(c, request, true);
}

static int handle_fetch(struct connection *c, const json_t *request)
{
    return handle_transfer(c, request, false);
}

static void add_path(void *arg, const char *path, bool mapped)
{
    (void)mapped;
    auto_free char *text = control_encode_path(path);

    if (text)
        (void)json_array_append_new(arg, json_string(text));
}

static int handle_writers(struct connection *c, const json_t *request)
{
    auto_free char *path = NULL;
    auto_json json_t *answer = json_pack("{s:b, s:[]}", "ok", 1, "paths");
    int err = request_path(c, request, &path);

    if (err)
        return err;
    if (answer)
        cache_each_mapped(c->server->cache, path, add_path, json_object_get(answer, "paths"));
    return control_send(c->fd, answer);
}

static int set_pinned(struct connection *c, const json_t *request, bool pinned)
{
    auto_free char *path = NULL;
    int err = request_path(c, request, &path);

    if (err)
        return err;
    err = cache_pin(c->server->cache, path, pinned);
    return err ? answer_error(c->fd, err, strerror(-err)) : answer_ok(c->fd);
}

static int handle_pin(struct connection *c, const json_t *request)
{
    return set_pinned(c, request, true);
}

static int handle_unpin(struct connection *c, const json_t *request)
{
    return set_pinned(c, request, false);
}

/* What of an eviction stays. */
struct stays {
    json_t *names;
    json_int_t n;
};

static void note_stay(void *arg, const char *path, enum cache_stay why)
{
    struct stays *s = arg;

    (void)why;
    count_named(&s->n, s->names, path);
}

static int handle_evict(struct connection *c, const json_t *request)
{
    struct stays stays = {.names = json_array()};
    auto_free char *path = NULL;
    auto_json json_t *answer = NULL;
    struct cache_evicted e;
    struct op op;
    int err = request_path(c, request, &path);

    if (!err) {
        op_init(&op, OP_FOREVER);
        op.cancelled = &c->gone;
        err = cache_evict_path(c->server->cache, path, &op, note_stay, &stays, &e);
        if (err) /* the client is answered, and may go on */
            err = answer_error(c->fd, err, op.why);
        else
            answer = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "ok", 1, "files",
                               (json_int_t)e.files, "bytes", (json_int_t)e.bytes, "dirty",
                               (json_int_t)e.stay[CACHE_STAYS_DIRTY], "local",
                               (json_int_t)e.stay[CACHE_STAYS_LOCAL], "pinned",
                               (json_int_t)e.stay[CACHE_STAYS_PINNED], "used",
                               (json_int_t)e.stay[CACHE_STAYS_USED], "stay_names", stays.names);
    }
    json_decref(stays.names);
    return answer ? control_send(c->fd, answer) : err;
}

static int handle_units(struct connection *c, const json_t *request)
{
    auto_free char *path = NULL;
    int err = request_path(c, request, &path);
    auto_json json_t *answer = err ? NULL : units_answer(c->server->cache, path);

    return err ? err : control_send(c->fd, answer);
}

/* Answers with what the call says of the path. */
static int call_of_path(struct connection *c, const json_t *request,
                        int (*call)(struct cache *cache, const char *path, struct op *op))
{
    auto_free char *path = NULL;
    struct op op;
    int err = request_path(c, request, &path);

    if (err)
        return err;
    op_init(&op, OP_FOREVER);
    op.cancelled = &c->gone;
    err = call(c->server->cache, path, &op);
    return err ? answer_error(c->fd, err, *op.why ? op.why : strerror(-err)) : answer_ok(c->fd);
}

static int handle_commit(struct connection *c, const json_t *request)
{
    return call_of_path(c, request, cache_commit);
}

static int adopt(struct cache *cache, const char *path, struct op *op)
{
    return cache_clean_unit(cache, path, false, op);
}

static int handle_adopt(struct connection *c, const json_t *request)
{
    return call_of_path(c, request, adopt);
}

static int drop(struct cache *cache, const char *path, struct op *op)
{
    return cache_clean_unit(cache, path, true, op);
}

static int handle_drop(struct connection *c, const json_t *request)
{
    return call_of_path(c, request, drop);
}

static int handle_stored(struct connection *c, const json_t *request)
{
    return call_of_path(c, request, cache_stored_path);
}

static int handle_verify(struct connection *c, const json_t *request)
{
    const struct verify_answer answer = {
        c->server->cache, c->fd, status_doc_cache_dir(c->server->status), send_progress, c};
    auto_free char *path = NULL;
    struct op op;
    int err = request_path(c, request, &path);

    op_init(&op, request_timeout(request));
    op.cancelled = &c->gone;
    return err ? err : verify_answer(&answer, path, request, &op);
}

/* True when it stops. */
static bool await_stop(struct connection *c, int64_t ns)
{
    struct control_server *s = c->server;
    int64_t until_ns = clock_mono_ns() + ns;

    control_lock(s);
    while (!s->stopping && !atomic_load(&c->gone) && clock_mono_ns() < until_ns)
        (void)control_wait_until(s, &s->changed, until_ns);
    bool stops = s->stopping || atomic_load(&c->gone);
    control_unlock(s);
    return stops;
}

static int handle_wait(struct connection *c, const json_t *request)
{
    auto_json json_t *heard = json_pack("{s:{}}", "progress");
    struct control_server *s = c->server;
    const json_t *last;
    int err = control_send(c->fd, heard);

    (void)request;
    if (err)
        return err;
    while (!await_stop(c, STEP_NS))
        send_progress(c, 0, 0);
    control_lock(s);
    last = s->last;
    control_unlock(s);
    return last ? control_send(c->fd, last) : -EPIPE;
}

static int handle_lock(struct connection *c, const json_t *request)
{
    control_lock(c->server);
    c->locks = true;
    control_unlock(c->server);
    return control_lock_paths(c->server->cache, c->fd, request, &c->gone, await_stop, c);
}

static int handle_locks(struct connection *c, const json_t *request)
{
    auto_free char *path = NULL;
    int err = request_path(c, request, &path);

    return err ? err : control_list_locks(c->server->cache, c->fd, path);
}

static int dispatch(struct connection *c, const json_t *request)
{
    static const struct {
        const char *name;
        int (*handle)(struct connection *c, const json_t *request);
    } commands[] = {
        {"status", handle_status},   {"flush", handle_flush},   {"fetch", handle_fetch},
        {"pin", handle_pin},         {"unpin", handle_unpin},   {"wait", handle_wait},
        {"writers", handle_writers}, {"evict", handle_evict},   {"stored", handle_stored},
        {"units", handle_units},     {"commit", handle_commit}, {"verify", handle_verify},
        {"lock", handle_lock},       {"locks", handle_locks},   {"adopt", handle_adopt},
        {"drop", handle_drop},
    };
    const char *name = json_string_value(json_object_get(request, "cmd"));

    for (size_t i = 0; name && i < ARRAY_SIZE(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].handle(c, request);
    return answer_error(c->fd, -ENOSYS, "this runfs does not know that request");
}

/* ---- connections ---- */

/* How many connections may be open when this peer gets one; 0: it gets none. */
static unsigned room_for_peer(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return 0;
    if (peer.uid == 0)
        return CONNECTIONS_MAX;
    return peer.uid == geteuid() ? CONNECTIONS_MAX - ROOTS_SHARE : 0;
}

static void close_connection(struct connection *c)
{
    struct control_server *s = c->server;

    control_lock(s);
    (void)close(c->fd);
    c->fd = -1;
    s->used--;
    pthread_cond_broadcast(&s->changed);
    control_unlock(s);
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    struct control_reader reader;
    int err = 0;

    control_reader_init(&reader, c->fd, REQUEST_MAX);
    while (!err && !atomic_load(&c->gone)) {
        json_t *request;

        err = control_receive(&reader, &request);
        if (err)
            break;
        err = dispatch(c, request);
        json_decref(request);
    }
    control_reader_release(&reader);
    close_connection(c);
    return NULL;
}

static void set_timeouts(int fd)
{
    const struct timeval idle = {.tv_sec = IDLE_SECONDS};
    const struct timeval slow = {.tv_sec = SEND_SECONDS};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof(idle));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slow, sizeof(slow));
}

/* A free slot for the descriptor, or NULL when `room` connections are open. */
static struct connection *take_slot(struct control_server *s, int fd, unsigned room)
{
    struct connection *c = NULL;

    control_lock(s);
    bool may = s->used < room && !s->stopping;
    for (size_t i = 0; i < CONNECTIONS_MAX && !c && may; i++)
        if (s->slots[i].fd < 0)
            c = &s->slots[i];
    if (c) {
        c->fd = fd;
        c->number = ++s->numbers;
        c->locks = false;
        atomic_store(&c->gone, false);
        s->used++;
    }
    control_unlock(s);
    return c;
}

static void serve_client(struct control_server *s, int fd)
{
    unsigned room = room_for_peer(fd);
    struct connection *c;
    pthread_attr_t attr;
    pthread_t thread;
    int err;

    if (room == 0) {
        (void)close(fd);
        return;
    }
    set_timeouts(fd);
    c = take_slot(s, fd, room);
    if (!c) {
        (void)answer_error(fd, -EBUSY, "too many runfs commands run at once");
        (void)close(fd);
        return;
    }
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    err = pthread_create(&thread, &attr, serve, c);
    (void)pthread_attr_destroy(&attr);
    if (err)
        close_connection(c);
}

/* ---- the accepting thread ---- */

/* False when the system has no descriptor (or memory) for a client: the socket stays readable
 * then, and is not to be looked at before the next second. */
static bool accept_all(struct control_server *s)
{
    int fd;

    while ((fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        serve_client(s, fd);
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return true;
    log_warn("control socket: a runfs command has to wait: %s", strerror(errno));
    return false;
}

struct watch {
    struct pollfd fds[CONNECTIONS_MAX + 2];
    struct connection *connections[CONNECTIONS_MAX + 2];
    uint64_t numbers[CONNECTIONS_MAX + 2];
    nfds_t n;
};

static void watch_connections(struct control_server *s, struct watch *w, bool accepting)
{
    w->fds[0] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
    w->fds[1] = (struct pollfd){.fd = accepting ? s->listen_fd : -1, .events = POLLIN};
    w->n = 2;
    control_lock(s);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &s->slots[i];

        if (c->fd < 0 || atomic_load(&c->gone))
            continue;
        w->fds[w->n] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        w->connections[w->n] = c;
        w->numbers[w->n++] = c->number;
    }
    control_unlock(s);
}

static void mark_gone(struct control_server *s, const struct watch *w)
{
    control_lock(s);
    for (nfds_t i = 2; i < w->n; i++) {
        struct connection *c = w->connections[i];

        if (!w->fds[i].revents || c->fd < 0 || c->number != w->numbers[i])
            continue;
        atomic_store(&c->gone, true);
        pthread_cond_broadcast(&s->changed);
    }
    control_unlock(s);
}

static void *accept_loop(void *arg)
{
    struct control_server *s = arg;
    int64_t sampled_ns = 0;
    bool accepting = true;
    struct watch w;

    for (;;) {
        int64_t now;

        watch_connections(s, &w, accepting);
        if (poll(w.fds, w.n, 1000) < 0 && errno != EINTR)
            return NULL;
        if (w.fds[0].revents)
            return NULL;
        mark_gone(s, &w);
        accepting = !w.fds[1].revents || accept_all(s);
        now = clock_mono_ns();
        if (now - sampled_ns >= NS_PER_SEC) {
            status_doc_sample(s->status);
            sampled_ns = now;
        }
    }
}

/* ---- start and stop ---- */

static int open_socket(struct control_server *s, int dir_fd)
{
    struct sockaddr_un address;

    s->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    if (s->dir_fd < 0)
        return -errno;
    control_address(s->dir_fd, &address);
    if (unlinkat(s->dir_fd, CONTROL_NAME, 0) < 0 && errno != ENOENT)
        return -errno;
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen_fd < 0)
        return -errno;
    /* The directory is 0700, so the moment between bind() and chmod() opens nothing. */
    if (bind(s->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fchmodat(s->dir_fd, CONTROL_NAME, 0600, 0) < 0 || listen(s->listen_fd, 128) < 0)
        return -errno;
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    return s->stop_fd < 0 ? -errno : 0;
}

static void server_free(struct control_server *s)
{
    if (s->listen_fd >= 0) {
        (void)close(s->listen_fd);
        (void)unlinkat(s->dir_fd, CONTROL_NAME, 0);
    }
    if (s->stop_fd >= 0)
        (void)close(s->stop_fd);
    if (s->dir_fd >= 0)
        (void)close(s->dir_fd);
    pthread_cond_destroy(&s->changed);
    mutex_destroy(&s->lock);
    free(s);
}

int control_server_start(int dir_fd, struct cache *cache, struct status_doc *status,
                         struct op *op, struct control_server **ret)
{
    struct control_server *s = calloc(1, sizeof(*s));
    int err;

    if (!s)
        return op_fail(op, -ENOMEM, "out of memory");
    s->cache = cache;
    s->status = status;
    s->dir_fd = s->listen_fd = s->stop_fd = -1;
    mutex_init(&s->lock);
    cond_init(&s->changed);
    control_lock(s);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        s->slots[i] = (struct connection){.server = s, .fd = -1};
    control_unlock(s);
    err = open_socket(s, dir_fd);
    if (!err)
        err = -pthread_create(&s->acceptor, NULL, accept_loop, s);
    if (err) {
        server_free(s);
        return op_fail(op, err, "cannot make the control socket of the cache: %s",
                       strerror(-err));
    }
    *ret = s;
    return 0;
}

void control_server_end_locks(struct control_server *s)
{
    if (!s)
        return;
    control_lock(s);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &s->slots[i];

        if (c->fd < 0 || !c->locks)
            continue;
        atomic_store(&c->gone, true);
        (void)shutdown(c->fd, SHUT_RDWR);
    }
    pthread_cond_broadcast(&s->changed);
    control_unlock(s);
}

void control_server_stop(struct control_server *s, const json_t *last)
{
    const uint64_t one = 1;

    if (!s)
        return;
    if (write(s->stop_fd, &one, sizeof(one)) < 0)
        log_warn("control socket: %s", strerror(errno));
    (void)pthread_join(s->acceptor, NULL);
    control_lock(s);
    s->stopping = true;
    s->last = last;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &s->slots[i];

        if (c->fd < 0)
            continue;
        atomic_store(&c->gone, true);
        (void)shutdown(c->fd, SHUT_RD); /* answers may still leave */
    }
    pthread_cond_broadcast(&s->changed);
    while (s->used > 0)
        control_wait(s, &s->changed);
    control_unlock(s);
    server_free(s);
}
