/* Looks a name up, and takes back what the kernel forgets. */
#include "cache/ops/ops_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- lookup ---- */

/* A directory whose own listing showed something is there as well. */
static bool listing_shows_it(struct cache *c, const struct dir *d) REQUIRES(cache_mutex)
{
    return d && d->told_there && clock_mono_ns() - d->told_ns < listing_validity_ns(c);
}

static bool entry_is_valid(struct cache *c, struct entry *e) REQUIRES(cache_mutex)
{
    const struct dir *d = e->node->dir;

    return listing_shows_it(c, d) || node_is_ours(e->node) || (d && d->fixed) ||
           e->changed_ns > clock_mono_ns() - c->config.list_timeout_ns ||
           (e->verified_ns && clock_mono_ns() - e->verified_ns < listing_validity_ns(c));
}

int cache_lookup(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                 struct node **ret, struct stat *st)
{
    int r = 0;

    if (!parent->dir)
        return -ENOTDIR;
    if (strlen(name) > PATH_NAME_MAX)
        return -ENAMETOOLONG;
    cache_lock(c);
    const struct deletion_lock *lock =
        c->queue->locks ? lock_file_locked(c, parent, name) : NULL;
    if (lock) {
        *ret = lock->node;
        lock->node->nlookup++;
        node_stat(lock->node, st);
        cache_unlock(c);
        return 0;
    }
    struct entry *e = entry_find(parent, name);
    if (!e && name_is_in_no_store_locked(c, parent, name))
        r = -ENOENT;
    if (r == 0 && (!e || !entry_is_valid(c, e)))
        r = dir_need_locked(c, parent, false, w);
    if (r == 0)
        e = entry_find(parent, name);
    if (r == 0 && e && e->node->dir)
        list_ahead_on_locked(c, e->node);
    bool told =
        e ? entry_is_valid(c, e) : negative_is_locked(c, parent, name, listing_validity_ns(c));
    if (r == 0 && !told && !listing_is_recent(c, parent, false))
        r = name_ask_locked(c, parent, name, w);
    if (r == 0)
        r = e ? attrs_need_locked(c, e->node, w) : -ENOENT;
    if (r == 0) {
        node_look_locked(c, e->node);
        e->node->nlookup++;
        node_stat(e->node, st);
        *ret = e->node;
    }
    cache_unlock(c);
    return r;
}

void cache_forget(struct cache *c, struct node *node, uint64_t nlookup)
{
    cache_lock(c);
    if (!node->is_root) {
        node->nlookup -= nlookup < node->nlookup ? nlookup : node->nlookup;
        node_collect_locked(c, node);
    }
    cache_unlock(c);
}
