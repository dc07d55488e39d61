/* What a path says of its file: a staging name, a log, when it goes up. The policy of its route
 * says it; where that says nothing, or there are no routes, the mount's options do. */
#include "cache/tree/tree_impl.h"

#include "common/mem.h"
#include "runs/policy.h"

#include <fnmatch.h>
#include <string.h>

static const char *const default_staging[] = {
    "_checkpoint", "tmp-*", "*.tmp", ".*.tmp*", "*.orbax-checkpoint-tmp-*", NULL};

static const char *const default_logs[] = {"*tfevents*", "*.log", "logs", NULL};

static bool any_component_matches(const char *path, const char *const *patterns)
{
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;

    while (copy && (name = strsep(&rest, "/")))
        for (const char *const *p = patterns; *p; p++)
            if (fnmatch(*p, name, 0) == 0)
                return true;
    return false;
}

/* The same of patterns that are joined by ":". */
static bool any_component_matches_text(const char *path, const char *patterns)
{
    auto_free char *copy = strdup(patterns);
    char *rest = copy, *pattern;

    while (copy && (pattern = strsep(&rest, ":"))) {
        const char *const one[] = {pattern, NULL};
        if (*pattern && any_component_matches(path, one))
            return true;
    }
    return false;
}

static bool is_staged(struct cache *c, const char *path, bool dir)
{
    const struct policy *p = path_policy(c, path, dir);

    if (p && p->staging)
        return any_component_matches_text(path, p->staging);
    return any_component_matches(path, c->config.staging ? c->config.staging : default_staging);
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
        return any_component_matches_text(path, p->logs);
    return any_component_matches(path, c->config.logs ? c->config.logs : default_logs);
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
