/* The suites of test_room_mirror. */
#ifndef RUNFS_TESTS_UNIT_MIRROR_SUITES_H
#define RUNFS_TESTS_UNIT_MIRROR_SUITES_H

#include <check.h>

Suite *door_suite(void);
Suite *journal_suite(void);
Suite *mirror_suite(void);
Suite *stamp_suite(void);

#endif
