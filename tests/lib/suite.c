#include "tests/lib/suite.h"

#include "tests/lib/some.h"
#include "tests/lib/temp_dir.h"

#include <stdlib.h>

int suites_run(Suite *const *suites, size_t n)
{
    SRunner *runner = srunner_create(suites[0]);

    for (size_t i = 1; i < n; i++)
        srunner_add_suite(runner, suites[i]);
    if (srunner_fork_status(runner) == CK_FORK)
        temp_dir_begin();
    srunner_run_all(runner, CK_ENV);
    some_print();
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int suite_run(Suite *s)
{
    return suites_run(&s, 1);
}
