/* From the words of a mount to what is mounted. */
#include "cli/configured.h"

#include "backends/store.h"
#include "cli/store_places.h"
#include "common/buf.h"
#include "common/mem.h"
#include "runs/policy_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAMES_MAX 256

struct reading {
    const char *spec;
    const char *file; /* NULL without one */
    struct mount_options *options;
    struct config *config;
    struct op *op;
};

/* ---- messages ---- */

/* Puts the file and the place before what op->why says. */
static int fail_at(const struct reading *r, struct text_place at, int err)
{
    struct op inner = *r->op;

    if (!at.line)
        return op_fail(r->op, err, "%s: %s", r->file, inner.why);
    return op_fail(r->op, err, "%s:%u:%u: %s", r->file, at.line, at.column, inner.why);
}

/* "a, b" of the stores; as many as a message holds. */
static const char *store_names(const struct config *c, struct buf *names)
{
    for (size_t i = 0; i < c->n_stores; i++)
        if (buf_addf(names, "%s%s", i ? ", " : "", c->stores[i].name))
            break;
    return names->data ? names->data : "";
}

/* ---- the file ---- */

static bool is_config_name(const char *spec)
{
    size_t len = strlen(spec);

    return len > 5 && strcmp(spec + len - 5, ".json") == 0 && !strstr(spec, "://");
}

bool configured_is_file(const char *spec)
{
    struct stat st;

    return is_config_name(spec) && stat(spec, &st) == 0 && S_ISREG(st.st_mode);
}

/* Whether the file and the word on the command line make sense together. */
static int check_spec(const struct reading *r)
{
    const struct config *c = r->config;
    auto_buf struct buf names = BUF_INIT(NAMES_MAX);

    if (r->spec == r->file)
        return c->n_stores
                   ? 0
                   : op_fail(r->op, -EINVAL,
                             "%s names no store: add \"stores\", or mount a URL with -o "
                             "config=%s",
                             r->file, r->file);
    if (c->n_stores > 1)
        return op_fail(r->op, -EINVAL,
                       "%s has the stores %s: mount %s itself, not with config=", r->file,
                       store_names(c, &names), r->file);
    if (c->n_stores && strcmp(r->spec, c->stores[0].name) != 0)
        return op_fail(r->op, -EINVAL,
                       "%s names the store \"%s\": mount that name, or a file without "
                       "\"stores\"",
                       r->file, c->stores[0].name);
    return 0;
}

/* Words that say something on the command line and in fstab only. */
static int check_meaning(const struct reading *r, const struct config_option *o)
{
    if (strcmp(o->name, "config") == 0)
        return op_fail(r->op, -EINVAL, "a configuration can't name another one (config)");
    if (mount_options_is_words(o->name) && !mount_options_is_stores(o->name))
        return op_fail(r->op, -EINVAL,
                       "\"%.60s\" is a word for -o and fstab, and means nothing in a "
                       "configuration",
                       o->name);
    return 0;
}

/* What one store needs is no option of several. */
static int check_owner(const struct reading *r, const char *name)
{
    auto_buf struct buf names = BUF_INIT(NAMES_MAX);

    if (r->config->n_stores <= 1 || !mount_options_is_stores(name))
        return 0;
    return op_fail(r->op, -EINVAL,
                   "option \"%s\" is one store's, and \"stores\" has %s: put it into the store",
                   name, store_names(r->config, &names));
}

/* These leave the place out of what they say. */

/* A tree of several routes has policies by path. Routes of a file have places. */
static int refuse_policy_fields(const struct reading *r, const char *name, const char *value)
{
    const struct config *c = r->config;

    if (c->routes.items[0].at.line)
        return op_fail(r->op, -EINVAL,
                       "option %s=%.60s: only a store without routes and layout takes it; put "
                       "it into a policy of %s",
                       name, value, r->file);
    return op_fail(r->op, -EINVAL,
                   "option %s=%.60s: layout %s has policies of its own: write a configuration "
                   "with them",
                   name, value, c->layout);
}

static int check_policy_field(const struct reading *r, const struct config_option *o)
{
    const struct config *c = r->config;

    if (c->n_stores == 0 || configured_is_plain(c) || !mount_options_is_policy_field(o->name))
        return 0;
    return refuse_policy_fields(r, o->name, o->value);
}

static int use_file_option(const struct reading *r, const struct config_option *o)
{
    int err = check_meaning(r, o);

    if (!err)
        err = check_owner(r, o->name);
    if (!err)
        err = check_policy_field(r, o);
    return err ? err : mount_options_set(r->options, o->name, o->value, r->op);
}

static int check_field(const struct reading *r, const struct config_store *store,
                       const char *name)
{
    int err = mount_options_check_stores(name, r->op);
    struct op inner = *r->op;

    return err ? op_fail(r->op, err, "store \"%s\": %s", store->name, inner.why) : 0;
}

/* What is done about something wrong; what it returns, unless 0, ends the search. */
typedef int (*problem_fn)(const struct reading *r, struct text_place at, int err, void *arg);

static int judge_fields(const struct reading *r, problem_fn problem, void *arg)
{
    const struct config *c = r->config;
    int err = 0;

    for (size_t i = 0; i < c->n_stores; i++) {
        const struct config_store *store = &c->stores[i];

        for (size_t j = 0; j < store->settings.n && !err; j++) {
            err = check_field(r, store, store->settings.items[j].name);
            if (err)
                err = problem(r, store->at, err, arg);
        }
    }
    return err;
}

static int judge_options(const struct reading *r, problem_fn problem, void *arg)
{
    const struct config *c = r->config;
    int err = 0;

    for (size_t i = 0; i < c->n_options && !err; i++) {
        err = use_file_option(r, &c->options[i]);
        if (err)
            err = problem(r, c->options[i].at, err, arg);
    }
    return err;
}

static int tell_first(const struct reading *r, struct text_place at, int err, void *arg)
{
    (void)arg;
    return fail_at(r, at, err);
}

static int collect(const struct reading *r, struct text_place at, int err, void *arg)
{
    return err == -EINVAL ? config_problem_add(arg, at, "%s", r->op->why) : err;
}

static int use_file(const struct reading *r)
{
    int err = config_load(r->file, r->op, NULL, r->config);

    if (err)
        return err;
    err = check_spec(r);
    if (!err)
        err = judge_fields(r, tell_first, NULL);
    return err ? err : judge_options(r, tell_first, NULL);
}

/* ---- the command line ---- */

/* What `-o` or the file's "options" said of the one store comes after what the store says. */
static int hand_to_store(const struct reading *r)
{
    struct settings *from = &r->options->store;
    struct config *c = r->config;
    auto_buf struct buf names = BUF_INIT(NAMES_MAX);

    if (from->n && c->n_stores > 1)
        return op_fail(r->op, -EINVAL,
                       "option %s is one store's, and %s has %s: put it into the store there",
                       from->items[0].name, r->file, store_names(c, &names));
    for (size_t i = 0; i < from->n; i++)
        if (settings_add(&c->stores[0].settings, from->items[i].name, from->items[i].value))
            return op_fail(r->op, -ENOMEM, "out of memory");
    settings_release(from);
    return 0;
}

/* The file's own routes say what lies where already. */
static int check_layout(const struct reading *r)
{
    const struct config *c = r->config;
    const char *layout = r->options->layout;
    auto_buf struct buf names = BUF_INIT(NAMES_MAX);

    if (c->n_stores > 1)
        return op_fail(r->op, -EINVAL,
                       "layout=%.60s: %s has the stores %s: give it a \"layout\" that says "
                       "what lies in which",
                       layout, r->file, store_names(c, &names));
    if (c->layout && strcmp(c->layout, layout) != 0)
        return op_fail(r->op, -EINVAL, "layout=%.60s: %s has a layout of its own, \"%s\"",
                       layout, r->file, c->layout);
    if (!c->layout && !configured_is_plain(c))
        return op_fail(r->op, -EINVAL, "layout=%.60s: %s has routes of its own", layout,
                       r->file);
    return 0;
}

/* The one store under another layout, with the name that it has. */
static int lay_out(const struct reading *r)
{
    struct config *c = r->config, laid;
    const struct config_store *store = &c->stores[0];
    int err = check_layout(r);

    if (err || c->layout)
        return err;
    err = config_of_url(store->url, &store->settings, r->options->layout, r->op, &laid);
    if (err)
        return err;
    SWAP(laid.stores[0].name, c->stores[0].name);
    SWAP(laid.stores[0].at, c->stores[0].at);
    SWAP(laid.origin, c->origin);
    config_release(c);
    *c = laid;
    return 0;
}

static int check_url(const struct reading *r, const char *url)
{
    auto_free char *shown = store_url_redact(url);

    if (!shown)
        return op_fail(r->op, -ENOMEM, "out of memory");
    if (strcmp(shown, url) != 0)
        return op_fail(r->op, -EINVAL,
                       "%s: credentials don't belong in a URL, where every process can see "
                       "them; use the environment or a profile",
                       shown);
    return 0;
}

/* A file without stores gives options for the URL. */
static int use_url(const struct reading *r)
{
    struct config config;
    int err = check_url(r, r->spec);

    if (!err)
        err = config_of_url(r->spec, &r->options->store, r->options->layout, r->op, &config);
    if (err)
        return err;
    settings_release(&r->options->store);
    config_release(r->config);
    *r->config = config;
    return 0;
}

static int use_stores(const struct reading *r)
{
    int err = hand_to_store(r);

    return err || !r->options->layout ? err : lay_out(r);
}

static int use_policy_fields(const struct reading *r)
{
    const struct settings *fields = &r->options->policy;

    if (fields->n == 0)
        return 0;
    if (!configured_is_plain(r->config))
        return refuse_policy_fields(r, fields->items[0].name, fields->items[0].value);
    return config_policy_options(r->config, fields, r->op);
}

static int read_words(const struct reading *r, const char *list)
{
    int err = r->file ? use_file(r) : 0;

    if (!err && list)
        err = mount_options_parse(r->options, list, r->op);
    if (!err)
        err = r->config->n_stores ? use_stores(r) : use_url(r);
    /* A URL of the command line is judged when it is opened. */
    if (!err && (r->config->stores[0].url_at.line || !configured_is_plain(r->config)))
        err = store_places_check(r->config, r->op, NULL);
    if (!err)
        err = use_policy_fields(r);
    if (!err)
        config_drop_unused(r->config);
    return err;
}

/* config= has to be known before the rest of the list, which comes over what the file says. */
static int find_config(const char *list, struct op *op, char **ret)
{
    struct mount_options o;
    int err;

    mount_options_init(&o);
    err = list ? mount_options_parse(&o, list, op) : 0;
    *ret = err ? NULL : take_ptr(o.config);
    mount_options_release(&o);
    return err;
}

bool configured_is_plain(const struct config *c)
{
    return c->n_stores == 1 && routes_trivial(&c->routes) &&
           strcmp(c->policies.items[c->routes.items[0].policy].name, "data") == 0;
}

int configured(const char *spec, const char *list, struct mount_options *options, struct op *op,
               struct config *ret)
{
    auto_free char *named = NULL;
    struct config config = {0};
    struct reading r = {.spec = spec, .options = options, .config = &config, .op = op};
    int err = find_config(list, op, &named);

    if (err)
        return err;
    r.file = is_config_name(spec) ? spec : named;
    if (named && r.file == spec)
        return op_fail(op, -EINVAL, "%s is a configuration already: leave config=%.100s out",
                       spec, named);
    err = read_words(&r, list);
    if (err) {
        config_release(&config);
        return err;
    }
    *ret = config;
    return 0;
}

int configured_check(const struct config *config, struct op *op,
                     struct config_problems *problems, bool *ret_fields_known)
{
    struct mount_options options;
    struct config same = *config;
    const struct reading r = {
        .file = config->origin, .options = &options, .config = &same, .op = op};

    mount_options_init(&options);
    int err = judge_fields(&r, collect, problems);
    *ret_fields_known = problems->n == 0;
    if (!err)
        err = judge_options(&r, collect, problems);
    mount_options_release(&options);
    return err ? op_fail(op, err, "%s", strerror(-err)) : 0;
}

int configured_loaded(const char *file, struct config *config, struct mount_options *options,
                      struct op *op)
{
    const struct reading r = {
        .spec = file, .file = file, .options = options, .config = config, .op = op};
    int err = judge_options(&r, tell_first, NULL);

    if (!err && config->n_stores)
        err = use_stores(&r);
    return err || !config->n_stores ? err : use_policy_fields(&r);
}
