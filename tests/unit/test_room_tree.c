/* cache/tree/: names in memory, with nothing above them. */
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/unit/tree/suites.h"

int main(void)
{
    Suite *const suites[] = {children_suite(), tree_suite(), version_suite()};

    return suites_run(suites, ARRAY_SIZE(suites));
}
