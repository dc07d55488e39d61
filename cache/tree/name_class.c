/* What a path says of its file: a staging name, a log. */
#include "cache/tree/tree_impl.h"

#include "common/mem.h"

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

bool path_is_staged(struct cache *c, const char *path)
{
    return any_component_matches(path, c->config.staging ? c->config.staging : default_staging);
}

bool path_is_log(struct cache *c, const char *path)
{
    return any_component_matches(path, c->config.logs ? c->config.logs : default_logs);
}
