/* What programs do before the power is cut, and what a test knows of it at each step. */
#ifndef RUNFS_TESTS_LIB_POWER_STORIES_H
#define RUNFS_TESTS_LIB_POWER_STORIES_H

#include "tests/lib/driven.h"
#include "tests/lib/power/disk.h"

/* The files of a story are documents in versions, whose content tells which. */
#define CONTENT_MAX 20000
#define DOCS        6
#define FOUND       3 /* documents that a story with a `before` finds in the store */

/* What is known of a document; the record's marks are a document, a fact and its value. */
enum fact {
    BEGUN,  /* version that a program began to write */
    CLOSED, /* version whose close() was answered */
    SAFE,   /* version whose fsync() was, or all of it by a clean end */
    GOING,  /* 1: its removal, or what replaces it, has begun */
    GONE,   /* 1: and is synced */
    MOVING, /* 1: a rename to its second path has begun */
    MOVED,  /* 1: and is synced */
    FACTS
};

struct known {
    int of[DOCS][FACTS];
};

struct story {
    const char *name;
    const char *path[DOCS][2]; /* where a document is saved, and where it is moved */
    void (*before)(void);      /* not recorded; or NULL */
    void (*tell)(void);        /* NULL: a mount after a cut of the story before this one */
    int tail;          /* of a unit: the document that comes after all before it; or 0 */
    int pointer;       /* and one beside the unit that comes after it; or 0 */
    unsigned percent;  /* of the story before this one, where that was cut */
    enum disk_way way; /* and how */
};

extern const struct story power_stories[];
extern const size_t power_stories_n;

/* The story that is told, and the cache that it is told to. */
extern const struct story *power_story;
extern struct driven power_driven;

/* Whether it is a whole version of a document, and which. */
bool power_is_whole(const char *data, size_t len, int *ret_f, int *ret_v);

#endif
