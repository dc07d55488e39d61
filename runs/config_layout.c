/* "layout" of a configuration: which part of it lies in which store, and its routes there. */
#include "common/mem.h"
#include "common/nearest.h"
#include "common/path.h"
#include "runs/config_impl.h"
#include "runs/layout.h"
#include "runs/policy_fields.h"

/* Where a category lies. */
struct placed {
    size_t store; /* SIZE_MAX: nowhere that is known */
    char *folder; /* heap; its directory there, as text of a template */
    bool named;   /* the configuration says so */
    bool told;    /* what is wrong with it was reported */
    struct text_place at;
    size_t routes; /* so many it has */
    size_t taken;  /* and so many of them can never match */
    size_t by;     /* the route that takes the last of these */
};

struct layout_reading {
    struct reading *r;
    const struct layout *layout;
    struct text_place at;
    struct placed placed[LAYOUT_CATEGORIES_MAX];
    unsigned choices;
    bool incomplete; /* something is wrong: no routes are made */
};

static void release(struct layout_reading *l)
{
    for (size_t i = 0; i < LAYOUT_CATEGORIES_MAX; i++)
        free(l->placed[i].folder);
}

/* ---- what the configuration says ---- */

/* A path is itself in a template but for braces. */
static int add_literal(struct buf *to, const char *path)
{
    int err = 0;

    for (; *path && !err; path++)
        err = *path == '{' || *path == '}' ? buf_addf(to, "%c%c", *path, *path)
                                           : buf_addc(to, *path);
    return err;
}

static int set_folder(struct placed *p, const char *path)
{
    auto_buf struct buf text = BUF_INIT(CONFIG_TEXT_MAX);

    if (add_literal(&text, path))
        return -ENOMEM;
    free(p->folder);
    p->folder = buf_take(&text);
    return p->folder ? 0 : -ENOMEM;
}

/* "STORE" or "STORE/path". */
static int read_category(struct layout_reading *l, const struct json_node *member,
                         size_t category)
{
    struct placed *p = &l->placed[category];
    const char *text, *slash;
    int err = config_text(l->r, member, "a layout", &text);

    if (err || !text) {
        l->incomplete = true;
        return err;
    }
    slash = strchr(text, '/');
    p->at = member->at;
    p->named = true;
    p->store =
        config_find_store(l->r->config, text, slash ? (size_t)(slash - text) : strlen(text));
    if (p->store == SIZE_MAX) {
        auto_free char *who = NULL;
        auto_free char *name = slash ? strndup(text, (size_t)(slash - text)) : strdup(text);

        l->incomplete = true;
        if (!name || asprintf(&who, "\"%s\"", member->name) < 0) {
            who = NULL;
            return -ENOMEM;
        }
        return config_unknown_store(l->r, member->at, who, name);
    }
    if (slash && (!slash[1] || !path_key_safe(slash + 1, PATH_KEY_MAX))) {
        l->incomplete = true;
        return config_wrong(l->r, member->at,
                            "\"%s\": what follows \"STORE/\" must be a path without empty "
                            "names, \".\" and \"..\"",
                            member->name);
    }
    return set_folder(p, slash ? slash + 1 : l->layout->categories[category].folder);
}

static int read_save_runs(struct layout_reading *l, const struct json_node *member)
{
    bool save = true;
    int err = config_flag(l->r, member, "a layout", &save);

    if (!save)
        l->choices |= LAYOUT_UNSAVED;
    return err;
}

static int read_names(struct layout_reading *l, const struct json_node *member)
{
    const char *text = json_string_value(member->value);

    if (text && strcmp(text, "raw") == 0) {
        l->choices |= LAYOUT_RAW;
        l->r->config->raw_names = CODEC_B32;
    } else if (!text || strcmp(text, "b32") != 0) {
        return config_wrong(l->r, member->at, "\"names\" in a layout must be one of b32, raw");
    }
    return 0;
}

static int unknown_member(struct layout_reading *l, const struct json_node *member)
{
    const char *known[LAYOUT_CATEGORIES_MAX + 4] = {"name"};
    auto_free char *where = NULL;
    size_t n = 1;

    for (size_t i = 0; l->layout->categories[i].name; i++)
        known[n++] = l->layout->categories[i].name;
    if (l->layout->choices & LAYOUT_UNSAVED)
        known[n++] = "save_runs";
    if (l->layout->choices & LAYOUT_RAW)
        known[n++] = "names";
    l->incomplete = true;
    if (asprintf(&where, "layout \"%s\"", l->layout->name) < 0) {
        where = NULL;
        return -ENOMEM;
    }
    return config_unknown(l->r, member, where, known);
}

static int read_member(struct layout_reading *l, const struct json_node *member)
{
    size_t category = layout_category(l->layout, member->name);

    if (category < LAYOUT_CATEGORIES_MAX)
        return read_category(l, member, category);
    if (strcmp(member->name, "name") == 0)
        return 0;
    if ((l->layout->choices & LAYOUT_UNSAVED) && strcmp(member->name, "save_runs") == 0)
        return read_save_runs(l, member);
    if ((l->layout->choices & LAYOUT_RAW) && strcmp(member->name, "names") == 0)
        return read_names(l, member);
    return unknown_member(l, member);
}

/* Two members that can't both count. */
static int check_choices(struct layout_reading *l, const struct json_node *layout)
{
    const struct json_node *tracker = json_node_get(layout, "tracker");
    const struct json_node *runs = json_node_get(layout, "runs");

    if (tracker && (l->layout->choices & LAYOUT_TRACKER)) {
        l->choices |= LAYOUT_TRACKER;
        if (json_node_get(layout, "metadata"))
            return config_wrong(l->r, tracker->name_at,
                                "a tracker holds the runs' metadata: \"tracker\" or "
                                "\"metadata\", not both");
    }
    if (runs && (l->choices & LAYOUT_UNSAVED))
        return config_wrong(l->r, runs->name_at,
                            "\"runs\" names a store, but with \"save_runs\": false no run is "
                            "stored; leave one of them out");
    return 0;
}

/* ---- what it leaves open ---- */

static size_t last_category(const struct layout *l)
{
    return layout_categories_n(l) - 1;
}

/* What takes the rest: it may lie in the default store or in the only one. */
static int place_rest(struct layout_reading *l, size_t default_store, bool *ret_default)
{
    struct placed *p = &l->placed[last_category(l->layout)];
    const struct layout_category *c = &l->layout->categories[last_category(l->layout)];

    if (p->named || l->incomplete)
        return 0;
    *ret_default = default_store != SIZE_MAX;
    if (!*ret_default && l->r->config->n_stores != 1) {
        l->incomplete = true;
        if (l->r->amiss & (AMISS_TREE | AMISS_STORES))
            return 0;
        return config_wrong(l->r, l->at,
                            "layout \"%s\" needs \"%s\", the store of what the others do not "
                            "take, or a \"default_store\"",
                            l->layout->name, c->name);
    }
    p->store = *ret_default ? default_store : 0;
    p->at = l->at;
    return set_folder(p, c->folder);
}

/* A category that is not named lies where the rest lies. */
static int place_others(struct layout_reading *l)
{
    const struct placed *rest = &l->placed[last_category(l->layout)];

    for (size_t i = 0; i < last_category(l->layout); i++) {
        struct placed *p = &l->placed[i];

        if (p->named || l->layout->categories[i].optional)
            continue;
        p->store = rest->store;
        p->at = l->at;
        p->folder = path_join(rest->folder, l->layout->categories[i].folder);
        if (!p->folder)
            return -ENOMEM;
    }
    return 0;
}

/* ---- its routes ---- */

/* A route that the configuration's own ones take wholly is left out: it said the same before,
 * and better. When it named the part of the layout it is told of that. */
static int add_route(struct layout_reading *l, const struct layout_route *route, size_t own)
{
    struct placed *p = &l->placed[layout_category(l->layout, route->category)];
    struct routes *routes = &l->r->config->routes;
    auto_free char *key = NULL;
    size_t covering;
    bool added;
    int err;

    if (asprintf(&key, "%s%s", p->folder,
                 !*p->folder && *route->key == '/' ? route->key + 1 : route->key) < 0) {
        key = NULL;
        return -ENOMEM;
    }
    struct route_texts texts = {.path = route->path,
                                .key = key,
                                .path_at = p->at,
                                .key_at = p->at,
                                .store = p->store,
                                .policy = policies_find(&l->r->config->policies, route->policy),
                                .at = p->at};
    err = config_add_route(l->r, &texts, &added);
    p->told = p->told || !added;
    if (err || !added)
        return err;
    p->routes++;
    covering = routes_covering(routes, routes->n - 1);
    if (covering < own) {
        config_drop_route(routes);
        p->taken++;
        p->by = covering;
    }
    return 0;
}

static int tell_taken(struct layout_reading *l)
{
    size_t routes = 0, taken = 0, by = 0;
    bool told = false;
    int err = 0;

    for (size_t i = 0; !err && l->layout->categories[i].name; i++) {
        const struct placed *p = &l->placed[i];

        routes += p->routes;
        taken += p->taken;
        by = p->taken ? p->by : by;
        if (p->told || (p->named && p->routes && p->routes == p->taken)) {
            err = p->told ? 0 : config_never_matches(l->r, p->at, p->by);
            told = true;
        }
    }
    if (!err && !told && taken == routes)
        err = config_never_matches(l->r, l->at, by);
    return err;
}

static int add_routes(struct layout_reading *l)
{
    size_t own = l->r->config->routes.n;
    int err = 0;

    for (const struct layout_route *route = l->layout->routes; !err && route->path; route++)
        if (layout_route_counts(route, l->choices) &&
            !l->placed[layout_category(l->layout, route->category)].told)
            err = add_route(l, route, own);
    return err ? err : tell_taken(l);
}

static int make_routes(struct layout_reading *l, size_t default_store, bool *ret_default)
{
    int err = place_rest(l, default_store, ret_default);

    if (!err && !l->incomplete)
        err = place_others(l);
    if (!err && !l->incomplete)
        err = add_routes(l);
    return err;
}

/* ---- which one ---- */

static int unknown_layout(struct buf *why, const char *name)
{
    struct nearest n;
    int err = 0;

    nearest_init(&n, name);
    for (size_t i = 0; layout_at(i); i++)
        nearest_try(&n, layout_at(i)->name);
    if (n.best)
        return buf_addf(why, "unknown layout \"%s\", did you mean \"%s\"?", name, n.best);
    err = buf_addf(why, "unknown layout \"%s\"; known are ", name);
    for (size_t i = 0; !err && layout_at(i); i++)
        err = buf_addf(why, "%s%s", i ? ", " : "", layout_at(i)->name);
    return err;
}

/* The layout's name, and where it stands. NULL: reported. */
static int find_name(struct reading *r, const struct json_node *layout, const char **ret,
                     struct text_place *ret_at)
{
    const struct json_node *name = layout;

    *ret = NULL;
    *ret_at = layout->at;
    if (layout->type == JSON_OBJECT) {
        name = json_node_get(layout, "name");
        if (!name)
            return config_wrong(r, layout->at, "a layout needs a \"name\"");
        *ret_at = name->at;
    } else if (layout->type != JSON_STRING) {
        return config_wrong(r, layout->at, "\"layout\" must be a name or an object, {...}");
    }
    return config_text(r, name, "a layout", ret);
}

static int find_layout(struct reading *r, const struct json_node *node,
                       struct layout_reading *l)
{
    auto_buf struct buf why = BUF_INIT(CONFIG_TEXT_MAX);
    const char *name;
    int err = find_name(r, node, &name, &l->at);

    if (err || !name)
        return err;
    l->layout = layout_find(name);
    if (!l->layout) {
        err = unknown_layout(&why, name);
        return err ? err : config_wrong(r, l->at, "%s", why.data);
    }
    r->config->layout = strdup(name);
    return r->config->layout ? 0 : -ENOMEM;
}

int config_read_layout(struct reading *r, const struct json_node *layout, size_t default_store,
                       bool *ret_default)
{
    struct layout_reading l = {.r = r};
    int err = find_layout(r, layout, &l);

    if (err || !l.layout)
        return err;
    for (size_t i = 0; !err && i < layout->n; i++)
        if (config_member(&layout->items[i]))
            err = read_member(&l, &layout->items[i]);
    if (!err)
        err = check_choices(&l, layout);
    if (!err && r->config->n_stores > 0)
        err = make_routes(&l, default_store, ret_default);
    release(&l);
    return err;
}

int config_layout_of_url(struct reading *r, const char *name)
{
    struct layout_reading l = {.r = r, .layout = layout_find(name)};
    bool by_default;
    int err;

    if (!l.layout) {
        auto_buf struct buf why = BUF_INIT(CONFIG_TEXT_MAX);

        err = unknown_layout(&why, name);
        return err ? err : op_fail(r->op, -EINVAL, "%s", why.data);
    }
    r->config->layout = strdup(name);
    if (!r->config->layout)
        return -ENOMEM;
    err = make_routes(&l, SIZE_MAX, &by_default);
    release(&l);
    return err;
}
