/* Where the folders of a mount lie. */
#include "cli/mount_places.h"

#include "cli/mountpoint.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct places {
    const char *mountpoint;
    const char *cache; /* NULL: it can't be told */
    struct op *op;
};

/* "/srv/x" of "file:///srv/x" or of itself, else NULL. */
static const char *folder_of(const char *url)
{
    if (strncmp(url, "file:///", 8) == 0)
        return url + 7;
    return *url == '/' ? url : NULL;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Without symlinks, of a path of which the end may be missing. Heap; NULL where that can't be
 * told. */
static char *canonical(const char *path)
{
    auto_free char *rest = strdup(path);
    auto_free char *parent = NULL;
    char *real = realpath(path, NULL);
    char *name, *joined;

    if (real || !rest || errno != ENOENT)
        return real;
    for (size_t len = strlen(rest); len > 1 && rest[len - 1] == '/';)
        rest[--len] = '\0';
    name = strrchr(rest, '/');
    name = name ? name + 1 : rest;
    if (!*name || is_dots(name))
        return NULL;
    if (name == rest) {
        parent = canonical(".");
    } else {
        auto_free char *above = strndup(rest, (size_t)(name - rest));
        parent = above ? canonical(above) : NULL;
    }
    if (!parent || asprintf(&joined, "%s/%s", parent[1] ? parent : "", name) < 0)
        return NULL;
    return joined;
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

/* The names of stores tell them apart where there are several. */
static int check_store(const struct places *p, const struct config *c, size_t i)
{
    const char *path = folder_of(c->stores[i].url);
    auto_free char *folder = path ? canonical(path) : NULL;
    auto_free char *what = NULL;

    if (!folder)
        return 0;
    if (c->n_stores == 1)
        return check_folder(p, "store", folder);
    if (asprintf(&what, "store \"%s\" at", c->stores[i].name) < 0) {
        what = NULL;
        return op_fail(p->op, -ENOMEM, "out of memory");
    }
    return check_folder(p, what, folder);
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
