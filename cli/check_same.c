/* Whether two configurations are the same mount: the same stores at the same places, and the
 * same routes under policies that do the same. The order of two routes counts only where both
 * may have one path. */
#include "cli/check.h"

#include "cli/command.h"
#include "cli/control_io.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/units.h"
#include "runs/policy_fields.h"
#include "runs/unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROUTE_TEXT_MAX 65536

struct comparison {
    const struct checked *a, *b;
    json_t *differences; /* texts */
};

static void differs(struct comparison *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void differs(struct comparison *c, const char *fmt, ...)
{
    char *text;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    (void)json_array_append_new(c->differences, control_text(text ? text : "out of memory"));
    free(text);
}

/* ---- stores ---- */

/* NULL: it has no such store, or no route to it. */
static const struct store_where *where_of(const struct checked *c, const char *name)
{
    for (size_t i = 0; i < c->placed.config.n_stores; i++)
        if (config_store_used(&c->placed.config, i) &&
            strcmp(c->placed.config.stores[i].name, name) == 0)
            return &c->placed.where[i];
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void compare_store(struct comparison *c, const char *name, const struct store_where *a,
                          const struct store_where *b)
{
    if (strcmp(a->server, b->server) != 0 || strcmp(a->root, b->root) != 0)
        differs(c, "store \"%s\": %s/%s and %s/%s", name, a->server, a->root, b->server,
                b->root);
    else if (!same_text(a->state, b->state))
        differs(c, "store \"%s\": its state is at %s and at %s: no notes of each other", name,
                a->state ? a->state : "no place", b->state ? b->state : "no place");
}

static void compare_stores(struct comparison *c)
{
    const struct config *a = &c->a->placed.config, *b = &c->b->placed.config;

    for (size_t i = 0; i < a->n_stores; i++) {
        const struct store_where *other = where_of(c->b, a->stores[i].name);

        if (!config_store_used(a, i))
            continue;
        if (other)
            compare_store(c, a->stores[i].name, &c->a->placed.where[i], other);
        else
            differs(c, "only %s has the store \"%s\"", c->a->file, a->stores[i].name);
    }
    for (size_t i = 0; i < b->n_stores; i++)
        if (config_store_used(b, i) && !where_of(c->a, b->stores[i].name))
            differs(c, "only %s has the store \"%s\"", c->b->file, b->stores[i].name);
}

/* ---- routes ---- */

/* With the braces of a name as a configuration has them, apart from a capture's. */
static int add_literal(struct buf *text, const char *literal)
{
    int r = 0;

    for (const char *c = literal; *c && !r; c++) {
        r = buf_addc(text, *c);
        if (!r && (*c == '{' || *c == '}'))
            r = buf_addc(text, *c);
    }
    return r;
}

/* Adds the template with its captures numbered: their names mean nothing. The key's are in the
 * path's order. */
static int add_template(struct buf *text, const struct template *t)
{
    unsigned captures = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && !r; i++) {
        const struct component *c = &t->components[i];

        r = buf_adds(text, i ? "/" : "");
        if (!r)
            r = add_literal(text, c->before);
        if (!r && c->capture)
            r = buf_addf(text, "{%u%s%s}", captures++, c->codec ? ":" : "",
                         c->codec ? codec_name(c->codec) : "");
        if (!r)
            r = add_literal(text, c->after);
    }
    if (!r && t->rest)
        r = buf_adds(text, t->n ? "/**" : "**");
    return r;
}

/* What a route leads to, to be compared: path, key and store, with what no path has between
 * them. Heap; NULL without memory. */
static char *route_text(const struct checked *c, const struct route *route)
{
    auto_buf struct buf text = BUF_INIT(ROUTE_TEXT_MAX);
    int r = add_template(&text, &route->path);

    if (!r && !route->scratch)
        r = buf_adds(&text, "//");
    if (!r && !route->scratch)
        r = add_template(&text, &route->key);
    if (!r && !route->scratch)
        r = buf_addf(&text, "//%s", check_store_name(c, route));
    return r ? NULL : buf_take(&text);
}

/* The texts of all routes; heap, each heap. */
struct texts {
    char **v;
    size_t n;
};

static void texts_release(struct texts *t)
{
    for (size_t i = 0; t->v && i < t->n; i++)
        free(t->v[i]);
    free(t->v);
}

static int route_texts(const struct checked *c, struct texts *ret)
{
    const struct routes *routes = &c->placed.config.routes;

    ret->n = routes->n;
    ret->v = calloc(routes->n + 1, sizeof(*ret->v));
    for (size_t i = 0; ret->v && i < routes->n; i++) {
        ret->v[i] = route_text(c, &routes->items[i]);
        if (!ret->v[i])
            return -ENOMEM;
    }
    return ret->v ? 0 : -ENOMEM;
}

static size_t find_text(const struct texts *t, const char *text)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i], text) == 0)
            return i;
    return SIZE_MAX;
}

/* ---- the order of routes ---- */

/* Whether a name may begin (or, with `end`, end) with both texts. */
static bool may_share(const char *a, const char *b, bool end)
{
    size_t a_len = strlen(a), b_len = strlen(b), len = a_len < b_len ? a_len : b_len;

    return memcmp(end ? a + a_len - len : a, end ? b + b_len - len : b, len) == 0;
}

static bool components_meet(const struct component *a, const struct component *b)
{
    size_t at, len;

    if (!a->capture && !b->capture)
        return strcmp(a->before, b->before) == 0;
    if (!a->capture)
        return component_takes(b, a->before, strlen(a->before), &at, &len);
    if (!b->capture)
        return component_takes(a, b->before, strlen(b->before), &at, &len);
    return may_share(a->before, b->before, false) && may_share(a->after, b->after, true);
}

/* Whether there may be a path that both take. */
static bool templates_meet(const struct template *a, const struct template *b)
{
    size_t n = a->n < b->n ? a->n : b->n;

    for (size_t i = 0; i < n; i++)
        if (!components_meet(&a->components[i], &b->components[i]))
            return false;
    if (a->rest && b->rest)
        return true;
    if (a->rest || b->rest)
        return a->rest ? b->n > a->n : a->n > b->n;
    return a->n == b->n;
}

static void compare_order(struct comparison *c, const struct texts *a, const struct texts *b)
{
    const struct routes *routes = &c->a->placed.config.routes;

    for (size_t i = 0; i < a->n; i++)
        for (size_t j = i + 1; j < a->n; j++)
            if (find_text(b, a->v[i]) > find_text(b, a->v[j]) &&
                templates_meet(&routes->items[i].path, &routes->items[j].path))
                differs(c, "%s has %s before %s, %s after it", c->a->file,
                        routes->items[i].path.text, routes->items[j].path.text, c->b->file);
}

/* ---- policies ---- */

/* With what the mount's options say where it says nothing. Borrows the texts. */
static struct policy whole_policy(const struct checked *c, const struct route *route)
{
    const struct mount_options *o = &c->options;
    struct policy p = *check_policy(c, route);

    if (!p.staging)
        p.staging = o->staging;
    if (p.interval_ns == POLICY_UNSET)
        p.interval_ns = o->cache.upload_interval_ns;
    if (p.settle_ns == POLICY_UNSET)
        p.settle_ns = o->cache.settle_ns;
    if (p.durability == POLICY_UNSET)
        p.durability = o->durability;
    return p;
}

static const char *field_text(const struct policy *p, const struct policy_field *f,
                              char time[FORMAT_TIME_MAX])
{
    if (policy_field_unset(p, f))
        return "as usual";
    if (f->kind == POLICY_FLAG)
        return *policy_choice(p, f) ? "yes" : "no";
    if (f->kind == POLICY_TIME)
        return format_time(time, *policy_number(p, f));
    if (f->kind == POLICY_CHOICE)
        return f->choices[*policy_choice(p, f)];
    return *policy_text(p, f);
}

/* `upload close and interval; interval 30s and 5s`. */
static int compare_policies(struct comparison *c, const struct route *a, const struct route *b)
{
    const struct policy of_a = whole_policy(c->a, a), of_b = whole_policy(c->b, b);
    bool units = unit_policy_groups(&of_a) && unit_policy_groups(&of_b);
    auto_buf struct buf text = BUF_INIT(ROUTE_TEXT_MAX);
    int r = 0;

    for (size_t i = 0; i < policy_fields_n && !r && !a->scratch; i++) {
        const struct policy_field *f = &policy_fields[i];
        char time_a[FORMAT_TIME_MAX], time_b[FORMAT_TIME_MAX];

        if (!units && strncmp(f->name, "unit_", strlen("unit_")) == 0)
            continue; /* they say nothing there */
        if (f->built && !policy_field_same(&of_a, &of_b, f))
            r = buf_addf(&text, "%s %s %s and %s", text.len ? ";" : "", f->name,
                         field_text(&of_a, f, time_a), field_text(&of_b, f, time_b));
    }
    if (!r && !a->scratch && of_a.urgent != of_b.urgent)
        r = buf_addf(&text, "%s goes up %s and %s", text.len ? ";" : "",
                     of_a.urgent ? "first" : "in turn", of_b.urgent ? "first" : "in turn");
    if (!r && text.len)
        differs(c, "the route %s:%s", a->path.text, text.data);
    return r;
}

/* ---- all of the routes ---- */

static void only(struct comparison *c, const struct checked *has, const struct route *route)
{
    if (route->scratch)
        differs(c, "only %s has the route %s in no store", has->file, route->path.text);
    else
        differs(c, "only %s has the route %s in \"%s\" at %s", has->file, route->path.text,
                check_store_name(has, route), route->key.text);
}

static int compare_texts(struct comparison *c, const struct texts *a, const struct texts *b)
{
    const struct route *of_a = c->a->placed.config.routes.items;
    const struct route *of_b = c->b->placed.config.routes.items;
    int r = 0;

    for (size_t i = 0; i < a->n && !r; i++) {
        size_t same = find_text(b, a->v[i]);

        if (same == SIZE_MAX)
            only(c, c->a, &of_a[i]);
        else
            r = compare_policies(c, &of_a[i], &of_b[same]);
    }
    for (size_t i = 0; i < b->n; i++)
        if (find_text(a, b->v[i]) == SIZE_MAX)
            only(c, c->b, &of_b[i]);
    return r;
}

static int compare_routes(struct comparison *c)
{
    struct texts a = {0}, b = {0};
    int r = route_texts(c->a, &a);

    if (!r)
        r = route_texts(c->b, &b);
    if (!r)
        r = compare_texts(c, &a, &b);
    if (!r && json_array_size(c->differences) == 0)
        compare_order(c, &a, &b);
    texts_release(&a);
    texts_release(&b);
    return r;
}

/* ---- files without stores ---- */

/* The last of a name counts. */
static const char *option_of(const struct checked *c, const char *name)
{
    const struct config *config = &c->placed.config;

    for (size_t i = config->n_options; i-- > 0;)
        if (strcmp(config->options[i].name, name) == 0)
            return config->options[i].value;
    return NULL;
}

static void compare_options_of(struct comparison *c, const struct checked *from,
                               const struct checked *to)
{
    const struct config *config = &from->placed.config;

    for (size_t i = 0; i < config->n_options; i++) {
        const char *name = config->options[i].name, *other = option_of(to, name);

        if (config->options[i].value != option_of(from, name))
            continue;
        if (!other)
            differs(c, "only %s has the option %s", from->file, name);
        else if (from == c->a && !mount_options_same(&from->options, &to->options, name))
            differs(c, "option %s differs", name);
    }
}

static int compare(struct comparison *c)
{
    size_t a = c->a->placed.config.n_stores, b = c->b->placed.config.n_stores;

    if (a == 0 && b == 0) {
        compare_options_of(c, c->a, c->b);
        compare_options_of(c, c->b, c->a);
        return 0;
    }
    if (a == 0 || b == 0) {
        differs(c, "%s names no stores", a == 0 ? c->a->file : c->b->file);
        return 0;
    }
    compare_stores(c);
    return compare_routes(c);
}

/* ---- telling ---- */

static int tell(const struct comparison *c)
{
    const json_t *text;
    size_t i;

    if (c->a->placed.config.n_stores + c->b->placed.config.n_stores == 0)
        command_say("neither names stores; their options were compared");
    if (json_array_size(c->differences) == 0)
        command_say("the same");
    json_array_foreach(c->differences, i, text) command_say("%s", json_string_value(text));
    return EXIT_OK;
}

int check_same(const struct checked *a, const struct checked *b, bool json)
{
    auto_json json_t *differences = json_array();
    struct comparison c = {.a = a, .b = b, .differences = differences};
    int code, err = differences ? compare(&c) : -ENOMEM;

    if (err)
        return command_failed_by(err, "out of memory");
    bool same = json_array_size(differences) == 0;
    if (json) {
        auto_json json_t *j =
            json_pack("{s:b, s:O}", "same", (int)same, "differences", differences);
        code = command_answer_json(j);
    } else {
        code = tell(&c);
    }
    return same ? code : EXIT_FAILED;
}
