/* runfs url: the URL of what stands at a path of a mount, and the path of an object. */
#include "cli/arguments.h"
#include "cli/bystander.h"
#include "cli/client.h"
#include "cli/control_io.h"
#include "cli/in_child.h"
#include "cli/mountinfo.h"
#include "cli/placed.h"
#include "cli/target.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- from a path ---- */

/* Whether the store has it; the daemon knows. */
static int ask_stored(struct client *client, struct op *op)
{
    auto_free char *path = control_encode_path(client->rel);
    auto_json json_t *answer = NULL;

    return client_call(client,
                       path ? json_pack("{s:s, s:s}", "cmd", "stored", "path", path) : NULL,
                       NULL, NULL, op, &answer);
}

/* The path as the mount has it, which a bind mount may show elsewhere. */
static int stat_in_mount(const struct target *t, struct op *op, struct stat *ret)
{
    auto_free char *path = NULL;

    if (asprintf(&path, "%s%s%s", t->mountpoint, *t->rel ? "/" : "", t->rel) < 0) {
        path = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    if (lstat(path, ret) == 0)
        return 0;
    int err = -errno;
    return op_fail(op, err, "%s: %s", path, strerror(-err));
}

static int url_of_own(const struct target *t, const char *form, struct op *op, char **ret)
{
    struct placed placed;
    struct stat st;
    int err = stat_in_mount(t, op, &st);

    if (!err)
        err = placed_of_mount(t->mountpoint, op, &placed);
    if (err)
        return err;
    err = placed_url(&placed, t->rel, S_ISDIR(st.st_mode) ? ROUTES_DIRECTORY : ROUTES_OBJECT,
                     form, op, ret);
    placed_release(&placed);
    return err;
}

/* What the path itself tells of a state in which the store does not have it. */
static const char *why_not(const char *state)
{
    if (state && strcmp(state, "failed") == 0)
        return "its upload fails; who mounted it sees why in `runfs status --files`";
    if (state && strcmp(state, "local") == 0)
        return "it is in no store";
    return "the store does not have it as it is";
}

/* A user who may only read asks the path itself. */
static int url_of_others(const char *path, const char *form, struct op *op, char **ret)
{
    auto_json json_t *told = NULL;
    int err = bystander_status(path, op, &told);
    const char *state = json_string_value(json_object_get(told, "state"));
    const char *url = json_string_value(json_object_get(told, "url"));
    const json_t *owed = json_object_get(told, "owed");

    if (err)
        return err;
    if (!state || !url || (strcmp(state, "clean") != 0 && strcmp(state, "partial") != 0) ||
        json_integer_value(json_object_get(owed, "operations")))
        return op_fail(op, -EBUSY, "%s", why_not(state));
    return store_url_as(url, form, op, ret);
}

static int url_of_target(const char *path, const struct target *t, const char *form,
                         struct op *op, char **ret)
{
    struct client client;
    int err = client_open(path, op, &client);

    if (err && bystander_may_ask(path, err))
        return url_of_others(path, form, op, ret);
    if (err)
        return err;
    err = t->owner == geteuid() ? url_of_own(t, form, op, ret)
                                : url_of_others(path, form, op, ret);
    if (!err)
        err = ask_stored(&client, op);
    client_close(&client);
    return err;
}

/* With "/" behind it a symlink is what it leads to, as for the system's calls. */
static int resolve(const char *path, struct op *op, struct target *ret)
{
    size_t len = strlen(path);
    auto_free char *directory = NULL;

    if (!len || path[len - 1] != '/')
        return target_resolve(path, op, ret);
    if (asprintf(&directory, "%s.", path) < 0) {
        directory = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    return target_resolve(directory, op, ret);
}

/* What is not there yet, or in no form, is no mistake of the command line's. */
static bool is_answer(int err)
{
    return err == -EBUSY || err == -ENODEV || err == -EISDIR;
}

static int print_url(const char *path, const char *form)
{
    auto_free char *url = NULL;
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    int err = resolve(path, &op, &target);
    if (err)
        return command_failed_by(err, "%s", op.why);
    err = url_of_target(path, &target, form, &op, &url);
    target_release(&target);
    if (!err)
        return command_answer(url);
    (void)command_failed("%s: %s%s", path, op.why,
                         err == -EBUSY ? " (`runfs flush` waits for that)" : "");
    return is_answer(err) ? EXIT_FAILED : (int)command_exit_code(err);
}

/* ---- from a URL ---- */

struct finding {
    const char *url;
    unsigned found;
    int code;
    int unasked; /* why a mount could not be asked */
};

static void tell_unasked(struct finding *f, const struct mountinfo *m, int err, const char *why)
{
    struct mountinfo now = {0};

    if (mountinfo_by_id(m->id, &now) == -ENOENT)
        return; /* it ended meanwhile */
    mountinfo_release(&now);
    (void)command_failed("%s can't be asked: %s", m->point, why);
    f->unasked = err;
}

struct question {
    const char *url, *mountpoint;
};

/* {"path": below the mountpoint}, {} when the mount does not have it, or {"errno": N, "error":
 * text}. */
static json_t *path_in_mount(const void *arg)
{
    const struct question *q = arg;
    auto_free char *path = NULL;
    auto_free char *encoded = NULL;
    struct placed placed;
    struct op op;

    op_init(&op, OP_FOREVER);
    int err = placed_of_mount(q->mountpoint, &op, &placed);
    if (err)
        return json_pack("{s:i, s:o}", "errno", -err, "error", control_text(op.why));
    err = placed_path(&placed, q->url, &op, &path);
    placed_release(&placed);
    if (err)
        return err == -ENOMEM ? NULL : json_object();
    encoded = control_encode_path(path);
    return encoded ? json_pack("{s:s}", "path", encoded) : NULL;
}

static int tell_path(struct finding *f, const char *mountpoint, const char *encoded)
{
    auto_free char *path = NULL;
    auto_free char *whole = NULL;
    int err = control_decode_path(encoded, &path);

    if (err)
        return err;
    if (asprintf(&whole, "%s%s%s", mountpoint, *path ? "/" : "", path) < 0) {
        whole = NULL;
        return -ENOMEM;
    }
    f->found++;
    f->code = command_answer(whole);
    return f->code == EXIT_OK ? 0 : 1;
}

static int find_in_mount(void *arg, const struct mountinfo *m)
{
    struct finding *f = arg;
    const struct question question = {.url = f->url, .mountpoint = m->point};
    auto_json json_t *told = NULL;

    /* What a bind mount shows is told by the mount that it is of. */
    if (!mountinfo_is_runfs(m) || m->owner != geteuid() || strcmp(m->root, "/") != 0)
        return 0;
    int err = in_child(path_in_mount, &question, &told);
    const char *path = json_string_value(json_object_get(told, "path"));
    const char *why = json_string_value(json_object_get(told, "error"));
    if (err)
        tell_unasked(f, m, err, err == -ETIMEDOUT ? "it does not answer" : strerror(-err));
    else if (why)
        tell_unasked(f, m, -(int)json_integer_value(json_object_get(told, "errno")), why);
    return path ? tell_path(f, m->point, path) : 0;
}

static int print_paths(const char *url)
{
    struct finding f = {.url = url, .code = EXIT_OK};
    auto_free char *shown = store_url_redact(url);
    int r = mountinfo_each(find_in_mount, &f);

    if (r < 0)
        return command_failed_by(r, "the mounts can't be looked at: %s", strerror(-r));
    if (f.found)
        return f.code;
    return command_failed_by(f.unasked ? f.unasked : -ENOENT, "%s: no mount of yours %shas it",
                             shown ? shown : "", f.unasked ? "that could be asked " : "");
}

int command_url(const struct command *self, int argc, char **argv)
{
    const char *form = NULL, *url = NULL;
    const struct argument table[] = {
        {.name = "--as", .text = &form}, {.name = "--path", .text = &url}, {0}};
    int n, code = arguments_parse(self, table, argc, argv, &n);
    struct op op;

    if (code >= 0)
        return code;
    if (url && (n || form))
        return command_misused(self, "--path takes a URL and nothing else");
    if (url)
        return print_paths(url);
    if (n != 1)
        return command_misused(self, "url needs one path");
    op_init(&op, OP_FOREVER);
    if (form && store_url_form(form, &op))
        return command_misused(self, "--as: %s", op.why);
    return print_url(argv[1], form);
}
