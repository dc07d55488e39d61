/* Names and keys: which are safe, and how they are taken apart and joined. */
#include "common/path.h"

#include <stdlib.h>
#include <string.h>

static bool component_safe(const char *name, size_t len)
{
    if (len == 0)
        return false;
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return false;
    return !memchr(name, '/', len) && !memchr(name, '\0', len);
}

bool path_name_ok(const char *name, size_t len)
{
    return len <= PATH_NAME_MAX && component_safe(name, len);
}

static bool each_component(const char *key, size_t max, bool (*good)(const char *, size_t))
{
    if (!*key)
        return true;
    if (strlen(key) >= max)
        return false;
    for (;;) {
        const char *slash = strchrnul(key, '/');
        if (!good(key, (size_t)(slash - key)))
            return false;
        if (!*slash)
            return true;
        key = slash + 1;
    }
}

bool path_key_ok(const char *key, size_t max)
{
    return each_component(key, max, path_name_ok);
}

bool path_key_safe(const char *key, size_t max)
{
    return each_component(key, max, component_safe);
}

bool path_name_shown(const char *dir, const char *name, size_t len)
{
    if (!path_name_ok(name, len) || strlen(dir) + 1 + len >= PATH_KEY_MAX)
        return false;
    return dir[0] || len != strlen(PATH_RESERVED) || memcmp(name, PATH_RESERVED, len) != 0;
}

const char *path_basename(const char *key)
{
    const char *slash = strrchr(key, '/');

    return slash ? slash + 1 : key;
}

size_t path_parent_len(const char *key)
{
    const char *slash = strrchr(key, '/');

    return slash ? (size_t)(slash - key) : 0;
}

char *path_parent(const char *key)
{
    return strndup(key, path_parent_len(key));
}

char *path_join(const char *dir, const char *name)
{
    size_t d = strlen(dir), n = strlen(name), sep = d && n;
    char *joined = malloc(d + sep + n + 1);

    if (!joined)
        return NULL;
    memcpy(joined, dir, d);
    joined[d] = '/';
    memcpy(joined + d + sep, name, n + 1);
    return joined;
}

const char *path_below(const char *dir, const char *key)
{
    size_t d = strlen(dir);

    if (d == 0)
        return key;
    if (strncmp(key, dir, d) != 0)
        return NULL;
    if (key[d] == '\0')
        return key + d;
    return key[d] == '/' ? key + d + 1 : NULL;
}
