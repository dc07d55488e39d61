/* The map of user numbers; see unmapped.h. */
#include "common/unmapped.h"

#include <limits.h>
#include <stdio.h>

bool uid_is_unmapped_root(uid_t uid)
{
    unsigned inside = 0, outside = 0, count = 0, overflow = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    FILE *number = fopen("/proc/sys/kernel/overflowuid", "re");
    bool whole = !map || fscanf(map, "%u %u %u", &inside, &outside, &count) != 3 ||
                 (outside == 0 && count == UINT_MAX);
    bool known = number && fscanf(number, "%u", &overflow) == 1;

    if (map)
        (void)fclose(map);
    if (number)
        (void)fclose(number);
    return !whole && known && uid == overflow;
}
