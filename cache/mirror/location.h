/* Where a cache directory is. Two things tell a directory that is where the last mount left it
 * from a copy: the file `place` in it names the directory itself and the machine, and a mark on
 * mirror/, an extended attribute, went along if the stamps did. docs/format.md, section 1.
 *
 * One thread, at the mount. 0 or a negative errno. */
#ifndef RUNFS_CACHE_LOCATION_H
#define RUNFS_CACHE_LOCATION_H

#include "cache/mirror/mirror.h"

/* Sets `older`, `copied` and `stampless` of the mirror. A directory without the file is new, or
 * of an older version of runfs: the first alone. */
int location_check(struct mirror *m);
/* Notes that the directory is here, once recovery has drawn its consequences. */
int location_note(struct mirror *m);

#endif
