/* cache/mirror/: the cache directory, with nothing above it. */
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/unit/mirror/suites.h"

int main(void)
{
    Suite *const suites[] = {door_suite(), journal_suite(), mirror_suite(), stamp_suite()};

    return suites_run(suites, ARRAY_SIZE(suites));
}
