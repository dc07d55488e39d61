/* Whether the store has what stands at a path, under just that name. */
#include "cache/blocking.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

#define STATE_MAX 32

/* Content and attributes, as user.runfs.state says. */
static int check_state(struct cache *c, struct node *n, struct op *op, char state[STATE_MAX])
{
    struct blocking b;
    ssize_t len;
    int r;

    blocking_init(&b, c, NULL);
    BLOCK(b, op, r,
          (len = cache_getxattr(c, n, "user.runfs.state", state, STATE_MAX - 1, &b.w),
           len == CACHE_PARKED ? CACHE_PARKED
           : len < 0           ? (int)len
                               : 0));
    if (r == 0)
        state[len] = '\0';
    return r;
}

/* The name: a rename that is pending, here or of a directory above, has not moved it yet, and
 * one more name of a file has to go up, too. */
static bool name_is_stored_locked(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    struct entry *e = NULL;

    if (!tree_find(c, path, &e))
        return false;
    if (!e) /* the root */
        return true;
    auto_place struct place at = entry_place(e);
    return !e->dirty && place_known(at) && place_same(at, place_of_path(path));
}

static int judge(struct cache *c, const char *path, const char *state, struct op *op)
{
    cache_lock(c);
    bool named = name_is_stored_locked(c, path);
    cache_unlock(c);
    if (strcmp(state, "clean") != 0 && strcmp(state, "partial") != 0)
        return op_fail(op, -EBUSY, "the store does not have it as it is: it is %s", state);
    if (!named)
        return op_fail(op, -EBUSY, "the store does not have it under this name yet");
    return 0;
}

int cache_stored_path(struct cache *c, const char *path, struct op *op)
{
    char state[STATE_MAX] = "";
    struct node *n = NULL;
    int r = blocking_walk(c, path, op, NULL, &n);

    if (r < 0)
        return r;
    r = check_state(c, n, op, state);
    if (n != c->tree->root)
        cache_forget(c, n, 1);
    return r < 0 ? r : judge(c, path, state, op);
}
