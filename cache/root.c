/* The folders that a cache belongs to. Another one may stand at the path of such a folder: it
 * would look as if somebody had removed all that the cache holds from the store. */
#include "cache/mount.h"

#include "cache/mirror/mirror.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A line of store.h's root_id. */
struct root {
    uint64_t ino;
    int64_t born_ns;
    const char *name; /* of one store of several, else ""; not terminated */
    size_t name_len;
};

/* *text moves behind the line. False: it is none. */
static bool next_root(const char **text, struct root *ret)
{
    size_t len = strcspn(*text, "\n");
    int at = 0;

    if (sscanf(*text, "%" SCNu64 " %" SCNd64 "%n", &ret->ino, &ret->born_ns, &at) != 2 ||
        (size_t)at > len)
        return false;
    at += (*text)[at] == ' ';
    ret->name = *text + at;
    ret->name_len = len - (size_t)at;
    *text += len + ((*text)[len] == '\n');
    return true;
}

static bool has_name_of(const struct root *a, const struct root *b)
{
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* Not every filesystem tells at any time when a folder was made. */
static bool is_same(const struct root *a, const struct root *b)
{
    return a->ino == b->ino && (a->born_ns == b->born_ns || !a->born_ns || !b->born_ns);
}

/* A note that can't be read is of another folder; one that lacks a store does not judge it. */
static bool is_in(const char *then, const struct root *now)
{
    struct root was;

    while (*then) {
        if (!next_root(&then, &was))
            return false;
        if (has_name_of(&was, now))
            return is_same(&was, now);
    }
    return true;
}

static const char *url_of(struct cache *c, const struct root *root)
{
    for (size_t i = 0; i < c->config.n_stores; i++)
        if (strlen(c->config.stores[i].name) == root->name_len &&
            memcmp(c->config.stores[i].name, root->name, root->name_len) == 0)
            return c->config.stores[i].url;
    return c->store->url;
}

static int refuse(struct cache *c, const struct root *root, struct op *op)
{
    bool several = c->config.n_stores > 1;

    return op_fail(op, -ENODEV,
                   "%s%.*s%s%s is not the folder that cache %s belongs to: is its disk not "
                   "mounted? Mount that; or if the folder was made anew, use another cache_dir",
                   several ? "store \"" : "", several ? (int)root->name_len : 0, root->name,
                   several ? "\": " : "", url_of(c, root), c->mirror.dir);
}

int root_check(struct cache *c, struct op *op)
{
    const char *now = c->store->root_id;
    auto_free char *then = NULL;
    struct root root;
    int r = now ? mirror_read_text(&c->mirror, "root", &then) : -ENOENT;

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return op_fail(op, r, "cache %s: can't read its root: %s", c->mirror.dir, strerror(-r));
    while (*now && next_root(&now, &root))
        if (!is_in(then, &root))
            return refuse(c, &root, op);
    return 0;
}

int root_note(struct cache *c, struct op *op)
{
    int r = c->store->root_id ? mirror_write_text(&c->mirror, "root", c->store->root_id) : 0;

    return r < 0 ? op_fail(op, r, "cache %s: can't note which folder it belongs to: %s",
                           c->mirror.dir, door_why(r))
                 : 0;
}
