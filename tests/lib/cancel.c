#include "tests/lib/cancel.h"
#include "common/op.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

void *cancel_soon(void *arg)
{
    struct timespec ts = {.tv_nsec = 30 * NS_PER_MS};

    nanosleep(&ts, NULL);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}
