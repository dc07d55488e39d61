#include "tests/lib/some.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef __SANITIZE_THREAD__
bool some_is_slow = true;
#else
bool some_is_slow = false;
#endif

static unsigned seen, told; /* of all loops */

bool by_night(void)
{
    return getenv("RUNFS_NIGHTLY") != NULL;
}

unsigned every(unsigned nth)
{
    return some_is_slow && !by_night() ? nth : 1;
}

unsigned step_through(unsigned all, unsigned gate, unsigned tsan)
{
    unsigned most = some_is_slow ? tsan * (by_night() ? 2 : 1) : by_night() ? all : gate;

    return all > most ? all / most : 1;
}

struct some some_begin(int from, int to, unsigned nth)
{
    unsigned n = (unsigned)(to - from), step = every(nth);
    unsigned first = n ? (step - seen % step) % step % n : 0;

    seen += n;
    told += (n - first + step - 1) / step;
    return (struct some){.at = from + (int)first, .to = to, .step = step};
}

void some_print(void)
{
    if (told < seen)
        (void)printf("%u of %u repetitions; all of them by night\n", told, seen);
}
