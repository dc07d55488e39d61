/* What the files that read a configuration share. A reader returns 0 or -ENOMEM; what is wrong
 * it adds to the problems, and goes on, so that all of it is found at once. */
#ifndef RUNFS_RUNS_CONFIG_IMPL_H
#define RUNFS_RUNS_CONFIG_IMPL_H

#include "common/buf.h"
#include "runs/config.h"
#include "runs/json_places.h"
#include "runs/store_url.h"

#define CONFIG_TEXT_MAX     (1024 * 1024)
#define CONFIG_STORES_MAX   256
#define CONFIG_POLICIES_MAX 256
#define CONFIG_ROUTES_MAX   256
#define CONFIG_EXTENDS_MAX  32 /* policies, the preset not counted */

/* What is wrong with one of these was said: what only follows from that is not. */
enum amiss {
    AMISS_FS = 1 << 0,       /* a URL that it would complete */
    AMISS_STORES = 1 << 1,   /* a store that is not known */
    AMISS_POLICIES = 1 << 2, /* a policy that is not known */
    AMISS_TREE = 1 << 3,     /* that nothing says what lies where */
};

struct reading {
    const char *origin;
    struct op *op;
    struct config *config;
    struct config_problems *problems;
    const struct json_node *root;
    struct url_base base;
    unsigned amiss;      /* enum amiss */
    bool policy_refused; /* one at least: its users are not judged by what it says */
};

/* Adds a problem. */
#define config_wrong(r, at, ...) config_problem_add((r)->problems, (at), __VA_ARGS__)

/* ---- config_values.c ---- */

/* Whether a member counts: one whose name was there before was reported, and does not. */
bool config_member(const struct json_node *node);
/* The nearest of the names, which end with NULL; NULL: none is near. */
const char *config_meant(const struct json_node *member, const char *const *known);
/* `unknown "polcy" in a route, did you mean "policy"?`; the same names. */
int config_unknown(struct reading *r, const struct json_node *member, const char *where,
                   const char *const *known);
/* The text that `-o name=value` would carry. *ret, the caller's, is NULL when it is none; then
 * that was reported. `lists`: texts joined by ":", too. */
int config_scalar(struct reading *r, const struct json_node *member, const char *where,
                  bool lists, char **ret);
/* The text of a member that must be one and not empty; NULL when it was reported. */
int config_text(struct reading *r, const struct json_node *member, const char *where,
                const char **ret);
/* Whether it is an object (or a list); reported if not. */
int config_expect(struct reading *r, const struct json_node *node, json_type type,
                  const char *what, bool *ret);
/* Whether it can be the name of a store or a policy; reported if not. */
int config_name_ok(struct reading *r, const struct json_node *member, const char *what,
                   bool *ret);
/* true or false, also as text; unchanged when it was reported. */
int config_flag(struct reading *r, const struct json_node *member, const char *where,
                bool *ret);
/* Whether a setting of that name holds a secret, as far as a name tells. */
bool config_name_secret(const char *name);

/* ---- config_stores.c ---- */

int config_read_stores(struct reading *r, const struct json_node *stores);
void config_stores_release(struct config *c);
/* SIZE_MAX: none. */
size_t config_find_store(const struct config *c, const char *name, size_t len);
/* `route names the store "x"; "stores" has ckpt, logs`; `who` is "route". */
int config_unknown_store(struct reading *r, struct text_place at, const char *who,
                         const char *name);
/* Adds a setting of a store, unless it has one of that name; "store: ..." is wrong is said. */
int config_store_setting(struct reading *r, struct config_store *store, const char *name,
                         const char *value, struct text_place at);

/* ---- tracker.c ---- */

/* Fills in the store's URL and settings from a TorchX tracker's configuration file. */
int config_read_tracker(struct reading *r, struct config_store *store, const char *path);

/* ---- config_policies.c ---- */

/* `policies` may be NULL: then there are the presets only. */
int config_read_policies(struct reading *r, const struct json_node *policies);
/* Reads one member of a policy into `to`, which began as a copy of `extended`. */
int config_policy_field(struct reading *r, const struct json_node *member,
                        const struct policy *extended, struct policy *to);
/* Leaves out the presets that no route uses. */
void config_drop_policies(struct config *c);

/* ---- config_routes.c ---- */

int config_read_routes(struct reading *r, const struct json_node *routes);
/* Parses both templates and appends the route; the problem is at `key_at`, or of the path at
 * `path_at`. *ret_added tells whether it is there now. */
struct route_texts {
    const char *path, *key;
    struct text_place path_at, key_at;
    size_t store, policy; /* SIZE_MAX: unknown, and reported */
    struct text_place at;
};
int config_add_route(struct reading *r, const struct route_texts *texts, bool *ret_added);
/* Takes the last route away again. */
void config_drop_route(struct routes *routes);
/* `can never match: line 7 takes every path of it`. */
int config_never_matches(struct reading *r, struct text_place at, size_t covering);

/* ---- config_layout.c ---- */

/* Appends the layout's routes. *ret_default: it gave the rest to the default store, an index or
 * SIZE_MAX. */
int config_read_layout(struct reading *r, const struct json_node *layout, size_t default_store,
                       bool *ret_default);
/* The same of a layout without a file: all of it in store 0. -EINVAL: there is none of that
 * name; op->why says which are. */
int config_layout_of_url(struct reading *r, const char *name);

#endif
