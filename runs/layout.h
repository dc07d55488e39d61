/* Layouts: what frameworks call the parts of a tree, as a table of routes. Constant; any
 * thread.
 *
 * A layout has categories, which a configuration puts into stores. A category has a directory;
 * its default is below, and the keys of its routes are texts behind it. */
#ifndef RUNFS_RUNS_LAYOUT_H
#define RUNFS_RUNS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#define LAYOUT_CATEGORIES_MAX 8

/* What a configuration may choose. */
enum layout_choice {
    LAYOUT_TRACKER = 1 << 0, /* a tracker was named */
    LAYOUT_UNSAVED = 1 << 1, /* "save_runs": false */
    LAYOUT_RAW = 1 << 2,     /* "names": "raw" */
};

struct layout_category {
    const char *name;
    const char *folder; /* "": the store's root */
    bool optional;      /* it has routes only when it is named; others lie in the last one */
};

struct layout_route {
    const char *category;
    const char *path;
    const char *key; /* behind the category's directory */
    const char *policy;
    unsigned with, without; /* enum layout_choice: all of these and none of those */
};

struct layout {
    const char *name;
    /* End with an empty one; the last takes what others do not name. */
    const struct layout_category *categories;
    const struct layout_route *routes; /* end with an empty one */
    unsigned choices;                  /* which it has */
};

/* NULL: there is none. */
const struct layout *layout_find(const char *name);
/* The i-th; NULL behind the last. */
const struct layout *layout_at(size_t i);
/* Index among the categories of the layout; LAYOUT_CATEGORIES_MAX: none. */
size_t layout_category(const struct layout *l, const char *name);
size_t layout_categories_n(const struct layout *l);
bool layout_route_counts(const struct layout_route *route, unsigned choices);

#endif
