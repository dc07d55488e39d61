/* What a path says of its file: a staging name, a log, when it goes up. The policy of its route
 * says it; where that says nothing, or there are no routes, the mount's options do. */
#include "cache/tree/tree_impl.h"

#include "cache/types/patterns.h"
#include "common/hash.h"
#include "common/mem.h"
#include "runs/policy.h"

#include <string.h>

static bool is_staged(struct cache *c, const char *path, bool dir)
{
    const struct policy *p = path_policy(c, path, dir);

    if (p && p->staging)
        return patterns_text_takes(p->staging, path);
    return patterns_take(c->config.staging ? c->config.staging : patterns_staging, path);
}

bool path_is_staged(struct cache *c, const char *path)
{
    return is_staged(c, path, false);
}

bool path_is_staged_dir(struct cache *c, const char *path)
{
    return is_staged(c, path, true);
}

bool path_is_log(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    if (p && p->upload == UPLOAD_INTERVAL)
        return true;
    if (p && p->logs)
        return patterns_text_takes(p->logs, path);
    return patterns_take(c->config.logs ? c->config.logs : patterns_logs, path);
}

uint64_t path_made_at(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    if (!p || p->upload != UPLOAD_RENAME || path_is_log(c, path))
        return 0;
    const uint64_t hash = hash_fnv(FNV_START, path);
    return hash ? hash : 1;
}

int64_t path_interval_ns(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    return p && p->interval_ns != POLICY_UNSET ? p->interval_ns : c->config.upload_interval_ns;
}

/* The policy where the node's first name is; one without a name has the mount's options. */
static const struct policy *node_policy(struct cache *c, struct node *n)
{
    auto_free char *path = c->config.routes ? node_path(n) : NULL;

    return path ? path_policy(c, path, n->dir != NULL) : NULL;
}

int64_t node_settle_ns(struct cache *c, struct node *n)
{
    const struct policy *p = node_policy(c, n);

    return p && p->settle_ns != POLICY_UNSET ? p->settle_ns : c->config.settle_ns;
}

bool path_is_urgent(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    return p && p->urgent;
}

bool node_is_urgent(struct cache *c, struct node *n)
{
    const struct policy *p = node_policy(c, n);

    return p && p->urgent;
}

bool node_waits_for_store(struct cache *c, struct node *n)
{
    const struct policy *p = node_policy(c, n);

    if (p && p->upload == UPLOAD_NEVER)
        return false;
    if (p && p->durability != POLICY_UNSET)
        return p->durability == DURABILITY_STORE;
    return c->config.durability == DURABILITY_STORE;
}

bool path_overwrites(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    return p && p->conflict == CONFLICT_LAST;
}

bool path_takes_lock_files(struct cache *c, const char *path)
{
    const struct policy *p = path_policy(c, path, false);

    return p && p->del_locks == 1;
}
