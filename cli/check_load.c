/* Reading a configuration for `runfs check`: all that a mount refuses of it without asking
 * anybody. */
#include "cli/check.h"

#include "cli/command.h"
#include "cli/configured.h"
#include "cli/control_io.h"
#include "cli/identity.h"
#include "cli/redact.h"
#include "cli/store_places.h"
#include "common/mem.h"
#include "common/path.h"
#include "common/printable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct loading {
    const char *file;
    struct op *op;
    struct config_problems *problems;
    struct checked *to;
};

void checked_release(struct checked *c)
{
    mount_options_release(&c->options);
    placed_release(&c->placed);
    *c = (struct checked){0};
}

const char *check_store_name(const struct checked *c, const struct route *route)
{
    return c->placed.config.stores[route->store].name;
}

const struct policy *check_policy(const struct checked *c, const struct route *route)
{
    return &c->placed.config.policies.items[route->policy];
}

void check_say_unused(const struct checked *c)
{
    const struct config *config = &c->placed.config;

    for (size_t i = 0; i < config->n_stores; i++)
        if (!config_store_used(config, i))
            command_say("store \"%s\": no route leads to it, and a mount does not open it",
                        config->stores[i].name);
}

/* ---- what is wrong ---- */

/* A message that begins with "FILE:LINE:COLUMN: ", or with "FILE: ", as a problem. */
static int add_told(const struct loading *l)
{
    size_t len = strlen(l->file);
    const char *text = l->op->why;
    struct text_place at = {0};
    int skip = 0;

    if (strncmp(text, l->file, len) == 0 && text[len] == ':') {
        if (sscanf(text + len, ":%u:%u: %n", &at.line, &at.column, &skip) == 2 && skip > 0)
            text += len + (size_t)skip;
        else if (text[len + 1] == ' ')
            text += len + 2;
    }
    return config_problem_add(l->problems, at, "%s", text);
}

/* What is wrong becomes a problem, so that what follows is looked at, too. */
static int take_problem(const struct loading *l, int err)
{
    if (err == -EINVAL)
        err = add_told(l);
    return err == -ENOMEM ? op_fail(l->op, err, "out of memory") : err;
}

/* The cache would be uploaded. */
static int check_cache_of(const struct loading *l, const struct store_where *cache,
                          const struct config_store *store)
{
    struct store_where where;

    if (store_place(store, l->op, &where))
        return 0; /* that was told */
    bool within =
        strcmp(where.server, cache->server) == 0 && path_below(where.root, cache->root);
    int err = !within ? 0
                      : config_problem_add(l->problems, store->url_at,
                                           "the cache directory /%s lies within the store "
                                           "\"%s\" at /%s",
                                           cache->root, store->name, where.root);
    store_where_release(&where);
    return err;
}

static int check_cache(const struct loading *l)
{
    const struct config *c = &l->to->placed.config;
    const char *given = l->to->options.cache_dir;
    auto_free char *home = given ? NULL : identity_cache_home();
    auto_free char *path = realpath(".", NULL);
    auto_free char *dir = NULL;
    struct store_where cache;
    int err = 0;

    if (!given && !home)
        return config_problem_add(l->problems, (struct text_place){0},
                                  "no place for the cache (no home): give \"cache\" a \"dir\"");
    if (asprintf(&dir, "%s%s%s", given && *given != '/' && path ? path : "",
                 given && *given != '/' ? "/" : "", given ? given : home) < 0) {
        dir = NULL;
        return -ENOMEM;
    }
    if (store_where(dir, NULL, l->op, &cache))
        return take_problem(l, -EINVAL);
    for (size_t i = 0; i < c->n_stores && !err; i++)
        if (config_store_used(c, i))
            err = check_cache_of(l, &cache, &c->stores[i]);
    store_where_release(&cache);
    return err;
}

/* ---- in the order of a mount ---- */

static bool fields_known(const struct config_store *store)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    for (size_t i = 0; i < store->settings.n; i++)
        if (mount_options_check_stores(store->settings.items[i].name, &op))
            return false;
    return true;
}

/* Where a field of one is unknown, the others are judged one by one. */
static int judge_places(const struct loading *l, bool all_known)
{
    const struct config *c = &l->to->placed.config;
    int err = 0;

    if (all_known) {
        err = store_places_check(c, l->op, l->problems);
        return err == -ENOMEM ? err : 0;
    }
    for (size_t i = 0; i < c->n_stores && !err; i++) {
        const struct config_store *store = &c->stores[i];
        struct store_where where;

        if (!fields_known(store))
            continue;
        if (store_place(store, l->op, &where))
            err = config_problem_add(l->problems, store->url_at, "store \"%s\": %s",
                                     store->name, l->op->why);
        else
            store_where_release(&where);
    }
    return err;
}

static int judge(const struct loading *l)
{
    struct config *c = &l->to->placed.config;
    bool all_known = true;
    int err = configured_check(c, l->op, l->problems, &all_known);

    if (!err && l->problems->n == 0)
        err = take_problem(l, configured_loaded(l->file, c, &l->to->options, l->op));
    if (!err && c->n_stores)
        err = judge_places(l, all_known);
    if (!err && l->problems->n == 0 && c->n_stores)
        err = check_cache(l);
    return err == -ENOMEM ? op_fail(l->op, err, "out of memory") : err;
}

static int read_file(const struct loading *l)
{
    int err = config_load(l->file, l->op, l->problems, &l->to->placed.config);

    if (err == -EINVAL && l->problems->n == 0)
        return take_problem(l, err) ? -ENOMEM : -EINVAL;
    return err;
}

static int place_stores(const struct loading *l)
{
    struct config config = l->to->placed.config;

    l->to->placed = (struct placed){0};
    return placed_of_config(&config, l->op, &l->to->placed);
}

int check_load(const char *file, struct op *op, struct config_problems *problems,
               struct checked *ret)
{
    struct checked checked = {.file = file};
    const struct loading l = {file, op, problems, &checked};

    mount_options_init(&checked.options);
    int err = read_file(&l);
    if (!err)
        err = judge(&l);
    if (!err)
        err = problems->n ? -EINVAL : place_stores(&l);
    if (err)
        checked_release(&checked);
    else
        *ret = checked;
    return err;
}

/* ---- telling ---- */

static void print_redacted(const char *text)
{
    auto_free char *shown = redact_words(text);

    printable_print(stderr, shown ? shown : "out of memory");
}

static void print_problem(const char *file, const struct config_problem *p)
{
    print_redacted(file);
    if (p->at.line)
        (void)fprintf(stderr, ":%u:%u", p->at.line, p->at.column);
    (void)fputs(": ", stderr);
    print_redacted(p->text);
    (void)fputc('\n', stderr);
}

static json_t *redacted_json(const char *text)
{
    auto_free char *shown = redact_words(text);

    return control_text(shown);
}

static json_t *problem_json(const char *file, const struct config_problem *p)
{
    return json_pack("{s:o, s:i, s:i, s:o}", "file", redacted_json(file), "line",
                     (int)p->at.line, "column", (int)p->at.column, "text",
                     redacted_json(p->text));
}

int check_problems(const char *file, const struct config_problems *problems, bool json)
{
    auto_json json_t *list = json_array();

    for (size_t i = 0; i < problems->n; i++) {
        if (json)
            (void)json_array_append_new(list, problem_json(file, &problems->items[i]));
        else
            print_problem(file, &problems->items[i]);
    }
    if (json) {
        auto_json json_t *all =
            json_pack("{s:O, s:I}", "problems", list, "more", (json_int_t)problems->more);
        (void)command_answer_json(all);
    } else if (problems->more) {
        (void)fprintf(stderr, "and %zu more\n", problems->more);
    }
    return EXIT_USAGE;
}
