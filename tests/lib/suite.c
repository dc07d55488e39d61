#include "tests/lib/suite.h"

#include <stdlib.h>

int suite_run(Suite *s)
{
    SRunner *runner = srunner_create(s);

    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
