/* Which directory of a path is a unit. */
#include "runs/unit.h"

#include "common/mem.h"
#include "common/op.h"
#include "common/path.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "+([0-9])" /* of FNM_EXTMATCH */

/* The pattern as fnmatch() has it; heap, NULL without memory. */
static char *with_digits(const char *pattern)
{
    char *ret = malloc(strlen(pattern) * strlen(DIGITS) + 1), *end = ret;

    for (const char *p = pattern; ret && *p; p++) {
        if (*p == '#')
            end = stpcpy(end, DIGITS);
        else
            *end++ = *p;
    }
    if (ret)
        *end = '\0';
    return ret;
}

static bool pattern_takes(const char *pattern, const char *name)
{
    if (!strchr(pattern, '#'))
        return fnmatch(pattern, name, 0) == 0;
    auto_free char *own = with_digits(pattern);
    return own && fnmatch(own, name, FNM_EXTMATCH) == 0;
}

bool unit_patterns_take(const char *patterns, const char *name, size_t len)
{
    auto_free char *copy = patterns ? strdup(patterns) : NULL;
    auto_free char *own = strndup(name, len);
    char *rest = copy, *pattern;

    while (copy && own && (pattern = strsep(&rest, ":")))
        if (*pattern && pattern_takes(pattern, own))
            return true;
    return false;
}

/* The end of the component that begins at `at`. */
static size_t component_end(const char *path, size_t at)
{
    return at + strcspn(path + at, "/");
}

/* Where the name behind the first `len` bytes begins. */
static size_t name_behind(const char *path, size_t len)
{
    return len && path[len] == '/' ? len + 1 : len;
}

static struct unit_at dir_unit(size_t len)
{
    return (struct unit_at){UNIT_DIR, len};
}

static struct unit_at no_dir(bool dir)
{
    return (struct unit_at){dir ? UNIT_NONE : UNIT_FILE, 0};
}

static struct unit_at first_name(size_t root, const char *path, bool dir)
{
    size_t at = name_behind(path, root), end = component_end(path, at);
    bool is_dir = end > at && (dir || path[end]);

    return is_dir ? dir_unit(end) : no_dir(dir);
}

static struct unit_at named(const struct policy *p, size_t root, const char *path, bool dir)
{
    size_t at = name_behind(path, root);

    while (path[at]) {
        size_t end = component_end(path, at);
        bool is_dir = dir || path[end];
        if (is_dir && unit_patterns_take(p->unit_names, path + at, end - at))
            return dir_unit(end);
        at = name_behind(path, end);
    }
    return no_dir(dir);
}

bool unit_policy_groups(const struct policy *p)
{
    return p->unit && strcmp(p->unit, "none") != 0 && strcmp(p->unit, "file") != 0;
}

struct unit_at unit_of_path(const struct policy *p, size_t root, const char *path, bool dir)
{
    if (!p->unit || strcmp(p->unit, "none") == 0)
        return (struct unit_at){UNIT_NONE, 0};
    if (strcmp(p->unit, "entry") == 0)
        return first_name(root, path, dir);
    if (strcmp(p->unit, "names") == 0)
        return named(p, root, path, dir);
    /* An object that a route names is its own root. */
    if (strcmp(p->unit, "root") == 0 && (dir || path[root]))
        return dir_unit(root);
    return no_dir(dir);
}

#define TTL_USUAL (60 * NS_PER_SEC)
#define TTL_LEAST NS_PER_SEC
#define TTL_MOST  (24 * 3600 * NS_PER_SEC)

int64_t unit_lease_ttl_ns(const struct routes *routes, const struct policy *policies,
                          unsigned store)
{
    int64_t ttl_ns = POLICY_UNSET;

    for (size_t i = 0; i < routes->n; i++) {
        const struct route *r = &routes->items[i];
        int64_t ns = policies[r->policy].lock_ttl_ns;
        if (!r->scratch && r->store == store && ns != POLICY_UNSET &&
            (ttl_ns == POLICY_UNSET || ns < ttl_ns))
            ttl_ns = ns;
    }
    if (ttl_ns == POLICY_UNSET)
        return TTL_USUAL;
    if (ttl_ns < TTL_LEAST)
        return TTL_LEAST;
    return ttl_ns < TTL_MOST ? ttl_ns : TTL_MOST;
}

bool unit_name_is_done(const struct policy *p, const char *name)
{
    return unit_patterns_take(p->unit_done, name, strlen(name));
}

bool unit_name_is_pointer(const struct policy *p, const char *name)
{
    return unit_patterns_take(p->unit_pointer, name, strlen(name));
}
