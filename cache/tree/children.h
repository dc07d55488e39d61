/* The names in a directory, in the order in which they came: an array, and behind it a table of
 * places in it by hash once there are many. 10 to 20 bytes a name, where a uthash table takes
 * 72; with a million names in memory that is a seventh of it.
 *
 * No lock of its own: docs of the tree's shape in core/locks.h hold. */
#ifndef RUNFS_CACHE_CHILDREN_H
#define RUNFS_CACHE_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry;

/* NULL is an empty one. */
struct children;

/* Another one in each process. */
uint32_t children_hash(const char *name);
/* How many names there are. */
size_t children_count(const struct children *v);
struct entry *children_find(const struct children *v, const char *name);
/* What children_add() of one more name may need, as long as none else is added meanwhile and
 * one at most goes. `*ret` is the caller's to free(), NULL when nothing is needed. 0 or
 * -ENOMEM.
 */
int children_room(const struct children *v, struct children **ret);
/* Adds an entry of a name that is not there, whose `hash` is that of its name. Takes `*room`
 * over if it needs it. */
void children_add(struct children **v, struct children **room, struct entry *e);
/* Which is there. All other names keep their places, so that it may be done while they are
 * walked through. */
void children_remove(struct children **v, struct entry *e);
/* The first at place `*at` or behind it, NULL behind the last; `*at` is the place behind it
 * then. */
struct entry *children_next(const struct children *v, size_t *at);
/* The place behind an entry that is there. */
size_t children_behind(const struct children *v, const struct entry *e);

/* `at` is a size_t of the caller's. The entry itself may be removed meanwhile, or any other;
 * none may be added. */
#define CHILDREN_FOREACH(v, e, at) for ((at) = 0; ((e) = children_next(v, &(at)));)

#endif
