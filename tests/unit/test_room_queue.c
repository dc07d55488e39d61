/* cache/queue/: what the store is owed, with nothing above it. */
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/unit/queue/suites.h"

int main(void)
{
    Suite *const suites[] = {order_suite(), moved_suite(), barrier_suite(), scope_suite(),
                             walk_suite(),  rows_suite(),  paths_suite()};

    return suites_run(suites, ARRAY_SIZE(suites));
}
