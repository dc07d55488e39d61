#include "fuse/links.h"

#include "common/table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MUTEX_KIND(links, struct links, lock);

struct link {
    UT_hash_handle hh GUARDED_BY(links_mutex);     /* by its name */
    UT_hash_handle hh_ino GUARDED_BY(links_mutex); /* by its number */
    fuse_ino_t ino;
    uint64_t nlookup GUARDED_BY(links_mutex);
    char name[];
};

void links_init(struct links *l, uint32_t half)
{
    memset(l, 0, sizeof(*l));
    l->half = half;
    mutex_init(&l->lock);
}

static struct link *find_locked(struct links *l, fuse_ino_t ino) REQUIRES(links_mutex)
{
    struct link *found;

    HASH_FIND(hh_ino, l->by_ino, &ino, sizeof(ino), found);
    return found;
}

static void remove_locked(struct links *l, struct link *link) REQUIRES(links_mutex)
{
    assert(l->by_name && l->by_ino); /* each link is in both */
    HASH_DELETE(hh, l->by_name, link);
    HASH_DELETE(hh_ino, l->by_ino, link);
    free(link);
}

void links_destroy(struct links *l)
{
    links_lock(l);
    while (l->by_name)
        remove_locked(l, l->by_name);
    links_unlock(l);
    mutex_destroy(&l->lock);
}

/* One that no link has: they begin anew once all were given away. */
static fuse_ino_t free_ino_locked(struct links *l) REQUIRES(links_mutex)
{
    fuse_ino_t ino;

    do
        ino = (fuse_ino_t)++l->last << 32 | l->half;
    while (find_locked(l, ino));
    return ino;
}

static struct link *add_locked(struct links *l, const char *name, size_t len)
    REQUIRES(links_mutex)
{
    struct link *link = calloc(1, sizeof(*link) + len + 1);

    if (!link)
        return NULL;
    memcpy(link->name, name, len);
    link->ino = free_ino_locked(l);
    HASH_ADD_KEYPTR(hh, l->by_name, link->name, len, link);
    if (TABLE_LACKS(hh, link)) {
        free(link);
        return NULL;
    }
    HASH_ADD(hh_ino, l->by_ino, ino, sizeof(link->ino), link);
    if (TABLE_LACKS(hh_ino, link)) {
        HASH_DELETE(hh, l->by_name, link);
        free(link);
        return NULL;
    }
    return link;
}

int links_take(struct links *l, const char *name, fuse_ino_t *ret)
{
    struct link *link;
    size_t len = strlen(name);

    links_lock(l);
    HASH_FIND(hh, l->by_name, name, len, link);
    if (!link)
        link = add_locked(l, name, len);
    if (link) {
        link->nlookup++;
        *ret = link->ino;
    }
    links_unlock(l);
    return link ? 0 : -ENOMEM;
}

void links_forget(struct links *l, fuse_ino_t ino, uint64_t nlookup)
{
    links_lock(l);
    struct link *link = find_locked(l, ino);

    if (link && link->nlookup > nlookup)
        link->nlookup -= nlookup;
    else if (link)
        remove_locked(l, link);
    links_unlock(l);
}

bool links_name(struct links *l, fuse_ino_t ino, char ret[PATH_NAME_MAX + 1])
{
    links_lock(l);
    const struct link *link = find_locked(l, ino);

    if (link)
        (void)snprintf(ret, PATH_NAME_MAX + 1, "%s", link->name);
    links_unlock(l);
    return link != NULL;
}

char *links_name_dup(struct links *l, fuse_ino_t ino)
{
    links_lock(l);
    const struct link *link = find_locked(l, ino);
    char *name = link ? strdup(link->name) : NULL;

    links_unlock(l);
    return name;
}
