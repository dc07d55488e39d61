/* The suites of test_room_queue. */
#ifndef RUNFS_TESTS_UNIT_QUEUE_SUITES_H
#define RUNFS_TESTS_UNIT_QUEUE_SUITES_H

#include <check.h>

Suite *order_suite(void);
Suite *moved_suite(void);
Suite *barrier_suite(void);
Suite *scope_suite(void);
Suite *walk_suite(void);
Suite *rows_suite(void);
Suite *paths_suite(void);

#endif
