/* What the kernel knows of a virtual directory: the symlinks of `.runfs/by-id`, each by the
 * name that it leads to, or what is below `.runfs/locked`, each by its path; and the number
 * under which the kernel asks for it. It is in the table from its first lookup until the kernel
 * has forgotten all of them; then its number is free again. */
#ifndef RUNFS_FUSE_LINKS_H
#define RUNFS_FUSE_LINKS_H

#include "common/lock.h"
#include "common/path.h"
#include "fuse/lowlevel.h"

/* The lower halves of their numbers, which no node of the cache has. */
#define INO_LINK   6
#define INO_LOCKED 7

/* A leaf. */
extern struct lock_class links_mutex;

struct link;

struct links {
    struct mutex lock;
    struct link *by_name GUARDED_BY(links_mutex), *by_ino GUARDED_BY(links_mutex);
    uint32_t last GUARDED_BY(links_mutex); /* the upper half that was given away last */
    uint32_t half;                         /* constant; the lower one */
};

void links_init(struct links *l, uint32_t half);
/* The kernel asks for none of them any more. */
void links_destroy(struct links *l);

/* The number of the link that leads to `name`: one lookup more. -ENOMEM. */
int links_take(struct links *l, const char *name, fuse_ino_t *ret);
/* Gives lookups back. A number that no link has is ignored. */
void links_forget(struct links *l, fuse_ino_t ino, uint64_t nlookup);
/* The name that the link leads to; false: no link has the number. A longer one is cut. */
bool links_name(struct links *l, fuse_ino_t ino, char ret[PATH_NAME_MAX + 1]);
/* The same of any length, heap; NULL also without memory. */
char *links_name_dup(struct links *l, fuse_ino_t ino);

static inline bool ino_is_link(fuse_ino_t ino)
{
    return (uint32_t)ino == INO_LINK;
}

static inline bool ino_is_locked(fuse_ino_t ino)
{
    return (uint32_t)ino == INO_LOCKED;
}

#endif
