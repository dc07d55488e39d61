/* Names and keys: which are safe to use as paths below a directory, and how they are taken
 * apart and joined. A key is components joined by single "/", without one at either end; "" is
 * the root. Any thread. */
#ifndef RUNFS_COMMON_PATH_H
#define RUNFS_COMMON_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define PATH_NAME_MAX 255      /* bytes of one component, without a NUL */
#define PATH_KEY_MAX  4096     /* bytes of a key, with a NUL */
#define PATH_RESERVED ".runfs" /* the mount's own name in its root */

/* Whether `len` bytes can be one name in a directory: not empty, not "." or "..", no "/" and no
 * NUL, at most PATH_NAME_MAX bytes. */
bool path_name_ok(const char *name, size_t len);

/* Whether every component of the key is a good name and the whole is shorter than `max` bytes
 * with its NUL. The root "" is good. */
bool path_key_ok(const char *key, size_t max);

/* The same with components of any length: for stores that know no limit of 255 bytes. */
bool path_key_safe(const char *key, size_t max);

/* The mapping between names in a store and names in the mount, both ways: a name is shown
 * exactly as it is, or, when this is false, not at all (and counted). It is never changed into
 * another, since that could be the name of another object. `dir` is the key of the directory
 * that the name is in. Shown is what can be one name in a directory of the local filesystem,
 * does not make the key longer than any call takes, and is not PATH_RESERVED in the root. */
bool path_name_shown(const char *dir, const char *name, size_t len);

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
