/* The suites of test_room_content that stand in files of their own. */
#ifndef RUNFS_TESTS_UNIT_CONTENT_SUITES_H
#define RUNFS_TESTS_UNIT_CONTENT_SUITES_H

#include <check.h>

Suite *rows_suite(void);

#endif
