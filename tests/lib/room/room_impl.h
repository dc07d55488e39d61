/* What the files of room/ share. */
#ifndef RUNFS_TESTS_LIB_ROOM_ROOM_IMPL_H
#define RUNFS_TESTS_LIB_ROOM_ROOM_IMPL_H

#include "tests/lib/room.h"

#include <check.h>

#define PARTS_MAX 8

typedef void (*part_end)(struct cache *c);

struct room {
    struct cache cache; /* first: it is freed as this */
    char dir[64];
    part_end ends[PARTS_MAX]; /* the last one first */
    unsigned n;
};

void room_ends_with(struct cache *c, part_end end);
/* Frees all nodes. Does nothing the second time. */
void room_clear_tree(struct cache *c);

#endif
