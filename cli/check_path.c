/* What a mount of a configuration does with a path, and which path a key has. */
#include "cli/check.h"

#include "cache/types/patterns.h"
#include "cli/command.h"
#include "cli/control_io.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "common/path.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What is found of a path; texts are heap or the configuration's. */
struct answer {
    const char *path;
    char *why; /* NULL: it has a route */
    struct routes_hit hit;
    char *url; /* NULL: in no store, or on the way only */
    /* Of a directory: the other routes that have a part in it; heap. */
    const struct route **parts;
    size_t n_parts, cap_parts;
};

static void answer_release(struct answer *a)
{
    routes_hit_release(&a->hit);
    free(a->parts);
    free(a->why);
    free(a->url);
}

/* ---- finding ---- */

static int no_route(struct answer *a, const char *why)
{
    a->why = strdup(why);
    return a->why ? 0 : -ENOMEM;
}

static int find_url(const struct checked *c, struct answer *a)
{
    const struct route *route = a->hit.route;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (a->hit.kind != ROUTES_MAPPED || route->scratch)
        return 0;
    return store_url_of(&c->placed.where[route->store], a->hit.key, NULL, &op, &a->url);
}

static int add_part(void *arg, const struct routes_source *source)
{
    struct answer *a = arg;
    const struct route *route = source->route;

    if (route->scratch || (a->hit.kind == ROUTES_MAPPED && route == a->hit.route))
        return 0;
    if (array_grow(a->parts, a->cap_parts, a->n_parts + 1))
        return -ENOMEM;
    a->parts[a->n_parts++] = route;
    return 0;
}

static int find_directory(const struct routes *routes, const char *path, struct answer *a)
{
    int err = routes_find(routes, path, ROUTES_DIRECTORY, &a->hit);

    return err || a->hit.kind == ROUTES_NOWHERE ? err
                                                : routes_each_source(routes, path, add_part, a);
}

/* As an object where there can be one, else, or with a "/" behind it, as a directory. */
static int find(const struct checked *c, const char *path, bool directory, struct answer *a)
{
    const struct routes *routes = &c->placed.config.routes;
    int err = 0;

    if (!directory)
        err = routes_find(routes, path, ROUTES_OBJECT, &a->hit);
    if (!err && a->hit.kind == ROUTES_NOWHERE) {
        routes_hit_release(&a->hit);
        err = find_directory(routes, path, a);
    }
    if (err == -EINVAL || err == -EILSEQ || err == -ENAMETOOLONG)
        return no_route(a, err == -EINVAL   ? "no stored name is shown so"
                           : err == -EILSEQ ? "its route takes names in UTF-8 only"
                                            : "the name is too long for its route");
    if (!err && a->hit.kind == ROUTES_NOWHERE)
        return no_route(a, "no route leads there");
    if (!err && a->hit.kind == ROUTES_MAPPED && routes_key_reserved(a->hit.route, a->hit.key))
        return no_route(a, "its store keeps that key for itself");
    return err ? err : find_url(c, a);
}

/* A path as people write it: "/" and "./" before it do not count, nor does "/" behind it. */
static int find_written(const struct checked *c, const char *written, struct answer *a)
{
    size_t len;

    while (*written == '/' || (*written == '.' && strchr("/", written[1])))
        written++;
    len = strlen(written);
    while (len && written[len - 1] == '/')
        len--;
    auto_free char *path = strndup(written, len);
    if (!path)
        return -ENOMEM;
    if (!path_key_ok(path, PATH_KEY_MAX))
        return no_route(a, "it can't be a path of a mount");
    return find(c, path, !len || written[len] == '/', a);
}

/* ---- telling ---- */

static const struct policy *policy_of(const struct checked *c, const struct answer *a)
{
    return check_policy(c, a->hit.route);
}

static bool is_staged(const struct checked *c, const struct answer *a)
{
    const struct policy *p = policy_of(c, a);
    const char *patterns = p->staging ? p->staging : c->options.staging;

    return patterns ? patterns_text_takes(patterns, a->path)
                    : patterns_take(patterns_staging, a->path);
}

static bool is_log(const struct checked *c, const struct answer *a)
{
    const struct policy *p = policy_of(c, a);

    if (p->upload == UPLOAD_INTERVAL)
        return true;
    return p->logs ? patterns_text_takes(p->logs, a->path)
                   : patterns_take(patterns_logs, a->path);
}

static int64_t interval_ns(const struct checked *c, const struct answer *a)
{
    const struct policy *p = policy_of(c, a);

    return p->interval_ns != POLICY_UNSET ? p->interval_ns
                                          : c->options.cache.upload_interval_ns;
}

static void say_upload(const struct checked *c, const struct answer *a)
{
    char time[FORMAT_TIME_MAX];
    const char *first = policy_of(c, a)->urgent ? ", before others" : "";

    if (a->hit.route->scratch)
        command_say("  upload  never: scratch, in no store");
    else if (is_staged(c, a))
        command_say("  upload  a staging name: when it is renamed%s", first);
    else if (is_log(c, a))
        command_say("  upload  a log: each %s while it is open%s",
                    format_time(time, interval_ns(c, a)), first);
    else if (policy_of(c, a)->upload == UPLOAD_RENAME)
        command_say("  upload  new: when it is renamed; changed in place: when it is closed%s",
                    first);
    else
        command_say("  upload  when it is closed%s", first);
}

/* `what` with its padding, and a store's name or nothing. */
static void say_route(const struct checked *c, const struct route *route, const char *what,
                      const char *store)
{
    const struct config *config = &c->placed.config;
    const char *colon = *store ? ": " : "";

    if (route->at.line)
        command_say("  %s%s%s%s:%u:%u: %s", what, store, colon, c->file, route->at.line,
                    route->at.column, route->path.text);
    else
        command_say("  %s%s%s%s%s: %s", what, store, colon,
                    config->layout ? "layout " : "default",
                    config->layout ? config->layout : "", route->path.text);
}

static void say_parts(const struct checked *c, const struct answer *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        say_route(c, a->parts[i], "part    ", check_store_name(c, a->parts[i]));
}

static void say(const struct checked *c, const struct answer *a)
{
    const struct route *route = a->hit.route;

    command_say("%s", *a->path ? a->path : "/");
    if (a->hit.kind != ROUTES_MAPPED) {
        command_say("  a directory on the way to what is in stores");
        say_parts(c, a);
        return;
    }
    if (!route->scratch) {
        command_say("  store   %s", check_store_name(c, route));
        command_say("  url     %s", a->url);
        command_say("  key     %s", a->hit.key);
    }
    say_route(c, route, "route   ", "");
    command_say("  policy  %s", policy_of(c, a)->name);
    if (policy_of(c, a)->unit)
        command_say("  unit    %s", policy_of(c, a)->unit);
    say_upload(c, a);
    say_parts(c, a);
}

static json_t *route_json(const struct checked *c, const struct route *route)
{
    const struct config *config = &c->placed.config;

    if (route->at.line)
        return json_pack("{s:o, s:i, s:i, s:o, s:o}", "file", control_text(c->file), "line",
                         (int)route->at.line, "column", (int)route->at.column, "path",
                         control_text(route->path.text), "key", control_text(route->key.text));
    return json_pack("{s:o, s:o, s:o}", "layout", control_text(config->layout), "path",
                     control_text(route->path.text), "key", control_text(route->key.text));
}

static json_t *parts_json(const struct checked *c, const struct answer *a)
{
    json_t *list = json_array();

    for (size_t i = 0; i < a->n_parts; i++)
        (void)json_array_append_new(list,
                                    json_pack("{s:o, s:o}", "store",
                                              control_text(check_store_name(c, a->parts[i])),
                                              "route", route_json(c, a->parts[i])));
    return list;
}

static json_t *answer_json(const struct checked *c, const struct answer *a)
{
    const struct route *route = a->hit.route;

    if (a->why)
        return json_pack("{s:o, s:o}", "path", control_text(a->path), "error",
                         control_text(a->why));
    if (a->hit.kind != ROUTES_MAPPED)
        return json_pack("{s:o, s:b, s:o}", "path", control_text(a->path), "on_the_way", 1,
                         "parts", parts_json(c, a));
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:o}", "path",
        control_text(a->path), "store",
        route->scratch ? json_null() : control_text(check_store_name(c, route)), "url",
        control_text(a->url), "key", route->scratch ? json_null() : control_text(a->hit.key),
        "route", route_json(c, route), "policy", control_text(policy_of(c, a)->name), "unit",
        control_text(policy_of(c, a)->unit), "scratch", (int)route->scratch, "staged",
        (int)is_staged(c, a), "log", (int)is_log(c, a), "parts", parts_json(c, a));
}

static int tell(const struct checked *c, const struct answer *a, json_t *to)
{
    if (to)
        (void)json_array_append_new(to, answer_json(c, a));
    else if (a->why)
        (void)command_failed("%s: %s", a->path, a->why);
    else
        say(c, a);
    return a->why ? EXIT_FAILED : EXIT_OK;
}

int check_paths(const struct checked *c, char *const *paths, size_t n, bool json)
{
    auto_json json_t *list = json ? json_array() : NULL;
    int first = EXIT_OK;

    for (size_t i = 0; i < n; i++) {
        struct answer a = {.path = paths[i]};
        int err = find_written(c, paths[i], &a);
        int code = err ? command_failed_by(err, "%s: %s", paths[i], strerror(-err))
                       : tell(c, &a, list);

        answer_release(&a);
        if (first == EXIT_OK)
            first = code;
    }
    if (!json)
        return first;
    auto_json json_t *all = json_pack("{s:O}", "paths", list);
    int code = command_answer_json(all);
    return first == EXIT_OK ? code : first;
}

/* ---- keys ---- */

static size_t find_store(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->n_stores; i++)
        if (strcmp(c->stores[i].name, name) == 0)
            return i;
    return c->n_stores;
}

static int unknown_store(const struct config *c, const char *name)
{
    struct nearest n;

    nearest_init(&n, name);
    for (size_t i = 0; i < c->n_stores; i++)
        nearest_try(&n, c->stores[i].name);
    (void)command_failed("there is no store \"%.60s\"%s%s%s", name,
                         n.best ? ", did you mean \"" : "", n.best ? n.best : "",
                         n.best ? "\"?" : "");
    return EXIT_USAGE;
}

int check_key(const struct checked *c, const char *store, const char *key, bool json)
{
    const struct config *config = &c->placed.config;
    size_t i = find_store(config, store);
    auto_free char *written = strdup(key);
    auto_free char *path = NULL;
    int err = written ? 0 : -ENOMEM;

    if (i == config->n_stores)
        return unknown_store(config, store);
    for (size_t len = written ? strlen(written) : 0; len && written[len - 1] == '/';)
        written[--len] = '\0';
    if (!err)
        err = path_key_safe(written, STORE_KEY_MAX)
                  ? placed_path_of_key(&c->placed, i, written, &path)
                  : -ENOENT;
    if (err && err != -ENOENT)
        return command_failed_by(err, "%s: %s", key, strerror(-err));
    if (json) {
        auto_json json_t *j = json_pack("{s:o}", "path", control_text(path));
        int code = command_answer_json(j);
        return err ? EXIT_FAILED : code;
    }
    if (err)
        return command_failed("%s of the store \"%s\": no path leads to it", key, store);
    return command_answer(path);
}
