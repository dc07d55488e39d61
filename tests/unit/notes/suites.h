/* The suites of test_room_notes. */
#ifndef RUNFS_TESTS_UNIT_NOTES_SUITES_H
#define RUNFS_TESTS_UNIT_NOTES_SUITES_H

#include <check.h>

Suite *times_suite(void);

#endif
