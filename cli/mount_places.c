/* Where the folders of a mount lie. */
#include "cli/mount_places.h"

#include "cli/mountpoint.h"
#include "cli/store_places.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct places {
    const char *mountpoint;
    const char *cache; /* NULL: it can't be told */
    struct op *op;
};

/* Without symlinks, of a path of which the end may be missing: as a store at that path would
 * have it. Heap; NULL where that can't be told. */
static char *canonical(const char *path)
{
    const struct store_config config = {0};
    auto_free char *here = *path == '/' ? NULL : realpath(".", NULL);
    auto_free char *url = NULL;
    struct store_where where;
    char *folder;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (asprintf(&url, "file://%s/%s", here ? here : "", path) < 0)
        url = NULL;
    if (!url || store_where(url, &config, &op, &where))
        return NULL;
    if (asprintf(&folder, "/%s", where.root) < 0)
        folder = NULL;
    store_where_release(&where);
    return folder;
}

static int refuse(const struct places *p, const char *what, const char *inner, const char *of,
                  const char *outer)
{
    return op_fail(p->op, -EINVAL, "the %s %s lies within the %s %s", what, inner, of, outer);
}

static int check_folder(const struct places *p, const char *what, const char *folder)
{
    if (mountpoint_path_within(folder, p->mountpoint))
        return refuse(p, what, folder, "mountpoint", p->mountpoint);
    if (p->cache && mountpoint_path_within(p->cache, folder))
        return refuse(p, "cache directory", p->cache, what, folder);
    if (mountpoint_path_within(p->mountpoint, folder))
        return refuse(p, "mountpoint", p->mountpoint, what, folder);
    return 0;
}

/* A key of the server that all folders have is a path without the "/" it begins with. */
static int check_key(const struct places *p, const char *what, const char *key)
{
    auto_free char *folder = NULL;

    if (asprintf(&folder, "/%s", key) < 0) {
        folder = NULL;
        return op_fail(p->op, -ENOMEM, "out of memory");
    }
    return check_folder(p, what, folder);
}

/* The names of stores tell them apart where there are several. */
static int check_folders(const struct places *p, const char *store,
                         const struct store_where *where)
{
    auto_free char *state = NULL;
    int err = check_key(p, store, where->root);

    if (err || !where->state)
        return err;
    if (asprintf(&state, "state of the %s", store) < 0) {
        state = NULL;
        return op_fail(p->op, -ENOMEM, "out of memory");
    }
    return check_key(p, state, where->state);
}

/* What is wrong of a URL is told when the store is opened. */
static int check_store(const struct places *p, const struct config *c, size_t i)
{
    const struct config_store *store = &c->stores[i];
    auto_free char *name = NULL;
    struct store_where where;
    struct op trial = *p->op;
    int err = 0;

    if (store_place(store, &trial, &where))
        return 0;
    if (asprintf(&name, "store \"%s\"", store->name) < 0)
        name = NULL;
    if (!name)
        err = op_fail(p->op, -ENOMEM, "out of memory");
    else if (strcmp(where.server, "file") == 0)
        err = check_folders(p, c->n_stores > 1 ? name : "store", &where);
    store_where_release(&where);
    return err;
}

int mount_places_check(const char *mountpoint, const char *cache_dir, const struct config *c,
                       struct op *op)
{
    auto_free char *cache = canonical(cache_dir);
    const struct places p = {.mountpoint = mountpoint, .cache = cache, .op = op};

    if (cache && mountpoint_path_within(cache, mountpoint))
        return refuse(&p, "cache directory", cache, "mountpoint", mountpoint);
    for (size_t i = 0; i < c->n_stores; i++) {
        int err = check_store(&p, c, i);

        if (err)
            return err;
    }
    return 0;
}
