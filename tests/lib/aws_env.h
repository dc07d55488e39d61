/* A clean slate for tests of AWS's settings. */
#ifndef RUNFS_TESTS_LIB_AWS_ENV_H
#define RUNFS_TESTS_LIB_AWS_ENV_H

/* Removes every AWS_ variable, and turns the instance metadata service off: no test asks the
 * machine that it runs on. The umask becomes one whose profiles are not refused. */
void aws_clear_environment(void);

#endif
