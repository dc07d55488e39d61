/* A configuration, and where its stores are. */
#include "cli/placed.h"

#include "cache/mirror/door.h"
#include "cli/client.h"
#include "cli/kept_config.h"
#include "cli/store_places.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

/* ---- places ---- */

void placed_release(struct placed *p)
{
    for (size_t i = 0; p->where && i < p->config.n_stores; i++)
        store_where_release(&p->where[i]);
    free(p->where);
    config_release(&p->config);
    *p = (struct placed){0};
}

static int place_each(struct placed *p, struct op *op)
{
    const struct config *c = &p->config;

    p->where = calloc(c->n_stores + 1, sizeof(*p->where));
    if (!p->where)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t i = 0; i < c->n_stores; i++) {
        int err = store_place(&c->stores[i], op, &p->where[i]);
        struct op why = *op;

        if (err)
            return c->n_stores == 1
                       ? err
                       : op_fail(op, err, "store \"%s\": %s", c->stores[i].name, why.why);
    }
    return 0;
}

int placed_of_config(struct config *config, struct op *op, struct placed *ret)
{
    struct placed p = {.config = *config};
    int err = place_each(&p, op);

    *config = (struct config){0};
    if (err)
        placed_release(&p);
    else
        *ret = p;
    return err;
}

/* ---- mounts ---- */

static int load_kept(const char *dir, struct op *op, struct config *ret)
{
    auto_free char *text = NULL;
    auto_close int dir_fd = -1;
    struct identity identity;
    int err = door_open(dir, DOOR_CACHE, op, &dir_fd, NULL);

    if (err)
        return err;
    err = door_read_text(dir_fd, "identity", &text); /* whoever has the cache locked */
    if (err)
        return op_fail(op, err, "%s/identity: %s", dir, door_why(err));
    err = identity_parse(text, op, &identity);
    if (!err) {
        err = kept_config_load(dir_fd, dir, &identity, op, ret);
        if (!err)
            err = kept_config_stay(&identity, op, ret);
        identity_release(&identity);
    }
    return err;
}

int placed_of_mount(const char *mountpoint, struct op *op, struct placed *ret)
{
    auto_free char *dir = NULL;
    struct config config;
    int err = client_cache_dir(mountpoint, op, &dir);

    if (!err)
        err = load_kept(dir, op, &config);
    return err ? err : placed_of_config(&config, op, ret);
}

/* ---- paths and URLs ---- */

static int no_object(const char *path, enum routes_kind kind, struct op *op)
{
    if (kind == ROUTES_NOWHERE)
        return op_fail(op, -ENOENT, "no route leads to %s", path);
    return op_fail(op, -EISDIR,
                   "%s is no directory of a store: it is on the way to what is in stores",
                   *path ? path : "the root");
}

int placed_url(const struct placed *p, const char *path, enum routes_as as, const char *form,
               struct op *op, char **ret)
{
    struct routes_hit hit;
    int err = routes_find(&p->config.routes, path, as, &hit);

    if (err)
        return op_fail(op, err, "%s: %s", path, strerror(-err));
    if (hit.kind != ROUTES_MAPPED)
        err = no_object(path, hit.kind, op);
    else if (hit.route->scratch)
        err = op_fail(op, -ENODEV, "%s is scratch, in no store", path);
    else
        err = store_url_of(&p->where[hit.route->store], hit.key, form, op, ret);
    routes_hit_release(&hit);
    return err;
}

int placed_path_of_key(const struct placed *p, size_t store, const char *key, char **ret)
{
    int err = routes_path_of(&p->config.routes, (unsigned)store, key, ROUTES_OBJECT, ret);

    return err != -ENOENT
               ? err
               : routes_path_of(&p->config.routes, (unsigned)store, key, ROUTES_DIRECTORY, ret);
}

int placed_path(const struct placed *p, const char *url, struct op *op, char **ret)
{
    auto_free char *shown = store_url_redact(url);
    bool stored = false;

    for (size_t i = 0; i < p->config.n_stores; i++) {
        auto_free char *key = NULL;
        int err = store_key_of(&p->where[i], url, op, &key);

        if (!err) {
            stored = true;
            err = placed_path_of_key(p, i, key, ret);
        }
        if (err != -ENOENT)
            return err ? op_fail(op, err, "%s: %s", shown ? shown : "", strerror(-err)) : 0;
    }
    return op_fail(op, -ENOENT, "%s: %s", shown ? shown : "",
                   stored ? "no path of the mount leads to it" : "it is in none of the stores");
}
