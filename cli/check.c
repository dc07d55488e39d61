/* runfs check: what a configuration means, and what is wrong with it. */
#include "cli/check.h"

#include "cli/arguments.h"
#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct request {
    const char *file;
    char *const *rest; /* behind it on the command line */
    int n_rest;
    const char *store; /* --key */
    const char *other; /* --same-as */
    bool expand, json, reach;
};

/* ---- answers ---- */

/* `CONFIG: ok: 3 stores, 5 routes`. */
static int tell_ok(const struct checked *c, bool json)
{
    const struct config *config = &c->placed.config;
    size_t stores = config->n_stores, routes = config->routes.n;

    if (json) {
        auto_json json_t *j =
            json_pack("{s:b, s:o, s:I, s:I}", "ok", 1, "file", control_text(c->file), "stores",
                      (json_int_t)stores, "routes", (json_int_t)routes);
        return command_answer_json(j);
    }
    if (stores == 0)
        command_say("%s: ok: no stores, %zu option%s", c->file, config->n_options,
                    config->n_options == 1 ? "" : "s");
    else
        command_say("%s: ok: %zu store%s, %zu route%s", c->file, stores, stores == 1 ? "" : "s",
                    routes, routes == 1 ? "" : "s");
    check_say_unused(c);
    return EXIT_OK;
}

static int expand(const struct checked *c)
{
    auto_free char *text = config_expand(&c->placed.config, false);

    if (!text)
        return command_failed("out of memory");
    return puts(text) >= 0 && fflush(stdout) == 0 ? EXIT_OK
                                                  : command_failed("cannot write the answer");
}

static int needs_stores(const struct request *r)
{
    (void)command_failed("%s names no stores, only options of a mount: paths, --key, --expand "
                         "and --reach need \"stores\" in it",
                         r->file);
    return EXIT_USAGE;
}

/* The file that can't be used is told, and the exit code is in *ret_code. */
static bool load(const char *file, bool json, struct checked *ret, int *ret_code)
{
    struct config_problems problems = {0};
    struct op op;

    op_init(&op, OP_FOREVER);
    int err = check_load(file, &op, &problems, ret);
    if (err && err != -ENOMEM && problems.n)
        *ret_code = check_problems(file, &problems, json);
    else if (err)
        *ret_code = command_failed_by(err, "%s", op.why);
    config_problems_release(&problems);
    return err == 0;
}

static int same(const struct request *r, const struct checked *c)
{
    struct checked other;
    int code;

    if (!load(r->other, r->json, &other, &code))
        return code;
    code = check_same(c, &other, r->json);
    checked_release(&other);
    return code;
}

static int answer(const struct request *r, const struct checked *c)
{
    if (r->other)
        return same(r, c);
    if (c->placed.config.n_stores == 0 && (r->n_rest || r->store || r->expand || r->reach))
        return needs_stores(r);
    if (r->store)
        return check_key(c, r->store, r->rest[0], r->json);
    if (r->n_rest)
        return check_paths(c, r->rest, (size_t)r->n_rest, r->json);
    if (r->expand)
        return expand(c);
    return r->reach ? check_reach(c, r->json) : tell_ok(c, r->json);
}

int command_check(const struct command *self, int argc, char **argv)
{
    struct request r = {0};
    const struct argument table[] = {
        {.name = "--expand", .flag = &r.expand}, {.name = "--json", .flag = &r.json},
        {.name = "--reach", .flag = &r.reach},   {.name = "--same-as", .text = &r.other},
        {.name = "--key", .text = &r.store},     {0}};
    struct checked checked;
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n == 0)
        return command_misused(self, "check needs a configuration");
    r.file = argv[1];
    r.rest = argv + 2;
    r.n_rest = n - 1;
    if (r.store && r.n_rest != 1)
        return command_misused(self, "--key takes a store and one key of it");
    if (r.expand + r.reach + (r.other != NULL) + (r.n_rest > 0) > 1)
        return command_misused(
            self, "paths, --key, --expand, --reach and --same-as exclude each other");
    if (!load(r.file, r.json, &checked, &code))
        return code;
    code = answer(&r, &checked);
    checked_release(&checked);
    return code;
}
