/* Where the stores of a configuration are. */
#include "cli/store_places.h"

#include "cli/open_store.h"
#include "common/mem.h"

#include <errno.h>

int store_place(const struct config_store *store, struct op *op, struct store_where *ret)
{
    auto_free struct store_option *list = NULL;
    struct store_config config = {0};
    int err = store_settings(&store->settings, op, &list, &config);

    return err ? err : store_where(store->url, &config, op, ret);
}

/* Puts the file, the place and the store's name before what op->why says; a URL of the command
 * line has none of these. */
static int fail_at(const struct config *config, const struct config_store *store, int err,
                   struct op *op)
{
    struct op inner = *op;

    if (!store->url_at.line)
        return err;
    return op_fail(op, err, "%s:%u:%u: store \"%s\": %s", config->origin, store->url_at.line,
                   store->url_at.column, store->name, inner.why);
}

static int find_places(const struct config *config, struct op *op,
                       struct config_problems *problems, struct store_where *places)
{
    int first = 0;

    for (size_t i = 0; i < config->n_stores; i++) {
        const struct config_store *store = &config->stores[i];
        struct op trial = *op;
        int err = store_place(store, &trial, &places[i]);

        if (err && problems &&
            config_problem_add(problems, store->url_at, "store \"%s\": %s", store->name,
                               trial.why))
            return op_fail(op, -ENOMEM, "out of memory");
        if (err && !first) {
            first = err;
            *op = trial;
            (void)fail_at(config, store, err, op);
        }
    }
    return first;
}

int store_places_check(const struct config *config, struct op *op,
                       struct config_problems *problems)
{
    auto_free struct store_where *places = calloc(config->n_stores, sizeof(*places));
    auto_free struct config_root *roots = calloc(config->n_stores, sizeof(*roots));

    if (!places || !roots)
        return op_fail(op, -ENOMEM, "out of memory");
    int err = find_places(config, op, problems, places);

    if (err && err != -ENOMEM)
        err = -EINVAL; /* that a profile is not there is wrong in the configuration */
    for (size_t i = 0; i < config->n_stores && !err; i++)
        roots[i] = (struct config_root){
            .server = places[i].server, .root = places[i].root, .state = places[i].state};
    if (!err)
        err = config_check_roots(config, roots, op, problems);
    for (size_t i = 0; i < config->n_stores; i++)
        store_where_release(&places[i]);
    return err;
}
