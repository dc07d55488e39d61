/* The search for an object that two routes show: for each name of its place, the few names that
 * stand for all that could be there. Inner to routes_overlap(). */
#ifndef RUNFS_RUNS_OVERLAP_H
#define RUNFS_RUNS_OVERLAP_H

#include "common/path.h"
#include "runs/routes.h"

/* What a route says of one name of an object's place. */
struct slot {
    const struct route *route;
    const char *literal; /* this name; NULL: others too */
    size_t literal_len;
    const struct component *capture; /* of the key; NULL: any name */
    size_t path_at;                  /* the component of the path that the name becomes */
};

/* A name that two slots allow, and what it becomes in the paths of the two. */
struct candidate {
    char name[PATH_NAME_MAX + 1];
    char shown[2][PATH_NAME_MAX + 1]; /* "" for a literal, which is in no path */
};

/* Names for one place. */
struct candidates {
    struct candidate *items; /* heap */
    size_t n, cap;
    size_t at; /* the one that is tried */
};

#define FRESH_MAX 3
/* A character that no literal of the routes has, so that no name of it alone is a special one;
 * if there is none, any. */
void overlap_fresh(const struct routes *r, char ret[FRESH_MAX]);

/* Adds the names of a place. A name is left out if every earlier route that takes what an added
 * one becomes takes what this one becomes, too: it could not be shown where that isn't.
 * `letter` is the name that reads best. 0 or -ENOMEM. */
int overlap_names(const struct routes *r, const struct slot slots[2], char letter,
                  const char *fresh, struct candidates *ret);

#endif
