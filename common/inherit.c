/* Descriptors that end with an exec. */
#include "common/inherit.h"

#include <limits.h>
#include <linux/close_range.h>
#include <unistd.h>

void inherit_no_descriptors(void)
{
    (void)close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
}
