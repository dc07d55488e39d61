/* What the store has of one unit: found, and removed in the order in which nobody takes a part
 * of it for the whole (docs/units.md, 7 and 8). Who asks has told others by a note. Each call
 * blocks, for one request or more, and returns 0 or a negative errno with op->why. */
#ifndef RUNFS_CACHE_TRANSFER_UNIT_OBJECTS_H
#define RUNFS_CACHE_TRANSFER_UNIT_OBJECTS_H

#include "cache/listing/listing.h"
#include "cache/notes/lease.h"
#include "cache/notes/notes.h"

struct unit_objects {
    struct cache *c;
    struct op *op;
    struct place at; /* borrowed; the unit's directory */
    const struct notes_at *notes;
    struct lease *lease; /* under which it is done, in that term; 0: under none */
    uint64_t term;
    const char *done; /* patterns of files in `at` that say that it is complete; or NULL */
    bool began;       /* set when a file may have been removed */
};

/* Before each request: gives it its time, and looks whether the lease is held in that term. */
int unit_objects_begin(const struct unit_objects *o);

struct unit_found {
    struct listed *v; /* names below the unit's directory, files and directories */
    size_t n, cap;
};

int unit_objects_find(const struct unit_objects *o, struct unit_found *ret);
void unit_found_release(struct unit_found *f);
/* The file that the store took last; NULL: there is none. */
const struct listed *unit_found_newest(const struct unit_found *f);

/* Removes what was found, and the unit's seals. The files that say that the unit is whole go
 * first: those above, and those that seals name in the version that is there; without any the
 * newest. -ENOTEMPTY: all of it has gone, but something else is in its directory. */
int unit_objects_remove(struct unit_objects *o, struct unit_found *f);

#endif
