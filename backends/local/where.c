/* Where a folder is: its path without symlinks, as far as it exists; and which key in it a URL
 * or a path names. */
#include "backends/local/local.h"

#include "backends/drivers.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel */

static int resolve(const char *path, unsigned links, char **ret);

/* A symlink's target as a path; *ret NULL: `path` is none. */
static int read_target(const char *dir, const char *path, char **ret)
{
    auto_free char *target = malloc(PATH_MAX);
    ssize_t n = target ? readlink(path, target, PATH_MAX - 1) : -1;

    *ret = NULL;
    if (!target)
        return -ENOMEM;
    if (n < 0)
        return 0;
    target[n] = '\0';
    n = *target == '/' ? asprintf(ret, "%s", target) : asprintf(ret, "%s/%s", dir, target);
    if (n < 0)
        *ret = NULL;
    return n < 0 ? -ENOMEM : 0;
}

/* Follows a link that leads to what does not exist, below `dir`, which is resolved. */
static int resolve_name(const char *dir, const char *name, unsigned links, char **ret)
{
    auto_free char *path = NULL;
    auto_free char *target = NULL;

    if (asprintf(&path, "%s/%s", dir[1] ? dir : "", name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    int r = read_target(dir, path, &target);
    if (r < 0)
        return r;
    if (target && strlen(target) < PATH_MAX && links < LINKS_MAX)
        return resolve(target, links + 1, ret);
    *ret = take_ptr(path);
    return 0;
}

/* As `realpath -m`: what does not exist, or can't be looked at, stays as it is written. `path`
 * is absolute and has no more than PATH_MAX bytes. */
static int resolve(const char *path, unsigned links, char **ret)
{
    auto_free char *copy = strdup(path);
    auto_free char *dir = NULL;
    size_t len = copy ? strlen(copy) : 0;

    *ret = realpath(path, NULL);
    if (*ret || !copy)
        return *ret ? 0 : -ENOMEM;
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    char *name = strrchr(copy, '/');
    if (name == copy && !name[1]) {
        *ret = take_ptr(copy);
        return 0;
    }
    *name++ = '\0';
    int r = resolve(*copy ? copy : "/", links, &dir);
    if (r < 0)
        return r;
    if (strcmp(name, "..") == 0) {
        char *above = strrchr(dir, '/');
        above[above == dir] = '\0';
    }
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        return resolve_name(dir, name, links, ret);
    *ret = take_ptr(dir);
    return 0;
}

static int resolve_path(const char *path, struct op *op, char **ret)
{
    if (strlen(path) >= PATH_MAX)
        return op_fail(op, -ENAMETOOLONG, "%.100s...: the path is too long", path);
    int r = resolve(path, 0, ret);
    return r < 0 ? op_fail(op, r, "%s: %s", path, strerror(-r)) : 0;
}

int local_where(const char *url, const struct store_config *config, struct op *op,
                struct store_where *ret)
{
    const char *path = local_path_of(url);
    auto_free char *root = NULL;

    (void)config;
    if (!path)
        return local_no_path(url, op);
    int r = resolve_path(path, op, &root);
    if (r < 0)
        return r;
    if (strcmp(root, "/") == 0)
        return local_is_machine(op);
    ret->server = strdup("file");
    ret->root = strdup(root + 1);
    if (!ret->server || !ret->root || asprintf(&ret->state, "%s.runfs", ret->root) < 0) {
        ret->state = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    return 0;
}

/* ---- keys of URLs ---- */

/* Drops "." and "//", and ".." with the name before it, as the names are written. Heap. */
static char *tidy(const char *path)
{
    auto_free char *copy = strdup(path);
    auto_free char *tidied = calloc(1, strlen(path) + 2);
    char *rest = copy, *name, *end = tidied;

    if (!copy || !tidied)
        return NULL;
    while ((name = strsep(&rest, "/"))) {
        if (strcmp(name, "..") == 0) {
            *end = '\0';
            char *slash = strrchr(tidied, '/');
            end = slash ? slash : tidied;
            *end = '\0';
        } else if (*name && strcmp(name, ".") != 0) {
            *end++ = '/';
            end = stpcpy(end, name);
        }
    }
    return take_ptr(tidied);
}

/* Heap; NULL: it is not below the root, or there is no memory. */
static char *key_below(const char *root, const char *path)
{
    auto_free char *tidied = tidy(path);
    const char *key = tidied ? path_below(root, tidied + (*tidied == '/')) : NULL;

    return key && path_key_safe(key, STORE_KEY_MAX) ? strdup(key) : NULL;
}

/* The path with the links in front of its last name resolved: a link is an object itself. */
static int resolve_parent(const char *path, struct op *op, char **ret)
{
    auto_free char *tidied = tidy(path);
    auto_free char *dir = NULL;

    if (!tidied)
        return op_fail(op, -ENOMEM, "out of memory");
    char *name = strrchr(tidied, '/');
    if (!name || name == tidied)
        return op_fail(op, -ENOENT, "%s is in no store", path);
    *name++ = '\0';
    int r = resolve_path(tidied, op, &dir);
    if (!r && asprintf(ret, "%s/%s", dir, name) < 0) {
        *ret = NULL;
        r = op_fail(op, -ENOMEM, "out of memory");
    }
    return r;
}

int local_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key)
{
    const char *path = local_path_of(url);
    auto_free char *resolved = NULL;
    auto_free char *key = path ? key_below(w->root, path) : NULL;

    if (path && !key && resolve_parent(path, op, &resolved) == 0)
        key = key_below(w->root, resolved);
    if (!key) {
        auto_free char *shown = store_url_redact(url);
        return op_fail(op, -ENOENT, "%s is not in /%s", shown ? shown : "the URL", w->root);
    }
    *ret_key = take_ptr(key);
    return 0;
}
