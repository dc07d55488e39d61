/* cache/notes/: leases by times alone, with nothing above them. What asks a store is in
 * test_cache_notes. */
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/unit/notes/suites.h"

int main(void)
{
    Suite *const suites[] = {times_suite()};

    return suites_run(suites, ARRAY_SIZE(suites));
}
