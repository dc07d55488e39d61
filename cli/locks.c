/* runfs locks: who has what locked from removal, of one path or of all mounts of the user. */
#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/mountinfo.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct locks {
    json_t *all;
    int code;
};

/* Adds those of one path to `all`, each with the place of its mount. */
static int add_locks(json_t *all, const char *path, struct op *op)
{
    auto_json json_t *answer = NULL;
    struct client client = {.fd = -1};
    json_t *lock;
    size_t i;

    int err = client_open(path, op, &client);
    if (err)
        return err;
    auto_free char *rel = control_encode_path(client.rel);
    err =
        client_call(&client, rel ? json_pack("{s:s, s:s}", "cmd", "locks", "path", rel) : NULL,
                    NULL, NULL, op, &answer);
    json_array_foreach(json_object_get(answer, "locks"), i, lock)
    {
        (void)json_object_set_new(lock, "mountpoint", control_text(client.mountpoint));
        (void)json_array_append(all, lock);
    }
    client_close(&client);
    return err;
}

static int add_mount(void *arg, const struct mountinfo *m)
{
    struct locks *l = arg;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (!mountinfo_is_runfs(m) || m->owner != geteuid() || strcmp(m->root, "/") != 0)
        return 0;
    int err = add_locks(l->all, m->point, &op);
    if (err && l->code == EXIT_OK)
        l->code = command_failed_by(err, "locks %s: %s", m->point, op.why);
    return 0;
}

static const char *text_of(const json_t *lock, const char *name)
{
    const char *text = json_string_value(json_object_get(lock, name));

    return text ? text : "-";
}

static void print_lock(const json_t *lock)
{
    const char *rel = text_of(lock, "path");
    long long held = json_integer_value(json_object_get(lock, "held"));
    char holds[64] = "";

    if (held)
        (void)snprintf(holds, sizeof(holds), ", %lld removals wait", held);
    command_say("%s%s%s: %s, %s %lld on %s since %s%s: %s", text_of(lock, "mountpoint"),
                *rel ? "/" : "", rel, text_of(lock, "mode"), text_of(lock, "holder"),
                (long long)json_integer_value(json_object_get(lock, "pid")),
                text_of(lock, "node"), text_of(lock, "since"), holds, text_of(lock, "command"));
}

static int answer(const struct locks *l, bool as_json)
{
    const json_t *lock;
    size_t i;

    if (as_json) {
        auto_json json_t *document = json_pack("{s:O}", "locks", l->all);
        int code = command_answer_json(document);
        return code == EXIT_OK ? l->code : code;
    }
    json_array_foreach(l->all, i, lock)
    {
        print_lock(lock);
    }
    return l->code;
}

int command_locks(const struct command *self, int argc, char **argv)
{
    bool as_json = false;
    const struct argument table[] = {{.name = "--json", .flag = &as_json}, {0}};
    struct locks l = {.all = json_array()};
    struct op op;
    int n;

    int code = arguments_parse(self, table, argc, argv, &n);
    if (code < 0 && n > 1)
        code = command_misused(self, "locks takes one path");
    op_init(&op, OP_FOREVER);
    if (code < 0 && n == 0)
        (void)mountinfo_each(add_mount, &l);
    int err = code < 0 && n == 1 ? add_locks(l.all, argv[1], &op) : 0;
    if (err)
        code = command_failed_by(err, "locks %s: %s", argv[1], op.why);
    if (code < 0)
        code = answer(&l, as_json);
    json_decref(l.all);
    return code;
}
