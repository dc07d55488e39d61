/* cache/types/: values, with nothing above them. */
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/unit/types/suites.h"

int main(void)
{
    Suite *const suites[] = {
        acl_suite(),   debt_suite(),  readahead_suite(), attr_index_suite(), etag_suite(),
        place_suite(), range_suite(), sums_suite(),      xattr_set_suite(),
    };

    return suites_run(suites, ARRAY_SIZE(suites));
}
