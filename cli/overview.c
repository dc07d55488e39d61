/* What this machine has mounted, and what is left of what it had.
 *
 * A mount may belong to somebody else, be stuck, or be dead: each is asked by a child, which is
 * left behind when it does not answer in time. A cache is asked only when nobody serves it. */
#include "cli/overview.h"

#include "cache/offline.h"
#include "cli/caches.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/control_io.h"
#include "cli/in_child.h"
#include "cli/mountinfo.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- asking ---- */

static json_t *answer_of(const void *path)
{
    auto_json json_t *answer = NULL;
    struct client client;
    struct op op;

    op_init(&op, OP_FOREVER);
    int err = client_open(path, &op, &client);
    if (!err)
        err =
            client_call(&client, json_pack("{s:s}", "cmd", "status"), NULL, NULL, &op, &answer);
    return err ? json_pack("{s:i, s:o}", "errno", -err, "error", control_text(op.why))
               : json_pack("{s:O}", "status", json_object_get(answer, "status"));
}

/* {"status": ...} of the mount, or of the daemon that has the cache; else {"errno": N, "error":
 * text}. NULL without memory. */
static json_t *ask(const char *path)
{
    json_t *told = NULL;

    return in_child(answer_of, path, &told) == 0
               ? told
               : json_pack("{s:i, s:s}", "errno", ETIMEDOUT, "error", "it does not answer");
}

/* ---- mounts ---- */

static bool is_known(const json_t *mounts, dev_t dev)
{
    const json_t *mount;
    size_t i;

    json_array_foreach(mounts, i, mount)
    {
        if (json_integer_value(json_object_get(mount, "device")) == (json_int_t)dev)
            return true;
    }
    return false;
}

/* A bind mount shows what is listed already. */
static int add_mount(void *arg, const struct mountinfo *m)
{
    json_t *mounts = arg;

    if (!mountinfo_is_runfs(m) || is_known(mounts, m->dev))
        return 0;
    return json_array_append_new(
        mounts, json_pack("{s:o, s:o, s:I}", "mountpoint", control_text(m->point), "store",
                          control_text(m->source), "device", (json_int_t)m->dev));
}

static const char *text_of(const json_t *from, const char *name)
{
    const char *text = json_string_value(json_object_get(from, name));

    return text ? text : "";
}

static const char *state_of(const json_t *told)
{
    const json_t *status = json_object_get(told, "status");

    switch (json_integer_value(json_object_get(told, "errno"))) {
    case 0:
        return json_is_object(json_object_get(status, "stalled")) ? "stalled"
                                                                  : text_of(status, "state");
    case ENOTCONN:
        return "dead";
    case EACCES:
    case EPERM:
        return "not ours";
    default:
        return "silent";
    }
}

static void ask_mount(json_t *mount)
{
    auto_json json_t *told = ask(text_of(mount, "mountpoint"));

    (void)json_object_set_new(mount, "state", json_string(state_of(told)));
    (void)json_object_update(mount, told);
    (void)json_object_del(mount, "errno");
    (void)json_object_del(mount, "device");
}

/* ---- caches ---- */

struct owed {
    unsigned files, operations;
    uint64_t bytes;
};

static int count_owed(void *arg, const struct cache_pending *p)
{
    struct owed *owed = arg;
    bool file = strcmp(p->kind, "write") == 0 || strcmp(p->kind, "kept") == 0;

    owed->files += file;
    owed->operations += !file;
    owed->bytes += p->bytes;
    return 0;
}

/* Whether a mount that answered says that it has the cache. Another user's may say anything. */
static bool is_mounted(const json_t *overview, const struct cache_place *p)
{
    const json_t *mounts = json_object_get(overview, "mounts"), *mount;
    size_t i;

    json_array_foreach(mounts, i, mount)
    {
        if (strcmp(text_of(json_object_get(mount, "status"), "cache_dir"), p->dir) == 0)
            return true;
    }
    return false;
}

static bool nobody_listens(const json_t *told)
{
    json_int_t err = json_integer_value(json_object_get(told, "errno"));

    return err == ENOTCONN || err == ENODEV;
}

/* Nobody listens, so what has the cache is no daemon that died: its lock would be gone. */
static json_t *describe_user(json_t *told)
{
    if (!nobody_listens(told))
        return told;
    (void)json_object_set_new(told, "errno", json_integer(EBUSY));
    (void)json_object_set_new(
        told, "error", json_string("a runfs command, or another program, has its cache"));
    return told;
}

/* A daemon whose mount is gone goes on: it is listed among the mounts, with no mountpoint. */
static int add_served(json_t *overview, const struct cache_place *p, json_t *told)
{
    json_t *mounts = json_object_get(overview, "mounts");
    json_t *mount;

    told = describe_user(told);
    mount = json_pack("{s:n, s:o, s:s}", "mountpoint", "store", control_text(p->parsed->title),
                      "state", state_of(told));
    (void)json_object_update(mount, told);
    (void)json_object_del(mount, "errno");
    json_decref(told);
    return json_array_append_new(mounts, mount);
}

static int look(const struct cache_place *p, struct op *op, struct owed *ret)
{
    *ret = (struct owed){0};
    op_init(op, OP_FOREVER);
    return recover_list(p->dir, op, count_owed, ret);
}

static int add_cache(void *arg, const struct cache_place *p)
{
    json_t *overview = arg, *cache, *told;
    struct owed owed;
    struct op op;
    int err = look(p, &op, &owed);

    if (err == -EBUSY && is_mounted(overview, p))
        return 0;
    if (err == -EBUSY) {
        told = ask(p->dir);
        if (nobody_listens(told)) /* who had it may have ended */
            err = look(p, &op, &owed);
        if (err == -EBUSY)
            return add_served(overview, p, told);
        json_decref(told);
    }
    if (!err && !owed.files && !owed.operations)
        return 0;
    cache = json_pack("{s:o, s:o, s:i, s:I, s:i}", "cache_dir", control_text(p->dir), "store",
                      control_text(p->parsed->title), "files", (int)owed.files, "bytes",
                      (json_int_t)owed.bytes, "operations", (int)owed.operations);
    if (err)
        (void)json_object_set_new(cache, "error", control_text(op.why));
    return json_array_append_new(json_object_get(overview, "caches"), cache);
}

json_t *overview_json(void)
{
    auto_json json_t *overview = json_pack("{s:[], s:[]}", "mounts", "caches");
    json_t *mounts = json_object_get(overview, "mounts");
    json_t *mount;
    size_t i;

    if (!overview || mountinfo_each(add_mount, mounts))
        return NULL;
    json_array_foreach(mounts, i, mount) ask_mount(mount);
    return caches_each(add_cache, overview) ? NULL : json_incref(overview);
}

/* ---- lines ---- */

static uint64_t number_of(const json_t *from, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(from, name));
}

static void print_answer(const json_t *mount, const json_t *status)
{
    const json_t *queue = json_object_get(status, "queue");
    char size[FORMAT_SIZE_MAX], age[64] = "";

    if (number_of(queue, "oldest_seconds"))
        (void)snprintf(age, sizeof(age), ", the oldest changed %" PRIu64 " s ago",
                       number_of(queue, "oldest_seconds"));
    command_say("    %s; not in the store: %" PRIu64 " files, %s, and %" PRIu64
                " operations%s; %" PRIu64 " failed, %" PRIu64 " staged, %" PRIu64 " kept",
                text_of(mount, "state"), number_of(queue, "dirty_files"),
                format_size(size, number_of(queue, "dirty_bytes")),
                number_of(queue, "pending_ops"), age, number_of(queue, "failed_files"),
                number_of(queue, "staged_files"), number_of(queue, "kept_files"));
    command_say("    cache %s", text_of(status, "cache_dir"));
}

static void print_mount(const json_t *mount)
{
    const json_t *status = json_object_get(mount, "status");
    const char *point = json_string_value(json_object_get(mount, "mountpoint"));
    const char *state = text_of(mount, "state");

    command_say("%s  %s", point ? point : "(unmounted)", text_of(mount, "store"));
    if (status)
        print_answer(mount, status);
    else if (strcmp(state, "dead") == 0)
        command_say("    dead: its runfs is gone; mount it again, or `runfs umount %s` and "
                    "publish its cache",
                    point ? point : "");
    else if (strcmp(state, "not ours") == 0)
        command_say("    another user's, who can ask it: %s", text_of(mount, "error"));
    else
        command_say("    %s: %s", state, text_of(mount, "error"));
}

static void print_left(const json_t *cache)
{
    const char *dir = text_of(cache, "cache_dir");
    char size[FORMAT_SIZE_MAX];

    command_say("left: cache %s  %s", dir, text_of(cache, "store"));
    if (*text_of(cache, "error"))
        command_say("    can't be read: %s", text_of(cache, "error"));
    else
        command_say("    not in the store: %" PRIu64 " files, %s, and %" PRIu64
                    " operations; publish them: runfs recover --publish %s",
                    number_of(cache, "files"), format_size(size, number_of(cache, "bytes")),
                    number_of(cache, "operations"), dir);
}

void overview_print(const json_t *overview)
{
    const json_t *mounts = json_object_get(overview, "mounts");
    const json_t *caches = json_object_get(overview, "caches");
    const json_t *one;
    size_t i;

    json_array_foreach(mounts, i, one) print_mount(one);
    json_array_foreach(caches, i, one) print_left(one);
    if (!json_array_size(mounts) && !json_array_size(caches))
        command_say("nothing is mounted, and no cache in the default places owes its store "
                    "anything");
}
