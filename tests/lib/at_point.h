/* Something is done once, when the cache passes a crash point: what test_cache_between.c and
 * its like share. Include it once. */
#ifndef RUNFS_TESTS_LIB_AT_POINT_H
#define RUNFS_TESTS_LIB_AT_POINT_H

#include "cache/mirror/crash.h"

#include <stdatomic.h>
#include <string.h>

static const char *point;
static void (*what)(void);
static atomic_bool begun, done;

static void seen(const char *name)
{
    if (strcmp(name, point) != 0 || atomic_exchange(&begun, true))
        return;
    what();
    atomic_store(&done, true);
}

static void at(const char *name, void (*function)(void))
{
    point = name;
    what = function;
    atomic_store(&begun, false);
    atomic_store(&done, false);
    crash_watch(seen);
}

#endif
