/* The crash points of debug builds; see crash.h. */
#include "cache/mirror/crash.h"

#ifndef NDEBUG
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(const char *) armed;
static void (*_Atomic watching)(const char *name);

void crash_arm(const char *at)
{
    atomic_store(&armed, at);
}

void crash_watch(void (*seen)(const char *name))
{
    atomic_store(&watching, seen);
}

void crash_point(const char *name)
{
    void (*seen)(const char *) = atomic_load(&watching);
    if (seen)
        seen(name);
    static atomic_long passed;
    const char *at = atomic_load(&armed);
    if (!at)
        at = getenv("RUNFS_CRASH_AT");
    size_t len = strlen(name);

    if (!at || strncmp(at, name, len) != 0 || (at[len] != '\0' && at[len] != ':'))
        return;
    long wanted = at[len] == ':' ? strtol(at + len + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&passed, 1) + 1 == wanted)
        (void)raise(SIGKILL);
}
#endif
