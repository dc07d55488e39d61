#include "cli/control_locks.h"

#include "cache/cache.h"
#include "cli/control_io.h"
#include "cli/stall_doc.h"
#include "common/mem.h"
#include "common/op.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>

#define STEP_NS NS_PER_SEC

static atomic_uint holders; /* connections that have locks, or wait for some */

/* ---- taking ---- */

struct held {
    struct cache *cache;
    uint64_t *ids; /* heap */
    size_t n;
};

static void give_back(struct held *h)
{
    while (h->n > 0)
        cache_deletion_unlock(h->cache, h->ids[--h->n]);
    free(h->ids);
}

static pid_t peer_of(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ? 0 : peer.pid;
}

static int take_one(struct held *h, const json_t *text, const json_t *request, pid_t pid,
                    struct op *op)
{
    const char *command = json_string_value(json_object_get(request, "command"));
    bool refuse = json_is_true(json_object_get(request, "refuse"));
    const char *encoded = json_string_value(text);
    auto_free char *path = NULL;
    int err = encoded ? control_decode_path(encoded, &path) : -EINVAL;

    if (err)
        return op_fail(op, err, "the request has no good path");
    err = cache_deletion_lock(h->cache, path, refuse, pid, command ? command : "", op,
                              &h->ids[h->n]);
    h->n += err == 0;
    return err;
}

static int take_all(struct held *h, const json_t *request, pid_t pid, struct op *op)
{
    const json_t *paths = json_object_get(request, "paths");
    const json_t *text;
    size_t i;

    h->ids = calloc(json_array_size(paths) + 1, sizeof(*h->ids));
    if (!h->ids)
        return op_fail(op, -ENOMEM, "out of memory");
    if (json_array_size(paths) == 0)
        return op_fail(op, -EINVAL, "the request has no path");
    json_array_foreach(paths, i, text)
    {
        int err = take_one(h, text, request, pid, op);
        if (err)
            return err;
    }
    return 0;
}

static int answer_failed(int fd, int err, const char *why)
{
    auto_json json_t *answer =
        json_pack("{s:b, s:i, s:o}", "ok", 0, "errno", -err, "error", control_text(why));

    return control_send(fd, answer);
}

static int answer_taken(int fd, const struct held *h)
{
    auto_json json_t *answer = json_pack("{s:b, s:[]}", "ok", 1, "ids");

    for (size_t i = 0; answer && i < h->n; i++)
        (void)json_array_append_new(json_object_get(answer, "ids"),
                                    json_integer((json_int_t)h->ids[i]));
    return answer ? control_send(fd, answer) : -ENOMEM;
}

static int hold(struct cache *cache, int fd, const json_t *request, const atomic_bool *gone,
                bool (*await_stop)(struct connection *c, int64_t ns), struct connection *c)
{
    struct held h = {.cache = cache};
    json_int_t wait_ms = json_integer_value(json_object_get(request, "timeout_ms"));
    struct op op;

    op_init(&op, wait_ms > 0 && wait_ms < INT64_MAX / NS_PER_MS / 2 ? wait_ms * NS_PER_MS : 0);
    op.cancelled = gone;
    int err = take_all(&h, request, peer_of(fd), &op);
    if (err) {
        give_back(&h);
        return answer_failed(fd, err, *op.why ? op.why : strerror(-err));
    }
    err = answer_taken(fd, &h);
    while (!err && !await_stop(c, STEP_NS))
        ;
    give_back(&h);
    return err;
}

int control_lock_paths(struct cache *cache, int fd, const json_t *request,
                       const atomic_bool *gone,
                       bool (*await_stop)(struct connection *c, int64_t ns),
                       struct connection *c)
{
    bool room = atomic_fetch_add(&holders, 1) < CONTROL_LOCKS_MAX;
    int err = room ? hold(cache, fd, request, gone, await_stop, c)
                   : answer_failed(fd, -EBUSY, "too many commands have locks of this mount");

    atomic_fetch_sub(&holders, 1);
    return err;
}

/* ---- telling ---- */

struct listing {
    json_t *locks;
    struct utsname node;
};

static int add_lock(void *arg, const struct cache_deletion_lock *l)
{
    const struct listing *list = arg;

    (void)json_array_append_new(
        list->locks, json_pack("{s:I, s:s, s:s, s:o, s:o, s:I, s:o, s:o, s:I}", "id",
                               (json_int_t)l->id, "holder", l->is_file ? "file" : "command",
                               "mode", l->refuse ? "refuse" : "hide", "path",
                               control_text(l->path), "node", control_text(list->node.nodename),
                               "pid", (json_int_t)l->pid, "command", control_text(l->command),
                               "since", stall_time(l->since_ns), "held", (json_int_t)l->held));
    return 0;
}

int control_list_locks(struct cache *cache, int fd, const char *path)
{
    auto_json json_t *answer = json_pack("{s:b, s:[]}", "ok", 1, "locks");
    struct listing list = {.locks = json_object_get(answer, "locks")};

    if (!answer)
        return -ENOMEM;
    (void)uname(&list.node);
    (void)cache_each_deletion_lock(cache, path, add_lock, &list);
    return control_send(fd, answer);
}
