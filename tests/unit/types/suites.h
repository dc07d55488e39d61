/* The suites of test_room_types. */
#ifndef RUNFS_TESTS_UNIT_TYPES_SUITES_H
#define RUNFS_TESTS_UNIT_TYPES_SUITES_H

#include <check.h>

Suite *acl_suite(void);
Suite *attr_index_suite(void);
Suite *debt_suite(void);
Suite *etag_suite(void);
Suite *place_suite(void);
Suite *range_suite(void);
Suite *readahead_suite(void);
Suite *sums_suite(void);
Suite *xattr_set_suite(void);

#endif
