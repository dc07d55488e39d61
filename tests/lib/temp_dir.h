/* Directories of a test. */
#ifndef RUNFS_TESTS_LIB_TEMP_DIR_H
#define RUNFS_TESTS_LIB_TEMP_DIR_H

#include <stddef.h>

/* A new one: where $TMPDIR says, else in memory if that will do. Aborts the test on a failure.
 * What is left of it and beside it when the process exits is removed then; a signal that kills
 * the process leaves it. */
void temp_dir_make(char *ret, size_t size);
/* Before the processes of tests begin: this one removes what they leave, as a test that fails
 * in a process of its own ends without asking. */
void temp_dir_begin(void);
/* With all that is in it. */
void temp_dir_remove(const char *dir);

#endif
