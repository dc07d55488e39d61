/* Patterns of names. */
#include "cache/types/patterns.h"

#include "common/mem.h"

#include <fnmatch.h>
#include <string.h>

const char *const patterns_staging[] = {
    "_checkpoint", "tmp-*", "*.tmp", ".*.tmp*", "*.orbax-checkpoint-tmp-*", NULL};

const char *const patterns_logs[] = {"*tfevents*", "*.log", "logs", NULL};

bool patterns_take(const char *const *patterns, const char *path)
{
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;

    while (copy && (name = strsep(&rest, "/")))
        for (const char *const *p = patterns; *p; p++)
            if (fnmatch(*p, name, 0) == 0)
                return true;
    return false;
}

bool patterns_text_takes(const char *patterns, const char *path)
{
    auto_free char *copy = strdup(patterns);
    char *rest = copy, *pattern;

    while (copy && (pattern = strsep(&rest, ":"))) {
        const char *const one[] = {pattern, NULL};
        if (*pattern && patterns_take(one, path))
            return true;
    }
    return false;
}
