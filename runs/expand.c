/* A configuration as JSON that is read as the same: whole URLs, all routes, and the policies in
 * use with every field; no layout, no default. */
#include "common/mem.h"
#include "common/printable.h"
#include "common/units.h"
#include "runs/config_impl.h"
#include "runs/policy_fields.h"

static void json_cleanup(json_t **j)
{
    json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

/* A folder's name may be no UTF-8, when it comes from a command line: shown, not read again. */
static json_t *text_json(const char *text)
{
    json_t *legal = json_string(text);
    auto_buf struct buf shown = BUF_INIT(CONFIG_TEXT_MAX * PRINTABLE_MAX);
    char part[PRINTABLE_MAX];
    size_t len;

    while (!legal && (len = printable_next(part, &text)) > 0)
        if (buf_add(&shown, part, len))
            return NULL;
    return legal ? legal : json_string(shown.data ? shown.data : "");
}

/* Takes over the value; -ENOMEM also for a NULL. */
static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) ? -ENOMEM : 0;
}

/* ---- stores and options ---- */

static json_t *store_json(const struct config_store *store)
{
    json_t *object = json_object();
    int err = object ? set(object, "url", text_json(store->url)) : -ENOMEM;

    for (size_t i = 0; !err && i < store->settings.n; i++)
        err = set(object, store->settings.items[i].name,
                  text_json(store->settings.items[i].value));
    if (!err)
        return object;
    json_decref(object);
    return NULL;
}

static int add_stores(json_t *root, const struct config *c)
{
    json_t *stores = json_object();
    int err = set(root, "stores", stores);

    for (size_t i = 0; !err && i < c->n_stores; i++)
        err = set(stores, c->stores[i].name, store_json(&c->stores[i]));
    return err;
}

static int add_options(json_t *root, const struct config *c)
{
    json_t *options = json_object();
    int err = set(root, "options", options);

    for (size_t i = 0; !err && i < c->n_options; i++)
        err = set(options, c->options[i].name, text_json(c->options[i].value));
    return err;
}

/* ---- routes ---- */

static json_t *route_json(const struct config *c, const struct route *route)
{
    return json_pack("{ss ss ss ss}", "path", route->path.text, "store",
                     c->stores[route->store].name, "key", route->key.text, "policy",
                     c->policies.items[route->policy].name);
}

static int add_routes(json_t *root, const struct config *c)
{
    json_t *routes = json_array();
    int err = set(root, "routes", routes);

    for (size_t i = 0; !err && i < c->routes.n; i++)
        if (json_array_append_new(routes, route_json(c, &c->routes.items[i])))
            err = -ENOMEM;
    return err;
}

/* ---- policies ---- */

static json_t *field_json(const struct policy *p, const struct policy_field *f)
{
    char time[FORMAT_TIME_MAX];

    switch (f->kind) {
    case POLICY_CHOICE:
        return json_string(f->choices[*policy_choice(p, f)]);
    case POLICY_FLAG:
        return json_boolean(*policy_choice(p, f));
    case POLICY_WORD:
    case POLICY_PATTERNS:
        return json_string(*policy_text(p, f));
    case POLICY_TIME:
        return json_string(format_time(time, *policy_number(p, f)));
    default:
        return json_integer(*policy_number(p, f));
    }
}

static json_t *policy_json(const struct policy *p)
{
    json_t *object = json_object();
    int err = object ? 0 : -ENOMEM;

    if (!err && strcmp(p->name, p->preset) != 0)
        err = set(object, "extends", json_string(p->preset));
    for (size_t i = 0; !err && i < policy_fields_n; i++)
        if (!policy_field_unset(p, &policy_fields[i]))
            err = set(object, policy_fields[i].name, field_json(p, &policy_fields[i]));
    if (!err)
        return object;
    json_decref(object);
    return NULL;
}

static bool is_used(const struct config *c, size_t policy)
{
    for (size_t i = 0; i < c->routes.n; i++)
        if (c->routes.items[i].policy == policy)
            return true;
    return false;
}

static int add_policies(json_t *root, const struct config *c)
{
    json_t *policies = json_object();
    int err = set(root, "policies", policies);

    for (size_t i = 0; !err && i < c->policies.n; i++)
        if (is_used(c, i))
            err = set(policies, c->policies.items[i].name, policy_json(&c->policies.items[i]));
    return err;
}

char *config_expand(const struct config *c, bool options)
{
    auto_json json_t *root = json_object();
    int err = root ? 0 : -ENOMEM;

    if (!err && c->n_stores > 0) {
        err = add_stores(root, c);
        if (!err)
            err = add_routes(root, c);
        if (!err)
            err = add_policies(root, c);
    }
    if (!err && options)
        err = add_options(root, c);
    return err ? NULL : json_dumps(root, JSON_ENSURE_ASCII | JSON_INDENT(2));
}
