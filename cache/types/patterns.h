/* Patterns of names: what a path says of its file by one of its components. Pure; any thread.
 */
#ifndef RUNFS_CACHE_TYPES_PATTERNS_H
#define RUNFS_CACHE_TYPES_PATTERNS_H

#include <stdbool.h>

/* Staging names and logs where nobody says which; each ends with NULL. */
extern const char *const patterns_staging[];
extern const char *const patterns_logs[];

/* Whether fnmatch(3) takes a component of the path by one of the patterns; those end with NULL.
 */
bool patterns_take(const char *const *patterns, const char *path);
/* The same of patterns that are joined by ":". */
bool patterns_text_takes(const char *patterns, const char *path);

#endif
