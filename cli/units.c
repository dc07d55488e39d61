/* runfs units: which directories the store does not have whole yet. */
#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/report.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int ask(const char *path, struct op *op, json_t **ret)
{
    struct client client;
    int err = client_open(path, op, &client);

    if (err)
        return err;
    auto_free char *rel = control_encode_path(client.rel);
    err =
        client_call(&client, rel ? json_pack("{s:s, s:s}", "cmd", "units", "path", rel) : NULL,
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

int command_units(const struct command *self, int argc, char **argv)
{
    bool json = false;
    const struct argument table[] = {{.name = "--json", .flag = &json}, {0}};
    auto_json json_t *answer = NULL;
    const json_t *units, *u;
    struct op op;
    size_t i;
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n > 1)
        return command_misused(self, "units takes one path");
    op_init(&op, OP_FOREVER);
    int err = ask(n ? argv[1] : ".", &op, &answer);
    if (err)
        return command_failed_by(err, "units %s: %s", n ? argv[1] : ".", op.why);
    units = json_object_get(answer, "units");
    if (json) {
        (void)json_dumpf(units, stdout, JSON_INDENT(2));
        (void)putchar('\n');
    } else {
        json_array_foreach(units, i, u) print_unit(u);
    }
    return json_array_size(units) ? EXIT_NOT_YET : EXIT_OK;
}
