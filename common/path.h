/* Names and keys: which are safe to use as paths below a directory, and how they are taken
 * apart and joined. A key is components joined by single "/", without one at either end; "" is
 * the root. Any thread. */
#ifndef RUNFS_COMMON_PATH_H
#define RUNFS_COMMON_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define PATH_NAME_MAX 255 /* bytes of one component, without a NUL */

/* Whether `len` bytes can be one name in a directory: not empty, not "." or "..", no "/" and no
 * NUL, at most PATH_NAME_MAX bytes. */
bool path_name_ok(const char *name, size_t len);

/* Whether every component of the key is a good name and the whole is shorter than `max` bytes
 * with its NUL. The root "" is good. */
bool path_key_ok(const char *key, size_t max);

/* The same with components of any length: for stores that know no limit of 255 bytes. */
bool path_key_safe(const char *key, size_t max);

/* The last component; points into `key`. "" for the root. */
const char *path_basename(const char *key);

/* Length of the parent's key, a prefix of `key`; 0 when the parent is the root. */
size_t path_parent_len(const char *key);

/* Heap; NULL without memory. */
char *path_parent(const char *key);

/* dir + "/" + name, without the "/" when either is "". Heap; NULL without memory. */
char *path_join(const char *dir, const char *name);

/* The part of `key` below `dir`: "" when they are equal, NULL when it is not below; points into
 * `key`. */
const char *path_below(const char *dir, const char *key);

#endif
