/* runfs status: asks the daemon for its status document and prints it. */
#include "cli/arguments.h"
#include "cli/bystander.h"
#include "cli/client.h"
#include "cli/report.h"
#include "cli/target.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct status_request {
    bool json, watch, files;
};

/* The socket is gone, perhaps with the whole cache directory: the mount itself tells, too. */
static json_t *read_status(const char *path)
{
    auto_free char *name = NULL;
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (target_resolve(path, &op, &target))
        return NULL;
    /* It is for the owner alone; root may be kept waiting by another user's. */
    if (target.owner == geteuid() &&
        asprintf(&name, "%s/.runfs/status.json", target.mountpoint) < 0)
        name = NULL;
    target_release(&target);
    return !name ? NULL : json_load_file(name, JSON_REJECT_DUPLICATES, NULL);
}

/* Whoever can't ask the daemon asks the mount, or the path. */
static bool ask_otherwise(const char *path, int err, json_t **ret)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    *ret = err == -ENOTCONN ? read_status(path) : NULL;
    return *ret || (bystander_may_ask(path, err) && bystander_status(path, &op, ret) == 0);
}

static int ask_status(const struct status_request *r, const char *path, json_t **ret)
{
    auto_json json_t *answer = NULL;
    struct client client;
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = client_open(path, &op, &client);
    if (err && ask_otherwise(path, err, ret))
        return EXIT_OK;
    if (err)
        return command_failed_by(err, "%s", op.why);
    err = client_call(&client, json_pack("{s:s, s:b}", "cmd", "status", "files", r->files),
                      NULL, NULL, &op, &answer);
    client_close(&client);
    if (err)
        return command_failed_by(err, "status of %s: %s", path, op.why);
    *ret = json_incref(json_object_get(answer, "status"));
    return EXIT_OK;
}

static int print_once(const struct status_request *r, const char *path)
{
    auto_json json_t *status = NULL;
    int code = ask_status(r, path, &status);

    if (code != EXIT_OK)
        return code;
    if (r->watch && isatty(STDOUT_FILENO))
        (void)fputs("\033[H\033[2J", stdout);
    if (r->json) {
        /* ASCII: a name must not command the terminal. */
        (void)json_dumpf(status, stdout,
                         JSON_ENSURE_ASCII | (r->watch ? JSON_COMPACT : JSON_INDENT(2)));
        (void)putchar('\n');
    } else if (json_object_get(status, "path")) {
        report_path(status);
    } else {
        report_status(status);
        if (r->files)
            report_files(status);
    }
    return fflush(stdout) == 0 ? EXIT_OK : command_failed("cannot write the answer");
}

int command_status(const struct command *self, int argc, char **argv)
{
    struct status_request r = {0};
    const struct argument table[] = {{.name = "--json", .flag = &r.json},
                                     {.name = "--watch", .flag = &r.watch},
                                     {.name = "--files", .flag = &r.files},
                                     {0}};
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n != 1)
        return command_misused(self, "status needs one mountpoint");
    code = print_once(&r, argv[1]);
    while (r.watch && code == EXIT_OK) {
        (void)sleep(1);
        code = print_once(&r, argv[1]);
    }
    return code;
}
