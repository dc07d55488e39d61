/* Asked by its control socket, which lives as long as it uploads. */
#include "cli/predecessor.h"

#include "cli/client.h"
#include "cli/command.h"
#include "cli/mountinfo.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#define PAUSE_NS       (100 * NS_PER_MS)
#define ANSWER_SECONDS 5
#define PATIENCE_NS    (2 * NS_PER_SEC)

/* NULL when none answers: it may be at its very end, or another program has the cache. */
static json_t *ask(const char *cache_dir)
{
    const struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    auto_json json_t *answer = NULL;
    struct client client;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (client_open(cache_dir, &op, &client))
        return NULL;
    (void)setsockopt(client.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)client_call(&client, json_pack("{s:s}", "cmd", "status"), NULL, NULL, &op, &answer);
    client_close(&client);
    return json_incref(json_object_get(answer, "status"));
}

static bool says_mounted(const json_t *status)
{
    const char *state = json_string_value(json_object_get(status, "state"));

    return state && strcmp(state, "mounted") == 0;
}

static bool is_seen(const json_t *status)
{
    const char *point = json_string_value(json_object_get(status, "mountpoint"));
    struct mountinfo m;
    bool found;

    if (!point || mountinfo_by_path(point, &m))
        return false;
    found = mountinfo_is_runfs(&m);
    mountinfo_release(&m);
    return found;
}

static bool has_lasted(int64_t *since_ns)
{
    int64_t now = clock_mono_ns();

    if (!*since_ns)
        *since_ns = now;
    return now - *since_ns >= PATIENCE_NS;
}

/* A daemon hears of its unmount a moment later than the process that unmounted. One that goes
 * on to serve is mounted where we don't see it: in another container, or elsewhere than it was.
 */
static bool is_mounted(const json_t *status, struct predecessor *p)
{
    if (says_mounted(status))
        return has_lasted(&p->serving_ns) || is_seen(status);
    p->serving_ns = 0;
    return false;
}

/* "the runfs (process 12) that was unmounted from /mnt uploads 3 files (1.2 GiB)". */
static void describe(const json_t *status, char *text, size_t size)
{
    const json_t *queue = json_object_get(status, "queue");
    const char *point = json_string_value(json_object_get(status, "mountpoint"));
    char bytes[FORMAT_SIZE_MAX];

    (void)snprintf(
        text, size,
        "the runfs (process %lld) that was unmounted from %.100s uploads %lld files "
        "(%s)",
        (long long)json_integer_value(json_object_get(status, "pid")), point ? point : "?",
        (long long)json_integer_value(json_object_get(queue, "dirty_files")),
        format_size(bytes,
                    (uint64_t)json_integer_value(json_object_get(queue, "dirty_bytes"))));
}

/* The reason of a failure stays as it is. */
static int pause_a_moment(const struct op *op)
{
    struct op sleep = *op;

    return op_sleep(&sleep, PAUSE_NS);
}

static int await_unmounted(const json_t *status, const char *cache_dir, struct predecessor *p,
                           struct op *op)
{
    char text[256];
    int r;

    describe(status, text, sizeof(text));
    if (!p->told)
        (void)command_failed("cache %s: waiting, %s", cache_dir, text);
    p->told = true;
    r = pause_a_moment(op);
    return r == -ETIMEDOUT ? op_fail(op, -EBUSY,
                                     "cache %.100s is in use: %s; mount again when `runfs "
                                     "status` of the cache shows none, or with a longer "
                                     "mount_timeout",
                                     cache_dir, text)
                           : r;
}

int predecessor_await(const char *cache_dir, struct predecessor *p, struct op *op)
{
    auto_json json_t *status = ask(cache_dir);
    const char *point = json_string_value(json_object_get(status, "mountpoint"));
    int r;

    if (is_mounted(status, p))
        return op_fail(
            op, -EBUSY,
            "cache %.100s is in use by another mount, %.100s (process %lld); unmount "
            "it or choose another cache_dir",
            cache_dir, point ? point : "?",
            (long long)json_integer_value(json_object_get(status, "pid")));
    if (status)
        p->silent_ns = 0;
    if (status && !says_mounted(status))
        return await_unmounted(status, cache_dir, p, op);
    r = status || !has_lasted(&p->silent_ns) ? pause_a_moment(op) : -EBUSY;
    return r == -ETIMEDOUT ? -EBUSY : r;
}
