/* Places at the store; see place.h. */
#include "cache/types/place.h"

#include "common/path.h"

#include <stdlib.h>
#include <string.h>

struct place place_of_path(const char *path)
{
    return (struct place){path};
}

struct place place_of_key(const char *key)
{
    return (struct place){key};
}

const char *place_path(struct place at)
{
    return at.key;
}

bool place_known(struct place at)
{
    return at.key != NULL;
}

bool place_same(struct place a, struct place b)
{
    return strcmp(a.key, b.key) == 0;
}

const char *place_below(struct place dir, struct place at)
{
    return path_below(dir.key, at.key);
}

struct place place_dup(struct place at)
{
    return (struct place){strdup(at.key)};
}

struct place place_own_path(char *path)
{
    return place_of_path(path);
}

struct place place_own_key(char *key)
{
    return place_of_key(key);
}

struct place place_join(struct place dir, const char *name)
{
    return (struct place){path_join(dir.key, name)};
}

struct place place_moved(struct place at, struct place from, struct place to)
{
    const char *rest = place_below(from, at);

    return rest ? place_join(to, rest) : NO_PLACE;
}

void place_free(struct place *at)
{
    free((char *)at->key);
    *at = NO_PLACE;
}

struct place place_take(struct place *at)
{
    struct place taken = *at;

    *at = NO_PLACE;
    return taken;
}
