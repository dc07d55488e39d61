/* The suites of test_room_tree. */
#ifndef RUNFS_TESTS_UNIT_TREE_SUITES_H
#define RUNFS_TESTS_UNIT_TREE_SUITES_H

#include <check.h>

Suite *children_suite(void);
Suite *tree_suite(void);
Suite *version_suite(void);

#endif
