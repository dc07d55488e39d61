/* The end of a test program. */
#ifndef RUNFS_TESTS_LIB_SUITE_H
#define RUNFS_TESTS_LIB_SUITE_H

#include <check.h>

/* Runs the suite and frees it. The status for main() to return: not 0 when a test failed. */
int suite_run(Suite *s);

#endif
