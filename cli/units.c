/* runfs units: which directories the store does not have whole yet; and what other mounts left
 * of some. */
#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/report.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int ask(const char *cmd, const char *path, struct op *op, json_t **ret)
{
    struct client client;
    int err = client_open(path, op, &client);

    if (err)
        return err;
    auto_free char *rel = control_encode_path(client.rel);
    err = client_call(&client, rel ? json_pack("{s:s, s:s}", "cmd", cmd, "path", rel) : NULL,
                      NULL, NULL, op, ret);
    client_close(&client);
    return err;
}

static void print_unit(const json_t *u)
{
    auto_free char *path = NULL;
    const char *text = json_string_value(json_object_get(u, "path"));

    if (!text || control_decode_path(text, &path) < 0)
        return;
    (void)printf("%s  %s%s  lacks %" PRIu64 "  waits for: %s\n", *path ? path : ".",
                 json_string_value(json_object_get(u, "state")),
                 json_is_true(json_object_get(u, "declared")) ? ", declared" : "",
                 (uint64_t)json_integer_value(json_object_get(u, "lacks")),
                 json_string_value(json_object_get(u, "why")));
}

static int list(const char *path, bool json)
{
    auto_json json_t *answer = NULL;
    const json_t *units, *u;
    struct op op;
    size_t i;

    op_init(&op, OP_FOREVER);
    int err = ask("units", path, &op, &answer);
    if (err)
        return command_failed_by(err, "units %s: %s", path, op.why);
    units = json_object_get(answer, "units");
    if (json) {
        (void)json_dumpf(units, stdout, JSON_INDENT(2));
        (void)putchar('\n');
    } else {
        json_array_foreach(units, i, u) print_unit(u);
    }
    return json_array_size(units) ? EXIT_NOT_YET : EXIT_OK;
}

/* Ends what another mount left of the unit. */
static int clean(const char *cmd, const char *path)
{
    auto_json json_t *answer = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    int err = ask(cmd, path, &op, &answer);
    if (!err)
        return EXIT_OK;
    int code = command_failed_by(err, "units --%s %s: %s", cmd, path, op.why);
    return err == -EAGAIN ? EXIT_NOT_YET : code;
}

int command_units(const struct command *self, int argc, char **argv)
{
    bool json = false, adopts = false, drops = false;
    const struct argument table[] = {{.name = "--json", .flag = &json},
                                     {.name = "--adopt", .flag = &adopts},
                                     {.name = "--drop", .flag = &drops},
                                     {0}};
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (json + adopts + drops > 1)
        return command_misused(self, "--json, --adopt and --drop exclude each other");
    if (n > 1)
        return command_misused(self, "units takes one path");
    if (!adopts && !drops)
        return list(n ? argv[1] : ".", json);
    if (n != 1)
        return command_misused(self, "--adopt and --drop need a path");
    return clean(adopts ? "adopt" : "drop", argv[1]);
}
