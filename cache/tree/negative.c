/* Names that the store was asked for, and does not have. They are kept only for directories too
 * large to be listed for each of their names: there the store is asked for the name, and a
 * program that makes a file looks for it first. They are believed as long as a listing is. */
#include "cache/tree/tree_impl.h"
#include "common/mem.h"
#include "common/path.h"

#include <stdlib.h>
#include <string.h>

/* How many names are kept: one each for as many programs that make files at once. */
#define KEPT 128

struct negative {
    uint32_t dir GUARDED_BY(cache_mutex); /* its id; 0: nothing is here */
    int64_t asked_ns GUARDED_BY(cache_mutex);
    char name[PATH_NAME_MAX + 1];
};

struct negatives {
    struct negative v[KEPT];
    unsigned next GUARDED_BY(cache_mutex); /* the oldest */
};

static struct negative *find(struct cache *c, const struct node *dir, const char *name)
    REQUIRES(cache_mutex)
{
    for (unsigned i = 0; c->tree->own->negatives && i < KEPT; i++) {
        struct negative *n = &c->tree->own->negatives->v[i];
        if (n->dir == dir->dir->id && strcmp(n->name, name) == 0)
            return n;
    }
    return NULL;
}

void negative_note_locked(struct cache *c, const struct node *dir, const char *name,
                          int64_t asked_ns)
{
    struct negative *n = find(c, dir, name);

    cache_assert_locked(c);
    if (!c->tree->own->negatives)
        c->tree->own->negatives = calloc(1, sizeof(*c->tree->own->negatives));
    if (!c->tree->own->negatives || strlen(name) > PATH_NAME_MAX)
        return; /* the store is asked again */
    if (!n)
        n = &c->tree->own->negatives->v[c->tree->own->negatives->next++ % KEPT];
    n->dir = dir->dir->id;
    n->asked_ns = asked_ns;
    memcpy(n->name, name, strlen(name) + 1);
}

bool negative_is_locked(struct cache *c, const struct node *dir, const char *name,
                        int64_t validity_ns)
{
    const struct negative *n = find(c, dir, name);

    cache_assert_locked(c);
    return n && clock_mono_ns() - n->asked_ns < validity_ns;
}

void negative_forget_locked(struct cache *c, const struct node *dir, const char *name)
{
    struct negative *n = find(c, dir, name);

    cache_assert_locked(c);
    if (n)
        n->dir = 0;
}
