/* The end of a test program. */
#ifndef RUNFS_TESTS_LIB_SUITE_H
#define RUNFS_TESTS_LIB_SUITE_H

#include <check.h>
#include <stddef.h>

/* Runs the suite and frees it. The status for main() to return: not 0 when a test failed. */
int suite_run(Suite *s);
/* The same of several, one at least; CK_RUN_SUITE picks one of them. */
int suites_run(Suite *const *suites, size_t n);

#endif
