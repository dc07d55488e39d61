/* From a path to its mount: by the mount id that the kernel tells of it, so that neither bind
 * mounts nor symlinks nor names under other mounts mislead. */
#include "cli/target.h"

#include "cli/mountinfo.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Parent resolved, last component as it is: "dir/link" stays the link. */
static int resolve_parent(const char *path, char **ret)
{
    auto_free char *copy = strdup(path);
    auto_free char *parent = NULL;
    const char *name;
    char *slash;
    size_t len;

    if (!copy)
        return -ENOMEM;
    len = strlen(copy);
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    slash = strrchr(copy, '/');
    name = slash ? slash + 1 : copy;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        *ret = realpath(path, NULL);
        return *ret ? 0 : -errno;
    }
    if (slash)
        *slash = '\0';
    parent = realpath(!slash ? "." : (*copy ? copy : "/"), NULL);
    if (!parent)
        return -errno;
    if (asprintf(ret, "%s/%s", parent[1] ? parent : "", name) < 0)
        return -ENOMEM;
    return 0;
}

/* The mount of a resolved path, or of its parent when the last component does not exist. */
static int mount_of(const char *abs, struct mountinfo *ret)
{
    int id = mountinfo_id_of_path(abs, false);
    auto_free char *parent = NULL;
    char *slash;

    if (id == -ENOENT) {
        parent = strdup(abs);
        if (!parent)
            return -ENOMEM;
        slash = strrchr(parent, '/');
        slash[slash == parent] = '\0';
        id = mountinfo_id_of_path(parent, false);
    }
    return id < 0 ? id : mountinfo_by_id(id, ret);
}

static bool is_symlink(const char *abs)
{
    struct stat st;

    return lstat(abs, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Finds path and mount; follows a symlink that stands outside of any runfs. */
static int locate(const char *path, char **ret_abs, struct mountinfo *ret)
{
    auto_free char *abs = NULL;
    auto_free char *real = NULL;
    int err = resolve_parent(path, &abs);

    if (err)
        return err;
    assert(abs);
    err = mount_of(abs, ret);
    if (err)
        return err;
    assert(ret->type);
    if (!mountinfo_is_runfs(ret) && is_symlink(abs)) {
        mountinfo_release(ret);
        real = realpath(abs, NULL);
        if (!real)
            return -errno;
        free(abs);
        abs = take_ptr(real);
        assert(abs);
        err = mount_of(abs, ret);
        if (err)
            return err;
    }
    *ret_abs = take_ptr(abs);
    return 0;
}

/* The path below the filesystem's root: below the mountpoint, behind what a bind mount shows.
 */
static char *relative(const struct mountinfo *m, const char *abs)
{
    const char *below = abs + strlen(m->point);
    const char *root = m->root;
    char *rel;

    while (*below == '/')
        below++;
    while (*root == '/')
        root++;
    if (asprintf(&rel, "%s%s%s", root, *root && *below ? "/" : "", below) < 0)
        return NULL;
    return rel;
}

static int fill(const struct mountinfo *m, const char *abs, struct target *ret)
{
    struct mountinfo whole;
    int err = 0;

    ret->rel = relative(m, abs);
    ret->owner = m->owner;
    if (strcmp(m->root, "/") == 0) {
        ret->mountpoint = strdup(m->point);
    } else {
        err = mountinfo_by_dev(m->dev, &whole);
        if (!err) {
            ret->mountpoint = strdup(whole.point);
            mountinfo_release(&whole);
        }
    }
    if (!err && (!ret->rel || !ret->mountpoint))
        err = -ENOMEM;
    if (err)
        target_release(ret);
    return err;
}

void target_release(struct target *t)
{
    free(t->mountpoint);
    free(t->rel);
    *t = (struct target){0};
}

int target_resolve(const char *path, struct op *op, struct target *ret)
{
    struct target target = {0};
    struct mountinfo m = {0};
    auto_free char *abs = NULL;
    int err = locate(path, &abs, &m);

    if (err)
        return op_fail(op, err, "%s: %s", path, strerror(-err));
    assert(abs && m.type && m.point && m.root);
    if (mountinfo_is_runfs(&m))
        err = fill(&m, abs, &target);
    else
        err = -ENODEV;
    mountinfo_release(&m);
    if (err == -ENODEV)
        return op_fail(op, err, "%s is not on a runfs mount", path);
    if (err)
        return op_fail(op, err, "%s: the mount cannot be found: %s", path, strerror(-err));
    *ret = target;
    return 0;
}

char *target_led_to(const char *path)
{
    auto_free char *real = realpath(path, NULL);
    struct target link = {0}, end = {0};
    struct op op;

    op_init(&op, OP_FOREVER);
    bool leads =
        real && target_resolve(path, &op, &link) == 0 && target_resolve(real, &op, &end) == 0 &&
        (strcmp(link.rel, end.rel) != 0 || strcmp(link.mountpoint, end.mountpoint) != 0);
    target_release(&link);
    target_release(&end);
    return leads ? take_ptr(real) : NULL;
}
