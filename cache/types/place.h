/* A place at the store: where an object lies there, which is no path of the tree. The two are
 * told by the same words as long as nothing is pending between them; a name that was renamed
 * here lies at its old place until the store has renamed it, too.
 *
 * A value, of the size of a pointer: it borrows its key as a `const char *` would. Who keeps
 * one has a copy of his own (place_dup() and those that say so), and frees it. Any thread. */
#ifndef RUNFS_CACHE_TYPES_PLACE_H
#define RUNFS_CACHE_TYPES_PLACE_H

#include <stdbool.h>

struct place {
    const char *key; /* NULL: none, or not known */
};

#define NO_PLACE ((struct place){0})

/* Where a path of the tree lies when nothing is pending; borrows the path. This, and
 * place_own_path() which does the same, are the only ways from a path to a place. */
struct place place_of_path(const char *path);
/* The place of what the store lists, the journal has, or runfs keeps at the store for itself;
 * borrows the key. */
struct place place_of_key(const char *key);
/* The path whose place that is when nothing is pending; borrows the key. */
const char *place_path(struct place at);

/* Whether it is one at all. */
bool place_known(struct place at);
bool place_same(struct place a, struct place b);
/* The part of `at` below `dir`: "" when they are the same, NULL when it is not below. */
const char *place_below(struct place dir, struct place at);

/* These are the caller's to free, and NO_PLACE without memory. */
struct place place_dup(struct place at);
struct place place_join(struct place dir, const char *name);
/* `at` with `from`, which it is at or below, replaced by `to`; NO_PLACE when it is not. */
struct place place_moved(struct place at, struct place from, struct place to);

/* place_of_path() and place_of_key() of a heap string, or NULL, which they take over. */
struct place place_own_path(char *path);
struct place place_own_key(char *key);

/* Frees one that is owned; none is left behind. */
void place_free(struct place *at);
/* Hands an owned one on: none is left behind. */
struct place place_take(struct place *at);
/* `auto_place struct place at = ...`: freed at the end of the block unless taken. */
#define auto_place __attribute__((cleanup(place_free)))

#endif
